"""Where messages go: a closed table of services, whose requests stay inside the bounds of webhooks."""

import json
import re
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client

from clusters.credentials import CHANNEL_PURPOSE, encrypt
from clusters.kubeconfig import Secret
from clusters.models import FORMER_KIND, ChannelKind, NotificationChannel
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.models import Event
from placements.services.notifications import sending
from placements.services.notifications.operations import (
    checked_fields,
    fields_of,
    save_channel,
    send_test,
)
from placements.services.notifications.sending import NotDeliveredError, post, send_due
from placements.services.notifications.services import SERVICES, Message
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer, Request, serve

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
POC = Path("../shared/faults/security/poc-apprise-channels.txt")
KEY = "0123456789abcdef"
LONG = "abcdefghijklmnopqrstuvwxyzabcdef"
VALID: Mapping[str, Mapping[str, str]] = {
    "webhook": {"address": "https://hooks.example.com/fleet", "key": KEY},
    "slack": {"workspace": "T1JJ3T3L2", "webhook": "B1BRTD4JD", "token": LONG},
    "teams": {
        "host": "prod-12.westeurope.logic.azure.com:443",
        "workflow": LONG,
        "token": LONG,
    },
    "mattermost": {"host": "chat.example.com", "token": LONG},
    "rocket-chat": {"host": "chat.example.com:8443", "webhook": LONG, "token": LONG},
    "google-chat": {"space": "AAAA-bbb", "key": LONG, "token": f"{LONG}="},
    "discord": {"webhook": "123456789012345678", "token": LONG},
    "telegram": {"token": f"123456:{LONG}", "chat": "-1001"},
    "webex": {"token": LONG},
    "gotify": {"host": "gotify.example.com", "token": LONG},
    "ntfy": {"host": "ntfy.example.com", "topic": "fleet", "token": ""},
    "pagerduty": {"key": LONG, "region": "eu"},
    "opsgenie": {"key": LONG, "region": "us"},
    "email": {"recipients": "a@example.com, b@example.com"},
}
DOORS_EVERY = 12
"""Fewer than there are addresses, so that the doors get each place of each service."""
FORMER = [
    f"workflows://localhost:9180/{LONG}/sigsigsigsig/?verify=no",
    f"workflows://2130706433:9180/{LONG}/sigsigsigsig/?verify=no",
    f"workflows://localhost:9183/{LONG}/sigsigsigsig/?verify=no&redirect=yes",
    f"workflows://localhost:9180/{LONG}/sig/?verify=no&template=http://localhost:9182/latest/x",
    f"workflows://localhost:9180/{LONG}/sig/?verify=no&template=/some/local/card.json",
    "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/?template=http://localhost:9182/x",
    "mailto://user:pass@8.8.8.8?smtp=localhost&port=9181&from=a@example.com&to=b@example.com",
    *(
        "json://10.0.0.1/",
        "syslog://",
        f"mmosts://127.0.0.1/{LONG}",
        "slack://a b",
        "slack://[",
        "",
    ),
]


@pytest.fixture
def manager() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def addresses() -> Iterator[str]:
    yield from FORMER
    if POC.exists():
        for line in POC.read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                yield line.split()[0].replace("abc...", LONG).replace("sig...", LONG)


def put(client: Client, body: Mapping[str, str]) -> Any:
    path = "/api/v1/notifications/channels/chat"
    return client.put(path, json.dumps(body), content_type="application/json")


def bodies_with(address: str) -> Iterator[dict[str, str]]:
    """Yield channels with an address as the former kind, as a webhook, and in each field of every service."""
    yield {"kind": "apprise", "address": address, "key": KEY}
    for kind, service in SERVICES.items():
        yield {"kind": kind, "address": address, "key": KEY}
        for field in service.fields if address else ():
            body = {"kind": kind, **VALID[kind], field.name: address}
            if body.get("key") != address or kind != "webhook":
                yield body


