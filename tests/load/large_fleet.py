"""A fleet of 10,000 clusters with 100 PickAll placements: what deciding costs, and what is stored for it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any

from django.db import connection

from clusters.models import MemberCluster
from clusters.operations.edit import change_labels
from clusters.operations.join import ClusterSpec, upsert_clusters
from placements.models import Binding, Decision, DecisionRecord
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from tests.rows import NOW, member_document, placement_document, run_due, spec

_TABLES = (MemberCluster, Binding, Decision, DecisionRecord)


@dataclass(frozen=True)
class Step:
    """What one step took: of this process, and by the clock; `rows` bindings were written in it."""

    name: str
    cpu: float
    wall: float
    rows: int
    decisions: int

    def __str__(self) -> str:
        each = self.cpu / self.rows * 1e6 if self.rows else 0
        return (
            f"{self.name:<34}{self.cpu:>9.2f}{self.wall:>9.1f}{self.decisions:>11,}"
            f"{self.rows:>12,}{each:>9.1f}"
        )


HEADING = f"{'step':<34}{'CPU s':>9}{'wall s':>9}{'decisions':>11}{'bindings':>12}{'µs each':>9}"


def _timed(name: str, act: Callable[[], Any]) -> Step:
    decisions, bindings = Decision.objects.count(), Binding.objects.count()
    cpu, wall = process_time(), perf_counter()
    act()
    cpu, wall = process_time() - cpu, perf_counter() - wall
    written = Binding.objects.count() - bindings
    return Step(name, cpu, wall, written, Decision.objects.count() - decisions)


def _decide() -> None:
    enqueue_affected_placements()
    run_due()


def _wants_gold() -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"tier": "gold"}}}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [term]
        }
    }
    return {"placementType": "PickAll", "affinity": {"clusterAffinity": required}}


def measure(clusters: int, placements: int) -> Iterator[Step]:
    """Fill the fleet and decide; then one more cluster gets the label, and then the last tenth of them."""
    names = [f"c{number:05}" for number in range(clusters)]
    members = [
        member_document(
            name,
            {"region": f"r{place % 8}", "tier": "gold" if place % 10 else "silver"},
        )
        for place, name in enumerate(names)
    ]

    def save() -> None:
        for number in range(placements):
            document = placement_document(f"p{number:04}", spec(_wants_gold()))
            save_placement(document, by=None, now=NOW)

    def make_gold(some: list[str]) -> Callable[[], None]:
        def change() -> None:
            change_labels(some, put={"tier": "gold"}, by=None, now=NOW)
            _decide()

        return change

    silver = names[::10]
    specs = [ClusterSpec(member) for member in members]
    yield _timed("clusters join", lambda: upsert_clusters(specs, by=None, now=NOW))
    yield _timed("placements are saved", save)
    yield _timed("first decisions", _decide)
    yield _timed("one more cluster for all of them", make_gold(silver[:1]))
    yield _timed("the last tenth of the clusters", make_gold(silver[1:]))


def bytes_a_row() -> dict[str, tuple[int, float, float]]:
    """Return the rows of the large tables, and the bytes of each without and with its indexes."""
    sizes = {}
    for model in _TABLES:
        table, count = model._meta.db_table, model._default_manager.count()
        heap, total = _sizes(table)
        sizes[table] = count, heap / max(count, 1), total / max(count, 1)
    return sizes


def _sizes(table: str) -> tuple[int, int]:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"VACUUM {table}")
            cursor.execute(
                "SELECT pg_table_size(%s), pg_total_relation_size(%s)", [table, table]
            )
        else:
            cursor.execute(
                "SELECT sum(pgsize) FILTER (WHERE name = %s), sum(pgsize) FROM dbstat"
                " WHERE name IN (SELECT name FROM sqlite_master WHERE tbl_name = %s)",
                [table, table],
            )
        heap, total = cursor.fetchone()
    return heap or 0, total or 0


def main(clusters: int = 10_000, placements: int = 100) -> None:
    """Measure, and print what was measured."""
    print(
        f"{clusters:,} clusters x {placements:,} PickAll placements, {connection.vendor}:"
    )
    print(HEADING)
    for step in measure(clusters, placements):
        print(step, flush=True)
    for table, (rows, heap, total) in bytes_a_row().items():
        print(
            f"{table:<34}{rows:>12,} rows {heap:>8.0f} bytes each, {total:>8.0f} with indexes"
        )
