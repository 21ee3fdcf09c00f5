"""What people do with rules and channels, whose fields are checked, encrypted and shown."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from clusters.credentials import (
    CHANNEL_PURPOSE,
    CredentialsUnreadable,
    decrypt,
    encrypt,
    fingerprint,
)
from clusters.drivers.kubernetes.sockets import (
    AddressNotAllowed,
    AddressRules,
    check_address,
    is_ip_address,
)
from clusters.kubeconfig import Secret
from clusters.kubernetes_drivers import address_rules
from clusters.models import FORMER_KIND, ChannelKind, NotificationChannel
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    raise_errors,
)
from fleetui.apimachinery.fields import label_key_problem, label_value_problem
from fleetui.audit import (
    actor_name,
    record_event,
)
from fleetui.bulk import first_or_raise
from fleetui.errors import UnknownObject
from placements.models import NOTIFIED, NotificationDelivery, NotificationRule, Problem
from placements.services.notifications.evaluation import matches
from placements.services.notifications.services import (
    SERVICES,
    Service,
    Values,
    former_fields,
)

CHANNEL = "channel"


def rules_for_channels() -> AddressRules:
    """Return the rules of cluster connections without their networks: channels are outside of these."""
    rules = address_rules()
    return AddressRules(allow_loopback=rules.allow_loopback, resolve=rules.resolve)


def checked_fields(kind: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Return all fields of a channel, empty ones included. Raise InvalidManifest with every error."""
    service = SERVICES.get(kind)
    if service is None:
        message, allowed = f"Unsupported value: {kind[:40]!r}", ", ".join(SERVICES)
        raise InvalidManifest.of("kind", "not-one-of", message, allowed)
    raise_errors(_errors(service, fields))
    return {field.name: fields.get(field.name, "") for field in service.fields}


def _errors(service: Service, fields: Mapping[str, str]) -> Iterator[FieldError]:
    known = {field.name: field for field in service.fields}
    for name in sorted(
        name for name, value in fields.items() if value and name not in known
    ):
        message = f"Forbidden: {service.kind.value} has no such field"
        yield FieldError(name[:40], "unknown-field", message, ", ".join(known))
    for field in service.fields:
        value = fields.get(field.name, "")
        if not value:
            if field.is_required:
                yield FieldError(
                    field.name, "required", "Required value", field.allowed
                )
        elif not field.pattern.fullmatch(value):
            yield FieldError(field.name, "bad-format", "Invalid value", field.allowed)
        elif field.name in ("address", "host"):
            yield from _address_errors(field.name, value, field.allowed)
    if service.kind == ChannelKind.EMAIL and not settings.EMAIL_HOST:
        message = "Forbidden: the console has no mail server"
        yield FieldError("kind", "not-allowed", message, "set FLEETUI_MAIL_SERVER")


def _address_errors(path: str, value: str, allowed: str) -> Iterator[FieldError]:
    """Yield what is wrong with a host or an address as it is entered; each connection checks it again."""
    url = f"https://{value}" if path == "host" else value
    host = _host_of(url)
    if not host:
        message = "Invalid value: must have no user and no fragment"
        yield FieldError(path, "bad-format", message, allowed)
        return
    host, rules = host.rstrip("."), rules_for_channels()
    if is_ip_address(host):
        try:
            check_address(host, rules)
        except AddressNotAllowed as error:
            yield FieldError(path, "not-allowed", f"Forbidden: {error}", error.setting)
        return
    last = host.rpartition(".")[2]
    if not last[:1].isalpha() or (last == "localhost" and not rules.allow_loopback):
        message = "Forbidden: a host of this machine, or no name"
        yield FieldError(path, "not-allowed", message, allowed)


