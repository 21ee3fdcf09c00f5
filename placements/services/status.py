"""Manifest and status of a placement as in its API (`rules/lifecycle.md#placement-status`)."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fleetui.apimachinery.kinds import PLACEMENT_KIND, kind_in
from fleetui.apimachinery.model import omit_empty
from placements.engine.rollout.state import objects_of
from placements.engine.status import health_document
from placements.explain import hub_conditions
from placements.explain.hub_conditions import Condition, Truth
from placements.explain.hub_status import (
    condition_of,
    hub_status,
    misconfigured,
    satisfied,
    why_selected,
)
from placements.manifests.binding import BindingState
from placements.manifests.placement import (
    ClusterResourcePlacement,
    OcmPlacement,
    is_ocm_placement,
    parse_placement,
)
from placements.manifests.strategy import StrategyType
from placements.models import (
    Binding,
    Decision,
    HubDecision,
    OverrideSnapshot,
    Placement,
)
from placements.services.conditions import ConditionReader
from placements.services.decisions.records import decision_of, latest_decision
from placements.services.health import health_of
from placements.services.overrides.queries import applying_to
from placements.services.results import read_manifest
from placements.services.rollout_state import Versions, target_of
from placements.services.rollouts.queries import waiting_words


def manifest_of(placement: Placement) -> dict[str, Any]:
    return read_manifest(placement, placement.document, status_of(placement))


def status_of(placement: Placement, *, now: datetime | None = None) -> dict[str, Any]:
    """Return conditions, selected resources and placed clusters, each with its applied version.

    Of a placement of a live hub, its conditions and those of its clusters as the hub wrote them.
    """
    if placement.is_mirrored:
        return _status_of_hub(placement)
    manifest, target = parse_placement(placement.document), target_of(placement)
    latest = latest_decision(placement)
    bindings, first = _bindings_of(placement), scheduled(placement, latest)
    versions = Versions.of(target, manifest, applying_to(placement.full_name, target))
    words = waiting_words(bindings)
    reading = ConditionReader.of(manifest, target, now=now or datetime.now(UTC))
    clusters = [
        reading.of_binding(
            binding,
            versions.wanted_on(binding.cluster_name, binding.phase),
            waits_for=words.get(binding.pk, ""),
            why_selected=_why_selected(binding),
        )
        for binding in bindings
    ]
    each = [hub_conditions.conditions_on(cluster) for cluster in clusters]
    others = hub_conditions.conditions_in_all(each, placement.conditions)
    if manifest.spec.strategy.type is StrategyType.EXTERNAL:
        started = sum(cluster.is_current is not None for cluster in clusters)
        others = [
            hub_conditions.controlled_externally(
                other, kind=manifest.kind, started=started
            )
            for other in others
        ]
    generation = placement.spec_generation
    status: dict[str, Any] = {}
    if isinstance(manifest, OcmPlacement):
        status["numberOfSelectedClusters"] = len(bindings)
    status["conditions"] = _conditions(placement, manifest, first, others)
    if target:
        status["observedResourceIndex"] = str(target.number)
        status["selectedResources"] = list(
            map(hub_conditions.resource_identity, target.identities)
        )
    keys = {key for binding in bindings for key in binding.override_snapshots}
    overrides = OverrideSnapshot.objects.defer("document").in_bulk(sorted(keys))
    status["health"] = health_document(health_of(placement, now=reading.now))
    # Conditions are about what was decided before, until the workers have processed the last change.
    status["pending"] = (
        placement.is_due or placement.wants_resources or placement.needs_sync
    )
    status["placementStatuses"] = []
    if first.status is not Truth.UNKNOWN:
        status["placementStatuses"] = [
            _cluster(binding, conditions, overrides, generation=generation)
            for binding, conditions in zip(bindings, each, strict=True)
        ]
    if first.status is Truth.FALSE:
        status["placementStatuses"] += hub_conditions.not_scheduled(
            _missing(latest, manifest, len(bindings)), first, generation=generation
        )
    return status


def _conditions(
    placement: Placement,
    manifest: ClusterResourcePlacement,
    first: Condition,
    others: Sequence[Condition],
) -> list[dict[str, Any]]:
    """Return the conditions of a placement as a hub writes them; `first` is the one of its scheduling."""
    generation, kind = placement.spec_generation, manifest.kind
    if isinstance(manifest, OcmPlacement):
        all_conditions = [*_of_ocm(placement), *others]
        return [condition.plain(generation=generation) for condition in all_conditions]
    # Until another decision the others are those of the generation before, as on a hub.
    before = generation - (first.status is Truth.UNKNOWN)
    return [
        *hub_conditions.plain_in_all([first], generation=generation, kind=kind),
        *hub_conditions.plain_in_all(others, generation=before, kind=kind),
    ]


def _bindings_of(placement: Placement) -> list[Binding]:
    rows = placement.bindings.exclude(state=BindingState.UNSCHEDULED)
    rows = rows.select_related("resource_snapshot").defer(
        "resource_snapshot__identities"
    )
    return list(rows.order_by("cluster_name"))


def _why_selected(binding: Binding) -> str:
    return why_selected(
        binding.cluster_name, binding.affinity_score, binding.topology_spread_score
    )


def _status_of_hub(placement: Placement) -> dict[str, Any]:
    """Return the conditions of a live hub, and the entry of each cluster as the hub composes it.

    While its scheduler has not decided there is none (`rules/lifecycle.md#placement-status`).
    """
    statuses: list[dict[str, Any]] = []
    status = {
        "conditions": placement.hub_conditions,
        "placementStatuses": statuses,
    }
    if placement.scheduled not in (Truth.TRUE, Truth.FALSE):
        return status
    generation = placement.spec_generation
    for binding in _bindings_of(placement):
        picked = Condition(
            "Scheduled",
            Truth.TRUE,
            "Scheduled",
            _why_selected(binding),
            binding.picked_at,
        )
        conditions = hub_conditions.conditions_of_hub(
            picked, binding.hub_conditions, binding.conditions
        )
        statuses.append(_cluster(binding, conditions, {}, generation=generation))
    latest = HubDecision.objects.filter(placement=placement, is_latest=True).first()
    if latest:
        decisions = latest.decisions
        policy = placement.document["spec"].get("policy") or {}
        wanted = policy.get("numberOfClusters") or len(policy.get("clusterNames") or ())
        missing = wanted - sum(decision["selected"] for decision in decisions)
        scheduled = _scheduled(placement, Truth.FALSE, "", "")
        statuses += hub_conditions.not_scheduled(
            _not_selected(decisions, missing), scheduled, generation=generation
        )
    return status


def _missing(
    latest: Decision | None, manifest: ClusterResourcePlacement, selected: int
) -> list[str]:
    policy = manifest.spec.policy
    wanted = policy.number_of_clusters or len(policy.cluster_names)
    if latest is None or wanted <= selected:
        return []
    status = hub_status(decision_of(latest))
    if status is None:
        return []
    return _not_selected(status.decisions, wanted - selected)


def _not_selected(decisions: Iterable[Mapping[str, Any]], missing: int) -> list[str]:
    """Return why clusters are not selected, as many as are missing."""
    reasons = [
        str(decision["reason"]) for decision in decisions if not decision["selected"]
    ]
    return reasons[: max(0, missing)]


def _of_ocm(placement: Placement) -> list[Condition]:
    decision, since = None, placement.updated_at
    if not placement.awaits_decision and (latest := latest_decision(placement)):
        decision, since = decision_of(latest), latest.created_at
    return [
        satisfied(decision, since=since),
        misconfigured(placement.selection_faults, since=placement.updated_at),
    ]


def scheduled_condition(
    placement: Placement, latest: Decision | None
) -> dict[str, Any]:
    """Return the condition `Scheduled` as in the manifest, `PlacementSatisfied` of an OCM Placement.

    `latest` is its `latest_decision`. A live hub states its own.
    """
    if placement.is_mirrored:
        kind = f"{placement_kind(placement)}Scheduled"
        stated = (
            condition
            for condition in placement.hub_conditions
            if condition["type"] == kind
        )
        pending = {
            "type": kind,
            "status": "Unknown",
            "reason": "",
            "message": "Not stated by the hub yet",
        }
        return {"reason": "", "message": "", **next(stated, pending)}
    if is_ocm_placement(placement.document):
        return _of_ocm(placement)[0].plain(generation=placement.spec_generation)
    kind, conditions = placement_kind(placement), [scheduled(placement, latest)]
    return hub_conditions.plain_in_all(
        conditions, generation=placement.spec_generation, kind=kind
    )[0]


def placement_kind(placement: Placement) -> str:
    return kind_in(placement.resource_namespace, PLACEMENT_KIND)


def scheduled(placement: Placement, latest: Decision | None) -> Condition:
    """Return the condition `Scheduled`, unknown from an edit that needs another decision to that one.

    A pending change of the fleet or of the resources does not change the condition.
    """
    if placement.selection_faults:
        words = "; ".join(error["message"] for error in placement.selection_faults)
        return _scheduled(placement, Truth.FALSE, "InvalidResourceSelectors", words)
    condition = None
    if latest is not None and not placement.awaits_decision:
        condition = condition_of(decision_of(latest))
    if condition is None:
        return _scheduled(
            placement, Truth.UNKNOWN, "SchedulePending", "Scheduling has not completed"
        )
    return _scheduled(
        placement, Truth(condition["status"]), condition["reason"], condition["message"]
    )


def _scheduled(
    placement: Placement, status: Truth, reason: str, message: str
) -> Condition:
    since = placement.updated_at
    if placement.scheduled == status:
        since = placement.scheduled_since or since
    return Condition("Scheduled", status, reason, message, since)


def _cluster(
    binding: Binding,
    conditions: Sequence[Condition],
    overrides: Mapping[int, OverrideSnapshot],
    *,
    generation: int,
) -> dict[str, Any]:
    last, index, wrapped = conditions[-1], "", ()
    if snapshot := binding.resource_snapshot:
        index, wrapped = str(snapshot.number), snapshot.wrapped_identities
    status: dict[str, Any] = {
        "clusterName": binding.cluster_name,
        "conditions": [
            condition.plain(generation=generation) for condition in conditions
        ],
        "observedResourceIndex": index,
    }
    if len(conditions) > _STARTED:
        rows = [
            overrides[key] for key in binding.override_snapshots if key in overrides
        ]
        status |= omit_empty(
            applicableClusterResourceOverrides=[
                str(row) for row in rows if not row.namespace
            ],
            applicableResourceOverrides=[
                {
                    "namespace": row.namespace,
                    "name": f"{row.override_name}-{row.number}",
                }
                for row in rows
                if row.namespace
            ],
        )
    objects = objects_of(binding.failed_objects)
    if (
        objects
        and last.sort in ("Applied", "Available", "DiffReported")
        and last.status is Truth.FALSE
    ):
        status["failedPlacements"] = hub_conditions.failed_objects(
            objects,
            last,
            generation=generation,
            wrapped=wrapped,
        )
    differing = hub_conditions.differing_objects
    return status | omit_empty(
        driftedPlacements=differing(binding.drifted_objects, is_drift=True),
        diffedPlacements=differing(binding.diffed_objects, is_drift=False),
    )


_STARTED = 2
"""Number of conditions up to RolloutStarted."""
