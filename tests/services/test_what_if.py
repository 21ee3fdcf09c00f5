"""What if clusters go: over all placements, under both variants, saved and never applied."""

from typing import Any

import pytest

from clusters.operations.edit import cordon
from clusters.operations.leave import leave
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import InvalidManifest
from placements.manifests.placement import SEMANTICS_ANNOTATION
from placements.models import (
    Binding,
    Decision,
    DecisionRecord,
    FleetRecord,
    Placement,
    Scenario,
    ScenarioDecision,
)
from placements.services.decisions.records import fleet_record_of
from placements.services.placements import save_placement
from placements.services.what_if import operations
from placements.services.what_if.operations import create_scenario, evaluate_due
from placements.services.what_if.queries import chosen_clusters, emptied_groups
from tests.builders import fleet, grouped, spread
from tests.rows import NOW, all_joined, decided, joined, load_nine, pick_n_spec, placed, run_due, spec

pytestmark = pytest.mark.django_db

Fates = dict[tuple[str, str], tuple[str, int]]


def evaluated(**chosen: Any) -> Scenario:
    """Create a scenario, and return it with its result."""
    row = create_scenario(**{"names": (), "labels": (), **chosen}, by=None, now=NOW)
    while evaluate_due(now=NOW):
        pass
    row.refresh_from_db()
    return row


def fates(row: Scenario) -> Fates:
    """Return fate and number of clusters by placement and variant."""
    rows = ScenarioDecision.objects.filter(scenario=row)
    return {(one.placement_name, one.variant): (one.impact, one.placed_after) for one in rows}


def outcome(row: Scenario, placement: str, variant: str) -> ScenarioDecision:
    """Return what one placement would do."""
    return ScenarioDecision.objects.get(scenario=row, placement_name=placement, variant=variant)


def _under_kubefleet() -> None:
    """Save the placements of the demo under the rules of the released scheduler."""
    for placement in Placement.objects.all():
        document = placement.document
        annotations = document["metadata"].get("annotations") or {}
        document["metadata"]["annotations"] = {**annotations, SEMANTICS_ANNOTATION: "kubefleet"}
        save_placement(document, by=None, now=NOW, is_demo=True)
    run_due()


@pytest.fixture
def nine() -> None:
    """Load the demo fleet of nine clusters."""
    load_nine()


@pytest.mark.usefixtures("nine")
def test_w6_region_east_goes_down_on_the_demo_of_nine() -> None:
    impacts = fates(evaluated(labels=["region:east"]))

    assert (impacts["web", "leave"], impacts["web", "cordon"]) == (("moves", 5), ("moves", 5))
    assert (impacts["ledger", "leave"], impacts["ledger", "cordon"]) == (("stuck", 2), ("stuck", 2))
    assert (impacts["batch", "leave"], impacts["batch", "cordon"]) == (("shrinks", 6), ("shrinks", 6))
    assert (impacts["config", "leave"], impacts["config", "cordon"]) == (("stuck", 2), ("cannot", 3))
    assert len(impacts) == 10


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_w6_under_kubefleet_a_cordoned_east_leaves_web_stuck_at_four_of_five() -> None:
    _under_kubefleet()

    row = evaluated(labels=["region:east"])
    impacts, cordoned, left = fates(row), outcome(row, "web", "cordon"), outcome(row, "web", "leave")

    assert (impacts["web", "leave"], impacts["web", "cordon"]) == (("moves", 5), ("stuck", 4))
    assert (cordoned.wanted, cordoned.leaves, cordoned.joins) == (5, ["smartfish"], [])
    assert (left.leaves, left.pairs) == (["smartfish"], [("flyingpenguin", 1, -10)])
    assert cordoned.why == "region=east stays at 0 (no candidates)"
    assert cordoned.note == left.note
    assert cordoned.note == (
        "domains are counted over all member clusters, so a cordoned region=east stays a domain with 0"
    )
    assert (impacts["ledger", "leave"], impacts["ledger", "cordon"]) == (("stuck", 2), ("stuck", 2))


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_says_which_empty_groups_hold_a_placement_back() -> None:
    row = evaluated(labels=["region:east"])

    assert outcome(row, "ledger", "leave").why == ("region=south stays at 0 (no candidates)")
    assert outcome(row, "ledger", "cordon").why == ("region=east and region=south stay at 0 (no candidates)")


