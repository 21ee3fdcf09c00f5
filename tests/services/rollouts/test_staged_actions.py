"""Actions on staged runs, what a run may refer to, and what survives a restart."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from clusters.models import MemberCluster
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.concurrency import RevisionConflict
from fleetui.models import Event
from placements.engine.rollout.state import Phase
from placements.models import ApprovalRequest, Placement, StagedRun, StagedStrategy
from placements.services.overrides.operations import save_override
from placements.services.placements import delete_placement, save_placement
from placements.services.rollouts import operations
from placements.services.rollouts.operations import ActionNotAllowed, apply_approval
from placements.services.rollouts.queries import progress_document, run_manifest
from placements.services.rollouts.staged_runs import (
    UnknownStrategyError,
    delete_strategy,
    save_run,
    save_strategy,
)
from tests.rows import NOW, person, placement_document, spec
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.staged import (
    StagedWorld,
    run_document,
    stage,
    staged_spec,
    strategy_document,
)
from tests.services.rollouts.world import handed_to

pytestmark = pytest.mark.django_db
ALL = {"prod": ["c000", "c001"]}


def waiting_world(**tasks: Any) -> StagedWorld:
    """Return a world in which the run `one` is pending approval."""
    world = StagedWorld(ALL, stage("prod", most=2, **tasks))
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on()
    return world


@pytest.mark.nightly
def test_an_approval_says_who_and_when() -> None:
    world = waiting_world(before=True)

    request = world.approve("one", "prod")

    assert (request.approved_by, request.approved_at) == ("ann", world.now)
    assert Event.objects.get(verb="approved").actor_name == "ann"
    world.run(until=lambda: world.status("one") == "succeeded")
    assert world.approve("one", "prod").approved_at == request.approved_at


@pytest.mark.nightly
@pytest.mark.parametrize("roles", [(), ("viewer",), ("operator",)])
def test_only_an_approver_approves(roles: tuple[str, ...]) -> None:
    world = waiting_world(before=True)

    with pytest.raises(PermissionDenied):
        operations.approve("one", "prod", by=person("bob", *roles), now=world.now)

    assert ApprovalRequest.objects.get().approved_at is None


@pytest.mark.nightly
def test_a_placement_may_demand_another_person_than_the_one_who_started() -> None:
    world = StagedWorld(ALL, stage("prod", before=True, most=2))
    both = person("eve", "operator", "approver")
    wanted = placement_document("web", staged_spec(), approver_differs="true")
    save_placement(wanted, by=None, now=world.now)
    world.work()
    save_run(run_document("one"), by=both, now=world.now)
    world.work()

    with pytest.raises(PermissionDenied, match="requires another approver than eve"):
        operations.approve("one", "prod", by=both, now=world.now)

    world.approve("one", "prod")
    world.run(until=lambda: world.status("one") == "succeeded")


def test_the_demand_for_another_person_is_written_as_true_or_false() -> None:
    document = placement_document("web", staged_spec(), approver_differs="yes")

    with pytest.raises(InvalidManifest, match='allowed: "true" or "false"'):
        save_placement(document, by=None, now=NOW)


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_stage_that_does_not_wait_cannot_be_approved() -> None:
    world = waiting_world()

    with pytest.raises(
        ActionNotAllowed, match="stage prod of one is not pending approval"
    ):
        world.approve("one", "prod")


@pytest.mark.servers
def test_a_request_is_approved_by_its_document_too() -> None:
    world = waiting_world(before=True)
    document = ApprovalRequest.objects.select_related("run").get().to_manifest()
    assert apply_approval(document, by=world.approver, now=world.now) == "unchanged"
    document["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}

    with pytest.raises(InvalidManifest, match="only an approver"):
        apply_approval(document, by=None, now=world.now)
    assert apply_approval(document, by=world.approver, now=world.now) == "changed"

    manifest = ApprovalRequest.objects.select_related("run").get().to_manifest()
    assert manifest["status"]["conditions"][0]["message"] == "by ann"
    document["metadata"]["name"] = "one-after-prod"
    with pytest.raises(InvalidManifest, match="has no request of this name"):
        apply_approval(document, by=world.approver, now=world.now)


@pytest.mark.nightly
@pytest.mark.parametrize("field", ["parentStageRollout", "targetStage"])
def test_the_spec_of_a_request_cannot_change(field: str) -> None:
    world = waiting_world(before=True)
    document = ApprovalRequest.objects.select_related("run").get().to_manifest()
    document["status"] = {"conditions": [{"type": "Approved", "status": "True"}]}
    document["spec"][field] = "other"

    with pytest.raises(InvalidManifest) as caught:
        apply_approval(document, by=world.approver, now=world.now)

    assert [(error.path, error.code) for error in caught.value.errors] == [
        (f"spec.{field}", "immutable")
    ]
    assert ApprovalRequest.objects.get().approved_at is None


@pytest.mark.nightly
def test_a_timed_wait_can_be_skipped_once_it_is_under_way() -> None:
    world = waiting_world(wait="2h")

    with pytest.raises(ActionNotAllowed, match="no timed wait"):
        operations.skip_wait("one", "other", by=None, now=world.now)
    operations.skip_wait("one", "prod", by=None, now=world.now)
    world.work()

    assert world.status("one") == "succeeded"


@pytest.mark.nightly
def test_a_timed_wait_goes_on_after_a_restart() -> None:
    world = waiting_world(wait="2h")
    world.now += timedelta(hours=2)
    assert Placement.objects.get().rollout_requeue_at is not None

    world.work()

    assert world.status("one") == "succeeded"


@pytest.mark.nightly
def test_the_next_look_is_when_the_wait_ends() -> None:
    waiting_world(wait="20s")

    until = StagedRun.objects.get().sync_result["waits"][0]["until"]

    assert Placement.objects.get().rollout_requeue_at == datetime.fromisoformat(until)


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_failed_cluster_is_retried_at_once_by_hand() -> None:
    world = StagedWorld(ALL, stage("prod", most=2))
    world.inject("c001", {"kind": "refuse", "objectName": "web"})
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on(60)
    world.inject("c001")

    operations.retry_run("one", "c001", by=None, now=world.now)
    world.work()
    world.go_on(4)

    assert world.status("one") == "succeeded"
    with pytest.raises(ActionNotAllowed, match="only what failed"):
        operations.retry_run("one", "c001", by=None, now=world.now)


@pytest.mark.nightly
def test_an_abandoned_run_starts_nothing_more() -> None:
    world = StagedWorld(ALL, stage("prod"))
    world.place("web", staged_spec())
    world.begin("one")

    operations.abandon("one", by=None, now=world.now)
    world.work()
    world.go_on()

    assert world.status("one") == "abandoned"
    assert world.phases() == {"c000": Phase.AVAILABLE, "c001": Phase.NOT_STARTED}
    with pytest.raises(ActionNotAllowed, match="has ended already"):
        operations.abandon("one", by=None, now=world.now)
    with pytest.raises(InvalidManifest, match="the run has ended"):
        operations.set_state("one", "Stop", by=None, now=world.now)


@pytest.mark.nightly
def test_a_run_refers_to_what_is_there() -> None:
    world = waiting_world(before=True)
    missing = run_document("two", index="7", stagedRolloutStrategyName="none")

    with pytest.raises(InvalidManifest) as caught:
        save_run(missing, by=None, now=world.now)
    with pytest.raises(InvalidManifest, match="no placement is named 'other'"):
        save_run(run_document("two", placementName="other"), by=None, now=world.now)

    paths = [error.path for error in caught.value.errors]
    assert paths == ["spec.stagedRolloutStrategyName", "spec.resourceSnapshotIndex"]


def test_a_run_needs_a_placement_that_is_updated_by_stages() -> None:
    world = StagedWorld(ALL, stage("prod"))
    world.place("web", spec())

    with pytest.raises(InvalidManifest, match="its strategy is not External"):
        save_run(run_document("one"), by=None, now=world.now)
    world.run(until=world.is_settled)
    delete_placement("web", by=None, now=world.now)
    with pytest.raises(InvalidManifest, match="web is being deleted"):
        save_run(run_document("one"), by=None, now=world.now)


@pytest.mark.nightly
def test_only_the_state_of_a_run_may_change() -> None:
    world = waiting_world(before=True)
    assert save_run(run_document("one"), by=None, now=world.now).result == "unchanged"

    with pytest.raises(InvalidManifest) as caught:
        save_run(
            run_document("one", state="Initialize", index="0"), by=None, now=world.now
        )

    assert [error.path for error in caught.value.errors] == [
        "spec.resourceSnapshotIndex",
        "spec.state",
    ]
    with pytest.raises(RevisionConflict):
        save_run(run_document("one", state="Stop"), by=None, now=world.now, expected=7)


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_run_keeps_the_strategy_that_it_began_with() -> None:
    world = waiting_world(before=True)

    save_strategy(strategy_document(stage("other")), by=None, now=world.now)
    delete_strategy("careful", by=None, now=world.now)
    world.approve("one", "prod")

    world.run(until=lambda: world.status("one") == "succeeded")


@pytest.mark.servers
def test_saving_a_strategy_again_changes_nothing_and_an_old_edit_is_refused() -> None:
    document = strategy_document(stage("prod"))
    dids = [save_strategy(document, by=None, now=NOW).result for _ in range(2)]

    assert dids == ["created", "unchanged"]
    with pytest.raises(RevisionConflict):
        save_strategy(strategy_document(stage("x")), by=None, now=NOW, expected=0)
    delete_strategy("careful", by=None, now=NOW)
    assert not StagedStrategy.objects.exists()
    with pytest.raises(UnknownStrategyError):
        delete_strategy("careful", by=None, now=NOW)


@pytest.mark.nightly
def test_an_unreachable_cluster_is_waited_for() -> None:
    world = StagedWorld(ALL, stage("prod", most=2))
    world.place("web", staged_spec())
    world.inject("c001", {"kind": "unreachable"})
    world.run(
        until=lambda: MemberCluster.objects.get(name="c001").verdict != "",
        seconds=600,
        step=10,
    )

    world.begin("one")
    world.go_on(30)
    assert world.waits("one") == ["unreachable"]
    world.inject("c001")

    world.run(until=lambda: world.status("one") == "succeeded", seconds=200)


@pytest.mark.nightly
def test_a_run_freezes_the_overrides_that_apply_when_it_begins() -> None:
    world = StagedWorld(
        {"canary": ["c001"], "prod": ["c000"]},
        stage("canary"),
        stage("prod", before=True),
    )
    world.place("web", staged_spec())
    save_override(
        for_clusters("tier", rule(annotate(tier="old"))), by=None, now=world.now
    )
    world.begin("one")
    world.go_on()

    save_override(
        for_clusters("tier", rule(annotate(tier="new"))), by=None, now=world.now
    )
    world.approve("one", "prod")
    world.run(until=lambda: world.status("one") == "succeeded")

    assert handed_to("c000")["Namespace"]["metadata"]["annotations"] == {"tier": "old"}
    world.begin("two")
    world.go_on()
    world.approve("two", "prod")
    world.run(until=lambda: world.status("two") == "succeeded")
    assert handed_to("c000")["Namespace"]["metadata"]["annotations"] == {"tier": "new"}


def test_progress_says_in_sentences_what_a_run_waits_for() -> None:
    world = waiting_world(before=True)

    progress = progress_document(StagedRun.objects.get())

    assert progress["sentences"] == ["Waiting for approval before stage prod."]
    assert [one["state"] for one in progress["stages"]] == ["current", "to come"]
    world.approve("one", "prod")
    world.run(until=lambda: world.status("one") == "succeeded")
    status = run_manifest(StagedRun.objects.get())["status"]
    assert [
        (condition["type"], condition["status"]) for condition in status["conditions"]
    ] == [
        ("Initialized", "True"),
        ("Progressing", "False"),
        ("Succeeded", "True"),
    ]
    assert status["resourceSnapshotIndexUsed"] == "0"


@pytest.mark.servers
def test_a_run_that_could_not_begin_says_so_in_its_status() -> None:
    world = StagedWorld({"other": ["c000"]}, stage("prod"))
    world.place("web", staged_spec())
    world.begin("one")

    conditions = run_manifest(StagedRun.objects.get())["status"]["conditions"]

    assert conditions[0]["reason"] == "UpdateRunInitializedFailed"
    assert conditions[0]["message"] == "No stage selects c000."
