"""Gates on what a rollout costs the database: counts, which no noise disturbs."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.load.rolling_out import not_as_wanted, placed_at_once, updated
from tests.rollouts.world import World
from tests.rows import spec

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
MOST_STATEMENTS = 45
MOST_STATEMENTS_OF_MANY = 55
MOST_BYTES_A_ROUND = 15_000
ROUNDS_TO_WARM_UP = 4
"""Until the database adapter's own caches, which are bounded, know every statement."""


@pytest.mark.parametrize("clusters", [60, 240])
def test_a_step_takes_few_statements_however_many_clusters_there_are(clusters: int) -> None:
    world = World(clusters)
    world.place("web", spec())
    world.run(until=world.is_settled)

    went = updated(world)

    assert went.steps == clusters
    assert went.statements_a_step <= MOST_STATEMENTS


@pytest.mark.django_db(transaction=True)  # else the wake-ups of a whole test wait for a commit, in memory
def test_many_rollouts_at_a_time_end_well_with_as_few_statements_and_flat_memory() -> None:
    world = World(8)
    placed = placed_at_once(world, 8)
    with _traced() as kept:
        rounds = [updated(world) for _ in range(ROUNDS_TO_WARM_UP)]
        before = kept()
        rounds += [updated(world), updated(world)]
        growth = (kept() - before) / 2

    assert {each.steps for each in (placed, *rounds)} == {8 * 8}
    assert not_as_wanted() == []
    statements = rounds[-1].statements_a_step
    print(f"{growth:,.0f} bytes kept a round of 64 steps; {statements:.1f} statements a step")
    assert statements <= MOST_STATEMENTS_OF_MANY
    assert growth <= MOST_BYTES_A_ROUND


@contextmanager
def _traced() -> Iterator[Callable[[], int]]:
    """Count what is allocated from here on; what is called gives the bytes that are still kept."""
    tracemalloc.start()
    try:
        yield _kept_bytes
    finally:
        tracemalloc.stop()


def _kept_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
