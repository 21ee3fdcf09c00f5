"""Drains and evictions while a staged run of the placement is there.

See `rules/lifecycle.md#staged-update-runs`.
"""

import pytest

from placements.engine.loss import PlacementImpact
from placements.manifests.binding import BindingState
from placements.models import Binding, Drain, DrainStep
from placements.services.disruption.drains import advance_drains, drain
from placements.services.disruption.evictions import evict
from placements.services.disruption.preview import drain_impact
from placements.services.disruption.queries import step_sentence
from placements.services.placements import save_placement
from placements.services.rollouts import operations
from placements.services.rollouts.operations import abandon
from tests.rows import placement_document, spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec

pytestmark = pytest.mark.django_db
THREE = {"prod": ["c000", "c001", "c002"]}


class Drained(StagedWorld):
    """A staged world whose sweep looks at the drains too."""

    def work(self) -> None:
        """Do everything that is due."""
        advance_drains(now=self.now)
        super().work()


def world_of_three(*, before: bool = False) -> Drained:
    """Return a world with a run of one cluster after another."""
    world = Drained(THREE, stage("prod", before=before))
    world.place("web", staged_spec())
    return world


def step() -> DrainStep:
    """Return how far the drain is with the placement."""
    return DrainStep.objects.get()


@pytest.mark.nightly
def test_a_drain_waits_for_the_run_that_has_still_to_update_the_cluster() -> None:
    world = world_of_three()
    world.begin("one")

    drain(["c002"], by=None, now=world.now)
    world.pass_time(3)
    waiting = step()
    world.run(until=lambda: world.status("one") == "succeeded")
    world.run(until=lambda: Drain.objects.get().state == "done")

    assert (waiting.state, waiting.why) == ("blocked", "staged-run")
    assert step_sentence(waiting).startswith("Staged: a run is in progress")
    assert world.indices() == {"c000": 0, "c001": 0, "c002": 0}
    assert (step().state, step().why) == ("next-run", "next-run")
    assert Binding.objects.get(cluster_name="c002").state == BindingState.UNSCHEDULED


@pytest.mark.nightly
def test_the_next_run_takes_away_what_a_drain_waited_with() -> None:
    world = world_of_three()
    world.begin("one")
    drain(["c002"], by=None, now=world.now)
    world.run(until=lambda: Drain.objects.get().state == "done")

    world.begin("two")
    world.run(until=lambda: world.status("two") == "succeeded")

    assert world.phases() == {"c000": "available", "c001": "available"}


def test_giving_the_run_up_lets_the_drain_go_on() -> None:
    world = world_of_three(before=True)
    world.begin("one")
    drain(["c002"], by=None, now=world.now)
    world.pass_time(20)
    assert (step().state, step().why) == ("blocked", "staged-run")

    abandon("one", by=None, now=world.now)
    world.run(until=lambda: Drain.objects.get().state == "done")

    assert list(world.phases()) == ["c000", "c001"]


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_drain_does_not_wait_for_a_run_that_is_only_prepared() -> None:
    world = world_of_three()
    world.begin("one", state="Initialize")

    drain(["c002"], by=None, now=world.now)
    world.run(until=lambda: Drain.objects.get().state == "done")

    assert (world.status("one"), world.why("one")) == ("failed", ["other-stages"])


@pytest.mark.nightly
def test_an_eviction_by_hand_is_carried_out_and_ends_the_run_with_the_reason() -> None:
    world = world_of_three()
    world.begin("one")
    world.run(until=lambda: "c000" in world.available())
    drain(["c000"], by=None, now=world.now)

    evict("web", "c000", by=None, now=world.now)
    world.work()

    assert (world.status("one"), world.why("one")) == ("failed", ["other-stages"])


@pytest.mark.nightly
def test_the_impact_of_a_drain_shows_the_run() -> None:
    world = world_of_three(before=True)
    world.begin("one")

    [row] = drain_impact("c002", now=world.now).rows

    assert row.impact is PlacementImpact.BLOCKED
    assert row.message.startswith("Staged: a run is in progress")


@pytest.mark.nightly
def test_what_was_stopped_and_is_staged_since_can_be_drained() -> None:
    world = Drained({"prod": ["c000", "c001"]}, stage("prod"))
    world.place("web", spec())
    world.run(until=world.is_settled)
    world.change()
    world.work()
    operations.stop("web", by=None, now=world.now)
    save_placement(placement_document("web", staged_spec()), by=None, now=world.now)

    drain(["c001"], by=None, now=world.now)
    world.go_on(4)

    assert (step().state, step().why) == ("next-run", "next-run")
