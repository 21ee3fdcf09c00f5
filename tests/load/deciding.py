"""A label changes on one cluster, and every placement has to be decided again: how long, how many queries."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from django.db import connection

from clusters.operations.edit import change_labels
from clusters.operations.join import ClusterSpec, upsert_clusters
from placements.models import Decision
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from tests.rows import NOW, member_document, placement_document, run_due, spec

_REGIONS = ("east", "west", "north", "south")


@dataclass(frozen=True)
class Redecided:
    """How a round of decisions went."""

    placements: int
    seconds: float
    queries: int

    @property
    def placements_a_second(self) -> float:
        """Return how many placements were decided in a second."""
        return self.placements / self.seconds

    @property
    def queries_a_placement(self) -> float:
        """Return how many statements a placement took, those shared by all spread over them."""
        return self.queries / self.placements


def fill(clusters: int, placements: int) -> None:
    """Add clusters and save PickAll placements that want one tier in one region; decide them."""
    members = [
        member_document(
            f"c{number:05}", {"region": _REGIONS[number % 4], "tier": "silver"}
        )
        for number in range(clusters)
    ]
    upsert_clusters([ClusterSpec(member) for member in members], by=None, now=NOW)
    for number in range(placements):
        save_placement(
            placement_document(f"p{number:04}", spec(_gold_only())), by=None, now=NOW
        )
    change_labels(
        [f"c{number:05}" for number in range(10)],
        put={"tier": "gold"},
        by=None,
        now=NOW,
    )
    enqueue_affected_placements()
    run_due()


def redecide(cluster: str) -> Redecided:
    """Make one more cluster gold, and decide the placements that it affects."""
    before = Decision.objects.count()
    statements = StatementCounter()
    with connection.execute_wrapper(statements):
        started = perf_counter()
        change_labels([cluster], put={"tier": "gold"}, by=None, now=NOW)
        enqueue_affected_placements()
        run_due()
        seconds = perf_counter() - started
    return Redecided(Decision.objects.count() - before, seconds, statements.count)


class StatementCounter:
    """Counts statements: Django's own log of them ends at 9,000."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, execute: Callable[..., Any], *statement: Any) -> Any:
        self.count += 1
        return execute(*statement)


def _gold_only() -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"tier": "gold"}}}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [term]
        }
    }
    return {"placementType": "PickAll", "affinity": {"clusterAffinity": required}}
