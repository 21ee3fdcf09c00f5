"""Every page, looked at by axe, in light and dark and on a phone: nothing serious, and nothing sticks out.

A page whose address has no sample in `tests/page_samples.py` fails the first test.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Page

from placements import urls
from tests.page_samples import HUB_PAGES, NO_PAGE, NOTIFICATION_PAGES, SAMPLES, USER_PAGES, sample_pages
from tests.rows import NOW, person

Enter = Callable[..., Page]

ON_A_PHONE = (
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
SAME_TEMPLATE = frozenset(
    {
        *("placement-resume", "placement-start", "placement-unpin", "placement-retry"),
        *("staged-run-resume", "staged-run-stop", "staged-run-skip-wait", "staged-run-retry"),
    }
)
"""Pages of the template that `placement-pause` and `placement-stop` have: the same colors in the dark."""
SERIOUS = ("serious", "critical")
RULES = {
    "type": "tag",
    "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
}
RULES_OF_COLOURS = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
"""What can differ in the dark, where the stylesheets and the charts change nothing but colours."""


def test_no_page_is_missing_here() -> None:
    assert SAMPLES.keys() | HUB_PAGES.keys() | NOTIFICATION_PAGES.keys() | USER_PAGES.keys() | NO_PAGE == {
        pattern.name for pattern in urls.urlpatterns if pattern.name
    }


@pytest.fixture
def samples(nine: None) -> dict[str, str]:
    """Return the address of each page, on a demo that is being carried out, for `ana`, who has a draft."""
    ana = person("ana", "operator", "approver", "cluster-administrator")
    return sample_pages(cluster="bravelion", placement="web", by=ana, now=NOW)


def test_axe_finds_nothing_serious(enter: Enter, samples: dict[str, str]) -> None:
    page = enter("/", name="ana")

    found = {name: look(page, at, dark=name not in SAME_TEMPLATE) for name, at in samples.items()}

    assert {name: faults for name, faults in found.items() if faults} == {}


def test_on_a_phone_nothing_sticks_out_and_axe_finds_nothing_serious(
    enter: Enter, samples: dict[str, str]
) -> None:
    page = enter("/", width=390, name="ana")
    found = {}
    for name, address in samples.items():
        looked = look(page, address, dark=name == "overview") if name in ON_A_PHONE else _open(page, address)
        width = page.evaluate("document.documentElement.scrollWidth")
        if looked or width > 390:
            found[name] = [*looked, f"{width} pixels wide"]

    assert found == {}


def test_a_viewer_and_somebody_without_an_account_see_pages_as_good(
    enter: Enter, samples: dict[str, str], complaints: list[str]
) -> None:
    viewer = enter("/", "viewer")
    refused = ("placement-new", "placement-edit", "cluster-new")
    shown = [samples[name] for name in (*ON_A_PHONE, *refused)]

    found = {address: seen for address in shown if (seen := look(viewer, address, may_refuse=True))}
    viewer.context.clear_cookies()
    login = look(viewer, "/login/")

    complaints[:] = [one for one in complaints if "403" not in one]  # Chromium reports every refusal
    assert (found, login) == ({}, [])


def _open(page: Page, address: str, *, may_refuse: bool = False) -> list[str]:
    answer = page.goto(address)
    allowed = (200, 403) if may_refuse else (200,)
    return [] if answer and answer.status in allowed else [f"answers {answer and answer.status}"]


def look(page: Page, address: str, *, dark: bool = False, may_refuse: bool = False) -> list[str]:
    """Open a page and run axe on it, and on its colors in the dark; return what is serious, with elements."""
    faults = _open(page, address, may_refuse=may_refuse)
    page.evaluate(_axe())
    faults += _violations(page, RULES)
    if not dark:
        return faults
    page.emulate_media(color_scheme="dark")
    # As the button does, so that the charts are drawn again.
    page.evaluate("document.dispatchEvent(new Event('theme:change'))")
    faults += _violations(page, RULES_OF_COLOURS)
    page.emulate_media(color_scheme="light")
    return faults


def _violations(page: Page, rules: dict[str, Any]) -> list[str]:
    options = {"runOnly": rules, "resultTypes": ["violations"]}
    violations = page.evaluate(
        "options => axe.run(document, options).then(found => found.violations)", options
    )
    return [
        f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for one in violations
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@cache
def _axe() -> str:
    [script] = Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")
    return script.read_text(encoding="utf-8")
