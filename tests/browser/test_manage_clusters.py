"""A newcomer's tasks about clusters, within their budgets of clicks from the list (work order 9.1)."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect

from clusters.fleet import CORDON_KEY
from clusters.models import MemberCluster

Enter = Callable[..., Page]

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("nine")]


def _click(*targets: Locator) -> int:
    for target in targets:
        target.click()
    return len(targets)


@pytest.mark.parametrize("javascript", [True, False])
def test_cordons_three_clusters_at_once(enter: Enter, javascript: bool) -> None:
    page = enter("/clusters/", "operator", javascript=javascript)

    names = ("amberotter", "bravelion", "smartfish")
    clicks = _click(*(page.get_by_label(f"Select {name}") for name in names))
    bar = page.get_by_role("region", name="Selected clusters")
    if javascript:
        expect(bar.locator("output")).to_have_text("3 selected")
    clicks += _click(bar.get_by_role("button", name="Cordon", exact=True))
    expect(page.get_by_role("heading", level=1)).to_have_text("Cordon: 3 clusters")
    clicks += _click(page.get_by_role("button", name="Cordon (3 clusters)"))

    expect(page.get_by_text("3 clusters cordoned.")).to_be_visible()
    cordoned = MemberCluster.objects.filter(taints__key=CORDON_KEY).values_list(
        "name", flat=True
    )
    assert sorted(cordoned) == list(names)
    assert clicks <= 5
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Change of 3 clusters undone.")).to_be_visible()
    assert not MemberCluster.objects.filter(taints__key=CORDON_KEY).exists()


def test_the_row_menu_cordons_and_undoes_within_two_clicks_each(enter: Enter) -> None:
    page = enter("/clusters/", "operator")

    clicks = _click(
        page.get_by_role("button", name="Actions for flyingpenguin"),
        page.get_by_role("button", name="Cordon", exact=True).locator("visible=true"),
    )
    expect(page.get_by_text("flyingpenguin cordoned.")).to_be_visible()
    assert clicks == 2
    _click(page.get_by_role("button", name="Undo"))
    expect(page.get_by_text("Change of flyingpenguin undone.")).to_be_visible()
    assert not MemberCluster.objects.filter(taints__key=CORDON_KEY).exists()


def test_adds_a_cluster_with_its_name_only_and_labels_it_with_the_impact_while_typing(
    enter: Enter,
) -> None:
    page = enter("/clusters/", "operator")
    clicks = _click(page.get_by_role("link", name="Add member cluster"))
    page.get_by_label("Name (required)").fill("newcomer")
    clicks += _click(page.get_by_role("button", name="Add member cluster"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("newcomer")
    assert clicks <= 2

    page.get_by_role("link", name="Edit labels and taints").click()
    page.get_by_label("Label key 1").fill("regoin")
    page.get_by_label("Label value 1").press_sequentially("east")
    expect(page.get_by_text("Did you mean region?")).to_be_visible()
    expect(page.get_by_role("heading", name="Impact on placements")).to_be_visible()
    page.get_by_label("Label key 1").fill("region")
    expect(page.get_by_text("Did you mean region?")).not_to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Cluster newcomer saved.")).to_be_visible()


def test_keys_and_ranges_select_rows(enter: Enter) -> None:
    page = enter("/clusters/", "operator")
    count = page.locator("[data-selected]")

    for key in "jxjx":
        page.keyboard.press(key)
    expect(count).to_have_text("2 selected")
    page.get_by_label("Select nimblefox").click()
    page.get_by_label("Select smartfish").click(modifiers=["Shift"])
    expect(count).to_have_text("7 selected")
    expect(page.get_by_label("Select all 9 that match")).to_be_visible()
    page.get_by_label("Select page").click()
    expect(count).to_have_text("9 selected")
    expect(page.get_by_label("Select all 9 that match")).to_be_hidden()
