"""Placements of Open Cluster Management over REST: as written in, as written out, faults with their lines."""

from typing import Any

import pytest
from django.test import Client
from rest_framework.test import APIClient

from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from placements.models import Placement, Resource
from placements.services.results import stored_document
from tests.commands import call_command
from tests.ocm_documents import (
    NAMESPACE,
    needs_proposal,
    ocm_document,
    proposed,
    proposed_document,
    with_resources,
)
from tests.rows import (
    all_joined,
    joined,
    namespace,
    person,
    pick_n_spec,
    placed,
    placement_document,
    run_due,
)

PLACEMENTS = "/api/v1/placements"
SHOP = f"{PLACEMENTS}/shop"


def post_yaml(api: APIClient, address: str, text: str, method: str = "POST") -> Any:
    """Send a text of YAML."""
    return api.generic(method, address, text, content_type="application/yaml")


@needs_proposal
@pytest.mark.parametrize("number", [1, 2])
def test_the_examples_of_the_proposal_go_in_and_out_as_they_stand(
    api: APIClient, number: int
) -> None:
    all_joined("a", "b")
    address = f"{PLACEMENTS}/demo-placement"

    foreseen = post_yaml(api, f"{PLACEMENTS}/preview", proposed(number)).json()
    put = post_yaml(api, address, proposed(number), "PUT")
    run_due()
    got = api.get(address).json()
    again = api.put(address, got, headers={"If-Match": put.headers["ETag"]})

    assert foreseen["joins"] == {"count": 2, "first": ["a", "b"]}
    assert put.status_code == 201
    assert "fleetui.io/resource-selectors" in put.headers["Warning"]
    assert stored_document(got) == proposed_document(number)
    assert got["status"]["numberOfSelectedClusters"] == 2
    assert again.status_code == 200
    assert Placement.objects.get().revision == 1


def test_one_that_was_saved_before_namespaces_counted_keeps_its_name(
    api: APIClient,
) -> None:
    """What it has on clusters is marked with that name, and would be removed as that of another placement."""
    document = ocm_document(namespace="apps", numberOfClusters=1)
    api.put(f"{PLACEMENTS}/apps:shop", document)
    Placement.objects.update(namespace="")

    edited = ocm_document(namespace="apps", numberOfClusters=2)
    put = api.put(SHOP, edited)
    applied = post_yaml(api, "/api/v1/apply", dump_yaml(edited))
    elsewhere = api.put(f"{PLACEMENTS}/ops:shop", ocm_document(namespace="ops"))

    assert (put.status_code, elsewhere.status_code) == (200, 201)
    assert [(item["name"], item["did"]) for item in applied.json()["items"]] == [
        ("shop", "unchanged")
    ]
    rows = Placement.objects.order_by("pk").values_list(
        "full_name", "number_of_clusters"
    )
    assert list(rows) == [("shop", 2), ("ops/shop", None)]


