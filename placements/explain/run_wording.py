"""A run in sentences: how far it is, why it is waiting, and the waves of a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from placements.explain.rollout_document import action_facts, answer_facts, budget_facts
from placements.explain.rollout_wording import (
    ceiling_sentence,
    floor_sentence,
    freeing_sentence,
    held_back_sentence,
    slots_sentence,
    under_way_sentence,
    waiting_sentence,
)
from placements.rollout.answer import Answer, Block, Verdict, Waiting
from placements.rollout.budget import Budgets
from placements.rollout.plan import Plan

MOST_SHOWN = 20
MOST_FACTS = 200


@dataclass(frozen=True, slots=True)
class Progress:
    """How many of the selected clusters have the new version; of a deletion, how many are cleared."""

    done: int
    number: int
    is_deletion: bool = False


def progress_sentence(progress: Progress, budgets: Budgets | None) -> str:
    """Say how far a run is, with the floor and the ceiling that it keeps to."""
    if progress.is_deletion:
        return f"{progress.done:,} of {progress.number:,} cleared"
    told = [f"{progress.done:,} of {progress.number:,} on the new version"]
    if budgets:
        floor, ceiling = budgets.updates, budgets.additions
        told.append(f"{floor.ready:,} available (floor {floor.floor:,})")
        told.append(f"{ceiling.holding + ceiling.added:,} placed (ceiling {ceiling.ceiling:,})")
    return " · ".join(told)


@dataclass(frozen=True, slots=True)
class Waiters:
    """Clusters that the same thing keeps waiting: how many, the first, what it is, what would free them."""

    block: Block
    count: int
    clusters: tuple[str, ...]
    why: str
    freed_by: str
    until: datetime | None = None


def waiters_of(answer: Answer) -> list[Waiters]:
    """Group the clusters that wait by what keeps them and what they run and want, in the words for all."""
    ordered = sorted(answer.waiting, key=lambda one: (*_kept_by(one), _since(one), one.cluster))
    groups = (list(group) for _, group in groupby(ordered, key=_kept_by))
    return [_alike(group, answer) for group in groups]


def _kept_by(one: Waiting) -> tuple[int, str, str]:
    return list(Block).index(one.block), one.running or "", one.wanted or ""


def _since(one: Waiting) -> float:
    """Put what is out of reach the longest before the others of its group."""
    return one.since.timestamp() if one.since else 0.0


def _alike(group: Sequence[Waiting], answer: Answer) -> Waiters:
    """Say of clusters that wait alike what keeps them, and what would free the first of them."""
    first = min(group, key=lambda one: (one.until is None, one.until and one.until.timestamp()))
    names = tuple(one.cluster for one in group[:MOST_SHOWN])
    why = waiting_sentence(first, answer, clusters=len(group))
    why += ", the first of them" if len({one.since for one in group}) > 1 else ""
    return Waiters(first.block, len(group), names, why, freeing_sentence(first, answer), first.until)


def budget_sentences(budgets: Budgets) -> list[str]:
    """Write the arithmetic of the budgets; removals only where they have a floor of their own."""
    if budgets.deletion:
        return [slots_sentence(budgets.deletion)]
    removals = budgets.removals
    own = [] if removals == budgets.updates else [f"of removals: {floor_sentence(removals)}"]
    return [floor_sentence(budgets.updates), *own, ceiling_sentence(budgets.additions)]


VERDICT_WORDS = {
    Verdict.STARTS: "work is starting",
    Verdict.WAITS: "waiting for what is under way, or due later",
    Verdict.HALTED: "halted: nothing goes on by itself",
    Verdict.FINISHED: "everything is as wanted",
}


def answer_sentences(answer: Answer) -> dict[str, Any]:
    """Give what an answer says in words, as plain data."""
    held = answer.held_back
    return {
        "verdict": VERDICT_WORDS[answer.verdict],
        "budgets": budget_sentences(answer.budgets),
        "waiting": [_waiters(one) for one in waiters_of(answer)],
        "underWay": [f"{one.cluster} {under_way_sentence(one)}" for one in answer.under_way[:MOST_SHOWN]],
        "heldBack": held_back_sentence(held) if held else None,
    }


def _waiters(one: Waiters) -> dict[str, Any]:
    return {
        "block": str(one.block),
        "count": one.count,
        "clusters": list(one.clusters),
        "why": one.why,
        "freedBy": one.freed_by,
    }


def short_answer_facts(answer: Answer) -> dict[str, Any]:
    """Give an answer as plain data with at most 200 of each list, and the lengths of the whole lists."""
    facts = answer_facts(answer)
    lists = {key: value for key, value in facts.items() if isinstance(value, list)}
    counts = {f"{key}Count": len(value) for key, value in lists.items()}
    return {**facts, **{key: value[:MOST_FACTS] for key, value in lists.items()}, **counts}


def plan_document(plan: Plan) -> dict[str, Any]:
    """Give the waves of a plan, and who would still wait after them, as plain data."""
    waves = [
        {
            "number": wave.number,
            "count": len(wave.actions),
            "actions": [action_facts(one) for one in wave.actions],
            "budgets": budget_facts(wave.budgets),
        }
        for wave in plan.waves
    ]
    rest = {**short_answer_facts(plan.rest), "sentences": answer_sentences(plan.rest)}
    return {"waves": waves, "rest": rest}


def wave_counts(waves: Sequence[Sequence[str]]) -> str:
    """Write how many clusters each wave has: "3, 3, 3 and 1"."""
    counts = [str(len(one)) for one in waves]
    return ", ".join(counts) if len(counts) <= MOST_SHOWN else f"{', '.join(counts[:MOST_SHOWN])}, …"
