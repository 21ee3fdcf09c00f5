"""Bindings of a live hub: one for each placement and cluster, and how far it has come (10.1, 10.2)."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef

from clusters.models import MirroredObject
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name
from fleetui.bulk import batched
from placements.engine.rollout.state import FailureKind, Phase
from placements.hubs.kinds.base import moment_of, text_of
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP, PREFIX
from placements.hubs.projection.kinds import BINDING_KINDS
from placements.hubs.projection.placements import (
    current_conditions,
    note_changes,
    placements_of,
)
from placements.hubs.projection.rows import HubDocument, HubMoment, write_rows
from placements.hubs.trimming import short_digest
from placements.manifests.binding import BindingState
from placements.manifests.strategy import ApplyType, StrategyType
from placements.models import Binding, Placement, PolicySnapshot, ResourceSnapshot

MOST_OBJECTS = 100
LONGEST_VALUE = 1_024
STARTED = "RolloutStarted"
_STEPS = {
    "RolloutStarted": Phase.NOT_STARTED,
    "Overridden": Phase.APPLYING,
    "WorkSynchronized": Phase.APPLYING,
    "Applied": Phase.APPLYING,
    "Available": Phase.APPLIED,
}
"""The phase of a binding at which each condition is the first that is not True."""
_STEPS_OF_REPORT = {**dict(list(_STEPS.items())[:3]), "DiffReported": Phase.APPLYING}
_FAILURES = {
    "OverriddenFailed": FailureKind.OVERRIDE,
    "SyncWorkFailed": FailureKind.REFUSED,
    "NotAllWorkHaveBeenApplied": FailureKind.REFUSED,
}
_COLUMNS = (
    "state",
    "previous_state",
    "policy_snapshot_id",
    "resource_snapshot_id",
    "topology_spread_score",
    "affinity_score",
    "picked_at",
    "phase",
    "phase_changed_at",
    "message",
    "failure",
    "failed_objects",
    "conditions",
    "apply_strategy",
    "hub_name",
    "hub_conditions",
    "applied_version",
    "drifted_objects",
    "diffed_objects",
)


def project_bindings(documents: Sequence[HubDocument], moment: HubMoment) -> None:
    """Write the bindings of the clusters that these are about, where they differ."""
    owners = placements_of(documents)
    own = [document for document in documents if document.row.owner in owners]
    moved = _delete_moved(own, owners)
    pairs = {(document.row.owner, document.row.cluster) for document in own}
    chosen = _choose(pairs, [document for document in own if _is_usable(document)])
    rows = Binding.objects.filter(
        placement__in=list(owners.values()),
        cluster_name__in={cluster for _, cluster in pairs},
    )
    names = {placement.pk: name for name, placement in owners.items()}
    there = {(names[row.placement_id], row.cluster_name): row for row in rows}
    policies, _ = _snapshots(PolicySnapshot, owners.values(), "")
    resources, latest = _snapshots(ResourceSnapshot, owners.values(), "-snapshot")
    made = []
    for pair, document in chosen.items():
        before = there.get(pair)
        placement = owners[pair[0]]
        row = binding_row(document, before, placement)
        policy = str(document.spec.get("schedulingPolicySnapshotName"))
        resource = str(document.spec.get("resourceSnapshotName"))
        row.policy_snapshot_id = policies.get((placement.pk, policy))
        row.resource_snapshot_id = resources.get((placement.pk, resource))
        _await_latest(row, placement, latest.get(placement.pk))
        made.append((document, before, row))
    removed = [
        row for pair, row in there.items() if pair in pairs and pair not in chosen
    ]
    Binding.objects.filter(pk__in=[row.pk for row in removed]).delete()
    written = [
        write_row.row for write_row in write_rows(Binding, made, columns=_COLUMNS)
    ]
    touched = moved.union(row.placement_id for row in (*removed, *written))
    note_changes(touched, now=moment.now)


def _snapshots(
    model: type[PolicySnapshot] | type[ResourceSnapshot],
    placements: Collection[Placement],
    suffix: str,
) -> tuple[dict[tuple[int, str], int], dict[int, int]]:
    """Return the keys of snapshots by placement and name, and of the latest ones by placement."""
    names = {placement.pk: placement.name for placement in placements}
    rows = model._default_manager.filter(placement__in=list(names))
    keys = {}
    latest = {}
    for pk, placement, number, is_latest in rows.values_list(
        "pk", "placement", "number", "is_latest"
    ):
        keys[placement, f"{names[placement]}-{number}{suffix}"] = pk
        if is_latest:
            latest[placement] = pk
    return keys, latest


def _is_usable(document: HubDocument) -> bool:
    """Return whether a binding names a cluster and a known state; else record what is not understood."""
    parts = {
        "spec.state": document.spec.get("state") in list(BindingState),
        "spec.targetCluster": bool(document.row.cluster),
    }
    for path, is_understood in parts.items():
        if not is_understood:
            document.reject(path)
            document.error = "the binding is not understood"
    return all(parts.values())


def _delete_moved(
    documents: Sequence[HubDocument], owners: Mapping[str, Placement]
) -> set[int]:
    """Delete the rows of bindings that are about another cluster now; return their placements."""
    clusters = {
        (document.row.owner, document.row.name): document.row.cluster
        for document in documents
    }
    names = {placement.pk: name for name, placement in owners.items()}
    rows = Binding.objects.filter(
        placement__in=list(names),
        hub_name__in=[document.row.name for document in documents],
    )
    moved = {
        pk: placement
        for pk, placement, hub_name, cluster in rows.values_list(
            "pk", "placement_id", "hub_name", "cluster_name"
        )
        if clusters.get((names[placement], hub_name), cluster) != cluster
    }
    Binding.objects.filter(pk__in=list(moved)).delete()
    return set(moved.values())


def _choose(
    pairs: set[tuple[str, str]], usable: Sequence[HubDocument]
) -> dict[tuple[str, str], HubDocument]:
    """Return the binding that counts for each pair: one that is not being deleted, else the newest."""
    changed = {document.row.pk: document for document in usable}
    by_pair: dict[tuple[str, str], HubDocument] = {}
    rows = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP,
        kind__in=BINDING_KINDS,
        owner__in={owner for owner, _ in pairs},
        cluster__in={cluster for _, cluster in pairs},
    )
    for row in rows.order_by("pk"):
        pair = row.owner, row.cluster
        if pair not in pairs:
            continue
        one = changed.get(row.pk) or HubDocument.of(row)
        if not _is_usable(one):
            continue
        before = by_pair.get(pair)
        if before is None or _rank(one) > _rank(before):
            by_pair[pair] = one
    return by_pair


def _rank(document: HubDocument) -> tuple[Any, ...]:
    return not document.row.is_deleting, document.created_at, document.row.name


def binding_row(
    document: HubDocument, before: Binding | None, placement: Placement
) -> Binding:
    """Return the row of a binding, without its snapshots."""
    row = Binding(placement=placement, cluster_name=document.row.cluster)
    if before:
        row = copy(before)
    spec = document.spec
    row.hub_name = document.row.name
    row.state = spec["state"]
    row.picked_at = document.created_at
    row.previous_state = previous_state(document)
    scores = mapping_at(spec, "clusterDecision", "clusterScore")
    path = "spec.clusterDecision.clusterScore"
    row.affinity_score, row.topology_spread_score = (
        _number(document, scores, key, path=f"{path}.{key}")
        for key in ("affinityScore", "priorityScore")
    )
    row.apply_strategy = dict(mapping_at(spec, "applyStrategy")) or None
    # What distinguishes the targets of a binding: resource snapshot, and overrides.
    overrides = [
        spec.get(key)
        for key in ("clusterResourceOverrideSnapshots", "resourceOverrideSnapshots")
    ]
    snapshot = text_of(spec.get("resourceSnapshotName"))
    row.applied_version = short_digest(snapshot) if snapshot else ""
    if snapshot and any(overrides):
        row.applied_version += short_digest(json.dumps(overrides, sort_keys=True))
    conditions = document.conditions("status", "conditions")
    row.hub_conditions = list(conditions.values())
    row.conditions = current_conditions(document, conditions)
    row.drifted_objects = _differing(
        document, "driftedPlacements", "observedDrifts", "firstDriftedObservedTime"
    )
    row.diffed_objects = _differing(
        document, "diffedPlacements", "observedDiffs", "firstDiffedObservedTime"
    )
    _set_phase(row, document, conditions)
    return row


def previous_state(document: HubDocument) -> BindingState:
    """Return the state that a binding would have again if its cluster were selected again."""
    annotations = document.texts("metadata", "annotations")
    if annotations.get(f"{PREFIX}previous-binding-state") == BindingState.BOUND:
        return BindingState.BOUND
    return BindingState.SCHEDULED


def _await_latest(row: Binding, placement: Placement, latest: int | None) -> None:
    """Take a rollout of the latest resources for not started while a binding names older ones.

    The conditions of the binding are about the older ones until the hub's rollout controller changes it; that
    of the placement says so earlier or later. With the strategy External a staged update run chooses.
    """
    is_older = (
        None not in (latest, row.resource_snapshot_id)
        and row.resource_snapshot_id != latest
    )
    is_started = placement.conditions.get(STARTED, [""])[0] == "True"
    if not is_older or is_started or placement.strategy_type == StrategyType.EXTERNAL:
        return
    if STARTED in row.conditions:
        row.conditions = {
            **row.conditions,
            STARTED: ["Unknown", row.conditions[STARTED][1]],
        }


def _number(
    document: HubDocument,
    values: Mapping[str, Any],
    key: str,
    *,
    path: str,
) -> float | None:
    value = values.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if value is not None:
        document.reject(path)
    return None


def _set_phase(
    row: Binding, document: HubDocument, conditions: Mapping[str, Mapping[str, Any]]
) -> None:
    """Set how far the cluster has come: the first condition that is not True decides (10.2)."""
    row.failure = ""
    row.failed_objects = []
    row.message = ""
    failed = _failed_objects(document)
    steps = _STEPS_OF_REPORT if row.apply_type == ApplyType.REPORT_DIFF else _STEPS
    kind = next(
        (step for step in steps if row.conditions.get(step, [""])[0] != "True"), ""
    )
    condition = conditions.get(kind or list(steps)[-1], {})
    if row.state == BindingState.SCHEDULED:
        row.phase = Phase.NOT_STARTED.value
        row.phase_changed_at = None
        return
    row.phase_changed_at = document.moment_in(
        condition,
        "lastTransitionTime",
        path=f"status.conditions.{condition.get('type')}.lastTransitionTime",
    )
    if row.state == BindingState.UNSCHEDULED or document.row.is_deleting:
        row.phase = Phase.REMOVING.value
        return
    row.phase = (steps[kind] if kind else Phase.AVAILABLE).value
    if not kind and row.apply_type == ApplyType.REPORT_DIFF and row.diffed_objects:
        row.failure = FailureKind.DIFFERS.value
        row.phase_changed_at = _first(
            [diffed_object["since"] for diffed_object in row.diffed_objects],
            row.phase_changed_at,
        )
    if not kind or row.conditions.get(kind, [""])[0] != "False":
        return
    row.message = str(condition.get("message") or "")[:500]
    failure = _FAILURES.get(str(condition.get("reason")))
    if failure and (failed or condition.get("reason") != "NotAllWorkHaveBeenApplied"):
        row.phase = Phase.FAILED.value
        row.failure = failure.value
        row.phase_changed_at = _first(
            [one["since"] for one in failed], row.phase_changed_at
        )
    row.failed_objects = [
        {key: one[key] for key in one if key != "since"} for one in failed
    ]
    if (
        failed and failure is FailureKind.REFUSED
    ):  # the condition names the work object only
        causes = [
            f"{one['kind']} {full_name(one['namespace'], one['name'])}: {one['message'] or one['code']}"
            for one in failed
        ]
        row.message = "; ".join(causes)[:500]


def _failed_objects(document: HubDocument) -> list[dict[str, str]]:
    objects = []
    for placement in map(
        mapping_at,
        items_at(document.content, "status", "failedPlacements")[:MOST_OBJECTS],
    ):
        condition = mapping_at(placement, "condition")
        values = {
            key: str(placement.get(key) or "")
            for key in ("group", "version", "kind", "namespace", "name")
        }
        code, message = (
            str(condition.get(key) or "")[:500] for key in ("reason", "message")
        )
        since = text_of(condition.get("lastTransitionTime"))
        objects.append({**values, "code": code, "message": message, "since": since})
    return objects


def _first(texts: Iterable[str], stated: datetime | None) -> datetime | None:
    """Return the first of these times of objects, at the latest that of their condition.

    The hub gives the conditions of a binding a new time whenever a cluster reports something, such as when it
    saw the same difference again.
    """
    moments = [
        moment for moment in (*map(moment_of, texts), stated) if moment is not None
    ]
    return min(moments, default=None)


def _differing(
    document: HubDocument,
    key: str,
    fields_key: str,
    since_key: str,
) -> list[dict[str, Any]]:
    """Return the objects of a cluster that differ, as rows of a binding (`Binding.drifted_objects`)."""
    rows = []
    for found in map(
        mapping_at, items_at(document.content, "status", key)[:MOST_OBJECTS]
    ):
        observed = text_of(found.get("observationTime"))
        fields = [mapping_at(item) for item in items_at(found, fields_key)]
        identity = ("group", "version", "kind", "namespace", "name")
        row: dict[str, Any] = {
            **{name: text_of(found.get(name)) for name in identity},
            "generation": found.get("targetClusterObservedGeneration"),
            "observed": observed,
            "since": text_of(found.get(since_key)) or observed,
            "fields": [
                [
                    str(field.get(part) or "")[:LONGEST_VALUE]
                    for part in ("path", "valueInMember", "valueInHub")
                ]
                for field in fields
            ],
            "isDegraded": False,
            "isTruncated": False,
        }
        rows.append(row)
    return rows


def remove_bindings(moment: HubMoment) -> int:
    """Delete the bindings that are no longer in the mirror; another one of the same cluster replaces them."""
    mirrored = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP,
        kind__in=BINDING_KINDS,
        owner=OuterRef("placement__full_name"),
        name=OuterRef("hub_name"),
    )
    rows = Binding.objects.filter(~Exists(mirrored))
    rows_removed = list(
        rows.values_list("pk", "placement_id", "placement__full_name", "cluster_name")
    )
    for part in batched(rows_removed):
        Binding.objects.filter(pk__in=[pk for pk, *_ in part]).delete()
        owners = {name for _, _, name, _ in part}
        clusters = {name for *_, name in part}
        others = MirroredObject.objects.filter(
            group=PLACEMENT_GROUP, kind__in=BINDING_KINDS, is_dirty=False
        )
        others.filter(owner__in=owners, cluster__in=clusters).update(is_dirty=True)
    note_changes({one[1] for one in rows_removed}, now=moment.now)
    return len(rows_removed)
