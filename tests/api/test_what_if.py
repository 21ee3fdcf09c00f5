"""The loss of clusters over REST."""

import pytest
from rest_framework.test import APIClient

from placements.models import Decision
from tests.builders import spread
from tests.rows import decided, joined, pick_n_spec

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _web() -> None:
    joined("bravelion", region="east")
    joined("jumpingcat", region="west")
    joined("nimblefox", region="west")
    decided("web", pick_n_spec(2, topologySpreadConstraints=[spread("region")]))


def test_a_viewer_evaluates_a_loss(reader: APIClient) -> None:
    lost = {"labels": ["region:west"], "clusters": ["bravelion"], "variant": "cordon"}

    answer = reader.post("/api/v1/what-if", lost, format="json")
    document = answer.json()

    assert answer.status_code == 200
    assert document["clusters"] == ["bravelion", "jumpingcat", "nimblefox"]
    assert document["chosenBy"] == "3 clusters, region=west and bravelion"
    assert (document["evaluated"], document["notEvaluated"], document["decision"]) == (
        1,
        0,
        None,
    )
    assert document["fates"] == {
        "down": {"down": 1},
        "leave": {"stuck": 1},
        "cordon": {"stuck": 1},
    }
    [row] = document["placements"]
    assert (row["placement"], row["fate"], row["placedAfter"]) == ("web", "stuck", 0)


def test_a_placement_has_its_moves_and_its_decision(reader: APIClient) -> None:
    lost = {"clusters": ["nimblefox"], "decision": "web"}

    document = reader.post("/api/v1/what-if", lost, format="json").json()
    [row] = document["placements"]

    assert row["scores"] == [
        {"cluster": "jumpingcat", "topologySpreadScore": 1, "affinityScore": 0}
    ]
    assert (row["joins"], row["leaves"]) == (["jumpingcat"], ["nimblefox"])
    assert (row["placedBefore"], row["placedAfter"], row["message"]) == (
        2,
        2,
        "Replacement: jumpingcat.",
    )
    assert (document["decision"]["picked"], document["decision"]["kept"]) == (
        ["jumpingcat"],
        ["bravelion"],
    )
    assert Decision.objects.count() == 1


def test_a_choice_without_clusters_is_refused_with_paths(reader: APIClient) -> None:
    answers = [
        reader.post("/api/v1/what-if", body, format="json")
        for body in ({"clusters": ["missing"]}, {}, {"cluster": "bravelion"})
    ]

    assert [answer.status_code for answer in answers] == [422, 422, 422]
    assert [answer.json()["faults"][0]["path"] for answer in answers] == [
        "clusters[0]",
        "clusters",
        "cluster",
    ]
