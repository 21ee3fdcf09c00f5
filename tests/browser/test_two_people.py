"""Several people at one placement: conflicts are shown, nothing is overwritten, viewers only read."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import Placement

Enter = Callable[..., Page]

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("nine")]


def _save(page: Page) -> None:
    page.get_by_role("button", name="Review changes").click()
    page.get_by_role("button", name="Save web").click()
    expect(page).to_have_url(re.compile("/placements/web/$"))


def test_the_second_to_save_sees_the_difference_and_takes_it(enter: Enter) -> None:
    ana, li = (
        enter("/placements/web/edit/", "operator"),
        enter("/placements/web/edit/", "operator"),
    )
    li.locator('[name="spec.revisionHistoryLimit"]').evaluate(
        "one => one.closest('details').open = true"
    )
    li.locator('[name="spec.revisionHistoryLimit"]').fill("5")
    expect(li).to_have_url(re.compile(r"/drafts/\d+/$"))

    ana.get_by_label("Number of clusters").fill("4")
    expect(ana.locator("#preview .result")).to_contain_text("4 of 4")
    _save(ana)
    li.get_by_role("button", name="Review changes").click()

    conflict = li.get_by_role("alert").filter(
        has_text="was changed while you edited it"
    )
    expect(conflict).to_contain_text("spec.policy.numberOfClusters: 5 → 4")
    expect(li.get_by_role("button", name="Save web")).to_have_count(0)
    conflict.get_by_role("button", name="Take theirs").click()
    expect(li.get_by_label("Number of clusters")).to_have_value("4")
    li.locator('[name="spec.revisionHistoryLimit"]').evaluate(
        "one => one.closest('details').open = true"
    )
    li.locator('[name="spec.revisionHistoryLimit"]').fill("5")
    li.locator('[name="spec.revisionHistoryLimit"]').blur()
    _save(li)

    saved = Placement.objects.get(name="web").document["spec"]
    assert (saved["policy"]["numberOfClusters"], saved["revisionHistoryLimit"]) == (
        4,
        5,
    )


def test_an_older_policy_is_compared_and_comes_back_once_its_changes_were_shown(
    enter: Enter,
) -> None:
    page = enter("/placements/web/history/", "operator")

    page.get_by_role("button", name="Compare").click()
    expect(page).to_have_url(re.compile(r"/placements/web/compare/[\w-]+\.\.[\w-]+/$"))
    page.goto("/placements/web/history/")
    page.get_by_role("link", name="Roll back to revision 1").click()
    removed = page.locator("td.went")
    expect(removed.filter(has_text="topologyKey: env")).to_be_visible()
    page.get_by_role("button", name="Roll back to revision 1").click()

    expect(page).to_have_url(re.compile("/placements/web/$"))
    constraints = Placement.objects.get(name="web").document["spec"]["policy"][
        "topologySpreadConstraints"
    ]
    assert [constraint["topologyKey"] for constraint in constraints] == ["region"]


def test_who_may_only_look_reaches_the_buttons_and_hears_why_not(enter: Enter) -> None:
    page = enter("/placements/web/", "viewer")
    edit = page.locator("main .button", has_text="Edit").first

    edit.focus()
    expect(edit).to_be_focused()
    expect(edit).to_have_attribute("aria-disabled", "true")
    expect(edit).to_have_accessible_name(re.compile("required role: operator"))
    edit.click(force=True)
    expect(page).to_have_url(re.compile("/placements/web/$"))


def test_without_javascript_an_edit_is_saved_by_yaml(enter: Enter) -> None:
    page = enter(
        "/placements/web/edit/?as=yaml", "operator", javascript=False, width=390
    )
    manifest = page.get_by_label("Manifest", exact=True)

    manifest.fill(
        manifest.input_value().replace("numberOfClusters: 5", "numberOfClusters: 4")
    )
    page.get_by_role("button", name="Update preview").click()
    expect(page.locator("#preview .result")).to_contain_text("4 of 4")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    _save(page)

    assert Placement.objects.get(name="web").number_of_clusters == 4
