"""Clusters are in disjoint states that sum to the total: in random fleets, pages, REST and metrics."""

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from clusters.filters import (
    BESIDE_STATES,
    ClusterFilter,
    ClusterFilterState,
    clusters_matching,
    counts_by_state,
    counts_with,
    members_by,
)
from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from placements.services.dashboard.queries import counts
from placements.services.metrics import metrics_registry
from tests.rows import NOW, joined

pytestmark = pytest.mark.django_db
Fetch = Callable[[Client, str], str]
SIZE = 14
STATES = [state for state in ClusterFilterState if state not in BESIDE_STATES]
OF_REST = (
    *("ready", "joining", "heartbeatLate", "cordoned", "notMonitored", "notEligible"),
    *("notObserved", "unhealthy", "workloadsFailing", "leaving"),
)


def random_fleet(seed: int) -> None:
    """Add clusters with random columns, also in combinations that no operation makes."""
    chance, now = random.Random(seed), datetime.now(UTC)
    for number in range(SIZE):
        joined(f"c{number:02}", region=chance.choice("abc"))
    for name in MemberCluster.objects.values_list("name", flat=True):
        if chance.random() < 0.3:
            cordon([name], by=None, now=NOW)
        columns: dict[str, tuple[Any, ...]] = {
            "driver": ("simulated", "simulated", "kubernetes", ""),
            "membership": ("joined", "joined", "joining", "leaving"),
            "verdict": ("", "", "noAgent", "staleHeartbeat", "notJoined"),
            "has_reported": (True, True, False),
            "unanswered_since": (None, None, now),
            "observed_until": (None, now + timedelta(days=1), now - timedelta(days=1)),
            "agent_healthy": ("True", "True", "False"),
            "workloads_problem": ("", "", "web fails"),
        }
        chosen = {key: chance.choice(values) for key, values in columns.items()}
        if chosen["membership"] == "leaving":
            chosen |= {"leaving_since": now, "verdict": "leaving"}
        MemberCluster.objects.filter(name=name).update(**chosen)


def numbers(pattern: str, text: str) -> list[int]:
    return [int(one) for one in re.findall(pattern, text)]


@pytest.mark.parametrize("seed", range(20))
def test_each_cluster_is_in_one_state_and_all_readers_count_the_same(seed: int) -> None:
    random_fleet(seed)

    names = {
        state: set(
            clusters_matching(ClusterFilter(state=state)).values_list("name", flat=True)
        )
        for state in STATES
    }
    by_state = counts_by_state()
    in_region, of_region = counts_with(ClusterFilter(labels=("region:a",)))
    on_map = [
        state for member in members_by("region")[0].values() for _, state in member
    ]

    assert sum(map(len, names.values())) == SIZE
    assert len(set().union(*names.values())) == SIZE
    assert {state: by_state[state] for state in STATES} == {
        state: len(several) for state, several in names.items()
    }
    assert sum(of_region[state] for state in STATES) == in_region
    assert {state: on_map.count(state.replace("-", " ")) for state in STATES} == {  # type: ignore[arg-type]
        state: by_state[state] for state in STATES
    }
    assert counts().clusters == SIZE


@pytest.mark.parametrize("seed", range(2))
def test_pages_rest_and_metrics_sum_to_the_total(
    viewer: Client, text_of: Fetch, seed: int
) -> None:
    random_fleet(seed)

    listed = text_of(viewer, "/clusters/").partition('"Filter by status"')[2]
    chips = listed.partition("</ul>")[0]
    figure = text_of(viewer, "/").split('class="figure')[2]
    ready, _, parts = figure.partition('class="parts"')
    rest = viewer.get("/api/v1/overview").json()
    of_metrics = [
        sample.value
        for metric in metrics_registry(now=datetime.now(UTC)).collect()
        for sample in metric.samples
        if sample.name == "fleetui_clusters"
    ]

    assert sum(numbers(r'class="count">(\d+)<', chips)) == SIZE
    assert f"of {SIZE} clusters ready" in ready
    assert sum(numbers(r"<strong>(\d+)<", ready) + numbers(r">(\d+) ", parts)) == SIZE
    assert sum(rest[name] for name in OF_REST) == rest["clusters"] == SIZE
    assert sum(of_metrics) == SIZE
