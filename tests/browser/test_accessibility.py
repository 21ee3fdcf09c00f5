"""Every page, looked at by axe, in light and dark and on a phone: nothing serious, and nothing sticks out.

A page whose address has no sample here fails the first test; what axe finds is told with the page.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import axe_playwright_python
import pytest
from playwright.sync_api import Page

from placements import urls
from placements.manifests import dump_yaml
from placements.models import Decision, Placement, Resource, Scenario
from placements.operations.drafts import start_draft
from placements.operations.rollouts.advancing import advance_due
from placements.operations.scenarios import ask_what_if
from placements.operations.staged.starting import start_run
from placements.operations.staged.strategies import save_strategy
from placements.views.search import resource_url
from tests.rollouts.staged import staged_spec, strategy_document
from tests.rows import NOW, decided, person

Enter = Callable[..., Page]

SAMPLES = {
    "overview": "/",
    "search": "/search/?q=o",
    "activity": "/activity/",
    "help": "/help/semantics/",
    "remove-demo": "/demo/remove/",
    "clusters": "/clusters/",
    "import-clusters": "/clusters/import/",
    "cluster": "/clusters/bravelion/",
    "edit-cluster": "/clusters/bravelion/edit/",
    "cordon-cluster": "/clusters/bravelion/cordon/",
    "uncordon-cluster": "/clusters/bravelion/uncordon/",
    "leave-cluster": "/clusters/bravelion/leave/",
    "rehearse-cluster": "/clusters/bravelion/rehearse/",
    "placements": "/placements/",
    "new-placement": "/placements/new/",
    "placement": "/placements/web/",
    "edit-placement": "/placements/web/edit/",
    "delete-placement": "/placements/web/delete/",
    "history": "/placements/web/history/",
    "compare": "/placements/web/compare/p0..p1/",
    "plan": "/placements/web/plan/",
    "pause-placement": "/placements/web/pause/",
    "resume-placement": "/placements/web/resume/",
    "stop-placement": "/placements/web/stop/",
    "start-placement": "/placements/web/start/",
    "release-placement": "/placements/web/release/",
    "roll-back": "/placements/web/roll-back/",
    "retry": "/placements/web/retry/bravelion/",
    "rollouts": "/rollouts/",
    "rollout": "/rollouts/web/1/",
    "start-staged": "/placements/shelf/staged-run/?strategy=careful",
    "staged-run": "/rollouts/staged/runs/one/",
    "resume-staged-run": "/rollouts/staged/runs/one/resume/",
    "approve-stage": "/rollouts/staged/runs/one/approve/all/",
    "stop-staged-run": "/rollouts/staged/runs/one/stop/",
    "abandon-staged-run": "/rollouts/staged/runs/one/abandon/",
    "skip-staged-wait": "/rollouts/staged/runs/one/skip-wait/all/",
    "retry-staged": "/rollouts/staged/runs/one/retry/bravelion/",
    "staged-strategies": "/rollouts/staged/strategies/",
    "new-staged-strategy": "/rollouts/staged/new-strategy/",
    "staged-strategy": "/rollouts/staged/strategies/careful/",
    "edit-staged-strategy": "/rollouts/staged/strategies/careful/edit/",
    "delete-staged-strategy": "/rollouts/staged/strategies/careful/delete/",
    "draft": "/drafts/{draft}/",
    "review-draft": "/drafts/{draft}/review/",
    "drain-cluster": "/clusters/bravelion/drain/",
    "topology": "/topology/?key=region&key2=env",
    "what-if": "/what-if/?label=region:east",
    "scenario": "/what-if/{scenario}/",
    "decided-cluster": "/decisions/{decision}/clusters/bravelion/",
    "decision": "/decisions/{decision}/?cluster=bravelion",
    "semantics": "/decisions/{decision}/semantics/",
    "resources": "/resources/",
    "apply": "/resources/apply/",
    "resource": "{resource}",
    "delete-resource": "{resource}delete/",
}
NO_PAGE = {
    *("load-demo", "placement-yaml", "choose-two", "prefer-theme", "prefer-rows", "prefer-keys"),
    *("discard-draft", "rebase-draft"),
}
"""Addresses that show nothing of their own: they redirect, or hand out a file."""
ON_A_PHONE = (
    "overview",
    "clusters",
    "cluster",
    "placement",
    "history",
    "compare",
    "decision",
    "rollout",
    "help",
)
SERIOUS = ("serious", "critical")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def test_no_page_is_missing_here() -> None:
    assert SAMPLES.keys() | NO_PAGE == {pattern.name for pattern in urls.urlpatterns}


@pytest.fixture
def samples(nine: None) -> dict[str, str]:
    """Give the address of each page, on a demo that is being carried out, for `ana`, who has a draft."""
    ana = person("ana", "operator", "approver")
    stage = {"name": "all", "labelSelector": {}, "beforeStageTasks": [{"type": "Approval"}]}
    save_strategy(strategy_document(stage), by=ana, now=NOW)
    decided("shelf", staged_spec())
    start_run("one", placement="shelf", strategy="careful", by=ana, now=NOW)
    assert advance_due(now=NOW)
    ask_what_if(names=["bravelion"], labels=[], by=ana, now=NOW)
    web = Placement.objects.get(name="web")
    draft = start_draft(dump_yaml(web.document), placement=web, by=ana, now=NOW)
    decision = Decision.objects.filter(placement_name="web").latest("number")
    resource = resource_url(Resource.objects.earliest("pk"))
    return {
        name: address.format(
            decision=decision.record.decision_id,
            resource=resource,
            draft=draft.pk,
            scenario=Scenario.objects.latest("pk").pk,
        )
        for name, address in SAMPLES.items()
    }


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
    refused = ("new-placement", "edit-placement")
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
