"""Resources on the hub over REST."""

from rest_framework.test import APIClient

from placements.models import Placement, Resource
from placements.services.results import stored_document
from tests.documents import OURS
from tests.rows import (
    config_map,
    joined,
    member_document,
    namespace,
    pick_n_spec,
    placement_document,
)

SHOP = "/api/v1/resources/core/Namespace/-/shop"
APPLY = "/api/v1/apply"


def test_put_creates_then_changes_nothing_then_changes(api: APIClient) -> None:
    answers = [
        api.put(SHOP, namespace("shop", **labels)) for labels in ({}, {}, {"team": "a"})
    ]

    assert [answer.status_code for answer in answers] == [201, 200, 200]
    assert [answer.headers["ETag"] for answer in answers] == ['"1"', '"1"', '"2"']
    assert stored_document(api.get(SHOP).json()) == namespace("shop", team="a")


def test_the_address_names_group_kind_namespace_and_name(api: APIClient) -> None:
    api.put(SHOP, namespace("shop"))
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 2, "unheardOf": [None, 1.5, "x"]},
    }

    put = api.put("/api/v1/resources/apps/Deployment/shop/web", deployment)

    assert put.status_code == 201
    assert (
        stored_document(api.get("/api/v1/resources/apps/Deployment/shop/web").json())
        == deployment
    )


def test_another_object_than_the_address_names_is_refused(api: APIClient) -> None:
    api.put(SHOP, namespace("shop"))
    document = config_map("settings")

    for path in (
        "core/ConfigMap/shop/other",
        "core/Secret/shop/settings",
        "apps/ConfigMap/shop/settings",
    ):
        assert api.put(f"/api/v1/resources/{path}", document).status_code == 422
    assert Resource.objects.count() == 1


def test_a_namespace_goes_with_all_that_is_in_it(api: APIClient) -> None:
    api.put(SHOP, namespace("shop"))
    api.put("/api/v1/resources/core/ConfigMap/shop/settings", config_map("settings"))

    answer = api.delete(SHOP)

    assert answer.json()["items"] == ["ConfigMap shop/settings", "Namespace shop"]
    assert api.get(SHOP).status_code == 404


def test_lists_by_kind_namespace_and_name(api: APIClient) -> None:
    api.put(SHOP, namespace("shop"))
    for name in ("one", "two", "three"):
        api.put(f"/api/v1/resources/core/ConfigMap/shop/{name}", config_map(name))

    first = api.get(
        "/api/v1/resources?kind=ConfigMap&namespace=shop&q=t&limit=1"
    ).json()
    second = api.get(first["next"]).json()

    assert [item["name"] for item in first["items"] + second["items"]] == [
        "three",
        "two",
    ]
    assert second["next"] is None
    assert "content" not in first["items"][0]


def test_apply_takes_documents_of_every_kind_at_once(api: APIClient) -> None:
    documents = [
        placement_document("web", pick_n_spec(1)),
        config_map("settings"),
        namespace("shop"),
        member_document("a"),
    ]

    answer = api.post(APPLY, {"apiVersion": "v1", "kind": "List", "items": documents})
    again = api.post(APPLY, documents)

    assert [(item["kind"], item["did"]) for item in answer.json()["items"]] == [
        ("placement", "created"),
        ("resource", "created"),
        ("resource", "created"),
        ("cluster", "joined"),
    ]
    assert {item["did"] for item in again.json()["items"]} == {"unchanged"}


def test_apply_reads_a_file_of_yaml_documents(api: APIClient) -> None:
    text = (OURS / "members.yaml").read_text(encoding="utf-8")

    answer = api.generic("POST", APPLY, text, content_type="application/yaml")

    assert answer.status_code == 200
    assert {item["did"] for item in answer.json()["items"]} == {"joined"}


def test_apply_does_all_or_nothing(api: APIClient) -> None:
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: v1\nkind: Pod\n"

    answer = api.generic("POST", APPLY, text, content_type="application/yaml")

    assert answer.status_code == 422
    assert answer.json()["faults"][0]["line"] == 6
    assert (Resource.objects.count(), Placement.objects.count()) == (0, 0)


def test_a_changed_resource_enqueues_the_placements_that_select_it(
    api: APIClient,
) -> None:
    joined("a")
    api.put("/api/v1/placements/web", placement_document("web", pick_n_spec(1)))
    generation = Placement.objects.get().generation

    api.put(SHOP, namespace("shop"))

    assert Placement.objects.get().generation > generation
