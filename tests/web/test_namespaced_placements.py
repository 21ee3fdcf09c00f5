"""Pages of namespaced placements: addresses, the list with its filter, the scope of a new placement."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from placements.models import Placement
from placements.services.placements import save_placement
from placements.services.resources.operations import apply_resources
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.staged_runs import save_strategy
from tests.database import compare_for_long, forget_caches
from tests.ocm_documents import NAMESPACE, ocm_document, with_resources
from tests.rows import NOW, config_map, namespace, placement_document, run_due
from tests.services.rollouts.staged import stage, strategy_document
from tests.web.editing import confirmed, draft_address, reviewed, typed
from tests.web.reading import Outline

pytestmark = pytest.mark.django_db


def inside(name: str, in_: str, **more: Any) -> dict[str, Any]:
    """Write a ResourcePlacement of the ConfigMap `settings`."""
    selector = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
    document = placement_document(name, {"resourceSelectors": [selector], **more})
    return {
        **document,
        "kind": "ResourcePlacement",
        "metadata": {"name": name, "namespace": in_},
    }


@pytest.fixture
def several(web: Placement, request: pytest.FixtureRequest) -> Placement:  # noqa: ARG001
    """Add placements of the name `web` in two namespaces; return the one in the shop."""
    apply_resources(
        [namespace("bank"), config_map("settings", in_="bank")], by=None, now=NOW
    )
    write = getattr(request, "param", inside)
    for document in (write("web", "shop"), write("web", "bank")):
        save_placement(document, by=None, now=NOW)
    run_due()
    sync_due_rollouts(now=NOW)
    return Placement.objects.get(full_name="shop/web")


def of_ocm(name: str, in_: str) -> dict[str, Any]:
    """Write an OCM Placement of the namespace that it is in."""
    return with_resources(ocm_document(name, namespace=in_), {**NAMESPACE, "name": in_})


@pytest.mark.parametrize("several", [inside, of_ocm], indirect=True)
def test_each_page_is_of_the_placement_in_its_address(
    several: Placement, operator: Client, text_of: Any
) -> None:
    for page in (
        *(
            "",
            "edit/",
            "delete/",
            "reschedule/",
            "history/",
            "drift/",
            "pause/",
            "staged-run/",
        ),
        "clusters/bravelion/",
    ):
        text = text_of(operator, f"/placements/shop:web/{page}")
        assert not Outline(text).problems
        assert "shop/web" in text
        assert "bank" not in text.replace("bank:", ""), page
        links = text.split("/placements/")[1:]
        own = [link for link in links if link.startswith("shop:web/")]
        assert not page or own
    assert (
        "namespace: shop"
        in operator.get("/placements/shop:web/yaml/?status=0").content.decode()
    )
    assert (
        operator.get("/placements/shop:web/plan/")["Location"]
        == "/rollouts/shop:web/1/plan/"
    )
    assert operator.get("/rollouts/shop:web/1/plan/").status_code == 200
    for missing in ("team:web", "shop:web:x", ":web", "shop:"):
        assert operator.get(f"/placements/{missing}/").status_code == 404

    assert operator.post("/placements/shop:web/pause/").status_code == 302
    assert [
        placement.full_name
        for placement in Placement.objects.exclude(paused_since=None)
    ] == ["shop/web"]
    assert several.bindings.exists()


@pytest.mark.nightly
def test_the_list_names_namespaces_and_filters_by_them(
    several: Placement,  # noqa: ARG001
    viewer: Client,
    text_of: Any,
) -> None:
    page = text_of(viewer, "/placements/")
    assert page.count('/placements/shop:web/"') == page.count('/placements/web/"') == 1
    assert '<th scope="col">Namespace</th>' in page
    compare_for_long()
    forget_caches()
    with CaptureQueriesContext(connection) as few:
        shop = text_of(viewer, "/placements/?namespace=shop")
    assert "/placements/shop:web/" in shop
    assert "/placements/bank:web/" not in shop
    assert "1 placement" in shop
    for number in range(5):
        save_placement(inside(f"more-{number}", "shop"), by=None, now=NOW)
    compare_for_long()
    forget_caches()
    with CaptureQueriesContext(connection) as more:
        text_of(viewer, "/placements/?namespace=shop")
    assert len(more) == len(few)
    search_results = text_of(viewer, "/search/?q=shop/")
    assert "/placements/shop:web/" in search_results


def test_a_list_without_namespaced_placements_has_no_column_for_them(
    web: Placement,  # noqa: ARG001
    viewer: Client,
    text_of: Any,
) -> None:
    assert "Namespace</th>" not in text_of(viewer, "/placements/")


@pytest.mark.nightly
def test_a_new_placement_is_of_a_namespace(
    web: Placement,  # noqa: ARG001
    operator: Client,
    text_of: Any,
) -> None:
    page = text_of(operator, "/placements/new/?template=everywhere&scope=namespace")
    assert 'name="metadata.namespace"' in page
    assert 'name="metadata.namespace"' not in text_of(
        operator, "/placements/new/?scope=cluster"
    )
    manifest = (
        "apiVersion: placement.kubernetes-fleet.io/v1\nkind: ResourcePlacement\n"
        "metadata: {name: own, namespace: shop}\nspec:\n  resourceSelectors:\n"
        '  - {group: "", version: v1, kind: ConfigMap, name: settings}\n'
    )
    typed(
        operator,
        "/placements/new/?template=everywhere&scope=namespace&as=yaml",
        manifest,
    )
    form = text_of(operator, f"{draft_address()}?as=form")
    assert "v1 ConfigMap settings" in form, "what the namespace has is offered"
    assert "v1 Namespace shop" not in form
    page = reviewed(operator)
    assert "shop/own" in page
    assert confirmed(operator, page).headers["Location"] == "/placements/shop:own/"
    saved = Placement.objects.get(full_name="shop/own")
    assert (
        operator.post(
            "/placements/new/", {"mode": "yaml", "manifest": manifest}
        ).status_code
        == 302
    )
    assert "a placement shop/own exists already" in reviewed(operator)
    assert saved.namespace == "shop"


@pytest.mark.nightly
def test_a_staged_run_is_started_with_a_strategy_of_the_namespace(
    web: Placement,  # noqa: ARG001
    operator: Client,
    text_of: Any,
) -> None:
    save_placement(
        inside("staged", "shop", strategy={"type": "External"}), by=None, now=NOW
    )
    run_due()
    everywhere = {**stage("all"), "labelSelector": {}}
    document = strategy_document(everywhere, name="own")
    own = {
        **document,
        "kind": "StagedUpdateStrategy",
        "metadata": {"name": "own", "namespace": "shop"},
    }
    for one in (own, strategy_document(everywhere, name="other")):
        save_strategy(one, by=None, now=NOW)

    page = text_of(operator, "/placements/shop:staged/staged-run/")
    assert "own" in page
    assert "other" not in page
    data = {"name": "first", "strategy": "own", "do": "start"}
    started = operator.post("/placements/shop:staged/staged-run/", data)
    assert started.headers["Location"] == "/rollouts/staged/runs/shop:first/"
    for address in (
        started.headers["Location"],
        "/rollouts/staged/strategies/shop:own/",
        "/rollouts/",
    ):
        assert "shop/" in text_of(operator, address)
    assert "shop/own" in text_of(operator, "/rollouts/staged/strategies/")
    assert operator.get("/rollouts/staged/strategies/own/").status_code == 404
