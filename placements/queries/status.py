"""The status of a placement in the words of its API, and its manifest with it (lifecycle A.8, B.7)."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from placements.explain import hub_conditions, ocm_status
from placements.explain.hub_conditions import Condition, OnCluster, Truth
from placements.explain.hub_status import condition_of
from placements.models import Binding, Decision, Placement, ResourceSnapshot
from placements.queries.records import decision_of
from placements.queries.runs import latest_run, waiting_words
from placements.rollout.state import EMPTY, Phase
from placements.scheduling.bindings import BindingState
from placements.scheduling.door.ocm_placement import is_ocm_placement
from placements.scheduling.spec import (
    ClusterResourcePlacement,
    OcmPlacement,
    RollingUpdate,
    StrategyType,
    parse_placement,
)
from placements.standing import target_of, version_of


def manifest_of(placement: Placement) -> dict[str, Any]:
    """Give the manifest as it was written, with our status."""
    return {**placement.document, "status": status_of(placement)}


def status_of(placement: Placement, *, now: datetime | None = None) -> dict[str, Any]:
    """Give conditions, selected resources and placed clusters, each with what it really runs."""
    manifest, target = parse_placement(placement.document), target_of(placement)
    bindings = list(_selected(placement))
    clusters = _on_clusters(placement, manifest, target, bindings, now=now or datetime.now(UTC))
    each = [hub_conditions.conditions_on(one) for one in clusters]
    in_all = _in_all(manifest, each)
    status = _decided_status(placement, in_all, is_ocm=isinstance(manifest, OcmPlacement))
    if target:
        status["observedResourceIndex"] = str(target.number)
        status["selectedResources"] = list(map(hub_conditions.resource_identity, target.identities))
    objects = target.identities if target else ()
    status["placementStatuses"] = [
        _cluster(binding, conditions, objects, generation=placement.revision)
        for binding, conditions in zip(bindings, each, strict=True)
    ]
    return status


def _decided_status(placement: Placement, in_all: Sequence[Condition], *, is_ocm: bool) -> dict[str, Any]:
    """Begin the status with what was decided: in OCM's words for a Placement of OCM."""
    generation = placement.revision
    if not is_ocm:
        conditions = [scheduled(placement), *in_all]
        return {"conditions": hub_conditions.plain_in_all(conditions, generation=generation)}
    found = [*_of_ocm(placement), *in_all]
    return {
        "numberOfSelectedClusters": sum(1 for _ in _selected(placement)),
        "conditions": [one.plain(generation=generation) for one in found],
    }


def _of_ocm(placement: Placement) -> list[Condition]:
    latest = None if placement.is_due else latest_decision(placement)
    satisfied = ocm_status.satisfied(
        decision_of(latest) if latest else None, since=latest.created_at if latest else placement.updated_at
    )
    return [satisfied, ocm_status.misconfigured(placement.selection_faults, since=placement.updated_at)]


def scheduled_condition(placement: Placement) -> dict[str, Any]:
    """Give the condition `Scheduled` as the manifest has it, `PlacementSatisfied` of a Placement of OCM."""
    if is_ocm_placement(placement.document):
        return _of_ocm(placement)[0].plain(generation=placement.revision)
    return hub_conditions.plain_in_all([scheduled(placement)], generation=placement.revision)[0]


def scheduled(placement: Placement) -> Condition:
    """Give the condition `Scheduled`: unknown while a cycle is due that may change it."""
    if placement.selection_faults:
        words = "; ".join(fault["message"] for fault in placement.selection_faults)
        return _scheduled(Truth.FALSE, "InvalidResourceSelectors", words, placement.updated_at)
    latest = latest_decision(placement)
    condition = condition_of(decision_of(latest)) if latest else None
    if placement.is_due or latest is None or condition is None:
        words = "Scheduling has not completed"
        return _scheduled(Truth.UNKNOWN, "SchedulePending", words, placement.updated_at)
    return _scheduled(Truth(condition.status), condition.reason, condition.message, latest.created_at)


def _scheduled(status: Truth, reason: str, message: str, since: datetime) -> Condition:
    return Condition("Scheduled", status, reason, message, since)


def latest_decision(placement: Placement) -> Decision | None:
    """Give the last cycle that decided something."""
    found = Decision.objects.filter(placement=placement)
    found = found.select_related("record").defer("record__content")
    return found.order_by("-number").first()


def _selected(placement: Placement) -> Iterable[Binding]:
    """Give the bindings that hold, or are about to hold, the resources, by cluster name."""
    rows = Binding.objects.filter(placement=placement).exclude(state=BindingState.UNSCHEDULED)
    cited = rows.select_related("resource_snapshot").defer("resource_snapshot__identities")
    return cited.order_by("cluster_name")


def _on_clusters(
    placement: Placement,
    manifest: ClusterResourcePlacement,
    target: ResourceSnapshot | None,
    bindings: Iterable[Binding],
    *,
    now: datetime,
) -> list[OnCluster]:
    wanted = version_of(target, manifest) if target else None
    words = waiting_words(latest_run(placement))
    rolling = manifest.spec.strategy.rolling_update or RollingUpdate()
    settled = now - timedelta(seconds=rolling.unavailable_period_seconds)
    is_staged = manifest.spec.strategy.type is StrategyType.EXTERNAL
    return [
        OnCluster(
            binding.cluster_name,
            binding.picked_at,
            Phase(binding.phase),
            binding.phase_since,
            _is_current(binding, wanted, is_staged=is_staged),
            is_ready=_is_ready(binding, settled),
            message=binding.message,
            waits_for=words.get(binding.cluster_name, ""),
        )
        for binding in bindings
    ]


def _is_current(binding: Binding, wanted: str | None, *, is_staged: bool) -> bool | None:
    """Tell whether what was started is what belongs there; a staged run alone knows what does."""
    if is_staged:
        return True if binding.phase not in EMPTY else None
    if wanted is None:
        return None
    return binding.phase not in EMPTY and binding.running_version == wanted


def _is_ready(binding: Binding, settled: datetime) -> bool:
    if binding.phase == Phase.SETTLING:
        return binding.timed_since is not None and binding.timed_since <= settled
    return binding.phase == Phase.AVAILABLE


def _in_all(manifest: ClusterResourcePlacement, each: Sequence[Sequence[Condition]]) -> list[Condition]:
    found = hub_conditions.conditions_in_all(each)
    if manifest.spec.strategy.type is not StrategyType.EXTERNAL or not found:
        return found
    return [hub_conditions.controlled_externally(one) for one in found]


def _cluster(
    binding: Binding, conditions: Iterable[Condition], objects: Iterable[Sequence[str]], *, generation: int
) -> dict[str, Any]:
    snapshot, listed = binding.resource_snapshot, list(conditions)
    status: dict[str, Any] = {
        "clusterName": binding.cluster_name,
        "conditions": [one.plain(generation=generation) for one in listed],
        "observedResourceIndex": str(snapshot.number) if snapshot else "",
    }
    if listed[-1].sort == "Applied" and listed[-1].status is Truth.FALSE:
        status["failedPlacements"] = hub_conditions.failed_objects(binding.message, objects)
    return status
