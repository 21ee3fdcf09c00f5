"""Actions on many clusters: a form, a preview with the impact on placements, and their undo."""

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from clusters.filters import ClusterFilter, closed_filters, parse_filter_text
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import for_operators
from placements.services.actions import Action, ActionKind
from placements.services.bulk_changes import (
    BULK_ACTIONS,
    BulkResult,
    change_clusters,
    preview_change,
    read_options,
    selected_clusters,
)
from placements.services.fleet.forms import (
    TypedCluster,
    read_cluster,
    row_context,
    typed_rows,
)
from placements.services.undo import undo_change
from placements.web.request import (
    actor,
    for_action,
    next_address,
    number_of,
    redirect_after,
)

_ROWS_SHOWN = 200
_WITH_FORM = ("labels", "taints")


def cluster_filter(params: QueryDict) -> ClusterFilter:
    """Return the filter of a list of clusters: typed text, labels, a state and a verdict."""
    typed = parse_filter_text(params.get("q", ""))
    facet_labels = [label for label in map(str.strip, params.getlist("label")) if label]
    labels = tuple(dict.fromkeys((*facet_labels, *typed.labels)))
    return replace(typed, labels=labels, **closed_filters(params))


@costly
@require_http_methods(["GET", "HEAD", "POST"])
def bulk_change(request: HttpRequest, action: str) -> HttpResponseBase:
    """Show the form and the preview of an action on the selected clusters, or run the action."""
    if action not in BULK_ACTIONS:
        raise Http404
    if action == "drain" and request.method != "POST":
        names = " ".join(request.GET.getlist("name")).split()
        if len(names) == 1 and "all" not in request.GET:
            return redirect(
                reverse(
                    "web:cluster-drain",
                    args=names,
                    query={"plan": "new", "next": next_address(request, "")},
                )
            )
    return for_action(ActionKind.CLUSTER, action)(_bulk_change)(
        request, wanted=BULK_ACTIONS[action]
    )


def _bulk_change(request: HttpRequest, wanted: Action) -> HttpResponseBase:
    params = request.POST if request.method == "POST" else request.GET
    names: list[str] = []
    try:
        if "all" in params:
            names = selected_clusters((), cluster_filter(params))
        else:
            names = selected_clusters(
                list(dict.fromkeys(" ".join(params.getlist("name")).split()))
            )
        if wanted.name in _WITH_FORM and params.get("do") not in ("preview", "apply"):
            return _page(request, wanted, names)
        options = _options(wanted, params)
    except InvalidManifest as error:
        status = 422 if request.method == "POST" else 200
        return _page(request, wanted, names, errors=error.errors, status=status)
    if request.method != "POST" or params.get("do") != "apply":
        return _page(request, wanted, names, options=options)
    result = change_clusters(wanted, options, names, **actor(request))
    return redirect_done(
        request, result, back=next_address(request, reverse("web:clusters"))
    )


def redirect_done(
    request: HttpRequest, result: BulkResult, *, back: str
) -> HttpResponse:
    """Return to a page that says what was done, with its undo."""
    return redirect_after(
        request,
        render_to_string(
            "clusters/_done.html", {"done": result, "back": back}, request
        ),
        back,
    )


@for_operators("change clusters")
@require_POST
def undo_cluster_change(request: HttpRequest) -> HttpResponse:
    """Undo an action on clusters, from the message that says that it is done."""
    undone = undo_change(request.POST.get("change", ""), **actor(request))
    add_message = messages.warning if undone.reasons else messages.success
    add_message(request, undone.message)
    return redirect(next_address(request, reverse("web:clusters")))


def _options(action: Action, params: QueryDict) -> dict[str, Any]:
    """Return the options from the rows of the form. Raise InvalidManifest."""
    if action.name not in _WITH_FORM:
        return {}
    labels, taints = typed_rows(params)
    removed = params.get("remove", "").replace(",", " ").split()
    typed = read_cluster(labels, taints if action.name == "taints" else "")
    if typed.errors:
        raise InvalidManifest(typed.errors)
    if action.name == "labels":
        return read_options(
            action, {"labels": {**typed.labels, **dict.fromkeys(removed)}}
        )
    gone: TypedCluster = read_cluster("", "\n".join(removed))
    return read_options(action, {"add": typed.taints, "remove": gone.taints})


def _page(
    request: HttpRequest,
    action: Action,
    names: list[str],
    *,
    options: dict[str, Any] | None = None,
    errors: tuple[FieldError, ...] = (),
    status: int = 200,
) -> HttpResponse:
    params = request.POST if request.method == "POST" else request.GET
    preview = None
    if options is not None and names:
        preview = preview_change(action, options, names, now=timezone.now())
    rows = list(preview.rows) if preview else []
    rows.sort(key=lambda row: (not row.refusal, not row.conflict, not row.change))
    return render_page(
        request,
        "bulk_changes/change.html",
        {
            "action": action,
            "names": names,
            "matched": "all" in params and number_of(params.get("matched", "")),
            "next": next_address(request, ""),
            "has_form": action.name in _WITH_FORM,
            "remove": params.get("remove", ""),
            "preview": preview,
            "rows": rows[:_ROWS_SHOWN],
            "more": max(0, len(rows) - _ROWS_SHOWN),
            "errors": errors,
            **row_context(*typed_rows(params)),
        },
        status=status,
    )
