"""The verdict on a member cluster at a moment, from what its row holds."""

from datetime import datetime

from clusters.models import MemberCluster, Membership
from placements.scheduling.agent import AgentReport, Limits, judge, leaving
from placements.scheduling.fleet import ELIGIBLE, Eligibility, EligibilityKind

LIMITS = Limits()


def verdict_of(cluster: MemberCluster, *, now: datetime, observing_since: datetime | None) -> Eligibility:
    """Judge a cluster; only time in which the hub was observing makes it stale or ill (lifecycle A.15)."""
    if cluster.membership == Membership.LEAVING:
        return leaving()
    if not cluster.expects_report:
        return ELIGIBLE
    if not cluster.driver:
        return judge(_report(cluster, None), now=cluster.as_of or now, limits=LIMITS)
    return judge(_report(cluster, observing_since), now=now, limits=LIMITS)


def _report(cluster: MemberCluster, observing_since: datetime | None) -> AgentReport | None:
    if not cluster.has_reported:
        return None
    heartbeat, healthy_since = cluster.heartbeat_at, cluster.healthy_since
    if cluster.verdict != EligibilityKind.STALE_HEARTBEAT:
        heartbeat = _not_before(heartbeat, observing_since)
    if cluster.verdict != EligibilityKind.UNHEALTHY:
        healthy_since = _not_before(healthy_since, observing_since)
    return AgentReport(
        heartbeat=heartbeat,
        joined=cluster.agent_joined or None,
        healthy=cluster.agent_healthy or None,
        healthy_since=healthy_since,
    )


def _not_before(moment: datetime | None, start: datetime | None) -> datetime | None:
    return max(moment, start) if moment and start else moment
