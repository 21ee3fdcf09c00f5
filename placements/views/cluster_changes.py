"""Changing clusters: each change is confirmed on a page that says which placements would change."""

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods

from clusters.models import MemberCluster
from clusters.operations.editing import CORDON, cordon, uncordon
from clusters.operations.joining import Wanted, foresee_clusters, put_cluster
from clusters.operations.leaving import leave
from clusters.queries import cluster_of, fleet_now
from fleetui.access import for_operators
from fleetui.revisions import StaleEditError
from placements import forms
from placements.queries.impact import Impact, impact_of, with_clusters
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.fleet import Cluster, Taint
from placements.scheduling.member import parse_member
from placements.views.people import user_of

_MOST_SUGGESTED = 20
_CORDON = Taint(CORDON["key"], CORDON["value"], CORDON["effect"])


@dataclass(frozen=True, slots=True)
class Step:
    """A change of one cluster without a form: its words, what it would mean, and doing it."""

    title: str
    consequence: str
    button: str
    done: str
    impact: Callable[[MemberCluster], Impact]
    run: Callable[[MemberCluster, User, datetime], object]


def _cordon_impact(cluster: MemberCluster) -> Impact:
    seen = cluster_of(cluster)
    return _impact_with(seen._replace(taints=tuple(dict.fromkeys((*seen.taints, _CORDON)))))


def _uncordon_impact(cluster: MemberCluster) -> Impact:
    seen = cluster_of(cluster)
    return _impact_with(seen._replace(taints=tuple(one for one in seen.taints if one != _CORDON)))


def _impact_with(changed: Cluster) -> Impact:
    return impact_of(with_clusters(fleet_now().fleet, [changed]))


STEPS = {
    "cordon": Step(
        "Cordon {}",
        "It gets a taint that says so. What is placed there stays; new placements go elsewhere,"
        " unless they tolerate the taint.",
        "Cordon {}",
        "is cordoned",
        _cordon_impact,
        lambda cluster, by, now: cordon([cluster.name], by=by, now=now),
    ),
    "uncordon": Step(
        "Uncordon {}",
        "Its taint is taken away, so that placements may pick it again.",
        "Uncordon {}",
        "may be picked again",
        _uncordon_impact,
        lambda cluster, by, now: uncordon([cluster.name], by=by, now=now),
    ),
    "leave": Step(
        "Let {} leave the fleet",
        "It leaves the fleet. Placements look for other clusters; what runs there keeps running, but is no"
        " longer looked after from here.",
        "Let {} leave",
        "is leaving the fleet",
        lambda cluster: impact_of(fleet_now().fleet, gone=[cluster.name]),
        lambda cluster, by, now: leave([cluster.name], by=by, now=now),
    ),
}


@for_operators("change clusters")
@require_http_methods(["GET", "HEAD", "POST"])
def change_cluster(request: HttpRequest, name: str, step: str) -> HttpResponse:
    """Say what a change would mean, or do it."""
    cluster, change = get_object_or_404(MemberCluster, name=name), STEPS[step]
    if request.method == "POST":
        change.run(cluster, user_of(request), datetime.now(UTC))
        messages.success(request, f"{name} {change.done}.")
        return redirect("pages:cluster", name)
    context = {
        "title": change.title.format(name),
        "button": change.button.format(name),
        "cluster": cluster,
        "kind": step.capitalize(),
        "step": change,
        "impact": change.impact(cluster),
        "is_final": step == "leave",
    }
    return render(request, "clusters/change.html", context)


@for_operators("edit labels and taints")
@require_http_methods(["GET", "HEAD", "POST"])
def edit_cluster(request: HttpRequest, name: str) -> HttpResponse:
    """Edit labels and taints: check first, then save; a fault or a stale edit leads back to the form."""
    cluster = get_object_or_404(MemberCluster, name=name)
    if request.method != "POST":
        return _suggested(request, cluster)
    given = {field: request.POST.get(field, "") for field in ("labels", "taints", "revision")}
    try:
        document = _document(cluster, given)
        if request.POST.get("do") != "save":
            return _form(request, cluster, given, impact=_impact_of_edit(document))
        put_cluster(Wanted(document), by=user_of(request), now=datetime.now(UTC), expected=_revision(given))
    except Faults as found:
        return _form(request, cluster, given, faults=found.faults, status=422)
    except StaleEditError as stale:
        return _form(request, cluster, given, stale=stale, status=409)
    messages.success(request, f"Saved the labels and taints of {name}.")
    return redirect("pages:cluster", name)


