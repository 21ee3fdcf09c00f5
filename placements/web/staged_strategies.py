"""Staged updates: starting a run; strategies, and the rows of their form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db.models import TextField
from django.db.models.fields.json import KT
from django.db.models.functions import Cast
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_http_methods, require_safe

from clusters.filters import ClusterFilter, clusters_matching, label_keys
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.concurrency import RevisionConflict
from fleetui.htmx import render_page
from fleetui.permissions import by_operation, for_operators, for_readers
from placements.explain.staged_updates import StageWords, stage_words
from placements.manifests.staged_update import (
    StageSpec,
    parse_staged_strategy,
)
from placements.manifests.strategy import StrategyType
from placements.models import Placement, StagedRun, StagedStrategy
from placements.services.filters import events_matching
from placements.services.fleet.forms import lines_of, read_documents, read_strategy
from placements.services.history.queries import with_revision
from placements.services.placements import start_first_run
from placements.services.rollouts.queries import (
    free_name,
    with_status,
)
from placements.services.rollouts.staged_runs import (
    STAGED_STRATEGY,
    delete_strategy,
    save_strategy,
    start_run,
)
from placements.services.rollouts.stages import preview_of, starting_strategy
from placements.services.teams import of_placement, of_strategy
from placements.web import badges
from placements.web.activity import event_rows
from placements.web.request import actor, number_of, page_from, redirect_after

_EVENTS_SHOWN, _SNAPSHOTS_SHOWN, _RUNS_SHOWN, _SPARE_ROWS = 15, 20, 10, 2
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
        - type: Approval
    - name: prod
      labelSelector:
        matchLabels:
          env: prod
      maxConcurrency: 25%
"""


NEW_STRATEGY = "+"
"""In place of the name of a strategy, which has no such character: the one that the form itself describes."""
_SEVERAL = 2
_APPROVAL, _WAIT = "Approval", "TimedWait"
_KNOWN = {
    "name",
    "labelSelector",
    "maxConcurrency",
    "sortingLabelKey",
    "beforeStageTasks",
    "afterStageTasks",
}


@dataclass(frozen=True, slots=True)
class StageRow:
    """One row as it is typed; `labels` as `env=prod, tier=gold`, `before` and `after` an approval."""

    name: str = ""
    labels: str = ""
    most: str = ""
    sort: str = ""
    before: str = ""
    wait: str = ""
    after: str = ""

    def stage(self, place: int) -> dict[str, Any]:
        """Return the stage of the manifest. Raise InvalidManifest for labels that are not `key=value`."""
        pairs = [
            part.strip().partition("=")
            for part in self.labels.split(",")
            if part.strip()
        ]
        if wrong := next((key for key, sign, _ in pairs if not sign), ""):
            path = f"spec.stages[{place}].labelSelector.matchLabels"
            raise InvalidManifest(
                [FieldError(path, "syntax", f"Invalid value: {wrong}", "key=value")]
            )
        labels = {key.strip(): value.strip() for key, _, value in pairs}
        waits = [{"type": _WAIT, "waitTime": self.wait}] if self.wait else []
        stage = {
            "name": self.name,
            "labelSelector": {"matchLabels": labels} if labels else {},
            "sortingLabelKey": self.sort,
            "maxConcurrency": int(self.most)
            if self.most.isdecimal() and len(self.most) < 10
            else self.most,
            "beforeStageTasks": [{"type": self.before}] if self.before else [],
            "afterStageTasks": [
                *waits,
                *([{"type": self.after}] if self.after else []),
            ],
        }
        return {
            key: value
            for key, value in stage.items()
            if key == "labelSelector" or value not in ("", [])
        }


