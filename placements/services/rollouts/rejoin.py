"""Clusters that left the fleet and rejoined: earlier observations are no longer valid (A.1)."""

from collections.abc import Collection
from datetime import datetime

from clusters.models import MemberCluster
from fleetui.task_queue import enqueue
from placements.engine.rollout.state import Phase
from placements.models import Binding
from placements.services.workqueue import CARRY_OUT_DUE


def recheck_rejoined(bindings: Collection[Binding], *, now: datetime) -> None:
    """Observe selected clusters again that joined after they were last found available.

    They may have been cleared meanwhile; until the next observation they count as not ready.
    """
    available = {one.cluster_name: one for one in bindings if one.phase == Phase.AVAILABLE}
    joined = MemberCluster.objects.filter(name__in=available).values_list("name", "joined_at")
    outdated = [available[name].pk for name, at in joined if at > (available[name].phase_changed_at or now)]
    if outdated:
        columns = {
            "phase": Phase.APPLIED,
            "phase_changed_at": now,
            "untrackable_since": None,
            "next_call_at": now,
        }
        Binding.objects.filter(pk__in=outdated, phase=Phase.AVAILABLE).update(**columns)
        enqueue(CARRY_OUT_DUE)
