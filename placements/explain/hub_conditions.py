"""Conditions as a hub shows them: how far a placement is on each cluster, and all in all (lifecycle B.7).

Where the released hub shows the newest index for every cluster, this shows what each really runs (A.8).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from placements.explain.wording import counted
from placements.rollout.state import Phase

_PREFIX = "ClusterResourcePlacement"
_MOST_FAILED = 100
Plain: TypeAlias = dict[str, Any]


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

    `is_current`: what was started there last is what belongs there; None while nobody knows what does.
    `is_ready`: all that can be observed is ready, or time has told. `waits_for` is why nothing starts.
    """

    cluster: str
    picked_at: datetime
    phase: Phase
    since: datetime | None
    is_current: bool | None
    is_ready: bool
    message: str = ""
    waits_for: str = ""


SORTS = ("RolloutStarted", "Overridden", "WorkSynchronized", "Applied", "Available")
_IN_ALL = {
    ("RolloutStarted", Truth.TRUE): ("RolloutStarted", "began on"),
    ("RolloutStarted", Truth.FALSE): ("RolloutNotStartedYet", "has not begun on"),
    ("RolloutStarted", Truth.UNKNOWN): ("RolloutStartedUnknown", "is not known to have begun on"),
    ("Overridden", Truth.TRUE): ("NoOverrideSpecified", "has no override for"),
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
    for sort in SORTS:
        status, words = _judged(sort, one)
        reason, _ = _IN_ALL[sort, status]
        found.append(Condition(sort, status, reason, words, one.since or one.picked_at))
        if status is not Truth.TRUE:
            break
    return found


def _judged(sort: str, one: OnCluster) -> tuple[Truth, str]:
    if sort == "RolloutStarted":
        return _started(one)
    if sort == "Applied":
        return _applied(one)
    if sort == "Available":
        waits = one.message or "its objects are not ready yet"
        return (Truth.TRUE, "all its objects are ready") if one.is_ready else (Truth.FALSE, waits)
    return Truth.TRUE, {"Overridden": "no override applies"}.get(sort, "the cluster was given the resources")


def _started(one: OnCluster) -> tuple[Truth, str]:
    if one.is_current is None:
        return Truth.UNKNOWN, "there are no resources to carry out yet"
    if one.is_current:
        return Truth.TRUE, "what is wanted was started"
    return Truth.FALSE, one.waits_for or "what is wanted was not started yet"


def _applied(one: OnCluster) -> tuple[Truth, str]:
    if one.phase is Phase.FAILED:
        return Truth.FALSE, one.message or "the cluster refused"
    if one.phase in (Phase.SETTLING, Phase.AVAILABLE):
        return Truth.TRUE, "everything was applied"
    return Truth.UNKNOWN, one.message or "it is being applied"


def conditions_in_all(clusters: Iterable[Sequence[Condition]]) -> list[Condition]:
    """Sum up the conditions of the selected clusters: unknown before false before true (B.7.1)."""
    listed = [{one.sort: one for one in conditions} for conditions in clusters]
    found: list[Condition] = []
    for sort in SORTS if listed else ():
        each = [one[sort] for one in listed if sort in one]
        status = next(truth for truth in _WORST_FIRST if any(one.status is truth for one in each))
        found.append(_in_all(sort, status, [one for one in each if one.status is status]))
        if status is not Truth.TRUE:
            break
    return found


_WORST_FIRST = (Truth.UNKNOWN, Truth.FALSE, Truth.TRUE)


def _in_all(sort: str, status: Truth, each: Sequence[Condition]) -> Condition:
    reason, words = _IN_ALL[sort, status]
    since = max((one.since for one in each if one.since), default=None)
    return Condition(sort, status, reason, f"{words} {counted(len(each), 'cluster')}", since)


def controlled_externally(condition: Condition) -> Condition:
    """Say of a condition that nobody knows yet that a staged run decides it."""
    if condition.status is not Truth.UNKNOWN or condition.sort != "RolloutStarted":
        return condition
    words = "a staged run decides when each cluster is updated"
    return replace(condition, reason="RolloutControlledByExternalController", message=words)


def failed_objects(message: str, objects: Iterable[Sequence[str]]) -> list[Plain]:
    """Give the objects that a cluster refused; they stand in its message, each before what it said.

    `objects` are api version, kind, namespace and name of what was to be applied.
    """
    by_words = {_words_for(*one): one for one in objects}
    found = []
    for said in message.split("; "):
        words, colon, reason = said.partition(": ")
        if colon and words in by_words:
            condition = {
                "type": "Applied",
                "status": "False",
                "reason": "ManifestApplyFailed",
                "message": reason,
            }
            found.append({**resource_identity(by_words[words]), "condition": condition})
    return found[:_MOST_FAILED]


def _words_for(_version: str, kind: str, namespace: str, name: str) -> str:
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"


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
