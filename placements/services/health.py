"""The status of placements, from their bindings and the clusters as they are now."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Case, Count, Exists, OuterRef, Q, QuerySet, When
from django.db.models.fields.json import KT

from clusters.fleet import EligibilityKind
from clusters.models import MemberCluster
from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.staged_run import RunStatus
from placements.engine.rollout.state import EMPTY, Phase
from placements.explain.health import HealthCounts, HealthFacts, PlacementHealth, placement_health
from placements.manifests.binding import BindingState
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType
from placements.manifests.strategy import RollingUpdate
from placements.models import Binding, Placement, Rollout, StagedRun

_TRUE = "True"
_OUT_OF_REACH = Q(verdict__in=(EligibilityKind.STALE_HEARTBEAT, EligibilityKind.NO_AGENT)) | Q(driver="")


def health_of(placement: Placement, *, now: datetime) -> PlacementHealth:
    return healths_of([placement], now=now)[placement.pk]


def healths_of(placements: Collection[Placement], *, now: datetime) -> dict[int, PlacementHealth]:
    """Return the status of each of these placements; two queries, however many there are."""
    ids = [one.pk for one in placements]
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for group in _groups(placements, now=now):
        groups[group["placement_id"]].append(group)
    rollouts = {row["pk"]: row for row in _rollouts(ids)}
    return {
        one.pk: placement_health(_facts(one, groups[one.pk], rollouts.get(one.pk, {}))) for one in placements
    }


def _groups(placements: Collection[Placement], *, now: datetime) -> QuerySet[Any, dict[str, Any]]:
    """Return the bindings of placements, those alike counted; a cluster without a member is unreachable."""
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    periods: dict[int, list[int]] = defaultdict(list)
    for one in placements:
        rolling = parse_placement(one.document).spec.strategy.rolling_update or RollingUpdate()
        periods[rolling.unavailable_period_seconds].append(one.pk)
    is_late = Q(pk__in=())
    for seconds, ids in periods.items():
        is_late |= Q(placement__in=ids, phase_changed_at__lt=now - timedelta(seconds=seconds))
    rows = Binding.objects.filter(placement__in=[one.pk for one in placements]).annotate(
        is_reachable=Exists(members.exclude(_OUT_OF_REACH)),
        is_late=Case(When(is_late, then=True), default=False),
        noted_started=KT("conditions__RolloutStarted__0"),
        noted_available=KT("conditions__Available__0"),
    )
    columns = ("is_reachable", "is_late", "noted_started", "noted_available")
    counted = rows.values("placement_id", "state", "phase", *columns).annotate(count=Count("pk"))
    return counted.order_by()


def _rollouts(ids: Collection[int]) -> QuerySet[Any, Any]:
    rolling = Rollout.objects.filter(placement=OuterRef("pk"), state=Rollout.State.RUNNING)
    staged = StagedRun.objects.filter(placement=OuterRef("pk"), ended_at=None, started_at__isnull=False)
    stuck = staged.filter(status=RunStatus.STUCK)
    rows = Placement.objects.filter(pk__in=ids).annotate(
        is_rolling=Exists(rolling) | Exists(staged),
        is_stalled=Exists(rolling.filter(sync_result__verdict=RunPhase.HALTED)) | Exists(stuck),
    )
    return rows.values("pk", "is_rolling", "is_stalled")


def _facts(placement: Placement, groups: Collection[dict[str, Any]], rollout: dict[str, Any]) -> HealthFacts:
    is_rolling = bool(rollout.get("is_rolling"))
    is_suspended = placement.paused_since is not None or placement.is_stopped
    resources = placement.selected_count if placement.pinned_snapshot is None else None
    counts = _counts(placement, groups, is_rolling=is_rolling, has_resources=resources != 0)
    return HealthFacts(
        counts,
        placement.placement_type,
        placement.is_fulfilled,
        is_pending=placement.is_due,
        has_invalid_selectors=bool(placement.selection_faults),
        resources=resources,
        is_deleting=placement.deleting_since is not None,
        is_paused=placement.paused_since is not None,
        is_stopped=placement.is_stopped,
        is_staged=placement.is_staged,
        is_rolling=is_rolling,
        is_stalled=bool(rollout.get("is_stalled")) and not is_suspended and not placement.needs_sync,
    )


def _counts(
    placement: Placement, groups: Collection[dict[str, Any]], *, is_rolling: bool, has_resources: bool
) -> HealthCounts:
    """Count the clusters; what holds no resources is available nowhere."""
    found: dict[str, int] = defaultdict(int)
    for group in groups:
        phase, number = Phase(group["phase"]), group["count"]
        if phase is Phase.REMOVE_FAILED:
            found["removal_failed"] += number
        if group["state"] == BindingState.UNSCHEDULED:
            found["removing"] += number if phase not in EMPTY else 0
            continue
        found["scheduled"] += number
        started = group["noted_started"]
        found["started"] += number if started == _TRUE or (started is None and phase not in EMPTY) else 0
        is_applied = phase in (Phase.APPLIED, Phase.AVAILABLE)
        found["applied"] += number if is_applied and has_resources else 0
        is_ready = phase is Phase.AVAILABLE or (is_applied and group["noted_available"] == _TRUE)
        if not group["is_reachable"]:
            found["unreachable"] += number
        elif phase is Phase.FAILED:
            found["failed"] += number
        elif is_ready and has_resources:
            found["available"] += number
        elif is_applied and (group["is_late"] or not is_rolling):
            found["not_available"] += number
    return HealthCounts(wanted=_wanted(placement, found["scheduled"]), **found)


def _wanted(placement: Placement, scheduled: int) -> int:
    if placement.number_of_clusters is not None:
        return placement.number_of_clusters
    if placement.placement_type == PlacementType.PICK_FIXED:
        return len(parse_placement(placement.document).spec.policy.cluster_names)
    return scheduled
