"""Changes of clusters, each confirmed on a page that shows the impact on placements."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from clusters.filters import similar_keys
from clusters.fleet import Taint
from clusters.manifest import parse_member
from clusters.models import MemberCluster
from clusters.operations.edit import CORDON, replace_labels_and_taints
from clusters.operations.join import ClusterSpec, dry_run
from clusters.queries import cluster_of
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.concurrency import RevisionConflict
from placements.services.actions import ACTIONS, Action, ActionKind
from placements.services.bulk_changes import change_clusters
from placements.services.fleet import forms
from placements.services.fleet.forms import row_context, typed_rows
from placements.services.loss.evaluation import Impact, impact_of
from placements.web.bulk_changes import redirect_done
from placements.web.request import (
    actor,
    for_action,
    next_address,
    number_of,
    redirect_after,
)

_MOST_SUGGESTED = 20
_CORDON = Taint(CORDON["key"], CORDON["value"], CORDON["effect"])


def _cordon_impact(cluster: MemberCluster, *, is_cordoned: bool) -> Impact:
    before = cluster_of(cluster)
    taints = dict.fromkeys((*before.taints, _CORDON))
    if not is_cordoned:
        del taints[_CORDON]
    return impact_of([before.with_changes(taints=tuple(taints))])


_IMPACTS: dict[str, Callable[[MemberCluster], Impact]] = {
    "cordon": partial(_cordon_impact, is_cordoned=True),
    "uncordon": partial(_cordon_impact, is_cordoned=False),
    "leave": lambda cluster: impact_of(lost=[cluster.name]),
}


@require_http_methods(["GET", "HEAD", "POST"])
def change_cluster(request: HttpRequest, name: str, step: str) -> HttpResponseBase:
    """Show the impact of a change, or apply it; what is `quick` is applied unless placements are affected."""
    return for_action(ActionKind.CLUSTER, step)(_change_cluster)(
        request, action=ACTIONS[ActionKind.CLUSTER, step], name=name
    )


def _change_cluster(request: HttpRequest, action: Action, name: str) -> HttpResponse:
    cluster = get_object_or_404(MemberCluster, name=name)
    back = next_address(request, reverse("web:cluster", args=[name]))
    is_quick = request.POST.get("do") == "quick"
    impact = (
        _IMPACTS[action.name](cluster) if is_quick or request.method != "POST" else None
    )
    if request.method == "POST" and not (
        impact and (impact.rows or impact.not_evaluated)
    ):
        return redirect_done(
            request,
            change_clusters(action, {}, [name], **actor(request)),
            back=back,
        )
    return render(
        request,
        "clusters/change.html",
        {
            "title": f"{action.title.format(name=name)}?",
            "button": action.short_title,
            "cluster": cluster,
            "cancel": back,
            "confirmation": action.confirmation,
            "impact": impact,
            "is_final": action.is_dangerous,
        },
    )


_SAVE = replace(
    ACTIONS[ActionKind.CLUSTER, "labels"],
    operation=replace_labels_and_taints,
    message="Cluster {name} saved.",
)


@for_action(ActionKind.CLUSTER, "labels")
@require_http_methods(["GET", "HEAD", "POST"])
def edit_cluster(request: HttpRequest, name: str) -> HttpResponse:
    """Edit labels and taints: preview, then save; an error or a conflict shows the form again."""
    cluster = get_object_or_404(MemberCluster, name=name)
    if request.method != "POST":
        return _suggested(request, cluster)
    labels, taints = typed_rows(request.POST)
    fields = {
        "labels": labels,
        "taints": taints,
        "revision": request.POST.get("revision", ""),
    }
    try:
        document = _document(cluster, fields)
        if request.POST.get("do") != "save":
            return _form(request, cluster, fields, impact=_impact_of_edit(document))
        message = _SAVE.run(
            name,
            labels=document["metadata"]["labels"],
            taints=document["spec"]["taints"],
            **actor(request),
            expected=number_of(fields["revision"], digits=18) or 0,
        )
    except InvalidManifest as error:
        return _form(request, cluster, fields, errors=error.errors, status=422)
    except RevisionConflict as stale:
        return _form(request, cluster, fields, stale=stale, status=409)
    return redirect_after(request, message, "web:cluster", name)


def _suggested(request: HttpRequest, cluster: MemberCluster) -> HttpResponse:
    """Show the form as saved, or with the labels of the query filled in and their impact."""
    fields = {
        "labels": forms.write_labels(cluster.document["metadata"].get("labels") or {}),
        "taints": forms.write_taints(forms.taints_without_cordon(cluster.document)),
        "revision": str(cluster.revision),
    }
    lines = request.GET.getlist("label")[:_MOST_SUGGESTED]
    without = request.GET.getlist("without")[:_MOST_SUGGESTED]
    if not lines and not without:
        return _form(request, cluster, fields)
    by_key = {_key(line): line for line in fields["labels"].splitlines()}
    by_key |= {_key(line): " ".join(line.split()) for line in lines}
    fields["labels"] = "\n".join(
        line for key, line in by_key.items() if key not in set(without)
    )
    try:
        impact = _impact_of_edit(_document(cluster, fields))
    except InvalidManifest as error:
        return _form(request, cluster, fields, errors=error.errors, status=422)
    return _form(
        request,
        cluster,
        fields,
        impact=impact,
        suggested=[*lines, *(f"remove {key}" for key in without)],
    )


def _key(line: str) -> str:
    return line.partition("=")[0].strip()


def _document(cluster: MemberCluster, fields: dict[str, str]) -> dict[str, Any]:
    """Return the manifest with the labels and taints of the form. Raises InvalidManifest."""
    typed = forms.read_cluster(fields["labels"], fields["taints"])
    document = deepcopy(cluster.document)
    document["metadata"]["labels"] = typed.labels
    document["spec"]["taints"] = forms.with_cordon(typed.taints, cluster.document)
    errors = list(typed.errors)
    try:
        parse_member(document)
    except InvalidManifest as error:
        errors += map(typed.at_line, error.errors)
    if errors:
        raise InvalidManifest(sorted(errors, key=lambda one: one.line or 0))
    return document


def _impact_of_edit(document: dict[str, Any]) -> Impact:
    [(_, row, _)] = dry_run([ClusterSpec(document)], now=datetime.now(UTC))
    return impact_of([cluster_of(row)])


def _form(
    request: HttpRequest,
    cluster: MemberCluster,
    fields: dict[str, str],
    *,
    errors: tuple[FieldError, ...] = (),
    stale: RevisionConflict | None = None,
    impact: Impact | None = None,
    suggested: Sequence[str] = (),
    status: int = 200,
) -> HttpResponse:
    on_labels = [error for error in errors if error.path.startswith(forms.LABELS_PATH)]
    on_taints = [error for error in errors if error.path.startswith(forms.TAINTS_PATH)]
    typed = forms.read_cluster(fields["labels"], "").labels
    return render(
        request,
        "clusters/edit.html",
        {
            **row_context(fields["labels"], fields["taints"]),
            "cluster": cluster,
            "is_cordoned": cluster.is_cordoned,
            "fields": fields,
            "similar": similar_keys(typed),
            "label_errors": on_labels,
            "taint_errors": on_taints,
            "other_errors": [
                error
                for error in errors
                if error not in on_labels and error not in on_taints
            ],
            "stale": stale,
            "impact": impact,
            "suggested": suggested,
        },
        status=status,
    )
