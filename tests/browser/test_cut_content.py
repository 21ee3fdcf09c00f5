"""Every page, in a wide window and on a phone: nothing is cut without a title, and nothing sticks out."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime

import pytest
from playwright.sync_api import Page, ViewportSize

from placements.engine.status import WAITS_FOR_APPROVAL, PlacementHealth
from placements.manifests.binding import BindingState
from placements.models import Binding, Decision, Placement
from placements.services.demo.load import load_demo
from placements.services.health import healths_named
from placements.web import fleet_map
from tests.page_samples import sample_pages
from tests.rows import NOW, person

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]
SCREENS: tuple[ViewportSize, ...] = (
    {"width": 1440, "height": 2600},  # tall: charts are drawn when they come near
    {"width": 390, "height": 2600},
)
DRAWN = """() => new Promise((resolve) => {
  const end = performance.now() + 3000;
  const wide = innerWidth > 640 ? ", [data-lanes]:not([data-chart])" : "";
  const waiting = "[data-chart][data-view='chart'] .plot:not(.js-plotly-plot)" + wide;
  const isNear = (one) => one.checkVisibility() && one.getBoundingClientRect().top < innerHeight + 400;
  (function look() {
    const isDone = ![...document.querySelectorAll(waiting)].some(isNear);
    if (isDone || performance.now() > end) document.fonts.ready.then(() => requestAnimationFrame(resolve));
    else setTimeout(look, 30);
  })();
})"""
CUT = r"""() => {
  const found = [];
  const note = (kind, element, text) => {
    const place = element.closest("[id], [class]") ?? element;
    const sign = place.id ? `#${place.id}` : `.${String(place.getAttribute("class")).split(" ")[0]}`;
    found.push(`${kind} ${sign}: ${text.trim().replace(/\s+/g, " ").slice(0, 60)}`);
  };
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) note("page scrolls sideways", root, `${root.scrollWidth}`);
  const styles = new Map();
  const style = (one) => styles.get(one) ?? (styles.set(one, getComputedStyle(one)), styles.get(one));
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  while (walker.nextNode()) {
    const node = walker.currentNode;
    const element = node.parentElement;
    if (!node.data.trim() || element.closest("script, style, noscript, svg, option, textarea, .hidden")) continue;
    if (!element.checkVisibility({visibilityProperty: true, opacityProperty: true})) continue;
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()].filter((one) => one.width > 0.5);
    if (!rects.length) continue;
    const [left, right] = [Math.min(...rects.map((one) => one.left)), Math.max(...rects.map((one) => one.right))];
    const [top, bottom] = [Math.min(...rects.map((one) => one.top)), Math.max(...rects.map((one) => one.bottom))];
    let isFree = false; // positioned beside its ancestors, or within a part that scrolls
    if (element.getBoundingClientRect().width <= 1) continue; // for screen readers only
    for (let one = element; one && one !== root; one = one.parentElement) {
      const rules = style(one);
      const box = one.getBoundingClientRect();
      if (rules.position === "fixed" && right > box.right + 1) note("sticks out of", one, node.data);
      if (/auto|scroll/.test(rules.overflowX) || rules.position === "fixed") { isFree = true; break; }
      if (/hidden|clip/.test(rules.overflowX) && (right > box.right + 1.5 || left < box.left - 1.5)) {
        const isWhole = rules.textOverflow === "ellipsis" && element.closest("[title]");
        if (!isWhole) note("cut", one, node.data);
        isFree = true;
        break;
      }
      if (/hidden|clip/.test(rules.overflowY) && bottom > box.bottom + 4 && rules.webkitLineClamp === "none") {
        note("cut below", one, node.data);
        isFree = true;
        break;
      }
      if (/absolute/.test(rules.position)) break;
      if (rules.display.startsWith("inline") || rules.display === "contents") continue;
      if (right > box.right + 2) { note("sticks out of", one, node.data); break; }
    }
    if (!isFree && right > root.clientWidth + 1) note("outside", element, node.data);
    if (element.closest("pre, code, .mono")) continue;
    // Names of objects that are longer than a line of a phone break anywhere.
    for (const { 0: word, index } of node.data.matchAll(/(?<![^\s/,(-])[\p{L}\p{N}]{2,24}(?![^\s/,;:.)-])/gu)) {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const lines = [...range.getClientRects()].filter((one) => one.width > 0.5);
      if (lines.length > 1 && lines.at(-1).top > lines[0].top + 4) note("breaks within a word", element, word);
    }
  }
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const box = plot.getBoundingClientRect();
    for (const text of plot.querySelectorAll("text")) {
      const own = text.getBoundingClientRect();
      if (!own.width || !text.textContent.trim()) continue;
      const isOut = own.left < box.left - 1 || own.right > box.right + 1
        || own.top < box.top - 1 || own.bottom > box.bottom + 2;
      if (isOut) note("outside of its plot", plot, text.textContent);
    }
  }
  return [...new Set(found)];
}"""
"""What is cut without a title that has the whole text, beyond its column, or broken within a word."""


def cut_content(page: Page, address: str) -> list[str]:
    """Open a page, wait for its charts, and return what is cut or sticks out."""
    page.goto(address)
    page.evaluate(DRAWN)
    found: list[str] = page.evaluate(CUT)
    if address == "/" and (cell := page.locator("[hx-get*='?cluster=']").first).count():
        cell.click()
        page.locator("#map-panel .actions").wait_for()
        found += page.evaluate(CUT)
    return found


def test_the_drawer_of_a_cluster_shows_long_states_whole(
    enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_demo(4, by=None, now=NOW)
    detail = "after stage canary, 1 of 3 started"

    def waiting(names: Collection[str], *, now: datetime) -> dict[str, PlacementHealth]:
        healths = healths_named(names, now=now).items()
        return {
            name: replace(health, word=WAITS_FOR_APPROVAL, condition="", detail=detail)
            for name, health in healths
        }

    monkeypatch.setattr(fleet_map, "healths_named", waiting)
    page = enter("/", "operator")

    assert cut_content(page, "/") == []
    assert "1 of 3 started" in page.locator("#map-panel").inner_text()


@pytest.mark.parametrize("size", [9, 100])
def test_nothing_is_cut_and_nothing_sticks_out(size: int, enter: Enter) -> None:
    load_demo(size, by=None, now=NOW)
    rows = Binding.objects.exclude(state=BindingState.UNSCHEDULED)
    if size == 9:
        rows = rows.filter(placement__name="web")
    binding = rows.earliest("placement__name", "cluster_name")
    samples = sample_pages(
        cluster=binding.cluster_name,
        placement=binding.placement.name,
        by=person("ana", "operator", "approver", "cluster-administrator"),
        now=NOW,
    )
    if size == 100:  # its placements have one policy each
        del samples["comparison"]
    for placement in Placement.objects.all():
        address = f"/placements/{placement.name}/"
        decision = Decision.objects.filter(placement_name=placement.name).latest(
            "number"
        )
        samples |= {
            f"placement {placement.name}": address,
            f"editor of {placement.name}": f"{address}edit/",
            f"decision on {placement.name}": f"/decisions/{decision.record.decision_id}/",
        }
    page = enter("/", name="ana")

    found = {}
    for screen in SCREENS:
        page.set_viewport_size(screen)
        for name, address in samples.items():
            if faults := cut_content(page, address):
                found[f"{name} at {screen['width']}"] = faults

    assert found == {}
