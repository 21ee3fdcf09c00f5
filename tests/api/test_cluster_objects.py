"""Objects of placements on clusters over REST: their states, drift, and applying them again."""

from typing import Any

import pytest
from rest_framework.test import APIClient

from fleetui.models import Event
from placements.engine.rollout.state import Phase
from placements.models import Binding, ObservedObjects
from tests.rows import NOW
from tests.services.rollouts.world import World

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("world")]
PLACEMENT = "/api/v1/placements/web"


def drift(name: str = "web", *fields: str, kind: str = "Deployment") -> dict[str, Any]:
    """Make a row of differences as a binding has it."""
    return {
        "group": "apps" if kind == "Deployment" else "",
        "version": "v1",
        "kind": kind,
        "namespace": "shop",
        "name": name,
        "generation": 3,
        "observed": NOW.isoformat(),
        "since": NOW.isoformat(),
        "fields": [[path, '"2"', '"1"'] for path in fields or ("/spec/replicas",)],
        "isDegraded": False,
        "isTruncated": False,
    }


@pytest.fixture
def world() -> World:
    found = World(clusters=3)
    namespace = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
    found.place("web", {"resourceSelectors": [namespace]})
    found.run(until=found.is_settled)
    return found


def on(cluster: str, **columns: Any) -> Binding:
    rows = Binding.objects.filter(cluster_name=cluster)
    if columns:
        rows.update(**columns)
    return rows.get()


@pytest.mark.nightly
def test_objects_are_listed_in_the_order_of_applying(api: APIClient) -> None:
    on("c000", drifted_objects=[drift()])
    page = api.get(f"{PLACEMENT}/bindings/c000/objects").json()
    found = [(item["wave"], item["kind"], item["state"]) for item in page["items"]]
    assert found == [(0, "Namespace", "Available"), (4, "Deployment", "Available")]
    [difference] = page["items"][1]["differences"]
    assert difference["differingFields"] == [
        {"path": "/spec/replicas", "inMember": '"2"', "inHub": '"1"'}
    ]
    assert difference["type"] == "Drift"
    page = api.get(f"{PLACEMENT}/bindings/c000/objects?limit=1").json()
    assert [item["kind"] for item in api.get(page["next"]).json()["items"]] == [
        "Deployment"
    ]
    assert api.get(f"{PLACEMENT}/bindings/moon/objects").status_code == 404


@pytest.mark.nightly
def test_failed_object_has_the_message_of_the_server(api: APIClient) -> None:
    error = {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
    }
    error |= {"code": "NotTakenOver", "message": "exists already"}
    on("c001", phase=Phase.FAILED, failure="refused", failed_objects=[error])
    namespace, web = api.get(f"{PLACEMENT}/bindings/c001/objects").json()["items"]
    assert (namespace["state"], web["state"], web["reason"]) == (
        "Applied",
        "Failed",
        "NotTakenOver",
    )
    assert web["message"] == "exists already"
    assert "whenToTakeOver" in web["hint"]
    on("c001", failure="override", failed_objects=[])
    states = {
        item["state"]
        for item in api.get(f"{PLACEMENT}/bindings/c001/objects").json()["items"]
    }
    assert states == {"Pending"}


def test_drifts_are_filtered_and_paged(api: APIClient) -> None:
    on(
        "c000",
        drifted_objects=[
            drift("web", "/spec/replicas"),
            drift("a", "/data/x", kind="ConfigMap"),
        ],
    )
    on(
        "c002",
        drifted_objects=[drift("web", "/spec")],
        diffed_objects=[drift("b", kind="ConfigMap")],
    )

    def names(query: str = "") -> list[tuple[str, str]]:
        response = api.get(f"{PLACEMENT}/drifts{query}")
        assert response.status_code == 200, response.content
        return [(item["cluster"], item["name"]) for item in response.json()["items"]]

    everything = [("c000", "a"), ("c000", "web"), ("c002", "b"), ("c002", "web")]
    assert names() == everything
    assert names("?cluster=c002&type=Drift") == [("c002", "web")]
    assert names("?kind=ConfigMap") == [("c000", "a"), ("c002", "b")]
    assert names("?path=/spec/replicas&type=Drift") == [
        ("c000", "web"),
        ("c002", "web"),
    ]
    assert names("?path=/spec/rep") == [("c002", "web")]
    paged, address = [], f"{PLACEMENT}/drifts?limit=1"
    while address:
        page = api.get(address).json()
        paged += [(item["cluster"], item["name"]) for item in page["items"]]
        address = page["next"]
    assert paged == everything
    for bad in ("?after=x", "?after=WyJhIl0", "?type=All", "?clutser=a"):
        assert api.get(f"{PLACEMENT}/drifts{bad}").status_code == 400, bad


