"""Every page, looked at by axe, in light and dark and on a phone: nothing serious, and nothing sticks out.

A page whose address has no sample in `tests/page_samples.py` fails the first test.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Page, ViewportSize

from placements import urls
from placements.manifests.binding import BindingState
from placements.models import Binding
from placements.services.demo.load import load_demo
from tests.page_samples import (
    HUB_PAGES,
    NO_PAGE,
    NOTIFICATION_PAGES,
    SAMPLES,
    USER_PAGES,
    sample_pages,
)
from tests.rows import NOW, person

Enter = Callable[..., Page]

MAIN_PAGES = (
    "overview",
    "clusters",
    "cluster",
    "cluster-new",
    "cluster-connection",
    "placement",
    "placement-history",
    "comparison",
    "decision",
    "rollout",
    "help",
)
WITH_ACTIONS = ("cluster", "placement", "rollout")
"""Pages that show people who may only read each action disabled."""
SCREEN: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
NARROWED = """most => new Promise(resolve => {
  const end = performance.now() + 2000;
  (function look() {
    const width = document.documentElement.scrollWidth;
    if (width <= most || performance.now() > end) resolve(width); else requestAnimationFrame(look);
  })();
})"""
"""The width of a page once it is narrow enough, or after 2 s: charts are drawn again a moment later."""
SERIOUS = ("serious", "critical")
IMPACTS = ("minor", "moderate", *SERIOUS)
RULES = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
RULES_OF_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""What can differ in the dark, where the stylesheets and the charts change nothing but colours."""
COLORED = """() => [...document.querySelectorAll(".mark svg")]
  .filter((one) => getComputedStyle(one).color !== getComputedStyle(document.body).color)
  .slice(0, 3).map((one) => `colored mark: ${one.parentElement.outerHTML.slice(0, 160)}`)"""
ALIKE = """() => {
  const SIGNS = ["class", "style", "disabled", "aria-current", "aria-selected", "aria-pressed"];
  const kinds = new Map();
  for (const element of document.body.querySelectorAll("*")) {
    if (![...element.childNodes].some((one) => one.nodeType === 3 && one.data.trim())) continue;
    const kind = [];
    for (let one = element; one; one = one.parentElement) {
      kind.push(one.localName, ...SIGNS.map((name) => one.getAttribute(name)));
    }
    const {color, backgroundColor, fontSize, fontWeight} = getComputedStyle(element);
    const words = JSON.stringify([kind, color, backgroundColor, fontSize, fontWeight]);
    if (!kinds.has(words)) kinds.set(words, element);
  }
  window.oneOfEach = [...kinds.values()];
}"""
"""Elements with text of the same classes in the same place have the same colours: one of each is examined,
as the rule for contrast takes half of the time of all rules.
"""


def test_no_page_is_missing_here() -> None:
    assert (
        SAMPLES.keys()
        | HUB_PAGES.keys()
        | NOTIFICATION_PAGES.keys()
        | USER_PAGES.keys()
        | NO_PAGE
        == {pattern.name for pattern in urls.urlpatterns if pattern.name}
    )


@pytest.fixture
def samples(nine: None) -> dict[str, str]:
    """Return the address of each page, on a demo that is being rolled out, for `ana`, who has a draft."""
    ana = person("ana", "operator", "approver", "cluster-administrator")
    return sample_pages(cluster="bravelion", placement="web", by=ana, now=NOW)


