"""Notifications: one message for a problem until it ends, in time, to the right team, and signed."""

import json
import socket
import ssl
from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.credentials import check_credentials
from clusters.models import ChannelKind, MemberCluster, NotificationChannel
from fleetui.models import Event
from placements.models import (
    Binding,
    NotificationDelivery,
    NotificationRule,
    Problem,
    ProblemKind,
)
from placements.services.notifications import sending
from placements.services.notifications.evaluation import evaluate, quiet_until
from placements.services.notifications.operations import fields_of, save_channel
from placements.services.notifications.sending import (
    KEY,
    MOST_ATTEMPTS,
    SIGNATURE,
    TIMESTAMP,
    NotDeliveredError,
    send_due,
    signature_of,
)
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, Request, serve
from tests.problems import found, sentences
from tests.rows import decided, joined, pick_n_spec
from tests.services.rollouts.world import World, one_at_a_time, settled_world

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
WEBHOOK = {"address": "https://hooks.invalid/fleet?room=1", "key": "a long random text"}
SLACK = {"workspace": "T1JJ3T3L2", "webhook": "B1BRTD4JD", "token": "TokenCCCCsecret"}
State = NotificationDelivery.State


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def channel(name: str = "chat") -> NotificationChannel:
    return save_channel(name, ChannelKind.WEBHOOK, WEBHOOK, by=None, now=NOW)


def rule(name: str = "all", **options: Any) -> NotificationRule:
    to = options.pop("channel", None) or channel()
    events = options.pop("events", ProblemKind.values)
    return NotificationRule.objects.create(
        name=name, channel=to, events=events, active_since=at(-60), **options
    )


def broken(name: str, **labels: str) -> None:
    joined(name, **labels)
    MemberCluster.objects.filter(name=name).update(
        verdict="staleHeartbeat",
        verdict_reason="no heartbeat for 6m",
        verdict_since=NOW,
    )


