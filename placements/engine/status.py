"""The status of a placement: the worst of its conditions, with counts.

See `rules/lifecycle.md#placement-status`.

The conditions are Scheduled, RolloutStarted, Applied and Available, as they are now.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from fleetui.apimachinery.words import counted
from placements.engine.limits import ExceededLimit, limit_words
from placements.engine.rollout.staged_run import WaitReason
from placements.engine.rollout.state import EMPTY, FailureKind, Phase
from placements.manifests.policy import PlacementType


class HealthLevel(StrEnum):
    """How a placement is, the worst first."""

    FAILED = "failed"
    ATTENTION = "attention"
    UNKNOWN = "unknown"
    PROGRESS = "progress"
    SUSPENDED = "suspended"
    HEALTHY = "healthy"


TROUBLED = (HealthLevel.FAILED, HealthLevel.ATTENTION, HealthLevel.UNKNOWN)
WAITS_FOR_APPROVAL = "Waiting for approval"


@dataclass(frozen=True, slots=True)
class HealthCounts:
    """How many clusters are wanted, scheduled, started and applied, and in which state each scheduled one is.

    A cluster is in one state: `available`, `pending` (nothing is started there), `in_flight` (a call is under
    way, or what was applied is not available yet), `not_available` for too long, `failed`, `differs`, or its
    member is `unreachable`, `not_observed`, `not_monitored` or `not_ready`. An older version than the wanted
    one counts as available, not as started or applied. Removals are counted apart.
    """

    wanted: int = 0
    scheduled: int = 0
    started: int = 0
    pending: int = 0
    in_flight: int = 0
    applied: int = 0
    available: int = 0
    unreachable: int = 0
    not_observed: int = 0
    not_monitored: int = 0
    not_ready: int = 0
    failed: int = 0
    differs: int = 0
    not_available: int = 0
    removal_failed: int = 0
    removing: int = 0


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """What the status of a placement follows from.

    `is_scheduled` is None before the first decision, and `awaits_decision` if an edit has made it void; with
    `is_pending` the next decision is due for whatever reason. `resources` is the number of selected
    resources, None while it is unknown; `awaits_run`: only a staged update run applies or removes what
    differs. `gate` is the reason why the run in progress waits, at the stage `gate_stage`. `silence` has the
    words for how long a cluster was not observed, empty while all were. `exceeded` are the hard limits that
    the placed clusters exceed.
    """

    counts: HealthCounts
    placement_type: str
    is_scheduled: bool | None
    awaits_decision: bool = False
    is_pending: bool = False
    has_invalid_selectors: bool = False
    resources: int | None = None
    is_deleting: bool = False
    is_paused: bool = False
    is_stopped: bool = False
    is_staged: bool = False
    awaits_run: bool = False
    is_starting: bool = False
    is_rolling: bool = False
    is_stalled: bool = False
    gate: str = ""
    gate_stage: str = ""
    silence: str = ""
    exceeded: tuple[ExceededLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class PlacementHealth:
    """The status: its level, the status word, and the reason, empty for a healthy placement.

    `condition` is the word of a condition that is more specific than the status: "Partially fulfilled".
    """

    level: HealthLevel
    word: str
    detail: str
    counts: HealthCounts
    condition: str = ""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "PlacementHealth":
        return cls(
            HealthLevel(values["level"]),
            values["word"],
            values["detail"],
            HealthCounts(**values["counts"]),
            values["condition"],
        )

    @property
    def values(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_degraded(self) -> bool:
        """Return whether something is wrong; what waits for an approval works as specified."""
        return self.level in TROUBLED and self.word != WAITS_FOR_APPROVAL

    @property
    def message(self) -> str:
        """Return the reason: "5 of 6 available", or "Partially fulfilled (13 of 18)"."""
        return _with(self.condition, self.detail) if self.condition else self.detail

    @property
    def summary(self) -> str:
        """Return one line for every page: "Degraded (5 of 6 available)", "Partially fulfilled (13 of 18)"."""
        return _with(self.condition or self.word, self.detail)


def _with(words: str, detail: str) -> str:
    return f"{words} ({detail})" if detail else words


def placement_health(facts: HealthFacts) -> PlacementHealth:
    """Return the status of a placement: of all conditions that are not met, the worst."""
    is_empty = not facts.counts.wanted and not facts.counts.scheduled
    level, words, detail = next(
        (
            status
            for check in _CHECKS
            if (status := check(facts, facts.counts)) is not None
        ),
        (HealthLevel.HEALTHY, "Healthy", "scaled to 0" if is_empty else ""),
    )
    is_unbalanced = _out_of_balance(facts, facts.counts) is not None
    if level is HealthLevel.ATTENTION and is_unbalanced and words != _UNBALANCED:
        detail = ", ".join(filter(None, [detail, _UNBALANCED.lower()]))
    word = _WORDS.get(words, words)
    if level is HealthLevel.UNKNOWN:
        word = "Unknown"
    return PlacementHealth(
        level, word, detail, facts.counts, "" if word == words else words
    )


NEEDS_RUN = "needs a staged run"
_UNBALANCED = "Out of balance"
GATES: Mapping[str, tuple[HealthLevel, str, str]] = {
    WaitReason.APPROVAL_BEFORE: (HealthLevel.ATTENTION, WAITS_FOR_APPROVAL, "before"),
    WaitReason.APPROVAL_AFTER: (HealthLevel.ATTENTION, WAITS_FOR_APPROVAL, "after"),
    WaitReason.TIME: (HealthLevel.PROGRESS, "Waiting for timer", "after"),
    WaitReason.RESUME: (HealthLevel.SUSPENDED, "Paused", ""),
}
"""The status while a staged update run waits at a gate or is paused, and on which side of the stage."""
_Status = tuple[HealthLevel, str, str] | None
_WORDS = {
    "Invalid resource selector": "Failed",
    "Differs": "Degraded",
    "Not fulfilled": "Failed",
    "Partially fulfilled": "Degraded",
    "No clusters named": "Degraded",
    "No clusters selected": "Degraded",
    "No resources selected": "Degraded",
    "Scheduling": "Progressing",
}
"""The status words of conditions that lists name instead."""


def _deleting(facts: HealthFacts, counts: HealthCounts) -> _Status:
    if not facts.is_deleting:
        return None
    if counts.removal_failed:
        return (
            HealthLevel.FAILED,
            "Deleting",
            f"removal failed on {_clusters(counts.removal_failed)}",
        )
    return HealthLevel.PROGRESS, "Deleting", ""


def _failed(facts: HealthFacts, counts: HealthCounts) -> _Status:
    if facts.has_invalid_selectors:
        return HealthLevel.FAILED, "Invalid resource selector", ""
    if (
        facts.is_scheduled is False
        and not facts.awaits_decision
        and not counts.scheduled
    ):
        return (
            HealthLevel.FAILED,
            "Not fulfilled",
            f"0 of {counts.wanted:,}" if counts.wanted else "",
        )
    if counts.failed:
        return HealthLevel.FAILED, "Failed", f"on {_clusters(counts.failed)}"
    if counts.removal_failed:
        return (
            HealthLevel.FAILED,
            "Failed",
            f"removal failed on {_clusters(counts.removal_failed)}",
        )
    return None


def _unfulfilled(facts: HealthFacts, counts: HealthCounts) -> _Status:
    level = HealthLevel.ATTENTION
    number = f"{counts.scheduled:,} of {counts.wanted:,}"
    if facts.is_scheduled is not None and not facts.awaits_decision:
        if facts.is_scheduled is False and counts.scheduled < counts.wanted:
            return (
                level,
                "Partially fulfilled",
                ", ".join([number, *_away(counts)]),
            )
        is_scaled_to_zero = (
            facts.placement_type == PlacementType.PICK_N and facts.is_scheduled
        )
        if not counts.scheduled and not counts.wanted and not is_scaled_to_zero:
            is_named = facts.placement_type == PlacementType.PICK_FIXED
            return (
                level,
                "No clusters named" if is_named else "No clusters selected",
                "",
            )
    if facts.resources == 0:
        return level, "No resources selected", ""
    return None


def _away(counts: HealthCounts) -> list[str]:
    is_monitored = counts.not_monitored < counts.scheduled
    numbers = {
        "unreachable": counts.unreachable,
        "not observed": counts.not_observed,
        "not monitored": is_monitored and counts.not_monitored,
        "not ready": counts.not_ready,
        "not available": counts.not_available,
    }
    return [f"{number:,} {word}" for word, number in numbers.items() if number]


def _degraded(facts: HealthFacts, counts: HealthCounts) -> _Status:
    level, away = HealthLevel.ATTENTION, _away(counts)
    available = f"{counts.available:,} of {counts.wanted:,} available"
    if counts.unreachable and counts.unreachable >= counts.scheduled:
        return level, "Unknown", ", ".join([available, *away])
    if (
        counts.not_observed
        and counts.not_observed + counts.unreachable >= counts.scheduled
    ):
        return HealthLevel.UNKNOWN, facts.silence, _clusters(counts.not_observed)
    if counts.differs:
        return level, "Differs", f"differs on {_clusters(counts.differs)}"
    if counts.not_available and len(away) == 1:
        return level, "Degraded", available  # from which their number follows
    if away:
        return level, "Degraded", ", ".join([available, *away])
    if facts.is_scheduled is False and not facts.awaits_decision:
        return level, "Degraded", "some of the selected clusters are not ready"
    if (
        counts.not_monitored
        and counts.not_monitored >= counts.scheduled
        and not facts.awaits_decision
    ):
        words = f"{_clusters(counts.not_monitored)} not monitored"
        return HealthLevel.SUSPENDED, "Scheduled, not applied", words
    if facts.is_stalled:
        return (
            level,
            "Degraded",
            f"rollout stalled, {counts.started:,} of {counts.wanted:,} started",
        )
    return None


def _out_of_balance(facts: HealthFacts, counts: HealthCounts) -> _Status:
    if not facts.exceeded or facts.awaits_decision or not counts.scheduled:
        return None
    words = [limit_words(limit) for limit in facts.exceeded]
    return HealthLevel.ATTENTION, _UNBALANCED, "; ".join(words)


def _progressing(facts: HealthFacts, counts: HealthCounts) -> _Status:
    """Return what is on the way, or suspended: without a rollout nothing of it starts."""
    if facts.is_pending or facts.awaits_decision:
        return HealthLevel.PROGRESS, "Scheduling", ""
    if facts.is_scheduled is None:
        return HealthLevel.SUSPENDED, "Pending", ""
    updated = f"{counts.started:,} of {counts.wanted:,} started"
    is_at_gate = facts.gate in GATES and not counts.in_flight
    if (
        counts.started < counts.scheduled or facts.awaits_run or is_at_gate
    ) and not counts.in_flight:
        if (
            word := "Paused"
            if facts.is_paused
            else "Stopped"
            if facts.is_stopped
            else ""
        ):
            return HealthLevel.SUSPENDED, word, updated
        if facts.is_staged and not facts.is_rolling:
            return HealthLevel.SUSPENDED, "Pending", NEEDS_RUN
    if is_at_gate:
        level, word, side = GATES[facts.gate]
        details = [f"{side} stage {facts.gate_stage}"] if side else []
        details += [updated] if counts.started < counts.scheduled or not side else []
        return level, word, ", ".join(details)
    if counts.started < counts.scheduled:
        return HealthLevel.PROGRESS, "Progressing", updated
    if counts.available < counts.scheduled:
        return (
            HealthLevel.PROGRESS,
            "Progressing",
            f"{counts.available:,} of {counts.wanted:,} available",
        )
    if (
        counts.removing or facts.is_starting
    ):  # the latter before a worker has counted what changes
        words = (
            f"removing from {_clusters(counts.removing)}"
            if counts.removing
            else "rollout pending"
        )
        return HealthLevel.PROGRESS, "Progressing", words
    return None


_CHECKS: tuple[Callable[[HealthFacts, HealthCounts], _Status], ...] = (
    _deleting,
    _failed,
    _unfulfilled,
    _degraded,
    _out_of_balance,
    _progressing,
)


def _clusters(number: int) -> str:
    return counted(number, "cluster")


def health_document(health: PlacementHealth) -> dict[str, object]:
    """Return the status as plain data, with the keys of the REST API."""
    counts = health.counts
    return {
        "level": str(health.level),
        "word": health.word,
        "message": health.message,
        "counts": {
            "wanted": counts.wanted,
            "scheduled": counts.scheduled,
            "rolloutStarted": counts.started,
            "applied": counts.applied,
            "available": counts.available,
            "pending": counts.pending,
            "inProgress": counts.in_flight,
            "notAvailable": counts.not_available,
            "unreachable": counts.unreachable,
            "notObserved": counts.not_observed,
            "notMonitored": counts.not_monitored,
            "notReady": counts.not_ready,
            "failed": counts.failed,
            "differs": counts.differs,
        },
    }


class MemberCondition(StrEnum):
    """Whether the cluster of a binding was observed lately, answers and is healthy, and may be selected.

    One that leaves the fleet is deselected by the next decision.
    """

    LEAVING = "leaving"
    UNREACHABLE = "unreachable"
    NOT_OBSERVED = "not observed"
    NOT_MONITORED = "not monitored"
    NOT_READY = "not ready"
    READY = "ready"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the status of one cluster in a placement follows from.

    `is_current`: the current revision was started there; `is_late`: not available for longer than allowed;
    `suspension` is "Paused", "Stopped", or "Pending" without a staged update run.
    """

    phase: Phase
    member: MemberCondition = MemberCondition.READY
    is_selected: bool = True
    is_current: bool = True
    is_ready: bool = False
    is_late: bool = False
    failure: str = ""
    suspension: str = ""
    is_stalled: bool = False


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    level: HealthLevel
    word: str


