"""Until when the last observation of a cluster counts: the one rule of what is not observed.

A cluster that does not answer is unreachable, which is known. One that nothing has called, because no beat
runs or the workers do not keep up, keeps its last status for ever; this rule ends that.
"""

from datetime import datetime, timedelta

from django.db.models import Q

from clusters.models import MemberCluster

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
    if not cluster.driver or cluster.unanswered_since is not None or until is None or until >= now:
        return None
    return now - (cluster.heartbeat_at or until)


def silence_words(silence: timedelta) -> str:
    minutes = int(silence.total_seconds() // 60)
    return f"Not observed for {minutes} minute{'' if minutes == 1 else 's'}"
