"""What the frame of each page shows: rollouts in progress and kinds of clusters of this hub, the inbox."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.db.models import Exists, Q, QuerySet

from clusters.drivers.registry import SIMULATED
from clusters.hubs.queries import NOT_RUNNING
from clusters.models import Hub, MemberCluster
from fleetui.hub_scope import LOCAL_HUB
from fleetui.polling import ANY_TIME, ANYBODY, PreparedQuery, number_of
from placements.models import Placement
from placements.services.hubs.inbox import RECENT, inbox_count
from placements.services.rollouts.attention import runs_under_way


@dataclass(frozen=True, slots=True)
class NavigationCounts:
    """What the navigation counts, and whether there are demo data, simulated clusters and others."""

    rollouts: int
    inbox: int
    has_demo: bool = False
    has_simulated: bool = False
    has_others: bool = False


def navigation_counts(user: User | AnonymousUser, *, now: datetime) -> NavigationCounts:
    """Return them for a person, by one query: every page has it."""
    if not isinstance(user, User) or not user.is_active:
        return NavigationCounts(0, 0)
    adapted = connection.ops.adapt_datetimefield_value
    values: dict[Any, Any] = {ANYBODY: user.pk}
    values |= {adapted(ANY_TIME - ago): adapted(now - ago) for ago in (NOT_RUNNING, RECENT)}
    [row] = _queries[user.is_superuser].rows(values)
    has_demo, has_simulated, has_others, rolling, staged, *inbox = row
    return NavigationCounts(
        rolling + staged, sum(inbox), bool(has_demo), bool(has_simulated), bool(has_others)
    )


def _counts(user: User, *, now: datetime) -> QuerySet[Any, Any]:
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
    sources = {"rolling": rolling, "staged": staged, **inbox_count(user, now=now)}
    rows = Hub.objects.filter(pk=LOCAL_HUB).annotate(
        **{f"has_{kind}": exists for kind, exists in kinds.items()}
    )
    return rows.values_list(*(f"has_{kind}" for kind in kinds), *map(number_of, sources.values()))


_queries = {
    is_superuser: PreparedQuery(partial(_counts, User(pk=ANYBODY, is_superuser=is_superuser), now=ANY_TIME))
    for is_superuser in (False, True)
}
