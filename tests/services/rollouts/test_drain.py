"""Drains on simulated clusters: cordoned, emptied one eviction after another, resumable (S49)."""

from typing import Any

import pytest

from clusters.fleet import EligibilityKind
from clusters.models import ClusterTaint, MemberCluster
from clusters.operations.edit import UnknownClusterError, forget, leave, uncordon
from placements.engine.disruption import Numbers, budget_numbers
from placements.engine.limits import ExceededLimit
from placements.engine.loss import PlacementImpact
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.manifests.disruption import parse_disruption_budget
from placements.models import Binding, Drain, DrainStep, Eviction, Placement
from placements.services.disruption import drains
from placements.services.disruption.budgets import delete_budget, save_budget
from placements.services.disruption.drains import (
    Pace,
    advance_drains,
    cancel_drain,
    drain,
)
from placements.services.disruption.preview import drain_impact
from placements.services.disruption.queries import step_sentence
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from placements.services.rollout_state import (
    eviction_context,
    eviction_contexts,
    load_rollout_context,
)
from placements.services.rollouts import operations
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.operations import ActionNotAllowed
from tests.rows import NOW, decided, joined, pick_n_spec, placement_document, spec
from tests.services.rollouts.test_evictions import budget
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db

FIXED = {"placementType": "PickFixed", "clusterNames": ["c000", "c001"]}
TOLERATING = {"placementType": "PickAll", "tolerations": [{"operator": "Exists"}]}


class Drained(World):
    """A world whose sweep looks at the drains too."""

    def work(self) -> None:
        """Do everything that is due."""
        advance_drains(now=self.now)
        super().work()


def world_with(clusters: int, **placements: Any) -> Drained:
    """Return a world with these placements on their clusters."""
    world = Drained(clusters)
    for name, wanted in placements.items():
        world.place(name, wanted)
    world.run(until=world.is_settled)
    return world


def steps() -> dict[str, tuple[str, str]]:
    """Return how far the last drain is with every placement, and why."""
    rows = DrainStep.objects.filter(drain=Drain.objects.latest("pk"))
    return {row.placement_name: (row.state, row.why) for row in rows}


def is_over() -> bool:
    """Return whether no drain is running."""
    return not Drain.objects.filter(state="running").exists()


def test_s49_a_drain_moves_everything_off() -> None:
    world = world_with(4, web=spec(), ledger=pick_n_spec(3))

    drain(["c003"], by=None, now=world.now)
    world.run(until=is_over)

    assert ClusterTaint.objects.filter(cluster__name="c003", key="cordon-key").exists()
    assert not Binding.objects.filter(cluster_name="c003").exists()
    assert steps() == {"web": ("gone", ""), "ledger": ("gone", "")}
    assert Drain.objects.get().state == "done"
    world.run(until=world.is_settled)
    assert world.available("ledger") == ["c000", "c001", "c002"]
    assert set(Eviction.objects.values_list("outcome", "drain__cluster_name")) == {
        ("executed", "c003")
    }


def test_s49_a_budget_can_block_it_wholly_until_it_is_lifted() -> None:
    world = world_with(3, web=spec())
    save_budget(budget(minAvailable=3), by=None, now=world.now)

    drain(["c001"], by=None, now=world.now)
    world.pass_time(40)

    assert steps() == {"web": ("blocked", "over-budget")}
    numbers = {"available": 3, "total": 3, "wanted": 0, "allowed": 0}
    assert DrainStep.objects.get().numbers == numbers
    assert Eviction.objects.count() == 1
    assert len(world.available()) == 3
    delete_budget("web", by=None, now=world.now)
    world.run(until=is_over)
    assert world.available() == ["c000", "c002"]


def test_s49_a_budget_can_block_it_in_part() -> None:
    world = world_with(3, web=spec(), ledger=spec())
    save_budget(budget("ledger", minAvailable=3), by=None, now=world.now)

    drain(["c001"], by=None, now=world.now)
    world.pass_time(20)

    assert steps() == {"web": ("gone", ""), "ledger": ("blocked", "over-budget")}
    assert not is_over()


