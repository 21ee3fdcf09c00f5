"""Gates on what a rollout costs the database: counts, which no noise disturbs."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from math import inf
from unittest.mock import patch

import pytest

from clusters.drivers.simulated.driver import SimulatedDriver
from fleetui import changes
from placements.models import Binding, Placement
from placements.services.rollouts import controller
from placements.services.rollouts.controller import PAUSE, sync_due_rollouts
from placements.services.workqueue import enqueue_rollout
from tests.load.rolling_out import (
    HEADING,
    RolledOut,
    clusters_with_differences,
    placed_at_once,
    updated,
)
from tests.rows import spec
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db
SMALL, LARGE = 60, 240
MOST_STATEMENTS_OF_SMALL, MOST_LOOKS = 9, 8
MOST_STATEMENTS_OF_MANY = 24
MOST_BYTES_A_ROUND = 15_000
ROUNDS_TO_WARM_UP = 4
"""Until the database adapter's own caches, which are bounded, know every statement."""


def test_statements_and_looks_grow_no_faster_than_the_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "LARGE", SMALL - 1)

    world = World(SMALL)
    world.place("web", spec())
    small, large = _updated_on(SMALL, world), _updated_on(LARGE, world)

    print(
        f"{HEADING} looks",
        *(f"{out} {out.looks:>5}" for out in (small, large)),
        sep="\n",
    )
    assert (small.steps, large.steps) == (SMALL, LARGE)
    assert small.statements_a_step <= MOST_STATEMENTS_OF_SMALL
    assert large.statements_a_step <= small.statements_a_step
    assert small.looks <= MOST_LOOKS
    assert large.looks <= small.looks + 1


def _updated_on(clusters: int, world: World) -> RolledOut:
    """Create clusters, and update the placements on them."""
    world.join(clusters)
    world.pass_time(2)
    world.run(until=world.is_settled)
    return updated(world)


@pytest.mark.servers
def test_a_large_placement_rests_a_moment_after_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(3)
    web = world.place("web", spec())
    monkeypatch.setattr(controller, "LARGE", 2)
    enqueue_rollout([web.pk])
    looked = sync_due_rollouts(now=world.now)

    enqueue_rollout([web.pk])

    found = [
        sync_due_rollouts(now=world.now + passed)
        for passed in (timedelta(), 2 * PAUSE, 3 * PAUSE)
    ]
    assert [looked, *found] == [1, 0, 0, 1]


def test_a_sync_that_finds_no_change_enqueues_nothing() -> None:
    world = World(3)
    web = world.place("web", spec())
    world.run(until=world.is_settled)
    before = _generations(web)
    Binding.objects.update(next_call_at=world.now)

    world.work()

    assert _generations(web) == before


def test_a_cluster_is_called_once_for_all_that_is_due_there() -> None:
    world = World(3)
    for name in ("web", "api"):
        world.place(name, spec())
    world.run(until=world.is_settled)
    Binding.objects.update(next_call_at=world.now)

    with patch.object(
        SimulatedDriver, "observe", autospec=True, side_effect=SimulatedDriver.observe
    ) as calls:
        world.work()

    assert [set(call.args[1:]) for call in calls.call_args_list] == [{"web", "api"}] * 3


def _generations(placement: Placement) -> tuple[int, int]:
    run = placement.rollouts.get()
    return Placement.objects.get(
        pk=placement.pk
    ).rollout_generation, run.progress_version


ON_COMMIT = pytest.mark.django_db(transaction=True)
"""Else the wake-ups of a whole test wait for a commit, in memory."""


@pytest.mark.servers_only
@pytest.mark.servers
@ON_COMMIT
def test_many_rollouts_at_a_time_end_well_with_as_few_statements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Else a slow machine marks changes more often, one statement each.
    monkeypatch.setattr(changes, "MARK_SECONDS", inf)
    world = World(8)

    rounds = [placed_at_once(world, 8), updated(world)]

    assert {out.steps for out in rounds} == {8 * 8}
    assert clusters_with_differences() == []
    print(HEADING, rounds[-1], sep="\n")
    assert rounds[-1].statements_a_step <= MOST_STATEMENTS_OF_MANY


@ON_COMMIT
@pytest.mark.nightly
def test_many_rollouts_at_a_time_end_well_with_flat_memory() -> None:
    world = World(8)
    placed = placed_at_once(world, 8)
    with _traced() as kept:
        rounds = [updated(world) for _ in range(ROUNDS_TO_WARM_UP)]
        before = kept()
        rounds += [updated(world), updated(world)]
        growth = (kept() - before) / 2

    assert {out.steps for out in (placed, *rounds)} == {8 * 8}
    assert clusters_with_differences() == []
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