@pytest.mark.usefixtures("nine")
def test_changes_nothing() -> None:
    before = (list(Placement.objects.values()), list(Binding.objects.values()), Decision.objects.count())

    row = evaluated(labels=["region:east"])

    after = (list(Placement.objects.values()), list(Binding.objects.values()), Decision.objects.count())
    assert after == before
    assert (row.is_answered, row.chosen_by, len(row.clusters)) == (True, "3 clusters, region=east", 3)


@pytest.mark.nightly
def test_foretells_what_leaving_then_does() -> None:
    for name, region in {"a": "east", "b": "west", "c": "west", "d": "north"}.items():
        joined(name, region=region)
    decided("web", pick_n_spec(2, topologySpreadConstraints=[spread("region")]))
    decided("all", spec())
    there = set(Binding.objects.filter(placement__name="web").values_list("cluster_name", flat=True))
    row = evaluated(names=sorted(there))

    leave(sorted(there), by=None, now=NOW)
    Placement.objects.update(generation=99)
    run_due()

    assert sorted(outcome(row, "web", "leave").joins) == placed(Placement.objects.get(name="web"))
    assert outcome(row, "all", "leave").placed_after == 2


def test_a_placement_that_tolerates_the_cordon_stays_where_it_is() -> None:
    all_joined("a", "b")
    decided("daemon", spec({"placementType": "PickAll", "tolerations": [{"operator": "Exists"}]}))

    impacts = fates(evaluated(names=["a"]))

    assert impacts == {("daemon", "leave"): ("shrinks", 1), ("daemon", "cordon"): ("cannot", 2)}


def test_who_is_not_concerned_stays_as_it_is() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))

    assert set(fates(evaluated(names=["a"])).values()) == {("stays", 1)}


@pytest.mark.nightly
def test_what_is_not_decided_is_left_out_and_counted() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    decided("odd", pick_n_spec(1))
    Placement.objects.filter(name="odd").update(selection_faults=[{"path": "", "code": "", "message": ""}])

    row = evaluated(names=["a"])

    assert ({name for name, _ in fates(row)}, row.left_out) == ({"web"}, 1)


@pytest.mark.nightly
def test_goes_on_in_a_worker_where_it_takes_longer(
    monkeypatch: pytest.MonkeyPatch, woken: list[str], django_capture_on_commit_callbacks: Any
) -> None:
    all_joined("a", "b")
    for number in range(5):
        decided(f"p{number}", pick_n_spec(1))
    woken.clear()
    monkeypatch.setattr(operations, "_BATCH", 2)
    monkeypatch.setattr(operations, "AT_ONCE", 0.0)
    monkeypatch.setattr(operations, "PIECE", 0.0)

    with django_capture_on_commit_callbacks(execute=True):
        row = create_scenario(names=["a"], labels=(), by=None, now=NOW)
    done = [ScenarioDecision.objects.filter(scenario=row).count()]
    while evaluate_due(now=NOW):
        done.append(ScenarioDecision.objects.filter(scenario=row).count())

    assert woken == ["placements.tasks.evaluate_scenarios"]
    assert done == [4, 8, 10]


def test_a_large_fleet_is_left_to_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    all_joined("a", "b")
    monkeypatch.setattr(operations, "SMALL_FLEET", 1)

    row = create_scenario(names=["a"], labels=(), by=None, now=NOW)

    assert (row.is_answered, row.fleet_version) == (False, None)


