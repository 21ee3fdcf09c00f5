"""The resources on the hub: list, page, applying and deleting."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Placement, Resource
from tests.rows import (
    config_map,
    member_document,
    namespace,
    pick_n_spec,
    placement_document,
)
from tests.web.editing import applied
from tests.web.reading import page_text

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

Fetch = Callable[[Client, str], str]
SETTINGS = "/resources/_/ConfigMap/shop/settings/"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["settings", "shop"]),
        ("?kind=Namespace", ["shop"]),
        ("?namespace=shop", ["settings"]),
        ("?q=sett", ["settings"]),
        ("?kind=Pod", []),
    ],
)
def test_lists_what_matches(
    viewer: Client, text_of: Fetch, query: str, names: list[str]
) -> None:
    page = text_of(viewer, f"/resources/{query}")
    sizes = {
        item["name"]: item["size"]
        for item in viewer.get(f"/api/v1/resources{query}").json()["items"]
    }

    assert list(sizes) == sorted(names)
    assert all(re.search(rf">{size}\xa0bytes<", page) for size in sizes.values())
    assert (
        re.findall(r'<th scope="row"><a href="/resources/[^"]*">(\w+)</a>', page)
        == names
    )


def test_shows_the_content_and_who_takes_it_along(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, SETTINGS)

    assert "kind: ConfigMap" in page
    assert 'href="/placements/web/">web</a>' in page


@pytest.mark.nightly
def test_a_new_version_begins_with_the_one_that_is_there(
    operator: Client, text_of: Fetch
) -> None:
    [link] = re.findall(
        r'href="(/resources/apply/\?[^"]+)">Edit YAML', text_of(operator, SETTINGS)
    )

    page = text_of(operator, link)

    assert "kind: ConfigMap\nmetadata:\n  name: settings\n  namespace: shop" in page
    assert "name: settings" not in text_of(
        operator, "/resources/apply/?from=/ConfigMap/shop/nothing"
    )


def test_applies_documents_of_every_kind(operator: Client) -> None:
    documents = [
        placement_document("api", pick_n_spec(1)),
        member_document("palemoth"),
        namespace("other"),
        config_map("settings", data={"a": "b"}),
    ]

    answer = applied(operator, "---\n".join(map(dump_yaml, documents)))
    rows = re.findall(
        r"<td>(\w+)</td>\s*<th[^>]*><a href=\"([^\"]*)\">([^<]*)</a></th>\s*<td>(\w+)",
        page_text(answer),
    )

    assert rows == [
        ("ClusterResourcePlacement", "/placements/api/", "api", "Created"),
        ("MemberCluster", "/clusters/palemoth/", "palemoth", "Joined"),
        ("Namespace", "/resources/_/Namespace/_/other/", "other", "Created"),
        ("ConfigMap", SETTINGS, "shop/settings", "Changed"),
    ]
    assert (
        'href="/placements/web/">web</a>'
        in page_text(answer).partition("Selected by")[2]
    )


def test_deleting_says_what_goes_with_it(operator: Client) -> None:
    page = operator.get("/resources/_/Namespace/_/shop/delete/").content.decode()

    assert "1 object in the namespace" in page
    assert 'href="/placements/web/"' in page


@pytest.mark.nightly
def test_deletes_a_resource(operator: Client) -> None:
    answer = operator.post(f"{SETTINGS}delete/")

    assert answer["Location"] == "/resources/"
    assert list(Resource.objects.values_list("name", flat=True)) == ["shop"]
    assert Placement.objects.get(name="web").wants_resources
