"""Gates on what deciding costs the database: counts, which no noise disturbs."""

import pytest

from tests.load.deciding import fill, redecide

pytestmark = [pytest.mark.django_db, pytest.mark.servers_nightly]
MOST_QUERIES = 20


def test_a_placement_takes_few_queries_however_large_the_fleet() -> None:
    fill(20, 25)
    small = redecide("c00010")
    put_more = redecide("c00011")

    assert (small.placements, put_more.placements) == (25, 25)
    assert small.queries_a_placement <= MOST_QUERIES


def test_more_clusters_take_no_more_queries() -> None:
    fill(400, 25)

    large = redecide("c00010")

    assert large.placements == 25
    assert large.queries_a_placement <= MOST_QUERIES
