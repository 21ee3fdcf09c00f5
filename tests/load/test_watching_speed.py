"""Gates on what watching costs the database: counts, which no noise disturbs."""

import pytest

from tests.load.observing import ROUND, join, watch
from tests.rows import NOW

pytestmark = [pytest.mark.django_db, pytest.mark.servers_nightly]
MOST_QUERIES = 80
MOST_QUERIES_WHEN_NEW = 200


@pytest.mark.parametrize(
    "clusters", [1_000, pytest.param(5_000, marks=pytest.mark.nightly)]
)
def test_thousands_of_clusters_are_watched_in_one_round(clusters: int) -> None:
    join(clusters)

    first, steady = watch(NOW), watch(NOW + ROUND)

    for name, watched in (("first", first), ("steady", steady)):
        print(
            f"{clusters} simulated clusters, {name} round: {watched.seconds:.2f} s, {watched.queries} queries"
        )
    assert (first.look.observed, steady.look.observed) == (clusters, clusters)
    assert first.queries <= MOST_QUERIES_WHEN_NEW
    assert steady.queries <= MOST_QUERIES


def test_silent_ones_cost_no_queries_of_their_own() -> None:
    join(300, fault="silent")

    silent = watch(NOW)

    assert silent.look.silent == 300
    assert silent.queries <= MOST_QUERIES