def stage_rows(document: Mapping[str, Any]) -> list[StageRow] | None:
    """Return the stages of a valid strategy as rows; None if the rows cannot show all of it."""
    rows = []
    for stage in document["spec"]["stages"]:
        selector = stage.get("labelSelector")
        if (
            selector is None
            or selector.get("matchExpressions")
            or not stage.keys() <= _KNOWN
        ):
            return None
        labels = selector.get("matchLabels") or {}
        tasks = {task["type"]: task for task in stage.get("afterStageTasks") or ()}
        rows.append(
            StageRow(
                stage["name"],
                ", ".join(f"{key}={value}" for key, value in labels.items()),
                str(stage.get("maxConcurrency", "")),
                stage.get("sortingLabelKey", ""),
                _APPROVAL if stage.get("beforeStageTasks") else "",
                tasks.get(_WAIT, {}).get("waitTime", ""),
                tasks.get(_APPROVAL, {}).get("type", ""),
            )
        )
    return rows


def typed_stages(params: QueryDict) -> list[StageRow]:
    columns = [params.getlist(f"stage_{part}") for part in StageRow.__slots__]
    rows = (
        StageRow(*(value.strip() for value in values))
        for values in zip(*columns, strict=False)
    )
    return [row for row in rows if row != StageRow()]


def with_stages(text: str, params: QueryDict) -> str:
    """Return a manifest with the stages and the name of a form, and all else of it. Raise InvalidManifest."""
    data = read_documents(text)[0].data
    metadata, spec = (mapping_at(data.get(part)) for part in ("metadata", "spec"))
    name = {"name": params.get("name", "").strip()} if "name" in params else {}
    stages = [row.stage(place) for place, row in enumerate(typed_stages(params))]
    return dump_yaml(
        {**data, "metadata": {**metadata, **name}, "spec": {**spec, "stages": stages}}
    )


@for_readers
@require_safe
def choose_placement(request: HttpRequest) -> HttpResponse:
    """List the placements of which a staged update run can start, with links to its form."""
    text = request.GET.get("q", "").strip().lower()
    page = page_from(
        request,
        Placement.objects.filter(deleting_since=None, full_name__contains=text),
        order="full_name",
        unique="full_name",
    )
    return render(
        request,
        "staged_strategies/choose.html",
        {"text": text, "rows": page.rows, "after": page.after},
    )


@for_operators("manage staged update runs", of=of_placement)
@require_http_methods(["GET", "HEAD", "POST"])
def start(request: HttpRequest, name: str) -> HttpResponse:
    """Select a strategy and resources and preview the stages; then start a run, or only create it."""
    placements = with_revision(Placement.objects.all())
    placement = get_object_or_404(placements, full_name=name)
    params = request.POST if request.method == "POST" else request.GET
    strategy, snapshot = (
        params.get("strategy", ""),
        number_of(params.get("snapshot", "")),
    )
    if request.method != "POST":
        return _start_page(request, placement, strategy, snapshot)
    try:
        document = None
        if strategy == NEW_STRATEGY:
            stages = request.POST.copy()
            stages["name"] = request.POST.get("strategy_name", "")
            text = with_stages(dump_yaml(starting_strategy(placement)), stages)
            document = dict(read_strategy(text)[0].data)
        if request.POST.get("do") == "check":
            return _start_page(request, placement, strategy, snapshot, document)
        begin: Callable[..., StagedRun] = start_run
        external = number_of(request.POST.get("external", ""))
        if external is not None:
            begin = partial(start_first_run, expected=external)
        run = begin(
            request.POST.get("name", "").strip(),
            placement=name,
            strategy=document or strategy,
            snapshot=snapshot,
            is_prepared=request.POST.get("do") == "prepare",
            **actor(request),
        )
    except InvalidManifest as invalid:
        return _start_page(
            request, placement, strategy, snapshot, errors=invalid.errors, status=422
        )
    except RevisionConflict as stale:
        changed = (FieldError("", "conflict", str(stale)),)
        return _start_page(
            request, placement, strategy, snapshot, errors=changed, status=409
        )
    done = "started" if run.started_at else "created"
    return redirect_after(
        request,
        f"Staged update run {run.full_name} {done}.",
        "web:staged-run",
        run.full_name,
    )


