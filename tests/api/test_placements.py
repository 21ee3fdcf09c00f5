"""Placements over REST: manifests, round trips, bindings, decisions, snapshots."""

import pytest
from rest_framework.test import APIClient

from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.models import Event
from placements.models import Placement
from placements.services.results import stored_document
from tests.documents import OURS
from tests.rows import (
    all_joined,
    decided,
    namespace,
    pick_n_spec,
    placed,
    placement_document,
    run_due,
    saved,
)

PLACEMENTS = "/api/v1/placements"
EXAMPLES = [
    OURS / f"placement-{name}.yaml"
    for name in ("spread", "staged", "status-in-namespace")
]


def names(answer) -> list[str]:
    """Return the names on a page."""
    return [item["name"] for item in answer.json()["items"]]


def test_put_creates_and_the_same_again_changes_nothing(api: APIClient) -> None:
    document = placement_document("web", pick_n_spec(1))

    first = api.put(f"{PLACEMENTS}/web", document)
    again = api.put(f"{PLACEMENTS}/web", document)

    assert (first.status_code, again.status_code) == (201, 200)
    assert Event.objects.count() == 1


@pytest.mark.nightly
def test_what_was_applied_is_decided_and_read_back(api: APIClient) -> None:
    all_joined("a", "b")
    api.put(f"{PLACEMENTS}/web", placement_document("web", pick_n_spec(1)))

    run_due()

    status = api.get(f"{PLACEMENTS}/web").json()["status"]
    assert [one["clusterName"] for one in status["placementStatuses"]] == ["b"]
    assert api.get(f"{PLACEMENTS}/web/bindings").json()["items"][0]["cluster"] == "b"
    decision = api.get(f"{PLACEMENTS}/web/decisions").json()["items"][0]
    assert (decision["picked"], decision["fulfilled"], decision["joins"]) == (
        1,
        True,
        ["b"],
    )


@pytest.mark.nightly
def test_the_tag_changes_with_the_status_and_edits_mind_the_revision_alone(
    api: APIClient,
) -> None:
    all_joined("a")
    address = f"{PLACEMENTS}/web"
    before = api.put(address, placement_document("web", pick_n_spec(1))).headers["ETag"]
    run_due()

    seen = api.get(address, headers={"If-None-Match": before})
    edit = api.put(
        address, placement_document("web", pick_n_spec(2)), headers={"If-Match": before}
    )

    assert seen.status_code == 200
    assert edit.status_code == 200
    assert edit.headers["ETag"].startswith('"2-')


@pytest.mark.parametrize("kind", ["json", "yaml"])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_go_in_and_out_as_they_are(api: APIClient, path, kind: str) -> None:
    [document] = load_documents(path.read_text(encoding="utf-8"))
    address = f"{PLACEMENTS}/{document.data['metadata']['name']}"
    written = stored_document(document.data)
    put = api.generic(
        "PUT", address, dump_yaml(document.data), content_type="application/yaml"
    )
    assert put.status_code == 201, put.content

    got = api.get(address, {"format": kind})
    back = api.generic("PUT", address, got.content, content_type=f"application/{kind}")

    [read] = load_documents(got.content)
    assert stored_document(read.data) == written
    assert (back.status_code, back.headers["ETag"]) == (200, got.headers["ETag"])
    assert Placement.objects.get().revision == 1


def test_yaml_is_answered_when_it_is_accepted(reader: APIClient) -> None:
    saved("web", pick_n_spec(1))

    answer = reader.get(f"{PLACEMENTS}/web", headers={"accept": "application/yaml"})

    assert answer.headers["Content-Type"] == "application/yaml; charset=utf-8"
    assert b"apiVersion: placement.kubernetes-fleet.io/v1\n" in answer.content


def test_warnings_are_in_a_header(api: APIClient) -> None:
    answer = api.put(f"{PLACEMENTS}/web", placement_document("web", pick_n_spec(0)))

    assert answer.status_code == 201
    assert answer.headers["Warning"].startswith('299 fleetui "')


