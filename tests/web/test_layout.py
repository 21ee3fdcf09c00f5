"""What is around every page: login, rail, search box, the rules for browsers, the error pages."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.test import Client

from placements.services.demo.load import load_demo
from tests.database import compare_all
from tests.rows import NOW, person
from tests.web.reading import Outline
from tests.web.test_inbox import live_with_items

EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"  # of nothing: charts fill it by rules
pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


def test_logs_in_and_out(client: Client) -> None:
    assert "No users yet." in client.get("/login/").content.decode()
    person("ana", "operator")

    page = client.get("/login/?next=/clusters/").content.decode()
    entered = client.post(
        "/login/",
        {"username": "ana", "password": "a long enough password", "next": "/clusters/"},
    )
    left = client.post("/logout/")

    assert Outline(page).problems == []
    assert "No users yet." not in page
    assert (entered.status_code, entered["Location"]) == (302, "/clusters/")
    assert (left.status_code, left["Location"]) == (302, "/login/")


def test_says_that_the_password_is_wrong(client: Client) -> None:
    answer = client.post("/login/", {"username": "ana", "password": "a guess"})

    assert "correct username and password" in answer.content.decode()


def test_rail_names_the_sections_and_marks_the_present_one(
    viewer: Client, text_of: Fetch
) -> None:
    page = (
        text_of(viewer, "/clusters/")
        .partition('class="rail"')[2]
        .partition("</nav>")[0]
    )
    link = r'<a href="([^"]*)" data-go="\w"( aria-current="page")?>\s*<svg.*?</svg>([\w-]+)'
    rail = re.findall(link, page, re.DOTALL)
    settings = page.partition('id="settings"')[2].partition("</details>")[0]

    assert [title for _, _, title in rail] == [
        "Overview",
        "Clusters",
        "Placements",
        "Rollouts",
        "Resources",
        "What-if",
        "Activity",
    ]
    assert [address for address, current, _ in rail if current] == ["/clusters/"]
    assert re.findall(r">([\w ]+)</a>", settings) == [
        "Hubs",
        "API tokens",
        "API",
        "Admin",
    ]


def test_hubs_are_an_entry_once_one_is_connected(client: Client) -> None:
    client.force_login(person("ana", "viewer"))
    before = client.get("/clusters/").content.decode().partition('class="rail"')[2]

    live_with_items("prod-eu")
    compare_all(now=datetime.now(UTC))
    after = client.get("/clusters/").content.decode().partition('class="rail"')[2]

    assert 'data-go="h"' not in before
    assert '<a href="/hubs/" data-go="h">' in after


def test_every_page_forbids_code_and_styles_from_elsewhere(
    client: Client, viewer: Client
) -> None:
    for browser, address in (
        (client, "/login/"),
        (viewer, "/"),
        (viewer, "/nothing/here/"),
    ):
        policy = browser.get(address)["Content-Security-Policy"].split("; ")

        assert "script-src 'self'" in policy
        assert f"style-src 'self' {EMPTY_STYLE}" in policy
        assert [part for part in policy if "unsafe" in part] == [
            "style-src-attr 'unsafe-inline'"
        ]


def test_every_asset_is_our_own_and_can_be_fetched_for_good(
    viewer: Client, text_of: Fetch
) -> None:
    page = text_of(viewer, "/")
    assets = re.findall(r'<link [^>]*href="([^"]+)"', page) + re.findall(
        r'<script [^>]*src="([^"]+)"', page
    )

    answers = [viewer.get(asset) for asset in assets]

    assert len(assets) == 22
    assert [answer.status_code for answer in answers] == [200] * 22
    assert all("immutable" in answer["Cache-Control"] for answer in answers)
    assert all(answer.getvalue() for answer in answers)


def test_htmx_swaps_faults_and_needs_no_eval(viewer: Client, text_of: Fetch) -> None:
    page = text_of(viewer, "/")

    assert '"allowEval": false' in page
    assert '"includeIndicatorStyles": false' in page
    assert '{"code": "422", "swap": true}' in page


@pytest.mark.nightly
def test_says_that_demo_data_is_loaded(
    operator: Client, viewer: Client, text_of: Fetch
) -> None:
    before = text_of(operator, "/clusters/")

    load_demo(4, by=None, now=NOW)
    compare_all(now=datetime.now(UTC))

    assert "demo-badge" not in before
    assert 'href="/demo/" title="This fleet has demo data' in text_of(
        viewer, "/clusters/"
    )
    assert 'href="/demo/remove/"' in text_of(operator, "/demo/")
    assert 'href="/demo/remove/"' not in text_of(viewer, "/demo/")


@pytest.mark.nightly
@pytest.mark.parametrize(
    "address",
    [
        "/nothing/here/",
        "/clusters/missing/",
        "/placements/nothing/",
        "/decisions/d-00000000/",
        "/decisions/abc/",
        "/resources/_/ConfigMap/shop/nothing/",
    ],
)
def test_a_page_that_is_not_there_says_so_in_its_place(
    viewer: Client, address: str
) -> None:
    answer = viewer.get(address)

    assert answer.status_code == 404
    assert "Page not found" in answer.content.decode()
    assert Outline(answer.content.decode()).problems == []


@pytest.mark.usefixtures("web")
def test_a_fragment_sends_the_page_to_the_login(client: Client) -> None:
    answer = client.get("/placements/web/", headers={"HX-Request": "true"})

    assert answer["HX-Redirect"].startswith("/login/?next=")


def test_refuses_a_foreign_host(client: Client) -> None:
    assert (
        client.get("/login/", headers={"host": "elsewhere.example"}).status_code == 400
    )
