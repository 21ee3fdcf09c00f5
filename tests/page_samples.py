"""The address of every page, by its name in `urls.py`: whoever looks at all pages takes them from here.

A page without a sample here fails the first test of `tests/browser/test_accessibility.py`.
"""

from datetime import datetime

from django.contrib.auth.models import User

from fleetui.models import Event
from placements.manifests import dump_yaml
from placements.models import Decision, Placement, Resource
from placements.operations.drafts import start_draft
from placements.operations.rollouts.advancing import advance_due
from placements.operations.scenarios import ask_what_if
from placements.operations.staged.starting import start_run
from placements.operations.staged.strategies import save_strategy
from placements.views.search import resource_url
from tests.rollouts.staged import staged_spec, strategy_document
from tests.rows import decided

SAMPLES = {
    "overview": "/",
    "search": "/search/?q=o",
    "activity": "/activity/",
    "event": "/activity/{event}/",
    "help": "/help/semantics/",
    "remove-demo": "/demo/remove/",
    "clusters": "/clusters/",
    "import-clusters": "/clusters/import/",
    "cluster": "/clusters/{cluster}/",
    "edit-cluster": "/clusters/{cluster}/edit/",
    "cordon-cluster": "/clusters/{cluster}/cordon/",
    "uncordon-cluster": "/clusters/{cluster}/uncordon/",
    "leave-cluster": "/clusters/{cluster}/leave/",
    "rehearse-cluster": "/clusters/{cluster}/rehearse/",
    "placements": "/placements/",
    "new-placement": "/placements/new/",
    "placement": "/placements/{placement}/",
    "edit-placement": "/placements/{placement}/edit/",
    "delete-placement": "/placements/{placement}/delete/",
    "reschedule": "/placements/{placement}/reschedule/",
    "history": "/placements/{placement}/history/",
    "compare": "/placements/{placement}/compare/p0..p1/",
    "plan": "/placements/{placement}/plan/",
    "pause-placement": "/placements/{placement}/pause/",
    "resume-placement": "/placements/{placement}/resume/",
    "stop-placement": "/placements/{placement}/stop/",
    "start-placement": "/placements/{placement}/start/",
    "release-placement": "/placements/{placement}/release/",
    "roll-back": "/placements/{placement}/roll-back/",
    "retry": "/placements/{placement}/retry/{cluster}/",
    "rollouts": "/rollouts/",
    "rollout": "/rollouts/{placement}/1/",
    "start-staged": "/placements/shelf/staged-run/?strategy=careful",
    "staged-run": "/rollouts/staged/runs/one/",
    "resume-staged-run": "/rollouts/staged/runs/one/resume/",
    "approve-stage": "/rollouts/staged/runs/one/approve/all/",
    "stop-staged-run": "/rollouts/staged/runs/one/stop/",
    "abandon-staged-run": "/rollouts/staged/runs/one/abandon/",
    "skip-staged-wait": "/rollouts/staged/runs/one/skip-wait/all/",
    "retry-staged": "/rollouts/staged/runs/one/retry/{cluster}/",
    "staged-strategies": "/rollouts/staged/strategies/",
    "new-staged-strategy": "/rollouts/staged/new-strategy/",
    "staged-strategy": "/rollouts/staged/strategies/careful/",
    "edit-staged-strategy": "/rollouts/staged/strategies/careful/edit/",
    "delete-staged-strategy": "/rollouts/staged/strategies/careful/delete/",
    "draft": "/drafts/{draft}/",
    "review-draft": "/drafts/{draft}/review/",
    "drain-cluster": "/clusters/{cluster}/drain/",
    "topology": "/topology/?key=region&key2=env",
    "what-if": "/what-if/?label=region:east",
    "scenario": "/what-if/{scenario}/",
    "decided-cluster": "/decisions/{decision}/clusters/{cluster}/",
    "decision": "/decisions/{decision}/?cluster={cluster}",
    "semantics": "/decisions/{decision}/semantics/",
    "resources": "/resources/",
    "apply": "/resources/apply/",
    "resource": "{resource}",
    "delete-resource": "{resource}delete/",
}
NO_PAGE = {
    *(
        "load-demo",
        "placement-yaml",
        "choose-two",
        "newest-rollout",
        "prefer-theme",
        "prefer-rows",
        "prefer-keys",
    ),
    *("discard-draft", "rebase-draft"),
}
"""Addresses that show nothing of their own: they redirect, or hand out a file."""


def sample_pages(*, cluster: str, placement: str, by: User, now: datetime) -> dict[str, str]:
    """Give the address of each page, on a decided demo that begins to be carried out.

    `by` is an operator and approver, and has a draft.
    """
    _begin_staged_run(by=by, now=now)
    while advance_due(now=now):
        pass
    scenario = ask_what_if(names=[cluster], labels=[], by=by, now=now)
    row = Placement.objects.get(name=placement)
    draft = start_draft(dump_yaml(row.document), placement=row, by=by, now=now)
    decision = Decision.objects.filter(placement_name=placement).latest("number")
    things = {
        "cluster": cluster,
        "placement": placement,
        "decision": decision.record.decision_id,
        "resource": resource_url(Resource.objects.earliest("pk")),
        "draft": draft.pk,
        "scenario": scenario.pk,
        "event": Event.objects.latest("pk").pk,
    }
    return {name: address.format(**things) for name, address in SAMPLES.items()}


def _begin_staged_run(*, by: User, now: datetime) -> None:
    """Let a staged run of the placement `shelf` wait for an approval, with everything else still to come."""
    stage = {"name": "all", "labelSelector": {}, "beforeStageTasks": [{"type": "Approval"}]}
    save_strategy(strategy_document(stage), by=by, now=now)
    decided("shelf", staged_spec())
    start_run("one", placement="shelf", strategy="careful", by=by, now=now)
