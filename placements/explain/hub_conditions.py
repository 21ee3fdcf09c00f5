"""Conditions as a hub shows them: how far a placement is on each cluster, and all in all (lifecycle B.7).

Where the released hub shows the newest index for every cluster, this shows what each really runs (A.8).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeAlias

from placements.explain.wording import counted
from placements.rollout.failures import FailureKind, ObjectFault
from placements.rollout.state import Phase

_PREFIX = "ClusterResourcePlacement"
_MOST_FAILED = 100
Plain: TypeAlias = dict[str, Any]
Noted: TypeAlias = Mapping[str, Sequence[str]]
"""Conditions by sort: the value and since when, as rows keep them."""


class Truth(StrEnum):
    """What a condition may be."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition; `since` is when it became so, as far as the rows still know."""

    sort: str
    status: Truth
    reason: str
    message: str
    since: datetime | None

    def plain(self, *, generation: int, prefix: str = "") -> Plain:
        """Give it as a manifest has it."""
        found = {
            "type": f"{prefix}{self.sort}",
            "status": self.status.value,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": generation,
        }
        return found if self.since is None else {**found, "lastTransitionTime": _moment(self.since)}


@dataclass(frozen=True, slots=True)
class OnCluster:
    """How far a placement is on one selected cluster.

    `is_current`: what was started there last is what belongs there, which it does since `wanted_since`; None
    while nobody knows what does. `is_ready`: all that can be observed is ready, or time has told, `ready_at`.
    `waits_for` is why nothing starts. `noted` are its conditions as they were noted last.
    """

    cluster: str
    picked_at: datetime
    phase: Phase
    since: datetime | None
    is_current: bool | None
    is_ready: bool
    message: str = ""
    waits_for: str = ""
    failure: FailureKind | None = None
    has_overrides: bool = False
    wanted_since: datetime | None = None
    ready_at: datetime | None = None
    noted: Noted = field(default_factory=dict)


SORTS = ("RolloutStarted", "Overridden", "WorkSynchronized", "Applied", "Available")
_IN_ALL = {
    ("RolloutStarted", Truth.TRUE): ("RolloutStarted", "began on"),
    ("RolloutStarted", Truth.FALSE): ("RolloutNotStartedYet", "has not begun on"),
    ("RolloutStarted", Truth.UNKNOWN): ("RolloutStartedUnknown", "is not known to have begun on"),
    ("Overridden", Truth.TRUE): ("NoOverrideSpecified", "has no override for"),
    ("Overridden", Truth.FALSE): ("OverriddenFailed", "has an override that does not apply on"),
    ("WorkSynchronized", Truth.TRUE): ("WorkSynchronized", "was handed to"),
    ("Applied", Truth.TRUE): ("ApplySucceeded", "was applied on"),
    ("Applied", Truth.FALSE): ("ApplyFailed", "could not be applied on"),
    ("Applied", Truth.UNKNOWN): ("ApplyPending", "is being applied on"),
    ("Available", Truth.TRUE): ("ResourceAvailable", "is available on"),
    ("Available", Truth.FALSE): ("ResourceNotAvailableYet", "is not available yet on"),
}


def conditions_on(one: OnCluster) -> list[Condition]:
    """Give the conditions of one selected cluster, up to the first that is not true."""
    picked = Condition("Scheduled", Truth.TRUE, "Scheduled", "picked by the scheduling policy", one.picked_at)
    found = [picked]
    for sort, status, since in truths_on(one):
        reason, _ = _IN_ALL[sort, status]
        if sort == "Overridden" and status is Truth.TRUE and one.has_overrides:
            reason = _OVERRIDDEN
        found.append(Condition(sort, status, reason, _words(sort, status, one), since))
    return found


_OVERRIDDEN = "OverriddenSucceeded"


def truths_on(one: OnCluster) -> list[tuple[str, Truth, datetime]]:
    """Give the value of each condition after the first and since when, up to one that is not true.

    A condition keeps its moment while its value stays, whatever else is written about the cluster.
    """
    found = []
    for sort in SORTS:
        status = _truth(sort, one)
        before = one.noted.get(sort)
        is_same = before is not None and before[0] == status.value
        since = datetime.fromisoformat(before[1]) if before and is_same else _became(sort, status, one)
        found.append((sort, status, since))
        if status is not Truth.TRUE:
            break
    return found


def _truth(sort: str, one: OnCluster) -> Truth:
    if sort == "RolloutStarted":
        return Truth.UNKNOWN if one.is_current is None else _truth_of(is_true=one.is_current)
    if sort == "Overridden":
        is_failed = one.phase is Phase.FAILED and one.failure is FailureKind.OVERRIDE
        return _truth_of(is_true=not is_failed)
    if sort == "Applied":
        if one.phase is Phase.FAILED:
            return Truth.FALSE
        return Truth.TRUE if one.phase in (Phase.SETTLING, Phase.AVAILABLE) else Truth.UNKNOWN
    return _truth_of(is_true=sort != "Available" or one.is_ready)


def _truth_of(*, is_true: bool) -> Truth:
    return Truth.TRUE if is_true else Truth.FALSE


