"""What people do with rules and channels."""

import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from clusters.models import NotificationChannel
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.fields import label_key_problem, label_value_problem
from fleetui.audit import AuditEvent, record
from fleetui.errors import UnknownObject
from placements.models import NOTIFIED, NotificationDelivery, NotificationRule, Problem
from placements.services.notifications.addresses import CHANNEL
from placements.services.notifications.evaluation import matches

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


def check_name(name: str) -> list[FieldError]:
    if _NAME.fullmatch(name):
        return []
    allowed = "at most 63 lower-case letters, digits and -"
    return [FieldError("name", "bad-format", f"Invalid value: {name[:40]!r}", allowed)]


def rule_columns(rule_input: RuleInput) -> dict[str, Any]:
    """Return the columns of a rule. Raise InvalidManifest with all errors."""
    errors = [
        *check_name(rule_input.name),
        *_event_errors(rule_input),
        *_quiet_errors(rule_input),
    ]
    key, _, value = rule_input.label.partition("=")
    if rule_input.label and (label_key_problem(key) or label_value_problem(value)):
        errors.append(
            FieldError(
                "label", "bad-format", "Invalid value", "a label such as team=payments"
            )
        )
    is_number = (
        rule_input.reminder_hours.isdecimal() and len(rule_input.reminder_hours) <= 4
    )
    if not is_number or int(rule_input.reminder_hours) > LONGEST_REMINDER:
        allowed = f"hours from 0 (never) to {LONGEST_REMINDER}"
        errors.append(
            FieldError("reminderHours", "out-of-range", "Invalid value", allowed)
        )
    channel = NotificationChannel.objects.filter(name=rule_input.channel).first()
    if channel is None:
        allowed = ", ".join(
            NotificationChannel.objects.order_by("name").values_list("name", flat=True)
        )
        errors.append(
            FieldError(
                "channel",
                "not-one-of",
                "Unsupported value",
                allowed or "create one first",
            )
        )
    if errors or channel is None:
        raise InvalidManifest(errors)
    return {
        "channel": channel,
        "events": list(rule_input.events),
        "label_key": key,
        "label_value": value,
        "quiet_from": time.fromisoformat(rule_input.quiet_from)
        if rule_input.quiet_from
        else None,
        "quiet_until": time.fromisoformat(rule_input.quiet_until)
        if rule_input.quiet_until
        else None,
        "time_zone": rule_input.time_zone,
        "reminder_hours": int(rule_input.reminder_hours),
        "sends_resolved": rule_input.sends_resolved,
        "is_enabled": rule_input.is_enabled,
    }


def _event_errors(rule_input: RuleInput) -> list[FieldError]:
    unknown = [one for one in rule_input.events if one not in NOTIFIED]
    if rule_input.events and not unknown:
        return []
    message = f"Unsupported value: {unknown[0][:40]!r}" if unknown else "Required value"
    return [FieldError("events", "not-one-of", message, ", ".join(NOTIFIED))]


def _quiet_errors(rule_input: RuleInput) -> list[FieldError]:
    errors = [
        FieldError(
            path, "bad-format", f"Invalid value: {value[:20]!r}", "a time such as 22:00"
        )
        for path, value in (
            ("quietFrom", rule_input.quiet_from),
            ("quietUntil", rule_input.quiet_until),
        )
        if value and not _CLOCK.fullmatch(value)
    ]
    if bool(rule_input.quiet_from) != bool(rule_input.quiet_until):
        errors.append(
            FieldError(
                "quietUntil", "required", "Required value", "both times, or none"
            )
        )
    try:
        ZoneInfo(rule_input.time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        allowed = "a time zone such as Europe/Berlin"
        errors.append(
            FieldError("timeZone", "not-one-of", "Unsupported value", allowed)
        )
    return errors


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
        record(AuditEvent(verb, RULE, rule_input.name, after=facts), by=by, now=now)
    return row


def named_rule(name: str) -> NotificationRule:
    """Return a rule by its name. Raise UnknownNotificationError."""
    row = NotificationRule.objects.select_related("channel").filter(name=name).first()
    if row is None:
        raise UnknownNotificationError("notification rule", name)
    return row


def named_channel(name: str) -> NotificationChannel:
    """Return a channel by its name. Raise UnknownNotificationError."""
    row = NotificationChannel.objects.filter(name=name).first()
    if row is None:
        raise UnknownNotificationError("notification channel", name)
    return row


@transaction.atomic
def delete_rule(name: str, *, by: User | None, now: datetime) -> None:
    """Delete a rule with its messages. Raise UnknownNotificationError."""
    named_rule(name).delete()
    record(AuditEvent("deleted", RULE, name), by=by, now=now)


@transaction.atomic
def delete_channel(name: str, *, by: User | None, now: datetime) -> None:
    """Delete a channel with its address, its rules and its messages. Raise UnknownNotificationError."""
    named_channel(name).delete()
    record(AuditEvent("deleted", CHANNEL, name), by=by, now=now)


@transaction.atomic
def enable_channel(
    name: str, *, is_enabled: bool, by: User | None, now: datetime
) -> None:
    """Enable or disable a channel. Raise UnknownNotificationError."""
    NotificationChannel.objects.filter(pk=named_channel(name).pk).update(
        is_enabled=is_enabled, disabled_reason=""
    )
    record(
        AuditEvent("enabled" if is_enabled else "disabled", CHANNEL, name),
        by=by,
        now=now,
    )


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
    problems = [one for one in rows[:5000] if matches(earlier, one)]
    return problems[:MOST_PREVIEWED], len(problems)


def deliveries() -> QuerySet[NotificationDelivery]:
    return NotificationDelivery.objects.select_related("channel", "rule").defer("body")
