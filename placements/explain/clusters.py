"""The status of a member cluster in words, for pages and the admin."""

from django.utils import timezone

from clusters.fleet import EligibilityKind
from clusters.models import MemberCluster, Membership
from clusters.observation import silence_of, unhealthy_since
from placements.explain.vocabulary import ELIGIBILITY_WORDS, silence_words


def cluster_status(cluster: MemberCluster, *, is_cordoned: bool) -> tuple[str, str]:
    """Return level and status of a cluster: the first rule that applies."""
    now = timezone.now()
    silence = silence_of(cluster, now=now)
    not_ready = ""
    if not cluster.is_eligible:
        reason = ELIGIBILITY_WORDS[EligibilityKind(cluster.verdict)].partition(" (")[0]
        not_ready = f"Not ready ({reason.lower()})".removesuffix(" (not ready)")
    rules = (
        (cluster.membership == Membership.LEAVING, "progress", "Leaving"),
        (cluster.awaits_first_heartbeat, "progress", "Waiting for the first heartbeat"),
        (not cluster.is_eligible, "failed", not_ready),
        (cluster.is_late, "attention", "Heartbeat late"),
        (silence is not None, "unknown", silence_words(silence) if silence else ""),
        (unhealthy_since(cluster, now=now) is not None, "attention", "Unhealthy"),
        (bool(cluster.workloads_problem), "attention", "Workloads failing"),
        (is_cordoned, "suspended", "Cordoned"),
        (cluster.membership == Membership.JOINING, "progress", "Joining"),
        (not cluster.is_monitored, "unknown", "Not monitored"),
        (True, "healthy", "Ready"),
    )
    return next((level, words) for applies, level, words in rules if applies)
