"""Scheduling cycles on the database: who is due, what is written, what is not."""

from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from clusters.models import FleetChange
from clusters.operations.edit import change_labels, cordon, finish_leaving, leave
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import (
    Binding,
    Decision,
    DecisionRecord,
    FleetRecord,
    Placement,
    ResourceSnapshot,
)
from placements.services import scheduling
from placements.services.decisions.records import decision_of
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.workqueue import enqueue_scheduling
from tests.caches import forget_cached_records
from tests.rows import (
    NOW,
    all_joined,
    decided,
    deployment,
    joined,
    namespace,
    pick_n_spec,
    placed,
    placement_document,
    run_due,
    saved,
    spec,
)

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


def test_a_saved_placement_is_due_and_wakes_a_worker(
    woken, django_capture_on_commit_callbacks
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        placement = saved("web", pick_n_spec(2))

    assert placement.is_due
    assert woken == ["placements.tasks.schedule_due"]
    enqueue_scheduling([placement.pk], trigger="a joined")
    assert Placement.objects.get().trigger == "created"


def test_a_cycle_writes_decision_record_and_bindings() -> None:
    all_joined("a", "b", "c")

    placement = decided("web", pick_n_spec(2))

    decision = Decision.objects.get()
    assert placed(placement) == ["b", "c"]
    assert (decision.number, decision.is_fulfilled, decision.joins) == (
        1,
        True,
        ["c", "b"],
    )
    assert not placement.is_due
    assert (
        placement.placed_count,
        placement.is_fulfilled,
        placement.reschedules_on_fleet_change,
    ) == (
        2,
        True,
        False,
    )


def test_the_record_can_be_replayed_after_the_fleet_has_changed() -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(2))
    change_labels(["a"], put={"region": "east"}, by=None, now=NOW)
    forget_cached_records()

    decision = decision_of(Decision.objects.get())

    assert decision.picked_names == ("c", "b")
    assert decision.id == Decision.objects.get().record.decision_id
    assert decision.cycle.fleet.clusters[0].labels == {}


def test_equal_fleets_are_stored_once() -> None:
    all_joined("a", "b")

    decided("web", pick_n_spec(1))
    decided("db", pick_n_spec(2))

    assert FleetRecord.objects.count() == 1
    assert DecisionRecord.objects.count() == 2


def test_nothing_is_written_when_a_cycle_repeats_the_last_one() -> None:
    all_joined("a")
    placement = decided("web", pick_n_spec(1))
    make_due_again(placement)

    run_due()

    assert Decision.objects.count() == 1
    assert not Placement.objects.get().is_due


def make_due_again(placement: Placement) -> None:
    """Make a cycle due as a spurious wake-up would."""
    Placement.objects.filter(pk=placement.pk).update(
        generation=placement.generation + 1
    )


def test_pick_all_takes_on_a_new_cluster_without_a_full_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_joined("a")
    placement = decided("web", spec())
    joined("b")
    joined("c")
    monkeypatch.setattr(
        scheduling, "schedule", lambda _cycle: pytest.fail("a full cycle ran")
    )

    enqueue_affected_placements()
    run_due()

    assert placed(placement) == ["a", "b", "c"]
    assert Placement.objects.get().trigger == "a joined and 2 more changes"
    assert FleetChange.objects.count() == 0


def test_an_unfulfilled_pick_n_reschedules_on_fleet_change() -> None:
    all_joined("a")
    placement = decided("web", pick_n_spec(2))
    assert placement.is_fulfilled is False
    joined("b")

    enqueue_affected_placements()
    run_due()

    assert placed(placement) == ["a", "b"]
    assert Placement.objects.get().is_fulfilled is True


def test_a_fulfilled_pick_n_is_left_alone_by_a_new_cluster() -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))
    joined("z")

    assert enqueue_affected_placements() == 0


def test_picks_are_sticky() -> None:
    all_joined("a", "b")
    placement = decided("web", pick_n_spec(1))
    assert placed(placement) == ["b"]

    cordon(["b"], by=None, now=NOW)
    enqueue_affected_placements()
    run_due()

    assert placed(placement) == ["b"]


def test_a_cluster_that_leaves_is_replaced() -> None:
    all_joined("a", "b")
    placement = decided("web", pick_n_spec(1))
    leave(["b"], by=None, now=NOW)

    enqueue_affected_placements()
    run_due()

    assert placed(placement) == ["a"]
    assert Decision.objects.latest("number").leaves == ["b"]
    assert finish_leaving(now=NOW) == ["b"]


