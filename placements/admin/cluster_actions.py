"""Actions on many clusters at once: each shows its impact on placements before an operation runs."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import path
from django.utils import timezone

from clusters.drivers.registry import SIMULATED
from clusters.drivers.simulated.configuration import parse_configuration
from clusters.fleet import NO_SCHEDULE, Cluster, Fleet, Taint
from clusters.health import leaving
from clusters.manifest import parse_member
from clusters.models import ClusterLabel, ClusterTaint, MemberCluster
from clusters.operations.edit import CORDON, add_taint, change_labels, cordon, remove_taint, uncordon
from clusters.operations.fault_injection import NotSimulatedError, faults_of, set_faults
from clusters.operations.join import JoinOutcome, JoinResult
from clusters.operations.leave import leave
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.kinds import MEMBER_KIND, MEMBER_VERSIONS
from fleetui.apimachinery.yaml import load_json
from fleetui.permissions import may_operate
from placements.explain.vocabulary import counted
from placements.services.disruption.drains import drain
from placements.services.disruption.impact import drain_impact
from placements.services.fleet.impact import impact_of

Given = Mapping[str, str]
Run = Callable[..., int | list[JoinResult]]
_NAMES_SHOWN = 30
_DRAINS_SHOWN = 10


class ActionForm(forms.Form):
    """The input of an action on the clusters `names`; here none."""

    def __init__(self, data: Any = None, *, names: Collection[str]) -> None:
        super().__init__(data)
        self.names = names

    def check_manifest(self, *, metadata: Mapping[str, Any] | None = None, **spec: Any) -> None:
        """Add the errors that a manifest with these fields would have."""
        document = {
            "apiVersion": MEMBER_VERSIONS[0],
            "kind": MEMBER_KIND,
            "metadata": {"name": "any", **(metadata or {})},
            "spec": {"identity": {"kind": "User", "name": "any"}, **spec},
        }
        try:
            parse_member(document)
        except InvalidManifest as faults:
            for fault in faults.faults:
                self.add_error(None, str(fault))


class LabelForm(ActionForm):
    """The label to set."""

    key = forms.CharField(required=False)
    value = forms.CharField(required=False)

    def clean(self) -> dict[str, Any]:
        typed: dict[str, Any] = self.cleaned_data
        self.check_manifest(metadata={"labels": {typed.get("key", ""): typed.get("value", "")}})
        return typed


class TaintForm(LabelForm):
    """The taint to add."""

    def clean(self) -> dict[str, Any]:
        self.check_manifest(taints=[_taint(self.cleaned_data)])
        return self.cleaned_data


class KeyForm(ActionForm):
    """A label key of the selected clusters."""

    key = forms.ChoiceField()

    def __init__(self, data: Any = None, *, names: Collection[str]) -> None:
        super().__init__(data, names=names)
        keys = ClusterLabel.objects.filter(cluster__name__in=names).values_list("key", flat=True).distinct()
        self.fields["key"].choices = [(key, key) for key in keys.order_by("key")]  # type: ignore[attr-defined]


class OldTaintForm(ActionForm):
    """A taint of the selected clusters, as `key=value`."""

    taint = forms.ChoiceField()

    def __init__(self, data: Any = None, *, names: Collection[str]) -> None:
        super().__init__(data, names=names)
        rows = ClusterTaint.objects.filter(cluster__name__in=names).values_list("key", "value").distinct()
        taints = [f"{key}={value}" for key, value in rows.order_by("key", "value")]
        self.fields["taint"].choices = [(one, one) for one in taints]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        key, _, value = self.cleaned_data.get("taint", "").partition("=")
        return {**self.cleaned_data, "key": key, "value": value}


class FaultsForm(ActionForm):
    """The faults to inject into simulated clusters, as JSON; an empty text ends all faults."""

    faults = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 12, "cols": 80}))

    def __init__(self, data: Any = None, *, names: Collection[str]) -> None:
        super().__init__(data, names=names)
        first = MemberCluster.objects.filter(name__in=names, driver=SIMULATED).order_by("name").first()
        faults = faults_of(first) if first else []
        self.fields["faults"].initial = json.dumps(faults, indent=2) if faults else ""

    def clean(self) -> dict[str, Any]:
        clusters = MemberCluster.objects.filter(name__in=self.names)
        for cluster in clusters.exclude(driver=SIMULATED).order_by("name")[:_NAMES_SHOWN]:
            self.add_error(None, str(NotSimulatedError(cluster.name)))
        try:
            parse_configuration({"faults": typed_faults(self.cleaned_data)}, path="")
        except InvalidManifest as faults:
            for fault in faults.faults:
                self.add_error("faults", str(fault))
        return self.cleaned_data


def typed_faults(given: Mapping[str, Any]) -> list[Any]:
    """Return the faults of the form. Raise InvalidManifest."""
    text = str(given.get("faults") or "").strip()
    faults = load_json(text) if text else []
    if not isinstance(faults, list):
        raise InvalidManifest(
            [FieldError("faults", "wrong-type", "is not a list of faults", "a list of objects")]
        )
    return faults


@dataclass(frozen=True, slots=True)
class BulkAction:
    """An action: its form, its operation, and each cluster afterwards, for the preview.

    `run` has the names, the input, `by` and `now`; it returns the results, or how many clusters it changed.
    """

    name: str
    title: str
    run: Run
    after: Callable[[Cluster, Given], Cluster]
    form: type[ActionForm] = ActionForm
    verb: str = "changed"


@transaction.atomic
def drain_clusters(names: Sequence[str], given: Given, *, by: User, now: datetime) -> int:  # noqa: ARG001 -- as Run
    """Drain clusters; return how many were not being drained already."""
    return sum(drain(name, by=by, now=now).started_at == now for name in names)


@transaction.atomic
def inject_faults(names: Sequence[str], given: Given, *, by: User, now: datetime) -> int:
    """Inject the same faults into simulated clusters; return how many had others."""
    faults = typed_faults(given)
    before = dict(MemberCluster.objects.filter(name__in=names).values_list("name", "revision"))
    return sum(set_faults(name, faults, by=by, now=now).revision != before[name] for name in names)


def _taint(given: Given) -> dict[str, str]:
    value = given.get("value") or ""
    return {"key": given.get("key", ""), **({"value": value} if value else {}), "effect": NO_SCHEDULE}


def _with_taint(cluster: Cluster, given: Given, *, is_kept: bool = True) -> Cluster:
    taint = Taint(given["key"], given.get("value") or "", NO_SCHEDULE)
    others = tuple(one for one in cluster.taints if one != taint)
    if is_kept:
        return cluster if taint in cluster.taints else cluster._replace(taints=(*others, taint))
    return cluster._replace(taints=others)


ACTIONS: Mapping[str, BulkAction] = {
    one.name: one
    for one in (
        BulkAction(
            "add-label",
            "Set label",
            lambda names, given, **how: change_labels(names, put={given["key"]: given["value"]}, **how),
            lambda cluster, given: cluster._replace(labels={**cluster.labels, given["key"]: given["value"]}),
            LabelForm,
        ),
        BulkAction(
            "remove-label",
            "Remove label",
            lambda names, given, **how: change_labels(names, put={}, remove=[given["key"]], **how),
            lambda cluster, given: cluster._replace(
                labels={key: one for key, one in cluster.labels.items() if key != given["key"]}
            ),
            KeyForm,
        ),
        BulkAction(
            "add-taint",
            "Add taint",
            lambda names, given, **how: add_taint(names, _taint(given), **how),
            _with_taint,
            TaintForm,
        ),
        BulkAction(
            "remove-taint",
            "Remove taint",
            lambda names, given, **how: remove_taint(names, _taint(given), **how),
            lambda cluster, given: _with_taint(cluster, given, is_kept=False),
            OldTaintForm,
        ),
        BulkAction(
            "cordon",
            "Cordon",
            lambda names, _, **how: cordon(names, **how),
            lambda cluster, _: _with_taint(cluster, CORDON),
        ),
        BulkAction(
            "uncordon",
            "Uncordon",
            lambda names, _, **how: uncordon(names, **how),
            lambda cluster, _: _with_taint(cluster, CORDON, is_kept=False),
        ),
        BulkAction(
            "drain", "Drain", drain_clusters, lambda cluster, _: _with_taint(cluster, CORDON), verb="draining"
        ),
        BulkAction(
            "leave",
            "Remove from fleet",
            lambda names, _, **how: len(leave(names, **how)),
            lambda cluster, _: cluster._replace(eligibility=leaving()),
            verb="leaving",
        ),
        BulkAction("faults", "Inject faults", inject_faults, lambda cluster, _: cluster, FaultsForm),
    )
}


def admin_action(action: BulkAction) -> Callable[..., HttpResponse]:
    """Return the entry of the list's action menu: it opens the page of the action for the selection."""

    def choose(model_admin: Any, request: HttpRequest, rows: QuerySet[MemberCluster]) -> HttpResponse:
        names = list(rows.order_by("name").values_list("name", flat=True))
        return _action_page(model_admin, request, action, names, action.form(names=names))

    choose.__name__ = action.name
    return admin.action(choose, permissions=["change"], description=action.title)


