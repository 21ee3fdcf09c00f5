"""Rolling updates on simulated clusters: batches, budgets, failures, actions."""

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from clusters.models import MemberCluster
from clusters.operations.edit import finish_leaving, leave
from fleetui.models import Event
from placements.engine.rollout.state import Phase
from placements.models import (
    Binding,
    ClusterUpdate,
    Placement,
    ResourceSnapshot,
    Rollout,
)
from placements.services.placements import delete_placement, save_placement
from placements.services.rollouts import operations
from tests.rows import config_map, pick_n_spec, placement_document, spec
from tests.services.rollouts.world import World, one_at_a_time, settled_world, starts

pytestmark = pytest.mark.django_db

NOT_TRACKABLE: dict[str, Any] = {
    "apiVersion": "example.com/v1",
    "kind": "Database",
    "metadata": {"name": "main", "namespace": "shop"},
    "spec": {"size": 1},
}


def batches(what: str) -> list[int]:
    """Count the starts of a sort by the second in which they happened."""
    counts: dict[int, int] = {}
    for second, _, one in starts():
        if one == what:
            counts[second] = counts.get(second, 0) + 1
    return list(counts.values())


@pytest.mark.nightly
def test_a_placement_comes_to_every_cluster_and_the_run_ends() -> None:
    world = World(3)
    placement = world.place("web", spec())

    world.run(until=world.is_settled)

    assert world.available() == ["c000", "c001", "c002"]
    run = Rollout.objects.get(placement=placement)
    assert (run.state, run.number, run.waves) == (
        "finished",
        1,
        [["c000", "c001", "c002"]],
    )
    assert set(ClusterUpdate.objects.values_list("what", "outcome")) == {
        ("add", "available")
    }
    assert not Binding.objects.exclude(applied_version=run.version).exists()


@pytest.mark.nightly
def test_changed_resources_reach_clusters_in_the_batches_of_the_budget() -> None:
    world = settled_world(10, spec())

    world.change()
    world.work()
    world.run(until=world.is_settled)

    assert batches("update") == [3, 3, 3, 1]
    assert Rollout.objects.latest("number").waves == [
        ["c000", "c001", "c002"],
        ["c003", "c004", "c005"],
        ["c006", "c007", "c008"],
        ["c009"],
    ]


@pytest.mark.nightly
def test_kinds_that_cannot_be_observed_take_the_period_between_batches() -> None:
    world = World(10)
    world.apply(NOT_TRACKABLE)
    quarter = {"unavailablePeriodSeconds": 20}
    world.place(
        "web", spec(strategy={"type": "RollingUpdate", "rollingUpdate": quarter})
    )
    world.run(until=world.is_settled)

    world.change()
    world.work()
    world.run(until=world.is_settled)

    moments = sorted({second for second, _, what in starts() if what == "update"})
    assert batches("update") == [3, 3, 3, 1]
    assert all(20 <= later - earlier <= 22 for earlier, later in pairwise(moments))


@pytest.mark.servers_only
@pytest.mark.servers
def test_the_period_counts_from_the_answer_however_long_the_call_took() -> None:
    world = World(1)
    world.apply(NOT_TRACKABLE)
    world.call_takes = timedelta(seconds=9)

    world.place("web", one_at_a_time())
    world.pass_time(9)

    applied_at = world.now
    assert ClusterUpdate.objects.get().applied_at == applied_at
    world.pass_time()
    assert Binding.objects.get().untrackable_since == applied_at
    assert not world.is_settled()
    world.pass_time()
    assert world.is_settled()


@pytest.mark.nightly
def test_a_bad_version_stops_at_the_floor_and_a_good_one_recovers() -> None:
    world = settled_world(4, one_at_a_time())
    for name in ("c000", "c001", "c002", "c003"):
        world.inject(name, {"kind": "refuse", "objectName": "bad"})

    world.apply(config_map("bad"))
    world.work()
    world.pass_time(60)

    assert list(world.phases().values()).count(Phase.FAILED) == 1
    assert len(world.available()) == 3
    run = Rollout.objects.get(state="running")
    assert {one["block"] for one in run.sync_result["waiting"]} >= {"update-floor"}
    assert "rejected" in Binding.objects.get(phase=Phase.FAILED).message
    for name in ("c000", "c001", "c002", "c003"):
        world.inject(name)
    world.change()
    world.work()
    world.run(until=world.is_settled)
    assert len(world.available()) == 4
    assert [rollout.state for rollout in Rollout.objects.order_by("number")] == [
        "finished",
        "superseded",
        "finished",
    ]


