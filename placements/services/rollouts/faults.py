"""Faults of simulated clusters, which show on what is placed there at once."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.models import MemberCluster
from clusters.operations.fault_injection import set_faults
from fleetui.task_queue import enqueue
from placements.engine.rollout.state import Phase
from placements.models import Binding
from placements.services.workqueue import RUN_CLUSTER_CALLS


@transaction.atomic
def inject_faults(
    name: str,
    faults: Sequence[Mapping[str, Any]],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> MemberCluster:
    """Replace the faults of a simulated cluster. Raise what `set_faults` raises."""
    row = set_faults(name, faults, by=by, now=now, expected=expected)
    # At rest the workloads are read every two minutes; until then the fault would have no effect.
    placed = Binding.objects.filter(
        cluster_name=name,
        phase__in=(Phase.APPLIED, Phase.AVAILABLE),
        next_call_at__gt=now,
    )
    placed.update(next_call_at=now)
    enqueue(RUN_CLUSTER_CALLS)
    return row
