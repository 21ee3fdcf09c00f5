"""Which clusters are not observed, and which report themselves unhealthy: one rule of each for all readers.

A cluster that does not answer is unreachable, which is known. One that nothing has called, because no beat
runs or the workers do not keep up, keeps its last status for ever; this rule ends that. A cluster that
reports itself unhealthy can be selected for five more minutes (`clusters/health.py`); it is not ready.
"""

from datetime import datetime, timedelta

from django.db.models import Q

from clusters.models import MemberCluster
from clusters.models.members import NOT_UNHEALTHY

LONGEST_SILENCE = timedelta(minutes=2)
_DELAY = timedelta(minutes=1)
"""How much later than its period a cluster is observed while all works."""


def counts_until(observed_at: datetime, *, period: timedelta) -> datetime:
    """Return until when an observation counts: two minutes, or longer for a longer heartbeat period."""
    return observed_at + max(LONGEST_SILENCE, period + _DELAY)


def not_observed(*, now: datetime) -> Q:
    """Return the condition of clusters whose last observation counts no longer; none is unreachable."""
    return Q(observed_until__lt=now, unanswered_since=None) & ~Q(driver="")


def silence_of(cluster: MemberCluster, *, now: datetime) -> timedelta | None:
    """Return since when a cluster was not observed, None while its last observation counts."""
    until = cluster.observed_until
    if (
        not cluster.driver
        or cluster.unanswered_since is not None
        or until is None
        or until >= now
    ):
        return None
    return now - (cluster.heartbeat_at or until)


def unhealthy(*, now: datetime) -> Q:
    """Return the condition of clusters that can be selected, answer, and report themselves unhealthy."""
    is_reported = Q(verdict="", unanswered_since=None) & ~Q(
        agent_healthy__in=NOT_UNHEALTHY
    )
    return is_reported & ~not_observed(now=now)


def unhealthy_since(cluster: MemberCluster, *, now: datetime) -> datetime | None:
    """Return since when a cluster meets the condition `unhealthy`; None while it does not."""
    if not cluster.is_unhealthy or silence_of(cluster, now=now):
        return None
    return cluster.healthy_since or cluster.verdict_since
