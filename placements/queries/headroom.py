"""How near a placement is to its limits, and which of its picks a run from scratch would pass over."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from django.db.models import Count, F, Window
from django.db.models.functions import RowNumber

from placements.models import Placement, StalePick
from placements.scheduling.candidates import Candidates
from placements.scheduling.columns import Ints
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import CycleKind
from placements.scheduling.scheduler import schedule
from placements.scheduling.spread.base import is_hard, is_limit, unevenness

MOST_NAMES = 3


class Skew(NamedTuple):
    """How uneven a placement is now over one topology key, and how uneven it may be."""

    key: str
    skew: int
    most: int
    is_hard: bool


@dataclass(frozen=True, slots=True)
class Headroom:
    """The skews of a placement and its stale picks; `least` is what the tightest limit leaves."""

    skews: tuple[Skew, ...]
    stale: tuple[str, ...]

    @property
    def least(self) -> int | None:
        """Give by how much the tightest limit may still be approached; below 0 it is broken."""
        return min((one.most - one.skew for one in self.skews), default=None)


def headroom_of(cycle: Cycle) -> Headroom:
    """Compare what is placed with the limits, and with what a run from scratch would pick."""
    fresh = schedule(replace(cycle, bindings=()))
    if fresh.is_failed or fresh.kind is CycleKind.NO_NAMES:
        return Headroom((), ())
    wanted = {*fresh.picked_names, *fresh.kept}
    placed = np.nonzero(cycle.is_active)[0]
    stale = [cycle.fleet.names[place] for place in placed.tolist() if cycle.fleet.names[place] not in wanted]
    candidates = fresh.candidates
    return Headroom(tuple(_skews(candidates, placed)) if candidates else (), tuple(stale))


def _skews(candidates: Candidates, placed: Ints) -> Iterator[Skew]:
    """Give how uneven the groups are where maxSkew limits that; a soft one does where the skew is scored."""
    for one, groups in zip(candidates.constraints, candidates.groups, strict=True):
        counts = groups.count(placed)
        outlook = candidates.strategy.outlook(one, groups, counts)
        if is_limit(one, outlook):
            yield Skew(one.topology_key, unevenness(counts, outlook), one.max_skew, is_hard(one))


@dataclass(frozen=True, slots=True)
class Stale:
    """A placement with stale picks: the first of their names, and how many there are."""

    placement: str
    names: tuple[str, ...]
    count: int


def stale_placements(*, most: int) -> tuple[list[Stale], int]:
    """Give the first placements with stale picks, by name, and how many such placements there are."""
    rows = StalePick.objects.values_list("freshness__placement__name").annotate(count=Count("pk"))
    counts = list(rows.order_by("freshness__placement__name"))
    first = dict(counts[:most])
    names = _stale_names(first) if first else {}
    return [Stale(name, tuple(names[name]), count) for name, count in first.items()], len(counts)


def _stale_names(placements: Collection[str]) -> dict[str, list[str]]:
    """Give the first stale picks of each of these placements, by name."""
    owner = F("freshness__placement__name")
    rows = StalePick.objects.filter(freshness__placement__name__in=list(placements))
    rows = rows.annotate(place=Window(RowNumber(), partition_by=owner, order_by="cluster_name"))
    found: dict[str, list[str]] = defaultdict(list)
    for owner_name, name in (
        rows.filter(place__lte=MOST_NAMES)
        .order_by("cluster_name")
        .values_list("freshness__placement__name", "cluster_name")
    ):
        found[owner_name].append(name)
    return found


def stale_on(names: Collection[str]) -> dict[str, int]:
    """Count for each of these clusters the placements that are there as stale picks."""
    rows = StalePick.objects.filter(cluster_name__in=list(names)).values_list("cluster_name")
    return dict(rows.annotate(count=Count("pk")).order_by())


def skews_of(placement: Placement) -> list[Skew]:
    """Give the skews of a placement as they were last worked out; `freshness` has to be at hand."""
    freshness = getattr(placement, "freshness", None)
    return [Skew(*one) for one in freshness.skews] if freshness else []
