"""Namespaced placements, staged runs and strategies over REST: addresses, bodies, filters, roles."""

from collections.abc import Callable
from typing import Any

import pytest
from rest_framework.test import APIClient

from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Placement
from placements.services.resources.operations import apply_resources
from tests.ocm_documents import ocm_document
from tests.rows import (
    NOW,
    config_map,
    joined,
    namespace,
    placement_document,
    run_due,
    spec,
)
from tests.services.rollouts.staged import run_document, stage, strategy_document

HERE = "/api/v1/placements/shop:web"
SELECTOR = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}


def inside(document: dict[str, Any], kind: str, in_: str = "shop") -> dict[str, Any]:
    """Return a document as that kind in a namespace."""
    return {
        **document,
        "kind": kind,
        "metadata": {**document["metadata"], "namespace": in_},
    }


PLACEMENT = inside(
    placement_document("web", {"resourceSelectors": [SELECTOR]}), "ResourcePlacement"
)


@pytest.fixture
def both(api: APIClient) -> APIClient:
    """Return an operator of a hub with the placements web and shop/web, decided."""
    joined("a", stage="prod")
    apply_resources([namespace("shop"), config_map("settings")], by=None, now=NOW)
    assert (
        api.put("/api/v1/placements/web", placement_document("web", spec())).status_code
        == 201
    )
    assert api.put(HERE, PLACEMENT).status_code == 201
    run_due()
    return api


@pytest.mark.nightly
def test_an_address_is_of_one_placement(both: APIClient) -> None:
    assert both.put(HERE, PLACEMENT).status_code == 200
    found = both.get(HERE).json()
    assert found["metadata"]["namespace"] == "shop"
    assert found["status"]["conditions"][0]["type"] == "ResourcePlacementScheduled"
    rows = both.get("/api/v1/placements?order=name").json()["items"]
    assert [(row["namespace"], row["name"]) for row in rows] == [
        ("shop", "web"),
        ("", "web"),
    ]
    shop = both.get("/api/v1/placements?namespace=shop").json()["items"]
    assert [one["namespace"] for one in shop] == ["shop"]
    assert [
        item["placement"] for item in both.get(f"{HERE}/bindings").json()["items"]
    ] == ["shop/web"]
    decisions = both.get("/api/v1/decisions?placement=shop/web").json()["items"]
    assert [decision["placement"] for decision in decisions] == ["shop/web"]
    paused = both.post(f"{HERE}/pause").json()
    assert paused["placement"] == "shop/web"
    assert [
        placement.full_name
        for placement in Placement.objects.exclude(paused_since=None)
    ] == ["shop/web"]
    assert both.get("/api/v1/rollouts?placement=shop/web").status_code == 200
    for missing in ("team:web", "shop:other", "shop:web:x", "shop%2Fweb"):
        assert both.get(f"/api/v1/placements/{missing}").status_code == 404


def test_ocm_placements_of_one_name_have_addresses_of_their_own(
    both: APIClient,
) -> None:
    blue, green = "/api/v1/placements/blue:web", "/api/v1/placements/green:web"
    written = [
        ocm_document("web", namespace=one, numberOfClusters=1)
        for one in ("blue", "green")
    ]
    text = "---\n".join(map(dump_yaml, written))

    applied = both.generic(
        "POST", "/api/v1/apply", text, content_type="application/yaml"
    )
    again = both.put(green, written[1])
    wrong = both.put(green, ocm_document("web", namespace="blue"))
    bare = both.put("/api/v1/placements/web", ocm_document("web", namespace="blue"))
    run_due()

    assert [item["name"] for item in applied.json()["items"]] == [
        "blue/web",
        "green/web",
    ]
    assert again.status_code == 200
    for refused in (wrong, bare):
        assert [fault["path"] for fault in refused.json()["faults"]] == [
            "metadata.namespace"
        ]
    names = [
        item["namespace"]
        for item in both.get("/api/v1/placements?order=name").json()["items"]
    ]
    assert names == ["blue", "green", "shop", ""]
    assert both.get(blue).json()["metadata"]["namespace"] == "blue"
    assert [
        item["placement"] for item in both.get(f"{blue}/bindings").json()["items"]
    ] == ["blue/web"]
    assert both.post(f"{blue}/pause").json()["placement"] == "blue/web"
    assert [
        placement.full_name
        for placement in Placement.objects.exclude(paused_since=None)
    ] == ["blue/web"]
    assert both.delete(f"{blue}?confirm=true").status_code in (200, 202, 204)
    assert both.get(green).status_code == 200


