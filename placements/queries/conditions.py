"""What rows say of one cluster of a placement, as the conditions of its status are read from it."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from placements.explain.hub_conditions import OnCluster
from placements.models import Binding, ResourceSnapshot
from placements.rollout.failures import FailureKind
from placements.rollout.state import EMPTY, Phase
from placements.scheduling.spec import ClusterResourcePlacement, RollingUpdate, StrategyType
from placements.standing import Held


@dataclass(frozen=True, slots=True)
class Reading:
    """How the bindings of one placement are read at a moment."""

    period: timedelta
    is_staged: bool
    wanted_since: datetime | None
    now: datetime

    @classmethod
    def of(
        cls, manifest: ClusterResourcePlacement, target: ResourceSnapshot | None, *, now: datetime
    ) -> "Reading":
        """Read it off a manifest and what is to be carried out."""
        rolling = manifest.spec.strategy.rolling_update or RollingUpdate()
        period = timedelta(seconds=rolling.unavailable_period_seconds)
        is_staged = manifest.spec.strategy.type is StrategyType.EXTERNAL
        return cls(period, is_staged, target.created_at if target else None, now)

    def of_binding(self, binding: Binding | Held, wanted: str | None, *, waits_for: str = "") -> OnCluster:
        """Give the facts of one cluster; `wanted` is the version that belongs there."""
        phase = Phase(binding.phase)
        ready_at = self._ready_at(binding, phase)
        return OnCluster(
            binding.cluster_name,
            binding.picked_at,
            phase,
            binding.phase_since,
            self._is_current(binding, wanted, phase),
            is_ready=ready_at is not None and ready_at <= self.now,
            message=binding.message,
            waits_for=waits_for,
            failure=FailureKind(binding.failure) if binding.failure else None,
            has_overrides=bool(binding.override_snapshots),
            wanted_since=self.wanted_since,
            ready_at=ready_at,
            noted=binding.conditions,
        )

    def _is_current(self, binding: Binding | Held, wanted: str | None, phase: Phase) -> bool | None:
        """Tell whether what was started is what belongs there; a staged run alone knows what does."""
        if self.is_staged:
            return True if phase not in EMPTY else None
        if wanted is None:
            return None
        return phase not in EMPTY and binding.running_version == wanted

    def _ready_at(self, binding: Binding | Held, phase: Phase) -> datetime | None:
        """Say when a cluster became ready, or will by time alone; None while something else has to tell."""
        if phase is Phase.SETTLING:
            return None if binding.timed_since is None else binding.timed_since + self.period
        return (binding.phase_since or binding.picked_at) if phase is Phase.AVAILABLE else None
