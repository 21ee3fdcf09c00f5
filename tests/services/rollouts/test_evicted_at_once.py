"""People evict at the same moment: budgets hold, as evictions of a placement come one after the other."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from fleetui.hub_scope import LOCAL_HUB, in_hub
from placements.models import Drain
from placements.services.disruption.budgets import save_budget
from placements.services.disruption.drains import drain
from placements.services.disruption.evictions import evict
from tests.rows import NOW, pick_n_spec
from tests.services.rollouts.test_evictions import budget
from tests.services.rollouts.world import World, settled_world

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]


@pytest.fixture(autouse=True)
def _needs_a_shared_database() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")


def test_of_four_evictions_the_budget_lets_two_go() -> None:
    world = settled_world(4, pick_n_spec(4))
    save_budget(budget(maxUnavailable=2), by=None, now=NOW)
    start = threading.Barrier(4)

    @in_hub(LOCAL_HUB)
    def evict_one(number: int) -> str:
        try:
            start.wait(timeout=60)
            return str(evict("web", f"c00{number}", by=None, now=world.now).outcome)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as people:
        outcomes = sorted(people.map(evict_one, range(4)))

    assert outcomes == ["executed", "executed", "not-executed", "not-executed"]


def test_one_drain_is_begun() -> None:
    World(1)
    start = threading.Barrier(4)

    @in_hub(LOCAL_HUB)
    def drain_one(_number: int) -> int:
        try:
            start.wait(timeout=60)
            return drain(["c000"], by=None, now=NOW)[0].pk
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as people:
        begun = set(people.map(drain_one, range(4)))

    assert begun == {Drain.objects.get().pk}
