"""Writes to the live hub in scope: its preview by a dry run of the hub, conflicts, copies, and sending."""

import json
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from clusters.hub_queries import live_hub
from clusters.models import Hub, MemberCluster
from clusters.queries import cluster_of
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.words import full_name
from fleetui.apimachinery.yaml import load_json
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.middleware import costly
from fleetui.permissions import current_user, for_readers
from placements.hubs.explain.connections import OUTCOMES
from placements.hubs.queries import mirrored_version, state_of
from placements.hubs.web.write_forms import entered_fields, fixed_fields, inputs_for
from placements.hubs.write_bodies import ChangedSincePreviewError, StaleBaseError
from placements.hubs.write_requests import NotOfferedError
from placements.hubs.writing.answers import WriteOutcome
from placements.hubs.writing.catalogue import ACTIONS, HubAction
from placements.hubs.writing.copies import copies_of
from placements.hubs.writing.operations import (
    AppliedWrite,
    HubRefusedError,
    PreviewRequiredError,
    WritePreview,
    apply_write,
    plan_offline,
    preview_write,
)
from placements.hubs.writing.planning import (
    ConfirmationNeededError,
    UnknownObjectError,
    WritePlan,
    WriteRefusedError,
)
from placements.hubs.writing.queries import refusal_of_write
from placements.hubs.writing.sending import NotWritableError
from placements.models import Draft
from placements.services.editor.operations import discard_draft
from placements.services.editor.validation import PlacementDraft, text_for
from placements.services.loss.evaluation import impact_of
from placements.web.request import as_file, is_confirmed
from placements.web.review import own_draft

MIRROR_SECONDS, POLL_SECONDS = 5.0, 0.1
CHANGED = "Nothing was sent: the object or the request changed since the preview. This is the present preview."
_METHODS = ["GET", "HEAD", "POST"]


@dataclass
class WritePage:
    request: HttpRequest
    hub: Hub
    action: HubAction
    fields: dict[str, Any]
    address: str
    back: str
    draft: Draft | None = None
    preview: WritePreview | None = None
    plan: WritePlan | None = None
    errors: tuple[FieldError, ...] = ()
    message: str = ""

    @property
    def title(self) -> str:
        subject = self.fields.get("name") or self.fields.get("placement") or ""
        if self.draft:
            data = PlacementDraft.parse(text_for(self.draft, self.request.user)).data
            subject = (
                data.get("metadata", {}).get("name", "")
                if isinstance(data, dict)
                else ""
            )
            return f"Apply {subject}".strip()
        on = f" from {self.fields['cluster']}" if self.fields.get("cluster") else ""
        of = " of" if self.action.title.startswith(("Change", "Start")) else ""
        return f"{self.action.title}{of} {subject}{on}".strip()

    def why_not(self) -> str:
        """Return why this person may not write to the hub now; "" if they may."""
        return refusal_of_write(
            self.hub, self.action, current_user(self.request), self.fields
        )


def _hub() -> Hub:
    if current_hub_id() == LOCAL_HUB:
        raise Http404
    return live_hub(Hub.objects.get(pk=current_hub_id()).name)


@for_readers
@costly
@require_http_methods(_METHODS)
def write(request: HttpRequest, name: str) -> HttpResponse:
    """Enter an action, preview it, and have it sent."""
    hub = _hub()
    if name not in ACTIONS or name == "save":
        raise Http404(f"No action on a live hub is named {name[:40]}.")
    params = request.POST if request.method == "POST" else request.GET
    fields: dict[str, Any] = dict(fixed_fields(params))
    page = WritePage(
        request, hub, ACTIONS[name], fields, request.path, back_of(name, fields)
    )
    try:
        page.fields = posted_fields(params) or entered_fields(name, params)
    except InvalidManifest as error:
        page.errors = error.errors
        return show(page, status=422)
    has_inputs = bool(inputs_for(name, params))
    if request.method != "POST":
        return show(page) if has_inputs else show(planned(page))
    return respond(page)


