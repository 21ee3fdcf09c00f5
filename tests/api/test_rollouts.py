"""Rollouts, plans and actions over REST."""

import pytest
from rest_framework.test import APIClient

from placements.models import Binding, Placement
from tests.rows import pick_n_spec, placement_document
from tests.services.rollouts.world import (
    World,
    one_at_a_time,
    updating_world,
    world_once,
)

pytestmark = pytest.mark.django_db
WEB = "/api/v1/placements/web"


@pytest.fixture
def world() -> World:
    """Make three clusters in the middle of an update, one cluster at a time."""
    return world_once("one at a time", updating_world)


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_lists_runs_the_newest_first_and_filters(reader: APIClient) -> None:
    def numbers(query: str) -> list[int]:
        return [
            item["number"]
            for item in reader.get(f"/api/v1/rollouts{query}").json()["items"]
        ]

    assert numbers("") == [2, 1]
    assert numbers("?state=finished") == [1]
    assert numbers("?placement=missing") == []
    assert reader.get("/api/v1/rollouts?state=odd").status_code == 400
    assert (
        reader.get(reader.get("/api/v1/rollouts?limit=1").json()["next"]).json()[
            "items"
        ][0]["number"]
        == 1
    )


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_a_rollout_has_facts_reasons_and_clusters(reader: APIClient) -> None:
    run = reader.get("/api/v1/rollouts/web/2").json()

    assert run["waves"] == [["c000"], ["c001"], ["c002"]]
    assert run["resourceSnapshot"] == 1
    assert run["answer"]["budgets"]["updates"]["floor"] == 2
    assert run["answer"]["waitingCount"] == 2
    waiting = run["sentences"]["waiting"][0]
    assert (waiting["clusters"], waiting["freedBy"]) == (
        ["c001", "c002"],
        "c000 is available",
    )
    rows = [
        (cluster["cluster"], cluster["wave"], cluster["running"], cluster["wanted"])
        for cluster in run["clusters"]
    ]
    assert rows == [
        ("c000", 1, "revision 2", "revision 2"),
        ("c001", 2, "revision 1", "revision 2"),
        ("c002", 3, "revision 1", "revision 2"),
    ]


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_a_run_lists_its_clusters_and_its_starts(reader: APIClient) -> None:
    first = reader.get("/api/v1/rollouts/web/2/clusters?limit=2").json()
    second = reader.get(first["next"]).json()
    starts = reader.get("/api/v1/rollouts/web/2/updates").json()["items"]

    assert [item["cluster"] for item in first["items"] + second["items"]] == [
        "c000",
        "c001",
        "c002",
    ]
    assert second["next"] is None
    assert [
        (start["cluster"], start["what"], start["outcome"]) for start in starts
    ] == [("c000", "update", "")]


def test_a_run_that_is_not_there_is_a_problem(reader: APIClient) -> None:
    answer = reader.get("/api/v1/rollouts/web/9")

    assert answer.status_code == 404
    assert answer.json()["type"] == "urn:fleetui:problem:unknown-run"


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_plans_what_is_left_to_do(reader: APIClient) -> None:
    plan = reader.get(f"{WEB}/plan").json()

    assert [
        [action["cluster"] for action in wave["actions"]] for wave in plan["waves"]
    ] == [
        ["c001"],
        ["c002"],
    ]
    assert plan["rest"]["verdict"] == "finished"


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
def test_plans_a_draft_without_saving_it(reader: APIClient) -> None:
    before = Placement.objects.get().document
    draft = placement_document("web", one_at_a_time(maxUnavailable=3))

    plan = reader.post(f"{WEB}/plan", draft).json()

    assert [wave["count"] for wave in plan["waves"]] == [2]
    assert Placement.objects.get().document == before


def test_plans_a_draft_of_a_placement_that_is_not_there(reader: APIClient) -> None:
    World(3)

    plan = reader.post(
        "/api/v1/placements/db/plan", placement_document("db", pick_n_spec(2))
    ).json()

    assert [wave["count"] for wave in plan["waves"]] == [2]
    other = reader.post(
        "/api/v1/placements/else/plan", placement_document("db", pick_n_spec(2))
    )
    reserved = reader.post(
        "/api/v1/placements/new/plan", placement_document("new", pick_n_spec(2))
    )
    assert (other.status_code, reserved.status_code) == (422, 422)


@pytest.mark.nightly
def test_pauses_and_resumes(api: APIClient, world: World) -> None:
    paused = api.post(f"{WEB}/pause")
    again = api.post(f"{WEB}/pause").json()
    world.work()

    assert (paused.status_code, paused.json()["pausedBy"], paused.json()["run"]) == (
        200,
        "operator",
        2,
    )
    assert again["revision"] == paused.json()["revision"]
    run = api.get("/api/v1/rollouts/web/2").json()
    assert {one["block"] for one in run["answer"]["waiting"]} == {"paused"}
    assert api.post(f"{WEB}/resume").json()["pausedSince"] is None


@pytest.mark.nightly
def test_stops_starts_rolls_back_and_unpins(api: APIClient, world: World) -> None:
    assert api.post(f"{WEB}/stop").json()["stopped"] is True
    assert api.post(f"{WEB}/start").json()["stopped"] is False
    held = api.post(f"{WEB}/rollback", {"resourceSnapshot": 0}).json()
    world.work()

    assert held["heldAt"] == 2
    assert (
        api.get("/api/v1/rollouts/web/3").json()["because"]
        == "rolled back to revision 1"
    )
    assert api.post(f"{WEB}/unpin").json()["heldAt"] is None


@pytest.mark.nightly
def test_tries_again_what_failed(api: APIClient, world: World) -> None:
    world.inject("c000", {"kind": "refuse", "objectName": "web"})
    world.change()
    world.work()
    world.pass_time(2)

    answer = api.post(f"{WEB}/retry", {})

    assert answer.status_code == 200, answer.content
    assert api.post(f"{WEB}/retry", {"cluster": "c000"}).status_code == 200
    assert Binding.objects.get(cluster_name="c000").retry_at is None
    refused = api.post(f"{WEB}/retry", {"cluster": "c002"})
    assert refused.status_code == 409
    assert "only what failed can be retried" in refused.json()["detail"]


@pytest.mark.nightly
@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    "name", ["pause", "resume", "stop", "start", "rollback", "unpin"]
)
def test_an_action_honors_if_match(api: APIClient, name: str) -> None:
    body = {"resourceSnapshot": 0} if name == "rollback" else None

    answer = api.post(f"{WEB}/{name}", body, headers={"If-Match": '"77"'})

    assert answer.status_code == 412
    assert answer.json()["type"] == "urn:fleetui:problem:stale-edit"


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("start", None, 409),
        ("unpin", None, 409),
        ("rollback", {"resourceSnapshot": 9}, 409),
        ("rollback", {"number": 0}, 422),
        ("rollback", {"resourceSnapshot": "x"}, 422),
        ("retry", [], 422),
    ],
)
def test_refuses_actions_that_are_not_allowed(
    api: APIClient, name: str, body: object, status: int
) -> None:
    assert api.post(f"{WEB}/{name}", body).status_code == status


def test_an_action_on_an_unknown_placement_is_not_found(api: APIClient) -> None:
    assert api.post("/api/v1/placements/missing/pause").status_code == 404
