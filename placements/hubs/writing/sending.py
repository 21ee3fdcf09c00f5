"""One write: in whose name, its record before the request, the request, what became of it (13.6).

No transaction may be open while a request runs: the record is committed before, and finished after it.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import uuid4

from django.core.cache import caches
from django.db import transaction
from django.utils import timezone

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.client import Client
from clusters.hub_queries import live_hubs
from clusters.models import Hub, HubStream, HubWrite, HubWriteState
from clusters.models.hubs import HubIdentity, HubMode
from fleetui.apimachinery.errors import FieldError
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import canonical_json
from fleetui.errors import FleetError
from fleetui.hub_scope import in_hub
from placements.hubs.connections.connection import (
    HubTarget,
    open_hub_client,
    secret_values,
)
from placements.hubs.kinds.base import Manifest, StreamKind, text_of
from placements.hubs.write_requests import (
    KINDS,
    Verb,
    WriteRequest,
    different_parts,
    written_parts,
)
from placements.hubs.writing.answers import (
    LONGEST_ANSWER,
    WriteAnswer,
    WriteOutcome,
    answer_of,
    failure_of,
    read_back,
)

REFUSAL_SECONDS = 60
SYSTEM = "system:"
Headers = Mapping[str, str | tuple[str, ...]]


class IdentityRefusedError(Exception):
    """A person cannot be impersonated on this hub."""


@dataclass(frozen=True, slots=True)
class Requester:
    """The account that the hub sees: that of the console, or a person with groups."""

    person: str
    user: str = ""
    groups: tuple[str, ...] = ()

    @property
    def headers(self) -> Headers:
        if not self.user:
            return {}
        return {"Impersonate-User": self.user, "Impersonate-Group": self.groups}


def requester_on(hub: Hub, person: str, role: str) -> Requester:
    """Return the account that a person's writes are sent as. Raise IdentityRefusedError.

    Without a prefix, or with one of the hub itself, a name of this console could be that of an administrator.
    """
    if hub.identity != HubIdentity.IMPERSONATE:
        return Requester(person)
    if not hub.user_prefix or not hub.group_prefix:
        raise IdentityRefusedError(
            "impersonation requires a prefix of users and of groups"
        )
    user = f"{hub.user_prefix}{person}"
    groups = (f"{hub.group_prefix}{role}", *map(str, hub.extra_groups))
    for text in (user, *groups):
        if text.lower().startswith(SYSTEM):
            raise IdentityRefusedError(
                f"{text[:80]!r} starts with {SYSTEM}, which belongs to the hub"
            )
        if not text.isascii() or not text.isprintable():
            raise IdentityRefusedError(
                f"{text[:80]!r} has characters that a header cannot have"
            )
    return Requester(person, user, groups)


@dataclass(frozen=True, slots=True)
class WriteAccess:
    """What a write needs of the account; no name where the object is to be created."""

    verb: str
    kind: StreamKind
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of(cls, request: WriteRequest) -> "WriteAccess":
        name = "" if request.verb is Verb.CREATE else request.name
        verb = request.verb.permission
        return cls(verb, request.kind, request.subresource, request.namespace, name)

    def key(self, hub: Hub, requester: Requester) -> str:
        """Return where a refusal is kept: another server or identity may do other things."""
        server, who = str(hub.connection.get("server")), requester
        what = [self.verb, self.kind.plural, self.subresource, self.namespace]
        parts = [hub.pk, server, who.user, *who.groups, "", *what, self.name]
        return f"hub-refusal-{sha256(canonical_json(parts)).hexdigest()}"

    def refusal(self, hub: Hub, requester: Requester) -> str:
        """Return what the hub forbade within the last minute, "" where it did not."""
        return str(caches["process"].get(self.key(hub, requester), ""))

    def note_refusal(self, hub: Hub, requester: Requester) -> None:
        key = self.key(hub, requester)
        caches["process"].set(key, self.lacking(requester), REFUSAL_SECONDS)

    def lacking(self, requester: Requester) -> str:
        who = requester.user or "the account of the console"
        part = f"{self.kind.plural}/{self.subresource}".removesuffix("/")
        return f"On the hub, {who} may not {self.verb} {part}.{self.kind.group}."


WRITE_SECONDS, READ_SECONDS = 15.0, 10.0
LONGEST_WAIT = 5.0
MOST_REPEATS = 8
"""Requests after one that a controller was faster than; each reads the object right before."""
RESOLVE_AFTER = timedelta(seconds=20)
"""Longer than a request may take: its sender has finished, or does not exist any more."""
GIVE_UP_AFTER = timedelta(seconds=90)
"""Longer than an API server works on a request: what it did not do until then, it does not do."""
_UNANSWERED = (HubWriteState.SENT, HubWriteState.UNKNOWN)
NEVER_SENT = "The console stopped before the request was sent."


class NotWritableError(FleetError):
    """Nothing is sent to this hub now; `reason` says why."""

    problem_type = "not-writable"


def check_writable(hub: Hub) -> None:
    """Raise NotWritableError in mode `read`, for superusers too, and while the hub is paused or removed."""
    current = (
        Hub.objects.filter(pk=hub.pk)
        .values_list("mode", "is_paused", "removed_at")
        .first()
    )
    mode, is_paused, removed_at = current or (HubMode.READ, False, True)
    if removed_at or hub.is_local:
        raise NotWritableError(f"hub {hub.name} is not connected")
    if mode != HubMode.OPERATE:
        raise NotWritableError(
            f"hub {hub.name} is read only: its mode is read, not operate"
        )
    if is_paused:
        raise NotWritableError(f"hub {hub.name} is paused: no requests are sent")


def version_of(hub: Hub, kind: str) -> str:
    """Return the version that the hub stores a kind in. Raise NotWritableError."""
    wanted = KINDS[kind]
    with in_hub(hub.pk):
        streams = HubStream.objects.filter(
            group=wanted.group, plural=wanted.plural
        ).exclude(state="absent")
        version = streams.values_list("version", flat=True).first()
    if not version:
        raise NotWritableError(f"hub {hub.name} does not serve {wanted.resource}")
    return version


class HubWriter:
    """Reads and writes single objects of one hub in the name of one person."""

    def __init__(
        self,
        hub: Hub,
        client: Client,
        requester: Requester,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.hub, self.requester = hub, requester
        self._client, self._monotonic, self._sleep = client, monotonic, sleep

    def read(
        self, path: str, *, seconds: float = READ_SECONDS
    ) -> dict[str, Any] | None:
        """Return an object as it is on the hub, None where there is none. Raise DriverUnavailable."""
        answer = self._client.request("GET", path, deadline=self._monotonic() + seconds)
        if answer.status == 200:
            return dict(answer.body)
        if answer.status == 404:
            return None
        message = str(answer.body.get("message") or f"the hub answers {answer.status}")
        raise DriverUnavailable(message[:500], code=f"http-{answer.status}")

    def dry_run(self, request: WriteRequest, live: Manifest | None) -> WriteAnswer:
        """Return what the hub says to a request of which it stores nothing. Raise NotWritableError."""
        check_writable(self.hub)
        _, answer = self._request_at_present_version(request, live, is_dry_run=True)
        if answer.outcome is WriteOutcome.FORBIDDEN:
            WriteAccess.of(request).note_refusal(self.hub, self.requester)
        if answer.outcome is WriteOutcome.UNKNOWN:
            return replace(answer, outcome=WriteOutcome.UNREACHABLE)
        return answer

    def preview(
        self,
        request: WriteRequest,
        live: Manifest | None,
        *,
        overwrite: Collection[str] = (),
    ) -> tuple[WriteRequest, WriteAnswer]:
        """Return the request that would be sent, and what the hub says to a dry run of it.

        It takes fields from other managers where all of them are in `overwrite`, and from the console itself,
        which owns what it created or patched as another manager than what it applied. Raise NotWritableError.
        """
        answer = self.dry_run(request, live)
        ours = self.hub.field_manager
        others = [
            conflict.name for conflict in answer.conflicts if conflict.manager != ours
        ]
        if answer.conflicts and set(others) <= set(overwrite):
            request = request.forced()
            answer = self.dry_run(request, live)
        return request, answer

    def send(
        self,
        request: WriteRequest,
        live: Manifest | None,
        *,
        digest: str = "",
    ) -> tuple[HubWrite, WriteAnswer]:
        """Send a request until the hub stores it or refuses it, and record who requested it and the outcome.

        Raise NotWritableError.
        """
        check_writable(self.hub)
        if not self.requester.person:
            raise NotWritableError("a write has a requester")
        row = self.record(request, digest)
        # Another process that finds the row after this leaves it alone until the deadline is over.
        if not move(row, HubWriteState.PLANNED, state=HubWriteState.SENT):
            raise NotWritableError("the write was given up before it was sent")
        sent, answer = self._request_at_present_version(request, live, is_dry_run=False)
        if sent.resource_version != request.resource_version:
            move(
                row,
                HubWriteState.SENT,
                precondition=sent.resource_version,
                body=sent.stored_body,
            )
            request = sent
        if answer.outcome is WriteOutcome.UNKNOWN:
            with suppress(DriverUnavailable):
                evidence = self.read_back(request)
                if evidence.outcome is not WriteOutcome.UNKNOWN:
                    message = f"{answer.message}. {evidence.message}"
                    answer = replace(evidence, message=message, status=answer.status)
        finish(row, answer)
        return row, answer

    def record(self, request: WriteRequest, digest: str) -> HubWrite:
        """Commit the record of a planned request. Raise RuntimeError inside of a transaction."""
        with in_hub(self.hub.pk), transaction.atomic(durable=True):
            return HubWrite.objects.create(
                at=timezone.now(),
                requested_by=self.requester.person,
                verb=str(request.verb),
                group=request.kind.group,
                kind=request.kind.kind,
                namespace=request.namespace,
                name=request.name,
                subresource=request.subresource,
                body=request.stored_body,
                dry_run_digest=digest,
                precondition=request.resource_version,
                request_id=uuid4().hex,
            )

    def _request_at_present_version(
        self,
        request: WriteRequest,
        live: Manifest | None,
        *,
        is_dry_run: bool,
    ) -> tuple[WriteRequest, WriteAnswer]:
        """Send a request, and again with the present resourceVersion while only the status has changed.

        The hub stored nothing of those before. What was changed otherwise is a conflict, and named.
        """
        answer = self._request(request, live, is_dry_run=is_dry_run)
        for _ in range(MOST_REPEATS):
            if answer.outcome is not WriteOutcome.STALE or live is None:
                break
            try:
                present = self.read(request.object_path)
            except DriverUnavailable:
                break
            conditions = request.written_conditions
            before = written_parts(live, conditions=conditions)
            after = written_parts(present, conditions=conditions)
            if changed := different_parts(before, after):
                words = "Changed on the hub meanwhile"
                causes = tuple(FieldError(path, "changed", words) for path in changed)
                message = f"changed on the hub meanwhile: {', '.join(changed)}"
                return request, replace(answer, message=message, causes=causes)
            version = mapping_at(present, "metadata").get("resourceVersion")
            request = request.at_version(text_of(version))
            answer = self._request(request, live, is_dry_run=is_dry_run)
        return request, answer

    def _request(
        self,
        request: WriteRequest,
        live: Manifest | None,
        *,
        is_dry_run: bool,
    ) -> WriteAnswer:
        """Send a request; a second time after 429 and 503, which the hub has not worked on."""
        deadline = self._monotonic() + WRITE_SECONDS
        for is_last in (False, True):
            is_sent = False
            try:
                self._client.connect(deadline)
                is_sent = True
                response = self._client.request(
                    request.method,
                    request.path,
                    query=request.query(self.hub.field_manager, is_dry_run=is_dry_run),
                    body=request.content(is_dry_run=is_dry_run),
                    content_type=request.content_type,
                    headers=self.requester.headers,
                    deadline=deadline,
                )
            except DriverUnavailable as error:
                answer, wait = failure_of(error, is_sent=is_sent), error.retry_after
                is_busy = answer.outcome is WriteOutcome.BUSY
                if is_last or not is_busy or wait is None or wait > LONGEST_WAIT:
                    return answer
                self._sleep(wait)
            else:
                return answer_of(request, response, live)
        raise AssertionError("unreachable")

    def read_back(self, request: WriteRequest) -> WriteAnswer:
        """Return what the object says about a write without an answer. Raise DriverUnavailable."""
        return read_back(request, self.read(request.object_path))


def move(row: HubWrite, *states: HubWriteState, **values: Any) -> bool:
    """Change a record that is still in one of these states; return whether it was."""
    with in_hub(int(row.hub_id or 0)), transaction.atomic(durable=True):
        count = HubWrite.objects.filter(pk=row.pk, state__in=states).update(**values)
    if count:
        for name, value in values.items():
            setattr(row, name, value)
    return bool(count)


def finish(row: HubWrite, answer: WriteAnswer) -> bool:
    """Record what became of a write; a final state is never changed."""
    return move(
        row,
        *_UNANSWERED,
        state=answer.state,
        status=answer.status,
        answer=answer.message[:LONGEST_ANSWER].replace("\0", ""),
        resource_version_after=answer.resource_version,
    )


@contextmanager
def open_writer(
    hub: Hub, *, person: str = "", role: str = "", **options: Any
) -> Iterator[HubWriter]:
    """Connect to a hub, to write in the name of a person. Raise DriverUnavailable, IdentityRefusedError."""
    requester = requester_on(hub, person, role) if person else Requester("")
    target = HubTarget.of(hub)
    opened = open_hub_client(target.connection, secret_values(target))
    with closing(opened) as client:
        yield HubWriter(hub, client, requester, **options)


def request_of(row: HubWrite, version: str) -> WriteRequest:
    """Return the request of a record, to be compared with the object and never to be sent again."""
    body: Mapping[str, Any] = row.body or {}
    parts = [mapping_at(body, part) for part in ("metadata", "preconditions")]
    uid = parts[0].get("uid") or parts[1].get("uid") or ""
    return WriteRequest(
        Verb(row.verb),
        KINDS[row.kind],
        version,
        row.name,
        body,
        row.namespace,
        row.subresource,
        uid=str(uid),
        resource_version=row.precondition,
    )


def resolve_writes(*, now: datetime) -> int:
    """Resolve writes without an answer by reading their objects; return how many are final now."""
    resolved = 0
    for hub in live_hubs().order_by("pk"):
        with in_hub(hub.pk):
            old = HubWrite.objects.filter(at__lt=now - RESOLVE_AFTER).order_by("at")
            planned = list(old.filter(state=HubWriteState.PLANNED)[:100])
            due = list(old.filter(state__in=_UNANSWERED)[:20])
        values = {"state": HubWriteState.UNREACHABLE, "answer": NEVER_SENT}
        resolved += sum(move(row, HubWriteState.PLANNED, **values) for row in planned)
        if (
            due
            and hub.state in ("live", "stale", "syncing", "connecting")
            and not hub.is_paused
        ):
            # What cannot be read now is resolved by the next call.
            with (
                suppress(DriverUnavailable, NotWritableError),
                open_writer(hub) as writer,
            ):
                for row in due:
                    resolved += _resolve(writer, row, now=now)
    return resolved


def _resolve(writer: HubWriter, row: HubWrite, *, now: datetime) -> bool:
    """Return whether the outcome of a write is final now."""
    evidence = writer.read_back(request_of(row, version_of(writer.hub, row.kind)))
    is_unknown = evidence.outcome is WriteOutcome.UNKNOWN
    if is_unknown and row.at < now - GIVE_UP_AFTER:
        evidence = WriteAnswer(WriteOutcome.NOT_APPLIED, "The hub did not apply it.")
    elif is_unknown:
        if row.state == HubWriteState.SENT:
            finish(row, evidence)
        return False
    return finish(row, replace(evidence, status=row.status))