def test_only_those_who_read_a_label_are_due_when_it_changes() -> None:
    all_joined("a", "b")
    required = {
        "affinity": {
            "clusterAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "clusterSelectorTerms": [
                        {"labelSelector": {"matchLabels": {"tier": "edge"}}}
                    ]
                }
            }
        }
    }
    reads = decided("reads", pick_n_spec(2, **required))
    decided("does-not", pick_n_spec(3))
    enqueue_affected_placements()
    change_labels(["a"], put={"tier": "edge"}, by=None, now=NOW)

    count = enqueue_affected_placements()
    run_due()

    assert count == 1
    assert placed(reads) == ["a"]


@pytest.mark.nightly
def test_a_change_that_no_filter_passes_runs_no_cycle() -> None:
    """A label that is read, a taint and a new cluster: none of the changed clusters can be selected."""
    all_joined("a", "b")
    edge = {"labelSelector": {"matchLabels": {"tier": "edge"}}}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": [edge]
        }
    }
    policy = {"placementType": "PickAll", "affinity": {"clusterAffinity": required}}
    web = decided("web", spec(policy))
    enqueue_affected_placements()

    change_labels(["a"], put={"tier": "core"}, by=None, now=NOW)
    cordon(["b"], by=None, now=NOW)
    joined("c")
    assert enqueue_affected_placements() == 0

    make_due_again(web)
    change_labels(["a"], put={"tier": "cloud"}, by=None, now=NOW)
    assert (
        enqueue_affected_placements() == 1
    )  # it is due, and the cycle may see another policy

    run_due()
    change_labels(["a"], put={"tier": "edge"}, by=None, now=NOW)
    assert enqueue_affected_placements() == 1
    run_due()
    assert placed(web) == ["a"]


def test_a_carried_out_binding_is_kept_until_its_resources_are_removed() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(2))
    Binding.objects.filter(cluster_name="a").update(
        state=BindingState.BOUND, phase=Phase.AVAILABLE
    )

    save_placement(
        placement_document("web", pick_n_spec(0)), by=None, now=NOW, confirmed=True
    )
    run_due()

    binding = Binding.objects.get()
    assert (binding.cluster_name, binding.state) == ("a", BindingState.UNSCHEDULED)
    assert binding.previous_state == BindingState.BOUND


def test_no_other_worker_claims_a_placement_until_the_lease_ends() -> None:
    saved("web", pick_n_spec(1))

    first = scheduling.claim_due(now=NOW)

    assert len(first) == 1
    assert scheduling.claim_due(now=NOW + timedelta(seconds=9)) == []
    assert scheduling.claim_due(now=NOW + timedelta(seconds=11)) == first


def test_the_claim_is_renewed_between_slow_cycles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(4):
        saved(f"p{number}", pick_n_spec(1))
    passed, ran = [0.0], list[int]()
    monkeypatch.setattr(scheduling, "monotonic", lambda: passed[0])

    def schedule_slowly(pk: int, **_options: object) -> None:
        ran.append(pk)
        passed[0] += 8
        at = NOW + timedelta(seconds=passed[0])
        others = Placement.objects.exclude(pk__in=ran).filter(lease_expires_at__lt=at)
        assert not others.exists()

    monkeypatch.setattr(scheduling, "schedule_placement", schedule_slowly)
    monkeypatch.setattr(scheduling, "_schedule_together", lambda claimed, **_: claimed)

    assert scheduling.schedule_due(now=NOW) == 4
    assert len(ran) == 4  # 32 s after the claim of 10 s


def test_a_cycle_whose_lease_another_worker_took_is_left_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = saved("a", pick_n_spec(1)), saved("b", pick_n_spec(1))
    passed, ran = [0.0], list[int]()
    monkeypatch.setattr(scheduling, "monotonic", lambda: passed[0])

    def schedule_slowly(pk: int, **_options: object) -> None:
        ran.append(pk)
        passed[0] += 30
        scheduling.claim_due(now=NOW + timedelta(seconds=30))

    monkeypatch.setattr(scheduling, "schedule_placement", schedule_slowly)
    monkeypatch.setattr(scheduling, "_schedule_together", lambda claimed, **_: claimed)
    scheduling.schedule_due(now=NOW)

    assert ran == [first.pk]
    assert Placement.objects.get(pk=second.pk).lease_expires_at == NOW + timedelta(
        seconds=40
    )


