"""The first hour with the console: a demo, a placement of one's own, a suggestion taken."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from fleetui.access.secret_values import plain_manifest
from placements.models import Draft, Placement
from tests.rows import placed

Enter = Callable[..., Page]


def test_from_an_empty_hub_to_an_explained_decision_in_three_clicks(
    enter: Enter,
) -> None:
    page = enter("/", "operator")
    expect(page.get_by_role("heading", level=1)).to_have_text("Get started")

    page.get_by_role("button", name="9 clusters", exact=True).click()
    page.get_by_role("link", name=re.compile("^web ?: decision")).first.click()

    expect(page).to_have_url(re.compile(r"/decisions/d-\w+/$"))
    why = page.get_by_role(
        "heading",
        name=re.compile(r"^Step \d+: why \w+ and not \w+( or \d+ others)?\.$"),
    )
    expect(why.first).to_be_visible()
    expect(
        page.get_by_role("table", name=re.compile(r"^Candidates in step \d+, by rank$"))
    ).to_be_visible()


@pytest.mark.usefixtures("nine")
def test_the_status_of_a_placement_and_why_a_cluster_is_not_selected_take_two_clicks(
    enter: Enter,
) -> None:
    page = enter("/", "operator")
    table = page.locator("#placements-now")
    expect(table.get_by_role("row").filter(has_text="web")).to_contain_text(
        "0 of 5"
    )  # available: no worker

    table.get_by_role("link", name="web", exact=True).click()
    expect(page.locator("#roll-back")).to_have_attribute(
        "href", "/placements/web/roll-back/"
    )
    page.locator("#clusters").get_by_role("link", name="amberotter", exact=True).click()

    expect(
        page.get_by_role("heading", name="Why amberotter was not selected")
    ).to_be_visible()


@pytest.mark.usefixtures("nine")
def test_a_placement_is_made_by_form_previewed_reviewed_and_carried_out(
    enter: Enter, work: Callable[[], None]
) -> None:
    page = enter("/placements/new/", "operator")

    page.locator('[name="metadata.name"]').fill("shop")
    page.get_by_label("Resource on the hub").press_sequentially("v1 Namespace hello")
    page.get_by_role("button", name="Select resource").click()
    page.get_by_label("Number of clusters").fill(
        "4"
    )  # typed before the form with the resource is here
    expect(page.locator('[name="spec.resourceSelectors[0].name"]')).not_to_have_value(
        ""
    )
    expect(page.locator("#preview .result")).to_contain_text("4 of 4 clusters selected")
    expect(page.locator("#unsaved")).to_have_text("")
    expect(page).to_have_url(re.compile(r"/drafts/\d+/$"))
    page.get_by_role("button", name="Review changes").click()

    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Review new placement shop"
    )
    for title in ("Scheduling preview", "Policy summary", "Manifest"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    expect(
        page.locator(".line-diff .came").filter(has_text="numberOfClusters: 4")
    ).to_be_visible()
    page.get_by_role("button", name="Save shop").click()

    expect(page).to_have_url(re.compile("/placements/shop/$"))
    expect(
        page.get_by_role("status").filter(has_text="Placement shop saved.")
    ).to_be_visible()
    assert len(placed(Placement.objects.get(name="shop"))) == 4
    work()
    page.get_by_role("link", name="shop/1", exact=True).click()
    expect(page).to_have_url(re.compile("/rollouts/shop/1/$"))
    expect(page.locator(".run-column .cluster-dot")).to_have_count(4)


@pytest.mark.usefixtures("nine")
def test_typing_changes_the_preview_and_not_what_is_being_typed(enter: Enter) -> None:
    page = enter("/placements/web/edit/", "operator")
    surge = page.locator('[name="spec.strategy.rollingUpdate.maxSurge"]')
    surge.evaluate("one => { window.same = one }")

    surge.fill("4%")
    surge.press("Home")
    surge.press("3")
    expect(page.get_by_text("34% (2 of 5 clusters)")).to_be_visible()

    expect(surge).to_be_focused()
    assert surge.evaluate(
        "one => [one === window.same, one.value, one.selectionStart]"
    ) == [True, "34%", 1]


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_new_row_is_left_out_until_it_is_typed(enter: Enter) -> None:
    page = enter("/placements/web/edit/", "operator")

    page.get_by_role("button", name="Add constraint").click()
    rows = page.get_by_role("group", name="Topology spread constraints").locator(".row")
    expect(rows).to_have_count(3)
    expect(page.locator("#preview")).to_contain_text("Not in the preview yet")
    expect(page.locator("#preview .result")).to_contain_text("5 of 5 clusters selected")

    rows.last.get_by_label("Topology key").fill("system")
    expect(page.locator("#preview")).not_to_contain_text("Not in the preview yet")


@pytest.mark.usefixtures("nine")
def test_a_suggestion_opens_as_a_draft_with_that_change(enter: Enter) -> None:
    page = enter("/", "operator")

    page.keyboard.press("/")
    page.keyboard.type("bravelion web")
    page.keyboard.press("Enter")
    expect(
        page.get_by_role("heading", name="Why bravelion was not selected")
    ).to_be_visible()
    change = page.get_by_role("listitem").filter(has_text="numberOfClusters 7")
    change.get_by_role("button", name="Open as draft").click()

    expect(page).to_have_url(re.compile(r"/drafts/\d+/"))
    expect(page.get_by_label("Number of clusters")).to_have_value("7")
    expect(
        page.locator("#preview .pick-chips .new").filter(has_text="bravelion")
    ).to_be_visible()
    assert "numberOfClusters: 7" in plain_manifest(Draft.objects.get().text)
