"""Conditions of a placement as a hub shows them, by cluster and in total.

See `rules/lifecycle.md#placement-status`.

Where the released hub shows the newest index for every cluster, this shows what each really runs
(`rules/lifecycle.md#blocked-clusters`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeAlias

from fleetui.apimachinery.kinds import (
    NAMESPACED_PLACEMENT_KIND,
    NAMESPACED_RUN_KIND,
    PLACEMENT_KIND,
    STAGED_RUN_KIND,
)
from placements.engine.rollout.state import FailureKind, ObjectFault, Phase

_MOST_FAILED = 100
Plain: TypeAlias = dict[str, Any]
# Conditions by sort: the value and since when, as rows keep them.
Noted: TypeAlias = Mapping[str, Sequence[str]]


class Truth(StrEnum):
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
        document: Plain = {
            "type": f"{prefix}{self.sort}",
            "status": self.status.value,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": generation,
        }
        if self.since is not None:
            at = self.since.replace(microsecond=0).isoformat()
            document["lastTransitionTime"] = at.replace("+00:00", "Z")
        return document


@dataclass(frozen=True, slots=True)
class OnCluster:
    """The progress of a placement on one selected cluster.

    `is_current`: the version started last is the one that should run, wanted since `wanted_since`; None while
    that is unknown. `is_ready`: all that can be observed is ready, or the unavailable period is over, at
    `ready_at`. `waits_for` is why no update starts. `noted` are its conditions as stored last. `is_report`:
    differences are reported and nothing is applied. `work` is the name of its work object in KubeFleet,
    `why_selected` the reason of the scheduler.
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
    is_report: bool = False
    work: str = ""
    why_selected: str = ""