def test_another_worker_takes_over_after_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    monkeypatch.setattr(operations, "SMALL_FLEET", 1)
    row = create_scenario(names=["a"], labels=(), by=None, now=NOW)
    Scenario.objects.update(evaluate_at=NOW + operations.LEASE)

    assert evaluate_due(now=NOW) == 0
    assert evaluate_due(now=NOW + operations.LEASE) == 1
    row.refresh_from_db()
    assert row.is_answered


@pytest.mark.nightly
def test_uses_the_fleet_of_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    all_joined("a", "b")
    for number in range(3):
        decided(f"p{number}", spec())
    monkeypatch.setattr(operations, "_BATCH", 1)
    monkeypatch.setattr(operations, "AT_ONCE", 0.0)
    row = create_scenario(names=["a"], labels=(), by=None, now=NOW)

    joined("late")
    while evaluate_due(now=NOW):
        pass

    assert {after for _, after in fates(row).values()} == {1}


@pytest.mark.parametrize(
    ("chosen", "path", "code"),
    [
        ({"names": ["a", "missing"], "labels": []}, "clusters[1]", "unknown-cluster"),
        ({"names": [], "labels": ["region:moon"]}, "labels", "unsatisfiable"),
        ({"names": [], "labels": []}, "clusters", "required"),
    ],
)
def test_refuses_an_analysis_without_clusters(chosen: dict[str, list[str]], path: str, code: str) -> None:
    joined("a", region="east")

    with pytest.raises(InvalidManifest) as refusal:
        create_scenario(names=chosen["names"], labels=chosen["labels"], by=None, now=NOW)

    assert [(one.path, one.code) for one in refusal.value.errors] == [(path, code)]
    assert not Scenario.objects.exists()


def test_clusters_are_chosen_by_name_and_by_label_together() -> None:
    joined("a", region="east", env="prod")
    joined("b", region="east", env="canary")
    joined("c", region="west", env="prod")

    assert chosen_clusters(["c"], ["region:east", "env:prod"]) == ("a", "c")


def test_a_group_is_emptied_when_all_of_its_clusters_are_chosen() -> None:
    small = fleet(*grouped("region", east="e1 e2", west="w1"))

    assert emptied_groups(small, ["e1", "w1"], ["region", "region", "env"]) == ("region=west",)


@pytest.mark.nightly
def test_the_oldest_go_with_what_only_they_cite(monkeypatch: pytest.MonkeyPatch) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    real = set(DecisionRecord.objects.values_list("pk", flat=True))
    first = evaluated(names=["a"])
    monkeypatch.setattr(operations, "KEPT", 1)

    second = evaluated(names=["b"])

    assert list(Scenario.objects.all()) == [second]
    cited = set(ScenarioDecision.objects.values_list("record_id", flat=True))
    assert set(DecisionRecord.objects.values_list("pk", flat=True)) == real | cited
    assert (
        not FleetRecord.objects.filter(pk__in=[first.without_id, first.cordoned_id])
        .exclude(pk__in=[second.without_id, second.cordoned_id])
        .exists()
    )
    assert Decision.objects.exists()


@pytest.mark.nightly
def test_the_fleet_as_it_is_outlives_a_scenario_that_supposed_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(1))
    cordon(["a"], by=None, now=NOW)
    kept = fleet_record_of(current_fleet())
    assert evaluated(names=["a"]).cordoned_id == kept.pk
    monkeypatch.setattr(operations, "KEPT", 1)

    evaluated(names=["b"])

    assert decided("api", pick_n_spec(1)).is_fulfilled


def test_a_loss_that_leaves_a_hard_limit_exceeded_says_so() -> None:
    for name, region in {"a": "east", "b": "east", "c": "west"}.items():
        joined(name, region=region)
    decided("web", pick_n_spec(3, topologySpreadConstraints=[spread("region")]))

    row = evaluated(names=["c"])

    assert outcome(row, "web", "cordon").why == (
        "no other cluster passes its filters. Out of balance: region skew 2, max skew 1 (east 2, west 0)."
    )
    assert "Out of balance" not in outcome(row, "web", "leave").why
