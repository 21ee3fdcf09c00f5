"""Clusters that left the fleet and rejoined: earlier observations are no longer valid (A.1)."""

from collections.abc import Collection
from datetime import datetime

from django.db.models import OuterRef, QuerySet, Subquery

from clusters.models import MemberCluster
from fleetui.task_queue import enqueue
from placements.engine.rollout.state import Phase
from placements.models import Binding
from placements.services.workqueue import CARRY_OUT_DUE


def set_members(bindings: QuerySet[Binding]) -> None:
    """Record of which member clusters these bindings are; a cluster that rejoins is another one."""
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name")).values("pk")
    bindings.update(member_id=Subquery(members[:1]))


def recheck_rejoined(bindings: Collection[Binding], *, now: datetime) -> None:
    """Observe selected clusters again that rejoined since they were last selected.

    They may have been cleared meanwhile; until the next observation they count as not ready.
    """
    names = [one.cluster_name for one in bindings]
    members = dict(MemberCluster.objects.filter(name__in=names).values_list("name", "pk"))
    rejoined = [one for one in bindings if members.get(one.cluster_name) not in (None, one.member_id)]
    if not rejoined:
        return
    rows = Binding.objects.filter(pk__in=[one.pk for one in rejoined])
    set_members(rows)
    if any(one.phase == Phase.AVAILABLE for one in rejoined):
        columns = {
            "phase": Phase.APPLIED,
            "phase_changed_at": now,
            "untrackable_since": None,
            "next_call_at": now,
        }
        rows.filter(phase=Phase.AVAILABLE).update(**columns)
        enqueue(CARRY_OUT_DUE)
