"""The pages of notifications: for superusers, without a secret that was entered."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from pytest_django import Settings

from clusters.models import MemberCluster, NotificationChannel
from placements.models import NotificationDelivery, NotificationRule, ProblemBook
from placements.services.notifications import sending
from placements.services.notifications.evaluation import evaluate
from placements.services.notifications.operations import send_test
from placements.services.notifications.sending import NotDeliveredError
from tests.page_samples import NOTIFICATION_PAGES
from tests.rows import joined, person
from tests.web.reading import page_text

SLACK = {
    "kind": "slack",
    "workspace": "T1JJ3T3L2",
    "webhook": "B1BRTD4JD",
    "token": "TokenCCCCsecret",
}
KEY = "a long random text"
RULE = {
    "name": "payments",
    "channel": "chat",
    "events": ["cluster-not-ready", "drift"],
    "label": "team=payments",
    "quiet_from": "22:00",
    "quiet_until": "07:00",
    "time_zone": "Europe/Berlin",
    "reminder_hours": "4",
    "sends_resolved": "on",
    "is_enabled": "on",
}


@pytest.fixture
def manager(db: None) -> Client:  # noqa: ARG001 -- it has rows
    """Return the browser of a superuser with a channel and a rule."""
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    webhook = {
        "name": "chat",
        "kind": "webhook",
        "address": "https://hooks.invalid/SECRET",
        "key": KEY,
    }
    assert client.post("/notifications/channels/new/", webhook).status_code == 302
    assert client.post("/notifications/rules/new/", RULE).status_code == 302
    return client


def test_without_a_channel_the_page_of_a_rule_leads_to_one(
    admin_client: Client,
) -> None:
    assert (
        "No channels yet"
        in admin_client.get("/notifications/rules/new/").content.decode()
    )
    page = admin_client.get("/notifications/").content.decode()
    assert 'class="button primary" href="/notifications/channels/new/"' in page
    assert 'class="button" href="/notifications/rules/new/"' in page


@pytest.mark.nightly
def test_pages_are_for_superusers_and_those_with_the_permission(
    manager: Client, operator: Client, client: Client
) -> None:
    for address in NOTIFICATION_PAGES.values():
        assert manager.get(address).status_code == 200, address
        assert operator.get(address).status_code == 403, address
        assert operator.post(address).status_code in (403, 405), address
        assert client.get(address).status_code == 302, address
    for name in ("test", "switch", "delete"):
        assert operator.post(f"/notifications/channels/chat/{name}/").status_code == 403
    user = person("paula", "viewer")
    user.user_permissions.add(
        Permission.objects.get(codename="change_notificationchannel")
    )
    other = Client()
    other.force_login(user)
    assert other.get("/notifications/").status_code == 200
    assert NotificationRule.objects.count() == 1


def test_a_rule_is_saved_and_shown_as_entered(manager: Client) -> None:
    row = NotificationRule.objects.get()
    page = manager.get("/notifications/rules/payments/edit/").content.decode()

    assert (row.label_key, row.label_value, row.reminder_hours) == (
        "team",
        "payments",
        4,
    )
    for part in (
        'value="team=payments"',
        'value="22:00"',
        'value="Europe/Berlin"',
        'value="4"',
    ):
        assert part in page
    changed = manager.post(
        "/notifications/rules/payments/edit/", RULE | {"is_enabled": "", "label": ""}
    )
    assert changed.status_code == 302
    assert "All" in manager.get("/notifications/").content.decode()


def test_every_error_of_a_rule_has_its_path_and_nothing_is_saved(
    manager: Client,
) -> None:
    wrong = RULE | {
        "name": "No Name",
        "channel": "none",
        "events": ["x"],
        "label": "=x",
        "quiet_from": "25:00",
        "quiet_until": "",
        "time_zone": "Mars/North",
        "reminder_hours": "-1",
    }
    answer = manager.post("/notifications/rules/new/", wrong)
    page = answer.content.decode()

    assert answer.status_code == 422
    for path in (
        "name",
        "channel",
        "events",
        "label",
        "quietFrom",
        "quietUntil",
        "timeZone",
        "reminderHours",
    ):
        assert f"<code>{path}</code>" in page
    assert NotificationRule.objects.count() == 1


def test_secrets_are_in_no_page(manager: Client) -> None:
    manager.post("/notifications/channels/new/", {"name": "slack", **SLACK})
    refused = manager.post(
        "/notifications/channels/new/",
        {"name": "bad", "kind": "webhook", "address": "http://x/SECRET"},
    )
    pages = [
        manager.get(address).content.decode() for address in NOTIFICATION_PAGES.values()
    ]
    pages += [
        manager.get(f"/notifications/channels/slack/{end}/").content.decode()
        for end in ("edit", "delete")
    ]
    pages += [manager.get("/activity/").content.decode(), refused.content.decode()]

    assert refused.status_code == 422
    assert NotificationChannel.objects.count() == 2
    for page in pages:
        assert not any(secret in page for secret in ("SECRET", KEY, "TokenCCCC"))


def test_a_test_message_is_queued_and_a_channel_switched_and_deleted(
    manager: Client,
) -> None:
    assert manager.post("/notifications/channels/chat/test/").status_code == 302
    assert "Test message of FleetUI" in manager.get("/notifications/").content.decode()
    manager.post("/notifications/channels/chat/switch/")
    assert not NotificationChannel.objects.get().is_enabled
    assert (
        "payments"
        in manager.get("/notifications/channels/chat/delete/").content.decode()
    )
    manager.post("/notifications/channels/chat/delete/")

    assert not NotificationRule.objects.exists()
    assert not NotificationDelivery.objects.exists()
    assert manager.post("/notifications/channels/chat/test/").status_code == 404


def test_the_preview_has_what_the_rule_would_have_sent(manager: Client) -> None:
    now = datetime.now(UTC)
    joined("a", team="payments")
    joined("b", team="web")
    MemberCluster.objects.update(
        verdict="unhealthy", verdict_reason="x", verdict_since=now
    )
    evaluate(now=now - timedelta(days=1))

    page = page_text(manager.get("/notifications/rules/payments/edit/"))

    assert "1 problem of the last 7 days matches this rule." in page
    assert "Not ready: x" in page
    assert "Cluster b" not in page


@pytest.mark.nightly
def test_a_channel_that_does_not_get_its_messages_needs_attention(
    manager: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.METRICS_TOKEN = "a-token-of-the-monitoring-with-32-characters"
    joined("a")

    def seconds() -> int:
        headers = {"Authorization": f"Bearer {settings.METRICS_TOKEN}"}
        text = Client().get("/metrics", headers=headers).content.decode()
        sample = re.search(
            r'fleetui_notification_failing_seconds{channel="chat"} (\d+)', text
        )
        assert sample
        return int(sample[1])

    def refuse(row: NotificationDelivery, *, now: datetime) -> None:  # noqa: ARG001 -- as send_one
        raise NotDeliveredError("the webhook responded with status 500")

    def is_listed(client: Client = manager) -> bool:
        ProblemBook.objects.all().delete()
        page = client.get("/").content.decode()
        title = ">chat: notifications to this channel fail</a>"
        return title in page and "The webhook responded with status 500." in page

    def accept(row: NotificationDelivery, *, now: datetime) -> None:
        pass

    before, user = (
        datetime.now(UTC) - timedelta(minutes=7, seconds=5),
        User.objects.get(username="root"),
    )
    monkeypatch.setattr(sending, "send_one", refuse)
    send_test("chat", by=user, now=before + timedelta(minutes=4))
    sending.send_due(now=before + timedelta(minutes=4))
    assert (seconds() // 60, is_listed()) == (3, False)
    NotificationDelivery.objects.update(created_at=before)
    viewer = Client()
    viewer.force_login(person("vera", "viewer"))
    assert (seconds() // 60, is_listed(), is_listed(viewer)) == (7, True, False)

    monkeypatch.setattr(sending, "send_one", accept)
    send_test("chat", by=user, now=before + timedelta(minutes=6))
    sending.send_due(now=before + timedelta(minutes=6))

    assert (seconds(), is_listed()) == (0, False)
