"""The access log: logins, changes of access and refusals, chained by hashes so that changes are noticed.

Writing a line is one insert without a lock. A worker seals what is new about every second: it gives each
line its place in the chain. A line that is removed within that second is not noticed; everything later is.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.cache import caches
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from fleetui.access.models import AccessChain, AccessEvent
from fleetui.middleware import current_request, request_id

VERBS = (
    "logged in",
    "login failed",
    "logged out",
    "refused",
    "roles changed",
    "permissions changed",
    "account changed",
    "password changed",
    "token created",
    "token revoked",
    "credentials changed",
    "secret values read",
)
SEALED_AT_ONCE = 500
_REPEATED_SECONDS = 60
_CHAIN = 1


def record_access(
    verb: str,
    subject: str = "",
    *,
    by: AbstractBaseUser | AnonymousUser | str | None = None,
    details: Mapping[str, Any] | None = None,
    request: HttpRequest | None = None,
    now: datetime | None = None,
) -> None:
    """Write a line; without an actor it is the user of the request, or the console itself."""
    request = request or current_request.get()
    if by is None:
        by = getattr(request, "_cached_user", None) or getattr(request, "user", None) if request else "system"
    name = by if isinstance(by, str) else by.get_username() if by is not None else ""
    AccessEvent.objects.create(
        at=now or datetime.now(UTC),
        actor_name=_plain(name, 150),
        verb=verb,
        subject=_plain(subject, 700),
        address=_plain(request.META.get("REMOTE_ADDR", "") if request else "", 64),
        request_id=request_id(request),
        details=dict(details or {}),
    )


def record_refusal(request: HttpRequest) -> None:
    """Write that an action was refused; the same one by the same user once a minute and process."""
    user = getattr(request, "_cached_user", None) or getattr(request, "user", None)
    name = user.get_username() if user is not None and user.is_authenticated else ""
    address = f"{request.method} {request.path}"
    key = hashlib.sha256(f"{name} {request.META.get('REMOTE_ADDR')} {address}".encode(errors="replace"))
    if caches["process"].add(f"refused-{key.hexdigest()}", 1, _REPEATED_SECONDS):
        record_access("refused", address, by=name, request=request)


def _plain(text: str, longest: int) -> str:
    """Return text that every database stores: names of failed logins may hold anything."""
    return text.replace("\x00", "").encode(errors="replace").decode()[:longest]


def digest_of(line: AccessEvent, before: str) -> str:
    content = [line.sequence, *content_of(line).values(), before]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def content_of(line: AccessEvent) -> dict[str, Any]:
    """Return what a line says, in the order of its hash."""
    return {
        "at": line.at.astimezone(UTC).isoformat(),
        "actor": line.actor_name,
        "verb": line.verb,
        "subject": line.subject,
        "address": line.address,
        "requestId": line.request_id,
        "details": line.details,
    }


def seal() -> int:
    """Append the new lines to the chain, oldest first; return how many.

    Only one worker at a time: the row of the chain is locked, which no request waits for.
    """
    if not AccessEvent.objects.filter(sequence=None).exists():
        return 0
    with transaction.atomic():
        chain = _locked_chain()
        lines = list(AccessEvent.objects.filter(sequence=None).order_by("pk")[:SEALED_AT_ONCE])
        for line in lines:
            line.sequence = chain.head_sequence + 1
            line.digest = digest_of(line, chain.head_digest)
            chain.head_sequence, chain.head_digest = line.sequence, line.digest
        AccessEvent.objects.bulk_update(lines, ["sequence", "digest"], batch_size=100)
        chain.save(update_fields=["head_sequence", "head_digest"])
    return len(lines)


def _locked_chain() -> AccessChain:
    AccessChain.objects.get_or_create(pk=_CHAIN)
    return AccessChain.objects.select_for_update().get(pk=_CHAIN)


def prunable_lines(*, now: datetime) -> QuerySet[AccessEvent]:
    return AccessEvent.objects.filter(at__lt=now - settings.KEEP_ACCESS_LOG, sequence__isnull=False)


def prune_lines(*, now: datetime) -> int:
    """Delete old lines from the start of the chain, and keep the digest of the last one as its anchor.

    A line between younger ones waits for them: the chain has no gaps.
    """
    with transaction.atomic():
        chain = _locked_chain()
        before = now - settings.KEEP_ACCESS_LOG
        chained = AccessEvent.objects.filter(sequence__gt=chain.anchor_sequence).order_by("sequence")
        old: list[AccessEvent] = []
        for line in chained[:SEALED_AT_ONCE]:
            if line.at >= before:
                break
            old.append(line)
        if not old:
            return 0
        AccessEvent.objects.filter(pk__in=[line.pk for line in old]).delete()
        chain.anchor_sequence, chain.anchor_digest = int(old[-1].sequence or 0), old[-1].digest
        chain.anchored_at = now
        chain.save(update_fields=["anchor_sequence", "anchor_digest", "anchored_at"])
    return len(old)


@dataclass(frozen=True, slots=True)
class ChainReport:
    """What verifying found: the faults, how many lines are chained and how many wait to be."""

    errors: tuple[str, ...]
    checked: int
    unsealed: int
    head: str


_MOST_ERRORS = 20


def verify(*, expected: tuple[int, str] | None = None) -> ChainReport:
    """Compute the chain again and compare; `expected` is a place and digest that was kept elsewhere."""
    with transaction.atomic():
        chain = _locked_chain()
        return _verified(chain, expected)


def _verified(chain: AccessChain, expected: tuple[int, str] | None) -> ChainReport:
    errors: list[str] = []
    sequence, digest, checked = chain.anchor_sequence, chain.anchor_digest, 0
    is_present = expected is None or expected == (sequence, digest)
    lines = AccessEvent.objects.filter(sequence__isnull=False).order_by("sequence")
    for line in lines.iterator(chunk_size=1000):
        checked += 1
        place = int(line.sequence or 0)
        if place != sequence + 1:
            errors.append(f"lines {sequence + 1} to {place - 1} are missing")
        elif line.digest != digest_of(line, digest):
            errors.append(f"line {place} was changed, or a line before it was replaced")
        sequence, digest = place, line.digest
        is_present = is_present or expected == (sequence, digest)
    if (sequence, digest) != (chain.head_sequence, chain.head_digest):
        errors.append(f"the chain ends at line {sequence}, and not at line {chain.head_sequence}")
    if not is_present and expected is not None:
        errors.append(f"line {expected[0]} does not have the expected digest")
    unsealed = AccessEvent.objects.filter(sequence=None).count()
    return ChainReport(tuple(errors[:_MOST_ERRORS]), checked, unsealed, f"{sequence}:{digest}")


def lines_matching(
    *, verb: str = "", by: str = "", text: str = "", address: str = ""
) -> QuerySet[AccessEvent]:
    rows = AccessEvent.objects.all()
    if verb:
        rows = rows.filter(verb=verb)
    if by:
        rows = rows.filter(actor_name=by)
    if text:
        rows = rows.filter(subject__icontains=text)
    return rows.filter(address=address) if address else rows


def detail_words(details: Mapping[str, Any]) -> str:
    words = {key: " ".join(map(str, one)) if isinstance(one, list) else one for key, one in details.items()}
    return ", ".join(f"{key}: {one}" for key, one in words.items() if one not in ("", None))


def json_lines(rows: QuerySet[AccessEvent]) -> Iterator[str]:
    """Yield each line as JSON, oldest first, with its place and digest."""
    for line in rows.order_by("pk").iterator(chunk_size=500):
        document = {"sequence": line.sequence, **content_of(line), "digest": line.digest or None}
        yield json.dumps(document, ensure_ascii=False) + "\n"
