"""Bulk actions on clusters: each says first what it would do to placements, then an operation does it."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone

from clusters.drivers.registry import SIMULATED
from clusters.drivers.simulated.configuration import parse_configuration
from clusters.models import ClusterLabel, ClusterTaint, MemberCluster
from clusters.operations import editing
from clusters.operations.faults import NotSimulatedError, faults_of
from clusters.operations.joining import Did
from clusters.operations.leaving import leave
from clusters.queries import fleet_now
from fleetui.roles import may_operate
from placements.admin.cluster_import import import_view
from placements.admin.drains import DRAIN, drain_all, drains_foreseen, tell_all
from placements.explain.wording import counted
from placements.queries.impact import Impact, impact_of
from placements.scheduling.agent import leaving
from placements.scheduling.door.json_text import load_json
from placements.scheduling.door.kinds import MEMBER_KIND, MEMBER_VERSIONS
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.fleet import NO_SCHEDULE, Cluster, Fleet, Taint
from placements.scheduling.member import parse_member

Given = Mapping[str, str]
_NAMES_SHOWN = 30


class NothingForm(forms.Form):
    """An action that needs to know no more."""

    def __init__(self, data: Any = None, *, names: Collection[str]) -> None:
        super().__init__(data)
        self.names = names


class LabelForm(NothingForm):
    """The label to set."""

    key = forms.CharField(required=False)
    value = forms.CharField(required=False)

    def clean(self) -> dict[str, Any]:
        """Ask the parser of manifests, so that its words are the same everywhere."""
        typed: dict[str, Any] = self.cleaned_data
        _refuse(self, {"labels": {typed.get("key", ""): typed.get("value", "")}}, {})
        return typed


class TaintForm(LabelForm):
    """The taint to set."""

    def clean(self) -> dict[str, Any]:
        """Ask the parser of manifests."""
        _refuse(self, {}, {"taints": [_taint(self.cleaned_data)]})
        return self.cleaned_data


class KeyForm(NothingForm):
    """A label key of the chosen clusters."""

    key = forms.ChoiceField()

    def __init__(self, data: Any = None, *, names: Collection[str]) -> None:
        super().__init__(data, names=names)
        keys = ClusterLabel.objects.filter(cluster__name__in=names).values_list("key", flat=True).distinct()
        self.fields["key"].choices = [(key, key) for key in keys.order_by("key")]  # type: ignore[attr-defined]


class OldTaintForm(NothingForm):
    """A taint of the chosen clusters, as `key=value`."""

    taint = forms.ChoiceField()

    def __init__(self, data: Any = None, *, names: Collection[str]) -> None:
        super().__init__(data, names=names)
        rows = ClusterTaint.objects.filter(cluster__name__in=names).values_list("key", "value").distinct()
        taints = [f"{key}={value}" for key, value in rows.order_by("key", "value")]
        self.fields["taint"].choices = [(one, one) for one in taints]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Split the choice again."""
        key, _, value = self.cleaned_data.get("taint", "").partition("=")
        return {**self.cleaned_data, "key": key, "value": value}


class FaultsForm(NothingForm):
    """What simulated clusters are told to fail with, as JSON; nothing ends all faults."""

    faults = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 12, "cols": 80}))

    def __init__(self, data: Any = None, *, names: Collection[str]) -> None:
        super().__init__(data, names=names)
        first = MemberCluster.objects.filter(name__in=names, driver=SIMULATED).order_by("name").first()
        found = faults_of(first) if first else []
        self.fields["faults"].initial = json.dumps(found, indent=2) if found else ""

    def clean(self) -> dict[str, Any]:
        """Ask the simulation, so that its words are the same everywhere."""
        chosen = MemberCluster.objects.filter(name__in=self.names)
        for cluster in chosen.exclude(driver=SIMULATED).order_by("name")[:_NAMES_SHOWN]:
            self.add_error(None, str(NotSimulatedError(cluster.name)))
        try:
            parse_configuration({"faults": typed_faults(self.cleaned_data)}, path="")
        except Faults as faults:
            for fault in faults.faults:
                self.add_error("faults", str(fault))
        return self.cleaned_data


def typed_faults(given: Mapping[str, Any]) -> list[Any]:
    """Give the faults that were typed. Raises Faults."""
    text = str(given.get("faults") or "").strip()
    found = load_json(text) if text else []
    if not isinstance(found, list):
        raise Faults([Fault("faults", "wrong-type", "is not a list of faults", "a list of objects")])
    return found


