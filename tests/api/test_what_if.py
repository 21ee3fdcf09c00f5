"""What-if analyses over REST."""

import pytest
from rest_framework.test import APIClient

from placements.models import Scenario, ScenarioDecision
from tests.builders import spread
from tests.rows import decided, joined, pick_n_spec

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _web() -> None:
    joined("bravelion", region="east")
    joined("jumpingcat", region="west")
    joined("nimblefox", region="west")
    decided("web", pick_n_spec(2, topologySpreadConstraints=[spread("region")]))


@pytest.mark.nightly
def test_a_viewer_creates_a_scenario_and_reads_its_result(reader: APIClient) -> None:
    analysis = {"labels": ["region:west"], "clusters": ["bravelion"], "variant": "cordon"}

    created = reader.post("/api/v1/what-if", analysis, format="json")
    read = reader.get(created.headers["Location"]).json()
    rows = reader.get(created.json()["result"]).json()["items"]

    assert (created.status_code, created.json()["state"], read["state"]) == (201, "answered", "answered")
    assert read["clusters"] == ["bravelion", "jumpingcat", "nimblefox"]
    assert (read["done"], read["placements"], read["leftOut"]) == (1, 1, 0)
    assert read["fates"] == {"leave": {"stuck": 1}, "cordon": {"stuck": 1}}
    assert [(row["variant"], row["placement"], row["placedAfter"]) for row in rows] == [("cordon", "web", 0)]


def test_a_placement_has_its_moves_and_its_decision(reader: APIClient) -> None:
    number = reader.post("/api/v1/what-if", {"clusters": ["nimblefox"]}, format="json").json()["id"]

    [row] = reader.get(f"/api/v1/what-if/{number}/placements?fate=moves").json()["items"]
    decision = reader.get(f"/api/v1/decisions/{row['decision']}").json()

    assert row["joins"] == [{"cluster": "jumpingcat", "topologySpreadScore": 1, "affinityScore": 0}]
    assert (row["leaves"], row["placedBefore"], row["placedAfter"]) == (["nimblefox"], 2, 2)
    assert (decision["picked"], decision["kept"]) == (["jumpingcat"], ["bravelion"])
    assert reader.get(f"/api/v1/what-if/{number}/placements?fate=stuck").json()["items"] == []


@pytest.mark.nightly
def test_an_invalid_analysis_is_refused_with_paths(reader: APIClient) -> None:
    answers = [
        reader.post("/api/v1/what-if", body, format="json")
        for body in ({"clusters": ["missing"]}, {}, {"cluster": "bravelion"})
    ]

    assert [one.status_code for one in answers] == [422, 422, 422]
    assert [one.json()["faults"][0]["path"] for one in answers] == ["clusters[0]", "clusters", "cluster"]
    assert not Scenario.objects.exists()


def test_analyses_are_listed_newest_first(reader: APIClient) -> None:
    for name in ("bravelion", "nimblefox"):
        reader.post("/api/v1/what-if", {"clusters": [name]}, format="json")

    items = reader.get("/api/v1/what-if").json()["items"]

    assert [one["chosenBy"] for one in items] == ["nimblefox", "bravelion"]
    assert ScenarioDecision.objects.count() == 4


def test_an_unknown_analysis_is_not_found(reader: APIClient) -> None:
    answer = reader.get("/api/v1/what-if/4711")

    assert (answer.status_code, answer.json()["type"]) == (404, "urn:fleetui:problem:unknown-scenario")


@pytest.mark.nightly
def test_a_decision_is_compared_under_all_scheduling_rules(reader: APIClient) -> None:
    number = reader.post("/api/v1/what-if", {"clusters": ["nimblefox"]}, format="json").json()["id"]
    [row] = reader.get(f"/api/v1/what-if/{number}/placements?fate=moves").json()["items"]

    sides = reader.get(f"/api/v1/decisions/{row['decision']}/semantics").json()

    placed = {name: sorted(one["kept"] + one["picked"]) for name, one in sides["semantics"].items()}
    assert placed == {
        name: ["bravelion", "jumpingcat"] for name in ("fleet", "kubefleet", "ocm", "kubernetes")
    }
    assert (sides["comparedWith"], sides["sameClusters"]) == ("fleet", True)
