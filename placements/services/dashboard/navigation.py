"""What the frame of each page shows: rollouts in progress and kinds of clusters of this hub, the inbox."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Exists, Q, QuerySet

from clusters.drivers.registry import SIMULATED
from clusters.models import Hub, MemberCluster
from fleetui.hub_scope import LOCAL_HUB
from fleetui.polling import ANYBODY, PreparedQuery, number_of
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
    [row] = _queries[user.is_superuser].rows({ANYBODY: user.pk})
    has_demo, has_simulated, has_others, rolling, staged, inbox = row
    return NavigationCounts(rolling + staged, inbox, bool(has_demo), bool(has_simulated), bool(has_others))


def _counts(user: User) -> QuerySet[Any, Any]:
    simulated, others = (
        MemberCluster.objects.filter(driver=SIMULATED),
        MemberCluster.objects.exclude(driver=SIMULATED),
    )
    placements, clusters = (one.objects.filter(is_demo=True) for one in (Placement, MemberCluster))
    kinds = {
        "demo": Q(Exists(placements)) | Q(Exists(clusters)),
        "simulated": Exists(simulated),
        "others": Exists(others),
    }
    rolling, staged = runs_under_way()
    sources = {"rolling": rolling, "staged": staged, "inbox": counted_for(user)}
    rows = Hub.objects.filter(pk=LOCAL_HUB).annotate(
        **{f"has_{kind}": exists for kind, exists in kinds.items()}
    )
    return rows.values_list(*(f"has_{kind}" for kind in kinds), *map(number_of, sources.values()))


_queries = {
    is_superuser: PreparedQuery(partial(_counts, User(pk=ANYBODY, is_superuser=is_superuser)))
    for is_superuser in (False, True)
}
