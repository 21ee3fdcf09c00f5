"""Placements are saved by their manifests: snapshots, what may not change, stale edits, deletion."""

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from clusters.models import MemberCluster
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.concurrency import RevisionConflict
from fleetui.models import Event
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.manifests.placement import parse_placement
from placements.models import Binding, Decision, Placement, PolicySnapshot
from placements.services.placements import delete_placement, save_placement, warnings_of
from placements.services.results import OperationResult, UnknownPlacementError
from tests.rows import (
    NOW,
    all_joined,
    decided,
    joined,
    person,
    pick_n_spec,
    placement_document,
    run_due,
    saved,
    simulated,
    spec,
)

pytestmark = [pytest.mark.django_db, pytest.mark.servers]

TOLERATION = {"key": "gpu", "operator": "Exists"}


def save(name: str, spec: dict[str, Any], **options: Any) -> OperationResult:
    """Save and return the result."""
    return save_placement(
        placement_document(name, spec), by=None, now=NOW, **options
    ).result


def faults_of(name: str, spec: dict[str, Any]) -> list[FieldError]:
    """Return the faults that saving has, having changed nothing."""
    before = list(Placement.objects.values("name", "document", "revision"))
    with pytest.raises(InvalidManifest) as caught:
        save(name, spec)
    assert list(Placement.objects.values("name", "document", "revision")) == before
    return list(caught.value.errors)


def test_the_manifest_is_kept_as_written_without_its_status() -> None:
    document = {
        **placement_document("web", pick_n_spec(2)),
        "status": {"conditions": []},
    }

    save_placement(document, by=None, now=NOW)

    assert Placement.objects.get().document == placement_document("web", pick_n_spec(2))


def test_the_same_manifest_again_changes_nothing() -> None:
    first, second = save("web", pick_n_spec(2)), save("web", pick_n_spec(2))

    assert (first, second) == (OperationResult.CREATED, OperationResult.UNCHANGED)
    assert Placement.objects.get().revision == 1
    assert Event.objects.count() == 1


def test_another_policy_makes_another_snapshot() -> None:
    saved("web", pick_n_spec(2))

    save("web", pick_n_spec(2, tolerations=[TOLERATION]))

    rows = PolicySnapshot.objects.order_by("number").values_list("number", "is_latest")
    assert list(rows) == [(0, False), (1, True)]


def test_the_number_alone_makes_none() -> None:
    saved("web", pick_n_spec(2))

    save("web", pick_n_spec(3))

    assert PolicySnapshot.objects.count() == 1
    assert Placement.objects.get().number_of_clusters == 3


def test_absent_policy_and_pick_all_are_the_same_policy() -> None:
    saved("web", spec())

    save("web", spec({"placementType": "PickAll"}))

    assert PolicySnapshot.objects.count() == 1


def test_other_semantics_make_another_snapshot() -> None:
    saved("web", pick_n_spec(2))

    document = placement_document("web", pick_n_spec(2), semantics="kubefleet")
    save_placement(document, by=None, now=NOW)

    assert PolicySnapshot.objects.count() == 2
    assert Placement.objects.get().semantics == "kubefleet"


def test_no_more_snapshots_are_kept_than_the_history_limit_says() -> None:
    for key in "abcde":
        tolerations = [
            {"key": one, "operator": "Exists"}
            for one in "abcde"["abcde".index(key) :: -1]
        ]
        save(
            "web",
            {**pick_n_spec(1, tolerations=tolerations), "revisionHistoryLimit": 2},
        )

    numbers = PolicySnapshot.objects.order_by("number").values_list("number", flat=True)
    assert list(numbers) == [3, 4]


def test_a_snapshot_in_use_is_never_pruned() -> None:
    all_joined("a")
    decided("web", {**pick_n_spec(1), "revisionHistoryLimit": 1})
    for count in (1, 2, 3):
        tolerations = [{"key": f"k{one}", "operator": "Exists"} for one in range(count)]
        save(
            "web",
            {**pick_n_spec(1, tolerations=tolerations), "revisionHistoryLimit": 1},
        )

    numbers = PolicySnapshot.objects.order_by("number").values_list("number", flat=True)
    assert list(numbers) == [0, 3]


def test_the_placement_type_cannot_change() -> None:
    saved("web", pick_n_spec(2))

    error = faults_of("web", spec({"placementType": "PickAll"}))[0]

    assert (error.path, error.code) == ("spec.policy.placementType", "immutable")
    assert "from PickN to PickAll" in error.message
    assert "another name" in error.allowed


