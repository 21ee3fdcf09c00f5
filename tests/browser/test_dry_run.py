"""A dry run from the review of a draft: no cluster gets a request before the button is pressed."""

from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User
from django.test import override_settings
from playwright.sync_api import Page, expect

from clusters import kubernetes_drivers
from clusters.kubernetes_drivers import DriverCache
from clusters.models import MemberCluster
from clusters.operations.connection import ConnectionInput, set_connection
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.env import new_encryption_key
from placements.services.editor.operations import start_draft
from placements.services.resources.operations import apply_resources
from tests.clusters.kubernetes.api_server import ApiServer
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, serve
from tests.rows import NOW, config_map, namespace, placement_document, simulated, spec

Enter = Callable[..., Page]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServer]:
    monkeypatch.setattr(kubernetes_drivers, "drivers", DriverCache())
    api = ApiServer(
        refusals={
            "settings": (403, "exceeded quota: few, requested: count/configmaps=1")
        }
    )
    api.objects["/api/v1/namespaces/shop"] = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"tier": "old"}},
    }
    with (
        override_settings(
            CREDENTIAL_KEYS=(new_encryption_key(),), MEMBER_LOOPBACK=True
        ),
        serve(api) as link,
    ):
        yield link
    kubernetes_drivers.drivers.clear()


@pytest.mark.parametrize("width", [1440, pytest.param(390, marks=pytest.mark.nightly)])
def test_a_review_shows_what_the_clusters_would_refuse(
    enter: Enter, server: LocalServer, complaints: list[str], width: int
) -> None:
    fields = {"server": server.url, "ca": authority().pem, "token": "marker-token"}
    set_connection(
        "alpha", ConnectionInput(fields=fields), by=None, now=NOW, joins=True
    )
    simulated("beta")
    MemberCluster.objects.update(verdict="", membership="joined")
    apply_resources(
        [namespace("shop", tier="new"), config_map("settings")], by=None, now=NOW
    )
    page = enter("/placements/", "operator", width=width)
    owner = User.objects.latest("pk")
    draft = start_draft(
        dump_yaml(placement_document("web", spec())), placement=None, by=owner, now=NOW
    )

    page.goto(page.url.replace("/placements/", f"/drafts/{draft.pk}/review/"))
    assert not any("dryRun" in request.path for request in server.requests)
    page.get_by_role("button", name="Dry run on the clusters").press("Enter")
    panel = page.locator("#dry-run")
    expect(panel).to_contain_text("Would be refused on 1 cluster: alpha.")
    expect(panel).to_contain_text("exceeded quota: few")
    expect(panel).to_contain_text("1 cluster simulated: not checked.")
    panel.get_by_text("Changes on alpha").press("Enter")
    expect(panel).to_contain_text("/metadata/labels/tier")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert complaints == []
