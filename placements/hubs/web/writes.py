"""Writes to the live hub in scope: forms, preview by a dry run of the hub, conflicts, copies, sending."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from clusters.hub_queries import live_hub
from clusters.models import Hub, MemberCluster
from clusters.queries import cluster_of
from fleetui.apimachinery.errors import FieldError, InvalidManifest, raise_errors
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name
from fleetui.apimachinery.yaml import load_json
from fleetui.errors import FleetError
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.middleware import costly
from fleetui.permissions import current_user, for_readers
from placements.hubs.explain.connections import OUTCOMES
from placements.hubs.kinds.kubefleet import PREFIX
from placements.hubs.queries import mirrored_version, state_of
from placements.hubs.write_requests import ChangedSincePreviewError
from placements.hubs.writing.catalogue import ACTIONS, HubAction, refusal_of_write
from placements.hubs.writing.operations import (
    AppliedWrite,
    HubRefusedError,
    PreviewRequiredError,
    WriteCopies,
    WritePreview,
    apply_write,
    copies_of,
    plan_offline,
    preview_write,
)
from placements.hubs.writing.planning import ConfirmationNeededError, WritePlan
from placements.models import Draft, StagedStrategy
from placements.services.editor.operations import discard_draft
from placements.services.editor.validation import PlacementDraft, text_for
from placements.services.fleet import forms
from placements.services.loss.evaluation import impact_of
from placements.web.request import as_file, is_confirmed, number_of
from placements.web.review import own_draft

FIXED = ("name", "namespace", "placement", "cluster", "kind")
"""What the address says: which object it is about."""
_TEXTS = ("labels", "taints")
"""Actions whose only field is a text of several lines."""


@dataclass(frozen=True, slots=True)
class FormInput:
    """One input; `choices` make it a list, `rows` a text of several lines."""

    name: str
    label: str
    hint: str = ""
    type: str = "text"
    rows: int = 0
    choices: tuple[str, ...] = ()
    is_required: bool = False
    value: str = ""


INPUTS: Mapping[str, tuple[FormInput, ...]] = {
    "scale": (
        FormInput(
            "numberOfClusters", "Number of clusters", type="number", is_required=True
        ),
    ),
    "labels": (
        FormInput(
            "labels",
            "Labels",
            "One per line: key=value. A line that is removed removes the label.",
            rows=6,
        ),
    ),
    "taints": (
        FormInput("taints", "Taints", "One per line: key=value:NoSchedule.", rows=4),
    ),
    "start-run": (
        FormInput("strategy", "Staged update strategy", is_required=True),
        FormInput("resourceSnapshotIndex", "Resource snapshot", "Empty: the latest."),
        FormInput("state", "State", choices=("Run", "Initialize")),
    ),
    "run-state": (
        FormInput("state", "State", choices=("Run", "Stop"), is_required=True),
    ),
    "approve": (FormInput("comment", "Comment", "Part of the message on the hub."),),
}


def fixed_fields(params: QueryDict) -> dict[str, str]:
    return {name: str(params[name]) for name in FIXED if params.get(name)}


def inputs_for(
    action: str, params: QueryDict, fields: Mapping[str, Any]
) -> list[FormInput]:
    """Return the inputs of an action with what was entered, or with what there is."""
    inputs = []
    for input_ in INPUTS.get(action, ()):
        value, choices = params.get(input_.name), input_.choices
        if value is None:
            value = str(fields.get(input_.name, ""))
        if action in _TEXTS and input_.name not in params:
            value = present_text(action, params.get("name", ""))
        if input_.name == "strategy":  # without any in the mirror, the name is typed
            namespace = params.get("namespace", "")
            rows = StagedStrategy.objects.filter(namespace=namespace).order_by("name")
            choices = tuple(rows.values_list("name", flat=True))
        inputs.append(replace(input_, value=value, choices=choices))
    return inputs


def present_text(action: str, name: str) -> str:
    """Return the labels or taints of a cluster as they are entered, without those of the hub itself."""
    cluster = MemberCluster.objects.filter(name=name).first()
    if action == "labels":
        return forms.write_labels(own_labels(cluster))
    return forms.write_taints(items_at(cluster and cluster.document, "spec", "taints"))


def own_labels(cluster: MemberCluster | None) -> dict[str, str]:
    labels = mapping_at(cluster and cluster.document, "metadata", "labels")
    return {key: value for key, value in labels.items() if not key.startswith(PREFIX)}


def entered_fields(action: str, params: QueryDict) -> dict[str, Any]:
    """Return the fields of an action. Raise InvalidManifest."""
    fields: dict[str, Any] = dict(fixed_fields(params))
    if action in _TEXTS:
        return {**fields, action: read_text(action, params)}
    for input_ in INPUTS.get(action, ()):
        value = params.get(input_.name, "").strip()
        if input_.type == "number":
            number = number_of(value)
            fields[input_.name] = value if number is None else number
        elif value:
            fields[input_.name] = value
    return fields


def read_text(action: str, params: QueryDict) -> Any:
    """Return the labels with null for those that were removed, or the whole list of taints."""
    texts = {"labels": "", "taints": "", action: params.get(action, "")}
    typed = forms.read_cluster(texts["labels"], texts["taints"])
    raise_errors(typed.errors)
    if action == "taints":
        return typed.taints
    cluster = MemberCluster.objects.filter(name=params.get("name", "")).first()
    before = own_labels(cluster)
    entered = {**dict.fromkeys(before), **typed.labels}
    # What is as in the mirror is left out: the hub may have another value since.
    return {key: one for key, one in entered.items() if before.get(key) != one}


MIRROR_SECONDS, POLL_SECONDS = 5.0, 0.1
CHANGED = (
    "Nothing was sent: the object or the request changed since the preview. "
    "This is the present preview."
)
UNKNOWN = (
    "The outcome is unknown: the hub did not answer. The console reads the object back."
)


@dataclass
class WritePage:
    """The page of a write; `planned` and `previewed` leave what is refused in `errors` and `message`."""

    request: HttpRequest
    hub: Hub
    action: HubAction
    fields: dict[str, Any]
    back: str
    draft: Draft | None = None
    subject: str = ""
    preview: WritePreview | None = None
    plan: WritePlan | None = None
    errors: tuple[FieldError, ...] = ()
    message: str = ""

    @property
    def address(self) -> str:
        return self.request.path

    @property
    def title(self) -> str:
        if self.draft:
            return f"Apply {self.subject}".strip()
        title = self.action.title
        if title.startswith(("Change", "Start")):
            title += " of"
        title += f" {self.fields.get('name') or self.fields.get('placement') or ''}"
        if self.fields.get("cluster"):
            title += f" from {self.fields['cluster']}"
        return title.strip()

    def why_not(self) -> str:
        """Return why this person may not write to the hub now; "" if they may."""
        user = current_user(self.request)
        return refusal_of_write(self.hub, self.action, user, self.fields)

    @property
    def arguments(self) -> dict[str, Any]:
        by, now = current_user(self.request), datetime.now(UTC)
        return {
            "hub": self.hub,
            "action": self.action,
            "fields": self.fields,
            "by": by,
            "now": now,
        }

    @contextmanager
    def noting_refusals(self) -> Iterator[None]:
        try:
            yield
        except InvalidManifest as error:
            self.errors = error.errors
        except HubRefusedError as error:
            words = OUTCOMES[error.answer.outcome]
            self.message = f"{words} {error.answer.message}".strip()
        except (FleetError, PermissionDenied) as error:
            text = str(error)
            self.message = f"{text[:1].upper()}{text[1:].rstrip('.')}."

    def planned(self) -> "WritePage":
        """Plan on the mirror: what is shown without a request to the hub."""
        with self.noting_refusals():
            self.plan = plan_offline(**self.arguments)
        return self

    def previewed(self, overwrite: Sequence[str]) -> "WritePage":
        with self.noting_refusals():
            self.preview = preview_write(**self.arguments, overwrite=overwrite)
            self.plan = self.preview.plan
            if self.draft is None:
                self.fields = dict(self.plan.fields)
        return self

    def copies(self) -> WriteCopies | None:
        """Return the write for kubectl; the patch of the mirror has changes alone, without what we own."""
        plan = copy(self).planned().plan or self.plan
        if plan is None:
            return None
        return copies_of(plan, manager=self.hub.field_manager)


def _hub() -> Hub:
    if current_hub_id() == LOCAL_HUB:
        raise Http404
    return live_hub(Hub.objects.get(pk=current_hub_id()).name)


@for_readers
@costly
@require_http_methods(["GET", "HEAD", "POST"])
def write(request: HttpRequest, name: str) -> HttpResponse:
    hub = _hub()
    if name not in ACTIONS or name == "save":
        raise Http404(f"No action on a live hub is named {name[:40]}.")
    params = request.POST if request.method == "POST" else request.GET
    fields: dict[str, Any] = dict(fixed_fields(params))
    page = WritePage(request, hub, ACTIONS[name], fields, back_of(name, fields))
    try:
        page.fields = posted_fields(params) or entered_fields(name, params)
    except InvalidManifest as error:
        page.errors = error.errors
        return show(page, status=422)
    if request.method == "POST":
        return respond(page)
    if name not in INPUTS:
        page.planned()
    return show(page)


@for_readers
@costly
@require_POST
def write_draft(request: HttpRequest, number: int) -> HttpResponse:
    row = own_draft(request, number)
    back = reverse("web:draft-review", args=[number])
    page = WritePage(request, _hub(), ACTIONS["save"], {}, back, draft=row)
    placement = row.placement
    name = placement.full_name if placement else ""
    draft = PlacementDraft.parse(text_for(row, request.user), name=name)
    if draft.errors or not isinstance(draft.data, dict):
        page.errors = draft.errors
        return show(page, status=422)
    page.subject = draft.data.get("metadata", {}).get("name", "")
    page.fields = {"manifest": draft.data}
    if placement:
        page.fields["base"] = row.base
    return respond(page)


def posted_fields(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the preview that the form is about; empty without one. Raise InvalidManifest."""
    text = params.get("fields", "")
    if not text:
        return {}
    try:
        fields = load_json(text)
    except InvalidManifest as error:
        raise InvalidManifest.of(
            "fields", "bad-format", "Invalid value", "JSON"
        ) from error
    return dict(mapping_at(fields))


