"""Staged updates and overrides over REST."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from rest_framework.test import APIClient

from placements.services.resources.operations import apply_resources
from placements.services.results import stored_document
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.scheduling import schedule_due
from tests.rows import joined, namespace, placement_document
from tests.services.rollouts.overrides import annotate, for_clusters, for_resource, rule
from tests.services.rollouts.staged import (
    run_document,
    stage,
    staged_spec,
    strategy_document,
)

RUN = "/api/v1/staged-runs/one"
TIER = "/api/v1/overrides/ClusterResourceOverride/-/tier"


def work() -> None:
    """Do what is due."""
    now = datetime.now(UTC)
    while schedule_due(now=now) + sync_due_rollouts(now=now):
        pass


@pytest.fixture
def waiting(api: APIClient) -> APIClient:
    """Return an operator whose run waits for an approval."""
    joined("a", stage="prod")
    apply_resources([namespace("shop")], by=None, now=datetime.now(UTC))
    api.put(
        "/api/v1/staged-strategies/careful",
        strategy_document(stage("prod", before=True)),
    )
    api.put("/api/v1/placements/web", placement_document("web", staged_spec()))
    assert api.put(RUN, run_document("one")).status_code == 201
    work()
    return api


@pytest.mark.nightly
def test_progress_has_facts_and_sentences(waiting: APIClient) -> None:
    found = waiting.get(f"{RUN}/progress").json()

    assert found["sentences"] == ["Waiting for approval before stage prod."]
    assert found["waits"] == [
        {"for": "approval-before", "stage": "prod", "clusters": [], "until": None}
    ]
    assert [
        (cluster["name"], cluster["state"])
        for cluster in found["stages"][0]["clusters"]
    ] == [("a", "to come")]
    assert found["approvals"][0]["name"] == "one-before-prod"
    assert (
        waiting.get("/api/v1/staged-runs?placement=web&active=true").json()["items"][0][
            "name"
        ]
        == "one"
    )
    assert waiting.get("/api/v1/staged-runs?active=false").json()["items"] == []


@pytest.mark.nightly
def test_a_run_says_that_its_placement_is_paused(waiting: APIClient) -> None:
    waiting.post("/api/v1/placements/web/pause")

    first, *_ = waiting.get(f"{RUN}/progress").json()["sentences"]

    assert (
        first
        == "web is paused by operator: no new updates start, and no stage continues."
    )


def test_a_run_waits_for_valid_selectors(api: APIClient) -> None:
    joined("a", stage="prod")
    api.put("/api/v1/staged-strategies/careful", strategy_document(stage("prod")))
    twice = [{"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}] * 2
    api.put(
        "/api/v1/placements/web",
        placement_document("web", staged_spec() | {"resourceSelectors": twice}),
    )
    api.put(RUN, run_document("one"))
    apply_resources([namespace("shop")], by=None, now=datetime.now(UTC))
    work()

    found = api.get(f"{RUN}/progress").json()["sentences"]

    assert found == ["The resource selectors of the placement are invalid."]


@pytest.mark.nightly
def test_an_approver_lets_a_stage_go_on_and_an_operator_may_not(
    waiting: APIClient, caller: Callable[..., APIClient]
) -> None:
    refused = waiting.post(f"{RUN}/approve", {"stage": "prod"})

    approved = caller("approver").post(f"{RUN}/approve", {"stage": "prod"})

    assert (refused.status_code, approved.status_code) == (403, 200)
    assert approved.json()["approvals"][0]["approvedBy"] == "approver"


@pytest.mark.nightly
def test_actions_that_are_not_allowed_are_refused(waiting: APIClient) -> None:
    answers = [
        waiting.post(f"{RUN}/skip-wait", {"stage": "prod"}),
        waiting.post(f"{RUN}/retry", {"cluster": "a"}),
        waiting.post(f"{RUN}/retry", {"clusters": "a"}),
        waiting.post(f"{RUN}/state", {"state": "Initialize"}),
    ]

    assert [answer.status_code for answer in answers] == [409, 409, 422, 422]
    assert answers[0].json()["type"] == "urn:fleetui:problem:refused"


@pytest.mark.nightly
def test_a_run_is_stopped_resumed_and_abandoned(waiting: APIClient) -> None:
    assert waiting.post(f"{RUN}/state", {"state": "Stop"}).status_code == 200
    work()
    assert waiting.get(f"{RUN}/progress").json()["status"] == "stopped"
    waiting.post(f"{RUN}/state", {"state": "Run"})

    assert waiting.post(f"{RUN}/abandon").json()["status"] == "abandoned"

    assert waiting.post(f"{RUN}/abandon").status_code == 409
    conditions = waiting.get(RUN).json()["status"]["conditions"]
    assert conditions[-1]["reason"] == "UpdateRunFailed"


def test_a_run_of_what_is_not_there_is_refused_with_paths(api: APIClient) -> None:
    answer = api.put(RUN, run_document("one"))

    assert answer.status_code == 422
    paths = [error["path"] for error in answer.json()["faults"]]
    assert paths == ["spec.placementName", "spec.stagedRolloutStrategyName"]


def test_what_is_not_there_is_404(api: APIClient) -> None:
    for path in (RUN, f"{RUN}/progress", "/api/v1/staged-strategies/none", TIER):
        assert api.get(path).status_code == 404


def test_an_override_is_put_read_and_deleted(api: APIClient) -> None:
    document = for_clusters("tier", rule(annotate(tier="1")))

    answers = [api.put(TIER, document), api.put(TIER, document), api.get(TIER)]

    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert stored_document(answers[2].json()) == document
    assert api.get("/api/v1/overrides").json()["items"][0]["name"] == "tier"
    assert api.delete(TIER, headers={"If-Match": '"7"'}).status_code == 412
    assert api.delete(TIER).status_code == 204


def test_an_override_that_the_address_does_not_name_is_refused(api: APIClient) -> None:
    inner = for_resource("inner", rule(annotate(a="b")))

    assert api.put(TIER, inner).status_code == 422
    assert (
        api.put("/api/v1/overrides/ResourceOverride/other/inner", inner).status_code
        == 422
    )
    assert (
        api.put("/api/v1/overrides/ResourceOverride/shop/inner", inner).status_code
        == 201
    )
