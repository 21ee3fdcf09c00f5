"""What a user has opened on a page that is updated stays open, on every page."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.page_samples import sample_pages
from tests.rows import NOW, person

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]
SECTIONS = """() => [...document.querySelectorAll('[hx-trigger~="tick"] details')]"""
OPEN = f"""() => {{
  const sections = ({SECTIONS})();
  for (const one of sections) one.open = true;
  return sections.length;
}}"""
UPDATE = """() => Promise.all([...document.querySelectorAll('[hx-trigger~="tick"]')].map((one) =>
  htmx.ajax("GET", one.getAttribute("hx-get").replace(/v=[^&]*/, "v=0"),
    {source: one, target: one, swap: "outerHTML"})))"""
"""Replace each region as if something had changed since the version of the page."""
CLOSED = f"""() => ({SECTIONS})().filter((one) => !one.open)
  .map((one) => one.id || one.querySelector("summary").textContent)"""


def test_sections_stay_open_on_every_page_that_is_updated(
    enter: Enter, nine: None
) -> None:
    ana = person("ana", "operator", "approver", "cluster-administrator")
    samples = sample_pages(cluster="bravelion", placement="web", by=ana, now=NOW)
    page = enter("/", name="ana")

    closed = {}
    opened = 0
    for name, address in samples.items():
        page.goto(address)
        count = page.evaluate(OPEN)
        if count:
            page.evaluate(UPDATE)
            closed[name] = page.evaluate(CLOSED)
            opened += count

    assert {name: found for name, found in closed.items() if found} == {}
    assert opened > len(closed) > 5


def test_what_is_closed_and_what_has_the_focus_stays_so(
    enter: Enter, nine: None
) -> None:
    page = enter("/placements/ledger/", "operator")
    menu = page.locator("#more-actions")
    menu.locator("summary").click()
    menu.get_by_role("link", name="Drift").focus()

    page.evaluate(UPDATE)

    expect(menu.get_by_role("link", name="Drift")).to_be_focused()
    expect(menu).to_have_attribute("open", "")
    expect(page.locator("#problems")).not_to_have_attribute("open", "")
