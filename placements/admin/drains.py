"""What the actions Drain and Tell to fail do, and what a drain would do to placements."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.models import MemberCluster
from clusters.operations.faults import set_faults
from placements.operations.rollouts.draining import drain
from placements.queries.drain_impact import DrainImpact, drain_impact

DRAIN = "drain"
_CLUSTERS_SHOWN = 10


@transaction.atomic
def drain_all(names: Sequence[str], by: User, now: datetime) -> int:
    """Begin to drain clusters; tell how many were not being drained."""
    return sum(drain(name, by=by, now=now).started_at == now for name in names)


@transaction.atomic
def tell_all(names: Sequence[str], faults: Sequence[Mapping[str, Any]], by: User, now: datetime) -> int:
    """Give simulated clusters these faults; tell how many had others."""
    before = dict(MemberCluster.objects.filter(name__in=names).values_list("name", "revision"))
    return sum(set_faults(name, faults, by=by, now=now).revision != before[name] for name in names)


def drains_foreseen(names: Sequence[str], *, now: datetime) -> list[DrainImpact]:
    """Say what draining these clusters together would do, for the first ten of them."""
    return [drain_impact(name, now=now, beside=names) for name in names[:_CLUSTERS_SHOWN]]
