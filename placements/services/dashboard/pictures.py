"""Small pictures of placements: their clusters by domain, and where a limit allows a domain to end."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from django.core.cache import caches
from django.db.models import Case, Count, OuterRef, Subquery, Value, When

from clusters.columns import domain_order
from clusters.filters import groups_of
from clusters.models import ClusterLabel, MemberCluster
from fleetui.apimachinery.grouping import grouped
from fleetui.hub_scope import current_hub_id
from placements.explain.vocabulary import value_words
from placements.manifests.binding import BindingState
from placements.models import Binding
from placements.services.dashboard.queries import PlacementHeadroom

MOST_DOMAINS = 16
_KEPT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Picture:
    """The clusters of a placement in each domain of a key, by value; of many the largest of the fleet.

    A domain may end from `low` to `high`; None without a limit. `unlabelled` clusters are in no domain.
    """

    key: str
    counts: tuple[int, ...]
    domains: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    unlabelled: int = 0

    @property
    def bars(self) -> dict[str, int]:
        bars = dict(zip(self.domains, self.counts, strict=True))
        if self.unlabelled:
            bars[f"no {self.key.rpartition('/')[2]}"] = self.unlabelled
        return bars

    @property
    def range_words(self) -> str:
        """Return the fewest and the most clusters of a domain: "0 to 1 each"."""
        if not self.counts:
            return ""
        ends = sorted({min(self.counts), max(self.counts)})
        words = f"{' to '.join(f'{end:,}' for end in ends)} each"
        if self.unlabelled:
            words += f", {self.unlabelled:,} without label"
        return words

    @classmethod
    def of(
        cls,
        headroom: PlacementHeadroom,
        key: str,
        counts: dict[int, dict[str | None, int]],
    ) -> "Picture":
        in_domains = dict(counts.get(headroom.placement.pk, {}))
        unlabelled = in_domains.pop(None, 0)
        shown = tuple(in_domains.values())
        picture = cls(
            key, shown, tuple(map(value_words, in_domains)), unlabelled=unlabelled
        )
        if not headroom.skews or not shown:
            return picture
        _, skew, most = _strictest(headroom)
        low = max(0, max(shown) - skew)
        return replace(picture, low=low, high=low + most)


def scale_of(pictures: Collection[Picture]) -> int:
    """Return the number of clusters that is as high as a picture: all have one scale.

    It is that of the pictures with a limit, unless others are only a little higher: those are cut.
    """
    tops = [
        (max((1, picture.high or 0, picture.unlabelled, *picture.counts)), picture.high)
        for picture in pictures
    ]
    of_all = max((top for top, _ in tops), default=1)
    limited = (top for top, high in tops if high is not None)
    return min(of_all, max(limited, default=of_all) + 1)


def pictures_of(
    several: Sequence[PlacementHeadroom], key: str, *, version: str
) -> dict[int, Picture]:
    """Return the picture of each placement, by its strictest limit, without one by `key`.

    Two queries, whose results this process keeps for a minute; `version` is that of the fleet.
    """
    keys = {
        headroom.placement.pk: _strictest(headroom)[0] if headroom.skews else key
        for headroom in several
    }
    placed = [
        (
            headroom.placement.pk,
            headroom.placement.decisions_made,
            headroom.placement.placed_count,
        )
        for headroom in several
    ]
    words = f"{current_hub_id()} {version} {sorted(keys.items())} {placed}"
    kept = f"pictures/{sha256(words.encode(errors='replace')).hexdigest()}"
    counts = (
        caches["process"].get_or_set(kept, lambda: _counts(keys), _KEPT_SECONDS) or {}
    )
    return {
        headroom.placement.pk: Picture.of(headroom, keys[headroom.placement.pk], counts)
        for headroom in several
    }


def _strictest(headroom: PlacementHeadroom) -> tuple[str, int, int]:
    worst = min(headroom.skews, key=lambda one: one.most - one.skew)
    return worst.key, worst.skew, worst.most


def _counts(keys: dict[int, str]) -> dict[int, dict[str | None, int]]:
    """Return the clusters of placements in the largest domains of their keys, and those without label."""
    placements_of = grouped((key, pk) for pk, key in keys.items())
    placements_of.pop("", None)
    if not placements_of:
        return {}
    domains = groups_of(placements_of, most=MOST_DOMAINS)
    of_placement = Case(
        *(
            When(placement__in=pks, then=Value(key))
            for key, pks in placements_of.items()
        )
    )
    labels = ClusterLabel.objects.filter(
        cluster=OuterRef("pk"), key=OuterRef(OuterRef("key"))
    )
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    domain = members.values(value=Subquery(labels.values("value")[:1]))[:1]
    rows = Binding.objects.filter(placement__in=list(keys)).exclude(
        state=BindingState.UNSCHEDULED
    )
    rows = rows.annotate(key=of_placement).annotate(domain=Subquery(domain))
    found: dict[int, dict[str | None, int]] = defaultdict(dict)
    for pk, domain, count in (
        rows.order_by().values_list("placement", "domain").annotate(count=Count("pk"))
    ):
        found[pk][domain] = count
    # As on the map: the largest first, then by name.
    orders = {
        key: sorted(several, key=lambda one: (-one[1], domain_order(one[0])))
        for key, several in domains.items()
    }
    return {
        pk: {
            value: found[pk].get(value, 0)
            for value in (*(one for one, _ in orders[key]), None)
        }
        for pk, key in keys.items()
        if key
    }
