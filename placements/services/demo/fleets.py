"""The demo fleets: clusters, hub resources and placements as plain documents."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial

from clusters.fleet import collector_paused
from placements.services.demo.large import large_fleet, large_placements
from placements.services.demo.model import Demo, name_of
from placements.services.demo.placements import application, cluster_role, custom_kind
from placements.services.demo.small import four, nine

DEMO_SIZES = (4, 9, 100, 5000)


@collector_paused()
def demo_of(size: int, *, now: datetime) -> Demo:
    """Return the demo of that many clusters, whose last heartbeat is just before `now` (with time zone).

    Deterministic. Raise ValueError for other sizes than `DEMO_SIZES`.
    """
    if size not in _DEMOS:
        raise ValueError(f"there is no demo of {size} clusters, only of {', '.join(map(str, DEMO_SIZES))}")
    return _DEMOS[size](now)


def _large(size: int, number: str, now: datetime) -> Demo:
    clusters = large_fleet(size, now)
    placements = large_placements(clusters)
    applications = (application(name_of(one), team="platform") for one in placements)
    labels = {"part-of": "monitoring"}
    resources = (
        custom_kind("Probe", group="monitoring.example.com", labels=labels),
        custom_kind("AlertRule", group="monitoring.example.com", labels=labels),
        cluster_role("metrics-reader", "nodes", "pods"),
        *(one for documents in applications for one in documents),
    )
    return Demo(f"{number} clusters of four providers", clusters, resources, placements)


_DEMOS: Mapping[int, Callable[[datetime], Demo]] = {
    4: four,
    9: nine,
    100: partial(_large, 100, "A hundred"),
    5000: partial(_large, 5000, "Five thousand"),
}