def cluster_status(facts: ClusterFacts) -> ClusterStatus:
    """Return the status of one cluster in a placement: the first rule that applies."""
    is_applied = facts.phase in (Phase.APPLIED, Phase.AVAILABLE)
    is_ready = facts.phase is Phase.AVAILABLE or (is_applied and facts.is_ready)
    is_waiting = not facts.is_current
    has_failed = facts.phase is Phase.FAILED
    rules = (
        (facts.phase is Phase.REMOVE_FAILED, HealthLevel.FAILED, "Removal failed"),
        (
            not facts.is_selected or facts.member is MemberCondition.LEAVING,
            HealthLevel.PROGRESS,
            "Removing",
        ),
        (
            facts.member is MemberCondition.UNREACHABLE,
            HealthLevel.ATTENTION,
            "Unreachable",
        ),
        (
            facts.member is MemberCondition.NOT_OBSERVED,
            HealthLevel.UNKNOWN,
            "Not observed",
        ),
        (
            facts.member is MemberCondition.NOT_MONITORED and facts.phase in EMPTY,
            HealthLevel.SUSPENDED,
            "Scheduled, not applied",
        ),
        (
            has_failed and facts.failure == FailureKind.OVERRIDE,
            HealthLevel.FAILED,
            "Override failed",
        ),
        (has_failed, HealthLevel.FAILED, "Apply failed"),
        (
            is_applied and facts.failure == FailureKind.DIFFERS,
            HealthLevel.ATTENTION,
            "Differs",
        ),
        (
            is_applied and not is_ready and facts.is_late,
            HealthLevel.ATTENTION,
            "Not available",
        ),
        (facts.phase is Phase.APPLYING, HealthLevel.PROGRESS, "Applying"),
        (is_applied and not is_ready, HealthLevel.PROGRESS, "Waiting for availability"),
        (
            is_waiting and bool(facts.suspension),
            HealthLevel.SUSPENDED,
            facts.suspension,
        ),
        (is_waiting and facts.is_stalled, HealthLevel.ATTENTION, "Blocked"),
        (is_waiting or not is_ready, HealthLevel.PROGRESS, "Pending"),
        (
            facts.member is MemberCondition.NOT_READY,
            HealthLevel.ATTENTION,
            "Available (cluster unhealthy)",
        ),
        (True, HealthLevel.HEALTHY, "Available"),
    )
    return next(ClusterStatus(level, word) for is_so, level, word in rules if is_so)
