"""Rollouts for people and programs: sentences, the stored document of a sync result, progress, plans."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import groupby
from typing import Any, TypeAlias

from fleetui.apimachinery.words import counted, first_names
from placements.engine.rollout.actions import (
    Action,
    BlockedCluster,
    BlockedRemovals,
    BlockReason,
    InProgressCluster,
    Remove,
    RollingUpdateResult,
    RunPhase,
    StartUpdate,
    UpdateReason,
)
from placements.engine.rollout.budget import (
    Budgets,
    Concurrency,
    MaxTotal,
    MinAvailable,
)
from placements.engine.rollout.state import Phase, RolloutState
from placements.engine.rollout.waves import WavePlan
from placements.explain.vocabulary import duration_text, moment_words, verb

# Of thousands of blocked clusters, the document lists this number by name, and counts
# all of them.
MOST_LISTED = 200
MOST_SHOWN = 20
Document: TypeAlias = Mapping[str, Any]


PHASE_MESSAGES = {
    RunPhase.STARTS: "Starting updates",
    RunPhase.WAITS: "Waiting for running updates",
    RunPhase.HALTED: "Rollout stalled. Action required",
    RunPhase.FINISHED: "No updates pending",
}
UP_TO_DATE = "all clusters are up to date"
REMOVED = "removed from all clusters"
DELETED = "the placement was deleted"
RELEASED = "released on all clusters; the resources stay there"


def finished_reason(state: RolloutState) -> str:
    """Return how a rollout ended that had nothing more to do: complete, or which clusters are missing."""
    if state.deletion:
        holding = sum(cluster.has_resources for cluster in state.clusters)
        complete = RELEASED if state.deletion.abandons else REMOVED
        return (
            f"{counted(holding, 'cluster')} may still hold resources"
            if holding
            else complete
        )
    selected = [cluster for cluster in state.clusters if cluster.wanted is not None]
    available = sum(map(state.is_available, selected))
    required = max(state.number_required, len(selected))
    if len(selected) == available == required:
        return UP_TO_DATE
    return f"{len(selected):,} of {counted(required, 'cluster')} selected; {available:,} available"


def phase_sentence(result: RollingUpdateResult) -> str:
    """Return what a rollout does now; that it is paused or stopped comes before everything else."""
    reasons = {cluster.reason for cluster in result.blocked}
    if BlockReason.PAUSED in reasons or BlockReason.STOPPED in reasons:
        word = "Paused" if BlockReason.PAUSED in reasons else "Stopped"
        return f"{word}: no new updates start{', running updates finish' if result.in_progress else ''}"
    if result.requeue_at and not (result.in_progress or result.actions):
        stalled = "Rollout stalled. " * (result.phase is RunPhase.HALTED)
        return f"{stalled}Waiting for the next retry"
    return PHASE_MESSAGES[result.phase]


def min_available_sentence(budget: MinAvailable) -> str:
    at_risk = f", {budget.at_risk:,} being taken down" if budget.at_risk else ""
    return (
        f"{_can('take down', budget.allowed)} "
        f"({budget.ready:,} available{at_risk}, minimum {budget.minimum:,})"
    )


def max_total_sentence(budget: MaxTotal) -> str:
    placed = budget.holding + budget.added
    return (
        f"{_can('add', budget.allowed)} ({placed:,} placed, maximum {budget.maximum:,})"
    )


def concurrency_sentence(budget: Concurrency) -> str:
    running = budget.running + budget.started
    return f"{_can('remove from', budget.allowed)} ({running:,} in progress, maximum {budget.limit:,})"


def _can(do: str, number: int) -> str:
    return (
        f"Can {do} {counted(number, 'more cluster')}"
        if number
        else f"Cannot {do} any cluster"
    )


def budget_sentences(budgets: Budgets, *, is_initial: bool = False) -> list[str]:
    """Return the numbers of the budgets; removals only where they have a separate minimum.

    In an initial deployment, and while nothing is available, nothing can become unavailable.
    """
    if budgets.deletion:
        return [concurrency_sentence(budgets.deletion)]
    has_minimum = budgets.updates.ready > 0 and not is_initial
    sentences = [min_available_sentence(budgets.updates)] if has_minimum else []
    if budgets.removals != budgets.updates and has_minimum:
        sentences.append(f"Removals: {min_available_sentence(budgets.removals)}")
    return [*sentences, max_total_sentence(budgets.additions)]


def blocked_removals_sentence(removals: BlockedRemovals) -> str:
    """Return which removals the minimum blocks, and what would allow them (`rules/lifecycle.md#removals`)."""
    number = len(removals.clusters)
    kept = f"{counted(number, 'placement')} {verb(number, 'is')} kept until replacements are available."
    if removals.selected_count < removals.required:
        selected = f"{removals.selected_count:,} of {counted(removals.required, 'cluster')} selected."
        return f"{selected} {kept} To release {'it' if number == 1 else 'them'}, reduce numberOfClusters."
    return kept


def blocked_sentence(
    blocked: BlockedCluster, result: RollingUpdateResult, *, clusters: int = 1
) -> str:
    budgets, pending, because = (
        result.budgets,
        _pending(blocked),
        " because maxUnavailable is 0",
    )
    is_applied = blocked.wanted is not None and blocked.running == blocked.wanted
    if blocked.reason is BlockReason.UNREACHABLE and is_applied:
        pending = f"Applied {blocked.wanted}, not available."
    template = _WHY_BLOCKED[blocked.reason]
    if blocked.reason is BlockReason.RETRY_LATER and clusters > 1:
        template = "Failed. First retry{retry_at}."
    return template.format(
        pending=pending,
        wanted=blocked.wanted,
        since=_since(blocked.since),
        attempts=f" {counted(blocked.action.attempt - 1, 'time')}"
        if blocked.action
        else "",
        retry_at=f" at {moment_words(blocked.retry_at)}" if blocked.retry_at else "",
        updates=min_available_sentence(budgets.updates)
        + (because if budgets.updates.limit == 0 else ""),
        removals=min_available_sentence(budgets.removals),
        additions=max_total_sentence(budgets.additions),
        deletion=f" {concurrency_sentence(budgets.deletion)}."
        if budgets.deletion
        else "",
    )


def waiting_sentence(blocked: BlockedCluster, result: RollingUpdateResult) -> str:
    """Return what unblocks a cluster, and why it waits; rows of phones show the first words only."""
    return f"Unblocks when {unblock_sentence(blocked, result)}. {blocked_sentence(blocked, result)}"


def unblock_sentence(blocked: BlockedCluster, result: RollingUpdateResult) -> str:
    """Return what would unblock a cluster, as a clause after "when"."""
    budgets, removals = result.budgets, result.blocked_removals
    sentence = ""
    match blocked.reason:
        case BlockReason.UNREACHABLE if blocked.abandonable_from:
            return f"the cluster reconnects, or is force-removed after {moment_words(blocked.abandonable_from)}"
        case BlockReason.UPDATE_FLOOR if budgets.updates.limit:
            sentence = _becoming_available(result)
        case BlockReason.REMOVAL_FLOOR if removals and removals.is_permanent:
            return "numberOfClusters is reduced, more clusters are selected, or maxUnavailable is increased"
        case BlockReason.REMOVAL_FLOOR:
            sentence = _becoming_available(result)
        case BlockReason.CEILING | BlockReason.DELETION_LIMIT:
            names = [
                cluster.cluster
                for cluster in result.in_progress
                if cluster.phase is Phase.REMOVING
            ]
            names += [
                action.cluster
                for action in result.actions
                if isinstance(action, Remove)
            ]
            sentence = first_names(
                [f"the removal from {name} completes" for name in names]
            )
    surge = "increased" if budgets.additions.limit else "greater than 0"
    return sentence or _UNBLOCKED_WHEN[blocked.reason].format(surge=surge)


_UNBLOCKED_WHEN = {
    BlockReason.PAUSED: "the placement is resumed",
    BlockReason.STOPPED: "a new rollout starts",
    BlockReason.NOT_IN_FLEET: "the placement is scheduled again",
    BlockReason.NOT_MONITORED: "the cluster gets a driver",
    BlockReason.UNREACHABLE: "the cluster reconnects",
    BlockReason.NOT_AVAILABLE: "the cluster is available, or a newer version is applied",
    BlockReason.RETRY_LATER: "the retry succeeds, or a newer version is applied",
    BlockReason.BEING_REMOVED: "the removal completes",
    BlockReason.UPDATE_FLOOR: "maxUnavailable is increased",
    BlockReason.REMOVAL_FLOOR: "more clusters are available, or maxUnavailable is increased",
    BlockReason.CEILING: "a removal completes, or maxSurge is {surge}",
    BlockReason.DELETION_LIMIT: "another removal completes",
}


def in_progress_sentence(cluster: InProgressCluster) -> str:
    until = (
        f" until {moment_words(cluster.available_at)}" if cluster.available_at else ""
    )
    words = {
        Phase.APPLYING: "applying",
        Phase.APPLIED: "waiting for availability",
        Phase.REMOVING: "removing",
    }
    return f"{words[cluster.phase]}{until}"


def away_sentence(
    result: RollingUpdateResult, reason: BlockReason = BlockReason.UNREACHABLE
) -> str:
    """Return the unreachable, or not available, clusters of a result, and since when; empty without one."""
    away = [cluster for cluster in result.blocked if cluster.reason is reason]
    if not away:
        return ""
    since = _since(
        min((cluster.since for cluster in away if cluster.since), default=None)
    )
    first = ", the first" if len({cluster.since for cluster in away}) > 1 else ""
    word = "Unreachable" if reason is BlockReason.UNREACHABLE else "Not available"
    return (
        f"{word}{first}{since}: {first_names([cluster.cluster for cluster in away])}."
    )


def _since(moment: datetime | None) -> str:
    return f" since {moment_words(moment)}" if moment else ""


def _pending(blocked: BlockedCluster) -> str:
    if blocked.wanted is None:
        return (
            f"On {blocked.running}, pending removal."
            if blocked.running
            else "Pending removal."
        )
    current = f"On {blocked.running}" if blocked.running else "Not placed yet"
    return f"{current}, waiting for {blocked.wanted}."


_WHY_BLOCKED = {
    BlockReason.PAUSED: "{pending} The placement is paused.",
    BlockReason.STOPPED: "{pending} The rollout was stopped.",
    BlockReason.NOT_IN_FLEET: "{pending} No longer in the fleet.",
    BlockReason.NOT_MONITORED: "Scheduled, not applied. The cluster is not monitored: it has no driver.",
    BlockReason.UNREACHABLE: "{pending} Unreachable{since}.",
    BlockReason.NOT_AVAILABLE: "Applied {wanted}, not available{since}.",
    BlockReason.RETRY_LATER: "Failed{attempts}. Next retry{retry_at}.",
    BlockReason.BEING_REMOVED: "Waiting for {wanted}. The previous version is being removed.",
    BlockReason.UPDATE_FLOOR: "{pending} {updates}.",
    BlockReason.REMOVAL_FLOOR: "{pending} {removals}.",
    BlockReason.CEILING: "{pending} {additions}.",
    BlockReason.DELETION_LIMIT: "Pending removal.{deletion}",
}


def _becoming_available(result: RollingUpdateResult) -> str:
    starting = [
        action.cluster for action in result.actions if not isinstance(action, Remove)
    ]
    blocked: dict[BlockReason, list[str]] = {reason: [] for reason in BlockReason}
    for cluster in result.blocked:
        blocked[cluster.reason].append(cluster.cluster)
    clauses = [
        f"{cluster.cluster} is available"
        + (f" at {moment_words(cluster.available_at)}" if cluster.available_at else "")
        for cluster in result.in_progress
        if cluster.phase is not Phase.REMOVING
    ]
    late = blocked[BlockReason.NOT_AVAILABLE]
    clauses += [f"{name} is available" for name in (*starting, *late)]
    clauses += [
        f"the retry on {name} succeeds" for name in blocked[BlockReason.RETRY_LATER]
    ]
    unblocks = dict.fromkeys(result.unreachable, "reconnects")
    unblocks |= dict.fromkeys(blocked[BlockReason.NOT_MONITORED], "gets a driver")
    clauses += [f"{name} {unblocks[name]}" for name in result.unreachable]
    return first_names(clauses)


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """Clusters that the same thing blocks: how many, the first, why, and when they unblock."""

    reason: BlockReason
    count: int
    clusters: tuple[str, ...]
    why: str
    unblocks_when: str
    until: datetime | None = None


def blocked_groups(result: RollingUpdateResult) -> list[BlockedGroup]:
    """Group the blocked clusters by reason and by what they run and want; the longest unreachable first."""

    def key(one: BlockedCluster) -> tuple[int, str, str]:
        return list(BlockReason).index(one.reason), one.running or "", one.wanted or ""

    ordered = sorted(
        result.blocked,
        key=lambda one: (
            *key(one),
            one.since.timestamp() if one.since else 0.0,
            one.cluster,
        ),
    )
    groups = []
    for _, members in groupby(ordered, key=key):
        group = list(members)
        first = min(
            group,
            key=lambda one: (
                one.retry_at is None,
                one.retry_at and one.retry_at.timestamp(),
            ),
        )
        why = blocked_sentence(first, result, clusters=len(group))
        if len({cluster.since for cluster in group}) > 1:
            why = why.replace(" since", ", the first since")
        groups.append(
            BlockedGroup(
                first.reason,
                len(group),
                tuple(cluster.cluster for cluster in group[:MOST_SHOWN]),
                why,
                unblock_sentence(first, result),
                first.retry_at,
            )
        )
    return groups


def wave_counts(waves: Sequence[Sequence[str]]) -> str:
    """Return how many clusters each wave has: "3, 3, 3, 1"."""
    counts = [str(len(wave)) for wave in waves]
    return (
        ", ".join(counts)
        if len(counts) <= MOST_SHOWN
        else f"{', '.join(counts[:MOST_SHOWN])}, …"
    )


def version_name(version: str | None, names: Mapping[str, str]) -> str | None:
    return None if version is None else names.get(version, "an older revision")


def wanted_name(
    wanted: str | None, running: str | None, names: Mapping[str, str]
) -> str | None:
    """Return the name of a wanted version; it says so where another version of the same revision runs."""
    name = version_name(wanted, names)
    if wanted == running or wanted not in names or name != version_name(running, names):
        return name
    return f"{name} with changed overrides or apply strategy"


def with_names(
    result: RollingUpdateResult, names: Mapping[str, str]
) -> RollingUpdateResult:
    """Return a result with the names of versions in place of the versions."""
    blocked = [
        replace(
            cluster,
            running=version_name(cluster.running, names),
            wanted=wanted_name(cluster.wanted, cluster.running, names),
        )
        for cluster in result.blocked
    ]
    return replace(result, blocked=tuple(blocked))


def result_document(result: RollingUpdateResult) -> dict[str, Any]:
    """Return a result as plain data; of those blocked or in progress the first 200, and all counted.

    The keys of documents are those of the REST API, and of the column in which a rollout stores its result.
    """
    removals = result.blocked_removals
    return {
        "verdict": str(result.phase),
        "actions": [action_document(action) for action in result.actions],
        "budgets": budget_document(result.budgets),
        "waiting": [
            {
                "cluster": cluster.cluster,
                "block": str(cluster.reason),
                "action": action_document(cluster.action) if cluster.action else None,
                "running": cluster.running,
                "wanted": cluster.wanted,
                "until": _timestamp(cluster.retry_at),
                "forgettableFrom": _timestamp(cluster.abandonable_from),
                "since": _timestamp(cluster.since),
            }
            for cluster in result.blocked[:MOST_LISTED]
        ],
        "waitingCounts": dict(
            sorted(Counter(str(cluster.reason) for cluster in result.blocked).items())
        ),
        "underWay": [
            {
                "cluster": cluster.cluster,
                "phase": str(cluster.phase),
                "until": _timestamp(cluster.available_at),
            }
            for cluster in result.in_progress[:MOST_LISTED]
        ],
        "underWayCounts": dict(
            sorted(
                Counter(str(cluster.phase) for cluster in result.in_progress).items()
            )
        ),
        "until": _timestamp(result.requeue_at),
        "unreachable": list(result.unreachable),
        "mayStillHold": list(result.may_still_hold),
        "heldBack": {
            "found": removals.selected_count,
            "askedFor": removals.required,
            "staying": list(removals.clusters),
            "isForGood": removals.is_permanent,
        }
        if removals
        else None,
    }


def result_from_document(
    document: Document, names: Mapping[str, str] | None = None
) -> RollingUpdateResult:
    """Return the result that was stored as this document; `names` are the names of its versions."""
    budgets, deletion = document["budgets"], document["budgets"].get("deletion")
    updates, removals = (
        MinAvailable(one["number"], one["limit"], one["ready"], one["atRisk"])
        for one in (budgets["updates"], budgets["removals"])
    )
    additions = MaxTotal(
        *(budgets["additions"][key] for key in ("number", "limit", "holding", "added"))
    )
    removing = (
        Concurrency(deletion["limit"], deletion["running"], deletion["started"])
        if deletion
        else None
    )
    result = RollingUpdateResult(
        RunPhase(document["verdict"]),
        Budgets(updates, removals, additions, removing),
        tuple(
            BlockedCluster(
                one["cluster"],
                BlockReason(one["block"]),
                _action(one["action"]) if one["action"] else None,
                one["running"],
                one["wanted"],
                retry_at=_moment(one["until"]),
                abandonable_from=_moment(one["forgettableFrom"]),
                since=_moment(one.get("since")),
            )
            for one in document["waiting"]
        ),
        tuple(
            InProgressCluster(
                one["cluster"], Phase(one["phase"]), _moment(one["until"])
            )
            for one in document["underWay"]
        ),
        tuple(document["unreachable"]),
        tuple(document["mayStillHold"]),
        actions=tuple(_action(action) for action in document["actions"]),
        requeue_at=_moment(document["until"]),
    )
    return with_names(result, names or {})


def action_document(action: Action) -> dict[str, Any]:
    what = "remove" if isinstance(action, Remove) else str(action.reason)
    version = None if isinstance(action, Remove) else action.version
    return {
        "cluster": action.cluster,
        "what": what,
        "version": version,
        "attempt": action.attempt,
    }


def _action(document: Document) -> Action:
    if document["what"] == "remove":
        return Remove(document["cluster"], document["attempt"])
    return StartUpdate(
        document["cluster"],
        document["version"],
        _REASONS[document["what"]],
        document["attempt"],
    )


_REASONS = {
    str(update_reason): update_reason for update_reason in UpdateReason
}  # a rollout may have thousands of actions


def budget_document(budgets: Budgets) -> dict[str, Any]:
    document: dict[str, Any] = {
        "additions": {**asdict(budgets.additions), "ceiling": budgets.additions.maximum}
    }
    for name, budget in (("updates", budgets.updates), ("removals", budgets.removals)):
        numbers = asdict(budget)
        numbers["atRisk"] = numbers.pop("at_risk")
        document[name] = {**numbers, "floor": budget.minimum, "allowed": budget.allowed}
    document["additions"]["allowed"] = budgets.additions.allowed
    if budgets.deletion:
        document["deletion"] = {
            **asdict(budgets.deletion),
            "allowed": budgets.deletion.allowed,
        }
    return document


def result_sentences(
    result: RollingUpdateResult, *, is_initial: bool = False
) -> dict[str, Any]:
    removals = result.blocked_removals
    return {
        "verdict": phase_sentence(result),
        "budgets": budget_sentences(result.budgets, is_initial=is_initial),
        "waiting": [
            {
                "block": str(group.reason),
                "count": group.count,
                "clusters": list(group.clusters),
                "why": group.why,
                "freedBy": group.unblocks_when,
            }
            for group in blocked_groups(result)
        ],
        "underWay": [
            f"{cluster.cluster}: {in_progress_sentence(cluster)}"
            for cluster in result.in_progress[:MOST_SHOWN]
        ],
        "heldBack": blocked_removals_sentence(removals) if removals else None,
    }


def short_result_document(result: RollingUpdateResult) -> dict[str, Any]:
    """Return a result as plain data with at most 200 of each list, and the lengths of the whole lists."""
    document = result_document(result)
    lists = {key: value for key, value in document.items() if isinstance(value, list)}
    return {
        **document,
        **{key: value[:MOST_LISTED] for key, value in lists.items()},
        **{f"{key}Count": len(value) for key, value in lists.items()},
    }


def action_words(action: Action, running: str | None, names: Mapping[str, str]) -> str:
    """Return an action with the revisions: "Install r4", "Update r3 → r4", "Remove r3"."""
    current = version_name(running or None, names)
    if isinstance(action, Remove):
        return f"Remove {current}" if current else "Remove"
    if action.reason is UpdateReason.RETRY:
        return f"Retry {version_name(action.version, names)}"
    name = wanted_name(action.version, running, names)
    return (
        f"Update {current} → {name}"
        if current and current != name
        else f"Install {name}"
    )


def plan_document(
    plan: WavePlan,
    names: Mapping[str, str] | None = None,
    running: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the waves of a plan, and which clusters would be blocked after them, as plain data.

    `names` are those of the versions, for its sentences; `running` are the versions on the clusters.
    """

    def planned_action(one: Action) -> dict[str, Any]:
        if not names or running is None:
            return action_document(one)
        return {
            **action_document(one),
            "words": action_words(one, running.get(one.cluster), names),
        }

    rest = {
        **short_result_document(plan.rest),
        "sentences": result_sentences(with_names(plan.rest, names or {})),
    }
    return {
        "waves": [
            {
                "number": wave.number,
                "count": len(wave.actions),
                "actions": [planned_action(action) for action in wave.actions],
                "budgets": budget_document(wave.budgets),
            }
            for wave in plan.waves
        ],
        "rest": rest,
    }


