"""Clusters that left the fleet and are back: what was seen there before says nothing now (lifecycle A.1)."""

from collections.abc import Collection
from datetime import datetime

from clusters.models import MemberCluster
from fleetui.wake import wake
from placements.models import Binding
from placements.operations.rollouts.asking import CARRY_OUT_DUE
from placements.rollout.state import Phase


def doubt_rejoined(bindings: Collection[Binding], *, now: datetime) -> None:
    """Have picked clusters looked at that joined after they were last found available.

    Somebody may have cleared them meanwhile; until the first look they count as not ready.
    """
    well = {one.cluster_name: one for one in bindings if one.phase == Phase.AVAILABLE}
    joined = MemberCluster.objects.filter(name__in=well).values_list("name", "joined_at")
    doubted = [well[name].pk for name, at in joined if at > (well[name].phase_since or now)]
    if doubted:
        unseen = {"phase": Phase.SETTLING, "phase_since": now, "timed_since": None, "work_at": now}
        Binding.objects.filter(pk__in=doubted, phase=Phase.AVAILABLE).update(**unseen)
        wake(CARRY_OUT_DUE)
