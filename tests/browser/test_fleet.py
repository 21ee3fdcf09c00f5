"""Draining and what-if, as people do it in a browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import Drain

Enter = Callable[..., Page]

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("nine")]


def test_a_drain_begins_once_the_name_is_typed_and_is_cancelled(
    enter: Enter, complaints: list[str]
) -> None:
    page = enter("/clusters/nimblefox/drain/", "operator")

    page.get_by_role("button", name="Drain nimblefox").click()
    expect(page.get_by_role("alert")).to_contain_text(
        "Required value: some placements lose a cluster"
    )
    complaints.clear()

    page.get_by_label("Some placements lose a cluster without a replacement").fill(
        "nimblefox"
    )
    page.get_by_role("button", name="Drain nimblefox").click()
    expect(page.get_by_role("heading", name="Drain progress")).to_be_visible()

    page.get_by_role("button", name="Cancel drain").click()
    expect(page.get_by_role("status").filter(has_text="canceled").first).to_be_visible()
    assert Drain.objects.get().state == "cancelled"


def test_from_the_topology_to_what_if_east_goes_down_and_its_decision(
    enter: Enter,
) -> None:
    page = enter("/topology/?key=region", "viewer")

    page.get_by_role("row", name=re.compile("^east")).get_by_role(
        "link", name="Cluster loss (3 clusters)"
    ).click()
    expect(page.get_by_role("heading", level=2).first).to_have_text(
        "Loss of 3 clusters, region=east"
    )
    page.get_by_role("link", name="Drained (still members)").click()
    page.get_by_role("row", name=re.compile("^web")).get_by_role(
        "link", name="Decision on web"
    ).click()
    expect(
        page.get_by_role("heading", name="Hypothetical decision on web")
    ).to_be_visible()


@pytest.mark.parametrize(
    "path",
    ["/", "/topology/?key=region&key2=env", "/clusters/nimblefox/drain/", "/what-if/"],
)
def test_nothing_sticks_out_on_a_phone(enter: Enter, path: str) -> None:
    page = enter(path, "operator", width=390, dark=True)

    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_on_a_phone_the_groups_of_the_topology_are_listed_once(enter: Enter) -> None:
    page = enter("/topology/?key=region", width=390)

    expect(page.locator("#plot-topology .main-svg").first).to_be_visible()
    expect(page.get_by_role("table")).to_have_count(1)
    expect(page.get_by_text("east", exact=True).locator("visible=true")).to_have_count(
        2
    )
