"""A user acts while a sync of a rollout runs: what starts is measured against what is so then."""

from collections.abc import Callable
from datetime import datetime

import pytest

from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, Placement
from placements.services.disruption.evictions import evict
from placements.services.rollout_state import RolloutContext, load_rollout_context
from placements.services.rollouts import controller, operations
from placements.services.rollouts.controller import sync_due_rollouts, sync_rollout
from placements.services.scheduling import schedule_due
from tests.rows import spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World, settled_world

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
CAREFUL = {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}


def meanwhile(patched: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call a function once, right after the next sync has read the state."""
    acts = [act]

    def read(placement: Placement, *, now: datetime) -> RolloutContext:
        context = load_rollout_context(placement, now=now)
        if acts:
            acts.pop()()
        return context

    patched.setattr(controller, "load_rollout_context", read)


def rolling() -> World:
    """Return a placement that is on four clusters, one of which may be down, and the next version."""
    return settled_world(4, spec(strategy=CAREFUL))


@pytest.mark.nightly
def test_an_eviction_of_another_cluster_takes_the_budget_of_a_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = rolling()
    cordon(["c003"], by=None, now=world.now)
    world.work()
    world.change()
    schedule_due(now=world.now)
    placement = Placement.objects.get()
    meanwhile(monkeypatch, lambda: evict("web", "c003", by=None, now=world.now))

    sync_rollout(placement.pk, now=world.now)

    assert world.phases()["c003"] == Phase.REMOVING
    assert world.available() == ["c000", "c001", "c002"]
    world.run(until=world.is_settled)
    assert world.available() == ["c000", "c001", "c002"]


@pytest.mark.servers_only
def test_a_cluster_picked_meanwhile_counts_before_anything_is_taken_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = rolling()
    world.change()
    schedule_due(now=world.now)
    placement = Placement.objects.get()
    again = Binding.objects.get(cluster_name="c003")
    Binding.objects.filter(pk=again.pk).update(
        state=BindingState.UNSCHEDULED, phase=Phase.REMOVED
    )
    picked = Binding.objects.filter(pk=again.pk)
    meanwhile(monkeypatch, lambda: picked.update(state=BindingState.BOUND))

    sync_rollout(placement.pk, now=world.now)

    assert world.available() == ["c000", "c001", "c002"]


@pytest.mark.servers_only
def test_an_answer_of_another_cluster_does_not_keep_a_look_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = rolling()
    world.change()
    world.work()
    settling = next(
        name for name, phase in world.phases().items() if phase != Phase.AVAILABLE
    )
    placement = Placement.objects.get()
    placement.document["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] = 2
    placement.save()
    settled = Binding.objects.filter(cluster_name=settling)
    meanwhile(monkeypatch, lambda: settled.update(phase=Phase.AVAILABLE))

    sync_rollout(placement.pk, now=world.now)

    assert len(world.available()) == 3
    assert settling in world.available()


def staged() -> StagedWorld:
    """Return a staged placement whose run is about to start on its two clusters."""
    world = StagedWorld({"prod": ["c000", "c001"]}, stage("prod", before=True, most=2))
    world.place("web", staged_spec())
    world.begin("one")
    world.approve("one", "prod")
    world.run(until=lambda: world.status("one") == "succeeded")
    world.change()
    world.begin("two")
    return world


@pytest.mark.servers_only
def test_a_staged_run_does_not_start_where_the_placement_was_evicted_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = staged()
    cordon(["c001"], by=None, now=world.now)
    world.work()
    operations.approve("two", "prod", by=world.approver, now=world.now)
    meanwhile(monkeypatch, lambda: evict("web", "c001", by=None, now=world.now))

    sync_rollout(Placement.objects.get().pk, now=world.now)

    evicted = Binding.objects.get(cluster_name="c001")
    assert (evicted.state, evicted.phase) == (BindingState.UNSCHEDULED, Phase.REMOVING)


@pytest.mark.servers_only
def test_a_look_that_was_overtaken_is_taken_again_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = rolling()
    world.change()
    schedule_due(now=world.now)
    meanwhile(monkeypatch, lambda: evict("web", "c003", by=None, now=world.now))

    assert sync_due_rollouts(now=world.now) == 1

    assert sync_due_rollouts(now=world.now) == 1


@pytest.mark.servers_only
def test_a_cluster_that_left_and_is_picked_again_meanwhile_is_not_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = rolling()
    rows = Binding.objects.filter(cluster_name="c003")
    rows.update(state=BindingState.UNSCHEDULED)
    MemberCluster.objects.filter(name="c003").delete()
    meanwhile(monkeypatch, lambda: rows.update(state=BindingState.BOUND))

    sync_rollout(Placement.objects.get().pk, now=world.now)

    assert rows.get().state == BindingState.BOUND