def test_deleting_takes_two_answers(api: APIClient) -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))
    decided("held", pick_n_spec(1)).bindings.update(state="Bound", phase="available")

    assert api.delete(f"{PLACEMENTS}/web").status_code == 204
    assert api.delete(f"{PLACEMENTS}/held").status_code == 202
    assert names(api.get(PLACEMENTS)) == ["held"]
    assert names(api.get(f"{PLACEMENTS}?state=deleting")) == ["held"]


@pytest.mark.nightly
def test_lists_by_state_type_semantics_and_cluster(reader: APIClient) -> None:
    all_joined("a", "b")
    decided("full", pick_n_spec(2))
    decided("short", pick_n_spec(3))
    saved(
        "due",
        {"resourceSelectors": pick_n_spec(1)["resourceSelectors"]},
        semantics="ocm",
    )

    assert names(reader.get(f"{PLACEMENTS}?state=unfulfilled")) == ["short"]
    assert names(reader.get(f"{PLACEMENTS}?type=PickAll")) == ["due"]
    assert names(reader.get(f"{PLACEMENTS}?semantics=ocm")) == ["due"]
    assert names(reader.get(f"{PLACEMENTS}?cluster=a&order=-name")) == ["short", "full"]
    assert names(reader.get(f"{PLACEMENTS}?q=ul")) == ["full"]


def test_a_row_names_the_latest_decision(reader: APIClient) -> None:
    all_joined("a")
    decided("web", pick_n_spec(1))

    row = reader.get(PLACEMENTS).json()["items"][0]

    assert reader.get(f"/api/v1/decisions/{row['decision']}").json()["picked"] == ["a"]
    assert (row["type"], row["placed"], row["fulfilled"], row["pending"]) == (
        "PickN",
        1,
        True,
        False,
    )


def test_snapshots_are_numbered_and_kept(api: APIClient) -> None:
    all_joined("a")
    api.put("/api/v1/resources/core/Namespace/-/shop", namespace("shop"))
    decided("web", pick_n_spec(1))
    constraint = {
        "topologyKey": "region",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
    }
    decided("web", pick_n_spec(1, topologySpreadConstraints=[constraint]))

    policies = api.get(f"{PLACEMENTS}/web/policy-snapshots").json()["items"]
    first = api.get(f"{PLACEMENTS}/web/policy-snapshots/0").json()
    resources = api.get(f"{PLACEMENTS}/web/resource-snapshots").json()["items"]
    content = api.get(f"{PLACEMENTS}/web/resource-snapshots/0").json()

    assert [(policy["number"], policy["latest"]) for policy in policies] == [
        (1, True),
        (0, False),
    ]
    assert first["policy"] == {"placementType": "PickN"}
    assert (resources[0]["objects"], resources[0]["name"]) == (1, "web-0-snapshot")
    assert content["manifests"][0]["metadata"]["name"] == "shop"
    assert api.get(f"{PLACEMENTS}/web/policy-snapshots/7").status_code == 404
    assert api.get(f"{PLACEMENTS}/web/resource-snapshots/0?part=5").status_code == 404


def test_bindings_go_on_by_cluster(reader: APIClient) -> None:
    all_joined("a", "b", "c")
    placement = decided("web", pick_n_spec(3))

    first = reader.get(f"{PLACEMENTS}/web/bindings?limit=2").json()
    second = reader.get(first["next"]).json()

    assert [item["cluster"] for item in first["items"] + second["items"]] == placed(
        placement
    )


@pytest.mark.parametrize(
    "part", ["bindings", "decisions", "policy-snapshots", "resource-snapshots"]
)
def test_parts_of_an_unknown_placement_are_not_there(
    reader: APIClient, part: str
) -> None:
    assert reader.get(f"{PLACEMENTS}/nothing/{part}").status_code == 404
