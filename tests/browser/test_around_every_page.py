"""Keys, theme and the marker of freshness, as people use them."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import Placement

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]


def test_keys_search_go_to_sections_and_open_rows(enter: Enter, nine: None) -> None:
    page = enter("/")

    page.keyboard.press("/")
    expect(page.locator("#search")).to_be_focused()
    page.keyboard.type("gc")
    expect(page.locator("#search")).to_have_value("gc")
    page.locator("#search").blur()
    page.keyboard.type("gc")
    expect(page).to_have_url(re.compile("/clusters/$"))
    page.keyboard.type("jjk")
    expect(page.get_by_role("link", name="amberotter")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/clusters/amberotter/$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()


def test_keys_that_are_switched_off_do_nothing(enter: Enter, nine: None) -> None:
    page = enter("/help/keyboard/")
    here = page.locator("main form[data-prefer=keys]")

    here.get_by_role("button", name="off").click()
    expect(here.get_by_role("button", name="off")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.keyboard.press("?")
    page.keyboard.type("gc")

    expect(page.locator("#key-list")).to_be_hidden()
    expect(page).to_have_url(re.compile("/help/keyboard/$"))


@pytest.mark.parametrize("javascript", [True, False])
def test_the_theme_is_chosen_and_stays(
    enter: Enter, nine: None, *, javascript: bool
) -> None:
    page = enter("/clusters/", javascript=javascript)

    page.locator(".top details.menu summary").click()
    if javascript:
        with page.expect_response("**/theme/"):
            page.get_by_role("button", name="dark").click()
    else:
        page.get_by_role("button", name="dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("body")).to_have_css("background-color", "rgb(20, 24, 29)")

    page.goto("/placements/")
    expect(page.locator("body")).to_have_css("background-color", "rgb(20, 24, 29)")


def test_the_marker_shows_when_answers_stay_out_and_come_back(
    enter: Enter, nine: None, complaints: list[str]
) -> None:
    Placement.objects.filter(name="web").update(
        generation=99
    )  # not decided yet: the page polls
    page = enter("/placements/web/", "operator")
    marker, delete = page.locator("#as-of"), page.locator("main .button.danger").first
    shown = page.locator("#as-of [data-time]").inner_text()
    expect(page.locator("#as-of [data-time]")).not_to_have_text(shown)

    page.context.set_offline(True)
    expect(marker).to_have_attribute("data-state", "lost")
    expect(marker).to_contain_text("Reconnecting")
    expect(delete).to_have_attribute("aria-disabled", "true")
    delete.click(force=True)
    expect(page).to_have_url(re.compile("/placements/web/$"))

    page.context.set_offline(False)
    expect(marker).to_have_attribute("data-state", "fresh")
    expect(delete).not_to_have_attribute("aria-disabled", "true")
    complaints[:] = [
        complaint
        for complaint in complaints
        if "ERR_INTERNET_DISCONNECTED" not in complaint and "htmx" not in complaint
    ]

    page.goto("/clusters/smartfish/edit/")
    expect(marker).to_have_attribute("data-state", "still")
