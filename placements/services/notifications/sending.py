"""Sending messages: each is claimed, sent without a transaction, and tried again later if that fails.

A worker that is killed while sending leaves its lease, which ends; then the message is sent again with the
same idempotence key.
"""

import hashlib
import hmac
import http.client
import json
import smtplib
import ssl
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timedelta
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import urllib3
from django.conf import settings
from django.core.mail import send_mail
from django.db.models import F, Q

from clusters.credentials import CredentialsUnreadable
from clusters.drivers.kubernetes.configuration import Connection
from clusters.drivers.kubernetes.sockets import (
    AddressNotAllowed,
    BoundedConnection,
    NameNotResolved,
)
from clusters.models import ChannelKind
from placements.models import NotificationDelivery
from placements.services.notifications.operations import (
    convert_former_channels,
    fields_of,
    rules_for_channels,
)
from placements.services.notifications.services import SERVICES, Message

State = NotificationDelivery.State
LEASE = timedelta(seconds=90)
MOST_ATTEMPTS = 8
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=30), timedelta(hours=1)
_BATCH = 5
_SECONDS = 15.0
_MOST_READ = 4096
SIGNATURE, TIMESTAMP, KEY = (
    "X-FleetUI-Signature",
    "X-FleetUI-Timestamp",
    "X-FleetUI-Idempotency-Key",
)


class NotDeliveredError(Exception):
    """A message was not accepted; the message is the reason, without the address."""


def send_due(*, now: datetime) -> int:
    """Send the first messages that are due; return how many were tried."""
    tried = 0
    convert_former_channels(now=now)
    is_free = Q(lease_expires_at=None) | Q(lease_expires_at__lte=now)
    due = NotificationDelivery.objects.filter(
        is_free, state=State.PENDING, due_at__lte=now
    )
    for row in list(due.select_related("channel").order_by("due_at", "pk")[:_BATCH]):
        mine = NotificationDelivery.objects.filter(
            pk=row.pk, state=State.PENDING, lease_expires_at=row.lease_expires_at
        )
        if not mine.update(lease_expires_at=now + LEASE, attempts=F("attempts") + 1):
            continue  # another worker has it
        tried += 1
        claim = NotificationDelivery.objects.filter(
            pk=row.pk, lease_expires_at=now + LEASE
        )
        try:
            send_one(row, now=now)
        except (NotDeliveredError, CredentialsUnreadable) as error:
            attempts = row.attempts + 1
            pause = min(FIRST_PAUSE * 2 ** min(attempts - 1, 10), LONGEST_PAUSE)
            state: dict[str, Any] = {"due_at": now + pause}
            if attempts >= MOST_ATTEMPTS:
                state = {"state": State.FAILED}
            claim.update(lease_expires_at=None, error=str(error)[:300], **state)
        else:
            claim.update(state=State.SENT, sent_at=now, lease_expires_at=None, error="")
    return tried


def send_one(row: NotificationDelivery, *, now: datetime) -> None:
    """Send one message. Raise NotDeliveredError, CredentialsUnreadable."""
    if not row.channel.is_enabled:
        raise NotDeliveredError("the channel is disabled")
    fields, kind = fields_of(row.channel), row.channel.kind
    if kind == ChannelKind.WEBHOOK:
        facts: dict[str, Any] = {"kind": row.kind, "title": row.title, "body": row.body}
        if problem := row.problem:
            facts |= {
                "event": problem.kind,
                "name": problem.name,
                "labels": problem.labels,
                "message": problem.message,
                "since": problem.since.isoformat(),
            }
        content, timestamp = json.dumps(facts).encode(), str(int(now.timestamp()))
        headers = {
            KEY: row.idempotence_key,
            TIMESTAMP: timestamp,
            SIGNATURE: signature_of(fields["key"], timestamp, content),
        }
        post(fields["address"], headers, content)
        return
    if kind not in SERVICES:
        raise NotDeliveredError(
            "the channel has no known service; enter its fields again"
        )
    key = f"problem-{row.problem_id}" if row.problem_id else row.idempotence_key
    is_resolved = row.kind == NotificationDelivery.Kind.RESOLVED
    message = Message(row.title, row.body, f"fleetui-{key}", is_resolved=is_resolved)
    if kind == ChannelKind.EMAIL:
        send_email(message, fields["recipients"])
    else:
        post(*SERVICES[kind].request(message, fields))


def signature_of(key: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a message: HMAC-SHA256 over its timestamp, a dot and its body."""
    digest = hmac.new(key.encode(), timestamp.encode() + b"." + body, hashlib.sha256)
    return f"sha256={digest.hexdigest()}"


def post(url: str, headers: Mapping[str, str], body: bytes) -> None:
    """Post JSON to a checked address with TLS; a redirect is not followed. Raise NotDeliveredError."""
    parts = urlsplit(url)
    sent = {"Content-Type": "application/json", "User-Agent": "fleetui", **headers}
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    link = BoundedConnection(
        parts.hostname or "",
        parts.port or 443,
        Connection(server=url),
        system_tls(),
        rules_for_channels(),
        monotonic,
    )
    link.deadline = monotonic() + _SECONDS
    try:
        with closing(link):
            link.request("POST", path, body, sent, preload_content=False)
            answer = link.getresponse()
            answer.read(_MOST_READ)
    except AddressNotAllowed as error:
        raise NotDeliveredError(f"the address is not allowed: {error}") from error
    except (
        NameNotResolved,
        OSError,
        http.client.HTTPException,
        urllib3.exceptions.HTTPError,
    ) as error:
        raise NotDeliveredError(f"no answer: {type(error).__name__}") from error
    if not http.client.OK <= answer.status < http.client.MULTIPLE_CHOICES:
        raise NotDeliveredError(f"the service responded with status {answer.status}")


def send_email(message: Message, recipients: str) -> None:
    """Send a message by the mail server of the console, which its operator chose. Raise NotDeliveredError."""
    if not settings.EMAIL_HOST:
        raise NotDeliveredError("FLEETUI_MAIL_SERVER is not set")
    to = [part.strip() for part in recipients.split(",")]
    subject = " ".join(f"FleetUI: {message.title}".split())
    try:
        send_mail(subject, message.body, settings.DEFAULT_FROM_EMAIL, to)
    except (OSError, smtplib.SMTPException) as error:
        raise NotDeliveredError(
            f"the mail server did not accept it: {type(error).__name__}"
        ) from error


def system_tls() -> ssl.SSLContext:
    return ssl.create_default_context()
