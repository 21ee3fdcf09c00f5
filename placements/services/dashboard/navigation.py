"""The numbers of the navigation: rollouts in progress on this hub, items of the inbox on all hubs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.db import connection
from django.db.models import Count, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce

from clusters.hubs.queries import NOT_RUNNING
from clusters.models import Hub
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from placements.services.hubs.inbox import RECENT, inbox_count
from placements.services.rollouts.attention import runs_under_way


@dataclass(frozen=True, slots=True)
class NavigationCounts:
    """What the navigation counts."""

    rollouts: int
    inbox: int


_ANYBODY, _ANY_TIME = 2_000_000_011, datetime(1999, 1, 1, 1, 1, 1, tzinfo=UTC)
"""In place of the person and the time in a query that is written once."""
_written: dict[tuple[int, bool], tuple[str, Sequence[Any]]] = {}


def navigation_counts(user: User | AnonymousUser, *, now: datetime) -> NavigationCounts:
    """Return the counts for a person, by one query, which is written once: every page has it."""
    if not isinstance(user, User) or not user.is_active:
        return NavigationCounts(0, 0)
    key = (current_hub_id(), user.is_superuser)
    if key not in _written:
        anybody = User(pk=_ANYBODY, is_superuser=user.is_superuser)
        _written[key] = _counts(anybody, now=_ANY_TIME).query.sql_with_params()
    sql, parameters = _written[key]
    adapted = connection.ops.adapt_datetimefield_value
    values: dict[Any, Any] = {_ANYBODY: user.pk}
    values |= {adapted(_ANY_TIME - ago): adapted(now - ago) for ago in (NOT_RUNNING, RECENT)}
    with connection.cursor() as cursor:
        cursor.execute(sql, [values.get(one, one) for one in parameters])
        found = cursor.fetchone()
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
