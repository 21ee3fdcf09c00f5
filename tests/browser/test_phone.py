"""The two pages that move most, on a phone: the editor with its preview, and a run in progress.

There the table of a chart comes first; the picture that a person opens stays while the page updates.
"""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import Decision
from tests.services.rollouts.world import one_at_a_time, settled_world

Enter = Callable[..., Page]
WIDTH = 390


def _fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth") == WIDTH)


@pytest.mark.usefixtures("nine")
@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_field_is_edited_and_the_preview_follows(enter: Enter, dark: bool) -> None:
    page = enter("/placements/web/edit/", "operator", width=WIDTH, dark=dark)
    assert _fits(page)

    number, joins = (
        page.get_by_label("Number of clusters"),
        page.locator("#preview .pick-chips .new"),
    )
    expect(number).to_be_hidden()
    page.get_by_role("heading", name="Where: clusters").click()
    number.fill("6")

    expect(page.locator("#preview .result")).to_be_in_viewport()
    expect(page.locator("#preview .result")).to_contain_text("6 of 6 clusters selected")
    expect(joins).to_have_count(1)
    expect(joins).to_be_hidden()
    expect(number).to_be_focused()
    page.get_by_text("Preview details").click()
    expect(joins).to_be_visible()
    assert _fits(page)
    page.get_by_text("Preview details").click()
    page.get_by_role("button", name="YAML", exact=True).click()
    expect(page.locator("textarea")).to_be_visible()
    assert _fits(page)


EXPRESSION = """
  policy:
    placementType: PickAll
    affinity: {clusterAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {clusterSelectorTerms: [
      {labelSelector: {matchExpressions: [{key: env, operator: In, values: [prod, staging]}]}}]}}}
"""


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_a_label_with_several_values_is_not_cut(enter: Enter) -> None:
    page = enter("/placements/web/edit/?as=yaml", "operator", width=WIDTH)
    text = page.locator("textarea")
    text.fill(text.input_value().partition("  policy:")[0] + EXPRESSION)
    page.get_by_role("button", name="Form", exact=True).click()

    row = page.locator(".line:has(> .cell-words)")
    expect(row).to_be_visible()
    assert row.locator("input").evaluate_all("all => all.map(one => one.value)") == [
        "env",
        "prod, staging",
    ]
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth).map(one => one.value)"
    assert row.locator("input").evaluate_all(cut) == []


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_rescheduling_fits(enter: Enter) -> None:
    page = enter("/placements/web/", "operator", width=WIDTH)

    page.get_by_label("More actions").click()
    page.get_by_role("link", name="Reschedule", exact=True).click()

    expect(page.get_by_role("button", name="Reschedule web")).to_be_visible()
    assert _fits(page)


def test_a_run_moves_by_itself(enter: Enter) -> None:
    world = settled_world(3, one_at_a_time())
    world.change()
    world.work()
    page = enter("/help/glossary/", "operator", width=WIDTH)
    page.clock.install()
    page.goto("/rollouts/web/2/")
    page.evaluate("window.loaded = true")
    progress = page.locator(".run-counts")
    expect(progress).to_contain_text("2 pending")
    assert _fits(page)

    world.pass_time(3)
    page.clock.fast_forward(3_000)
    expect(progress).to_contain_text("1 updated")
    assert _fits(page)

    world.run(until=world.is_settled)
    page.clock.fast_forward(3_000)
    expect(page.locator("#live").get_by_role("status").first).to_contain_text(
        "Completed"
    )
    expect(page.locator(".run-picture .cluster-dot").first).to_be_visible()
    assert page.evaluate("window.loaded")
    assert _fits(page)


@pytest.mark.usefixtures("nine")
def test_no_table_hides_its_last_columns(
    enter: Enter, work: Callable[[], None]
) -> None:
    work()
    page = enter("/placements/", "operator", width=WIDTH)
    hidden = {}
    for path in (
        "/placements/",
        "/placements/web/",
        "/clusters/bravelion/",
        "/rollouts/",
        "/help/semantics/",
    ):
        page.goto(path)
        hidden[path] = page.locator("main .scroll:visible").evaluate_all(
            "all => all.map((one) => one.scrollWidth - one.clientWidth)"
        )

    assert all(hidden.values())
    assert [path for path, widths in hidden.items() if any(widths)] == []


@pytest.mark.nightly
def test_that_nothing_needs_attention_is_reported_in_full(enter: Enter) -> None:
    settled_world(3, one_at_a_time())
    page = enter("/", "operator", width=WIDTH)

    box = page.get_by_text("Nothing needs attention").bounding_box()

    assert box
    assert box["x"] + box["width"] < WIDTH
    assert _fits(page)


@pytest.mark.nightly
@pytest.mark.usefixtures("nine")
def test_the_rules_side_by_side_fit_with_the_mark_of_the_first_difference(
    enter: Enter,
) -> None:
    decision = Decision.objects.filter(placement_name="web").latest("number")
    page = enter(f"/decisions/{decision.record.decision_id}/", "viewer", width=WIDTH)

    page.locator("#views").scroll_into_view_if_needed()
    # The tab that the scrolling loads is there: a click before would replace its request.
    expect(page.locator("#view[hx-get]")).to_have_count(0)
    page.get_by_role("link", name="Compare", exact=True).first.click()
    page.get_by_role("link", name="Compare scheduling rules", exact=True).click()

    expect(page.get_by_role("heading", level=1)).to_have_text(
        "Compare scheduling rules"
    )
    expect(page.locator(".partings li").first).to_contain_text(
        "select quietheron rather than bravelion"
    )
    mark = page.get_by_text("First difference", exact=True)
    expect(mark).to_be_visible()
    assert mark.evaluate("one => one.getBoundingClientRect().right") <= WIDTH
    assert _fits(page)
