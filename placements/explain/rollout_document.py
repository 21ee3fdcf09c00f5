"""What may happen in a rollout, as plain data: for a record, a program, a page."""

from collections import Counter
from datetime import datetime
from typing import Any

from placements.rollout.answer import Action, Answer, HeldBack, Remove, UnderWay, Waiting
from placements.rollout.budget import Budgets, Ceiling, Floor

MOST_LISTED = 200
"""Of thousands of clusters that wait, the record lists so many by name, and counts all of them."""


def answer_facts(answer: Answer) -> dict[str, Any]:
    """Give an answer as plain data; of those that wait or are under way the first 200, and all counted."""
    return {
        "verdict": str(answer.verdict),
        "actions": [action_facts(one) for one in answer.actions],
        "budgets": budget_facts(answer.budgets),
        "waiting": [_waiting(one) for one in answer.waiting[:MOST_LISTED]],
        "waitingCounts": dict(sorted(Counter(str(one.block) for one in answer.waiting).items())),
        "underWay": [_under_way(one) for one in answer.under_way[:MOST_LISTED]],
        "underWayCounts": dict(sorted(Counter(str(one.phase) for one in answer.under_way).items())),
        "until": _moment(answer.until),
        "unreachable": list(answer.unreachable),
        "mayStillHold": list(answer.may_still_hold),
        "heldBack": _held_back(answer.held_back),
    }


def budget_facts(budgets: Budgets) -> dict[str, Any]:
    """Give both budgets with every number that they were made of."""
    facts: dict[str, Any] = {
        "updates": _floor(budgets.updates),
        "removals": _floor(budgets.removals),
        "additions": _ceiling(budgets.additions),
    }
    if budgets.deletion:
        slots = budgets.deletion
        facts["deletion"] = {
            "limit": slots.limit,
            "running": slots.running,
            "started": slots.started,
            "allowed": slots.allowed,
        }
    return facts


def _floor(floor: Floor) -> dict[str, int]:
    return {
        "number": floor.number,
        "limit": floor.limit,
        "ready": floor.ready,
        "atRisk": floor.at_risk,
        "floor": floor.floor,
        "allowed": floor.allowed,
    }


def _ceiling(ceiling: Ceiling) -> dict[str, int]:
    return {
        "number": ceiling.number,
        "limit": ceiling.limit,
        "holding": ceiling.holding,
        "added": ceiling.added,
        "ceiling": ceiling.ceiling,
        "allowed": ceiling.allowed,
    }


def _waiting(waiting: Waiting) -> dict[str, Any]:
    return {
        "cluster": waiting.cluster,
        "block": str(waiting.block),
        "action": action_facts(waiting.action) if waiting.action else None,
        "running": waiting.running,
        "wanted": waiting.wanted,
        "until": _moment(waiting.until),
        "forgettableFrom": _moment(waiting.forgettable_from),
        "since": _moment(waiting.since),
    }


def action_facts(action: Action) -> dict[str, Any]:
    """Give what is to be started as plain data."""
    what = "remove" if isinstance(action, Remove) else str(action.why)
    version = None if isinstance(action, Remove) else action.version
    return {"cluster": action.cluster, "what": what, "version": version, "attempt": action.attempt}


def _under_way(one: UnderWay) -> dict[str, Any]:
    return {"cluster": one.cluster, "phase": str(one.phase), "until": _moment(one.until)}


def _held_back(held: HeldBack | None) -> dict[str, Any] | None:
    if held is None:
        return None
    return {
        "found": held.found,
        "askedFor": held.asked_for,
        "staying": list(held.staying),
        "isForGood": held.is_for_good,
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