@pytest.mark.nightly
def test_binding_says_why_a_call_got_no_answer(api: APIClient) -> None:
    on(
        "c000",
        unavailable_code="timeout",
        objects_done=4,
        contested_since=NOW,
        drifted_objects=[drift()],
    )
    first, second, _ = api.get(f"{PLACEMENT}/bindings").json()["items"]
    assert (first["unavailableCode"], first["isBusy"], first["objectsDone"]) == (
        "timeout",
        True,
        4,
    )
    assert first["contestedSince"] is not None
    assert first["drifts"] == 1
    assert (second["unavailableCode"], second["isBusy"], second["objectsDone"]) == (
        "",
        False,
        None,
    )


def test_binding_shows_the_warnings_of_its_api_server(api: APIClient) -> None:
    warning = {
        "group": "",
        "kind": "Endpoints",
        "namespace": "shop",
        "name": "a",
        "messages": ["is old", "x"],
    }
    on("c000", warnings=[warning])

    first, second, _ = api.get(f"{PLACEMENT}/bindings").json()["items"]

    assert (first["warnings"], second["warnings"]) == ([warning], [])


@pytest.mark.nightly
def test_same_version_is_applied_again(world: World, api: APIClient) -> None:
    before = on("c001", unavailable_code="timeout")
    response = api.post(
        f"{PLACEMENT}/reapply", {"clusters": ["c001", "c001"]}, format="json"
    )
    assert (response.status_code, response.json()) == (202, {"clusters": ["c001"]})
    row = on("c001")
    assert (row.phase, row.applied_version) == (Phase.APPLYING, before.applied_version)
    assert row.next_call_at is not None
    assert row.unavailable_code == ""
    assert on("c000").phase == Phase.AVAILABLE
    assert Event.objects.get(verb="applied again").after == {"clusters": ["c001"]}
    on("c001", next_call_at=world.now)  # the clock of the world is behind
    world.pass_time(5)
    assert on("c001").phase == Phase.AVAILABLE


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("body", "status", "path"),
    [
        ({"clusters": ["c000", "moon"]}, 422, "clusters[1]"),
        ({"clusters": []}, 422, "clusters"),
        ({}, 422, "clusters"),
        ({"clusters": "c000"}, 422, "clusters"),
    ],
)
def test_unknown_clusters_change_nothing(
    api: APIClient, body: Any, status: int, path: str
) -> None:
    response = api.post(f"{PLACEMENT}/reapply", body, format="json")
    assert response.status_code == status, response.content
    assert path in response.content.decode()
    assert on("c000").phase == Phase.AVAILABLE


@pytest.mark.nightly
def test_readers_do_not_apply_again(reader: APIClient) -> None:
    assert (
        reader.post(
            f"{PLACEMENT}/reapply", {"clusters": ["c000"]}, format="json"
        ).status_code
        == 403
    )
    assert reader.get(f"{PLACEMENT}/drifts").json() == {"items": [], "next": None}


def test_live_states_have_uid_readiness_and_times(api: APIClient) -> None:
    row = ["", "Namespace", "", "shop", "uid-1", "available", "", "", NOW.isoformat()]
    ObservedObjects.objects.create(binding=on("c000", observed_at=NOW), rows=[row])

    namespace, deployment = api.get(f"{PLACEMENT}/bindings/c000/objects").json()[
        "items"
    ]

    since = namespace["live"].pop("since")
    assert namespace["live"] == {
        "isPresent": True,
        "uid": "uid-1",
        "readiness": "available",
        "reason": "",
        "hint": "",
    }
    assert since == namespace["observedAt"] == NOW.isoformat().replace("+00:00", "Z")
    assert deployment["live"] is None


@pytest.mark.nightly
def test_objects_are_read_by_operators_and_only_from_an_api_server(
    api: APIClient, reader: APIClient
) -> None:
    address = f"{PLACEMENT}/bindings/c000/objects/read"
    assert reader.post(address).status_code == 403
    answer = api.post(address)
    assert (answer.status_code, answer.json()["type"]) == (
        409,
        "urn:fleetui:problem:refused",
    )