def _became(sort: str, status: Truth, one: OnCluster) -> datetime:
    """Say since when a condition is so that was not noted as such, from what the row still knows."""
    since = one.since or one.picked_at
    if sort == "RolloutStarted" and status is not Truth.TRUE:
        return max(since, one.wanted_since or since)
    if sort == "Available" and status is Truth.TRUE:
        return one.ready_at or since
    return since


def _words(sort: str, status: Truth, one: OnCluster) -> str:
    if status is Truth.TRUE:
        return _OVERRIDES_APPLY if sort == "Overridden" and one.has_overrides else _WELL[sort]
    if sort == "RolloutStarted":
        unknown = status is Truth.UNKNOWN
        waits = one.waits_for or "what is wanted was not started yet"
        return "there are no resources to carry out yet" if unknown else waits
    return one.message or _NOT_WELL[sort, status]


_OVERRIDES_APPLY = "the overrides that apply here were applied"
_WELL = {
    "RolloutStarted": "what is wanted was started",
    "Overridden": "no override applies",
    "WorkSynchronized": "the cluster was given the resources",
    "Applied": "everything was applied",
    "Available": "all its objects are ready",
}
_NOT_WELL = {
    ("Overridden", Truth.FALSE): "an override does not apply",
    ("Applied", Truth.FALSE): "the cluster refused",
    ("Applied", Truth.UNKNOWN): "it is being applied",
    ("Available", Truth.FALSE): "its objects are not ready yet",
}


def conditions_in_all(
    clusters: Iterable[Sequence[Condition]], noted: Noted = MappingProxyType({})
) -> list[Condition]:
    """Sum up the conditions of the selected clusters: unknown before false before true (B.7.1)."""
    listed = [{one.sort: one for one in conditions} for conditions in clusters]
    found: list[Condition] = []
    for sort in SORTS if listed else ():
        each = [one[sort] for one in listed if sort in one]
        status = next(truth for truth in _WORST_FIRST if any(one.status is truth for one in each))
        found.append(_in_all(sort, status, [one for one in each if one.status is status], noted))
        if status is not Truth.TRUE:
            break
    return found


_WORST_FIRST = (Truth.UNKNOWN, Truth.FALSE, Truth.TRUE)


def _in_all(sort: str, status: Truth, each: Sequence[Condition], noted: Noted) -> Condition:
    reason, words = _IN_ALL[sort, status]
    overridden = sum(one.reason == _OVERRIDDEN for one in each)
    if overridden:
        message = f"overrides were applied on {counted(overridden, 'cluster')}"
        reason = _OVERRIDDEN
    else:
        message = f"{words} {counted(len(each), 'cluster')}"
    before = noted.get(sort)
    since = max((one.since for one in each if one.since), default=None)
    if before and before[0] == status.value:
        since = datetime.fromisoformat(before[1])
    return Condition(sort, status, reason, message, since)


def noted_of(conditions: Iterable[Condition]) -> dict[str, list[str]]:
    """Give conditions as rows keep them, without the first: that one is the scheduler's."""
    return {
        one.sort: [one.status.value, one.since.isoformat()]
        for one in conditions
        if one.since and one.sort != "Scheduled"
    }


def controlled_externally(condition: Condition) -> Condition:
    """Say of a condition that nobody knows yet that a staged run decides it."""
    if condition.status is not Truth.UNKNOWN or condition.sort != "RolloutStarted":
        return condition
    words = "a staged run decides when each cluster is updated"
    return replace(condition, reason="RolloutControlledByExternalController", message=words)


def failed_objects(objects: Iterable[ObjectFault], condition: Condition, *, generation: int) -> list[Plain]:
    """Give the objects that keep a condition of a cluster from being true, each with its own condition."""
    return [_failed_object(one, condition, generation) for one in objects][:_MOST_FAILED]


def _failed_object(one: ObjectFault, condition: Condition, generation: int) -> Plain:
    said = replace(condition, reason=one.code, message=one.message)
    place = {"namespace": one.namespace} if one.namespace else {}
    identity = {"group": one.group, "version": one.version, "kind": one.kind, "name": one.name}
    return {**identity, **place, "condition": said.plain(generation=generation)}


def not_scheduled(reasons: Iterable[str], scheduled: Condition, *, generation: int) -> list[Plain]:
    """Give an entry without a name for each cluster that is missing, with why one was not chosen (B.7.2)."""
    failed = replace(scheduled, status=Truth.FALSE, reason="ScheduleFailed")
    return [{"conditions": [replace(failed, message=one).plain(generation=generation)]} for one in reasons]


def resource_identity(identity: Sequence[str]) -> dict[str, str]:
    """Name an object as a hub's status does."""
    api_version, kind, namespace, name = identity
    group, _, version = api_version.rpartition("/")
    found = {"group": group, "version": version, "kind": kind, "name": name}
    return {**found, "namespace": namespace} if namespace else found


def plain_in_all(conditions: Iterable[Condition], *, generation: int) -> list[Plain]:
    """Give the conditions of a placement as its manifest has them."""
    return [one.plain(generation=generation, prefix=_PREFIX) for one in conditions]


def _moment(moment: datetime) -> str:
    return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")
