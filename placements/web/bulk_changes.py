"""Changes of many clusters: a form, a preview with the impact on placements, and the result of each."""

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_safe

from clusters.filters import ClusterFilter, ClusterFilterState, parse_filter_text
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.htmx import render_page
from fleetui.middleware import costly
from fleetui.permissions import current_user, for_operators, for_readers
from fleetui.polling import polled
from placements.models import BulkChange
from placements.services.bulk_changes import (
    BulkAction,
    BulkOutcome,
    preview_change,
    read_options,
    results_of,
    selected_clusters,
    start_change,
)
from placements.services.disruption.impact import drain_impact
from placements.services.fleet.forms import TypedCluster, read_cluster
from placements.web.badges import Badge
from placements.web.connection_forms import row_context, typed_rows

WORDS = {
    BulkAction.LABELS: ("Edit labels", "Sets and removes labels. Other labels stay."),
    BulkAction.TAINTS: ("Edit taints", "Adds and removes taints. Other taints stay."),
    BulkAction.CORDON: (
        "Cordon",
        "Adds a NoSchedule taint. Existing placements stay; new ones need a matching toleration.",
    ),
    BulkAction.UNCORDON: ("Uncordon", "Removes the cordon taint."),
    BulkAction.DRAIN: (
        "Drain",
        "Cordons the clusters and evicts their placements within their disruption budgets.",
    ),
    BulkAction.LEAVE: (
        "Remove from fleet",
        "Removes the clusters from the fleet. Placements are rescheduled. Workloads keep running but are no"
        " longer managed.",
    ),
}
RESULTS = {
    BulkOutcome.DONE: Badge("healthy", "Done"),
    BulkOutcome.UNCHANGED: Badge("pending", "Unchanged"),
    BulkOutcome.FAILED: Badge("failed", "Failed"),
}
_ROWS_SHOWN = 200
_DRAINS_SHOWN = 10


def cluster_filter(params: QueryDict) -> ClusterFilter:
    """Return the filter of a list of clusters: free text, `key=value`, labels and a state."""
    text, labels, state = parse_filter_text(params.get("q", ""))
    words = params.get("state", "")
    state = ClusterFilterState(words) if words in list(ClusterFilterState) else state
    facet_labels = [label for label in map(str.strip, params.getlist("label")) if label]
    return ClusterFilter(text, tuple(dict.fromkeys((*facet_labels, *labels))), state)


@for_operators("change clusters")
@costly
@require_http_methods(["GET", "HEAD", "POST"])
def bulk_change(request: HttpRequest, action: str) -> HttpResponseBase:
    """Show the form and the preview of an action on the selected clusters, or apply the action."""
    if action not in list(BulkAction):
        raise Http404
    wanted, params = BulkAction(action), request.POST if request.method == "POST" else request.GET
    names: list[str] = []
    try:
        chosen = list(dict.fromkeys(" ".join(params.getlist("name")).split()))
        names = (
            selected_clusters((), cluster_filter(params)) if "all" in params else selected_clusters(chosen)
        )
        if wanted in (BulkAction.LABELS, BulkAction.TAINTS) and params.get("do") not in ("preview", "apply"):
            return _page(request, wanted, names)
        options = _options(wanted, params)
    except InvalidManifest as error:
        status = 422 if request.method == "POST" else 200
        return _page(request, wanted, names, errors=error.errors, status=status)
    if request.method != "POST" or params.get("do") != "apply":
        return _page(request, wanted, names, options=options)
    if len(names) != int(params["count"] if params.get("count", "").isdecimal() else len(names)):
        messages.warning(request, "The selection changed after the preview. Review the impact again.")
        return _page(request, wanted, names, options=options, status=409)
    row = start_change(wanted, options, names, by=current_user(request), now=timezone.now())
    return redirect("web:bulk-change-result", row.request_id)


def _options(action: BulkAction, params: QueryDict) -> dict[str, Any]:
    """Return the options from the rows of the form. Raise InvalidManifest."""
    if action not in (BulkAction.LABELS, BulkAction.TAINTS):
        return {}
    labels, taints = typed_rows(params)
    removed = params.get("remove", "").replace(",", " ").split()
    typed = read_cluster(labels, taints if action is BulkAction.TAINTS else "")
    if typed.errors:
        raise InvalidManifest(typed.errors)
    if action is BulkAction.LABELS:
        return read_options(action, {"labels": {**typed.labels, **dict.fromkeys(removed)}})
    gone: TypedCluster = read_cluster("", "\n".join(removed))
    return read_options(action, {"add": typed.taints, "remove": gone.taints})


def _page(
    request: HttpRequest,
    action: BulkAction,
    names: list[str],
    *,
    options: dict[str, Any] | None = None,
    errors: tuple[FieldError, ...] = (),
    status: int = 200,
) -> HttpResponse:
    """Show the form, and with options the preview."""
    params = request.POST if request.method == "POST" else request.GET
    preview = preview_change(action, options, names) if options is not None and names else None
    rows = sorted(preview.rows, key=lambda row: (not row.conflict, not row.change)) if preview else []
    drains = [
        drain_impact(name, now=timezone.now(), beside=names)
        for name in (names[:_DRAINS_SHOWN] if preview and action is BulkAction.DRAIN else ())
    ]
    title, consequence = WORDS[action]
    context = {
        "action": action,
        "title": title,
        "consequence": consequence,
        "names": names,
        "is_filter": "all" in params,
        "filter": [(key, value) for key in ("q", "label", "state") for value in params.getlist(key) if value],
        "has_form": action in (BulkAction.LABELS, BulkAction.TAINTS),
        "remove": params.get("remove", ""),
        "preview": preview,
        "rows": rows[:_ROWS_SHOWN],
        "more": max(0, len(rows) - _ROWS_SHOWN),
        "drains": [(one, sum(row.gets_worse for row in one.rows)) for one in drains],
        "is_final": action in (BulkAction.LEAVE, BulkAction.DRAIN),
        "errors": errors,
        **row_context(*typed_rows(params)),
    }
    return render_page(request, "bulk_changes/change.html", context, status=status)


@for_readers
@require_safe
@polled
def bulk_change_result(request: HttpRequest, request_id: str) -> HttpResponseBase:
    """Show the progress of a change and the result of each cluster; the page polls until its end."""
    row = get_object_or_404(BulkChange.objects.select_related("actor"), request_id=request_id)
    results = results_of(row)
    order = list(reversed(BulkOutcome))
    rows = sorted(results, key=lambda one: order.index(one.outcome))[:_ROWS_SHOWN]
    counts = {outcome: sum(one.outcome is outcome for one in results) for outcome in BulkOutcome}
    context = {
        "change": row,
        "title": WORDS[BulkAction(row.action)][0],
        "done": len(results),
        "total": len(row.names),
        "counts": [(RESULTS[outcome], count) for outcome, count in counts.items() if count],
        "results": [(one, RESULTS[one.outcome]) for one in rows],
        "more": max(0, len(results) - _ROWS_SHOWN),
    }
    return render_page(request, "bulk_changes/result.html", context, fragment="bulk_changes/_result.html")