def test_a_policy_cannot_be_removed() -> None:
    saved("web", spec({"placementType": "PickAll"}))

    error = faults_of("web", spec())[0]

    assert (error.path, error.code) == ("spec.policy", "immutable")
    assert "placementType: PickAll" in error.allowed


def test_tolerations_can_only_be_added() -> None:
    saved("web", pick_n_spec(2, tolerations=[TOLERATION]))

    error = faults_of("web", pick_n_spec(2))[0]

    assert (error.path, error.code) == ("spec.policy.tolerations", "immutable")
    assert "gpu" in error.message
    assert (
        save("web", pick_n_spec(2, tolerations=[{"key": "arm"}, TOLERATION][::-1][:1]))
        is OperationResult.UNCHANGED
    )


def test_a_staged_placement_cannot_go_back() -> None:
    saved("web", {**pick_n_spec(1), "strategy": {"type": "External"}})

    error = faults_of("web", {**pick_n_spec(1), "strategy": {"type": "RollingUpdate"}})[
        0
    ]

    assert (error.path, error.code) == ("spec.strategy.type", "immutable")


def test_every_fault_is_reported_with_its_path() -> None:
    paths = [
        error.path for error in faults_of("web", pick_n_spec(-1, clusterNames=["a"]))
    ]

    assert paths == ["spec.policy.numberOfClusters", "spec.policy.clusterNames"]


def test_a_stale_edit_is_refused_with_who_saved_in_between() -> None:
    saved("web", pick_n_spec(2))
    document = placement_document("web", pick_n_spec(3))
    save_placement(document, by=person("ana", "operator"), now=NOW)

    with pytest.raises(RevisionConflict) as caught:
        save("web", pick_n_spec(4), expected=1)

    assert [change["by"] for change in caught.value.changes] == ["ana"]
    assert Placement.objects.get().number_of_clusters == 3


def test_deleting_removes_the_row_and_keeps_the_decisions() -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))

    assert delete_placement("web", by=None, now=NOW)

    decision = Decision.objects.get()
    assert (decision.placement, decision.placement_name) == (None, "web")
    assert not Placement.objects.exists()
    assert not Binding.objects.exists()


def test_a_placement_that_is_carried_out_stays_until_its_resources_are_removed() -> (
    None
):
    all_joined("a")
    decided("web", pick_n_spec(1))
    Binding.objects.update(
        state=BindingState.BOUND, phase=Phase.AVAILABLE, applied_version="v"
    )

    assert not delete_placement("web", by=None, now=NOW)

    assert Placement.objects.get().deleting_since == NOW
    error = faults_of("web", pick_n_spec(2))[0]
    assert error.code == "being-deleted"
    assert Event.objects.filter(verb="deleted").count() == 1


def test_a_deleted_name_can_be_taken_again() -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))
    delete_placement("web", by=None, now=NOW)

    decided("web", pick_n_spec(1))

    assert list(Decision.objects.order_by("pk").values_list("number", flat=True)) == [
        1,
        1,
    ]


def test_deleting_an_unknown_placement_is_refused() -> None:
    with pytest.raises(UnknownPlacementError):
        delete_placement("ghost", by=None, now=NOW)


def test_a_decision_names_what_caused_it() -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(1))
    document = placement_document("web", pick_n_spec(2))
    save_placement(document, by=person("ana", "operator"), now=NOW, trigger="one more")

    run_due()

    latest = Decision.objects.latest("number")
    assert (latest.triggered_by, latest.trigger, latest.joins) == (
        "ana",
        "one more",
        ["a"],
    )


def test_the_database_holds_what_must_hold() -> None:
    placement = saved("web", pick_n_spec(1))

    for broken in (
        lambda: Placement.objects.update(number_of_clusters=None),
        lambda: Placement.objects.update(placement_type="PickSome"),
        lambda: Placement.objects.update(observed_generation=99),
        lambda: PolicySnapshot.objects.create(
            placement=placement,
            number=7,
            content_hash="",
            policy={},
            semantics="fleet",
            created_at=NOW,
        ),
        lambda: PolicySnapshot.objects.filter(placement=placement).update(
            semantics="guesswork"
        ),
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            broken()


def test_apply_strategy_warns_while_some_cluster_does_not_act_on_it() -> None:
    document = placement_document(
        "web", spec(strategy={"applyStrategy": {"type": "ServerSideApply"}})
    )
    path = "spec.strategy.applyStrategy"

    def warned() -> bool:
        return path in {
            warning.path for warning in warnings_of(parse_placement(document))
        }

    assert warned()
    joined("one")
    MemberCluster.objects.update(driver="kubernetes")
    assert not warned()
    simulated("two")
    assert warned()