SORTS = (
    "RolloutStarted",
    "Overridden",
    "WorkSynchronized",
    "Applied",
    "Available",
    "DiffReported",
)
# Reason and message of a condition in all, with the number of clusters, as KubeFleet
# writes them.
_IN_ALL = {
    ("RolloutStarted", Truth.TRUE): (
        "RolloutStarted",
        "All {} cluster(s) start rolling out the latest resource",
    ),
    ("RolloutStarted", Truth.FALSE): (
        "RolloutNotStartedYet",
        "The rollout is being blocked by the rollout strategy in {} cluster(s)",
    ),
    ("RolloutStarted", Truth.UNKNOWN): (
        "RolloutStartedUnknown",
        "There are still {} cluster(s) in the process of deciding whether to roll out the latest resources or not",
    ),
    ("Overridden", Truth.TRUE): (
        "NoOverrideSpecified",
        "No override rules are configured for the selected resources",
    ),
    ("Overridden", Truth.FALSE): (
        "OverriddenFailed",
        "Failed to override resources in {} cluster(s)",
    ),
    ("WorkSynchronized", Truth.TRUE): (
        "WorkSynchronized",
        "Work(s) are successfully created or updated in {} target cluster(s)' namespaces",
    ),
    ("Applied", Truth.TRUE): (
        "ApplySucceeded",
        "The selected resources are successfully applied to {} cluster(s)",
    ),
    ("Applied", Truth.FALSE): (
        "ApplyFailed",
        "Failed to apply resources to {} cluster(s), please check the `failedPlacements` status",
    ),
    ("Available", Truth.TRUE): (
        "ResourceAvailable",
        "The selected resources in {} cluster(s) are available now",
    ),
    ("Available", Truth.FALSE): (
        "ResourceNotAvailableYet",
        "The selected resources in {} cluster(s) are still not available yet",
    ),
    ("DiffReported", Truth.TRUE): (
        "DiffReportingCompleted",
        "Diff reporting in {} cluster(s) has been completed",
    ),
    ("DiffReported", Truth.FALSE): (
        "DiffReportingIncompleteOrFailed",
        "Diff reporting in {} clusters is still in progress or has failed",
    ),
}
# Reason and message on one cluster, with the name of the work object.
_ON_CLUSTER = {
    ("RolloutStarted", Truth.TRUE): (
        "RolloutStarted",
        "Detected the new changes on the resources and started the rollout process",
    ),
    ("RolloutStarted", Truth.FALSE): (
        "RolloutNotStartedYet",
        "The rollout is being blocked by the rollout strategy",
    ),
    ("RolloutStarted", Truth.UNKNOWN): (
        "RolloutStartedUnknown",
        "In the process of deciding whether to roll out some version of the resources or not",
    ),
    ("Overridden", Truth.TRUE): (
        "NoOverrideSpecified",
        "No override rules are configured for the selected resources",
    ),
    ("Overridden", Truth.FALSE): (
        "OverriddenFailed",
        "Failed to apply the override rules on the resources",
    ),
    ("WorkSynchronized", Truth.TRUE): (
        "AllWorkSynced",
        "All of the works are synchronized to the latest",
    ),
    ("Applied", Truth.TRUE): (
        "AllWorkHaveBeenApplied",
        "All corresponding work objects are applied",
    ),
    ("Applied", Truth.FALSE): (
        "NotAllWorkHaveBeenApplied",
        "Work object {} has failed to apply",
    ),
    ("Available", Truth.TRUE): (
        "AllWorkAreAvailable",
        "All corresponding work objects are available",
    ),
    ("Available", Truth.FALSE): (
        "NotAllWorkAreAvailable",
        "Work object {} is not yet available",
    ),
    ("DiffReported", Truth.TRUE): (
        "AllWorkHaveDiffReported",
        "All corresponding work objects have reported diff",
    ),
    ("DiffReported", Truth.FALSE): (
        "NotAllWorkHaveDiffReported",
        "Work object {} has failed to report diff",
    ),
}
# The same while the member agent has not reported yet: KubeFleet writes False, too.
_IN_PROGRESS = {
    ("Applied", Truth.FALSE): ("ApplyInProgress", "Resources are being applied"),
    ("DiffReported", Truth.FALSE): (
        "DiffReportInProgress",
        "Diff reporting on resources is in progress",
    ),
}
_UNTRACKABLE = {
    ("Available", Truth.TRUE): (
        "NotAllWorkAreAvailabilityTrackable",
        "The availability of work object {} is not trackable",
    )
}
_OVERRIDDEN = "OverriddenSucceeded"
_WITH_OVERRIDES = {
    ("Overridden", Truth.TRUE): (
        _OVERRIDDEN,
        "Successfully applied the override rules on the resources",
    )
}


def conditions_on(one: OnCluster) -> list[Condition]:
    """Return the conditions of one selected cluster, up to the first that is not true.

    Where more is known than KubeFleet says, it follows the sentence of KubeFleet after a colon.
    """
    conditions = [
        Condition("Scheduled", Truth.TRUE, "Scheduled", one.why_selected, one.picked_at)
    ]
    words = dict(_ON_CLUSTER)
    if one.phase not in (Phase.APPLIED, Phase.AVAILABLE, Phase.FAILED):
        words |= _IN_PROGRESS
    if one.phase is Phase.APPLIED:
        words |= _UNTRACKABLE
    if one.has_overrides:
        words |= _WITH_OVERRIDES
    details = {"RolloutStarted": one.waits_for}
    for sort, status, since in truths_on(one):
        reason, message = words[sort, status]
        message = message.format(one.work)
        known = details.get(sort, one.message)
        if known and status is Truth.FALSE:
            message = f"{message}: {known}"
        conditions.append(Condition(sort, status, reason, message, since))
    return conditions