@pytest.mark.parametrize(
    ("address", "document", "error"),
    [
        (HERE, placement_document("web", spec()), ("metadata.namespace", "required")),
        (
            HERE,
            inside(PLACEMENT, "ResourcePlacement", "bank"),
            ("metadata.namespace", "conflict"),
        ),
        ("/api/v1/placements/web", PLACEMENT, ("metadata.namespace", "conflict")),
        ("/api/v1/placements/shop:new", PLACEMENT, ("metadata.name", "conflict")),
    ],
)
def test_the_document_is_of_the_address(
    api: APIClient, address: str, document: dict[str, Any], error: tuple[str, str]
) -> None:
    refused = api.put(address, document)

    assert refused.status_code == 422
    assert error in [
        (fault["path"], fault["code"]) for fault in refused.json()["faults"]
    ]
    assert not Placement.objects.exists()


def test_it_has_no_budget_and_no_eviction(both: APIClient) -> None:
    budget = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacementDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"minAvailable": 1},
    }
    assert both.put(f"{HERE}/budget", budget).status_code == 422
    assert both.get(f"{HERE}/budget").status_code == 404
    evicted = both.post(f"{HERE}/evict", {"cluster": "a"}).json()
    assert (evicted["outcome"], evicted["why"], evicted["placement"]) == (
        "invalid",
        "namespaced",
        "shop/web",
    )


def test_staged_kinds_have_namespaces_too(
    both: APIClient, caller: Callable[..., APIClient]
) -> None:
    staged = {**PLACEMENT, "metadata": {"name": "staged", "namespace": "shop"}}
    staged["spec"] = {**staged["spec"], "strategy": {"type": "External"}}
    assert both.put("/api/v1/placements/shop:staged", staged).status_code == 201
    run_due()
    strategy = inside(
        strategy_document(stage("prod", before=True)), "StagedUpdateStrategy"
    )
    assert (
        both.put("/api/v1/staged-strategies/shop:careful", strategy).status_code == 201
    )
    run = inside(run_document("one", placementName="staged"), "StagedUpdateRun")
    assert both.put("/api/v1/staged-runs/one", run).status_code == 422
    assert both.put("/api/v1/staged-runs/shop:one", run).status_code == 201
    [row] = both.get("/api/v1/staged-runs?placement=shop/staged").json()["items"]
    assert (row["namespace"], row["name"], row["placement"]) == (
        "shop",
        "one",
        "shop/staged",
    )
    assert both.get("/api/v1/staged-runs/one").status_code == 404
    assert (
        both.post("/api/v1/staged-runs/shop:one/state", {"state": "Stop"}).status_code
        == 200
    )
    viewer = caller("viewer")
    assert viewer.put("/api/v1/staged-runs/shop:one", run).status_code == 403
    assert viewer.delete("/api/v1/staged-strategies/shop:careful").status_code == 403
    assert both.delete("/api/v1/staged-strategies/shop:careful").status_code == 204


@pytest.mark.nightly
def test_a_preview_is_of_the_placement_in_its_namespace(both: APIClient) -> None:
    found = both.post("/api/v1/placements/preview", PLACEMENT).json()

    assert (
        found["selectedResources"],
        found["stays"]["count"],
        found["joins"]["count"],
    ) == (1, 1, 0)
