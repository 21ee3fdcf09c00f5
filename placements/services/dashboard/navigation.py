"""The numbers of the navigation: rollouts in progress on this hub, items of the inbox on all hubs."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.db.models import Count, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from clusters.hubs.queries import NOT_RUNNING
from clusters.models import Hub
from fleetui.hub_scope import LOCAL_HUB
from fleetui.polling import ANYBODY, PreparedQuery
from placements.services.hubs.inbox import RECENT, inbox_count
from placements.services.rollouts.attention import runs_under_way


@dataclass(frozen=True, slots=True)
class NavigationCounts:
    """What the navigation counts."""

    rollouts: int
    inbox: int


_ANY_TIME = datetime(1999, 1, 1, 1, 1, 1, tzinfo=UTC)


def navigation_counts(user: User | AnonymousUser, *, now: datetime) -> NavigationCounts:
    """Return the counts for a person, by one query: every page has it."""
    if not isinstance(user, User) or not user.is_active:
        return NavigationCounts(0, 0)
    adapted = connection.ops.adapt_datetimefield_value
    values: dict[Any, Any] = {ANYBODY: user.pk}
    values |= {adapted(_ANY_TIME - ago): adapted(now - ago) for ago in (NOT_RUNNING, RECENT)}
    [found] = _queries[user.is_superuser].rows(values)
    return NavigationCounts(sum(found[:2]), sum(found[2:]))


def _counts(user: User, *, now: datetime) -> QuerySet[Any, Any]:
    rolling, staged = runs_under_way()
    sources = {"rolling": rolling, "staged": staged, **inbox_count(user, now=now)}
    counts = []
    for rows in sources.values():
        one_group = rows.order_by().annotate(one=Value(1)).values("one")
        number = one_group.annotate(number=Count("pk")).values("number")
        counts.append(Coalesce(Subquery(number), 0))
    return Hub.objects.filter(pk=LOCAL_HUB).values_list(*counts)


_queries = {
    is_superuser: PreparedQuery(partial(_counts, User(pk=ANYBODY, is_superuser=is_superuser), now=_ANY_TIME))
    for is_superuser in (False, True)
}
