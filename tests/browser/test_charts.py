"""Charts in a browser: drawn, in both themes, as tables, and on a small screen."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import Decision

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]
HEIGHTS = """window.heights = [];
(function look() {
  const lanes = document.querySelector("[data-lanes]");
  if (lanes) heights.push(lanes.offsetHeight);
  requestAnimationFrame(look);
})();"""


@pytest.fixture
def decision(nine: None) -> str:
    """Return the address of the decision on `web`."""
    found = Decision.objects.filter(placement_name="web").latest("number")
    return f"/decisions/{found.record.decision_id}/"


def test_a_chart_is_drawn_and_named_by_its_sentence(
    enter: Enter, decision: str
) -> None:
    page = enter(f"{decision}?view=affinity")

    plot = page.get_by_role("img", name="Affinity score by candidate")
    expect(plot.locator("svg.main-svg").first).to_be_visible()
    expect(plot).to_have_accessible_name(
        re.compile(r"5 selected clusters and the best 4 others")
    )


def test_a_press_turns_it_into_its_table_and_back(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?view=affinity")
    figure = page.locator("#chart-affinity")

    figure.get_by_role("button", name="Table").click()
    expect(figure.locator("table")).to_be_visible()
    expect(figure.locator(".plot")).to_be_hidden()

    figure.get_by_role("button", name="Chart").click()
    expect(figure.locator("svg.main-svg").first).to_be_visible()


def test_colours_follow_the_theme(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?view=affinity")
    bar = page.locator("#plot-affinity .bars path").first
    light = bar.evaluate("one => getComputedStyle(one).fill")

    page.emulate_media(color_scheme="dark")

    expect(bar).not_to_have_css("fill", light)


def test_on_a_small_screen_the_table_comes_first_and_nothing_sticks_out(
    enter: Enter, decision: str
) -> None:
    page = enter(f"{decision}?view=affinity", width=390)

    expect(page.locator("#chart-affinity table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_without_javascript_picture_and_table_are_there(
    enter: Enter, decision: str
) -> None:
    page = enter(f"{decision}?view=affinity", javascript=False)

    page.locator("#chart-affinity summary").click()
    expect(page.locator("#chart-affinity table")).to_be_visible()
    expect(page.locator("#chart-affinity .first-picture rect").first).to_be_visible()


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


def test_a_press_on_a_cluster_of_a_lane_explains_it(
    enter: Enter, decision: str
) -> None:
    page = enter(f"{decision}?step=5")

    _press(page, "plot-lanes-groups", x=2.5, y=0)

    expect(
        page.get_by_role("heading", name="Why bravelion was not selected")
    ).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?step=5&cluster=bravelion$"))


@pytest.mark.usefixtures("nine")
def test_lanes_keep_their_room_until_their_chart_is_drawn(enter: Enter) -> None:
    page = enter("/")
    page.add_init_script(HEIGHTS)

    page.goto(f"{page.url}placements/web/")

    expect(page.locator("[data-lanes] svg.main-svg").first).to_be_visible()
    assert min(page.evaluate("heights")) > 80


def test_lanes_follow_the_width_of_the_window(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?step=5")
    plot = page.locator("#plot-lanes-groups")
    expect(plot.locator("svg.main-svg").first).to_be_visible()

    page.set_viewport_size({"width": 390, "height": 900})
    expect(page.locator("#lanes-groups .lanes").first).to_be_visible()
    expect(plot).to_be_hidden()

    with page.expect_request(re.compile(r"figure=groups&width=\d+")):
        page.set_viewport_size({"width": 1000, "height": 900})
    expect(plot).to_be_visible()


@pytest.mark.usefixtures("nine")
def test_a_bar_or_a_sheet_at_the_bottom_is_whole_and_covers_no_end(
    enter: Enter,
) -> None:
    page = enter("/placements/web/reschedule/", "operator", width=390)
    save = page.get_by_role("button", name="Reschedule web")
    expect(save).to_be_in_viewport(ratio=1)

    page.goto("/placements/new/")
    expect(page.locator("#preview")).to_contain_text("clusters selected")
    page.get_by_role("link", name="Glossary").click(trial=True, timeout=5000)


@pytest.mark.usefixtures("nine")
def test_a_press_on_a_cluster_of_the_fleet_shows_it_and_one_on_a_domain_too(
    enter: Enter,
) -> None:
    page = enter("/?by=region")
    page.locator("#fleet").get_by_role("link", name="bravelion").click()
    expect(page.locator("#map-panel")).to_contain_text("bravelion")
    page.keyboard.press("Escape")

    page.locator("#fleet").get_by_role("link", name="north").press("Enter")
    page.locator("#map-panel").get_by_role("link", name="List clusters").press("Enter")
    expect(page).to_have_url(re.compile(r"/clusters/\?label=region%3Anorth$"))
    expect(
        page.get_by_role("region", name="Clusters").locator("tbody tr")
    ).to_have_count(2)
