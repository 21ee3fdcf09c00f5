"""The shell: the drawer of a phone by keyboard, the first run, switching the demo, times of the user."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from clusters.models import MemberCluster
from placements.models import Placement
from tests.rows import joined, pick_n_spec, saved

Enter = Callable[..., Page]
PHONE = 390
MOST_CHROME = 104
"""Pixels of a phone that are no content: see 9.3 of the design."""


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize(
    "javascript", [True, pytest.param(False, marks=pytest.mark.nightly)]
)
def test_on_a_phone_sections_open_by_keyboard_and_content_starts_at_the_top(
    enter: Enter, *, javascript: bool
) -> None:
    page = enter("/clusters/", "operator", width=PHONE, javascript=javascript)
    rail, menu = (
        page.get_by_role("navigation", name="Sections"),
        page.get_by_role("button", name="Sections"),
    )
    heading = page.get_by_role("heading", level=1).bounding_box()
    assert heading
    assert heading["y"] < MOST_CHROME
    expect(rail).to_be_hidden()

    page.keyboard.press("Tab")  # the skip link
    page.keyboard.press("Tab")
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    expect(rail).to_be_visible()
    page.keyboard.press("Escape")
    expect(rail).to_be_hidden()
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    for _ in range(4):  # brand, Overview, Clusters, Placements
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    expect(page).to_have_url(re.compile("/placements/$"))
    first = page.locator("table.cards tbody tr").first
    status, name = (
        first.locator("td.state").bounding_box(),
        first.get_by_role("link").first.bounding_box(),
    )
    assert status
    assert name
    assert status["x"] < name["x"] or status["y"] + status["height"] <= name["y"]


def test_a_first_run_has_a_demo_after_one_click_and_switches_it_without_losing_own_objects(
    enter: Enter,
) -> None:
    page = enter("/", "operator")
    page.get_by_role("button", name="9 clusters", exact=True).click()
    expect(
        page.get_by_role("status").filter(has_text="Demo data loaded: 9 clusters.")
    ).to_be_visible()
    joined("mine")
    saved("shop", pick_n_spec(3))

    page.get_by_role("link", name="Demo data").click()
    expect(page.get_by_role("heading", name="Replace demo data")).to_be_visible()
    page.get_by_role("button", name="4 clusters (example of the documentation)").click()
    expect(
        page.get_by_role("status").filter(has_text="Demo data loaded: 4 clusters.")
    ).to_be_visible()
    assert MemberCluster.objects.count() == 5

    page.get_by_role("link", name="Demo data").click()
    page.get_by_role("link", name="Remove demo data").click()
    page.get_by_role("button", name="Remove demo data").click()
    expect(page.get_by_role("link", name="Demo data")).to_have_count(0)
    assert [cluster.name for cluster in MemberCluster.objects.all()] == ["mine"]
    assert [placement.name for placement in Placement.objects.all()] == ["shop"]

    MemberCluster.objects.all().delete()
    page.goto("/")
    expect(
        page.locator("#get-started").get_by_role("button", name="100 clusters")
    ).to_be_visible()


@pytest.mark.usefixtures("nine")
def test_times_are_those_of_the_browser(enter: Enter) -> None:
    page = enter("/activity/", "viewer")
    times = page.locator("main time[data-age]")
    expect(times.first).to_have_attribute("data-local", "")
    zone = page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")

    titles = times.evaluate_all("all => all.map((one) => one.title)")

    assert titles
    assert all(
        re.fullmatch(rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d {re.escape(zone)}", title)
        for title in titles
    )


@pytest.mark.usefixtures("nine")
def test_on_paper_is_the_content_in_light_colours(enter: Enter) -> None:
    page = enter("/placements/web/", "operator")
    page.emulate_media(media="print", color_scheme="dark")

    expect(page.get_by_role("heading", level=1)).to_be_visible()
    for locator in (
        page.get_by_role("navigation", name="Sections"),
        page.get_by_role("search"),
    ):
        expect(locator).to_be_hidden()
    assert page.get_by_role("button").count() == 0
    assert (
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    page.set_viewport_size({"width": 800, "height": 1100})
    for address in ("/clusters/", "/placements/", "/resources/"):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") == 800, address
    page.emulate_media(media="screen", color_scheme="dark")
    page.goto("/topology/?key=region")
    tick = page.locator(".plot .ytick text").first
    expect(tick).to_be_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(tick).to_have_css("fill", "rgb(27, 36, 48)")
