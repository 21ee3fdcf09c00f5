"""A run is followed on its page: it updates, keeps focus and selection, and stops polling at the end."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Request, expect

from tests.services.rollouts.world import World, updating_world

Enter = Callable[..., Page]
RUN = "/rollouts/web/2/"


@pytest.fixture
def world() -> World:
    """Make three clusters in the middle of an update, one at a time."""
    return updating_world()


@pytest.fixture
def page(enter: Enter, world: World) -> Page:
    """Open the run, with a clock that the test turns."""
    made = enter("/help/glossary/", "operator")
    made.clock.install()
    made.goto(RUN)
    made.evaluate("window.loaded = true")
    return made


def _polls(page: Page) -> list[str]:
    """Return the list in which the polls of the page are gathered from here on."""
    polls: list[str] = []

    def note(request: Request) -> None:
        if "?v=" in request.url:
            polls.append(request.url)

    page.on("request", note)
    return polls


def test_it_moves_without_reload_and_keeps_focus_and_selection(
    page: Page, world: World
) -> None:
    page.evaluate("window.loaded = true")
    pause, progress = (
        page.get_by_role("button", name="Pause"),
        page.locator(".run-counts"),
    )
    expect(progress).to_contain_text("2 pending")
    expect(page.locator("#live svg.main-svg").first).to_be_visible()
    drawn = page.locator("#live script[data-figure]").first.text_content()
    pause.focus()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.crumbs'))")
    selected = page.evaluate("String(getSelection())")
    assert "web" in selected

    world.pass_time(3)
    page.clock.fast_forward(3_000)

    expect(progress).to_contain_text("1 updated")
    expect(page.locator("#live svg.main-svg").first).to_be_visible()
    assert page.locator("#live script[data-figure]").first.text_content() != drawn
    expect(pause).to_be_focused()
    assert page.evaluate("[window.loaded, String(getSelection())]") == [True, selected]


def test_as_of_goes_on_when_nothing_is_new_and_a_hidden_page_does_not_poll(
    page: Page,
) -> None:
    polls, shown = _polls(page), page.locator("#as-of [data-time]")
    before = shown.inner_text()

    with page.expect_response(lambda answer: answer.status == 204):
        page.clock.fast_forward(3_000)
    expect(shown).not_to_have_text(before)

    page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true })"
    )
    polls.clear()
    page.clock.run_for(30_000)
    assert polls == []
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: false, configurable: true })"
    )
    with page.expect_response(re.compile(r"\?v=")):
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


@pytest.mark.nightly
def test_it_stops_polling_when_the_run_is_over(page: Page, world: World) -> None:
    world.run(until=world.is_settled)
    page.clock.fast_forward(3_000)
    expect(page.locator("#live").get_by_role("status").first).to_contain_text(
        "Completed"
    )

    polls = _polls(page)
    page.clock.run_for(60_000)
    assert polls == []
