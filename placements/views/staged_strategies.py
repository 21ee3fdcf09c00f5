"""Strategies of staged updates: the list, one of them in words, writing and deleting them."""

from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib import messages
from django.db.models import TextField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from fleetui.access import for_operators, for_readers
from fleetui.htmx import render_page
from fleetui.revisions import StaleEditError
from placements.explain.stage_words import StageWords, stage_words
from placements.forms import lines_of, read_strategy
from placements.manifests import dump_yaml
from placements.models import StagedRun, StagedStrategy
from placements.operations.staged.strategies import STAGED_STRATEGY, delete_strategy, save_strategy
from placements.queries.lists import events_matching
from placements.scheduling.door.staged_documents import StagedStrategySpec, parse_staged_strategy
from placements.scheduling.faults import Fault, Faults
from placements.views.happenings import happening_rows
from placements.views.lists import page_from
from placements.views.people import user_of

_EVENTS_SHOWN, _RUNS_SHOWN = 15, 10
_STRATEGY_NAME = Cast(KT("document__spec__stagedRolloutStrategyName"), TextField())
_TEMPLATE = """\
apiVersion: placement.kubernetes-fleet.io/v1beta1
kind: ClusterStagedUpdateStrategy
metadata:
  name: canary-first
spec:
  stages:
    - name: canary
      labelSelector:
        matchLabels:
          env: canary
      afterStageTasks:
        - type: TimedWait
          waitTime: 10m
        - type: Approval
    - name: prod
      labelSelector:
        matchLabels:
          env: prod
      maxConcurrency: 25%
"""


@dataclass(frozen=True, slots=True)
class StrategyRow:
    """One line of the list."""

    strategy: StagedStrategy
    stages: list[str]


@dataclass
class Editor:
    """What the editing page shows."""

    text: str
    revision: int
    strategy: StagedStrategy | None = None
    faults: tuple[Fault, ...] = ()
    stale: StaleEditError | None = None
    stages: tuple[StageWords, ...] = ()


@for_readers
@require_safe
def strategies(request: HttpRequest) -> HttpResponse:
    """List the strategies, by name."""
    page = page_from(request, StagedStrategy.objects.all(), order="name")
    rows = [StrategyRow(one, [stage.name for stage in _spec(one).stages]) for one in page.rows]
    return render(request, "rollouts/staged/strategies.html", {"rows": rows, "after": page.after})


def _spec(row: StagedStrategy) -> StagedStrategySpec:
    return parse_staged_strategy(row.document).spec


@for_readers
@require_safe
def strategy(request: HttpRequest, name: str) -> HttpResponse:
    """Show one strategy, stage by stage, and the runs that were started by it."""
    found = get_object_or_404(StagedStrategy, name=name)
    runs = StagedRun.objects.alias(by=_STRATEGY_NAME).filter(by=name)
    events = events_matching(kind=STAGED_STRATEGY, name=name).order_by("-id")
    context = {
        "strategy": found,
        "stages": tuple(map(stage_words, _spec(found).stages)),
        "runs": runs.only("name", "placement_name", "status", "created_at").order_by("-id")[:_RUNS_SHOWN],
        "manifest": dump_yaml(found.document),
        "events": happening_rows(events[:_EVENTS_SHOWN]),
    }
    return render_page(request, "rollouts/staged/strategy.html", context)


@for_operators("write strategies")
@require_http_methods(["GET", "HEAD", "POST"])
def new_strategy(request: HttpRequest) -> HttpResponse:
    """Write a new strategy."""
    if request.method != "POST":
        return _page(request, Editor(_TEMPLATE, 0))
    return _posted(request, Editor(_text(request), 0))


@for_operators("edit strategies")
@require_http_methods(["GET", "HEAD", "POST"])
def edit_strategy(request: HttpRequest, name: str) -> HttpResponse:
    """Change a strategy by its whole manifest."""
    found = get_object_or_404(StagedStrategy, name=name)
    if request.method != "POST":
        return _page(request, Editor(dump_yaml(found.document), found.revision, found))
    given = request.POST.get("revision", "")
    number = int(given) if given.isdecimal() and len(given) < 10 else 0
    return _posted(request, Editor(_text(request), number, found))


def _text(request: HttpRequest) -> str:
    return request.POST.get("manifest", "").replace("\r\n", "\n")


def _posted(request: HttpRequest, editor: Editor) -> HttpResponse:
    """Check the text, or save it; what is wrong with it stands beside it."""
    try:
        document, draft = read_strategy(editor.text, name=editor.strategy.name if editor.strategy else "")
        editor.stages = tuple(map(stage_words, draft.spec.stages))
        if request.POST.get("do") != "save":
            return _page(request, editor)
        with lines_of(document):
            save_strategy(document.data, by=user_of(request), now=datetime.now(UTC), expected=editor.revision)
    except Faults as found:
        editor.faults = found.faults
        return _page(request, editor, status=422)
    except StaleEditError as stale:
        editor.stale = stale
        return _page(request, editor, status=409)
    messages.success(request, f"Saved {draft.metadata.name}. Runs keep the stages that they began with.")
    return redirect("pages:staged-strategy", draft.metadata.name)


def _page(request: HttpRequest, editor: Editor, *, status: int = 200) -> HttpResponse:
    return render(request, "rollouts/staged/strategy_edit.html", {"editor": editor}, status=status)


@for_operators("delete strategies")
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, name: str) -> HttpResponse:
    """Say what deleting would do, or do it."""
    found = get_object_or_404(StagedStrategy, name=name)
    if request.method != "POST":
        return render(request, "rollouts/staged/strategy_delete.html", {"strategy": found})
    delete_strategy(name, by=user_of(request), now=datetime.now(UTC))
    messages.success(request, f"{name} is deleted.")
    return redirect("pages:staged-strategies")