@for_readers
@costly
@require_POST
def write_draft(request: HttpRequest, number: int) -> HttpResponse:
    """Preview a draft of the user on the hub, and have it sent."""
    row = own_draft(request, number)
    page = WritePage(
        *(
            request,
            _hub(),
            ACTIONS["save"],
            {},
            request.path,
            reverse("web:draft-review", args=[number]),
        ),
        draft=row,
    )
    name = row.placement.full_name if row.placement else ""
    draft = PlacementDraft.parse(text_for(row, request.user), name=name)
    if draft.errors or not isinstance(draft.data, dict):
        page.errors = draft.errors
        return show(page, status=422)
    page.fields = {
        "manifest": draft.data,
        **({"base": row.base} if row.placement else {}),
    }
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
    return fields if isinstance(fields, dict) else {}


def respond(page: WritePage) -> HttpResponse:
    """Do what the button of the form says: preview, apply, or a copy."""
    params = page.request.POST
    do = params.get("do", "preview")
    if do == "patch" or page.why_not():
        return (
            copied(page)
            if do == "patch"
            else show(planned(page), status=200 if do == "preview" else 403)
        )
    conflicts, overwrite = params.getlist("conflict"), params.getlist("overwrite")
    keep = [one for one in conflicts if one not in overwrite]
    if do == "keep":
        overwrite, keep = [], conflicts
    options: dict[str, Any] = {"overwrite": overwrite, "keep": keep}
    if do == "apply":
        return apply(page, options, confirmed=is_confirmed(page.request))
    return show(previewed(page, options))


def guarded(page: WritePage, run: Callable[[], None]) -> WritePage:
    """Run a part of the page; what is refused becomes what the page says."""
    try:
        run()
    except InvalidManifest as error:
        page.errors = error.errors
    except (
        WriteRefusedError,
        NotWritableError,
        UnknownObjectError,
        StaleBaseError,
        NotOfferedError,
    ) as error:
        page.message = f"{str(error)[:1].upper()}{str(error)[1:].rstrip('.')}."
    except HubRefusedError as error:
        page.message = (
            f"{OUTCOMES[error.answer.outcome]} {error.answer.message}".strip()
        )
    except PermissionDenied as error:
        page.message = str(error)
    return page


def planned(page: WritePage) -> WritePage:
    """Plan on the mirror: what is shown without a request to the hub."""

    def run() -> None:
        by, now = current_user(page.request), datetime.now(UTC)
        page.plan = plan_offline(page.hub, page.action, page.fields, by=by, now=now)

    return guarded(page, run)


def previewed(page: WritePage, options: Mapping[str, Any]) -> WritePage:
    def run() -> None:
        by, now = current_user(page.request), datetime.now(UTC)
        page.preview = preview_write(
            page.hub, page.action, page.fields, by=by, now=now, **options
        )
        page.plan = page.preview.plan
        if page.draft is None:
            page.fields = dict(page.plan.fields)

    return guarded(page, run)


def apply(
    page: WritePage, options: Mapping[str, Any], *, confirmed: bool
) -> HttpResponse:
    """Send what was previewed; where it changed since, show the present preview."""
    by, now = current_user(page.request), datetime.now(UTC)
    done: list[AppliedWrite | None] = []
    outdated: list[str] = []

    def run() -> None:
        token = page.request.POST.get("token", "")
        more: dict[str, Any] = {**options, "confirmed": confirmed}
        try:
            done.append(
                apply_write(
                    page.hub,
                    page.action,
                    page.fields,
                    by=by,
                    now=now,
                    token=token,
                    **more,
                )
            )
        except PreviewRequiredError:
            outdated.append(CHANGED)
        except ChangedSincePreviewError as error:
            outdated.append(f"{CHANGED} Changed on the hub: {', '.join(error.paths)}.")

    try:
        guarded(page, run)
    except ConfirmationNeededError as error:
        page = previewed(page, options)
        page.message = str(error)
    if done:
        return sent(page, done[0])
    if outdated:
        page = previewed(page, options)
        page.message = page.message or outdated[0]
    return show(page, status=409)