def _start_page(
    request: HttpRequest,
    placement: Placement,
    strategy: str,
    snapshot: int | None,
    document: dict[str, Any] | None = None,
    *,
    errors: tuple[FieldError, ...] = (),
    status: int = 200,
) -> HttpResponse:
    """Show the stages of a run; `document` is the new strategy that is being written for it."""
    beside = StagedStrategy.objects.filter(namespace=placement.namespace)
    strategies = {row.name: row for row in beside.order_by("name")}
    snapshots = placement.resource_snapshots.defer("identities").order_by("-number")
    active = StagedRun.objects.filter(placement=placement, ended_at=None).order_by("pk")
    if not strategy and len(strategies) < _SEVERAL:
        [strategy] = strategies or [NEW_STRATEGY]
    row = strategies.get(strategy)
    editor = None
    if strategy == NEW_STRATEGY:
        start, editor = _new_strategy(request, placement, document)
        if not errors:
            row = StagedStrategy(namespace=placement.namespace, document=start)
    preview = None
    if row is not None:
        preview = preview_of(
            placement, row, snapshot, becomes_external=True, now=datetime.now(UTC)
        )
    context = {
        "editor": editor,
        "new_strategy": NEW_STRATEGY,
        "placement": placement,
        "strategies": strategies,
        "strategy": strategy,
        "snapshots": snapshots[:_SNAPSHOTS_SHOWN],
        "snapshot": snapshot,
        "active": list(active.values_list("full_name", flat=True)),
        "preview": preview,
        "name": request.POST.get("name", "") or free_name(placement.full_name),
        "errors": errors,
    }
    return render_page(
        request,
        "staged_strategies/start.html",
        context,
        fragment="staged_strategies/_preview.html",
        status=status,
    )


