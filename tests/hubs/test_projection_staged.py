"""Staged update runs of a live hub with strategies and approval requests, from its mirror (10.1)."""

from typing import Any

import pytest
from django.test import Client

from fleetui.models import Event
from placements.models import ApprovalRequest, StagedRun, StagedStrategy
from placements.services.rollouts.queries import result_in, run_manifest, sentences_of
from tests.hubs.hub_documents import (
    approval,
    condition,
    placement,
    run_status,
    staged_run,
    strategy,
    written_by,
)
from tests.hubs.projecting import ProjectedHub
from tests.hubs.test_projection_placements import put_web
from tests.rows import person

pytestmark = pytest.mark.django_db
RUN, APPROVAL = "ClusterStagedUpdateRun", "ClusterApprovalRequest"
STARTED, DONE = condition("Started", at="09:31"), condition("Succeeded", at="09:35")


@pytest.fixture
def live() -> ProjectedHub:
    return ProjectedHub()


def cluster(name: str, *conditions: Any) -> dict[str, Any]:
    return {"clusterName": name, "conditions": list(conditions)}


def canary(*clusters: Any, **more: Any) -> dict[str, Any]:
    return {"stageName": "canary", "clusters": list(clusters), **more}


PROD = {"stageName": "prod", "clusters": [cluster("rome")]}
WAITS = [
    {
        "type": "Approval",
        "conditions": [condition("ApprovalRequestCreated", at="09:35")],
    },
    {
        "type": "TimedWait",
        "conditions": [condition("WaitTimeElapsed", "False", at="09:35")],
    },
]


def progressing(reason: str, status: str = "False") -> Any:
    return condition("Progressing", status, reason=reason)


def put_run(
    live: ProjectedHub, status: Any = None, *, state: str = "Run", **metadata: Any
) -> None:
    content = staged_run("web-1", state=state)
    content["metadata"] |= metadata
    live.put(RUN, content if status is None else {**content, "status": status})
    live.project()


def run_of(live: ProjectedHub) -> StagedRun:
    with live.scope():
        return StagedRun.objects.select_related("placement", "resource_snapshot").get()


FAILED_START = condition("Initialized", "False", reason="UpdateRunInitializedFailed")
SUCCEEDED, FAILED = (
    condition("Succeeded"),
    condition("Succeeded", "False", reason="UpdateRunFailed"),
)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("state", "status", "expected"),
    [
        ("Run", None, "initialising"),
        ("Run", {"conditions": [condition("Initialized", "Unknown")]}, "initialising"),
        ("Run", {"conditions": [FAILED_START]}, "failed"),
        ("Initialize", run_status(), "initialised"),
        ("Run", run_status(), "progressing"),
        ("Run", run_status(progressing("UpdateRunProgressing", "True")), "progressing"),
        ("Run", run_status(progressing("UpdateRunWaiting")), "waiting"),
        ("Run", run_status(progressing("UpdateRunStuck")), "stuck"),
        ("Stop", run_status(progressing("UpdateRunStopping", "Unknown")), "stopping"),
        ("Stop", run_status(progressing("UpdateRunStopped")), "stopped"),
        ("Run", run_status(progressing("UpdateRunSucceeded"), SUCCEEDED), "succeeded"),
        ("Run", run_status(progressing("UpdateRunFailed"), FAILED), "failed"),
    ],
)
def test_the_status_of_a_run_follows_from_the_conditions_of_the_hub(
    live: ProjectedHub, admin_client: Client, state: str, status: Any, expected: str
) -> None:
    put_web(live)

    put_run(live, status, state=state)

    run = run_of(live)
    assert (run.status, run.ended_at is not None) == (
        expected,
        expected in ("succeeded", "failed"),
    )
    assert live.mark(RUN, "web-1") == (False, [], "")
    assert (str(run.placement), run.placement_name) == ("web", "web")
    assert run_manifest(run)["status"] == (status or {})
    assert admin_client.get("/hubs/prod-eu/api/v1/staged-runs/web-1").json()[
        "status"
    ] == (status or {})
    page = admin_client.get("/hubs/prod-eu/rollouts/staged/runs/web-1/")
    assert page.status_code == 200
    assert (b"Abort" in page.content) == (run.ended_at is None)
    assert admin_client.get("/hubs/prod-eu/rollouts/").content.count(b"web-1") >= 1