def sent(page: WritePage, done: AppliedWrite | None) -> HttpResponse:
    """Show the result of a write, once the mirror has it or after five seconds."""
    has_rest = bool(done and done.plan.foreign)
    if page.draft and (done is None or done.answer.is_accepted) and not has_rest:
        discard_draft(page.draft.pk, by=current_user(page.request))
    if done is None:
        messages.success(page.request, "Nothing to change.")
    elif done.is_unknown:
        text = "The outcome is unknown: the hub did not answer. The console reads the object back."
        messages.warning(page.request, text)
    elif not await_mirror(page.hub, done):
        messages.success(page.request, "Accepted. The mirror has not caught up yet.")
    elif has_rest:
        text = "Accepted. Review again: fields that other managers own are removed by a second write."
        messages.success(page.request, text)
    else:
        messages.success(page.request, "Accepted by the hub.")
    if page.draft:
        name = full_name(done.row.namespace, done.row.name) if done else ""
        return redirect(
            page.back if has_rest or not name else reverse("web:placement", args=[name])
        )
    return redirect(page.back)


def await_mirror(hub: Hub, done: AppliedWrite) -> bool:
    """Wait until the mirror has the object as the hub answered it; return whether it has."""
    until = time.monotonic() + MIRROR_SECONDS
    wanted = done.row.resource_version_after
    while True:
        version = mirrored_version(hub, done.row)
        is_newer = (
            version.isdecimal() and wanted.isdecimal() and int(version) >= int(wanted)
        )
        if is_newer or (version == wanted if wanted else not version):
            return True
        if (
            state_of(hub, now=datetime.now(UTC))[0] != "live"
            or time.monotonic() >= until
        ):
            return False
        time.sleep(POLL_SECONDS)


def copied(page: WritePage) -> HttpResponse:
    page = planned(page)
    copies = copies_of(page.plan, manager=page.hub.field_manager) if page.plan else None
    if copies is None or not (copies.patch or copies.manifest):
        return show(page, status=422 if page.errors else 409)
    text = copies.patch or copies.manifest
    return as_file(HttpResponse(text, content_type="application/yaml"), "patch.yaml")


def back_of(action: str, fields: Mapping[str, Any]) -> str:
    """Return the page of the object that an action is about."""
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
    preview, plan = page.preview, page.plan
    answer = preview.answer if preview else None
    # The patch of the mirror has changes alone; that of a preview also what the console owns.
    copies = (
        copies_of(planned(copy(page)).plan or plan, manager=page.hub.field_manager)
        if plan
        else None
    )
    is_stale = bool(answer and answer.outcome is WriteOutcome.STALE)
    context = {
        "page": page,
        "action": page.action,
        "inputs": [] if page.draft else inputs_for(page.action.name, params),
        "fixed": fixed_fields(params),
        "fields": "" if page.draft else json.dumps(page.fields),
        "errors": page.errors,
        "preview": preview,
        "plan": plan,
        "answer": answer,
        "outcome": OUTCOMES[answer.outcome] if answer else "",
        "is_stale": is_stale,
        "kept": params.getlist("conflict") if "conflict" in params else [],
        "overwritten": params.getlist("overwrite"),
        "why_not": page.why_not(),
        "copies": copies,
        "impact": impact_on_placements(plan),
    }
    return render(page.request, "hubs/write.html", context, status=status)


def impact_on_placements(plan: WritePlan | None) -> Any:
    """Return what labels or taints of a cluster change for placements; None for other objects."""
    if (
        plan is None
        or plan.manifest is None
        or plan.manifest.get("kind") != "MemberCluster"
    ):
        return None
    row = MemberCluster.objects.filter(name=plan.manifest["metadata"]["name"]).first()
    if row is None or plan.request is None:
        return None
    changed = copy(row)
    metadata = {
        **row.document["metadata"],
        "labels": plan.manifest["metadata"].get("labels") or {},
    }
    spec = {**row.document["spec"], "taints": plan.manifest["spec"].get("taints") or []}
    changed.document = {**row.document, "metadata": metadata, "spec": spec}
    return impact_of([cluster_of(changed)])
