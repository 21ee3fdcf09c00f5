"""Clusters with counts for lists, and topology spread skews and stale picks of placements."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from django.db.models import (
    Count,
    Exists,
    Expression,
    IntegerField,
    OuterRef,
    QuerySet,
    Subquery,
    Value,
)
from django.db.models.functions import Coalesce

from clusters.filters import label_of, list_rank, list_state
from clusters.models import MemberCluster
from placements.engine.advice.diagnosis import outdated
from placements.engine.balance import exceeded_limits
from placements.engine.limits import ExceededLimit
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.reason import Reason
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import imbalance, is_hard, is_limit
from placements.manifests.binding import BindingState
from placements.models import Binding, Placement, PolicySnapshot, StalePick

LABEL = "label:"
"""Prefix of an order by a label: `label:region`."""
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def _count_on(rows: Any) -> Coalesce:
    own = rows.filter(cluster_name=OuterRef("name")).order_by().values("cluster_name")
    count = Subquery(own.values(count=Count("pk")), output_field=IntegerField())
    return Coalesce(count, 0)


def placed_count() -> Coalesce:
    return _count_on(Binding.objects.exclude(state=BindingState.UNSCHEDULED))


def _stale() -> Coalesce:
    return _count_on(StalePick.objects.all())


_COLUMNS = {
    "name": "name",
    "joined_at": "joined_at",
    "verdict_since": "verdict_since",
    "state": "rank",
    "heartbeat": "beat",
    "placements": "placed",
    "stale": "stale_picks",
}
"""The column for each order; computed columns are computed only when sorting by them."""
ORDERS = tuple(f"{sign}{name}" for name in _COLUMNS for sign in ("", "-"))


def in_order(
    rows: QuerySet[MemberCluster], order: str
) -> tuple[QuerySet[MemberCluster], str, str]:
    """Return the rows with their state, the column to sort by, and the order; by name if unsupported."""
    rows = rows.annotate(how=list_state())
    field = order.removeprefix("-")
    sign = order.removesuffix(field)
    if field.startswith(LABEL) and len(field) > len(LABEL):
        key = field.removeprefix(LABEL)
        return (
            rows.annotate(value=Coalesce(label_of(key), Value(""))),
            f"{sign}value",
            order,
        )
    column = _COLUMNS.get(field)
    if column is None:
        return rows, "name", "name"
    expressions: dict[str, Callable[[], Expression]] = {
        "rank": list_rank,
        "beat": lambda: Coalesce("heartbeat_at", Value(_NEVER)),
        "placed": placed_count,
        "stale_picks": _stale,
    }
    if column in expressions:
        rows = rows.annotate(**{column: expressions[column]()})
    return rows, f"{sign}{column}", order


def with_counts(rows: QuerySet[MemberCluster]) -> QuerySet[MemberCluster]:
    return rows.annotate(how=list_state(), placed=placed_count(), stale_picks=_stale())


MOST_NAMES = 3


class Skew(NamedTuple):
    key: str
    skew: int
    most: int
    is_hard: bool


@dataclass(frozen=True, slots=True)
class Headroom:
    """The skews of a placement, its stale picks, and the hard limits that are exceeded.

    `stale` is by cluster the last reason why rescheduling would not select it.
    """

    skews: tuple[Skew, ...]
    stale: dict[str, Reason]
    exceeded: tuple[ExceededLimit, ...]

    @property
    def least(self) -> int | None:
        return min((skew.most - skew.skew for skew in self.skews), default=None)


def headroom_of(cycle: Cycle) -> Headroom:
    """Compare the placed clusters with the limits, and with what rescheduling would select."""
    placed = np.nonzero(cycle.is_active)[0]
    names = [cycle.fleet.names[place] for place in placed.tolist()]
    exceeded = tuple(exceeded_limits(cycle, names))
    fresh = schedule(cycle.rescheduled())
    if fresh.is_failed or fresh.kind is CycleKind.NO_NAMES:
        return Headroom((), {}, exceeded)
    outcomes = Outcomes(fresh)
    stale = {name: outcomes.of(name).against for name in outdated(cycle, fresh, names)}
    candidates, skews = fresh.candidates, list[Skew]()
    if candidates is None:
        return Headroom((), stale, exceeded)
    for constraint, groups in zip(
        candidates.constraints, candidates.groups, strict=True
    ):
        counts = groups.count(placed)
        projected = candidates.strategy.project(constraint, groups, counts)
        if is_limit(
            constraint, projected
        ):  # of a soft constraint only where its skew is scored
            skews.append(
                Skew(
                    constraint.topology_key,
                    imbalance(counts, projected),
                    constraint.max_skew,
                    is_hard(constraint),
                )
            )
    return Headroom(tuple(skews), stale, exceeded)


@dataclass(frozen=True, slots=True)
class Stale:
    """A placement with stale picks: the first names, the count, and when that was computed."""

    placement: str
    names: tuple[str, ...]
    count: int
    checked_at: datetime


def stale_picks_of(placement: Placement) -> dict[str, str]:
    """Return the clusters that rescheduling would not select, by name, each with why."""
    rows = StalePick.objects.filter(staleness_check__placement=placement)
    return dict(rows.order_by("cluster_name").values_list("cluster_name", "reason"))


def with_outdated(rows: QuerySet[Placement]) -> QuerySet[Any]:
    """Return placements with whether one would not select some of its clusters again."""
    picks = StalePick.objects.filter(staleness_check__placement=OuterRef("pk"))
    return rows.annotate(is_outdated=Exists(picks))


def stale_on(names: Collection[str]) -> dict[str, int]:
    return dict(
        StalePick.objects.filter(cluster_name__in=list(names))
        .values_list("cluster_name")
        .annotate(count=Count("pk"))
        .order_by()
    )


def skews_of(placement: Placement) -> list[Skew]:
    """Return the stored skews of a placement, loaded with `staleness_check`; none of an older decision."""
    if not are_skews_known(placement):
        return []
    return [Skew(*skew) for skew in placement.staleness_check.skews]


def are_skews_known(placement: Placement) -> bool:
    """Return whether the skews of the latest decision are stored: some seconds after it."""
    check = getattr(placement, "staleness_check", None)
    return check is not None and check.decisions_made == placement.decisions_made


_MOST_POLICIES = 500


def favourite_keys(known: Sequence[str], *, most: int) -> list[str]:
    """Return the keys that most placements spread over, else the first key."""
    constraints = (
        PolicySnapshot.objects.filter(is_latest=True)
        .order_by("pk")
        .values_list("policy__topologySpreadConstraints", flat=True)[:_MOST_POLICIES]
    )
    counted = Counter(
        one["topologyKey"]
        for several in constraints
        for one in several or ()
        if one["topologyKey"] in known
    )
    return [key for key, _ in counted.most_common(most)] or list(known[:1])


def favourite_key(known: Sequence[str]) -> str:
    """Return the key that most placements spread over, else the first key; empty without labels."""
    return next(iter(favourite_keys(known, most=1)), "")
