"""Notifications: channels, rules, and the messages that were sent; for those who may manage them."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from clusters.models import FORMER_KIND, ChannelKind, NotificationChannel
from fleetui.permissions import may_manage_notifications
from placements.api.base import (
    BaseViewSet,
    Params,
    Rows,
    UserPermission,
    actor,
    paged_list,
)
from placements.api.filters import NoQuery
from placements.api.parsers import parse_body
from placements.api.schema import documented, operation
from placements.api.serializers import (
    CamelCaseSerializer,
    RowSerializer,
    Text,
    enum,
    text,
)
from placements.models import NOTIFIED, NotificationDelivery, NotificationRule
from placements.services.notifications.operations import (
    RuleInput,
    delete_channel,
    delete_rule,
    deliveries,
    named_rule,
    save_channel,
    save_rule,
    send_test,
)
from placements.services.notifications.services import SERVICES


class MayManageNotifications(UserPermission):
    message = (
        "Notifications require a superuser or the permission "
        "clusters.change_notificationchannel."
    )
    is_allowed = staticmethod(may_manage_notifications)


class NotificationChannelSerializer(RowSerializer):
    """A channel; its secrets are never shown, only a summary."""

    kind = enum([*ChannelKind.values, FORMER_KIND])
    enabled = serializers.BooleanField(source="is_enabled")

    class Meta:
        model = NotificationChannel
        fields = (
            "name",
            "kind",
            "summary",
            "fingerprint",
            "enabled",
            "disabled_reason",
            "created_at",
            "created_by",
        )


class ChannelInputSerializer(CamelCaseSerializer):
    """The service of a channel and its fields; `key` of a webhook signs its messages."""

    kind = Text(help_text=f"Of {', '.join(SERVICES)}.")

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        for service in SERVICES.values():
            for field in service.fields:
                used_by = [
                    kind
                    for kind, other in SERVICES.items()
                    if field.name in {f.name for f in other.fields}
                ]
                text = Text(
                    required=False,
                    default="",
                    allow_blank=True,
                    help_text=f"Of {', '.join(used_by)}: {field.allowed}.",
                )
                fields.setdefault(field.name, text)
        return fields


class NotificationRuleSerializer(RowSerializer):
    """A rule: which problems are sent to a channel, and when."""

    channel = text("channel.name")
    events = serializers.ListField(child=enum(NOTIFIED))
    label = serializers.SerializerMethodField(  # type: ignore[assignment]  # a field, not that of the class
        help_text="Such as `team=payments`; empty: all."
    )
    quiet_from = serializers.SerializerMethodField(
        help_text="Such as `22:00`; null without quiet hours."
    )
    quiet_until = serializers.SerializerMethodField()
    enabled = serializers.BooleanField(source="is_enabled")

    class Meta:
        model = NotificationRule
        fields = (
            "name",
            "channel",
            "events",
            "label",
            "quiet_from",
            "quiet_until",
            "time_zone",
            "reminder_hours",
            "sends_resolved",
            "enabled",
            "active_since",
        )

    def get_label(self, row: NotificationRule) -> str:
        return f"{row.label_key}={row.label_value}" if row.label_key else ""

    def get_quiet_from(self, row: NotificationRule) -> str | None:
        return f"{row.quiet_from:%H:%M}" if row.quiet_from else None

    def get_quiet_until(self, row: NotificationRule) -> str | None:
        return f"{row.quiet_until:%H:%M}" if row.quiet_until else None


class RuleInputSerializer(CamelCaseSerializer):
    """A rule as it is written."""

    channel = Text()
    events = serializers.ListField(child=Text(), help_text=f"Of {', '.join(NOTIFIED)}.")
    label = Text(required=False, default="", allow_blank=True)  # type: ignore[assignment]  # as above
    quiet_from = Text(
        required=False, default="", allow_blank=True, help_text="Such as `22:00`."
    )
    quiet_until = Text(required=False, default="", allow_blank=True)
    time_zone = Text(required=False, default="UTC")
    reminder_hours = serializers.IntegerField(
        required=False, default=0, min_value=0, max_value=720
    )
    sends_resolved = serializers.BooleanField(required=False, default=True)
    enabled = serializers.BooleanField(
        required=False, default=True, source="is_enabled"
    )


class NotificationMessageSerializer(RowSerializer):
    """A message, and how its sending goes."""

    number = serializers.IntegerField(source="pk")
    channel = text("channel.name")
    rule = text(
        "rule.name",
        allow_null=True,
        read_only=True,
        help_text="null for a test message.",
    )

    class Meta:
        model = NotificationDelivery
        fields = (
            "number",
            "kind",
            "title",
            "state",
            "channel",
            "rule",
            "attempts",
            "error",
            "created_at",
            "due_at",
            "sent_at",
        )


class ChannelViewSet(BaseViewSet):
    permission_classes = (MayManageNotifications,)

    @paged_list("list_notification_channels", NotificationChannelSerializer)
    def list(self, params: Params) -> Rows:
        """List notification channels, by name."""
        return NotificationChannel.objects.all()

    @documented(
        "put_notification_channel",
        NotificationChannelSerializer,
        body=ChannelInputSerializer,
        query=NoQuery,
    )
    def update(self, request: Request, name: str) -> Response:
        """Create a channel, or replace its service and fields."""
        fields = parse_body(request, ChannelInputSerializer)
        row = save_channel(name, fields.pop("kind"), fields, **actor(request))
        return Response(NotificationChannelSerializer(row).data)

    @documented("delete_notification_channel", None, status=204)
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a channel, with its rules and messages."""
        delete_channel(name, **actor(request))
        return Response(status=204)

    @operation(
        "test_notification_channel",
        NotificationMessageSerializer,
        method="post",
        status=202,
    )
    def test(self, request: Request, name: str) -> Response:
        """Send a test message; the list of messages has its result."""
        row = send_test(name, by=request.user, now=actor(request)["now"])  # type: ignore[arg-type]  # they have a name
        return Response(NotificationMessageSerializer(row).data, status=202)


class RuleViewSet(BaseViewSet):
    permission_classes = (MayManageNotifications,)

    @paged_list("list_notification_rules", NotificationRuleSerializer)
    def list(self, params: Params) -> Rows:
        """List notification rules, by name."""
        return NotificationRule.objects.select_related("channel")

    @documented(
        "put_notification_rule",
        NotificationRuleSerializer,
        body=RuleInputSerializer,
        query=NoQuery,
    )
    def update(self, request: Request, name: str) -> Response:
        """Create or change a rule."""
        fields: dict[str, Any] = parse_body(request, RuleInputSerializer)
        fields |= {
            "events": tuple(fields["events"]),
            "reminder_hours": str(fields["reminder_hours"]),
        }
        save_rule(RuleInput(name, **fields), **actor(request))
        return Response(NotificationRuleSerializer(named_rule(name)).data)

    @documented("delete_notification_rule", None, status=204)
    def destroy(self, request: Request, name: str) -> Response:
        """Delete a rule, with its messages."""
        delete_rule(name, **actor(request))
        return Response(status=204)


class MessageViewSet(BaseViewSet):
    permission_classes = (MayManageNotifications,)

    @paged_list(
        "list_notification_messages",
        NotificationMessageSerializer,
        order="-id",
        unique="id",
    )
    def list(self, params: Params) -> Rows:
        """List the messages of notifications, the newest first."""
        return deliveries()