@pytest.mark.nightly
def test_no_more_are_ever_down_than_the_budget_says() -> None:
    world = settled_world(8, one_at_a_time(maxUnavailable=2))

    world.change()
    world.work()
    lowest = len(world.available())
    while not world.is_settled():
        world.pass_time()
        lowest = min(lowest, len(world.available()))

    assert lowest == 6


@pytest.mark.nightly
def test_a_cluster_that_cannot_be_reached_is_skipped_until_it_returns() -> None:
    world = settled_world(3, one_at_a_time(maxUnavailable=2))
    world.inject("c001", {"kind": "unreachable"})
    world.run(
        until=lambda: MemberCluster.objects.get(name="c001").verdict != "",
        seconds=600,
        step=10,
    )

    world.change()
    world.work()
    version = Rollout.objects.get(state="running").version
    world.pass_time(30)

    behind = Binding.objects.exclude(applied_version=version).values_list(
        "cluster_name", flat=True
    )
    assert list(behind) == ["c001"]
    world.inject("c001")
    world.run(until=world.is_settled, seconds=200)
    assert not Binding.objects.exclude(applied_version=version).exists()


@pytest.mark.nightly
def test_a_cluster_that_loses_its_state_gets_it_again() -> None:
    world = settled_world(2, spec())

    world.inject(
        "c000",
        {"kind": "lostState", "since": world.now.isoformat().replace("+00:00", "Z")},
    )
    world.run(until=lambda: world.phases()["c000"] != Phase.AVAILABLE, seconds=200)
    world.run(until=lambda: len(world.available()) == 2)

    assert "c000" in world.available()


@pytest.mark.nightly
def test_scaling_down_removes_and_scaling_up_adds() -> None:
    world = settled_world(4, pick_n_spec(4))

    save_placement(placement_document("web", pick_n_spec(2)), by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)

    assert world.available() == ["c002", "c003"]
    assert Binding.objects.count() == 2
    save_placement(placement_document("web", pick_n_spec(3)), by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)
    assert world.available() == ["c001", "c002", "c003"]


def test_a_rollout_carries_the_edit_that_it_continues_with() -> None:
    world = settled_world(4, pick_n_spec(2))
    for number in (4, 3):
        document = placement_document("web", pick_n_spec(number))
        save_placement(document, by=None, now=world.now, trigger=f"{number} clusters")
        world.work()

    run = Rollout.objects.get(state="running")
    assert (run.number, run.revision_number, run.trigger) == (2, 3, "3 clusters")
    world.run(until=world.is_settled)
    assert len(world.available()) == 3


@pytest.mark.nightly
def test_a_dead_cluster_that_leaves_is_replaced() -> None:
    world = settled_world(3, pick_n_spec(2))

    leave(["c002"], by=None, now=world.now)
    world.work()
    finish_leaving(now=world.now)
    world.run(until=lambda: world.available() == ["c000", "c001"])

    assert "c002" not in world.phases()


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_paused_placement_starts_nothing_and_goes_on_when_resumed() -> None:
    world = settled_world(4, one_at_a_time())
    operations.pause("web", by=None, now=world.now)
    before = len(starts())

    world.change()
    world.work()
    world.pass_time(30)

    assert len(starts()) == before
    operations.resume("web", by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)
    assert batches("update") == [1, 1, 1, 1]