def test_no_address_of_many_parts_is_accepted_at_any_door(manager: Client) -> None:
    """The rule refuses each in each place; the doors get each address, and each place."""
    for turn, address in enumerate(addresses()):
        for place, body in enumerate(bodies_with(address)):
            fields = {name: value for name, value in body.items() if name != "kind"}
            with pytest.raises(InvalidManifest):
                checked_fields(body["kind"], fields)
            if place % DOORS_EVERY != turn % DOORS_EVERY:
                continue
            refused = put(manager, body)
            page = manager.post(
                "/notifications/channels/new/", {"name": "chat", **body}
            )

            assert refused.status_code in (400, 422), body
            assert all(
                fault["path"] and fault["allowed"] for fault in refused.json()["faults"]
            ), refused.json()
            assert page.status_code == 422, body
            assert "<code>" in page.content.decode()
    assert not NotificationChannel.objects.exists()


@pytest.mark.parametrize(
    "host",
    [
        *(
            "localhost",
            "chat.localhost",
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "127.1",
            "169.254.169.254",
        ),
        *(
            "[::1]",
            "::1",
            "a@chat.example.com",
            "chat.example.com/x",
            "chat.example.com?x",
            "chat.example.com#",
        ),
        *(
            "chat.example.com:0",
            "chat.example.com:99999",
            "chat example",
            "chat.example.com\\@x",
            "http://x.y",
        ),
    ],
)
def test_a_host_that_is_no_other_machine_is_refused(host: str) -> None:
    for kind, service in SERVICES.items():
        names = {field.name for field in service.fields} & {"host", "address"}
        for name in names:
            value = host if name == "host" else f"https://{host}"
            if name == "address" and host in (
                "chat.example.com/x",
                "chat.example.com?x",
                "http://x.y",
            ):
                continue  # the path of a webhook
            with pytest.raises(InvalidManifest, match=name):
                checked_fields(kind, {**VALID[kind], name: value})


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.invalid/",
        "https://user@hooks.invalid/",
        "https://hooks.invalid:0/",
    ],
)
def test_a_webhook_has_a_plain_https_address(url: str) -> None:
    with pytest.raises(InvalidManifest, match="address"):
        checked_fields("webhook", {"address": url, "key": KEY})


def test_requests_go_to_the_host_of_the_service_with_the_whole_message(
    settings: Any,
) -> None:
    settings.EMAIL_HOST = "mail.example.com"
    message = Message(
        "Cluster not ready: a", "Since <12:00> & later", "fleetui-problem-1"
    )
    hosts = {}
    for kind, fields in VALID.items():
        values = checked_fields(kind, fields)
        if kind in ("webhook", "email"):
            continue
        url, headers, body = SERVICES[kind].request(message, values)
        parts = urlsplit(url)
        hosts[kind] = parts.netloc
        assert parts.scheme == "https"
        assert "{" not in url + "".join(headers.values())
        assert "Cluster not ready: a" in body.decode()
        assert all(
            value in url + str(headers) + body.decode()
            for value in (fields.get("token"), fields.get("key"))
            if value
        )

    assert {*VALID} == {*SERVICES} == {*ChannelKind.values}
    assert hosts == {
        "slack": "hooks.slack.com",
        "teams": "prod-12.westeurope.logic.azure.com:443",
        "mattermost": "chat.example.com",
        "rocket-chat": "chat.example.com:8443",
        "google-chat": "chat.googleapis.com",
        "discord": "discord.com",
        "telegram": "api.telegram.org",
        "webex": "webexapis.com",
        "gotify": "gotify.example.com",
        "ntfy": "ntfy.example.com",
        "pagerduty": "events.eu.pagerduty.com",
        "opsgenie": "api.opsgenie.com",
    }


def test_the_end_of_a_problem_resolves_its_incident() -> None:
    values = checked_fields("pagerduty", VALID["pagerduty"])
    bodies = [
        json.loads(
            SERVICES["pagerduty"].request(
                Message("t", "b", "p-1", is_resolved=done), values
            )[2]
        )
        for done in (False, True)
    ]

    assert [body["event_action"] for body in bodies] == ["trigger", "resolve"]
    assert {body["dedup_key"] for body in bodies} == {"p-1"}


