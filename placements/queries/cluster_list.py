"""The list of clusters with what is placed on them: every column can order it, and the database does."""

from datetime import UTC, datetime
from typing import Any

from django.db.models import Case, Count, Expression, IntegerField, OuterRef, QuerySet, Subquery, Value, When
from django.db.models.functions import Coalesce

from clusters.listing import Standing, label_of, standing
from clusters.models import MemberCluster
from placements.models import Binding, StalePick
from placements.scheduling.bindings import BindingState

LABEL = "label:"
"""What an order by a label begins with: `label:region`."""
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def _placed() -> Coalesce:
    rows = Binding.objects.filter(cluster_name=OuterRef("name")).exclude(state=BindingState.UNSCHEDULED)
    return _counted(rows.order_by().values("cluster_name").annotate(count=Count("pk")))


def _stale() -> Coalesce:
    rows = StalePick.objects.filter(cluster_name=OuterRef("name"))
    return _counted(rows.order_by().values("cluster_name").annotate(count=Count("pk")))


def _counted(rows: Any) -> Coalesce:
    return Coalesce(Subquery(rows.values("count"), output_field=IntegerField()), 0)


def _rank() -> Case:
    """Give the place of how a cluster stands, the best first."""
    ranks = [When(how=state.value, then=Value(place)) for place, state in enumerate(Standing)]
    return Case(*ranks, output_field=IntegerField())


_COLUMNS = {
    "name": "name",
    "joined_at": "joined_at",
    "verdict_since": "verdict_since",
    "state": "rank",
    "heartbeat": "beat",
    "placements": "placed",
    "stale": "stale_picks",
}
"""The column of the database for each order; those that are worked out are so only when they order."""
ORDERS = tuple(f"{sign}{name}" for name in _COLUMNS for sign in ("", "-"))


def in_order(rows: QuerySet[MemberCluster], given: str) -> tuple[QuerySet[MemberCluster], str, str]:
    """Give the rows with how they stand and what orders them, that column, and the order as it was read.

    An order that there is not is read as by name.
    """
    rows = rows.annotate(how=standing())
    sign, wanted = ("-", given[1:]) if given.startswith("-") else ("", given)
    if wanted.startswith(LABEL) and len(wanted) > len(LABEL):
        key = wanted.removeprefix(LABEL)
        return rows.annotate(value=Coalesce(label_of(key), Value(""))), f"{sign}value", given
    column = _COLUMNS.get(wanted)
    if column is None:
        return rows, "name", "name"
    made: dict[str, Expression] = {
        "rank": _rank(),
        "beat": Coalesce("heartbeat_at", Value(_NEVER)),
        "placed": _placed(),
        "stale_picks": _stale(),
    }
    rows = rows.annotate(**{column: made[column]}) if column in made else rows
    return rows, f"{sign}{column}", given


def with_counts(rows: QuerySet[MemberCluster]) -> QuerySet[MemberCluster]:
    """Give the rows with how they stand, what is placed there and how much of it is stale: for downloads."""
    return rows.annotate(how=standing(), placed=_placed(), stale_picks=_stale())
