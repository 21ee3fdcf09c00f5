"""The overview is left open: it shows changes automatically, and keeps focus and choices."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from clusters.fleet import EligibilityKind
from clusters.models import MemberCluster
from clusters.operations.edit import cordon
from clusters.operations.heartbeat import refresh_eligibility
from fleetui.changes import noticed_changes
from placements.services.placements import save_placement
from tests.rows import NOW, pick_n_spec, placement_document

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]


@pytest.fixture
def page(enter: Enter, nine: None, work: Callable[[], None]) -> Page:
    """Open the overview, with a clock that the test turns."""
    work()
    made = enter("/help/glossary/", "operator")
    made.clock.install()
    made.goto("/?by=env")
    expect(made.locator("#fleet .cells a").first).to_be_visible()
    made.evaluate("window.loaded = true")
    return made


def _later(page: Page) -> None:
    """Advance the clock beyond the longest polling interval."""
    page.clock.fast_forward(16_000)


@noticed_changes()
def _go_silent(name: str) -> None:
    """Stop the heartbeats of a cluster until it counts as not ready."""
    later = NOW + timedelta(minutes=10)
    MemberCluster.objects.exclude(name=name).update(heartbeat_at=later)
    refresh_eligibility(now=later)
    assert (
        MemberCluster.objects.get(name=name).verdict == EligibilityKind.STALE_HEARTBEAT
    )


def test_a_cluster_out_of_reach_is_reported_without_reload_and_focus_and_choice_stay(
    page: Page,
) -> None:
    needs, link = (
        page.locator("#attention"),
        page.locator("#attention").get_by_role(
            "link", name="ledger: 3 of 4 clusters selected"
        ),
    )
    link.focus()

    _go_silent("nimblefox")
    _later(page)

    expect(needs).to_contain_text("nimblefox")
    expect(page.locator("#live")).to_contain_text("1 not ready")
    expect(link).to_be_focused()
    assert page.evaluate("window.loaded") is True
    expect(page.locator("#map-by summary")).to_contain_text("env")
    expect(
        page.locator("#fleet").get_by_role("link", name="nimblefox")
    ).to_contain_text("Not ready")


def test_a_placement_that_is_saved_appears_also_on_its_clusters(
    page: Page, work: Callable[[], None]
) -> None:
    save_placement(
        placement_document("newest", pick_n_spec(9)), by=None, now=datetime.now(UTC)
    )
    work()
    _later(page)

    expect(page.locator("#latest-decisions")).to_contain_text("newest")
    expect(page.locator("#placements-now")).to_contain_text("newest")
    expect(page.locator("#live")).to_contain_text("of 6 placements healthy")
    expect(
        page.locator("#fleet").get_by_role("link", name="smartfish")
    ).to_contain_text("newest")
    assert page.evaluate("window.loaded") is True


def test_a_cluster_of_the_map_keeps_the_focus_when_the_fleet_changes(
    page: Page,
) -> None:
    cell = page.locator("#fleet").get_by_role("link", name="smartfish")
    cell.focus()

    with noticed_changes():
        cordon(["nimblefox"], by=None, now=NOW)
    _later(page)

    expect(
        page.locator("#fleet").get_by_role("link", name="nimblefox")
    ).to_contain_text("Cordoned")
    expect(cell).to_be_focused()


def test_nothing_new_is_reported_in_no_words_and_as_of_goes_on(page: Page) -> None:
    shown = page.locator("#as-of [data-time]")
    before = shown.inner_text()

    with page.expect_response(lambda answer: answer.status == 204):
        _later(page)

    expect(shown).not_to_have_text(before)