def _refuse(form: forms.Form, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    document = {
        "apiVersion": MEMBER_VERSIONS[0],
        "kind": MEMBER_KIND,
        "metadata": {"name": "any", **metadata},
        "spec": {"identity": {"kind": "User", "name": "any"}, **spec},
    }
    try:
        parse_member(document)
    except Faults as faults:
        for fault in faults.faults:
            form.add_error(None, str(fault))


Do = Callable[[Sequence[str], Given, User, datetime], int]
Choose = Callable[[Any, HttpRequest, QuerySet[MemberCluster]], HttpResponse]


@dataclass(frozen=True, slots=True)
class ClusterAction:
    """An action: what it asks for, what it does, and what a cluster is afterwards, for the preview."""

    name: str
    title: str
    do: Do
    after: Callable[[Cluster, Given], Cluster]
    form: type[NothingForm] = NothingForm
    is_farewell: bool = False
    verb: str = "changed"


def _edit(edit: Callable[[Sequence[str], Given, User, datetime], list[editing.Put]]) -> Do:
    def do(names: Sequence[str], given: Given, by: User, now: datetime) -> int:
        return sum(put.did is Did.CHANGED for put in edit(names, given, by, now))

    return do


def _taint(given: Given) -> dict[str, str]:
    value = given.get("value") or ""
    return {"key": given.get("key", ""), **({"value": value} if value else {}), "effect": NO_SCHEDULE}


def _with_taint(cluster: Cluster, given: Given) -> Cluster:
    taint = Taint(given["key"], given.get("value") or "", NO_SCHEDULE)
    return cluster if taint in cluster.taints else cluster._replace(taints=(*cluster.taints, taint))


def _without_taint(cluster: Cluster, given: Given) -> Cluster:
    taint = Taint(given["key"], given.get("value") or "", NO_SCHEDULE)
    return cluster._replace(taints=tuple(one for one in cluster.taints if one != taint))


def _with_label(cluster: Cluster, given: Given) -> Cluster:
    return cluster._replace(labels={**cluster.labels, given["key"]: given["value"]})


def _without_label(cluster: Cluster, given: Given) -> Cluster:
    return cluster._replace(labels={key: one for key, one in cluster.labels.items() if key != given["key"]})


ACTIONS: Mapping[str, ClusterAction] = {
    one.name: one
    for one in (
        ClusterAction(
            "add-label",
            "Set a label",
            _edit(
                lambda names, given, by, now: editing.change_labels(
                    names, put={given["key"]: given["value"]}, by=by, now=now
                )
            ),
            _with_label,
            LabelForm,
        ),
        ClusterAction(
            "remove-label",
            "Remove a label",
            _edit(
                lambda names, given, by, now: editing.change_labels(
                    names, put={}, remove=[given["key"]], by=by, now=now
                )
            ),
            _without_label,
            KeyForm,
        ),
        ClusterAction(
            "add-taint",
            "Add a taint",
            _edit(lambda names, given, by, now: editing.add_taint(names, _taint(given), by=by, now=now)),
            _with_taint,
            TaintForm,
        ),
        ClusterAction(
            "remove-taint",
            "Remove a taint",
            _edit(lambda names, given, by, now: editing.remove_taint(names, _taint(given), by=by, now=now)),
            _without_taint,
            OldTaintForm,
        ),
        ClusterAction(
            "cordon",
            "Cordon",
            _edit(lambda names, _given, by, now: editing.cordon(names, by=by, now=now)),
            lambda cluster, _given: _with_taint(cluster, editing.CORDON),
        ),
        ClusterAction(
            "uncordon",
            "Uncordon",
            _edit(lambda names, _given, by, now: editing.uncordon(names, by=by, now=now)),
            lambda cluster, _given: _without_taint(cluster, editing.CORDON),
        ),
        ClusterAction(
            DRAIN,
            "Drain",
            lambda names, _given, by, now: drain_all(names, by, now),
            lambda cluster, _given: _with_taint(cluster, editing.CORDON),
            verb="begin to be drained",
        ),
        ClusterAction(
            "leave",
            "Leave the fleet",
            lambda names, _given, by, now: len(leave(names, by=by, now=now)),
            lambda cluster, _given: cluster._replace(eligibility=leaving()),
            is_farewell=True,
            verb="begin to leave",
        ),
        ClusterAction(
            "faults",
            "Tell to fail",
            lambda names, given, by, now: tell_all(names, typed_faults(given), by, now),
            lambda cluster, _given: cluster,
            FaultsForm,
        ),
    )
}


def admin_action(action: ClusterAction) -> Choose:
    """Make the entry of the list's action menu: it opens the action's own page with the selection."""

    def choose(model_admin: Any, request: HttpRequest, rows: QuerySet[MemberCluster]) -> HttpResponse:
        names = list(rows.order_by("name").values_list("name", flat=True))
        return _page(model_admin, request, action, names, action.form(names=names))

    choose.__name__ = action.name
    return admin.action(choose, permissions=["change"], description=f"{action.title} …")


def cluster_urls(model_admin: Any) -> list[Any]:
    """Give the addresses of the actions' pages, and of the import."""

    def act(request: HttpRequest, name: str) -> HttpResponse:
        if name not in ACTIONS:
            raise Http404
        return act_view(model_admin, request, ACTIONS[name])

    def bring(request: HttpRequest) -> HttpResponse:
        return import_view(model_admin, request)

    inside = model_admin.admin_site.admin_view
    return [
        path("act/<str:name>/", inside(act), name="clusters_membercluster_act"),
        path("import/", inside(bring), name="clusters_membercluster_import"),
    ]


def act_view(model_admin: Any, request: HttpRequest, action: ClusterAction) -> HttpResponse:
    """Ask for what is missing, preview, and on `apply` do it; the selection travels along as names."""
    if not may_operate(request.user):
        raise PermissionDenied
    names = _there(request.POST.get("names", "").split() or request.GET.getlist("name"))
    if not names:
        messages.warning(request, "None of the chosen clusters is in the fleet any more.")
        return redirect("admin:clusters_membercluster_changelist")
    form = action.form(request.POST if request.method == "POST" else None, names=names)
    if request.method == "POST" and "apply" in request.POST and form.is_valid():
        try:
            changed = action.do(names, form.cleaned_data, request.user, timezone.now())  # type: ignore[arg-type]
        except Faults as faults:
            for fault in faults.faults:
                form.add_error(None, str(fault))
        else:
            messages.success(request, _said(action, form.cleaned_data, changed, len(names)))
            return redirect("admin:clusters_membercluster_changelist")
    return _page(model_admin, request, action, names, form)


def _there(names: Collection[str]) -> list[str]:
    rows = MemberCluster.objects.filter(name__in=names)
    return list(rows.order_by("name").values_list("name", flat=True))


def _said(action: ClusterAction, given: Given, changed: int, chosen: int) -> str:
    label = f" {given['key']}={given['value']}" if "value" in given else f" {given.get('key', '')}".rstrip()
    verb = action.verb
    same = chosen - changed
    left = f"; {same} already as wanted" if same else ""
    return f"{action.title}{label}: {counted(changed, 'cluster')} {verb}{left}."


def _page(
    model_admin: Any, request: HttpRequest, action: ClusterAction, names: Sequence[str], form: NothingForm
) -> TemplateResponse:
    asks = bool(form.fields)
    is_ready = not asks or (form.is_bound and "back" not in request.POST and form.is_valid())
    given = form.cleaned_data if asks and is_ready else {}
    impact, changing = _foreseen(action, names, given) if is_ready else (None, 0)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": action.title,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "action": action,
        "form": form,
        "names": names,
        "shown": names[:_NAMES_SHOWN],
        "hidden": max(len(names) - _NAMES_SHOWN, 0),
        "given": given,
        "impact": impact,
        "drains": drains_foreseen(names, now=timezone.now()) if action.name == DRAIN else (),
        "changing": changing,
        "same": len(names) - changing,
    }
    template = "admin/clusters/membercluster/act.html"
    return TemplateResponse(request, template, context, status=422 if form.errors else 200)


def _foreseen(action: ClusterAction, names: Sequence[str], given: Given) -> tuple[Impact, int]:
    """Schedule on the fleet as it would be; tell too how many clusters would differ."""
    chosen, fleet = set(names), fleet_now().fleet
    after = [action.after(one, given) if one.name in chosen else one for one in fleet]
    changing = sum(one != before for one, before in zip(after, fleet, strict=True))
    return impact_of(Fleet(after), gone=names if action.is_farewell else ()), changing