@pytest.mark.servers
def test_stages_clusters_tasks_and_times_come_from_the_status(
    live: ProjectedHub, admin_client: Client
) -> None:
    put_web(live)
    stages = [
        canary(
            cluster("paris", STARTED, DONE),
            afterStageTaskStatus=WAITS,
            startTime="2026-11-01T09:31:00Z",
        ),
        PROD,
    ]
    deletion = {
        "stageName": "kubernetes-fleet.io/deleteStage",
        "clusters": [cluster("oslo")],
    }
    put_run(
        live,
        run_status(
            progressing("UpdateRunWaiting"), stages=stages, deletionStageStatus=deletion
        ),
    )

    run = run_of(live)
    result = result_in(run)
    assert result is not None
    plan = result.run
    first, second = plan.stages
    assert [(stage.name, stage.cluster_names) for stage in plan.stages] == [
        ("canary", ("paris",)),
        ("prod", ("rome",)),
    ]
    assert plan.deletions.cluster_names == ("oslo",)
    assert (first.steps[0].started_at, first.steps[0].done_at) == (
        first.updated_at.replace(minute=31),  # type: ignore[union-attr]
        first.updated_at,
    )
    assert (first.requested_after_at is not None, first.approved_after_at) == (
        True,
        None,
    )
    assert (second.updated_at, plan.position, run.resource_number) == (None, 0, 0)
    assert [(wait.reason, wait.stage) for wait in result.waits] == [
        ("approval-after", "canary"),
        ("time", "canary"),
    ]
    assert run.resource_snapshot is not None
    assert run.created_by == run.started_by == "kubectl"
    sentences = sentences_of(run, result)
    assert sentences[0] == "UpdateRunWaiting: Progressing is False."
    page = admin_client.get(
        "/hubs/prod-eu/rollouts/staged/runs/web-1/"
    ).content.decode()
    for words in ("paris", "rome", "oslo", "canary", "On the hub: UpdateRunWaiting"):
        assert words in page
    title = page.partition("<h1>")[2].partition("</h1>")[0]
    assert "of stage canary" in title
    assert "UpdateRunWaiting" not in title
    shown = admin_client.get("/hubs/prod-eu/api/v1/staged-runs/web-1").json()
    assert shown["status"]["conditions"][-1]["reason"] == "UpdateRunWaiting"


@pytest.mark.parametrize(
    ("note", "author"),
    [({"fleetui.io/requested-by": "ana"}, "ana"), ({}, "fleetui")],
)
def test_the_author_of_a_run_is_not_the_controller_that_completes_its_spec(
    live: ProjectedHub, note: dict[str, str], author: str
) -> None:
    put_web(live)
    controller = "cluster-staged-update-run-controller"
    managers = [
        *written_by("fleetui", "spec"),
        *written_by(controller, "spec", at="09:31"),
    ]
    status = run_status(progressing("UpdateRunWaiting"), stages=[PROD])
    put_run(live, status, annotations=note, managedFields=managers)

    run = run_of(live)
    assert run.created_by == run.started_by == author


def test_a_stage_ends_with_success_only(live: ProjectedHub) -> None:
    end = {"endTime": "2026-11-01T09:40:00Z"}
    failed = canary(
        cluster("paris", STARTED, condition("Succeeded", "False", at="09:40")), **end
    )
    failed["conditions"] = [condition("Succeeded", "False")]
    put_run(
        live, run_status(progressing("UpdateRunFailed"), FAILED, stages=[failed, PROD])
    )
    result = result_in(run_of(live))
    assert result is not None
    assert (result.run.stages[0].ended_at, result.run.stages[0].steps[0].failures) == (
        None,
        1,
    )

    done = canary(
        cluster("paris", STARTED, DONE), conditions=[condition("Succeeded")], **end
    )
    put_run(
        live,
        run_status(progressing("UpdateRunProgressing", "True"), stages=[done, PROD]),
    )
    result = result_in(run_of(live))
    assert result is not None
    assert (result.run.stages[0].ended_at.minute, result.run.position) == (40, 1)  # type: ignore[union-attr]


