"""Preview a write by a dry run of the hub, and have exactly that sent, here or with kubectl.

See `rules/live-hub.md#actions-on-a-hub`.
"""

import json
import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from django.contrib.auth.models import User
from django.core import signing
from django.core.exceptions import PermissionDenied

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.targets import clean, find_differences
from clusters.models import Hub, HubWrite
from fleetui.apimachinery.errors import FieldError
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import without_secrets
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.errors import FleetError
from fleetui.hub_scope import in_hub
from fleetui.permissions import has_role, teams_of
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.queries import mirrored_object
from placements.hubs.write_requests import (
    KINDS,
    ChangedSincePreviewError,
    StaleBaseError,
    Verb,
    WriteRequest,
    different_parts,
    leaf_paths,
    set_at,
    without_paths,
    written_parts,
)
from placements.hubs.writing.answers import WriteAnswer, WriteOutcome
from placements.hubs.writing.catalogue import HubAction, check_plan
from placements.hubs.writing.planning import (
    ConfirmationNeededError,
    Fields,
    Planner,
    WritePlan,
    check_text,
    gitops_marks,
)
from placements.hubs.writing.sending import (
    HubWriter,
    IdentityRefusedError,
    NotWritableError,
    check_writable,
    open_writer,
)

PRECONDITIONS = ("uid", "resourceVersion")
PREVIEW_SECONDS = 300
"""So long a dry run counts as one of the same request."""
_STATUS = {
    WriteOutcome.INVALID: HTTPStatus.UNPROCESSABLE_ENTITY,
    WriteOutcome.FORBIDDEN: HTTPStatus.FORBIDDEN,
    WriteOutcome.WEBHOOK: HTTPStatus.FORBIDDEN,
    WriteOutcome.DELETED: HTTPStatus.NOT_FOUND,
    WriteOutcome.TOO_LARGE: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    WriteOutcome.BUSY: HTTPStatus.SERVICE_UNAVAILABLE,
    WriteOutcome.UNREACHABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


class PreviewRequiredError(FleetError):
    """No dry run of exactly this body succeeded within the last five minutes."""

    problem_type = "preview-required"

    def __init__(self) -> None:
        super().__init__(
            "Nothing was sent: what would be sent differs from the preview, "
            "or the preview is older than 5 minutes."
        )


class HubRefusedError(FleetError):
    """The hub refused a write, or nothing is known of it; `answer` has its words."""

    def __init__(self, answer: WriteAnswer) -> None:
        super().__init__(answer.message or str(answer.outcome))
        self.answer = answer
        self.status = _STATUS.get(answer.outcome, HTTPStatus.CONFLICT)
        self.problem_type = "hub-conflict" if answer.conflicts else "hub-refused"

    def problem_facts(self) -> dict[str, Any]:
        """Return the answer of the hub, and the fields that other managers own."""
        answer = self.answer
        facts: dict[str, Any] = {
            "hubStatus": {
                "code": answer.status,
                "reason": str(answer.outcome),
                "webhook": answer.webhook,
                "causes": [asdict(cause) for cause in answer.causes],
            }
        }
        conflicts = [
            {
                "path": conflict.name,
                "manager": conflict.manager,
                "operation": conflict.operation,
                "time": conflict.at,
                "ours": conflict.ours,
                "theirs": conflict.theirs,
            }
            for conflict in answer.conflicts
        ]
        if conflicts:
            facts["conflicts"] = conflicts
        return facts


@dataclass(frozen=True, slots=True)
class ResultDifference:
    """A field that the write changes; `by_hub`: a default or a webhook of the hub did, not the request."""

    path: str
    before: str
    after: str
    by_hub: bool


@dataclass(frozen=True)
class WritePreview:
    """The plan of a write and the answer of the hub to a dry run of it; `token` proves that it succeeded."""

    action: HubAction
    plan: WritePlan
    request: WriteRequest | None = None
    answer: WriteAnswer | None = None
    differences: tuple[ResultDifference, ...] = ()
    gitops: tuple[str, ...] = ()
    token: str = ""

    @property
    def is_unchanged(self) -> bool:
        return self.plan.request is None

    @property
    def causes(self) -> tuple[FieldError, ...]:
        return self.answer.causes if self.answer else ()

    @property
    def result(self) -> dict[str, Any] | None:
        return shown_object(self.answer.content) if self.answer else None


@dataclass(frozen=True, slots=True)
class AppliedWrite:
    """A write that was sent: its record, the answer, and the object as the hub has it."""

    row: HubWrite
    answer: WriteAnswer
    plan: WritePlan

    @property
    def is_unknown(self) -> bool:
        return self.answer.outcome is WriteOutcome.UNKNOWN

    @property
    def result(self) -> dict[str, Any] | None:
        return shown_object(self.answer.content)


def shown_object(content: Manifest | None) -> dict[str, Any] | None:
    """Return an object of the hub without secret values, and without the list of its managers."""
    if not content:
        return None
    document: dict[str, Any] = without_secrets(content)
    document["metadata"] = dict(mapping_at(document, "metadata"))
    document["metadata"].pop("managedFields", None)
    return document


def check_role(hub: Hub, action: HubAction, by: User) -> None:
    """Raise PermissionDenied unless the person has the role of an action on this hub."""
    with in_hub(hub.pk):
        if not has_role(by, action.role) and not teams_of(by, action.role):
            raise PermissionDenied(
                f"You don't have permission to {action.verb}. Required role: {action.role}."
            )


def plan_offline(
    hub: Hub,
    action: HubAction,
    fields: Fields,
    *,
    by: User,
    now: datetime,
) -> WritePlan:
    """Plan a write on the mirror: for copies, where nothing is sent."""
    with in_hub(hub.pk):
        return action.plan(Planner(hub, by.get_username(), now), fields)


def plan_of(action: HubAction, planner: Planner, entered: Fields) -> WritePlan:
    """Return the plan of an action; every one may name the `uid` and `resourceVersion` of its object.

    Raise StaleBaseError where the object is another one, or was changed.
    """
    expected = {key: entered.get(key) or "" for key in PRECONDITIONS}
    for key, value in expected.items():
        check_text(key, value)
    fields = {key: one for key, one in entered.items() if key not in PRECONDITIONS}
    plan = action.plan(planner, fields)
    live = plan.live
    metadata = mapping_at(live, "metadata")
    stale = [
        f"metadata.{key}"
        for key, value in expected.items()
        if value and value != text_of(metadata.get(key))
    ]
    if stale == ["metadata.resourceVersion"] and live:
        kind = KINDS[str(live["kind"])]
        place = (text_of(metadata.get("namespace")), text_of(metadata.get("name")))
        seen = mirrored_object(planner.hub, kind.group, kind.kind, *place)
        version = mapping_at(seen, "metadata").get("resourceVersion")
        if seen and version == expected["resourceVersion"]:
            stale = different_parts(written_parts(seen), written_parts(live))
    if stale:
        raise StaleBaseError(stale)
    return plan


@contextmanager
def planned_write(
    hub: Hub,
    action: HubAction,
    fields: Fields,
    *,
    by: User,
    now: datetime,
) -> Iterator[tuple[HubWriter, WritePlan]]:
    """Plan a write for a person who may make it, with the objects of the hub.

    Raise PermissionDenied, NotWritableError, HubRefusedError, and what `plan_of` raises.
    """
    check_role(hub, action, by)
    check_writable(hub)
    person = by.get_username()
    try:
        with (
            open_writer(hub, person=person, role=str(action.role)) as writer,
            in_hub(hub.pk),
        ):
            plan = plan_of(action, Planner(hub, person, now, writer), fields)
            check_plan(hub, action, plan, by=by)
            yield writer, plan
    except IdentityRefusedError as error:
        raise NotWritableError(str(error)) from error
    except DriverUnavailable as error:  # while reading: nothing was sent
        raise HubRefusedError(
            WriteAnswer(WriteOutcome.UNREACHABLE, f"The hub cannot be read: {error}")
        ) from error


def preview_write(
    hub: Hub,
    action: HubAction,
    fields: Fields,
    *,
    by: User,
    now: datetime,
    overwrite: Collection[str] = (),
) -> WritePreview:
    """Return the result that a write would have on the hub, which stores nothing.

    `overwrite` are the paths that are taken from other managers. Raise InvalidManifest, UnknownObjectError,
    StaleBaseError, WriteRefusedError, NotWritableError, PermissionDenied, HubRefusedError.
    """
    with planned_write(hub, action, fields, by=by, now=now) as (writer, plan):
        if plan.request is None:
            return WritePreview(action, plan)
        request, answer = writer.preview(plan.request, plan.live, overwrite=overwrite)
    token = ""
    if answer.is_accepted:
        parts = written_parts(plan.live)
        token = signing.dumps([request.digest, parts], salt=salt_of(hub, by))
    differences = result_differences(plan, request, answer)
    marks = gitops_marks(plan.live)
    return WritePreview(action, plan, request, answer, differences, marks, token)


def apply_write(
    hub: Hub,
    action: HubAction,
    fields: Fields,
    *,
    by: User,
    now: datetime,
    token: str | None = None,
    confirmed: bool = False,
    overwrite: Collection[str] = (),
) -> AppliedWrite | None:
    """Send a write once, after a dry run of exactly its body: that of the token, or a new one.

    None where nothing would change. `confirmed`: a placement may leave all or most of its clusters. Raise
    what `preview_write` raises, PreviewRequiredError, ChangedSincePreviewError, ConfirmationNeededError.
    """
    with planned_write(hub, action, fields, by=by, now=now) as (writer, plan):
        if plan.request is None:
            return None
        if plan.deselection and plan.needs_confirmation and not confirmed:
            raise ConfirmationNeededError(plan.deselection)
        if token is None:
            request, answer = writer.preview(
                plan.request, plan.live, overwrite=overwrite
            )
            if not answer.is_accepted:
                raise HubRefusedError(answer)
        else:
            request = previewed(plan, plan.request, token, hub, by)
        row, answer = writer.send(request, plan.live, digest=request.digest)
    if not (answer.is_accepted or answer.outcome is WriteOutcome.UNKNOWN):
        raise HubRefusedError(answer)
    return AppliedWrite(row, answer, plan)


def salt_of(hub: Hub, by: User) -> str:
    """Return what signs previews: those of another hub or user do not count."""
    return f"placements.hub_writes.preview.{hub.pk}.{by.pk}"


def previewed(
    plan: WritePlan,
    request: WriteRequest,
    token: str,
    hub: Hub,
    by: User,
) -> WriteRequest:
    """Return the request as its dry run was sent; the status may have changed since.

    Raise PreviewRequiredError, ChangedSincePreviewError.
    """
    try:
        digest, parts = signing.loads(
            token, salt=salt_of(hub, by), max_age=PREVIEW_SECONDS
        )
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise PreviewRequiredError from error
    if changed := different_parts(parts, written_parts(plan.live)):
        raise ChangedSincePreviewError(changed)
    for candidate in (request, request.forced()):
        if candidate.digest == digest:
            return candidate
    raise PreviewRequiredError


def result_differences(
    plan: WritePlan, request: WriteRequest, answer: WriteAnswer
) -> tuple[ResultDifference, ...]:
    """Return how the result of a dry run differs from the live object, without secret values."""
    if answer.content is None or request.verb is Verb.DELETE:
        return ()
    # Of a new object, what the hub added to it is of interest.
    before = request.body if plan.live is None else plan.live
    sides = [before, answer.content]
    if request.subresource == "status":
        sides = [{"status": mapping_at(side, "status")} for side in sides]
        sent = ["/status/conditions"]
    else:
        # With metadata, so that the first label is a difference of labels.
        sides = [{"metadata": {}, **clean(without_secrets(side))} for side in sides]
        sent = [pointer(path) for path in leaf_paths(request.body)]
    differences = []
    for field in find_differences(*sides).fields:
        if field.path in ("/apiVersion", "/kind"):
            continue
        # A whole object that is new here holds what was sent.
        by_us = any(
            is_inside(field.path, at) or is_inside(at, field.path) for at in sent
        )
        differences.append(
            ResultDifference(field.path, field.in_member, field.in_hub, not by_us)
        )
    return tuple(differences)


def pointer(path: Collection[str]) -> str:
    return "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)


def is_inside(path: str, outer: str) -> bool:
    return f"{path}/".startswith(f"{outer}/")


_PRECONDITIONS = (("metadata", "uid"), ("metadata", "resourceVersion"))


@dataclass(frozen=True, slots=True)
class WriteCopies:
    """The same write for kubectl; `patch` is "" where the manifest or the command is complete."""

    command: str
    manifest: str = ""
    patch: str = ""


def copies_of(plan: WritePlan, *, manager: str) -> WriteCopies | None:
    """Return how kubectl makes a planned write; None where it changes nothing."""
    request = plan.request
    if request is None:
        return None
    subject = f"{request.kind.resource} {shlex.quote(request.name)}"
    if request.namespace:
        subject += f" --namespace {shlex.quote(request.namespace)}"
    if request.verb is Verb.CREATE:
        manifest = dump_yaml(request.stored_body)
        return WriteCopies("kubectl create -f manifest.yaml", manifest)
    if request.verb is Verb.DELETE:
        return WriteCopies(f"kubectl delete {subject}")
    if request.subresource:
        manifest = dump_yaml(without_paths(request.stored_body, _PRECONDITIONS))
        options = f"--server-side --subresource={request.subresource} --field-manager={shlex.quote(manager)}"
        return WriteCopies(f"kubectl apply {options} -f manifest.yaml", manifest)
    patch = without_paths(
        request.stored_body,
        [
            *_PRECONDITIONS,
            ("metadata", "name"),
            ("metadata", "namespace"),
            ("apiVersion",),
            ("kind",),
        ],
    )
    for path in plan.foreign:
        set_at(patch, path, None)
    text = json.dumps(patch, separators=(",", ":"), ensure_ascii=False)
    command = f"kubectl patch {subject} --type merge --patch {shlex.quote(text)}"
    manifest = dump_yaml(without_secrets(plan.manifest)) if plan.manifest else ""
    return WriteCopies(command, manifest, dump_yaml(patch))
