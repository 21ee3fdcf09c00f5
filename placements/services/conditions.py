"""Conditions of a placement and its clusters: read from rows, and stored with their transition times."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from fleetui.bulk import batched, update_each
from placements.engine.rollout.state import EMPTY, FailureKind, Phase
from placements.explain.hub_conditions import (
    OnCluster,
    conditions_in_all,
    conditions_on,
    noted_of,
)
from placements.manifests.binding import BindingState
from placements.manifests.placement import ClusterResourcePlacement
from placements.manifests.strategy import ApplyType, RollingUpdate, StrategyType
from placements.models import Binding, Placement, ResourceSnapshot
from placements.services.rollout_state import BindingColumns, RolloutContext


@dataclass(frozen=True, slots=True)
class ConditionReader:
    """How the bindings of one placement are read at a moment."""

    period: timedelta
    is_staged: bool
    wanted_since: datetime | None
    now: datetime
    work: str

    @classmethod
    def of(
        cls,
        manifest: ClusterResourcePlacement,
        target: ResourceSnapshot | None,
        *,
        now: datetime,
    ) -> "ConditionReader":
        rolling = manifest.spec.strategy.rolling_update or RollingUpdate()
        period = timedelta(seconds=rolling.unavailable_period_seconds)
        is_staged = manifest.spec.strategy.type is StrategyType.EXTERNAL
        wanted_since = target.created_at if target else None
        # As KubeFleet names it, with the namespace of a ResourcePlacement.
        work = f"{manifest.full_name.replace('/', '.')}-work"
        return cls(period, is_staged, wanted_since, now, work)

    def of_binding(
        self,
        binding: Binding | BindingColumns,
        wanted: str | None,
        *,
        waits_for: str = "",
        why_selected: str = "",
    ) -> OnCluster:
        """Return the facts of one cluster; `wanted` is the version that belongs there."""
        phase = Phase(binding.phase)
        ready_at = self.ready_at(binding)

        # Whether what was started is what belongs there; of a staged placement only its run knows that.
        has_started = phase not in EMPTY
        is_current: bool | None = has_started and binding.applied_version == wanted
        if self.is_staged:
            is_current = has_started or None
        elif wanted is None:
            is_current = None
        return OnCluster(
            binding.cluster_name,
            binding.picked_at,
            phase,
            binding.phase_changed_at,
            is_current,
            is_ready=ready_at is not None and ready_at <= self.now,
            message=binding.message,
            waits_for=waits_for,
            failure=FailureKind(binding.failure) if binding.failure else None,
            has_overrides=bool(binding.override_snapshots),
            wanted_since=self.wanted_since,
            ready_at=ready_at,
            noted=binding.conditions,
            is_report=binding.apply_type == ApplyType.REPORT_DIFF,
            work=self.work,
            why_selected=why_selected,
        )

    def ready_at(self, binding: Binding | BindingColumns) -> datetime | None:
        """Return when everything there is available, observed or after the usual time."""
        if binding.phase == Phase.AVAILABLE:
            return binding.phase_changed_at or binding.picked_at
        if binding.phase == Phase.APPLIED and binding.untrackable_since is not None:
            return binding.untrackable_since + self.period
        return None


def update_conditions(context: RolloutContext, *, now: datetime) -> None:
    """Store which conditions have changed since they were stored last, and when.

    Only in the transaction of a sync, after what it started: every change of a cluster or of what is wanted
    leads to a sync. What a condition is now is computed from the rows on every read, so that nothing is lost
    when a sync comes late.
    """
    reader = replace(
        ConditionReader.of(context.manifest, context.target, now=now), wanted_since=now
    )
    versions = {cluster.name: cluster.wanted for cluster in context.state.clusters}
    # Bindings that differ in nothing a condition is computed from: in a large fleet, most.
    alike: dict[object, list[BindingColumns]] = {}
    for read in context.bindings:
        one = read.updated(context.started.get(read.pk, {}))
        if one.state != BindingState.UNSCHEDULED:
            values = one._replace(
                pk=0, cluster_name="", message="", attempts=0, retry_at=None
            )
            alike.setdefault((values, versions[one.cluster_name]), []).append(one)
    each = []
    changed: dict[int, dict[str, Any]] = {}
    for bindings in alike.values():
        one = bindings[0]
        conditions = conditions_on(reader.of_binding(one, versions[one.cluster_name]))
        each.append(conditions)
        stored = noted_of(conditions)
        if stored != one.conditions:
            changed |= {binding.pk: {"conditions": stored} for binding in bindings}
    for part in batched(changed):
        update_each(Binding.objects.all(), {pk: changed[pk] for pk in part})
    in_all = noted_of(conditions_in_all(each, context.placement.conditions))
    if in_all != context.placement.conditions:
        Placement.objects.filter(pk=context.placement.pk).update(conditions=in_all)
