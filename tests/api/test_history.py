"""The overview, the search, the history of a placement, and comparisons."""

import pytest
from rest_framework.test import APIClient

from tests.rows import decided, joined, pick_n_spec

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _two_policies() -> None:
    """Decide a placement under two policies on two clusters."""
    joined("a", region="east")
    joined("b", region="west")
    decided("web", pick_n_spec(1))
    spread = [
        {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    ]
    decided("web", pick_n_spec(2, topologySpreadConstraints=spread))


@pytest.mark.nightly
def test_the_overview_counts(reader: APIClient) -> None:
    overview = reader.get("/api/v1/overview").json()

    assert (overview["clusters"], overview["placements"], overview["notFulfilled"]) == (
        2,
        1,
        0,
    )
    assert set(overview) >= {
        "selectorsAtFault",
        "beingDecided",
        "notEligible",
        "runsRunning",
        "runsWaiting",
    }


@pytest.mark.nightly
def test_the_search_finds_placements_and_clusters(reader: APIClient) -> None:
    assert reader.get("/api/v1/search?q=web").json()["placements"] == ["web"]
    assert reader.get("/api/v1/search?q=a").json()["clusters"] == ["a"]


def test_the_history_lists_policies_and_decisions(reader: APIClient) -> None:
    items = reader.get("/api/v1/placements/web/history").json()["items"]

    assert {item["kind"] for item in items} >= {"policy", "decision"}
    assert all(
        set(item) == {"key", "kind", "number", "at", "by", "because"} for item in items
    )


@pytest.mark.nightly
def test_the_history_leaves_out_decisions_that_changed_nothing(
    reader: APIClient,
) -> None:
    decided("web", pick_n_spec(2))

    def decisions(query: str) -> list[int]:
        items = reader.get(f"/api/v1/placements/web/history{query}").json()["items"]
        return [item["number"] for item in items if item["kind"] == "decision"]

    assert decisions("?unchanged=true") == [3, *decisions("")]
    assert reader.get("/api/v1/placements/web/history?unchanged=x").status_code == 400


def test_two_policies_are_compared_with_their_decisions(reader: APIClient) -> None:
    found = reader.get("/api/v1/placements/web/compare/p0..p1").json()

    assert (found["before"]["key"], found["after"]["key"]) == ("p0", "p1")
    assert found["decision"]["joins"] == ["a"]
    assert all(
        set(group) == {"key", "group", "before", "after", "clusters"}
        for group in found["decision"]["groups"]
    )
    assert (found["resources"], found["sameResources"]) == (None, 0)
    assert reader.get("/api/v1/placements/web/compare/p0..s0").status_code in (404, 422)