def action_urls(model_admin: Any) -> list[Any]:
    """Return the addresses of the actions' pages."""

    def act(request: HttpRequest, name: str) -> HttpResponse:
        if name not in ACTIONS:
            raise Http404
        return act_view(model_admin, request, ACTIONS[name])

    view = model_admin.admin_site.admin_view(act)
    return [path("act/<str:name>/", view, name="clusters_membercluster_act")]


def act_view(model_admin: Any, request: HttpRequest, action: BulkAction) -> HttpResponse:
    """Show the form, the preview, and on `apply` run the action; the selection is passed on as names."""
    if not may_operate(request.user):
        raise PermissionDenied
    given = request.POST.get("names", "").split() or request.GET.getlist("name")
    rows = MemberCluster.objects.filter(name__in=given)
    names = list(rows.order_by("name").values_list("name", flat=True))
    if not names:
        messages.warning(request, "The selected clusters are no longer in the fleet.")
        return redirect("admin:clusters_membercluster_changelist")
    form = action.form(request.POST if request.method == "POST" else None, names=names)
    if request.method == "POST" and "apply" in request.POST and form.is_valid():
        try:
            done = action.run(names, form.cleaned_data, by=request.user, now=timezone.now())
        except InvalidManifest as faults:
            for fault in faults.faults:
                form.add_error(None, str(fault))
        else:
            changed = (
                done if isinstance(done, int) else sum(one.result is JoinOutcome.CHANGED for one in done)
            )
            typed, same = form.cleaned_data, len(names) - changed
            value = f"={typed['value']}" if "value" in typed else ""
            what = f"{action.title} {typed.get('key', '')}{value}".rstrip()
            unchanged = f"; {same} unchanged" if same else ""
            messages.success(request, f"{what}: {counted(changed, 'cluster')} {action.verb}{unchanged}.")
            return redirect("admin:clusters_membercluster_changelist")
    return _action_page(model_admin, request, action, names, form)


def _action_page(
    model_admin: Any, request: HttpRequest, action: BulkAction, names: Sequence[str], form: ActionForm
) -> TemplateResponse:
    """Show the form; once it is valid, the impact on the fleet as it would be."""
    impact, changing, drains = None, 0, []
    is_ready = not form.fields or (form.is_bound and "back" not in request.POST and form.is_valid())
    given = form.cleaned_data if form.fields and is_ready else {}
    if is_ready:
        chosen, fleet = set(names), current_fleet().fleet
        after = [action.after(one, given) if one.name in chosen else one for one in fleet]
        changing = sum(one != before for one, before in zip(after, fleet, strict=True))
        impact = impact_of(Fleet(after), gone=names if action.name == "leave" else ())
        if action.name == "drain":
            now = timezone.now()
            drains = [drain_impact(name, now=now, beside=names) for name in names[:_DRAINS_SHOWN]]
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
        "drains": drains,
        "changing": changing,
        "same": len(names) - changing,
    }
    template = "admin/clusters/membercluster/act.html"
    return TemplateResponse(request, template, context, status=422 if form.errors else 200)