def respond(page: WritePage) -> HttpResponse:
    """Do what the button of the form says: preview, apply, or a copy."""
    params = page.request.POST
    do, overwrite = params.get("do", "preview"), params.getlist("overwrite")
    if do == "patch":
        return copied(page)
    if page.why_not():
        return show(page.planned(), status=200 if do == "preview" else 403)
    if do == "apply":
        return apply(page, overwrite)
    return show(page.previewed(overwrite))


def apply(page: WritePage, overwrite: Sequence[str]) -> HttpResponse:
    """Send what was previewed; where it changed since, show the present preview."""
    token, confirmed = page.request.POST.get("token", ""), is_confirmed(page.request)
    reason = ""
    with page.noting_refusals():
        try:
            done = apply_write(
                **page.arguments, token=token, confirmed=confirmed, overwrite=overwrite
            )
        except ConfirmationNeededError as error:
            reason = str(error)
        except PreviewRequiredError:
            reason = CHANGED
        except ChangedSincePreviewError as error:
            reason = f"{CHANGED} Changed on the hub: {', '.join(error.paths)}."
        else:
            return sent(page, done)
    if reason:
        page.previewed(overwrite)
        page.message = page.message or reason
    return show(page, status=409)


def sent(page: WritePage, done: AppliedWrite | None) -> HttpResponse:
    """Show the result of a write, once the mirror has it or after five seconds."""
    if done is None:
        if page.draft:
            discard_draft(page.draft.pk, by=current_user(page.request))
        messages.success(page.request, "Nothing to change.")
        return redirect(page.back)
    has_rest = bool(done.plan.foreign)
    if page.draft and done.answer.is_accepted and not has_rest:
        discard_draft(page.draft.pk, by=current_user(page.request))
    if done.is_unknown:
        messages.warning(page.request, UNKNOWN)
    elif not await_mirror(page.hub, done):
        messages.success(page.request, "Accepted. The mirror has not caught up yet.")
    elif has_rest:
        messages.success(
            page.request,
            (
                "Accepted. Review again: fields that other managers own are removed "
                "by a second write."
            ),
        )
    else:
        messages.success(page.request, "Accepted by the hub.")
    if page.draft and not has_rest:
        name = full_name(done.row.namespace, done.row.name)
        return redirect(reverse("web:placement", args=[name]))
    return redirect(page.back)


