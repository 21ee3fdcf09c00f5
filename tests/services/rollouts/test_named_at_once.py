"""Two people use the same name at the same moment: one gets it, the other a conflict; nothing twice."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, connections

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.hub_scope import LOCAL_HUB, in_hub
from placements.models import Eviction, StagedRun
from placements.services.disruption import evictions
from placements.services.disruption.evictions import apply_eviction
from placements.services.rollouts.staged_runs import start_run
from tests.rows import NOW, pick_n_spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]


@pytest.fixture(autouse=True)
def _needs_a_shared_database() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")


def at_once(*operations: Callable[[], Any]) -> list[str]:
    """Run operations at the same moment; return each result, with the code of the first fault."""
    start = threading.Barrier(len(operations))

    @in_hub(LOCAL_HUB)
    def one(operation: Callable[[], Any]) -> str:
        try:
            start.wait(timeout=60)
            return str(operation())
        except InvalidManifest as refused:
            return refused.errors[0].code
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(operations)) as people:
        return list(people.map(one, operations))


@pytest.fixture
def world() -> World:
    """Return two placements, each on both clusters."""
    made = World(2)
    made.place("web", pick_n_spec(2))
    made.place("shop", pick_n_spec(2))
    made.run(until=made.is_settled)
    return made


def eviction(name: str, placement: str, cluster: str) -> dict[str, Any]:
    """Write an eviction."""
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacementEviction",
        "metadata": {"name": name},
        "spec": {"placementName": placement, "clusterName": cluster},
    }


def _evicts(placement: str, now: Any) -> str:
    row, is_new = apply_eviction(eviction("once", placement, "c000"), by=None, now=now)
    return f"{row.placement_name} {'new' if is_new else 'known'}"


@pytest.mark.servers_only
@pytest.mark.parametrize("_again", range(5))
def test_one_of_two_placements_is_evicted_under_one_name(
    world: World, _again: int
) -> None:
    outcomes = at_once(
        lambda: _evicts("web", world.now), lambda: _evicts("shop", world.now)
    )

    row = Eviction.objects.get()
    assert sorted(outcomes) == sorted(["immutable", f"{row.placement_name} new"])
    assert len(world.available("web")) + len(world.available("shop")) == 3


def test_beaten_by_a_moment_an_eviction_is_refused_and_evicts_no_placement(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, beaten = evictions.execute, list[bool]()

    def execute(*arguments: Any, **options: Any) -> Eviction:
        if not beaten:
            beaten.append(True)
            with ThreadPoolExecutor(1) as other:
                other.submit(at_once, lambda: _evicts("shop", world.now)).result(
                    timeout=60
                )
        return real(*arguments, **options)

    monkeypatch.setattr(evictions, "execute", execute)

    with pytest.raises(InvalidManifest) as refused:
        _evicts("web", world.now)

    assert [error.code for error in refused.value.errors] == ["immutable"]
    assert Eviction.objects.get().placement_name == "shop"
    assert world.available("web") == ["c000", "c001"]


@pytest.mark.servers_only
@pytest.mark.parametrize("_again", range(5))
def test_a_run_is_started_once_under_one_name(_again: int) -> None:
    made = StagedWorld({"canary": ["c000"]}, stage("canary"))
    made.place("web", staged_spec())

    def start() -> str:
        return start_run(
            "one", placement="web", strategy="careful", by=None, now=NOW
        ).name

    assert sorted(at_once(start, start, start)) == ["duplicate", "duplicate", "one"]
    assert StagedRun.objects.get().revision == 1
