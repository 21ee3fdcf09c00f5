"""The access log: logins, changes of access and refusals, as rows and as lines of the log of the process.

Who can write to the database can change the rows; the lines are for a log store, which keeps them apart.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AnonymousUser
from django.core.cache import caches
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest

from fleetui.access.models import AccessEvent
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
_REPEATED_SECONDS = 60
_PRUNED_AT_ONCE = 500

log = logging.getLogger("fleetui.access")


def record_access(
    verb: str,
    subject: str = "",
    *,
    by: AbstractBaseUser | AnonymousUser | str | None = None,
    details: Mapping[str, Any] | None = None,
    request: HttpRequest | None = None,
    now: datetime | None = None,
) -> None:
    """Write a line; without an actor it is the user of the request, or the console itself.

    What a request causes is in the log of the process, too, once it is committed.
    """
    request = request or current_request.get()
    actor: Any = by
    if by is None and request is None:
        actor = "system"
    elif by is None:
        actor = getattr(request, "_cached_user", None) or getattr(request, "user", "")
    name = actor if isinstance(actor, str) else actor.get_username()
    line = AccessEvent.objects.create(
        at=now or datetime.now(UTC),
        actor_name=_plain(name, 150),
        verb=verb,
        subject=_plain(subject, 700),
        address=_plain(getattr(request, "META", {}).get("REMOTE_ADDR", ""), 64),
        request_id=request_id(request),
        details=dict(details or {}),
    )
    if request:
        text = json.dumps(content_of(line), ensure_ascii=True)
        transaction.on_commit(partial(log.info, "access %s", text))


def record_refusal(request: HttpRequest) -> None:
    """Write that an action was refused; the same one by the same user once a minute and process."""
    user = getattr(request, "_cached_user", None) or getattr(request, "user", None)
    name = user.get_username() if user is not None and user.is_authenticated else ""
    address = f"{request.method} {request.path}"
    key = hashlib.sha256(
        f"{name} {request.META.get('REMOTE_ADDR')} {address}".encode(errors="replace")
    )
    if caches["process"].add(f"refused-{key.hexdigest()}", 1, _REPEATED_SECONDS):
        record_access("refused", address, by=name, request=request)


def _plain(text: str, longest: int) -> str:
    """Return text that every database stores: names of failed logins may hold anything."""
    return text.replace("\x00", "").encode(errors="replace").decode()[:longest]


def content_of(line: AccessEvent) -> dict[str, Any]:
    return {
        "at": line.at.astimezone(UTC).isoformat(),
        "actor": line.actor_name,
        "verb": line.verb,
        "subject": line.subject,
        "address": line.address,
        "requestId": line.request_id,
        "details": line.details,
    }


def prunable_lines(*, now: datetime) -> QuerySet[AccessEvent]:
    return AccessEvent.objects.filter(at__lt=now - settings.KEEP_ACCESS_LOG)


def prune_lines(*, now: datetime) -> int:
    """Delete old lines, some of them at a time, and return how many."""
    old = prunable_lines(now=now).order_by("at").values("pk")[:_PRUNED_AT_ONCE]
    return AccessEvent.objects.filter(
        pk__in=list(old.values_list("pk", flat=True))
    ).delete()[0]


def lines_matching(
    *, verb: str = "", by: str = "", text: str = "", address: str = ""
) -> QuerySet[AccessEvent]:
    wanted = {
        "verb": verb,
        "actor_name": by,
        "subject__icontains": text,
        "address": address,
    }
    return AccessEvent.objects.filter(
        **{column: value for column, value in wanted.items() if value}
    )


def detail_words(details: Mapping[str, Any]) -> str:
    words = {
        key: " ".join(map(str, one)) if isinstance(one, list) else one
        for key, one in details.items()
    }
    return ", ".join(
        f"{key}: {one}" for key, one in words.items() if one not in ("", None)
    )


def json_lines(rows: QuerySet[AccessEvent]) -> Iterator[str]:
    """Yield each line as JSON, oldest first."""
    yield from (
        json.dumps(content_of(line), ensure_ascii=False) + "\n"
        for line in rows.order_by("pk").iterator(chunk_size=500)
    )