def label_query(key: str, value: str | None) -> str:
    """Give the query with which the form comes up with this label filled in, or without it for None."""
    return urlencode({"without": key} if value is None else {"label": f"{key}={value}"})


def _suggested(request: HttpRequest, cluster: MemberCluster) -> HttpResponse:
    """Show the form as it is saved, or as its address suggests, with what that would do; nothing is saved."""
    given, lines = _written(cluster), request.GET.getlist("label")[:_MOST_SUGGESTED]
    without = request.GET.getlist("without")[:_MOST_SUGGESTED]
    if not lines and not without:
        return _form(request, cluster, given)
    given["labels"] = _relabelled(given["labels"], lines, without)
    try:
        impact = _impact_of_edit(_document(cluster, given))
    except Faults as found:
        return _form(request, cluster, given, faults=found.faults, status=422)
    return _form(
        request, cluster, given, impact=impact, suggested=[*lines, *(f"no {key}" for key in without)]
    )


def _relabelled(text: str, lines: Iterable[str], without: Iterable[str]) -> str:
    """Put lines in the place of those of the same key, or at the end, and take others away."""
    by_key = {_key(line): line for line in text.splitlines()}
    by_key |= {_key(line): " ".join(line.split()) for line in lines}
    return "\n".join(line for key, line in by_key.items() if key not in set(without))


def _key(line: str) -> str:
    return line.partition("=")[0].strip()


def _written(cluster: MemberCluster) -> dict[str, str]:
    return {
        "labels": forms.write_labels(cluster.document["metadata"].get("labels") or {}),
        "taints": forms.write_taints(cluster.document["spec"].get("taints") or ()),
        "revision": str(cluster.revision),
    }


def _revision(given: dict[str, str]) -> int:
    return int(given["revision"]) if given["revision"].isdecimal() else 0


def _document(cluster: MemberCluster, given: dict[str, str]) -> dict[str, Any]:
    """Give the manifest with the labels and taints of the form. Raises Faults: those of every line."""
    typed, document = forms.read_cluster(given["labels"], given["taints"]), deepcopy(cluster.document)
    document["metadata"]["labels"], document["spec"]["taints"] = typed.labels, typed.taints
    faults = [*typed.faults, *map(typed.at_line, _refused(document))]
    if faults:
        raise Faults(sorted(faults, key=lambda one: one.line or 0))
    return document


def _refused(document: dict[str, Any]) -> tuple[Fault, ...]:
    try:
        parse_member(document)
    except Faults as found:
        return found.faults
    return ()


def _impact_of_edit(document: dict[str, Any]) -> Impact:
    [(_, row)] = foresee_clusters([Wanted(document)], now=datetime.now(UTC))
    return _impact_with(cluster_of(row))


def _form(
    request: HttpRequest,
    cluster: MemberCluster,
    given: dict[str, str],
    *,
    faults: tuple[Fault, ...] = (),
    stale: StaleEditError | None = None,
    impact: Impact | None = None,
    suggested: Sequence[str] = (),
    status: int = 200,
) -> HttpResponse:
    on_labels = [one for one in faults if one.path.startswith(forms.LABELS_PATH)]
    on_taints = [one for one in faults if one.path.startswith(forms.TAINTS_PATH)]
    context = {
        "cluster": cluster,
        "given": given,
        "label_faults": on_labels,
        "taint_faults": on_taints,
        "other_faults": [one for one in faults if one not in on_labels and one not in on_taints],
        "stale": stale,
        "impact": impact,
        "suggested": suggested,
    }
    return render(request, "clusters/edit.html", context, status=status)
