"""Theme, height of rows and single keys: kept in a cookie, written by the server, changed by plain forms."""

from collections.abc import Callable

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "chosen", "default"),
    [
        ("theme", "dark", "system"),
        ("theme", "light", "system"),
        ("rows", "dense", "comfortable"),
        ("keys", "off", "on"),
    ],
)
def test_a_choice_is_on_the_next_page(
    viewer: Client, text_of: Fetch, name: str, chosen: str, default: str
) -> None:
    before = text_of(viewer, "/clusters/")
    answer = viewer.post(f"/{name}/", {name: chosen, "next": "/clusters/?q=a"})

    assert f'data-{name}="{default}"' in before
    assert (answer.status_code, answer["Location"]) == (302, "/clusters/?q=a")
    assert f'data-{name}="{chosen}"' in text_of(viewer, "/clusters/")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "next_",
    [
        "https://elsewhere.example/",
        "//elsewhere.example",
        "javascript:x",
        "",
        "clusters",
    ],
)
def test_leads_nowhere_else(viewer: Client, next_: str) -> None:
    assert viewer.post("/theme/", {"theme": "dark", "next": next_})["Location"] == "/"


def test_takes_only_what_is_offered(viewer: Client, text_of: Fetch) -> None:
    answer = viewer.post("/theme/", {"theme": "<script>"})
    viewer.cookies["fleetui_theme"] = "purple"

    assert (answer.status_code, answer["Content-Type"]) == (400, "text/plain")
    assert "fleetui_theme" not in answer.cookies
    assert 'data-theme="system"' in text_of(viewer, "/clusters/")


@pytest.mark.nightly
@pytest.mark.parametrize("address", ["/theme/", "/rows/", "/keys/"])
def test_everybody_may_choose_for_themselves_and_only_by_post(
    client: Client, stranger: Client, address: str
) -> None:
    name = address.strip("/")
    chosen = {"theme": "dark", "rows": "dense", "keys": "off"}[name]

    assert client.get(address).status_code == 405
    assert client.post(address, {name: chosen}).status_code == 302
    assert stranger.post(address, {name: chosen}).status_code == 302


def test_the_cookie_is_kept_from_scripts_and_other_sites(viewer: Client) -> None:
    cookie = viewer.post("/theme/", {"theme": "dark"}).cookies["fleetui_theme"]

    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"