def test_two_workers_on_one_placement_decide_it_once() -> None:
    all_joined("a")
    placement = saved("web", pick_n_spec(1))
    slow = scheduling.run_cycle(placement)
    scheduling.schedule_placement(placement.pk, now=NOW)

    with pytest.raises(scheduling.PlacementChanged):
        scheduling.write_decision(slow, now=NOW)

    assert Decision.objects.count() == 1
    assert Binding.objects.count() == 1


def test_a_change_of_the_fleet_during_a_cycle_makes_it_run_again(monkeypatch) -> None:
    all_joined("a", "b")
    placement = saved("web", pick_n_spec(1))
    _during_each_cycle(monkeypatch, [lambda: leave(["b"], by=None, now=NOW)])

    run_due()

    assert placed(placement) == ["a"]


def test_after_a_rerun_a_decision_is_written_if_its_picks_are_still_there(
    monkeypatch,
) -> None:
    all_joined("a", "b")
    placement = saved("web", pick_n_spec(1))
    restless = [lambda at=at: joined(f"{at}-new") for at in "01"]
    cycles = _during_each_cycle(monkeypatch, restless)

    scheduling.schedule_due(now=NOW)

    assert placed(placement) == ["b"]
    assert len(cycles) == 2


@pytest.mark.parametrize("others", [0, 2], ids=["alone", "together"])
def test_a_change_that_a_written_decision_has_not_read_makes_it_due_again(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    all_joined("a", "b", "c")
    placement = decided("web", pick_n_spec(3))
    for number in range(others):
        decided(f"other-{number}", pick_n_spec(1))
    leave(["b", "c"], by=None, now=NOW)
    enqueue_affected_placements()
    restless = iter("de")

    def write_after_a_change(results: Any, **options: Any) -> Any:
        for name in islice(restless, 1):
            joined(name)
            enqueue_affected_placements()
        return write(results, **options)

    write = scheduling.write_decisions
    monkeypatch.setattr(scheduling, "write_decisions", write_after_a_change)

    run_due()

    assert placed(placement) == ["a", "d", "e"]


def test_after_a_rerun_nothing_is_written_if_a_pick_has_left(monkeypatch) -> None:
    all_joined("a", "b", "c", "d")
    placement = saved("web", pick_n_spec(1))
    restless = [lambda name=name: leave([name], by=None, now=NOW) for name in "dc"]
    cycles = _during_each_cycle(monkeypatch, restless)

    scheduling.schedule_due(now=NOW)

    assert len(cycles) == 2
    assert placed(placement) == []
    assert Placement.objects.get().is_due


def _during_each_cycle(monkeypatch: pytest.MonkeyPatch, changes: list) -> list[object]:
    """Change the fleet between what a cycle reads and what it writes, cycle by cycle."""
    cycles: list[object] = []

    def schedule(cycle):
        cycles.append(cycle)
        decision = real(cycle)
        if changes:
            changes.pop(0)()
        return decision

    real = scheduling.schedule
    monkeypatch.setattr(scheduling, "schedule", schedule)
    return cycles


@pytest.mark.nightly
def test_changed_resources_alone_need_no_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(2))
    run: list[str] = []
    cycle = scheduling.run_cycle

    def counted(placement: Placement, **options: Any) -> scheduling.CycleResult:
        run.append(placement.trigger)
        return cycle(placement, **options)

    monkeypatch.setattr(scheduling, "run_cycle", counted)

    apply_resources([namespace("shop"), deployment("web", "web:1")], by=None, now=NOW)
    run_due()
    assert run == []
    assert not Placement.objects.get().is_due
    assert ResourceSnapshot.objects.get(is_latest=True).objects_count == 2

    apply_resources([deployment("web", "web:2")], by=None, now=NOW)
    save_placement(placement_document("web", pick_n_spec(3)), by=None, now=NOW)
    run_due()
    assert len(run) == 1

    apply_resources([deployment("web", "web:3")], by=None, now=NOW)
    enqueue_scheduling([Placement.objects.get().pk], trigger="the fleet changed")
    run_due()
    assert len(run) == 2
