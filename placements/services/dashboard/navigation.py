"""What the frame of each page shows: rollouts in progress and kinds of clusters of this hub, the inbox."""

from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Exists, Q

from clusters.drivers.registry import SIMULATED
from clusters.models import Hub, MemberCluster
from fleetui.bulk import number_of
from fleetui.hub_scope import LOCAL_HUB
from placements.models import Placement
from placements.services.problems.inbox import counted_for
from placements.services.rollouts.under_way import runs_under_way


@dataclass(frozen=True, slots=True)
class NavigationCounts:
    """What the navigation counts, and whether there are demo data, simulated clusters and others."""

    rollouts: int
    inbox: int
    has_demo: bool = False
    has_simulated: bool = False
    has_others: bool = False


def navigation_counts(user: User | AnonymousUser) -> NavigationCounts:
    """Return them for a person, by one query: every page has it."""
    if not isinstance(user, User) or not user.is_active:
        return NavigationCounts(0, 0)
    placements, clusters = Placement.objects.filter(is_demo=True), MemberCluster.objects.filter(is_demo=True)
    rolling, staged = runs_under_way()
    columns = {
        "rolling": number_of(rolling),
        "staged": number_of(staged),
        "inbox": number_of(counted_for(user)),
        "has_demo": Q(Exists(placements)) | Q(Exists(clusters)),
        "has_simulated": Exists(MemberCluster.objects.filter(driver=SIMULATED)),
        "has_others": Exists(MemberCluster.objects.exclude(driver=SIMULATED)),
    }
    rows = Hub.objects.filter(pk=LOCAL_HUB).annotate(**columns)
    rolling_count, staged_count, inbox, *kinds = rows.values_list(*columns).get()
    return NavigationCounts(rolling_count + staged_count, inbox, *kinds)
