"""Every page, looked at by axe, in light and dark and on a phone: nothing serious, and nothing sticks out.

A page whose address has no sample in `tests/page_samples.py` fails the first test.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Page

from placements import urls
from tests.page_samples import NO_PAGE, SAMPLES, sample_pages
from tests.rows import NOW, person

Enter = Callable[..., Page]

ON_A_PHONE = (
    "overview",
    "clusters",
    "cluster",
    "placement",
    "placement-history",
    "comparison",
    "decision",
    "rollout",
    "help",
)
SERIOUS = ("serious", "critical")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def test_no_page_is_missing_here() -> None:
    assert SAMPLES.keys() | NO_PAGE == {pattern.name for pattern in urls.urlpatterns if pattern.name}


@pytest.fixture
def samples(nine: None) -> dict[str, str]:
    """Give the address of each page, on a demo that is being carried out, for `ana`, who has a draft."""
    ana = person("ana", "operator", "approver")
    return sample_pages(cluster="bravelion", placement="web", by=ana, now=NOW)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(enter: Enter, samples: dict[str, str], *, dark: bool) -> None:
    page = enter("/", dark=dark, name="ana")

    assert {name: found for name, at in samples.items() if (found := _look(page, at))} == {}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_on_a_phone_nothing_sticks_out_and_axe_finds_nothing_serious(
    enter: Enter, samples: dict[str, str], *, dark: bool
) -> None:
    page = enter("/", width=390, dark=dark, name="ana")
    shown = samples if not dark else {name: samples[name] for name in ON_A_PHONE}
    found = {}
    for name, address in shown.items():
        looked = _look(page, address) if name in ON_A_PHONE else _open(page, address)
        width = page.evaluate("document.documentElement.scrollWidth")
        if looked or width > 390:
            found[name] = [*looked, f"{width} pixels wide"]

    assert found == {}


def test_a_viewer_and_somebody_without_an_account_see_pages_as_good(
    enter: Enter, samples: dict[str, str], complaints: list[str]
) -> None:
    viewer = enter("/", "viewer")
    refused = ("placement-new", "placement-edit")
    shown = [samples[name] for name in (*ON_A_PHONE, *refused)]

    found = {address: seen for address in shown if (seen := _look(viewer, address, may_refuse=True))}
    viewer.context.clear_cookies()
    login = _look(viewer, "/login/")

    complaints[:] = [one for one in complaints if "403" not in one]  # Chromium tells of every refusal
    assert (found, login) == ({}, [])


def _open(page: Page, address: str, *, may_refuse: bool = False) -> list[str]:
    answer = page.goto(address)
    allowed = (200, 403) if may_refuse else (200,)
    return [] if answer and answer.status in allowed else [f"answers {answer and answer.status}"]


def _look(page: Page, address: str, *, may_refuse: bool = False) -> list[str]:
    """Open a page and let axe look at it; give what is serious, each with the element."""
    faults = _open(page, address, may_refuse=may_refuse)
    page.evaluate(_axe())
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    violations = page.evaluate(
        "options => axe.run(document, options).then(found => found.violations)", options
    )
    return faults + [
        f"{one['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for one in violations
        if one["impact"] in SERIOUS
        for node in one["nodes"]
    ]


@cache
def _axe() -> str:
    [script] = Path(axe_playwright_python.__file__).parent.rglob("axe.min.js")
    return script.read_text(encoding="utf-8")
