"""The pages of a live hub in a browser, in light and dark and on a phone."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from clusters.models import Hub
from tests.browser.test_accessibility import NARROWED, PHONE, SCREEN, look
from tests.hubs.test_watcher import hub_with_content
from tests.hubs.watching import Watching, watching
from tests.page_samples import HUB_PAGES

Enter = Callable[..., Page]
PAGES = {name: address.format(hub="prod-eu") for name, address in HUB_PAGES.items()} | {
    f"mounted {name or 'overview'}": f"/hubs/prod-eu/{name}"
    for name in ("", "clusters/", "placements/", "rollouts/", "activity/")
}


@pytest.fixture
def mirrored(console: object) -> Iterator[Watching]:
    """Return a watcher whose hub is live."""
    with watching(hub_with_content()) as run:
        run.work_until_state("live")
        run.work_until_equal()
        run.work_until(lambda: run.stream("memberclusters").heard_at)
        yield run


@pytest.mark.usefixtures("mirrored")
@pytest.mark.nightly
@pytest.mark.parametrize("screen", [SCREEN, PHONE])
def test_nothing_sticks_out_and_axe_finds_nothing_serious(
    enter: Enter, screen: ViewportSize
) -> None:
    page = enter("/hubs/", "cluster-administrator")
    found = {}
    for name, address in PAGES.items():
        page.set_viewport_size(screen)
        faults = look(page, address, dark=True)
        page.set_viewport_size(PHONE)
        width = page.evaluate(NARROWED, PHONE["width"])
        if faults or width > PHONE["width"]:
            found[name] = [*faults, f"{width} pixels wide"]

    assert found == {}


@pytest.mark.nightly
def test_a_page_shows_that_its_hub_is_out_of_date_while_it_is_open(
    enter: Enter, mirrored: Watching
) -> None:
    page = enter("/hubs/prod-eu/clusters/")
    updated = page.locator("#as-of [data-time]").inner_text()
    about = enter("/hubs/prod-eu/about/")
    for locator in (page.locator("#hub-line"), about.locator("#live")):
        expect(locator).to_contain_text("Live")

    Hub.objects.filter(pk=mirrored.hub.pk).update(
        state="stale",
        state_reason="memberclusters: no connection",
        state_since=datetime.now(UTC),
    )

    for locator in (page.locator("#hub-line"), about.locator("#live")):
        expect(locator).to_contain_text(
            "Out of date: memberclusters: no connection, since"
        )
    assert (
        page.locator("#as-of [data-time]").inner_text() == updated
    )  # the list was not read again