def test_what_a_status_has_of_a_newer_version_is_left_out(
    live: ProjectedHub, admin_client: Client
) -> None:
    status = run_status(stages=[canary(cluster("paris"), {}), {"stageName": "new"}])
    status["stagedUpdateStrategySnapshot"]["stages"][0]["newField"] = 1

    put_run(live, status)

    assert live.mark(RUN, "web-1")[1:] == (
        [
            "status.stagedUpdateStrategySnapshot.stages[0].newField",
            "status.stagesStatus[0].clusters[1].clusterName",
            "status.stagesStatus[1].stageName",
        ],
        "",
    )
    assert (
        admin_client.get("/hubs/prod-eu/rollouts/staged/runs/web-1/").status_code == 200
    )


@pytest.mark.nightly
@pytest.mark.servers
def test_a_run_finds_its_placement_and_snapshot_whichever_comes_first(
    live: ProjectedHub,
) -> None:
    put_run(live, run_status())
    assert (run_of(live).placement_id, run_of(live).resource_snapshot_id) == (
        None,
        None,
    )

    put_web(live)
    live.project()
    assert str(run_of(live).resource_snapshot) == "web-0-snapshot"

    live.remove("ClusterResourcePlacement", "web")
    live.project()
    assert (run_of(live).placement_id, run_of(live).placement_name) == (None, "web")

    live.remove(RUN, "web-1")
    live.project()
    with live.scope():
        assert not StagedRun.objects.exists()


APPROVED = condition("Approved", at="09:50")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("conditions", "is_approved", "is_accepted"),
    [
        ((), False, False),
        ((APPROVED,), True, False),
        (({**APPROVED, "observedGeneration": 7},), False, False),
        ((condition("Approved", "False"),), False, False),
        ((APPROVED, condition("ApprovalAccepted")), True, True),
        (
            ({**APPROVED, "observedGeneration": 7}, condition("ApprovalAccepted")),
            True,
            True,
        ),
    ],
)
def test_an_approval_counts_at_its_generation_or_once_it_was_accepted(
    live: ProjectedHub, conditions: Any, is_approved: bool, is_accepted: bool
) -> None:
    put_run(live, run_status())
    live.put(APPROVAL, approval("web-1", "canary", *conditions))
    live.project()

    with live.scope():
        row = ApprovalRequest.objects.select_related("run").get()
    assert (row.run.name, row.stage, row.side) == ("web-1", "canary", "after")
    assert (row.approved_at is not None, row.accepted_at is not None) == (
        is_approved,
        is_accepted,
    )


@pytest.mark.nightly
@pytest.mark.servers
def test_pending_approvals_are_listed_and_their_end_is_an_event(
    live: ProjectedHub, admin_client: Client
) -> None:
    live.put(APPROVAL, approval("web-1", "canary"))
    live.project()
    assert (
        live.mark(APPROVAL, "web-1-after-canary")[2]
        == "its staged update run is not in the mirror"
    )
    put_web(live)
    status = run_status(
        progressing("UpdateRunWaiting"),
        stages=[
            canary(cluster("paris", STARTED, DONE), afterStageTaskStatus=WAITS),
            PROD,
        ],
    )
    put_run(live, status)
    pending = "/hubs/prod-eu/rollouts/?waiting=approval"
    assert b"web-1" in admin_client.get(pending).content

    content = approval("web-1", "canary", APPROVED)
    content["metadata"]["managedFields"] = [
        *written_by("alice", "status", at="09:50"),
        *written_by("cluster-staged-update-run-controller", "status", at="09:51"),
    ]
    live.put(APPROVAL, content)
    live.project()

    assert b"web-1" not in admin_client.get(pending).content
    with live.scope():
        event = Event.objects.get(verb="approved")
        assert (event.actor_name, event.kind, event.name) == (
            "alice",
            "staged-run",
            "web-1",
        )
        assert ApprovalRequest.objects.get().approved_by == "alice"
    assert (
        b"by alice"
        in admin_client.get("/hubs/prod-eu/rollouts/staged/runs/web-1/").content
    )

    live.remove(APPROVAL, "web-1-after-canary")
    live.project()
    with live.scope():
        assert not ApprovalRequest.objects.exists()


