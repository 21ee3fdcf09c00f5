"""The overview and the navigation: how much there is to choose from, and what is amber or red."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from fleetui.broker import PERIODIC, UPDATES
from fleetui.task_queue import record_heartbeat
from placements.models import Placement, Resource
from placements.services.demo.load import load_demo
from placements.services.placements import delete_placement
from placements.services.problems.book import compare
from placements.services.resources.operations import apply_resources
from placements.web.dashboard import MOST_CONTROLS
from tests.rows import NOW, pick_n_spec, saved

Enter = Callable[..., Page]
CONTROLS = """main => [...main.querySelectorAll("a, button, summary, input, select, textarea, [tabindex]")]
  .filter((one) => one.tabIndex >= 0 && one.checkVisibility()).length"""
"""What the Tab key stops at; the map is one stop."""
ENTRIES = 7
SIGNS = ".attention, .failed, .blocked"


def _signs(page: Page) -> list[str]:
    """Return what is amber or red on a page."""
    signs: list[str] = (
        page.locator("#main")
        .locator(SIGNS)
        .evaluate_all(
            "all => all.filter((one) => one.checkVisibility()).map((one) => one.outerHTML.slice(0, 200))"
        )
    )
    return signs


def _controls(page: Page) -> int:
    count: int = page.locator("#main").evaluate(CONTROLS)
    return count


def test_the_navigation_has_seven_entries_each_with_an_icon(
    enter: Enter, nine: None
) -> None:
    page = enter("/", "operator")
    entries = (
        page.get_by_role("navigation", name="Sections")
        .locator("> ul")
        .first.get_by_role("link")
    )

    assert entries.count() == ENTRIES
    for entry in entries.all():
        expect(entry.locator("svg")).to_be_visible()
    page.locator("#settings > summary").click()
    expect(page.get_by_role("link", name="API tokens")).to_be_visible()


@pytest.mark.parametrize("javascript", [True, False])
def test_the_overview_has_few_controls_and_the_map_opens_a_panel(
    enter: Enter, nine: None, *, javascript: bool
) -> None:
    page = enter("/", "operator", javascript=javascript)
    cell = page.locator("#fleet").get_by_role("link", name="bravelion")
    if javascript:
        assert _controls(page) <= MOST_CONTROLS
        page.locator("#fleet .cells a[tabindex='0']").focus()
        page.keyboard.press("ArrowRight")
        expect(cell).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="bravelion")).to_be_visible()
        page.keyboard.press("Escape")
        expect(cell).to_be_focused()
    else:
        cell.click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("bravelion")


@pytest.mark.parametrize("name", ["web", "ledger", "batch"])
def test_a_placement_has_few_controls(
    enter: Enter, work: Callable[[], None], nine: None, name: str
) -> None:
    work()

    page = enter(f"/placements/{name}/", "operator")

    expect(page.locator("#clusters")).to_be_visible()
    assert _controls(page) <= MOST_CONTROLS


@pytest.mark.parametrize("width", [1440, 390])
def test_a_message_is_not_under_the_buttons_of_a_placement(
    enter: Enter, nine: None, width: int
) -> None:
    page = enter("/placements/web/", "operator", width=width)
    page.locator("#pause").click()

    message = page.locator(".note", has_text="paused").bounding_box()
    buttons = page.locator(".page-head > .actions").bounding_box()

    assert message
    assert buttons
    upper, lower = sorted((message, buttons), key=lambda box: box["y"])
    assert upper["y"] + upper["height"] <= lower["y"]


@pytest.mark.usefixtures("nine")
def test_the_bar_of_a_paused_rollout_shows_what_is_done(enter: Enter) -> None:
    page = enter("/")

    looks = page.evaluate("""() => ["progress", "suspended"].map((state) => {
      document.getElementById("rollouts-now").insertAdjacentHTML("beforeend",
        `<div class="ticks ${state}"><span><i class="healthy"></i><i class="pending"></i></span></div>`);
      return [...document.querySelectorAll(`.ticks.${state} i`)].map((one) => {
        const { backgroundColor, backgroundImage } = getComputedStyle(one);
        return `${backgroundColor} ${backgroundImage}`;
      });
    })""")

    (done, left), (done_before_a_pause, paused) = looks
    assert done_before_a_pause == done
    assert len({done, left, paused}) == 3


@pytest.mark.nightly
def test_with_trouble_everywhere_the_overview_has_few_controls(
    enter: Enter, work: Callable[[], None]
) -> None:
    load_demo(100, by=None, now=NOW)
    work()
    for number in range(12):
        saved(f"short-{number}", pick_n_spec(900))
    deployments = Resource.objects.filter(kind="Deployment").order_by("namespace")[:6]
    changed = [
        {
            **deployment.content,
            "metadata": {**deployment.content["metadata"], "labels": {"a": "b"}},
        }
        for deployment in deployments
    ]
    apply_resources(changed, by=None, now=datetime.now(UTC))
    work()

    page = enter("/", "operator", "approver")

    assert _controls(page) <= MOST_CONTROLS
    expect(page.locator("#attention")).to_contain_text("more")


@pytest.mark.parametrize(
    "size",
    [
        9,
        pytest.param(4, marks=pytest.mark.nightly),
        pytest.param(100, marks=pytest.mark.nightly),
    ],
)
def test_on_a_healthy_fleet_nothing_is_amber_or_red(
    enter: Enter, work: Callable[[], None], size: int
) -> None:
    """The demo teaches what is wrong: what it has of that is removed first; a cordoned cluster is wanted."""
    load_demo(size, by=None, now=NOW)
    MemberCluster.objects.exclude(verdict="").delete()
    work()
    for placement in Placement.objects.exclude(is_fulfilled=True):
        delete_placement(placement.full_name, by=None, now=NOW)
    cordon([MemberCluster.objects.order_by("name")[0].name], by=None, now=NOW)
    work()
    compare(now=datetime.now(UTC))
    record_heartbeat([UPDATES, PERIODIC], now=datetime.now(UTC))  # work() is no worker

    page = enter("/", "operator")

    expect(page.locator("#fleet")).to_contain_text("cordoned")
    for name in Placement.objects.values_list("name", flat=True)[:3]:
        assert _signs(page) == []
        page.goto(f"/placements/{name}/")
    assert _signs(page) == []
    page.goto("/topology/?key=region&key2=env")
    assert _signs(page) == []
