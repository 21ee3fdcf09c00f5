"""The pages of notifications: rules, channels and the messages that were sent. For administrators only."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import (
    require_http_methods,
    require_POST,
    require_safe,
)

from clusters.models import ChannelKind, NotificationChannel
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.htmx import render_page
from fleetui.permissions import current_user, for_notification_managers
from placements.models import NOTIFIED, NotificationRule, ProblemKind
from placements.services.notifications.operations import (
    PREVIEW_DAYS,
    RuleInput,
    delete_channel,
    delete_rule,
    deliveries,
    enable_channel,
    named_channel,
    named_rule,
    preview,
    save_channel,
    save_rule,
    send_test,
)
from placements.services.notifications.services import SERVICES
from placements.web.request import actor, page_from, redirect_after

LEVELS = {
    "pending": ("progress", "Pending"),
    "sent": ("healthy", "Sent"),
    "grouped": ("healthy", "Grouped"),
    "canceled": ("suspended", "Canceled"),
    "failed": ("failed", "Failed"),
}


@for_notification_managers
@require_safe
def notifications(request: HttpRequest) -> HttpResponse:
    """List rules, channels, and the messages, the newest first."""
    page = page_from(request, deliveries(), order="-created_at", unique="id")
    kinds = {str(kind): str(kind.label) for kind in ProblemKind}
    rules = list(NotificationRule.objects.select_related("channel").order_by("name"))
    return render_page(
        request,
        "notifications/list.html",
        {
            "rules": [
                (
                    notification_rule,
                    [kinds.get(event, event) for event in notification_rule.events],
                )
                for notification_rule in rules
            ],
            "channels": list(NotificationChannel.objects.order_by("name")),
            "deliveries": [(row, *LEVELS[row.state]) for row in page.rows],
            "after": page.after,
        },
        fragment="notifications/_deliveries.html",
    )


@for_notification_managers
@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def channel(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """Create a channel, or replace the fields of one; secrets are never shown again."""
    row = named_channel(name) if name else None
    params = request.POST if request.method == "POST" else request.GET
    kind = params.get("kind", row.kind if row else ChannelKind.WEBHOOK.value)
    entered_name = name or request.POST.get("name", "").strip()
    service = SERVICES.get(kind, SERVICES[ChannelKind.WEBHOOK.value])
    fields = {
        field.name: request.POST.get(field.name, "").strip() for field in service.fields
    }
    errors: Any = ()
    if request.method == "POST":
        try:
            save_channel(entered_name, kind, fields, **actor(request))
        except InvalidManifest as error:
            errors = error.errors
        else:
            return redirect_after(
                request, f"Channel {entered_name} saved.", "web:notifications"
            )
    return render(
        request,
        "notifications/channel.html",
        {
            "entered_name": entered_name,
            "channel": row,
            "errors": errors,
            "kinds": [
                (str(channel_kind), channel_kind.label) for channel_kind in ChannelKind
            ],
            "service": service,
            "fields": [
                (field, fields[field.name] if field.is_shown else "")
                for field in service.fields
            ],
        },
        status=422 if errors else 200,
    )


@for_notification_managers
@require_POST
def test_channel(request: HttpRequest, name: str) -> HttpResponse:
    """Send a test message; the list of messages shows its result."""
    named_channel(name)
    send_test(name, **actor(request))
    return redirect_after(
        request, f"Test message for channel {name} queued.", "web:notifications"
    )


@for_notification_managers
@require_POST
def switch_channel(request: HttpRequest, name: str) -> HttpResponse:
    row = named_channel(name)
    enable_channel(
        name,
        is_enabled=not row.is_enabled,
        **actor(request),
    )
    return redirect_after(
        request,
        f"Channel {name} {'disabled' if row.is_enabled else 'enabled'}.",
        "web:notifications",
    )


@for_notification_managers
@require_http_methods(["GET", "HEAD", "POST"])
def remove_channel(request: HttpRequest, name: str) -> HttpResponseBase:
    row = named_channel(name)
    if request.method != "POST":
        rules = list(row.rules.order_by("name").values_list("name", flat=True))
        return render(
            request,
            "notifications/delete.html",
            {"noun": "channel", "name": name, "rules": rules},
        )
    delete_channel(name, **actor(request))
    return redirect_after(request, f"Channel {name} deleted.", "web:notifications")


@for_notification_managers
@require_http_methods(["GET", "HEAD", "POST"])
def rule(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """Create or change a rule; the page shows what it would have sent in the last days."""
    row = named_rule(name) if name else None
    now = datetime.now(UTC)
    errors: Sequence[FieldError] = ()
    rule_input = (
        entered_rule(request, name) if request.method == "POST" else shown_rule(row)
    )
    if request.method == "POST":
        try:
            save_rule(rule_input, by=current_user(request), now=now)
        except InvalidManifest as error:
            errors = error.errors
        else:
            return redirect_after(
                request,
                f"Rule {rule_input.name} saved.",
                "web:notification-rule",
                rule_input.name,
            )
    matching, count = preview(row, now=now) if row else ([], 0)
    return render(
        request,
        "notifications/rule.html",
        {
            "entered": rule_input,
            "rule": row,
            "errors": errors,
            "kinds": [
                (str(kind), kind.label, str(kind) in rule_input.events)
                for kind in NOTIFIED
            ],
            "channels": NotificationChannel.objects.order_by("name").values_list(
                "name", flat=True
            ),
            "preview": [
                (problem, ProblemKind(problem.kind).label) for problem in matching
            ],
            "preview_count": count,
            "days": PREVIEW_DAYS,
        },
        status=422 if errors else 200,
    )


def entered_rule(request: HttpRequest, name: str) -> RuleInput:
    params = request.POST
    return RuleInput(
        name or params.get("name", "").strip(),
        params.get("channel", ""),
        tuple(params.getlist("events")),
        params.get("label", "").strip(),
        params.get("quiet_from", "").strip(),
        params.get("quiet_until", "").strip(),
        params.get("time_zone", "").strip() or "UTC",
        params.get("reminder_hours", "").strip() or "0",
        sends_resolved="sends_resolved" in params,
        is_enabled="is_enabled" in params,
    )


def shown_rule(row: NotificationRule | None) -> RuleInput:
    if row is None:
        return RuleInput("", "", NOTIFIED)
    return RuleInput(
        row.name,
        row.channel.name,
        tuple(row.events),
        f"{row.label_key}={row.label_value}" if row.label_key else "",
        f"{row.quiet_from:%H:%M}" if row.quiet_from else "",
        f"{row.quiet_until:%H:%M}" if row.quiet_until else "",
        row.time_zone,
        str(row.reminder_hours),
        sends_resolved=row.sends_resolved,
        is_enabled=row.is_enabled,
    )


@for_notification_managers
@require_http_methods(["GET", "HEAD", "POST"])
def remove_rule(request: HttpRequest, name: str) -> HttpResponseBase:
    named_rule(name)
    if request.method != "POST":
        return render(
            request,
            "notifications/delete.html",
            {"noun": "rule", "name": name, "rules": ()},
        )
    delete_rule(name, **actor(request))
    return redirect_after(request, f"Rule {name} deleted.", "web:notifications")