def _new_strategy(
    request: HttpRequest, placement: Placement, document: dict[str, Any] | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the new strategy of a run, and its rows as they are typed, at first as it starts."""
    start = document or starting_strategy(placement)
    name = start["metadata"]["name"]
    rows = stage_rows(start) or []
    if request.method == "POST":
        name = request.POST.get("strategy_name", "")
        rows = typed_stages(request.POST)
    return start, _row_context(name, rows)


@for_readers
@require_safe
def strategies(request: HttpRequest) -> HttpResponse:
    page = page_from(
        request, StagedStrategy.objects.all(), order="name", unique="full_name"
    )
    rows = [
        (row, [stage.name for stage in parse_staged_strategy(row.document).spec.stages])
        for row in page.rows
    ]
    return render(
        request,
        "staged_strategies/strategies.html",
        {"rows": rows, "after": page.after},
    )


@for_readers
@require_safe
def strategy(request: HttpRequest, name: str) -> HttpResponse:
    """Show one strategy, stage by stage, and the runs that use it."""
    row = get_object_or_404(StagedStrategy, full_name=name)
    runs = StagedRun.objects.alias(by=_STRATEGY_NAME).filter(
        by=row.name, namespace=row.namespace
    )
    fields = (
        "full_name",
        "placement_name",
        "status",
        "created_at",
        "ended_at",
        "placement__paused_since",
    )
    shown = with_status(runs.select_related("placement")).only(*fields).order_by("-id")
    beside = Placement.objects.filter(
        namespace=row.namespace, deleting_since=None
    ).order_by("full_name")
    events = events_matching(kind=STAGED_STRATEGY, name=name).order_by("-at", "-id")
    return render_page(
        request,
        "staged_strategies/strategy.html",
        {
            "strategy": row,
            "stages": tuple(
                map(stage_words, parse_staged_strategy(row.document).spec.stages)
            ),
            "runs": [(run, badges.run_state(run)) for run in shown[:_RUNS_SHOWN]],
            "starts": (
                (
                    "External",
                    beside.filter(strategy_type=StrategyType.EXTERNAL)[:_RUNS_SHOWN],
                ),
                (
                    "Rolling updates, to change to External when the run starts",
                    beside.exclude(strategy_type=StrategyType.EXTERNAL)[:_RUNS_SHOWN],
                ),
            ),
            "manifest": dump_yaml(row.document),
            "events": event_rows(events[:_EVENTS_SHOWN]),
        },
    )


@for_operators("create strategies", of=by_operation)
@require_http_methods(["GET", "HEAD", "POST"])
def new_strategy(request: HttpRequest) -> HttpResponse:
    return _edit_strategy(request, None, _TEMPLATE)


@for_operators("edit strategies", of=of_strategy)
@require_http_methods(["GET", "HEAD", "POST"])
def edit_strategy(request: HttpRequest, name: str) -> HttpResponse:
    row = get_object_or_404(StagedStrategy, full_name=name)
    return _edit_strategy(request, row, dump_yaml(row.document))


def _edit_strategy(
    request: HttpRequest, saved: StagedStrategy | None, text: str
) -> HttpResponse:
    """Show a strategy as rows or as its manifest, validate it or save it; errors are shown beside it."""
    editor: dict[str, Any] = {
        "strategy": saved,
        "text": text,
        "revision": saved.revision if saved else 0,
        "stages": (),
        "rows": (),
        "is_beyond_rows": False,
    }
    page, has_rows = (
        "staged_strategies/strategy_edit.html",
        request.POST.get("rows") == "1",
    )
    if request.method != "POST":
        if request.GET.get("as") != "yaml":
            document, draft = read_strategy(text)
            rows = stage_rows(document.data)
            editor |= _row_context(draft.metadata.name, rows or [])
            editor["is_beyond_rows"] = rows is None
            editor["stages"] = [_counted_stage(stage) for stage in draft.spec.stages]
        return render(request, page, {"editor": editor})
    editor["text"] = request.POST.get("manifest", "").replace("\r\n", "\n")
    editor["revision"] = (
        (number_of(request.POST.get("revision", "")) or 0) if saved else 0
    )
    if has_rows:
        editor |= _row_context(request.POST.get("name", ""), typed_stages(request.POST))
    try:
        if has_rows:
            editor["text"] = with_stages(editor["text"], request.POST)
        document, draft = read_strategy(
            editor["text"], name=saved.full_name if saved else ""
        )
        editor["stages"] = [_counted_stage(stage) for stage in draft.spec.stages]
        if request.POST.get("do") != "save":
            return render(request, page, {"editor": editor})
        with lines_of(document):
            save_strategy(document.data, **actor(request), expected=editor["revision"])
    except InvalidManifest as error:
        # Rows have no lines.
        errors = (
            [replace(field_error, line=None) for field_error in error.errors]
            if has_rows
            else error.errors
        )
        return render(
            request, page, {"editor": editor | {"errors": errors}}, status=422
        )
    except RevisionConflict as stale:
        return render(request, page, {"editor": editor | {"stale": stale}}, status=409)
    done = f"Strategy {draft.full_name} saved. Existing runs keep their stages."
    return redirect_after(request, done, "web:staged-strategy", draft.full_name)


def _row_context(name: str, rows: list[StageRow]) -> dict[str, Any]:
    spare = [StageRow()] * _SPARE_ROWS if rows else []
    return {"name": name, "rows": [*rows, *spare], "keys": label_keys() if rows else ()}


def _counted_stage(stage: StageSpec) -> StageWords:
    """Return a stage in words, with the number of clusters that have its labels now."""
    words, selector = stage_words(stage), stage.label_selector
    if selector is None or selector.match_expressions:
        return words
    labels = tuple(f"{key}:{value}" for key, value in selector.match_labels.items())
    count = clusters_matching(ClusterFilter(labels=labels)).count()
    return replace(words, clusters=f"{words.clusters}: {count:,} now")


@for_operators("delete strategies", of=of_strategy)
@require_http_methods(["GET", "HEAD", "POST"])
def delete_strategy_page(request: HttpRequest, name: str) -> HttpResponse:
    row = get_object_or_404(StagedStrategy, full_name=name)
    if request.method != "POST":
        return render(
            request, "staged_strategies/strategy_delete.html", {"strategy": row}
        )
    delete_strategy(name, **actor(request))
    return redirect_after(request, f"Strategy {name} deleted.", "web:staged-strategies")