def test_one_beside_a_placement_of_its_name_is_reached_by_every_door(
    api: APIClient, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.force_login(person("ada", "operator"))
    joined("a")
    other = placement_document("shop", pick_n_spec(1))
    own = with_resources(ocm_document(numberOfClusters=1), NAMESPACE)
    # In this order: the kind of KubeFleet is saved first, and has the plain name.
    answer = post_yaml(
        api,
        "/api/v1/apply",
        "---\n".join(map(dump_yaml, [own, other, namespace("shop")])),
    )
    run_due()

    assert [item["name"] for item in answer.json()["items"][:2]] == ["shop~ocm", "shop"]
    rows = api.get(PLACEMENTS).json()["items"]
    assert [row["name"] for row in rows] == ["shop", "shop~ocm"]
    assert all(map(placed, Placement.objects.all()))
    got = api.get(f"{SHOP}~ocm").json()
    assert stored_document(got) == own
    again = api.put(
        f"{SHOP}~ocm", {**got, "metadata": {**got["metadata"], "labels": {"a": "b"}}}
    )
    assert (again.status_code, Placement.objects.get(name="shop~ocm").revision) == (
        200,
        2,
    )
    decision = api.get(f"{SHOP}~ocm/decisions").json()["items"][0]["id"]
    assert api.get(f"/api/v1/decisions/{decision}").status_code == 200

    for address in (
        "/placements/",
        "/placements/shop~ocm/",
        "/placements/shop~ocm/edit/",
    ):
        assert "shop~ocm" in client.get(address).content.decode()
    assert "shop~ocm" in client.get(f"/decisions/{decision}/").content.decode()
    capsys.readouterr()
    call_command("export", "placements", "shop~ocm", "shop")
    exported = [
        document.data["kind"] for document in load_documents(capsys.readouterr().out)
    ]
    assert sorted(exported) == ["ClusterResourcePlacement", "Placement"]

    assert api.delete(f"{SHOP}~ocm").status_code in (202, 204)
    assert Placement.objects.get(full_name="shop").deleting_since is None


def test_no_address_saves_a_placement_of_another_one(api: APIClient) -> None:
    api.put(SHOP, placement_document("shop", pick_n_spec(1)))

    wrong = api.put(SHOP, ocm_document())
    early = api.put(f"{PLACEMENTS}/ops~ocm", ocm_document("ops"))

    assert (wrong.status_code, early.status_code) == (422, 422)
    assert wrong.json()["faults"][0]["message"] == (
        "this Placement has the full name shop~ocm, and the address that of shop"
    )
    assert list(Placement.objects.values_list("full_name", "revision")) == [("shop", 1)]


def test_an_edit_that_is_behind_is_refused(api: APIClient) -> None:
    first = api.put(SHOP, ocm_document()).headers["ETag"]
    api.put(SHOP, ocm_document(numberOfClusters=1), headers={"If-Match": first})

    late = api.put(SHOP, ocm_document(numberOfClusters=2), headers={"If-Match": first})

    assert late.status_code == 412
    assert Placement.objects.get().number_of_clusters == 1


@pytest.mark.parametrize(
    ("method", "address"),
    [
        ("PUT", SHOP),
        ("POST", "/api/v1/apply"),
        ("POST", f"{PLACEMENTS}/preview"),
        ("POST", f"{PLACEMENTS}/preview/semantics"),
    ],
)
def test_an_error_has_its_path_and_line_at_each_entry_point(
    api: APIClient, method: str, address: str
) -> None:
    answer = post_yaml(
        api, address, dump_yaml(ocm_document(numberOfClusters="two")), method
    )

    (error,) = answer.json()["faults"]
    assert answer.status_code == 422
    assert (error["path"], error["line"]) == ("spec.numberOfClusters", 6)
    assert not Placement.objects.exists()


def test_apply_takes_it_with_what_it_selects(api: APIClient) -> None:
    document = with_resources(ocm_document(), NAMESPACE)

    answer = post_yaml(
        api,
        "/api/v1/apply",
        "---\n".join(map(dump_yaml, [document, namespace("shop")])),
    )

    assert [(item["kind"], item["did"]) for item in answer.json()["items"]] == [
        ("placement", "created"),
        ("resource", "created"),
    ]
    assert answer.json()["items"][0]["warnings"] == []
    assert Resource.objects.count() == 1


def test_a_draft_is_decided_under_all_four_semantics(reader: APIClient) -> None:
    joined("a", region="east")
    joined("b", region="east")
    joined("c", region="west")
    prefer = {
        "type": "Affinity",
        "topologyKey": "region",
        "topologyWeights": [{"weight": 20, "operator": "In", "values": ["east"]}],
    }
    policy = {
        "configurations": [{"scoreCoordinate": {"builtIn": "Steady"}, "weight": 2}]
    }
    draft = ocm_document(
        version="v1alpha1",
        numberOfClusters=2,
        spreadConstraints=[prefer],
        prioritizerPolicy=policy,
    )

    answer = reader.post(f"{PLACEMENTS}/preview/semantics", draft)

    found = answer.json()
    picked = {name: sorted(side["picked"]) for name, side in found["semantics"].items()}
    assert answer.status_code == 200
    assert picked == {str(semantics): ["a", "b"] for semantics in Semantics}
    assert found["firstDifference"]["place"] == 1
    assert found["semantics"]["ocm"]["warnings"] == []
    assert [warning["code"] for warning in found["semantics"]["fleet"]["warnings"]] == [
        "left-out"
    ]
    assert found["refused"] == {}
    assert not Placement.objects.exists()


def test_a_draft_lists_scheduling_rules_that_do_not_apply(reader: APIClient) -> None:
    options = '{"domainWeights": {"region": {"east": 2}}}'
    policy = {"topologySpreadConstraints": [{"topologyKey": "region", "maxSkew": 1}]}
    draft = placement_document("web", pick_n_spec(2, **policy), spread_options=options)

    found = reader.post(f"{PLACEMENTS}/preview/semantics", draft).json()

    assert set(found["semantics"]) == {"fleet", "kubefleet", "kubernetes"}
    assert (
        "not allowed for a key with domain weights and DoNotSchedule"
        in found["refused"]["ocm"]
    )