@pytest.mark.nightly
def test_a_stopped_run_ends_for_good_until_another_is_started() -> None:
    world = settled_world(4, one_at_a_time())
    world.change()
    world.work()

    operations.stop("web", by=None, now=world.now)
    world.pass_time(30)

    assert Rollout.objects.latest("number").state == "stopped"
    assert batches("update") == [1]
    operations.restart("web", by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)
    assert Rollout.objects.latest("number").state == "finished"
    assert batches("update") == [1, 1, 1, 1]


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_rollback_carries_the_old_content_and_holds_it() -> None:
    world = settled_world(2, spec())
    world.change()
    world.work()
    world.run(until=world.is_settled)

    restored = operations.roll_back("web", 0, by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)

    first = Rollout.objects.get(number=1).version
    assert restored.number == 2
    assert set(Binding.objects.values_list("applied_version", flat=True)) == {first}
    world.change()
    world.work()
    assert ResourceSnapshot.objects.get(is_latest=True).number == 2
    operations.unpin("web", by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled)
    assert ResourceSnapshot.objects.get(is_latest=True).number == 3
    assert set(Binding.objects.values_list("applied_version", flat=True)).isdisjoint(
        {first}
    )


@pytest.mark.servers_only
@pytest.mark.servers
def test_rollbacks_keep_no_more_snapshots_than_the_history_may_have() -> None:
    world = settled_world(1, spec(revisionHistoryLimit=2))
    world.change()
    world.work()

    for number in (0, 1):
        operations.roll_back("web", number, by=None, now=world.now)
        world.work()
        world.run(until=world.is_settled)

    rows = ResourceSnapshot.objects.order_by("number").values_list("number", flat=True)
    assert list(rows) == [2, 3]


@pytest.mark.servers_only
@pytest.mark.servers
def test_what_failed_is_retried_by_itself_and_at_once_by_hand() -> None:
    world = World(1)
    world.inject("c000", {"kind": "refuse", "objectName": "web"})
    world.place("web", spec())
    world.run(until=lambda: world.phases()["c000"] == Phase.FAILED)
    world.pass_time(40)
    attempts = Binding.objects.get().attempts
    assert attempts >= 3

    world.inject("c000")
    operations.retry("web", "c000", by=None, now=world.now)
    world.work()
    world.run(until=world.is_settled, seconds=10)

    assert world.available() == ["c000"]
    with pytest.raises(operations.ActionNotAllowed, match="nothing of web has failed"):
        operations.retry("web", "c000", by=None, now=world.now)


def test_what_another_placement_owned_is_applied_once_that_is_deleted() -> None:
    world = settled_world(2, one_at_a_time())
    world.place("other", one_at_a_time(), shares=True)
    world.pass_time(60, step=5)
    assert set(world.phases("other").values()) == {Phase.FAILED}

    delete_placement("web", by=None, now=world.now)
    world.work()

    assert world.run(until=lambda: len(world.available("other")) == 2) < 10


@pytest.mark.nightly
def test_deleting_takes_the_resources_away_from_every_cluster() -> None:
    world = settled_world(4, one_at_a_time())

    assert not delete_placement("web", by=None, now=world.now)
    world.work()
    world.run(until=lambda: not Placement.objects.exists())

    assert batches("remove") == [1, 1, 1, 1] or sum(batches("remove")) == 4
    assert not Binding.objects.exists()
    assert Rollout.objects.latest("number").is_deletion
    assert Event.objects.get(verb="gone").after is None


@pytest.mark.nightly
@pytest.mark.servers
def test_deleting_with_abandon_leaves_them_there() -> None:
    world = World(2)
    abandon = {
        "type": "RollingUpdate",
        "deleteStrategy": {"propagationPolicy": "Abandon"},
    }
    world.place("web", spec(strategy=abandon))
    world.run(until=world.is_settled)

    delete_placement("web", by=None, now=world.now)
    world.work()

    assert not Placement.objects.exists()
    assert batches("remove") == []
    assert Event.objects.get(verb="gone").after == {"mayStillHold": ["c000", "c001"]}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "action",
    [
        lambda now: operations.stop("web", by=None, now=now),
        lambda now: operations.restart("web", by=None, now=now),
        lambda now: operations.retry("web", "c000", by=None, now=now),
        lambda now: operations.roll_back("web", 0, by=None, now=now),
    ],
)
def test_a_staged_placement_sends_people_to_its_runs(
    action: Callable[[datetime], object],
) -> None:
    world = World(1)
    world.place("web", spec(strategy={"type": "External"}))

    with pytest.raises(operations.ActionNotAllowed, match="staged runs"):
        action(world.now)
