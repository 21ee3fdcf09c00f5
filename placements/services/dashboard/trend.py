"""How many clusters the fleet had in the last 24 hours, and how many were not ready, from its events."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.core.cache import caches
from django.db.models import Exists, OuterRef

from clusters.models import MemberCluster
from fleetui.apimachinery.words import counted
from fleetui.hub_scope import current_hub_id
from fleetui.models import Event

PERIOD, SAMPLES = timedelta(hours=24), 48
_JOINED, _READY, _NOT_READY = "joined", "became eligible", "became ineligible"
_GONE = ("left", "removed")  # the latter with the demo
_KEPT_SECONDS, _MOST_EVENTS = 60.0, 20_000


@dataclass(frozen=True, slots=True)
class FleetTrend:
    """For each half hour the most clusters and the fewest ready ones in it.

    `most_not_ready` is None where a cluster was removed of which no event says whether it was ready.
    """

    clusters: list[int]
    ready: list[int]
    fewest: int
    most_not_ready: int | None

    @property
    def sentence(self) -> str:
        low, high = self.fewest, max(self.clusters)
        size = counted(high, "cluster") if low == high else f"{low:,} to {counted(high, 'cluster')}"
        if self.most_not_ready is None:
            return f"Last 24h: {size}"
        most = f"at most {self.most_not_ready:,}" if self.most_not_ready else "none"
        return f"Last 24h: {size}, {most} not ready"

    def line(self, values: list[int]) -> str:
        """Return the points of a line in a box of 100 by 20, whose height is the largest fleet."""
        top, width = max(1, *self.clusters), 100 / (len(values) - 1)
        return " ".join(f"{at * width:.1f},{20 - 19 * value / top:.1f}" for at, value in enumerate(values))

    @property
    def lines(self) -> tuple[str, str]:
        return self.line(self.clusters), self.line(self.ready)


def fleet_trend(*, clusters: int, not_ready: int, now: datetime) -> FleetTrend | None:
    """Return the trend up to the present counts, None without changes; kept for a minute."""

    def read() -> tuple[FleetTrend | None]:
        away = MemberCluster.objects.filter(name=OuterRef("name")).exclude(verdict="")
        verbs = (_JOINED, *_GONE, _READY, _NOT_READY)
        rows = Event.objects.filter(kind="cluster", verb__in=verbs, at__gt=now - PERIOD, at__lte=now)
        rows = rows.annotate(is_away=Exists(away)).order_by("-at", "-id")
        events = rows.values_list("at", "verb", "name", "is_away")[:_MOST_EVENTS]
        return (trend_of(events, clusters=clusters, not_ready=not_ready, now=now),)

    key = f"fleet-trend/{current_hub_id()}/{clusters}/{not_ready}"
    kept = caches["process"].get_or_set(key, read, _KEPT_SECONDS)
    return kept[0] if kept else None


def trend_of(
    events: Iterable[tuple[datetime, str, str, bool]], *, clusters: int, not_ready: int, now: datetime
) -> FleetTrend | None:
    """Compute back from the present counts, through events with the latest first; None if none changed them.

    An event has the former state of its cluster. One that joined was as its next event found it, and one that
    left as its event before that made it.
    """
    latest_first = list(events)
    if not latest_first:
        return None
    left_as, state = dict[int, bool | None](), dict[str, bool]()
    for place, (_, verb, name, _) in reversed(list(enumerate(latest_first))):
        if verb in (_READY, _NOT_READY):
            state[name] = verb == _NOT_READY
        elif verb in _GONE:
            left_as[place] = state.pop(name, None)
    totals, ready = [clusters] * SAMPLES, [clusters - not_ready] * SAMPLES
    here, fewest, most, was_away = SAMPLES - 1, clusters, not_ready, dict[str, bool]()
    for place, (at, verb, name, is_away) in enumerate(latest_first):
        sample = min(here, int(SAMPLES * (1 - (now - at) / PERIOD)))
        for passed in range(sample, here):
            totals[passed], ready[passed] = clusters, clusters - not_ready
        here = sample
        if verb == _JOINED:
            clusters, not_ready = clusters - 1, not_ready - was_away.pop(name, is_away)
        elif verb in _GONE:
            was_away[name] = bool(left_as[place])
            clusters, not_ready = clusters + 1, not_ready + was_away[name]
        else:
            was_away[name] = verb == _READY
            not_ready += 1 if verb == _READY else -1
        totals[here], ready[here] = max(totals[here], clusters), min(ready[here], clusters - not_ready)
        fewest, most = min(fewest, clusters), max(most, not_ready)
    for passed in range(here):
        totals[passed], ready[passed] = clusters, clusters - not_ready
    return FleetTrend(totals, ready, fewest, None if None in left_as.values() else most)
