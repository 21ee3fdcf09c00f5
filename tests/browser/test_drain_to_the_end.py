"""Draining a cluster to the end: impact, pace, confirmation, progress, bringing back."""

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from clusters.operations.edit import change_labels
from tests.browser.conftest import arrived
from tests.rows import pick_n_spec, spec
from tests.services.rollouts.test_drain import Drained, is_over

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]
BY_REGION = {
    "topologySpreadConstraints": [
        {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    ]
}


@pytest.fixture
def world() -> Drained:
    """Return three clusters, one in the east, where a placement is spread and another is everywhere."""
    made = Drained(3)
    for name, region in (("c000", "east"), ("c001", "west"), ("c002", "west")):
        change_labels([name], put={"region": region}, by=None, now=made.now)
    made.place("all", spec())
    made.place("spread", pick_n_spec(2, **BY_REGION))
    made.run(until=made.is_settled)
    return made


@pytest.fixture
def page(enter: Enter, world: Drained) -> Page:
    """Open the cluster in the east, with a clock that the test turns."""
    made = enter("/help/glossary/", "operator")
    made.clock.install()
    made.goto("/clusters/c000/")
    return made


def _catch_up(world: Drained) -> None:
    """Continue the workers' clock from the real time of the last action."""
    world.now = max(world.now, datetime.now(UTC))


def _drain(page: Page) -> None:
    page.get_by_role("main").get_by_role("link", name="Drain", exact=True).click()
    impact = page.get_by_role("region", name="Table of affected placements")
    expect(impact.get_by_role("row", name=re.compile("^all"))).to_contain_text("3 → 2")
    expect(impact.get_by_role("row", name=re.compile("^spread"))).to_contain_text(
        "Replacement: c001"
    )
    page.get_by_label("Max concurrent evictions").fill("1")
    assert page.get_by_label(re.compile("^Some placements lose a cluster")).count() == 0
    page.get_by_role("button", name="Drain c000").click()
    arrived(page)


def test_since_continues_between_two_events(page: Page, world: Drained) -> None:
    _drain(page)
    _catch_up(world)
    world.pass_time(3)
    page.clock.fast_forward(3_000)
    ages = page.get_by_role("region", name="Drain progress").locator(
        "td.number [data-age]"
    )
    expect(ages).to_have_count(2)
    page.route("**/drain/**", lambda route: route.fulfill(status=204))

    page.clock.fast_forward(125_000)

    expect(ages.first).to_have_text("2m")
    expect(page.locator("#progress")).to_contain_text("Started 2m ago")


def test_a_cluster_is_drained_watched_uncordoned_and_filled_again(
    page: Page, world: Drained
) -> None:
    _drain(page)
    expect(page.get_by_role("heading", name="Drain progress")).to_be_visible()
    page.evaluate("window.loaded = true")
    _catch_up(world)

    world.pass_time(3)
    page.clock.fast_forward(3_000)
    steps = page.get_by_role("region", name="Drain progress")
    expect(steps.get_by_role("row", name=re.compile("^all"))).to_be_visible()
    expect(page.get_by_role("progressbar", name="Placements evicted")).to_be_visible()

    world.run(until=lambda: is_over() and world.is_settled())
    page.clock.fast_forward(3_000)
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    expect(page.locator("#progress").get_by_role("status")).to_contain_text(
        "2 of 2 placements evicted"
    )
    expect(steps.get_by_role("row", name=re.compile("^spread"))).to_contain_text("c001")
    assert page.evaluate("window.loaded")

    page.get_by_role("link", name="Uncordon c000 or restore evicted placements").click()
    arrived(page)
    page.get_by_role("link", name="Uncordon c000", exact=True).click()
    arrived(page)
    page.get_by_role("main").get_by_role("button", name="Uncordon").click()
    arrived(page)
    _catch_up(world)
    world.pass_time(30)
    page.goto("/clusters/c000/drain/")
    back = page.get_by_role("region", name="Evicted placements")
    expect(back.get_by_role("row", name=re.compile("^all"))).to_contain_text("Present.")
    expect(back.get_by_role("row", name=re.compile("^spread"))).to_contain_text(
        "Would be selected if rescheduled"
    )

    back.get_by_role("link", name="Restore spread").click()
    expect(page.get_by_role("main")).to_contain_text("c000 would be selected")
    page.get_by_role("button", name="Reschedule spread").click()
    expect(page).to_have_url(re.compile("/clusters/c000/drain/$"))
    expect(
        page.get_by_role("status").filter(has_text="Placement spread rescheduled")
    ).to_be_visible()
    _catch_up(world)
    world.pass_time(120)
    page.reload()
    expect(back.get_by_role("row", name=re.compile("^spread"))).to_contain_text(
        "Present."
    )
    assert "c000" in world.available("spread")


def test_what_a_drain_evicted_is_rescheduled_as_it_was_previewed(
    page: Page, world: Drained
) -> None:
    _drain(page)
    _catch_up(world)
    world.run(until=lambda: is_over() and world.is_settled())
    page.goto("/clusters/c000/uncordon/")
    page.get_by_role("main").get_by_role("button", name="Uncordon").click()
    arrived(page)
    _catch_up(world)
    world.pass_time(30)

    page.goto("/placements/spread/")
    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Reschedule", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Reschedule spread?")
    expect(page.locator(".versus .joins")).to_have_text("c000")
    page.get_by_role("button", name="Reschedule spread").click()

    expect(page).to_have_url(re.compile("/placements/spread/$"))
    expect(
        page.get_by_role("main").get_by_role("row", name=re.compile("^2 c000"))
    ).to_be_visible()
