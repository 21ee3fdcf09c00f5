"""The numbers of the navigation: rollouts in progress on this hub, items of the inbox on all hubs."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.db.models import QuerySet

from clusters.hubs.queries import NOT_RUNNING
from clusters.models import Hub
from fleetui.hub_scope import LOCAL_HUB
from fleetui.polling import ANY_TIME, ANYBODY, PreparedQuery, number_of
from placements.services.hubs.inbox import RECENT, inbox_count
from placements.services.rollouts.attention import runs_under_way


@dataclass(frozen=True, slots=True)
class NavigationCounts:
    """What the navigation counts."""

    rollouts: int
    inbox: int


def navigation_counts(user: User | AnonymousUser, *, now: datetime) -> NavigationCounts:
    """Return the counts for a person, by one query: every page has it."""
    if not isinstance(user, User) or not user.is_active:
        return NavigationCounts(0, 0)
    adapted = connection.ops.adapt_datetimefield_value
    values: dict[Any, Any] = {ANYBODY: user.pk}
    values |= {adapted(ANY_TIME - ago): adapted(now - ago) for ago in (NOT_RUNNING, RECENT)}
    [found] = _queries[user.is_superuser].rows(values)
    return NavigationCounts(sum(found[:2]), sum(found[2:]))


def _counts(user: User, *, now: datetime) -> QuerySet[Any, Any]:
    rolling, staged = runs_under_way()
    sources = {"rolling": rolling, "staged": staged, **inbox_count(user, now=now)}
    return Hub.objects.filter(pk=LOCAL_HUB).values_list(*map(number_of, sources.values()))


_queries = {
    is_superuser: PreparedQuery(partial(_counts, User(pk=ANYBODY, is_superuser=is_superuser), now=ANY_TIME))
    for is_superuser in (False, True)
}
