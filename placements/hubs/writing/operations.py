"""Preview a write by a dry run of the hub, and have exactly that sent.

See `rules/live-hub.md#actions-on-a-hub`.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from http import HTTPStatus
from typing import Any

from django.contrib.auth.models import User
from django.core import signing
from django.core.exceptions import PermissionDenied

from clusters.drivers.base import DriverUnavailable, FieldDiff
from clusters.drivers.kubernetes.diff import clean, find_differences
from clusters.models import Hub, HubWrite
from fleetui.apimachinery.errors import FieldError, InvalidManifest, split_path
from fleetui.apimachinery.secrets import without_secrets
from fleetui.errors import FleetError
from fleetui.hub_scope import in_hub
from fleetui.permissions import has_role, teams_of
from placements.hubs.kinds.base import Manifest, mapping_at, text_of
from placements.hubs.write_bodies import (
    ChangedSincePreviewError,
    Path,
    StaleBaseError,
    different_parts,
    leaf_paths,
    without_paths,
    written_parts,
)
from placements.hubs.write_requests import Verb, WriteRequest, WriteTooLargeError
from placements.hubs.writing.answers import WriteAnswer, WriteOutcome
from placements.hubs.writing.catalogue import HubAction
from placements.hubs.writing.gitops import gitops_marks
from placements.hubs.writing.identity import IdentityRefusedError
from placements.hubs.writing.planning import (
    ConfirmationNeededError,
    Fields,
    Planner,
    WritePlan,
    WriteRefusedError,
    text_field,
)
from placements.hubs.writing.sending import (
    HubWriter,
    NotWritableError,
    check_writable,
    open_writer,
)
from placements.hubs.writing.teams import check_plan

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
_SALT = "placements.hub_writes.preview"


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

    def __init__(self, answer: WriteAnswer, row: HubWrite | None = None) -> None:
        super().__init__(answer.message or str(answer.outcome))
        self.answer, self.row = answer, row
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
                "causes": [asdict(one) for one in answer.causes],
            }
        }
        if answer.conflicts:
            facts["conflicts"] = [
                {
                    "path": one.name,
                    "manager": one.manager,
                    "operation": one.operation,
                    "time": one.at,
                    "ours": one.ours,
                    "theirs": one.theirs,
                }
                for one in answer.conflicts
            ]
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
        """The object as it would be, without secret values and managed fields."""
        return (
            shown_object(self.answer.content)
            if self.answer and self.answer.content
            else None
        )


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
        return shown_object(self.answer.content) if self.answer.content else None


def shown_object(content: Manifest) -> dict[str, Any]:
    """Return an object of the hub without secret values, and without the list of its managers."""
    document: dict[str, Any] = without_secrets(content)
    metadata = {
        key: one
        for key, one in mapping_at(document, "metadata").items()
        if key != "managedFields"
    }
    return {**document, "metadata": metadata}


def check_role(hub: Hub, action: HubAction, by: User) -> None:
    """Raise PermissionDenied unless the person has the role of an action on this hub."""
    with in_hub(hub.pk):
        if not has_role(by, action.role) and not teams_of(by, action.role):
            message = f"You don't have permission to {action.verb}. Required role: {action.role}."
            raise PermissionDenied(message)


def plan_offline(
    hub: Hub, action: HubAction, fields: Fields, *, by: User, now: datetime
) -> WritePlan:
    """Plan a write on the mirror: for copies, where nothing is sent."""
    with in_hub(hub.pk):
        return action.plan(Planner(hub, by.get_username(), now), fields)


def plan_of(action: HubAction, planner: Planner, entered: Fields) -> WritePlan:
    """Return the plan of an action; every one may name the `uid` and `resourceVersion` of its object.

    Raise StaleBaseError where the object is another one, or was changed.
    """
    fields = {key: one for key, one in entered.items() if key not in PRECONDITIONS}
    before = {key: text_field(entered, key) for key in PRECONDITIONS}
    plan = action.plan(planner, fields)
    metadata = mapping_at(plan.live, "metadata") if plan.live else {}
    stale = [
        f"metadata.{key}"
        for key, one in before.items()
        if one and one != text_of(metadata.get(key))
    ]
    if stale == ["metadata.resourceVersion"] and plan.live:
        seen = planner.seen(plan.live, before["resourceVersion"])
        stale = (
            different_parts(written_parts(seen), written_parts(plan.live))
            if seen
            else stale
        )
    if stale:
        raise StaleBaseError(stale)
    return plan


@contextmanager
def _planner(
    hub: Hub, action: HubAction, *, by: User, now: datetime
) -> Iterator[tuple[HubWriter, Planner]]:
    """Open a writer for a person who may write. Raise PermissionDenied, NotWritableError, HubRefusedError."""
    check_role(hub, action, by)
    check_writable(hub)
    try:
        with open_writer(
            hub, person=by.get_username(), role=str(action.role)
        ) as writer:
            yield writer, Planner(hub, by.get_username(), now, writer)
    except IdentityRefusedError as error:
        raise NotWritableError(str(error)) from error
    except WriteTooLargeError as error:
        raise WriteRefusedError(str(error)) from error
    except DriverUnavailable as error:  # while reading: nothing was sent
        answer = WriteAnswer(
            WriteOutcome.UNREACHABLE, f"The hub cannot be read: {error}"
        )
        raise HubRefusedError(answer) from error


def preview_write(
    hub: Hub,
    action: HubAction,
    fields: Fields,
    *,
    by: User,
    now: datetime,
    overwrite: Collection[str] = (),
    keep: Iterable[str] = (),
) -> WritePreview:
    """Return the result that a write would have on the hub, which stores nothing.

    `overwrite` are the paths that are taken from other managers, `keep` those that stay theirs. Raise
    InvalidManifest, UnknownObjectError, StaleBaseError, WriteRefusedError, NotWritableError,
    PermissionDenied, HubRefusedError.
    """
    with _planner(hub, action, by=by, now=now) as (writer, planner), in_hub(hub.pk):
        plan = without_kept(plan_of(action, planner, fields), keep)
        check_plan(hub, action, plan, by=by)
        if plan.request is None:
            return WritePreview(action, plan)
        request, answer = writer.preview(plan.request, plan.live, overwrite=overwrite)
        token = ""
        if answer.is_accepted:
            parts = written_parts(plan.live)
            token = signing.dumps([hub.pk, by.pk, request.digest, parts], salt=_SALT)
        return WritePreview(
            action,
            plan,
            request,
            answer,
            result_differences(plan, request, answer),
            gitops_marks(plan.live),
            token,
        )


def without_kept(plan: WritePlan, keep: Iterable[str]) -> WritePlan:
    """Return a plan that leaves these paths to their owners; an unreadable path is none of the body."""
    paths: list[Path] = []
    for name in keep:
        try:
            paths.append(tuple(map(str, split_path(name))))
        except ValueError as error:
            raise InvalidManifest.of(
                "keep", "bad-format", f"Invalid value: {name[:80]!r}", "a path"
            ) from error
    if not paths or plan.request is None or plan.request.verb is not Verb.APPLY:
        return plan
    body = without_paths(plan.request.body, paths)
    has_rest = bool(leaf_paths(body))
    return replace(plan, request=replace(plan.request, body=body) if has_rest else None)


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
    keep: Iterable[str] = (),
) -> AppliedWrite | None:
    """Send a write once, after a dry run of exactly its body: that of the token, or a new one.

    None where nothing would change. `confirmed`: a placement may leave all or most of its clusters. Raise
    what `preview_write` raises, PreviewRequiredError, ChangedSincePreviewError, ConfirmationNeededError.
    """
    with _planner(hub, action, by=by, now=now) as (writer, planner), in_hub(hub.pk):
        plan = without_kept(plan_of(action, planner, fields), keep)
        check_plan(hub, action, plan, by=by)
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
            request = previewed(plan, token, hub, by)
        sent = writer.send(request, plan.live, digest=request.digest)
        if not (sent.answer.is_accepted or sent.answer.outcome is WriteOutcome.UNKNOWN):
            raise HubRefusedError(sent.answer, sent.row)
        return AppliedWrite(sent.row, sent.answer, plan)


def previewed(plan: WritePlan, token: str, hub: Hub, by: User) -> WriteRequest:
    """Return the request as its dry run was sent; the status may have changed since.

    Raise PreviewRequiredError, ChangedSincePreviewError.
    """
    try:
        hub_pk, user_pk, digest, parts = signing.loads(
            token, salt=_SALT, max_age=PREVIEW_SECONDS
        )
    except (signing.BadSignature, ValueError, TypeError) as error:
        raise PreviewRequiredError from error
    request = plan.request
    requests = () if request is None else (request, request.forced())
    same = [one for one in requests if one.digest == digest]
    is_own = (hub_pk, user_pk) == (hub.pk, by.pk)
    changed = different_parts(parts, written_parts(plan.live)) if is_own else []
    if changed:
        raise ChangedSincePreviewError(changed)
    if not (is_own and same):
        raise PreviewRequiredError
    return same[0]


def result_differences(
    plan: WritePlan, request: WriteRequest, answer: WriteAnswer
) -> tuple[ResultDifference, ...]:
    """Return how the result of a dry run differs from the live object, without secret values."""
    if answer.content is None or request.verb is Verb.DELETE:
        return ()
    # Of a new object, what the hub added to it is of interest.
    live, result = (
        _comparable(request.body if plan.live is None else plan.live),
        _comparable(answer.content),
    )
    if request.subresource == "status":
        live, result = (
            {"status": mapping_at(one, "status")} for one in (plan.live, answer.content)
        )
    changes = find_differences(live, result)
    sent = sent_pointers(request)
    return tuple(
        _difference(one, sent)
        for one in changes.fields
        if one.path not in ("/apiVersion", "/kind")
    )


def _comparable(content: Manifest) -> dict[str, Any]:
    # With metadata, so that the first label is a difference of labels.
    return {"metadata": {}, **clean(without_secrets(content))}


def sent_pointers(request: WriteRequest) -> tuple[str, ...]:
    if request.subresource == "status":
        return ("/status/conditions",)
    leaves = leaf_paths(request.body)
    return tuple(
        "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in path)
        for path in leaves
    )


def _difference(one: FieldDiff, sent: tuple[str, ...]) -> ResultDifference:
    is_ours = any(one.path == path or one.path.startswith(f"{path}/") for path in sent)
    # A whole object that is new here holds what was sent.
    is_around = any(path.startswith(f"{one.path}/") for path in sent)
    return ResultDifference(
        one.path, one.in_member, one.in_hub, not (is_ours or is_around)
    )
