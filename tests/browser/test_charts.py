"""Charts in a browser: drawn, in both themes, as tables, and on a small screen."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import Decision

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]


@pytest.fixture
def decision(nine: None) -> str:
    """Return the address of the decision on `web`."""
    found = Decision.objects.filter(placement_name="web").latest("number")
    return f"/decisions/{found.record.decision_id}/"


def test_a_chart_is_drawn_and_named_by_its_sentence(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?step=1")

    plot = page.get_by_role("img", name="Skew by step")
    expect(plot.locator("svg.main-svg").first).to_be_visible()
    expect(plot).to_have_accessible_name(re.compile(r"region \(max skew 1, hard\): at most 1"))


def test_a_press_turns_it_into_its_table_and_back(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?step=1")
    figure = page.locator("#chart-skews")

    figure.get_by_role("button", name="Table").click()
    expect(figure.locator("table")).to_be_visible()
    expect(figure.locator(".plot")).to_be_hidden()

    figure.get_by_role("button", name="Chart").click()
    expect(figure.locator("svg.main-svg").first).to_be_visible()


def test_colours_follow_the_theme(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?step=1")
    line = page.locator("#plot-skews path.js-line").first
    light = line.evaluate("one => getComputedStyle(one).stroke")

    page.emulate_media(color_scheme="dark")

    expect(line).not_to_have_css("stroke", light)


def test_on_a_small_screen_the_table_comes_first_and_nothing_sticks_out(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?step=1", width=390)

    expect(page.locator("#chart-skews table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_without_javascript_the_table_is_there(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?step=1", javascript=False)

    page.locator("#chart-skews summary").click()
    expect(page.locator("#chart-skews table")).to_be_visible()
    expect(page.locator("#chart-skews .plot")).to_be_hidden()


def _press(page: Page, plot: str, *, x: float, y: float) -> None:
    """Press where the axes of the first panel put a point."""
    drawn = page.locator(f"#{plot} svg.main-svg").first
    expect(drawn).to_be_visible()
    drawn.scroll_into_view_if_needed()
    place = page.evaluate(
        """([id, x, y]) => {
            const plot = document.getElementById(id), { xaxis, yaxis } = plot._fullLayout;
            const { left, top } = plot.getBoundingClientRect();
            return [left + xaxis._offset + xaxis.d2p(x), top + yaxis._offset + yaxis.d2p(y)];
        }""",
        [plot, x, y],
    )
    page.mouse.move(place[0] - 2, place[1])
    page.mouse.move(*place)
    page.mouse.click(*place)


def test_a_press_on_a_step_opens_it_and_the_row_of_the_table_does_too(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?cluster=bravelion&view=scores&step=1")
    skew = page.evaluate("document.getElementById('plot-skews').data[0].y[1]")

    _press(page, "plot-skews", x=2, y=skew)
    expect(page.locator("#step")).to_have_value("2")
    expect(page).to_have_url(f"{decision}?cluster=bravelion&view=scores&step=2#replay")

    page.locator("#chart-skews").get_by_role("button", name="Table").click()
    row = page.locator("#chart-skews").get_by_role("row", name=re.compile("^4 "))
    row.get_by_role("link").press("Enter")
    expect(page.locator("#step")).to_have_value("4")


@pytest.mark.usefixtures("nine")
def test_a_press_on_a_cluster_of_the_fleet_shows_it_and_one_on_a_domain_too(enter: Enter) -> None:
    page = enter("/?by=region")
    page.locator("#fleet").get_by_role("link", name="bravelion").click()
    expect(page.locator("#map-panel")).to_contain_text("bravelion")
    page.keyboard.press("Escape")

    page.locator("#fleet").get_by_role("link", name="north").press("Enter")
    page.locator("#map-panel").get_by_role("link", name="List clusters").press("Enter")
    expect(page).to_have_url(re.compile(r"/clusters/\?label=region%3Anorth$"))
    expect(page.get_by_role("region", name="Clusters").locator("tbody tr")).to_have_count(2)
