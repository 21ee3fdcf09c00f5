"""Charts in a browser: drawn, in both themes, as tables, and on a small screen."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import Decision

Enter = Callable[..., Page]


@pytest.fixture
def decision(nine: None) -> str:
    """Give the address of the decision on `web`."""
    found = Decision.objects.filter(placement_name="web").latest("number")
    return f"/decisions/{found.record.decision_id}/"


def test_a_chart_is_drawn_and_named_by_its_sentence(enter: Enter, decision: str) -> None:
    page = enter(decision)

    plot = page.get_by_role("img", name="Skew through the steps")
    expect(plot.locator("svg.main-svg").first).to_be_visible()
    expect(plot).to_have_accessible_name(re.compile(r"region \(max skew 1, hard\): at most 1"))


def test_a_press_turns_it_into_its_table_and_back(enter: Enter, decision: str) -> None:
    page = enter(decision)
    figure = page.locator("#chart-skews")

    figure.get_by_role("button", name="Table").click()
    expect(figure.locator("table")).to_be_visible()
    expect(figure.locator(".plot")).to_be_hidden()

    figure.get_by_role("button", name="Chart").click()
    expect(figure.locator("svg.main-svg").first).to_be_visible()


def test_colours_follow_the_theme(enter: Enter, decision: str) -> None:
    page = enter(decision)
    line = page.locator("#plot-skews path.js-line").first
    light = line.evaluate("one => getComputedStyle(one).stroke")

    page.emulate_media(color_scheme="dark")

    expect(line).not_to_have_css("stroke", light)


def test_on_a_small_screen_the_table_comes_first_and_nothing_sticks_out(enter: Enter, decision: str) -> None:
    page = enter(decision, width=390)

    expect(page.locator("#chart-skews table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_without_javascript_the_table_is_there(enter: Enter, decision: str) -> None:
    page = enter(decision, javascript=False)

    page.locator("#chart-skews summary").click()
    expect(page.locator("#chart-skews table")).to_be_visible()
    expect(page.locator("#chart-skews .plot")).to_be_hidden()
