"""Nothing moves under the pointer: what a person aims at is hit, whatever a polled page gets meanwhile."""

import re
from collections.abc import Callable
from datetime import timedelta

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from clusters.models import MemberCluster
from clusters.operations.heartbeat import refresh_eligibility
from fleetui.changes import noticed_changes
from tests.rows import NOW

Enter = Callable[..., Page]


@noticed_changes()
def _heartbeats(*, silent: str = "") -> None:
    """Record later heartbeats of all clusters but one."""
    later = NOW + timedelta(minutes=10)
    MemberCluster.objects.exclude(name=silent).update(heartbeat_at=later)
    refresh_eligibility(now=later)


def _top(one: Locator) -> float:
    box = one.bounding_box()
    assert box is not None
    return box["y"]


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("height", [900, 1400])
def test_a_link_stays_under_the_pointer_when_an_item_appears_above_it_and_vanishes(
    enter: Enter, work: Callable[[], None], height: int
) -> None:
    work()
    page = enter("/", "operator")
    page.set_viewport_size({"width": 1440, "height": height})
    item = page.locator("#attention").get_by_role("link", name="nimblefox")
    link = page.locator("#latest-decisions li a").last
    link.hover()
    top = _top(link)

    _heartbeats(silent="nimblefox")
    expect(item).to_be_visible()
    assert _top(link) == pytest.approx(top, abs=1)
    _heartbeats()
    expect(item).to_have_count(0)
    assert _top(link) == pytest.approx(top, abs=1)

    page.mouse.down()
    page.mouse.up()
    expect(page).to_have_url(re.compile("/decisions/"))


@pytest.mark.usefixtures("nine")
def test_a_poll_waits_while_the_pointer_moves(
    enter: Enter, work: Callable[[], None]
) -> None:
    work()
    page = enter("/", "operator")
    item = page.locator("#attention").get_by_role("link", name="nimblefox")
    _heartbeats(silent="nimblefox")

    with page.expect_response(re.compile(r"\?v="), timeout=15_000) as answer:
        for step in range(60):
            page.mouse.move(600 + step, 500)
            page.wait_for_timeout(100)
            if answer.is_done():
                break
    for step in range(10):
        page.mouse.move(500 + step, 400)
        page.wait_for_timeout(100)
        assert not item.is_visible()

    expect(item).to_be_visible()


@pytest.mark.usefixtures("nine")
def test_a_link_that_takes_long_shows_that_it_was_clicked(
    enter: Enter, work: Callable[[], None]
) -> None:
    work()
    page = enter("/", "operator")
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/activity/", hold)
    main = page.locator("main")
    expect(main).to_have_css("opacity", "1")

    page.get_by_role("navigation", name="Sections").get_by_role(
        "link", name="Activity"
    ).click()
    expect(main).to_have_css("opacity", "0.6")
    [request] = held
    request.continue_()

    expect(page).to_have_url(re.compile("/activity/$"))
    expect(main).to_have_css("opacity", "1")