@pytest.mark.nightly
def test_what_names_its_clusters_or_tolerates_the_cordon_stays_and_is_listed() -> None:
    world = world_with(2, fixed=spec(FIXED), daemon=spec(TOLERATING), web=spec())

    drain(["c001"], by=None, now=world.now)
    world.run(until=is_over)

    assert steps() == {
        "fixed": ("stays", "pick-fixed"),
        "daemon": ("stays", "tolerates-cordon"),
        "web": ("gone", ""),
    }
    assert Drain.objects.get().ended_reason == "nothing is left to evict"


@pytest.mark.nightly
def test_it_is_paced() -> None:
    world = world_with(2, **{f"p{number}": spec() for number in range(4)})
    world.inject("c001", {"kind": "unreachable"})

    drain(["c001"], by=None, now=world.now, pace=Pace(at_once=2))
    world.pass_time(6)

    assert [state for state, _ in steps().values()].count("leaving") == 2
    world.inject("c001")
    world.run(until=is_over)
    assert not Binding.objects.filter(cluster_name="c001").exists()


@pytest.mark.nightly
def test_two_drains_take_a_placement_off_one_cluster_at_a_time() -> None:
    world = world_with(3, web=spec())
    world.inject("c001", {"kind": "unreachable"})
    drain(["c001"], by=None, now=world.now)
    world.pass_time(2)

    drain(["c002"], by=None, now=world.now)
    world.pass_time(6)

    assert "c002" in world.available()
    world.inject("c001")
    world.run(until=is_over)
    assert world.available() == ["c000"]


