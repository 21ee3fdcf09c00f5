"""Few moves on simulated clusters: one decision, rolled out within the limits (foresight 2)."""

from collections import Counter
from typing import Any
from unittest import mock

import pytest

from clusters.operations.edit import change_labels
from clusters.queries import current_fleet
from fleetui.concurrency import RevisionConflict
from placements.engine.scheduling.decision import CycleKind
from placements.manifests.binding import BindingState
from placements.models import Binding, Decision, Placement
from placements.services import rescheduling
from placements.services.decisions.records import recorded
from placements.services.disruption.evictions import evict
from placements.services.rescheduling import plan_few_moves, reschedule_with_few_moves
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.scheduling import PreviewOutdatedError
from tests.rows import pick_n_spec, spec
from tests.services.rollouts.world import World, world_once

pytestmark = pytest.mark.django_db

REGION = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
PACE = {"maxUnavailable": 1, "maxSurge": 1, "unavailablePeriodSeconds": 1}
SPREAD: dict[str, Any] = {
    **pick_n_spec(6, topologySpreadConstraints=[REGION]),
    "strategy": {"type": "RollingUpdate", "rollingUpdate": PACE},
}


def drifted() -> World:
    """Make a world where all selected clusters are in one region."""

    def make() -> World:
        world = World(12)
        names = [f"c{number:03}" for number in range(12)]
        for at, name in enumerate(names):
            change_labels(
                [name],
                put={"region": ("east", "west", "north")[at % 3]},
                by=None,
                now=world.now,
            )
        world.place("web", SPREAD)
        world.run(until=world.is_settled)
        placed = world.available()
        change_labels(placed, put={"region": "east"}, by=None, now=world.now)
        others = [name for name in names if name not in placed]
        for at, name in enumerate(others):
            change_labels(
                [name],
                put={"region": ("west", "north")[at % 2]},
                by=None,
                now=world.now,
            )
        world.work()
        return world

    return world_once("drifted", make)


def skew() -> int:
    """Return the skew over the regions of the clusters that are selected."""
    names = Binding.objects.exclude(state="Unscheduled").values_list(
        "cluster_name", flat=True
    )
    regions = {
        cluster.name: cluster.labels["region"] for cluster in current_fleet().fleet
    }
    counts = Counter(dict.fromkeys(regions.values(), 0))
    counts.update(regions[name] for name in names)
    return max(counts.values()) - min(counts.values())


def _move(moves: int | None, world: World, **more: Any) -> None:
    reschedule_with_few_moves("web", moves=moves, by=None, now=world.now, **more)


def test_the_moves_are_one_decision_which_the_rollout_carries_out_within_its_limits() -> (
    None
):
    world, least = drifted(), 6
    web = Placement.objects.get()
    assert (plan_few_moves(web, None).plan.chosen.limit, skew()) == (4, 6)

    _move(None, world)
    assert skew() == 0
    for _ in range(60):
        world.pass_time(1)
        least = min(least, len(world.available()))

    assert least >= 5
    assert sorted(world.available()) == sorted(
        Binding.objects.values_list("cluster_name", flat=True)
    )
    row = Decision.objects.latest("number")
    _, decision = recorded(row.record.decision_id)
    assert (len(decision.picked_names), len(decision.unscheduled)) == (4, 4)
    assert (row.kind, row.trigger) == (
        CycleKind.REBALANCE,
        "rescheduled with at most 4 moves",
    )
    assert (
        plan_few_moves(Placement.objects.get(), None).refusal == "No moves are needed."
    )
    with pytest.raises(ActionNotAllowed, match="No moves are needed"):
        _move(None, world)


def test_with_fewer_moves_the_rest_is_planned_from_there() -> None:
    world = drifted()

    _move(2, world)
    assert (skew(), Decision.objects.latest("number").trigger) == (
        3,
        "rescheduled with at most 2 moves",
    )
    _move(2, world)

    assert skew() == 0


def test_only_what_was_previewed_is_decided() -> None:
    world = drifted()
    web = Placement.objects.get()
    previewed = plan_few_moves(web, 2).decision.id

    with pytest.raises(PreviewOutdatedError):
        _move(1, world, decision_id=previewed)
    with pytest.raises(RevisionConflict):
        _move(2, world, expected=web.revision + 1)
    _move(2, world, decision_id=previewed, expected=web.revision)

    assert Decision.objects.latest("number").record.decision_id == previewed


def test_moves_of_clusters_that_were_changed_during_the_search_are_not_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, compute = drifted(), rescheduling.plan_few_moves

    def slowly(placement: Placement, moves: int | None) -> rescheduling.FewMoves:
        few = compute(placement, moves)
        evict("web", world.available()[0], by=None, now=world.now)
        return few

    monkeypatch.setattr(rescheduling, "plan_few_moves", slowly)
    with pytest.raises(PreviewOutdatedError):
        _move(None, world)
    assert not Decision.objects.filter(kind=CycleKind.REBALANCE).exists()


def test_a_worker_that_is_killed_writes_all_of_it_or_nothing() -> None:
    world, before = drifted(), skew()

    with (
        pytest.raises(RuntimeError, match="killed"),
        mock.patch.object(rescheduling, "record", side_effect=RuntimeError("killed")),
    ):
        _move(None, world)

    assert skew() == before


def test_a_staged_placement_waits_with_its_moves_for_a_run() -> None:
    world = drifted()
    staged = {**SPREAD, "strategy": {"type": "External"}}
    world.place("other", staged)
    names = Binding.objects.filter(placement__name="other").values_list(
        "cluster_name", flat=True
    )
    change_labels(list(names), put={"region": "south"}, by=None, now=world.now)
    world.work()

    reschedule_with_few_moves("other", moves=1, by=None, now=world.now)
    world.pass_time(30)

    moved = Binding.objects.filter(
        placement__name="other", state=BindingState.SCHEDULED
    )
    assert moved.exists()
    assert not set(world.available("other")) & set(
        moved.values_list("cluster_name", flat=True)
    )


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (spec(), "Only placements of the type PickN"),
        (
            spec({"placementType": "PickFixed", "clusterNames": ["c000"]}),
            "Only placements of the type PickN",
        ),
        (pick_n_spec(2), "No moves are needed"),
    ],
)
def test_what_cannot_be_rescheduled_with_few_moves_says_why(
    wanted: dict[str, Any], words: str
) -> None:
    world = drifted()
    world.place("other", wanted)

    with pytest.raises(ActionNotAllowed, match=words):
        reschedule_with_few_moves("other", moves=None, by=None, now=world.now)
