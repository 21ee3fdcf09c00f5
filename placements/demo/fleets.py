"""The demos that there are, by how many clusters they have."""

from collections.abc import Iterable
from datetime import datetime

from placements.demo.demo import Demo, Document, name_of
from placements.demo.four import four
from placements.demo.large_fleet import large_fleet
from placements.demo.large_wishes import wishes_for_hundred, wishes_for_thousands
from placements.demo.nine import nine
from placements.demo.resources import application, cluster_role, custom_kind
from placements.scheduling.fleet import collector_paused

DEMO_SIZES = (4, 9, 100, 5000)


def demo_of(size: int, *, now: datetime) -> Demo:
    """Make the demo of that many clusters, which reported just before `now`, a time with its zone.

    The same arguments always give the same demo. Raises ValueError for other sizes than `DEMO_SIZES`.
    """
    if size not in _DEMOS:
        raise ValueError(f"there is no demo of {size} clusters, only of {', '.join(map(str, DEMO_SIZES))}")
    with collector_paused():
        return _DEMOS[size](now)


def _hundred(now: datetime) -> Demo:
    clusters = large_fleet(100, now)
    placements = wishes_for_hundred(clusters)
    return Demo("A hundred clusters of four providers", clusters, _resources_of(placements), placements)


def _thousands(now: datetime) -> Demo:
    clusters = large_fleet(5000, now)
    placements = wishes_for_thousands(clusters)
    return Demo("Five thousand clusters of four providers", clusters, _resources_of(placements), placements)


def _resources_of(placements: Iterable[Document]) -> tuple[Document, ...]:
    """Write an application for each placement, and what reaches across namespaces."""
    applications = (application(name_of(one), team="platform") for one in placements)
    labels = {"part-of": "monitoring"}
    return (
        custom_kind("Probe", group="monitoring.example.com", labels=labels),
        custom_kind("AlertRule", group="monitoring.example.com", labels=labels),
        cluster_role("metrics-reader", "nodes", "pods"),
        *(one for documents in applications for one in documents),
    )


_DEMOS = {4: four, 9: nine, 100: _hundred, 5000: _thousands}