def await_mirror(hub: Hub, done: AppliedWrite) -> bool:
    """Wait until the mirror has the object as the hub answered it; return whether it has."""
    until = time.monotonic() + MIRROR_SECONDS
    wanted = done.row.resource_version_after
    while not has_version(mirrored_version(hub, done.row), wanted):
        is_live = state_of(hub, now=datetime.now(UTC))[0] == "live"
        if not is_live or time.monotonic() >= until:
            return False
        time.sleep(POLL_SECONDS)
    return True


def has_version(version: str, wanted: str) -> bool:
    """Return whether the mirror has a version or a newer one; without one wanted, that it has none."""
    if version.isdecimal() and wanted.isdecimal():
        return int(version) >= int(wanted)
    return version == wanted


def copied(page: WritePage) -> HttpResponse:
    copies = page.planned().copies()
    if copies is None or not (copies.patch or copies.manifest):
        return show(page, status=422 if page.errors else 409)
    text = copies.patch or copies.manifest
    return as_file(HttpResponse(text, content_type="application/yaml"), "patch.yaml")


def back_of(action: str, fields: Mapping[str, Any]) -> str:
    name = str(fields.get("placement") or fields.get("name") or "")
    if fields.get("namespace"):
        name = full_name(str(fields["namespace"]), name)
    if action in ("labels", "taints", "cordon", "uncordon") and name:
        return reverse("web:cluster", args=[name])
    if action in ("scale", "evict", "start-run") and name:
        return reverse("web:placement", args=[name])
    if action in ("run-state", "abandon-run", "approve"):
        return reverse("web:rollouts")
    return reverse("web:placements")