def conditions_of_hub(
    picked: Condition, stated: Iterable[Plain], current: Noted
) -> list[Condition]:
    """Return the conditions of one cluster of a live hub, from those that its binding states.

    `current` has the values of those about the present generation: a hub copies no others.
    """
    by_sort = {document["type"]: document for document in stated}
    conditions = [picked]
    for sort in SORTS:
        if sort not in current or sort not in by_sort:
            continue
        status = Truth(current[sort][0])
        reason, message = (str(by_sort[sort].get(key)) for key in ("reason", "message"))
        since = datetime.fromisoformat(current[sort][1])
        conditions.append(Condition(sort, status, reason, message, since))
        if status is not Truth.TRUE:
            break
    return conditions


def truths_on(one: OnCluster) -> list[tuple[str, Truth, datetime]]:
    """Return the value of each condition after the first and since when, up to one that is not true.

    A condition keeps its moment while its value stays, whatever else is written about the cluster.
    """
    statuses = []
    is_failed = one.phase is Phase.FAILED
    truths = {
        "RolloutStarted": one.is_current,
        "Overridden": not (is_failed and one.failure is FailureKind.OVERRIDE),
        "WorkSynchronized": True,
    }
    if one.is_report:
        truths["DiffReported"] = one.phase is Phase.AVAILABLE
    else:
        truths |= {
            "Applied": one.phase in (Phase.APPLIED, Phase.AVAILABLE),
            "Available": one.is_ready,
        }
    for sort, truth in truths.items():
        status = Truth.UNKNOWN if truth is None else Truth(str(truth))
        before = one.noted.get(sort)
        is_same = before is not None and before[0] == status.value
        since = (
            one.since or one.picked_at
        )  # unless noted, from what the row still knows
        if before and is_same:
            since = datetime.fromisoformat(before[1])
        elif sort == "RolloutStarted" and status is not Truth.TRUE:
            since = max(since, one.wanted_since or since)
        elif sort == "Available" and status is Truth.TRUE:
            since = one.ready_at or since
        statuses.append((sort, status, since))
        if status is not Truth.TRUE:
            break
    return statuses


def conditions_in_all(
    clusters: Iterable[Sequence[Condition]], noted: Noted = MappingProxyType({})
) -> list[Condition]:
    """Sum up the conditions of the selected clusters: unknown before false before true.

    See `rules/lifecycle.md#placement-status`.
    """
    by_cluster = [
        {condition.sort: condition for condition in conditions}
        for conditions in clusters
    ]
    summary: list[Condition] = []
    for sort in SORTS if by_cluster else ():
        each = [document[sort] for document in by_cluster if sort in document]
        if not each:
            continue
        status = next(
            truth
            for truth in (Truth.UNKNOWN, Truth.FALSE, Truth.TRUE)
            if any(condition.status is truth for condition in each)
        )
        each = [condition for condition in each if condition.status is status]
        reason, words = _IN_ALL[sort, status]
        if any(condition.reason == _OVERRIDDEN for condition in each):
            reason = _OVERRIDDEN
            words = (
                "The selected resources are successfully overridden in {} cluster(s)"
            )
        before = noted.get(sort)
        since = max(
            (condition.since for condition in each if condition.since), default=None
        )
        if before and before[0] == status.value:
            since = datetime.fromisoformat(before[1])
        summary.append(Condition(sort, status, reason, words.format(len(each)), since))
        if status is not Truth.TRUE:
            break
    return summary


def noted_of(conditions: Iterable[Condition]) -> dict[str, list[str]]:
    """Return conditions as rows keep them, without the first: that one is the scheduler's."""
    return {
        condition.sort: [condition.status.value, condition.since.isoformat()]
        for condition in conditions
        if condition.since and condition.sort != "Scheduled"
    }


_RUN_KINDS = {
    PLACEMENT_KIND: STAGED_RUN_KIND,
    NAMESPACED_PLACEMENT_KIND: NAMESPACED_RUN_KIND,
}