@pytest.mark.parametrize(
    "is_complete", [False, pytest.param(True, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("half", range(2))
def test_axe_finds_nothing_serious_and_on_a_phone_nothing_sticks_out(
    half: int, is_complete: bool, enter: Enter, samples: dict[str, str]
) -> None:
    """If `is_complete`, all pages are examined, in forced colors too, and the main ones by axe on a phone."""
    page = enter("/", name="ana")
    found = {}
    for name in list(samples if is_complete else MAIN_PAGES)[half::2]:
        page.set_viewport_size(SCREEN)
        faults = look(page, samples[name], dark=True)
        if is_complete:
            page.emulate_media(forced_colors="active")
            faults += _violations(page, RULES_OF_COLOURS) + page.evaluate(COLORED)
            page.emulate_media(forced_colors="none")
        page.set_viewport_size(PHONE)
        if is_complete and name in MAIN_PAGES:
            faults += examined(page)
            faults += colors_examined(page, dark=name == "overview")
        width = page.evaluate(NARROWED, PHONE["width"])
        if width > PHONE["width"]:
            faults.append(f"{width} pixels wide")
        if faults:
            found[name] = faults

    assert found == {}


@pytest.mark.nightly
@pytest.mark.parametrize("size", [9, 100])
def test_axe_finds_nothing_of_any_kind(size: int, enter: Enter) -> None:
    """Each page is loaded once, and examined in light and in dark colors."""
    load_demo(size, by=None, now=NOW)
    rows = Binding.objects.exclude(state=BindingState.UNSCHEDULED)
    compared = rows.filter(placement__policy_snapshots__number=1)
    can_compare = compared.exists()  # the demo of 100 has one policy of each placement
    if can_compare:
        rows = compared
    binding = rows.earliest("placement__name", "cluster_name")
    samples = sample_pages(
        cluster=binding.cluster_name,
        placement=binding.placement.name,
        by=person("ana", "operator", "approver", "cluster-administrator"),
        now=NOW,
    )
    if not can_compare:
        del samples["comparison"]
    page = enter("/", name="ana")
    page.set_viewport_size(SCREEN)

    found = {
        name: faults
        for name, address in samples.items()
        if (faults := look(page, address, dark=True, impacts=IMPACTS))
    }

    assert found == {}


@pytest.mark.nightly
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_viewer_and_an_anonymous_visitor_see_accessible_pages(
    is_complete: bool, enter: Enter, samples: dict[str, str], complaints: list[str]
) -> None:
    viewer = enter("/", "viewer")
    refused = ("placement-new", "placement-edit", "cluster-new")
    shown = [
        samples[name]
        for name in (*(MAIN_PAGES if is_complete else WITH_ACTIONS), *refused)
    ]

    found = {
        address: seen
        for address in shown
        if (seen := look(viewer, address, may_refuse=True))
    }
    viewer.context.clear_cookies()
    login = look(viewer, "/login/")

    complaints[:] = [
        complaint for complaint in complaints if "403" not in complaint
    ]  # Chromium reports every refusal
    assert (found, login) == ({}, [])


def _open(page: Page, address: str, *, may_refuse: bool = False) -> list[str]:
    answer = page.goto(address)
    allowed = (200, 403) if may_refuse else (200,)
    return (
        []
        if answer and answer.status in allowed
        else [f"answers {answer and answer.status}"]
    )


def look(
    page: Page,
    address: str,
    *,
    dark: bool = False,
    may_refuse: bool = False,
    impacts: tuple[str, ...] = SERIOUS,
) -> list[str]:
    """Open a page and run axe on it, and on its colors, if `dark` also on those; return what is found."""
    faults = _open(page, address, may_refuse=may_refuse)
    page.evaluate(_axe())
    return faults + examined(page, impacts) + colors_examined(page, dark=dark)


def examined(page: Page, impacts: tuple[str, ...] = SERIOUS) -> list[str]:
    """Run axe on an open page that has it, except for the rules of colors, which take half of its time."""
    return _violations(page, RULES, without=RULES_OF_COLOURS, impacts=impacts)


def colors_examined(page: Page, *, dark: bool) -> list[str]:
    page.evaluate(ALIKE)
    faults = _violations(page, RULES_OF_COLOURS)
    if dark:
        page.emulate_media(color_scheme="dark")
        # As the button does, so that the charts are drawn again.
        page.evaluate("document.dispatchEvent(new Event('theme:change'))")
        faults += _violations(page, RULES_OF_COLOURS)
        page.emulate_media(color_scheme="light")
    return faults


def _violations(
    page: Page,
    rules: dict[str, Any],
    *,
    without: dict[str, Any] | None = None,
    impacts: tuple[str, ...] = SERIOUS,
) -> list[str]:
    """Return what is found: of the whole page, or in its colours, which are examined once for each kind."""
    options: dict[str, Any] = {"runOnly": rules, "resultTypes": ["violations"]}
    options["rules"] = (
        {name: {"enabled": False} for name in without["values"]} if without else {}
    )
    where = "document" if without else "{include: window.oneOfEach}"
    violations = page.evaluate(
        f"options => axe.run({where}, options).then(found => found.violations)", options
    )
    return [
        f"{violation['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for violation in violations
        if violation["impact"] in impacts
        for node in violation["nodes"]
    ]


@cache
def _axe() -> str:
    [script] = Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")
    return script.read_text(encoding="utf-8")
