"""The page of a decision in a browser: stepping by key, why not, changing the chart."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from placements.models import Decision
from tests.browser.conftest import arrived

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]


@pytest.fixture
def decision(nine: None) -> str:
    """Return the address of the decision on `web`."""
    found = Decision.objects.filter(placement_name="web").latest("number")
    return f"/decisions/{found.record.decision_id}/"


def _step(page: Page, number: int) -> None:
    expect(page.locator(".player-place")).to_have_text(f"Step {number} of 5")
    expect(page.locator(".chip[aria-current]")).to_contain_text(STEPS[number - 1])
    expect(page.locator("#lanes-groups svg.main-svg").first).to_be_visible()


STEPS = ("quietheron", "smartfish", "nimblefox", "palemoth", "oldbadger")


def test_keys_step_through_the_picks_without_loading_the_page(
    enter: Enter, decision: str
) -> None:
    page = enter(f"{decision}?step=2")
    page.evaluate("window.isSamePage = true")

    page.keyboard.press("]")
    _step(page, 3)
    expect(page).to_have_url(re.compile(r"\?step=3$"))
    page.keyboard.press("[")
    _step(page, 2)
    assert page.evaluate("window.isSamePage")

    page.go_back()
    expect(page).to_have_url(re.compile(r"\?step=3$"))
    _step(page, 3)


def test_the_button_of_the_placement_plays_at_once(enter: Enter, nine: None) -> None:
    page = enter("/placements/web/")

    page.get_by_role("link", name="Play 5 steps").click()

    place = page.locator(".player-place")
    expect(place).to_have_text("Step 1 of 5")
    expect(place).to_have_text(re.compile("Step [2-5] of 5"))


def test_a_press_on_a_pick_shows_its_step(enter: Enter, decision: str) -> None:
    page = enter(decision)
    _step(page, 5)

    page.locator(".chip", has_text="smartfish").click()

    _step(page, 2)
    expect(page.get_by_role("heading", name="Ranking of step 2")).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?step=2$"))


def test_play_shows_one_step_after_the_other_from_the_first(
    enter: Enter, decision: str
) -> None:
    page = enter(decision)

    page.get_by_role("button", name="Play").click()
    _step(page, 1)
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    _step(page, 2)
    page.get_by_role("button", name="Pause").click()

    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_a_press_on_a_cluster_of_a_lane_explains_it(
    enter: Enter, decision: str
) -> None:
    page = enter(decision)
    lanes = page.locator("#lanes-groups")
    expect(lanes.locator("svg.main-svg").first).to_be_visible()

    lanes.get_by_role("button", name="Table").click()
    lanes.get_by_role("link", name="bravelion").first.click()

    expect(
        page.get_by_role("heading", name="Why bravelion was not selected")
    ).to_be_visible()
    expect(page.locator(".cluster-steps tbody tr")).to_have_count(5)
    page.get_by_role("link", name="Close").click()
    expect(page.locator("#why")).to_have_count(0)


def test_the_keys_are_letters_in_a_field(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?step=2&view=clusters")

    page.get_by_label("Name contains").press("]")

    expect(page.get_by_label("Name contains")).to_have_value("]")
    expect(page).to_have_url(re.compile(r"\?step=2&view=clusters$"))


def test_why_not_is_two_clicks_from_the_overview(enter: Enter, nine: None) -> None:
    page = enter("/")

    page.get_by_role("link", name=re.compile("^web ?: decision 2$")).click()
    arrived(page)
    page.get_by_role("link", name="bravelion", exact=True).first.click()

    expect(
        page.get_by_role("heading", name="Why bravelion was not selected")
    ).to_be_in_viewport()
    expect(page.get_by_text("numberOfClusters 7 (now 5)")).to_be_visible()
    expect(
        page.get_by_text("one more in env=prod raises the skew to 3")
    ).to_be_visible()


def test_a_click_copies_the_current_address(enter: Enter, decision: str) -> None:
    page = enter(f"{decision}?step=2")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    page.keyboard.press("]")
    expect(page).to_have_url(re.compile(r"\?step=3$"))
    page.get_by_role("link", name="Copy link").click()

    expect(page.locator("#said")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


def test_a_press_shows_another_picture_and_keeps_the_step(
    enter: Enter, decision: str
) -> None:
    page = enter(f"{decision}?step=2")
    page.locator("#view").scroll_into_view_if_needed()
    expect(page.locator("#view table").first).to_be_visible()

    page.get_by_role("link", name="Affinity").click()

    expect(page.locator("#plot-affinity svg.main-svg").first).to_be_visible()
    expect(page).to_have_url(re.compile(r"\?step=2&view=affinity$"))


def test_a_view_chosen_while_the_first_one_loads_is_shown(
    enter: Enter, decision: str, complaints: list[str]
) -> None:
    page, held = enter("/"), list[Route]()
    page.route(re.compile("panel=view"), lambda route: held.append(route))  # noqa: PLW0108
    with page.expect_request(re.compile("panel=view$")):
        page.goto(decision)
        page.locator("#view").scroll_into_view_if_needed()
    with (
        page.expect_event("requestfailed"),
        page.expect_request(re.compile("view=affinity")),
    ):
        page.get_by_role(
            "link", name="Affinity"
        ).click()  # its response would find its target replaced
    held[-1].continue_()

    expect(page.locator("#plot-affinity svg.main-svg").first).to_be_visible()
    complaints.clear()  # htmx reports the cancelled request


def test_it_works_without_javascript_and_on_a_phone(
    enter: Enter, decision: str
) -> None:
    page = enter(f"{decision}?step=2", width=390, javascript=False)

    page.get_by_role("link", name="Next").click()

    expect(page.get_by_role("heading", name="Ranking of step 3")).to_be_visible()
    expect(page.locator(".lanes").first).to_be_visible()
    expect(page.get_by_role("button", name="Play")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator("details.curl summary").click()
    expect(page.locator("details.curl code")).to_be_visible()
    expect(page.locator("details.curl button")).to_be_hidden()