def controlled_externally(
    condition: Condition, *, kind: str, started: int
) -> Condition:
    """Return a condition that is unknown with the staged update runs of the placement as its controller.

    `started` is the number of clusters that a run has started.
    """
    if condition.status is not Truth.UNKNOWN or condition.sort != "RolloutStarted":
        return condition
    words = "different resource snapshot versions are observed across clusters"
    if not started:
        run_kind = _RUN_KINDS[kind]
        words = (
            "no resource snapshot name is observed across clusters. To determine rollout status, check the "
            f"{run_kind} resources with spec.placementName matching this placement"
        )
    return replace(
        condition,
        reason="RolloutControlledByExternalController",
        message=f"Rollout is controlled by an external controller and {words}",
    )


def filled(**fields: Any) -> Plain:
    """Return the fields that have a value: a hub omits the others."""
    return {key: value for key, value in fields.items() if value not in (None, "")}


def failed_objects(
    objects: Iterable[ObjectFault],
    condition: Condition,
    *,
    generation: int,
    wrapped: Iterable[Sequence[str]] = (),
) -> list[Plain]:
    """Return the objects that keep a condition of a cluster from being true, each with its own condition.

    `wrapped` are the identities of those in envelopes, each with kind and name of its envelope.
    """
    envelopes = {tuple(sequence[:4]): sequence[4:] for sequence in wrapped}
    documents = []
    for object_fault in islice(objects, _MOST_FAILED):
        place = filled(namespace=object_fault.namespace)
        identity: Plain = {
            "group": object_fault.group,
            "version": object_fault.version,
            "kind": object_fault.kind,
            "name": object_fault.name,
            **place,
        }
        # KubeFleet has one reason for whatever a report lacks.
        reason = (
            "FailedToReportDiff"
            if condition.sort == "DiffReported"
            else object_fault.code
        )
        failed = replace(condition, reason=reason, message=object_fault.message)
        version = (
            f"{object_fault.group}/{object_fault.version}"
            if object_fault.group
            else object_fault.version
        )
        if envelope := envelopes.get(
            (version, object_fault.kind, object_fault.namespace, object_fault.name)
        ):
            kind, name = envelope
            identity["envelope"] = {"type": kind, "name": name, **place}
        documents.append({**identity, "condition": failed.plain(generation=generation)})
    return documents


def differing_objects(rows: Iterable[Plain], *, is_drift: bool) -> list[Plain]:
    """Return the objects of a cluster that differ, from the rows of a binding, in the form of KubeFleet."""
    since_key, fields_key = (
        ("firstDriftedObservedTime", "observedDrifts")
        if is_drift
        else ("firstDiffedObservedTime", "observedDiffs")
    )
    return [
        {
            **{key: row[key] for key in ("group", "version", "kind", "name")},
            **filled(namespace=row["namespace"]),
            "observationTime": row["observed"],
            since_key: row["since"],
            **filled(targetClusterObservedGeneration=row["generation"]),
            fields_key: [
                {"path": path, **filled(valueInMember=in_member, valueInHub=in_hub)}
                for path, in_member, in_hub in row["fields"]
            ],
        }
        for row in rows
    ]


def not_scheduled(
    reasons: Iterable[str], scheduled: Condition, *, generation: int
) -> list[Plain]:
    """Return an entry without a name for each missing cluster, with why one was not chosen.

    See `rules/lifecycle.md#placement-status`.
    """
    failed = replace(scheduled, status=Truth.FALSE, reason="ScheduleFailed")
    return [
        {"conditions": [replace(failed, message=reason).plain(generation=generation)]}
        for reason in reasons
    ]


def resource_identity(identity: Sequence[str]) -> dict[str, str]:
    api_version, kind, namespace, name = identity
    group, _, version = api_version.rpartition("/")
    document = {"group": group, "version": version, "kind": kind, "name": name}
    return document | filled(namespace=namespace)


def plain_in_all(
    conditions: Iterable[Condition], *, generation: int, kind: str
) -> list[Plain]:
    """Return the conditions of a placement as a hub writes them, named after its kind."""
    return [
        condition.plain(generation=generation, prefix=kind) for condition in conditions
    ]