def titles() -> list[str]:
    return list(
        NotificationDelivery.objects.order_by("pk").values_list("title", flat=True)
    )


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Accept every message; return the keys of those that were sent."""
    keys: list[str] = []

    def accept(row: NotificationDelivery, *, now: datetime) -> None:  # noqa: ARG001 -- as send_one
        keys.append(row.idempotence_key)

    monkeypatch.setattr(sending, "send_one", accept)
    return keys


@pytest.mark.nightly
def test_a_problem_is_one_message_until_it_ends(sent: list[str]) -> None:
    rule()
    broken("a")
    for minutes in (0, 1, 2):
        evaluate(now=at(minutes))
        send_due(now=at(minutes))
    MemberCluster.objects.update(verdict="", verdict_reason="")
    evaluate(now=at(3))
    evaluate(now=at(4))
    send_due(now=at(4))
    broken_again = MemberCluster.objects.filter(name="a").update(
        verdict="unhealthy", verdict_reason="x"
    )
    evaluate(now=at(5))

    assert broken_again
    assert titles() == [
        "Cluster not ready: a",
        "Resolved: Cluster not ready: a",
        "Cluster not ready: a",
    ]
    assert len(sent) == 2
    body = NotificationDelivery.objects.order_by("pk")[0].body
    assert "Cluster a: Not ready: " in body
    assert "no heartbeat for 6m" in body
    assert "Since 2026-11-20 12:00 UTC" in body
    assert "http://127.0.0.1:8000/clusters/a/" in body


def test_the_end_of_a_problem_cancels_nothing_that_was_sent(sent: list[str]) -> None:
    rule()
    broken("a")
    evaluate(now=at(0))
    send_due(now=at(0))
    MemberCluster.objects.update(verdict="", verdict_reason="")

    with CaptureQueriesContext(connection) as queries:
        evaluate(now=at(3))

    table = NotificationDelivery._meta.db_table
    assert len(sent) == 1
    assert not [
        query for query in queries if query["sql"].startswith(f'UPDATE "{table}"')
    ]


def test_reminders_come_at_their_interval(sent: list[str]) -> None:
    rule(reminder_hours=2, sends_resolved=False)
    broken("a")
    for hours in (0, 1, 2, 2.5, 4):
        evaluate(now=at(60 * hours))
        send_due(now=at(60 * hours))

    assert titles() == ["Cluster not ready: a", *["Reminder: Cluster not ready: a"] * 2]
    assert len(set(sent)) == 3


def test_a_team_gets_what_has_its_label_and_only_the_events_of_its_rule() -> None:
    to = channel()
    rule("payments", channel=to, label_key="team", label_value="payments")
    rule("drift", channel=to, events=[ProblemKind.DRIFT])
    broken("a", team="payments")
    broken("b", team="web")

    evaluate(now=NOW)

    assert titles() == ["Cluster not ready: a"]


def test_quiet_hours_delay_a_message_and_drop_it_when_the_problem_ends(
    sent: list[str],
) -> None:
    quiet = rule(quiet_from=time(12), quiet_until=time(7), time_zone="Europe/Berlin")
    broken("a")
    broken("b")
    evaluate(now=NOW)  # 13:00 in Berlin
    MemberCluster.objects.filter(name="a").update(verdict="")
    evaluate(now=at(60))

    assert send_due(now=at(120)) == 0
    assert send_due(now=at(18 * 60)) == 1  # 07:00 in Berlin
    assert len(sent) == 1
    states = dict(NotificationDelivery.objects.values_list("title", "state"))
    assert states == {
        "Cluster not ready: a": State.CANCELED,
        "Cluster not ready: b": State.SENT,
    }
    assert quiet_until(quiet, datetime(2026, 11, 20, 10, 59, tzinfo=UTC)) is None


@pytest.mark.nightly
def test_many_problems_at_once_are_one_message(sent: list[str]) -> None:
    rule()
    for number in range(8):
        broken(f"c{number}")

    evaluate(now=NOW)
    send_due(now=NOW)

    assert len(sent) == 1
    first = NotificationDelivery.objects.order_by("pk")[0]
    assert first.title == "Cluster not ready: 8 problems"
    assert all(f"Cluster c{number}: " in first.body for number in range(8))
    assert NotificationDelivery.objects.filter(state=State.GROUPED).count() == 7


def test_a_rollout_that_a_short_silence_stalls_is_sent_after_two_minutes() -> None:
    rule(events=["rollout-stalled"])
    world = settled_world(3, one_at_a_time(maxUnavailable=2))
    world.change()
    world.work()
    for name in ("c000", "c001"):
        world.inject(name, {"kind": "unreachable"})
    MemberCluster.objects.update(observe_at=world.now)
    world.pass_time(40, step=5)
    assert sentences("rollout-stalled", now=world.now)

    evaluate(now=world.now)
    assert titles() == []
    evaluate(now=world.now + timedelta(minutes=3))
    assert titles() == ["Rollout stalled: web/2"]


def test_what_follows_from_a_cluster_is_no_message_of_its_own() -> None:
    world = World(3)
    for name in ("web", "db"):
        world.place(name, one_at_a_time())
    world.run(until=world.is_settled)
    MemberCluster.objects.filter(name="c001").update(
        verdict="unhealthy", verdict_since=world.now
    )
    rule("all")
    rule("placements", channel=channel("other"), events=["placement-degraded"])

    evaluate(now=world.now)

    sent = NotificationDelivery.objects.values_list("rule__name", "title")
    assert sorted(sent) == [
        ("all", "Cluster not ready: c001"),
        ("placements", "Placement degraded or failed: db"),
        ("placements", "Placement degraded or failed: web"),
    ]


def test_what_is_wrong_in_placements_is_reported_with_few_queries(
    django_assert_max_num_queries: Any,
) -> None:
    joined("a")
    for number in range(30):
        decided(f"p{number}", pick_n_spec(2))
    Binding.objects.update(drifted_objects=[{"name": "x"}])
    with django_assert_max_num_queries(14):
        unfulfilled = found("placement-not-fulfilled", now=NOW)

    assert len(unfulfilled) == 30
    assert unfulfilled[0].message.startswith("1 of 2 clusters selected. ")
    evaluate(now=NOW)
    assert Problem.objects.filter(ended_at=None).count() == 60
    with django_assert_max_num_queries(19):
        evaluate(now=at(1))


def test_a_message_is_tried_again_with_a_growing_pause_and_then_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(row: NotificationDelivery, *, now: datetime) -> None:  # noqa: ARG001 -- as send_one
        raise NotDeliveredError("the webhook responded with status 500")

    monkeypatch.setattr(sending, "send_one", refuse)
    rule()
    broken("a")
    evaluate(now=NOW)
    now, pauses = NOW, []
    for _ in range(MOST_ATTEMPTS):
        assert send_due(now=now) == 1
        row = NotificationDelivery.objects.get()
        pauses.append((row.due_at - now).total_seconds())
        now = max(row.due_at, now)

    assert pauses[:4] == [30, 60, 120, 240]
    assert (row.state, row.attempts, row.error) == (
        State.FAILED,
        MOST_ATTEMPTS,
        "the webhook responded with status 500",
    )
    assert send_due(now=at(10_000)) == 0


def test_a_killed_worker_delays_a_message_and_loses_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = []

    def die(row: NotificationDelivery, *, now: datetime) -> None:  # noqa: ARG001 -- as send_one
        keys.append(row.idempotence_key)
        if len(keys) == 1:
            raise SystemExit

    monkeypatch.setattr(sending, "send_one", die)
    rule()
    broken("a")
    evaluate(now=NOW)
    with pytest.raises(SystemExit):
        send_due(now=NOW)

    assert send_due(now=at(1)) == 0  # the lease of the first one holds
    assert send_due(now=at(2)) == 1
    assert keys[0] == keys[1]
    assert NotificationDelivery.objects.get().state == State.SENT


def test_the_fields_of_a_channel_is_encrypted_and_rotated() -> None:
    row = channel()
    slack = save_channel("slack", ChannelKind.SLACK, SLACK, by=None, now=NOW)

    assert fields_of(row) == WEBHOOK
    assert (row.summary, slack.summary) == (
        "https://hooks.invalid/…",
        "Slack T1JJ3T3L2 B1BRTD4JD",
    )
    event_text = json.dumps(list(Event.objects.values("before", "after")), default=str)
    assert not any(
        one in row.ciphertext + slack.ciphertext + event_text
        for one in ("random", "room", "Token")
    )
    assert check_credentials(reencrypt=True).first_key == 2


def test_a_webhook_is_signed_and_its_redirects_are_not_followed(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.MEMBER_LOOPBACK = True
    context = ssl.create_default_context(cadata=authority().pem)
    monkeypatch.setattr(sending, "system_tls", lambda: context)
    answers = [b"200 OK", b"302 Found\r\nLocation: https://169.254.169.254/"]

    def behave(link: socket.socket, _request: Request, _server: LocalServer) -> None:
        link.sendall(
            b"HTTP/1.1 "
            + answers[len(server.requests) - 1]
            + b"\r\nContent-Length: 0\r\n\r\n"
        )

    with serve(behave) as server:
        webhook = {"address": f"{server.url}/fleet?room=1", "key": "a long random text"}
        save_channel("chat", ChannelKind.WEBHOOK, webhook, by=None, now=NOW)
        rule(channel=NotificationChannel.objects.get())
        broken("a")
        broken("b")
        evaluate(now=NOW)
        send_due(now=NOW)

    first = server.requests[0]
    headers = {key.lower(): value for key, value in first.headers.items()}
    assert first.path == "/fleet?room=1"
    assert headers[SIGNATURE.lower()] == signature_of(
        webhook["key"], headers[TIMESTAMP.lower()], first.body
    )
    assert headers[TIMESTAMP.lower()] == str(int(NOW.timestamp()))
    assert (
        headers[KEY.lower()]
        == NotificationDelivery.objects.order_by("pk")[0].idempotence_key
    )
    assert json.loads(first.body)["event"] == "cluster-not-ready"
    states = NotificationDelivery.objects.order_by("pk").values_list("state", "error")
    assert list(states) == [
        ("sent", ""),
        ("pending", "the service responded with status 302"),
    ]