def _host_of(url: str) -> str:
    """Return the host of an address over HTTPS; empty if it has a user or a fragment, or is not valid."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme != "https" or port == 0 or parts.username is not None or "#" in url:
        return ""
    return parts.hostname or ""


def summary_of(kind: str, fields: Values) -> str:
    """Return what may be shown: of a webhook the host, of a service what is no secret."""
    if kind == ChannelKind.WEBHOOK:
        return f"https://{urlsplit(fields['address']).hostname}/…"[:200]
    shown = [
        fields[field.name]
        for field in SERVICES[kind].fields
        if field.is_shown and fields[field.name]
    ]
    return " ".join([ChannelKind(kind).label, *shown])[:200]


def fields_of(channel: NotificationChannel) -> Values:
    """Return the fields of a channel. Raise CredentialsUnreadable."""
    values = decrypt(channel.uid, channel.ciphertext, purpose=CHANNEL_PURPOSE).values
    if (
        channel.kind == ChannelKind.WEBHOOK and "url" in values
    ):  # as it was saved formerly
        return {"address": values["url"], "key": values["key"]}
    return values


def save_channel(
    name: str, kind: str, fields: Mapping[str, str], *, by: User | None, now: datetime
) -> NotificationChannel:
    """Create a channel, or replace the fields of the one with this name. Raise InvalidManifest."""
    raise_errors(check_name(name))
    values = checked_fields(kind, fields)
    secret = Secret(values)
    with transaction.atomic():
        row = NotificationChannel.objects.select_for_update().filter(name=name).first()
        verb = "changed" if row else "created"
        row = row or NotificationChannel(
            name=name, created_at=now, created_by=actor_name(by)
        )
        if row.disabled_reason:  # what was wrong with it is replaced
            row.is_enabled, row.disabled_reason = True, ""
        row.kind, row.summary = kind, summary_of(kind, values)
        row.ciphertext = encrypt(row.uid, secret, purpose=CHANNEL_PURPOSE)
        row.fingerprint = fingerprint(secret)
        row.save()
        facts = {"kind": kind, "address": row.summary, "fingerprint": row.fingerprint}
        record_event(verb, CHANNEL, name, after=facts, by=by, now=now)
    return row


def convert_former_channels(*, now: datetime) -> None:
    """Turn channels of a former address into one of a service, or disable them with the reason."""
    rows = NotificationChannel.objects.filter(kind=FORMER_KIND, is_enabled=True)
    for row in rows.order_by("pk"):
        reason = "its address is not one of the present services, or has options; enter its fields again"
        try:
            found = former_fields(fields_of(row).get("url", ""))
            if found:
                save_channel(row.name, *found, by=None, now=now)
                continue
        except CredentialsUnreadable as error:
            reason = str(error)
        except InvalidManifest:
            pass
        NotificationChannel.objects.filter(pk=row.pk, kind=FORMER_KIND).update(
            is_enabled=False, disabled_reason=reason[:200]
        )
        record_event(
            "disabled",
            CHANNEL,
            row.name,
            after={"reason": reason},
            is_warning=True,
            by=None,
            now=now,
        )


RULE = "notification-rule"
PREVIEW_DAYS = 7
MOST_PREVIEWED = 50
LONGEST_REMINDER = 24 * 30
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_CLOCK = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


class UnknownNotificationError(UnknownObject):
    """No rule or channel has this name."""

    problem_type = "unknown-notification"

    def __init__(self, noun: str, name: str) -> None:
        super().__init__(f"no {noun} is named {name!r}")


@dataclass(frozen=True, slots=True)
class RuleInput:
    """A rule as it is entered: `quiet_from`, `quiet_until` are times such as 22:00, or both empty."""

    name: str
    channel: str
    events: tuple[str, ...]
    label: str = ""
    quiet_from: str = ""
    quiet_until: str = ""
    time_zone: str = "UTC"
    reminder_hours: str = "0"
    sends_resolved: bool = True
    is_enabled: bool = True

    def event_errors(self) -> list[FieldError]:
        unknown = [event for event in self.events if event not in NOTIFIED]
        if self.events and not unknown:
            return []
        message = (
            f"Unsupported value: {unknown[0][:40]!r}" if unknown else "Required value"
        )
        return [FieldError("events", "not-one-of", message, ", ".join(NOTIFIED))]

    def quiet_errors(self) -> list[FieldError]:
        errors = [
            FieldError(
                path,
                "bad-format",
                f"Invalid value: {value[:20]!r}",
                "a time such as 22:00",
            )
            for path, value in (
                ("quietFrom", self.quiet_from),
                ("quietUntil", self.quiet_until),
            )
            if value and not _CLOCK.fullmatch(value)
        ]
        if bool(self.quiet_from) != bool(self.quiet_until):
            errors.append(
                FieldError(
                    "quietUntil", "required", "Required value", "both times, or none"
                )
            )
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            errors.append(
                FieldError(
                    "timeZone",
                    "not-one-of",
                    "Unsupported value",
                    "a time zone such as Europe/Berlin",
                )
            )
        return errors


def check_name(name: str) -> list[FieldError]:
    if _NAME.fullmatch(name):
        return []
    allowed = "at most 63 lower-case letters, digits and -"
    return [FieldError("name", "bad-format", f"Invalid value: {name[:40]!r}", allowed)]


def rule_columns(rule_input: RuleInput) -> dict[str, Any]:
    """Return the columns of a rule. Raise InvalidManifest with all errors."""
    errors = [
        *check_name(rule_input.name),
        *rule_input.event_errors(),
        *rule_input.quiet_errors(),
    ]
    hours = rule_input.reminder_hours
    if not hours.isdecimal() or len(hours) > 4 or int(hours) > LONGEST_REMINDER:
        allowed = f"hours from 0 (never) to {LONGEST_REMINDER}"
        errors.append(
            FieldError("reminderHours", "out-of-range", "Invalid value", allowed)
        )
    key, _, value = rule_input.label.partition("=")
    if rule_input.label and (label_key_problem(key) or label_value_problem(value)):
        allowed = "a label such as team=payments"
        errors.append(FieldError("label", "bad-format", "Invalid value", allowed))
    channel = NotificationChannel.objects.filter(name=rule_input.channel).first()
    if channel is None:
        names = NotificationChannel.objects.order_by("name").values_list(
            "name", flat=True
        )
        allowed = ", ".join(names) or "create one first"
        errors.append(FieldError("channel", "not-one-of", "Unsupported value", allowed))
    if errors or channel is None:
        raise InvalidManifest(errors)
    return {
        "channel": channel,
        "events": list(rule_input.events),
        "label_key": key,
        "label_value": value,
        "quiet_from": _time_of(rule_input.quiet_from),
        "quiet_until": _time_of(rule_input.quiet_until),
        "time_zone": rule_input.time_zone,
        "reminder_hours": int(hours),
        "sends_resolved": rule_input.sends_resolved,
        "is_enabled": rule_input.is_enabled,
    }


def _time_of(text: str) -> time | None:
    return time.fromisoformat(text) if text else None


def save_rule(
    rule_input: RuleInput, *, by: User | None, now: datetime
) -> NotificationRule:
    """Create a rule, or change the one with this name. Raise InvalidManifest.

    A rule that is new or enabled again is about problems that start from then on.
    """
    columns = rule_columns(rule_input)
    with transaction.atomic():
        row = (
            NotificationRule.objects.select_for_update()
            .filter(name=rule_input.name)
            .first()
        )
        verb = "changed" if row else "created"
        was_enabled = bool(row and row.is_enabled)
        row = row or NotificationRule(name=rule_input.name)
        for column, value in columns.items():
            setattr(row, column, value)
        if not was_enabled:
            row.active_since = now
        row.save()
        facts = {**columns, "channel": rule_input.channel}
        facts |= {
            key: str(facts[key]) for key in ("quiet_from", "quiet_until") if facts[key]
        }
        record_event(verb, RULE, rule_input.name, after=facts, by=by, now=now)
    return row


def named_rule(name: str) -> NotificationRule:
    """Return a rule by its name. Raise UnknownNotificationError."""
    rows = NotificationRule.objects.select_related("channel").filter(name=name)
    return first_or_raise(rows, UnknownNotificationError("notification rule", name))


def named_channel(name: str) -> NotificationChannel:
    """Return a channel by its name. Raise UnknownNotificationError."""
    rows = NotificationChannel.objects.filter(name=name)
    return first_or_raise(rows, UnknownNotificationError("notification channel", name))


@transaction.atomic
def delete_rule(name: str, *, by: User | None, now: datetime) -> None:
    """Delete a rule with its messages. Raise UnknownNotificationError."""
    named_rule(name).delete()
    record_event("deleted", RULE, name, by=by, now=now)


@transaction.atomic
def delete_channel(name: str, *, by: User | None, now: datetime) -> None:
    """Delete a channel with its address, its rules and its messages. Raise UnknownNotificationError."""
    named_channel(name).delete()
    record_event("deleted", CHANNEL, name, by=by, now=now)


@transaction.atomic
def enable_channel(
    name: str, *, is_enabled: bool, by: User | None, now: datetime
) -> None:
    """Enable or disable a channel. Raise UnknownNotificationError."""
    NotificationChannel.objects.filter(pk=named_channel(name).pk).update(
        is_enabled=is_enabled, disabled_reason=""
    )
    record_event("enabled" if is_enabled else "disabled", CHANNEL, name, by=by, now=now)


def send_test(name: str, *, by: User, now: datetime) -> NotificationDelivery:
    """Make a test message, which a worker sends next. Raise UnknownNotificationError."""
    return NotificationDelivery.objects.create(
        channel=named_channel(name),
        kind=NotificationDelivery.Kind.TEST,
        idempotence_key=f"test-{uuid4()}",
        title="Test message of FleetUI",
        body=f"{by.get_username()} sent this message to check the channel {name}.",
        due_at=now,
        created_at=now,
    )


def preview(rule: NotificationRule, *, now: datetime) -> tuple[list[Problem], int]:
    """Return the latest problems of the last days that a rule is about, and how many there were."""
    since = now - timedelta(days=PREVIEW_DAYS)
    rows = Problem.objects.filter(seen_at__gte=since, kind__in=rule.events)
    rows = rows.order_by("-seen_at", "-pk")
    earlier = NotificationRule(
        events=rule.events,
        label_key=rule.label_key,
        label_value=rule.label_value,
        active_since=since,
    )
    problems = [row for row in rows[:5000] if matches(earlier, row)]
    return problems[:MOST_PREVIEWED], len(problems)


def deliveries() -> QuerySet[NotificationDelivery]:
    return NotificationDelivery.objects.select_related("channel", "rule").defer("body")