@pytest.mark.nightly
def test_a_cluster_out_of_reach_does_not_hold_up_the_evictions() -> None:
    world = world_with(2, **{f"p{number}": spec() for number in range(3)})
    world.inject("c001", {"kind": "unreachable"})
    world.run(
        until=lambda: MemberCluster.objects.get(name="c001").verdict != "",
        seconds=600,
        step=10,
    )

    drain(["c001"], by=None, now=world.now, pace=Pace(at_once=1))
    world.pass_time(8)

    assert set(steps().values()) == {("leaving", "leaving")}


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_killed_worker_leaves_a_drain_that_another_takes_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with(2, web=spec(), ledger=spec())
    drain(["c001"], by=None, now=world.now)
    execute = drains.execute

    def killed(*args: Any, **options: Any) -> Any:
        execute(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(drains, "execute", killed)
    with pytest.raises(KeyboardInterrupt):
        advance_drains(now=world.now)
    monkeypatch.setattr(drains, "execute", execute)
    assert not Eviction.objects.exists()

    world.run(until=is_over)

    assert Eviction.objects.count() == 2
    assert not Binding.objects.filter(cluster_name="c001").exists()


@pytest.mark.nightly
def test_a_cancelled_drain_evicts_nothing_more_and_leaves_the_cordon() -> None:
    world = world_with(2, web=spec())
    save_budget(budget(minAvailable=2), by=None, now=world.now)
    drain(["c001"], by=None, now=world.now)
    world.pass_time(3)

    cancel_drain(["c001"], by=None, now=world.now)
    delete_budget("web", by=None, now=world.now)
    world.pass_time(20)

    assert len(world.available()) == 2
    assert ClusterTaint.objects.filter(cluster__name="c001").exists()
    with pytest.raises(ActionNotAllowed, match="not being drained"):
        cancel_drain(["c001"], by=None, now=world.now)


@pytest.mark.nightly
def test_the_drain_of_a_cluster_that_left_the_fleet_ends_at_once() -> None:
    world = world_with(3, web=spec())
    drain(["c000"], by=None, now=world.now)
    leave(["c000"], by=None, now=world.now)
    enqueue_affected_placements()
    advance_drains(now=world.now)
    assert Drain.objects.get().state == Drain.State.RUNNING

    forget(
        MemberCluster.objects.filter(name="c000"),
        verb="removed",
        by=None,
        now=world.now,
    )
    enqueue_affected_placements()
    advance_drains(now=world.now)

    assert Drain.objects.get().state == Drain.State.CANCELLED


@pytest.mark.nightly
def test_uncordoning_ends_a_drain_and_brings_nothing_back_by_itself() -> None:
    world = world_with(3, web=pick_n_spec(2), fixed=spec(FIXED), ledger=pick_n_spec(2))
    save_budget(budget("ledger", minAvailable=2), by=None, now=world.now)
    cluster = world.available("web")[0]
    drain([cluster], by=None, now=world.now)
    world.pass_time(10)

    uncordon([cluster], by=None, now=world.now)
    world.pass_time(10)

    assert (Drain.objects.get().state, Drain.objects.get().ended_reason) == (
        "cancelled",
        "the cluster was uncordoned",
    )
    assert cluster not in world.available("web")
    assert len(world.available("web")) == 2


@pytest.mark.nightly
def test_a_staged_placement_waits_for_its_next_run() -> None:
    world = world_with(2, web=spec())
    placement = Placement.objects.get()
    placement.document["spec"]["strategy"] = {"type": "External"}
    placement.save()

    drain(["c001"], by=None, now=world.now)
    world.run(until=is_over)

    assert steps() == {"web": ("next-run", "next-run")}
    assert Binding.objects.get(cluster_name="c001").state == BindingState.UNSCHEDULED
    assert len(world.available()) == 2


@pytest.mark.nightly
@pytest.mark.servers
def test_a_paused_placement_leaves_once_it_is_resumed() -> None:
    world = world_with(2, web=spec())
    operations.pause("web", by=None, now=world.now)

    drain(["c001"], by=None, now=world.now)
    world.pass_time(4)

    assert steps() == {"web": ("blocked", "held")}
    assert step_sentence(DrainStep.objects.get()).startswith("Paused or stopped")
    assert [row.impact for row in drain_impact("c001", now=world.now).rows] == [
        "blocked"
    ]
    operations.resume("web", by=None, now=world.now)
    world.run(until=is_over)
    assert world.available() == ["c000"]


def test_draining_again_goes_on_with_the_same_drain_and_an_unknown_cluster_is_refused() -> (
    None
):
    world = world_with(1)

    [first] = drain(["c000"], by=None, now=world.now)

    assert drain(["c000"], by=None, now=world.now) == [first]
    with pytest.raises(UnknownClusterError):
        drain(["c999"], by=None, now=world.now)
    assert advance_drains(now=world.now) == 1
    assert advance_drains(now=world.now + drains.RESYNC) == 0


@pytest.mark.nightly
def test_the_impact_says_who_joins_who_is_stuck_and_what_stays() -> None:
    world = world_with(
        3,
        all=spec(),
        fixed=spec(FIXED),
        moves=pick_n_spec(2),
        stuck=pick_n_spec(3),
        tight=pick_n_spec(3),
    )
    save_budget(budget("tight", maxUnavailable=0), by=None, now=world.now)
    [free] = {"c000", "c001", "c002"} - set(world.available("moves"))
    here = next(name for name in ("c000", "c001") if name != free)

    impact = drain_impact(here, now=world.now)

    impacts = {
        row.placement: (row.impact, row.joins, row.placed_before, row.placed_after)
        for row in impact.rows
    }
    assert impacts == {
        "all": ("shrinks", (), 3, 2),
        "fixed": ("cannot", (), 2, 2),
        "moves": ("moves", (free,), 2, 2),
        "stuck": ("stuck", (), 3, 2),
        "tight": ("blocked", (), 3, 3),
    }
    assert impact.counts[PlacementImpact.STUCK] == 1
    assert not Drain.objects.exists()


def test_a_budget_counts_clusters_that_are_not_read_as_those_that_are() -> None:
    world = world_with(8, web=spec())
    web = Placement.objects.get()
    just_now, long_ago = world.now, world.now - 2 * web.unavailable_period
    states: dict[str, dict[str, Any]] = {
        "c001": {"phase": Phase.APPLIED, "untrackable_since": long_ago},
        "c002": {"phase": Phase.APPLIED, "untrackable_since": just_now},
        "c003": {"phase": Phase.APPLIED},
        "c004": {"phase": Phase.FAILED},
        "c005": {"state": BindingState.UNSCHEDULED},
        "c006": {"state": BindingState.UNSCHEDULED},
    }
    for name, columns in states.items():
        Binding.objects.filter(cluster_name=name).update(**columns)
    MemberCluster.objects.filter(name="c006").delete()
    silent = {"verdict": EligibilityKind.STALE_HEARTBEAT}
    MemberCluster.objects.filter(name="c007").update(**silent)
    limit = parse_disruption_budget(budget(maxUnavailable=6)).spec

    whole = eviction_context(load_rollout_context(web, now=world.now))
    contexts = eviction_contexts([web], ["c000"], limited=[web], now=world.now)
    part = contexts[web.pk]

    assert "c004" in whole.clusters.keys() - part.clusters.keys()
    assert whole.clusters.items() >= part.clusters.items()
    assert budget_numbers(part, limit) == budget_numbers(whole, limit)
    assert budget_numbers(part, limit) == Numbers(3, 7, 0, 2)


@pytest.mark.nightly
def test_the_impact_under_rules_that_select_all_again_names_only_those_that_join() -> (
    None
):
    world = world_with(
        3, even=pick_n_spec(2, topologySpreadConstraints=[{"topologyKey": "region"}])
    )
    save_placement(
        placement_document(
            "even", Placement.objects.get().document["spec"], semantics="ocm"
        ),
        by=None,
        now=world.now,
    )
    world.run(until=world.is_settled)
    placed = set(world.available("even"))

    [row] = drain_impact(sorted(placed)[0], now=world.now).rows

    [free] = {"c000", "c001", "c002"} - placed
    assert (row.impact, row.joins, row.message) == (
        "moves",
        (free,),
        f"Replacement: {free}.",
    )
    assert [score.cluster for score in row.scores] == [free]


def test_an_unfulfilled_placement_with_a_replacement_is_rescheduled() -> None:
    labels = {"matchLabels": {"env": "prod"}}
    required = {"clusterSelectorTerms": [{"labelSelector": labels}]}
    affinity = {
        "clusterAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    even = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    for name, place in (("a", "east"), ("b", "east"), ("c", "west")):
        joined(name, region=place, env="prod")
    joined("d", region="south", env="canary")
    decided("web", pick_n_spec(3, topologySpreadConstraints=[even], affinity=affinity))
    sync_due_rollouts(now=NOW)

    [other] = {"a", "b"} - set(Binding.objects.values_list("cluster_name", flat=True))
    here = "b" if other == "a" else "a"

    [row] = drain_impact(here, now=NOW).rows

    assert (row.impact, row.joins, row.message) == (
        "moves",
        (other,),
        f"Replacement: {other}.",
    )


def test_a_drain_that_leaves_a_hard_limit_exceeded_says_so_before_it_starts() -> None:
    even = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    for name, place in (("a", "east"), ("b", "east"), ("c", "west")):
        joined(name, region=place)
    decided("web", pick_n_spec(3, topologySpreadConstraints=[even]))
    sync_due_rollouts(now=NOW)

    [row] = drain_impact("c", now=NOW).rows

    assert row.exceeded_limits == (ExceededLimit("region", 1, "east", 2, "west", 0, 2),)
    assert row.gets_worse
    assert row.message == (
        "No replacement: no other cluster passes its filters."
        " Out of balance: region skew 2 with east 2 and west 0, max skew 1."
    )
