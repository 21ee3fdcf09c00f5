"""No value of a Secret reaches a user who may not view Secrets, on any page or over REST."""

import re
from collections import Counter, deque
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import resolve

from fleetui.apimachinery.errors import InvalidManifest
from placements.models import Placement
from placements.services.overrides.operations import save_override
from placements.services.resources.operations import apply_resources
from tests.effort import IS_FULL
from tests.rows import NOW, run_due
from tests.services.rollouts.overrides import for_clusters, rule

pytestmark = pytest.mark.django_db
PLANTED = (
    "planted-value",
    "cGxhbnRlZC12YWx1ZQ",
    "planted-patch",
    "planted-copy",
    "planted-wrapped",
)
COPY = "kubectl.kubernetes.io/last-applied-configuration"
LINK = re.compile(r"""(?:href|hx-get|data-src)=["']([^"'#]+)""")
SECRET_ADDRESS = "/api/v1/resources/core/Secret/shop/login"
MOST_PAGES, MOST_OF_A_VIEW = 400, 400 if IS_FULL else 2


def secret(**data: Any) -> dict[str, Any]:
    annotations = {COPY: '{"data": {"password": "planted-copy"}}'}
    metadata = {"name": "login", "namespace": "shop", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **data}


@pytest.fixture
def planted(web: Placement) -> Placement:
    """Plant secret values wherever a manifest may have them, in two versions, and roll out."""
    apply_resources(
        [secret(stringData={"password": "planted-value"})], by=None, now=NOW
    )
    apply_resources(
        [secret(data={"password": "cGxhbnRlZC12YWx1ZQ=="})], by=None, now=NOW
    )
    wrapped = {
        **secret(stringData={"key": "planted-wrapped"}),
        "metadata": {"name": "inner", "namespace": "shop"},
    }
    envelope = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ResourceEnvelope",
        "metadata": {"name": "bundle", "namespace": "shop"},
        "data": {"secret.yaml": wrapped},
    }
    apply_resources([envelope], by=None, now=NOW)
    patch = rule({"op": "add", "path": "/data/password", "value": "planted-patch"})
    save_override(for_clusters("harden", patch), by=None, now=NOW)
    run_due()
    return web


def crawl(client: Client) -> dict[str, str]:
    """Return the texts of all pages and REST answers that links lead to."""
    start = [
        "/",
        "/api/v1/resources",
        "/api/v1/overrides",
        "/api/v1/events",
        SECRET_ADDRESS,
    ]
    waiting, visited = deque(start), set(start)
    texts: dict[str, str] = {}
    counts = Counter[str]()
    while waiting and len(texts) < MOST_PAGES:
        address = waiting.popleft()
        view = resolve(address.partition("?")[0]).view_name
        counts[view] += 1
        if counts[view] > MOST_OF_A_VIEW:
            continue
        response = client.get(address, follow=True)
        text = (
            b"".join(response).decode(errors="replace")
            if response.streaming
            else response.content.decode()
        )
        texts[address] = text
        for link in map(unescape, LINK.findall(text)):
            if (
                link.startswith("/")
                and not link.startswith(("/static/", "/logout", "/api/docs"))
                and link not in visited
            ):
                visited.add(link)
                waiting.append(link)
    return texts


@pytest.mark.larger
def test_a_viewer_finds_no_secret_value_anywhere(
    planted: Placement, viewer: Client
) -> None:
    texts = crawl(viewer)

    assert len(texts) > 60
    assert "(hidden)" in texts[SECRET_ADDRESS]
    leaks = {
        address: one
        for address, text in texts.items()
        for one in PLANTED
        if one in text
    }
    assert leaks == {}
    override = viewer.get(
        "/api/v1/overrides/ClusterResourceOverride/-/harden"
    ).content.decode()
    envelope = viewer.get(
        "/api/v1/resources/placement.kubernetes-fleet.io/ResourceEnvelope/shop/bundle"
    ).content.decode()
    assert [one for one in PLANTED if one in override + envelope] == []
    assert planted.name in texts["/"]


@pytest.mark.usefixtures("planted")
def test_values_are_shown_where_they_are_edited_and_to_users_with_the_permission(
    operator: Client,
) -> None:
    assert "cGxhbnRlZC12YWx1ZQ" not in operator.get(SECRET_ADDRESS).content.decode()
    assert (
        "cGxhbnRlZC12YWx1ZQ"
        in operator.get("/resources/apply/?from=/Secret/shop/login").content.decode()
    )

    user = User.objects.get(username="ana")
    user.user_permissions.add(Permission.objects.get(codename="view_secrets"))

    assert "cGxhbnRlZC12YWx1ZQ" in operator.get(SECRET_ADDRESS).content.decode()


@pytest.mark.usefixtures("planted")
def test_a_hidden_value_replaces_no_value(operator: Client) -> None:
    read = operator.get(SECRET_ADDRESS).json()
    del read["metadata"]["annotations"]

    response = operator.put(SECRET_ADDRESS, read, content_type="application/json")

    assert response.status_code == 422
    [error] = response.json()["faults"]
    assert (error["path"], error["allowed"]) == (
        "data.password",
        "the value itself, or no such key",
    )
    patch = rule({"op": "replace", "path": "/data/password", "value": "(hidden)"})
    with pytest.raises(InvalidManifest) as refused:
        save_override(for_clusters("harden", patch), by=None, now=NOW)
    assert refused.value.errors[0].path.endswith(".value")