def test_no_service_of_any_kind_follows_a_redirect_or_trusts_an_unknown_authority(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.MEMBER_LOOPBACK = True
    asked = threading.Event()

    def behave(link: socket.socket, _request: Request, _server: LocalServer) -> None:
        asked.set()
        link.sendall(
            b"HTTP/1.1 307 x\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
        )

    with serve(behave) as server:
        host = server.url.removeprefix("https://")
        values = checked_fields("mattermost", {"host": host, "token": LONG})
        request = SERVICES["mattermost"].request(Message("t", "b", "p"), values)
        with pytest.raises(NotDeliveredError, match="no answer"):
            post(*request)
        assert not asked.is_set()
        context = ssl.create_default_context(cadata=authority().pem)
        monkeypatch.setattr(sending, "system_tls", lambda: context)
        with pytest.raises(NotDeliveredError, match="status 307"):
            post(*request)

        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.0.0.1", "2130706433", "0x7f.1", "[::1]", "169.254.169.254"],
)
def test_what_is_not_allowed_is_not_called_whatever_was_saved(host: str) -> None:
    for kind, service in SERVICES.items():
        if "{host}" not in service.url or "region" in {
            field.name for field in service.fields
        }:
            continue
        url, headers, body = service.request(
            Message("t", "b", "p"), {**VALID[kind], "host": host}
        )
        with pytest.raises(NotDeliveredError, match="not allowed"):
            post(url, headers, body)


def test_mail_is_sent_by_the_server_of_the_console(settings: Any) -> None:
    with pytest.raises(InvalidManifest, match="kind"):
        save_channel("mail", "email", VALID["email"], by=None, now=NOW)
    settings.EMAIL_HOST = "mail.example.com"
    save_channel("mail", "email", VALID["email"], by=None, now=NOW)
    send_test("mail", by=User.objects.create(username="ann"), now=NOW)

    assert send_due(now=NOW) == 1
    assert [one.to for one in mail.outbox] == [["a@example.com", "b@example.com"]]
    assert mail.outbox[0].subject == "FleetUI: Test message of FleetUI"


def former(name: str, url: str) -> None:
    row = NotificationChannel(
        name=name, kind=FORMER_KIND, created_at=NOW, created_by="x", summary="x"
    )
    row.ciphertext = encrypt(
        row.uid, Secret({"url": url, "key": ""}), purpose=CHANNEL_PURPOSE
    )
    row.save()


def test_former_channels_become_a_service_or_are_disabled_with_the_reason(
    manager: Client,
) -> None:
    former("slack", f"slack://T1JJ3T3L2/B1BRTD4JD/{LONG}")
    former(
        "teams", f"workflows://prod-12.westeurope.logic.azure.com:443/{LONG}/{LONG}/"
    )
    former("telegram", f"tgram://123456:{LONG}/-1001/")
    former("pager", f"pagerduty://{LONG}@api-key")
    for number, url in enumerate(FORMER):
        former(f"bad-{number}", url)

    send_due(now=NOW)
    send_due(now=NOW)

    rows = {
        notification_channel.name: notification_channel
        for notification_channel in NotificationChannel.objects.all()
    }
    good = {name: rows[name].kind for name in ("slack", "teams", "telegram", "pager")}
    assert good == {
        "slack": "slack",
        "teams": "teams",
        "telegram": "telegram",
        "pager": "pagerduty",
    }
    assert all(rows[name].is_enabled for name in good)
    assert fields_of(rows["slack"]) == {
        "workspace": "T1JJ3T3L2",
        "webhook": "B1BRTD4JD",
        "token": LONG,
    }
    bad = [channel for name, channel in rows.items() if name.startswith("bad")]
    assert len(bad) == len(FORMER)
    assert not any(channel.is_enabled for channel in bad)
    assert all("enter its fields again" in channel.disabled_reason for channel in bad)
    assert Event.objects.filter(kind="channel", verb="disabled").count() == len(bad)
    page = manager.get("/notifications/").content.decode()
    assert len(re.findall("enter its fields again", page)) == len(bad)
    assert (
        "enter its fields again"
        in manager.get("/api/v1/notifications/channels").content.decode()
    )
    save_channel("bad-0", "slack", VALID["slack"], by=None, now=NOW)
    row = NotificationChannel.objects.get(name="bad-0")
    assert (row.is_enabled, row.disabled_reason) == (True, "")
