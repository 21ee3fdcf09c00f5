"""A fleet of 5,000 costs a list no more queries than one of 100, and a preview hardly more time.

The lists of 5,000 are in `tests/load/test_page_budgets.py`, beside the pages of that fleet.
"""

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries
from rest_framework.test import APIClient

from placements.models import Placement
from placements.services.demo.load import load_demo
from placements.services.problems.book import compare
from placements.services.rollouts.controller import sync_due_rollouts
from tests.rows import pick_n_spec, placement_document

MOST_QUERIES = 12
MOST_TIMES_SLOWER = 10
LISTS = [
    "clusters?limit=500",
    "clusters?limit=500&label=env:prod&label=region&state=eligible&q=a&order=-verdict_since",
    "clusters?state=cordoned",
    "placements?limit=500",
    "placements?state=fulfilled&order=-placed_count",
    "resources?limit=500&kind=Namespace",
    "decisions?limit=500",
    "events?limit=500&kind=cluster",
    "overrides?limit=500",
    "staged-strategies?limit=500",
    "staged-runs?limit=500&active=true",
    "placements/monitoring/bindings?limit=500",
    "placements/monitoring/decisions",
    "placements/monitoring/policy-snapshots",
    "placements/monitoring/resource-snapshots",
    "rollouts?limit=500",
    "rollouts?placement=monitoring&state=running",
    "rollouts/monitoring/1",
    "rollouts/monitoring/1/clusters?limit=100",
    "rollouts/monitoring/1/updates?limit=500",
]


@pytest.mark.nightly
def test_lists_run_few_queries_and_a_preview_is_small(
    reader: APIClient, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    load_demo(100, by=None, now=datetime.now(UTC))
    sync_due_rollouts(now=datetime.now(UTC))

    check_lists_and_preview(reader, 100, django_assert_max_num_queries)


def check_lists_and_preview(
    reader: APIClient, size: int, at_most: DjangoAssertNumQueries
) -> None:
    """Read all lists of a demo of this size, whose rollouts have begun, and preview a placement on it."""
    cluster = Placement.objects.get(name="monitoring").bindings.first()
    assert cluster is not None
    lines = []
    compare(now=datetime.now(UTC))  # what the sweep does, and not each list

    for path in [*LISTS, f"clusters/{cluster.cluster_name}/bindings?limit=500"]:
        with at_most(MOST_QUERIES) as queries:
            began = time.perf_counter()
            answer = reader.get(f"/api/v1/{path}")
            lines.append(
                f"{(time.perf_counter() - began) * 1000:6.1f} ms {len(queries):2} queries {path}"
            )
        assert answer.status_code == 200, answer.content
    print(f"\n{size} clusters:", *lines, sep="\n")  # noqa: T201 -- a measurement
    assert len(_previewed(reader, size).content) < 20_000


@pytest.mark.timing
def test_a_preview_is_quick(reader: APIClient) -> None:
    took: dict[int, float] = {}
    for size in (100, 5000):
        load_demo(size, by=None, now=datetime.now(UTC))
        took[size] = min(_seconds_of_a_preview(reader, size) for _ in range(6))

    assert took[5000] < MOST_TIMES_SLOWER * max(took[100], 0.002)


def _seconds_of_a_preview(reader: APIClient, size: int) -> float:
    began = time.perf_counter()
    _previewed(reader, size)
    return time.perf_counter() - began


def _previewed(reader: APIClient, size: int) -> Any:
    spread = [
        {"topologyKey": "region", "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule"},
        {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"},
    ]
    document = placement_document(
        "draft", pick_n_spec(size // 4, topologySpreadConstraints=spread)
    )
    answer = reader.post("/api/v1/placements/preview", document)
    assert answer.status_code == 200
    return answer
