"""Evictions, budgets, drains, faults and forgotten clusters over the API."""

import pytest
from rest_framework.test import APIClient

from placements.models import Drain, DrainStep
from placements.services.disruption.drains import advance_drains
from placements.services.results import stored_document
from tests.rows import all_joined, decided, pick_n_spec, simulated, spec
from tests.services.rollouts.test_evictions import budget
from tests.services.rollouts.world import settled_world

pytestmark = pytest.mark.django_db
WEB = "/api/v1/placements/web"


def test_a_budget_is_put_read_and_deleted(api: APIClient) -> None:
    all_joined("a", "b")
    decided("web", pick_n_spec(2))

    made = api.put(f"{WEB}/budget", budget(maxUnavailable=0), format="json")

    assert (made.status_code, made.headers["ETag"]) == (201, '"1"')
    assert stored_document(api.get(f"{WEB}/budget").json()) == budget(maxUnavailable=0)
    stale = api.put(
        f"{WEB}/budget",
        budget(maxUnavailable=1),
        format="json",
        headers={"If-Match": '"7"'},
    )
    assert stale.status_code == 412
    assert api.delete(f"{WEB}/budget").status_code == 204
    assert api.get(f"{WEB}/budget").status_code == 404


def test_a_budget_that_does_not_go_with_the_type_is_refused(api: APIClient) -> None:
    decided("web", spec())

    answer = api.put(f"{WEB}/budget", budget(maxUnavailable=1), format="json")

    assert answer.status_code == 422
    assert answer.json()["faults"][0]["path"] == "spec.maxUnavailable"


@pytest.mark.nightly
def test_an_eviction_answers_what_became_of_it(api: APIClient) -> None:
    settled_world(3, pick_n_spec(3))
    api.put(f"{WEB}/budget", budget(maxUnavailable=1), format="json")

    answers = [
        api.post(f"{WEB}/evict", {"cluster": one}, format="json").json()
        for one in ("c000", "c001")
    ]

    assert [(answer["outcome"], answer["why"]) for answer in answers] == [
        ("executed", "within-budget"),
        ("not-executed", "over-budget"),
    ]
    assert answers[1]["message"].endswith("(2 of 3 available, 0 may go).")
    listed = api.get(f"{WEB}/evictions").json()["items"]
    assert [one["cluster"] for one in listed] == ["c001", "c000"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "body", [{}, {"cluster": 3}, {"cluster": "a", "force": True}, ["a"]]
)
def test_an_eviction_without_a_cluster_is_refused(api: APIClient, body: object) -> None:
    decided("web", spec())

    assert api.post(f"{WEB}/evict", body, format="json").status_code == 422
    assert (
        api.post(
            "/api/v1/placements/no/evict", {"cluster": "a"}, format="json"
        ).status_code
        == 404
    )


def test_a_drain_shows_what_it_would_do_then_how_far_it_is_and_is_cancelled(
    api: APIClient,
) -> None:
    settled_world(2, spec())
    drain = "/api/v1/clusters/c001/drain"
    before = api.get(drain).json()
    assert before["drain"] is None
    assert before["impact"] == [
        {
            "placement": "web",
            "fate": "shrinks",
            "wasFulfilled": True,
            "isFulfilled": True,
            "message": "No replacement needed (PickAll).",
            "joins": [],
            "leaves": ["c001"],
            "scores": [],
            "objectsOutOfService": 0,
            "placedBefore": 2,
            "placedAfter": 1,
            "exceededLimits": [],
        }
    ]

    assert api.post(drain).status_code == 202
    advance_drains(now=Drain.objects.get().requeue_at)

    assert api.get(drain).json()["drain"]["placements"][0]["state"] == "leaving"
    assert DrainStep.objects.get().placement_name == "web"
    assert api.delete(drain).json()["drain"]["state"] == "cancelled"
    assert api.delete(drain).status_code == 409
    assert api.get("/api/v1/clusters/none/drain").status_code == 404


def test_faults_of_a_simulated_cluster_are_replaced(api: APIClient) -> None:
    simulated("s")
    all_joined("real")

    answer = api.put(
        "/api/v1/clusters/s/fault-injection", [{"kind": "silent"}], format="json"
    )

    assert answer.json() == [{"kind": "silent"}]
    assert api.get("/api/v1/clusters/s/fault-injection").json() == [{"kind": "silent"}]
    assert (
        api.put(
            "/api/v1/clusters/s/fault-injection", [{"kind": "odd"}], format="json"
        ).status_code
        == 422
    )
    assert api.get("/api/v1/clusters/real/fault-injection").status_code == 409


def test_no_cluster_is_abandoned_without_a_deletion(api: APIClient) -> None:
    all_joined("a")
    decided("web", spec())

    answer = api.post(f"{WEB}/abandon-cluster", {"cluster": "a"}, format="json")

    assert answer.status_code == 409
    assert "not being deleted" in answer.json()["detail"]


def test_apply_takes_budgets_and_evictions(api: APIClient) -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))
    eviction = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacementEviction",
        "metadata": {"name": "off-a"},
        "spec": {"placementName": "web", "clusterName": "a"},
    }

    first = api.post(
        "/api/v1/apply", [eviction, budget(maxUnavailable=1)], format="json"
    ).json()["items"]
    again = api.post("/api/v1/apply", eviction, format="json").json()["items"]

    assert [(one["kind"], one["name"], one["did"]) for one in first] == [
        ("eviction", "off-a", "not-executed"),
        ("budget", "web", "created"),
    ]
    assert first[0]["message"] == "Not executed: nothing was placed there yet."
    assert [one["did"] for one in again] == ["unchanged"]
    other = {**eviction, "spec": {"placementName": "web", "clusterName": "b"}}
    assert api.post("/api/v1/apply", other, format="json").status_code == 422
