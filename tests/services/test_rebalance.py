"""Rebalance plans on simulated clusters: paced, resumable, and never worse than before (foresight 2)."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from django.db import connection

from clusters.operations.edit import change_labels
from clusters.queries import current_fleet
from placements.engine.scheduling.decision import CycleKind
from placements.models import Binding, Decision, Placement, RebalancePlan
from placements.services import rebalance
from placements.services.decisions.records import recorded
from placements.services.disruption.budgets import save_budget
from placements.services.disruption.evictions import evict
from placements.services.placements import save_placement
from placements.services.rebalance import advance_plans, change_plan, preview_rebalance, start_plan
from placements.services.rollouts import operations
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.workqueue import enqueue_scheduling
from tests.rows import pick_n_spec, placement_document, spec
from tests.services.rollouts.test_evictions import budget
from tests.services.rollouts.world import World, world_once

pytestmark = pytest.mark.django_db

REGION = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
PACE = {"maxUnavailable": 1, "maxSurge": 1, "unavailablePeriodSeconds": 1}
SPREAD: dict[str, Any] = {
    **pick_n_spec(6, topologySpreadConstraints=[REGION]),
    "strategy": {"type": "RollingUpdate", "rollingUpdate": PACE},
}


class Drifting(World):
    """A world whose sweep continues rebalance plans, and where all selected clusters are in one region."""

    def work(self) -> None:
        """Do everything that is due."""
        advance_plans(now=self.now)
        super().work()


def drifted() -> Drifting:
    def make() -> Drifting:
        world = Drifting(12)
        names = [f"c{number:03}" for number in range(12)]
        for at, name in enumerate(names):
            change_labels([name], put={"region": ("east", "west", "north")[at % 3]}, by=None, now=world.now)
        world.place("web", SPREAD)
        world.run(until=world.is_settled)
        placed = world.available()
        change_labels(placed, put={"region": "east"}, by=None, now=world.now)
        others = [name for name in names if name not in placed]
        for at, name in enumerate(others):
            change_labels([name], put={"region": ("west", "north")[at % 2]}, by=None, now=world.now)
        world.work()
        return world

    return world_once("drifted", make)


def _skew() -> int:
    """Return the skew over the regions of the clusters that are selected."""
    names = Binding.objects.exclude(state="Unscheduled").values_list("cluster_name", flat=True)
    regions = {one.name: one.labels["region"] for one in current_fleet().fleet}
    counts = Counter(dict.fromkeys(regions.values(), 0))
    counts.update(regions[name] for name in names)
    return max(counts.values()) - min(counts.values())


def _plan() -> RebalancePlan:
    return RebalancePlan.objects.latest("pk")


def _is_over() -> bool:
    return not _plan().is_active


@pytest.mark.nightly
def test_a_plan_moves_batch_by_batch_and_is_never_worse() -> None:
    world, skews, least = drifted(), [6], 6

    plan = start_plan("web", moves=None, by=None, now=world.now)
    assert (plan.moves, len(plan.batches)) == (4, 4)
    while not _is_over():
        world.pass_time(1)
        skews.append(_skew())
        least = min(least, len(world.available()))

    assert (_plan().state, _plan().done) == ("completed", 4)
    assert skews == sorted(skews, reverse=True)
    assert skews[-1] <= 1
    assert least >= 5
    assert sorted(world.available()) == sorted(Binding.objects.values_list("cluster_name", flat=True))
    kinds = list(Decision.objects.order_by("number").values_list("kind", flat=True))
    assert kinds == [CycleKind.PICK, *[CycleKind.REBALANCE] * 4]
    for row in Decision.objects.filter(kind=CycleKind.REBALANCE):
        _, decision = recorded(row.record.decision_id)
        assert (len(decision.picked_names), len(decision.unscheduled)) == (1, 1)
        assert row.trigger.startswith("rebalance plan 1, batch ")
    assert preview_rebalance(Placement.objects.get()).refusal == "No moves are needed."


class _Killed(BaseException):
    """The worker was killed."""


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_worker_that_is_killed_at_any_statement_leaves_the_clusters_and_the_plan_as_one(every: int) -> None:
    world = drifted()
    planned = start_plan("web", moves=None, by=None, now=world.now)
    joins = [step["join"] for batch in planned.batches for step in batch if step["join"]]
    kills, skew = 0, _skew()

    while not _is_over():
        is_killed, statement = True, 0
        while is_killed:
            statement, is_killed = statement + every, False
            RebalancePlan.objects.update(requeue_at=world.now)
            left = count(statement, -1)

            def execute(run: Callable[..., Any], *arguments: Any, left: Iterator[int] = left) -> Any:
                result = run(*arguments)
                if next(left) == 1:
                    raise _Killed
                return result

            try:
                with connection.execute_wrapper(execute):
                    advance_plans(now=world.now)
            except _Killed:
                is_killed, kills = True, kills + 1
            placed = Binding.objects.exclude(state="Unscheduled").values_list("cluster_name", flat=True)
            assert rebalance._digest(placed) == _plan().placed_digest
            assert len(placed) == 6
            assert _skew() <= skew
            skew = _skew()
        world.pass_time(1)

    assert kills > 100 // every
    assert (_plan().state, _skew()) == ("completed", 0)
    assert set(joins) <= set(world.available())


@pytest.mark.nightly
def test_it_is_paused_resumed_and_stopped() -> None:
    world = drifted()
    plan = start_plan("web", moves=None, by=None, now=world.now)
    world.run(until=lambda: _plan().is_moving)
    change_plan("web", 1, "pause", by=None, now=world.now)
    world.pass_time(20)
    placed = set(world.available())

    assert (_plan().state, _plan().done, len(placed)) == ("paused", 0, 6)
    change_plan("web", 1, "resume", by=None, now=world.now)
    with pytest.raises(ActionNotAllowed, match="Another rebalance plan of web is in progress"):
        start_plan("web", moves=None, by=None, now=world.now)
    world.run(until=lambda: _plan().done == 2)
    change_plan("web", 1, "stop", by=None, now=world.now)
    world.pass_time(20)

    assert (_plan().state, _plan().ended_reason) == ("stopped", "Stopped by system.")
    assert set(world.available()) != placed
    with pytest.raises(ActionNotAllowed, match="is stopped; resume is not possible"):
        change_plan("web", plan.number, "resume", by=None, now=world.now)
    assert start_plan("web", moves=None, by=None, now=world.now).number == 2


@pytest.mark.nightly
def test_it_ends_when_something_else_changes_the_clusters_or_the_policy() -> None:
    world = drifted()
    start_plan("web", moves=None, by=None, now=world.now)
    evict("web", world.available()[0], by=None, now=world.now)
    world.pass_time(5)
    assert (_plan().state, _plan().done) == ("stale", 0)

    world.run(until=world.is_settled)
    start_plan("web", moves=None, by=None, now=world.now)
    save_placement(placement_document("web", SPREAD | pick_n_spec(7)), by=None, now=world.now)
    world.pass_time(5)
    assert (_plan().state, _plan().ended_reason) == ("abandoned", "The policy of the placement was changed.")


def test_a_cycle_that_selects_what_the_plan_adds_is_a_part_of_it() -> None:
    """Of the second worked example the scheduler selects 3 of 4; after one move it selects the fourth."""
    world = Drifting(5)
    for at, (region, env) in enumerate(
        [("r0", "e0"), ("r2", "e0"), ("r2", "e1"), ("r0", "e1"), ("r0", "e1")]
    ):
        change_labels([f"c00{at}"], put={"region": region, "env": env}, by=None, now=world.now)
    limits = [REGION, {**REGION, "topologyKey": "env"}]
    world.place("web", SPREAD | pick_n_spec(4, topologySpreadConstraints=limits))
    world.run(until=world.is_settled)
    plan = start_plan("web", moves=None, by=None, now=world.now)
    [last] = plan.batches[-1]
    world.run(until=lambda: _plan().is_moving)
    enqueue_scheduling([plan.placement_id], trigger="a change of the fleet")
    world.run(until=_is_over)

    assert (_plan().state, len(_plan().batches), len(plan.batches)) == ("completed", 1, 2)
    assert last["join"] in world.available()
    assert len(world.available()) == 4


@pytest.mark.nightly
def test_it_ends_when_the_next_step_would_make_a_limit_worse_or_lost_its_cluster() -> None:
    world = drifted()
    plan = start_plan("web", moves=None, by=None, now=world.now)
    joins = [step["join"] for batch in plan.batches for step in batch if step["join"]]
    change_labels(joins, put={"region": "east"}, by=None, now=world.now)
    world.pass_time(60)

    assert _plan().state == "stale"
    assert _skew() <= 6


@pytest.mark.nightly
def test_a_budget_and_a_pause_hold_it_and_a_failure_stops_it() -> None:
    world = drifted()
    save_budget(budget(minAvailable=6), by=None, now=world.now)
    start_plan("web", moves=None, by=None, now=world.now)
    world.pass_time(5)
    assert (_plan().state, _plan().done, _plan().is_moving) == ("running", 0, False)
    assert "budget" in _plan().waits_for

    save_budget(budget(minAvailable=5), by=None, now=world.now)
    operations.pause("web", by=None, now=world.now)
    world.pass_time(5)
    assert _plan().waits_for == "The rollout of the placement is paused or stopped."

    first = next(step["join"] for step in _plan().batches[0] if step["join"])
    world.inject(first, {"kind": "refuse"})
    operations.resume("web", by=None, now=world.now)
    world.run(until=_is_over)
    assert (_plan().state, _plan().ended_reason) == ("stopped", f"The rollout failed on {first}.")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (spec(), "Only placements of the type PickN"),
        (spec({"placementType": "PickFixed", "clusterNames": ["c000"]}), "Only placements of the type PickN"),
        ({**SPREAD, "strategy": {"type": "External"}}, "wait for staged update runs"),
        (pick_n_spec(2), "No moves are needed"),
    ],
)
def test_what_cannot_be_rebalanced_says_why(wanted: dict[str, Any], words: str) -> None:
    world = drifted()
    world.place("other", wanted)

    with pytest.raises(ActionNotAllowed, match=words):
        start_plan("other", moves=None, by=None, now=world.now)
    assert not RebalancePlan.objects.exists()


def test_a_plan_of_clusters_that_were_changed_meanwhile_is_not_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, compute = drifted(), rebalance.preview_rebalance

    def slowly(placement: Placement, **options: Any) -> rebalance.RebalancePreview:
        plan = compute(placement, **options)
        evict("web", world.available()[0], by=None, now=world.now)
        return plan

    monkeypatch.setattr(rebalance, "preview_rebalance", slowly)
    with pytest.raises(ActionNotAllowed, match="was changed meanwhile"):
        start_plan("web", moves=None, by=None, now=world.now)
    assert not RebalancePlan.objects.exists()


@pytest.mark.nightly
def test_a_plan_that_cannot_be_continued_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    world = drifted()
    broken = start_plan("web", moves=None, by=None, now=world.now)
    world.place("other", pick_n_spec(1))
    columns = {"moves": 0, "policy_number": 9, "wanted": 1, "batches": [], "requeue_at": world.now}
    other = Placement.objects.get(name="other").rebalance_plans.create(
        number=1, created_at=world.now, created_by="ana", **columns
    )
    advance = rebalance._advance

    def fails(key: int, **options: Any) -> None:
        if key == broken.pk:
            raise RuntimeError("broken")
        advance(key, **options)

    RebalancePlan.objects.update(requeue_at=world.now)
    monkeypatch.setattr(rebalance, "_advance", fails)
    with pytest.raises(RuntimeError, match="broken"):
        advance_plans(now=world.now)
    other.refresh_from_db()
    assert other.state == "abandoned"