def show(page: WritePage, *, status: int = 200) -> HttpResponse:
    params = page.request.POST if page.request.method == "POST" else page.request.GET
    answer = page.preview.answer if page.preview else None
    context: dict[str, Any] = {
        "page": page,
        "action": page.action,
        "fixed": fixed_fields(params),
        "errors": page.errors,
        "preview": page.preview,
        "plan": page.plan,
        "answer": answer,
        "overwritten": params.getlist("overwrite"),
        "why_not": page.why_not(),
        "impact": impact_on_placements(page.plan),
        "copies": None,
        "inputs": [],
        "fields": "",
    }
    if answer:
        context["outcome"] = OUTCOMES[answer.outcome]
    if page.plan:
        context["copies"] = page.copies()
    if page.draft is None:
        context["inputs"] = inputs_for(page.action.name, params, page.fields)
        context["fields"] = json.dumps(page.fields)
    return render(page.request, "hubs/write.html", context, status=status)


def impact_on_placements(plan: WritePlan | None) -> Any:
    """Return what labels or taints of a cluster change for placements; None for other objects."""
    if plan is None or plan.request is None or plan.manifest is None:
        return None
    manifest = plan.manifest
    row = MemberCluster.objects.filter(name=manifest["metadata"]["name"]).first()
    if row is None or manifest["kind"] != "MemberCluster":
        return None
    changed, document = copy(row), row.document
    labels = manifest["metadata"].get("labels") or {}
    taints = manifest["spec"].get("taints") or []
    changed.document = {
        **document,
        "metadata": {**document["metadata"], "labels": labels},
        "spec": {**document["spec"], "taints": taints},
    }
    return impact_of([cluster_of(changed)])