NO_FORECAST = {
    "paused": "No forecast while the rollout is paused.",
    "stopped": "No forecast while the rollout is stopped.",
    "not-started": "No forecast before the run starts.",
    "approval": "No forecast while the run waits for approval.",
    "stalled": "No forecast: the rollout waits for clusters that it cannot update.",
    "no-rate": "No forecast before the first update is done.",
}
HELD = ("paused", "stopped", "stalled")  # an action of a user has to come first
_TWO_MINUTES = 120


def eta_document(
    eta: Document,
    *,
    started_at: datetime,
    ended_at: datetime | None,
    now: datetime,
) -> dict[str, Any]:
    """Return the time left in seconds as plain data; `remaining` is null without a forecast."""
    remaining = eta.get("left")
    if ended_at:
        remaining = {"seconds": 0, "runs": 0}
    elif remaining:
        since = (now - datetime.fromisoformat(eta["at"])).total_seconds()
        remaining = {
            **remaining,
            "seconds": round(max(0.0, remaining["seconds"] - since), 1),
        }
    return {
        "elapsed": round(((ended_at or now) - started_at).total_seconds(), 1),
        "waiting": eta.get("waiting")
        or {"approval": 0, "period": 0, "budget": 0, "cluster": 0},
        "remaining": remaining,
        "reason": None if remaining else NO_FORECAST.get(eta.get("reason", "")),
    }


def eta_sentence(eta: Document, *, now: datetime) -> str:
    """Return the time left of a rollout in progress; empty without a forecast."""
    if not eta.get("left"):
        return ""
    left = eta_document(eta, started_at=now, ended_at=None, now=now)["remaining"]
    step = 60 if left["seconds"] >= _TWO_MINUTES else 10
    # Rounded up, so that the last step does not show that nothing is left.
    steps = max(1, math.ceil(left["seconds"] / step))
    rest = (
        f", not counting {counted(eta['approvals'], 'approval')}"
        if eta.get("approvals")
        else ""
    )
    basis = (
        f"median of {counted(left['runs'], 'past run')}"
        if left["runs"]
        else "at the rate until now"
    )
    return f"about {duration_text(steps * step)} left{rest} ({basis})"


def eta_words(eta: Document, *, now: datetime) -> str:
    """Return the time left of a run in progress, or why it is not known."""
    return eta_sentence(eta, now=now) or NO_FORECAST.get(eta.get("reason", ""), "")


def _timestamp(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


def _moment(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None