def test_strategies_have_pages(live: ProjectedHub, admin_client: Client) -> None:
    live.put("ClusterStagedUpdateStrategy", strategy("canary-first", "canary", "prod"))
    live.project()
    changed = strategy("canary-first", "canary", "prod")
    changed["spec"]["stages"][1]["maxConcurrency"] = "25%"
    changed["metadata"]["generation"] = 2
    live.put("ClusterStagedUpdateStrategy", changed)
    live.project()

    with live.scope():
        row = StagedStrategy.objects.get()
    assert (row.revision, row.document["spec"]["stages"][1]["maxConcurrency"]) == (
        2,
        "25%",
    )
    page = admin_client.get(
        "/hubs/prod-eu/rollouts/staged/strategies/canary-first/"
    ).content.decode()
    assert "25%" in page
    assert "changed on the hub" in page
    assert (
        b"canary"
        in admin_client.get("/hubs/prod-eu/rollouts/staged/strategies/").content
    )


@pytest.mark.nightly
def test_runs_in_namespaces_are_apart_from_those_of_the_cluster(
    live: ProjectedHub, admin_client: Client
) -> None:
    put_web(live)
    live.put("ResourcePlacement", placement("web", namespace="shop"))
    live.put(RUN, {**staged_run("web-1"), "status": run_status()})
    live.put(
        "StagedUpdateRun",
        {**staged_run("web-1", namespace="shop"), "status": run_status()},
    )
    live.put(
        "StagedUpdateStrategy", strategy("canary-first", "canary", namespace="shop")
    )
    live.put("ApprovalRequest", approval("web-1", "canary", namespace="shop"))
    live.project()

    with live.scope():
        runs = dict(StagedRun.objects.values_list("full_name", "placement__full_name"))
        requests = list(
            ApprovalRequest.objects.values_list("run__full_name", flat=True)
        )
        strategies = list(StagedStrategy.objects.values_list("full_name", flat=True))
    assert runs == {"web-1": "web", "shop/web-1": "shop/web"}
    assert (requests, strategies) == (["shop/web-1"], ["shop/canary-first"])
    for name in ("web-1", "shop:web-1"):
        assert (
            admin_client.get(f"/hubs/prod-eu/rollouts/staged/runs/{name}/").status_code
            == 200
        )

    live.remove(RUN, "web-1")
    live.project()
    with live.scope():
        assert [one.full_name for one in StagedRun.objects.all()] == ["shop/web-1"]


@pytest.mark.nightly
def test_no_button_of_a_run_is_shown(live: ProjectedHub, client: Client) -> None:
    put_web(live)
    stages = [canary(cluster("paris", STARTED, DONE), afterStageTaskStatus=WAITS), PROD]
    put_run(live, run_status(progressing("UpdateRunWaiting"), stages=stages))
    live.put(APPROVAL, approval("web-1", "canary"))
    live.project()
    client.force_login(person("root", "operator", "approver"))

    for address in ("staged/runs/web-1/", "?waiting=approval", "staged/strategies/"):
        page = client.get(f"/hubs/prod-eu/rollouts/{address}").content.decode()
        for words in (
            "Pause run",
            "Abort run",
            "Approve stage",
            "Skip wait",
            "Create strategy",
        ):
            assert words not in page, address


def test_a_run_that_is_projected_before_the_first_rollout_has_its_revision(
    live: ProjectedHub,
) -> None:
    put_web(live)
    put_run(live, {**run_status(), "resourceSnapshotIndexUsed": "0"})
    run = run_of(live)
    assert run.placement is not None
    expected = run.placement.spec_generation  # with the snapshot of number 0

    assert run.resource_snapshot is not None
    assert run.revision_number == run.resource_snapshot.revision_number == expected
