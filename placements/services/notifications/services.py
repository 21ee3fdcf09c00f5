"""The closed table of services that messages go to: their fields, and the one request that each gets.

A user enters fields and never an address, apart from a webhook: the address is built here, so that no option
in it can lead elsewhere.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from clusters.models import ChannelKind

Values = Mapping[str, str]
MOST_RECIPIENTS = 20
_HOST = r"([A-Za-z0-9][-A-Za-z0-9]{0,62}\.){0,20}[A-Za-z0-9][-A-Za-z0-9]{0,62}(:[1-9][0-9]{0,4})?"
_TEAMS = re.compile(
    r"([-a-z0-9]+\.)+(logic\.azure\.com|environment\.api\.powerplatform\.com)(:443)?",
    re.IGNORECASE,
)
_MAIL = r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,253}"


@dataclass(frozen=True, slots=True)
class ServiceField:
    """What a user enters; `pattern` matches the whole value. `is_shown`: it is no secret."""

    name: str
    label: str
    pattern: re.Pattern[str]
    allowed: str
    is_shown: bool = False
    is_required: bool = True


def _field(
    name: str, label: str, pattern: str, allowed: str, **options: Any
) -> ServiceField:
    return ServiceField(name, label, re.compile(pattern), allowed, **options)


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent; `problem` is the same in all messages about one problem."""

    title: str
    body: str
    problem: str
    is_resolved: bool = False

    @property
    def text(self) -> str:
        return f"{self.title}\n{self.body}"


@dataclass(frozen=True, slots=True)
class Service:
    """A service: the address of its request, with the fields in braces, and the body of a message."""

    kind: ChannelKind
    fields: tuple[ServiceField, ...]
    url: str = ""
    payload: Callable[[Message, Values], Mapping[str, Any]] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def request(
        self, message: Message, values: Values
    ) -> tuple[str, dict[str, str], bytes]:
        host = _REGIONAL.get(
            (self.kind, values.get("region", "")), values.get("host", "")
        )
        path, version = _WORKFLOWS[
            host.lower().removesuffix(":443").endswith(".logic.azure.com")
        ]
        filled = {**values, "host": host, "path": path, "version": version}
        body = self.payload(message, values) if self.payload else {}
        headers = {
            name: value.format(**filled)
            for name, value in self.headers
            if "{token}" not in value or values.get("token")
        }
        return self.url.format(**filled), headers, json.dumps(body).encode()


_WORKFLOWS = {
    True: ("workflows", "2016-06-01"),
    False: ("powerautomate/automations/direct/workflows", "1"),
}
"""Path and version of the address of a Teams workflow, by whether it is on logic.azure.com."""
_REGIONAL = {
    (ChannelKind.PAGERDUTY, "us"): "events.pagerduty.com",
    (ChannelKind.PAGERDUTY, "eu"): "events.eu.pagerduty.com",
    (ChannelKind.OPSGENIE, "us"): "api.opsgenie.com",
    (ChannelKind.OPSGENIE, "eu"): "api.eu.opsgenie.com",
}


def _slack_text(message: Message, _values: Values) -> Mapping[str, Any]:
    text = message.text[:30_000]
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, entity)
    return {"text": text}


def _plain_text(message: Message, _values: Values) -> Mapping[str, Any]:
    return {"text": message.text[:4_000]}


def _teams_card(message: Message, _values: Values) -> Mapping[str, Any]:
    title = {
        "type": "TextBlock",
        "text": message.title,
        "weight": "Bolder",
        "wrap": True,
    }
    blocks = [title, {"type": "TextBlock", "text": message.body[:15_000], "wrap": True}]
    card = {"type": "AdaptiveCard", "version": "1.4", "body": blocks}
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}


_HOST_FIELD = _field(
    "host",
    "Host",
    _HOST,
    "a host such as chat.example.com, with or without a port",
    is_shown=True,
)
_REGION = _field("region", "Region", "us|eu", "us, eu", is_shown=True)
_ROOM_TOKEN = _field(
    "token", "Token", "[A-Za-z0-9_-]{8,200}", "8 to 200 letters, digits, - and _"
)
_ALL = (
    Service(
        ChannelKind.WEBHOOK,
        (
            _field("address", "Address", r"[\x21-\x7e]{1,2000}", "https://…"),
            _field(
                "key",
                "Signing key",
                r"[^\x00-\x1f]{16,200}",
                "a random text of 16 to 200 characters",
            ),
        ),
    ),
    Service(
        ChannelKind.SLACK,
        (
            _field(
                "workspace",
                "Workspace",
                "T[A-Z0-9]{2,20}",
                "the part T… of the webhook",
                is_shown=True,
            ),
            _field(
                "webhook",
                "Webhook",
                "B[A-Z0-9]{2,20}",
                "the part B… of the webhook",
                is_shown=True,
            ),
            _field(
                "token",
                "Token",
                "[A-Za-z0-9]{8,60}",
                "the last part of the webhook: letters and digits",
            ),
        ),
        "https://hooks.slack.com/services/{workspace}/{webhook}/{token}",
        _slack_text,
    ),
    Service(
        ChannelKind.TEAMS,
        (
            ServiceField(
                "host",
                "Host",
                _TEAMS,
                "a host under logic.azure.com or environment.api.powerplatform.com",
                is_shown=True,
            ),
            _field(
                "workflow",
                "Workflow",
                "[A-Za-z0-9]{16,64}",
                "the identifier after /workflows/",
            ),
            _field(
                "token",
                "Signature",
                "[A-Za-z0-9_-]{20,100}",
                "the value of sig in the address",
            ),
        ),
        "https://{host}/{path}/{workflow}/triggers/manual/paths/invoke"
        "?api-version={version}&sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig={token}",
        _teams_card,
    ),
    Service(
        ChannelKind.DISCORD,
        (
            _field(
                "webhook",
                "Webhook",
                "[0-9]{15,25}",
                "the number in the address of the webhook",
                is_shown=True,
            ),
            _field(
                "token",
                "Token",
                "[A-Za-z0-9_-]{30,120}",
                "the last part of the webhook",
            ),
        ),
        "https://discord.com/api/webhooks/{webhook}/{token}",
        lambda message, _: {
            "content": message.text[:2_000],
            "allowed_mentions": {"parse": []},
        },
    ),
    Service(
        ChannelKind.TELEGRAM,
        (
            _field(
                "token",
                "Token of the bot",
                "[0-9]{5,20}:[A-Za-z0-9_-]{30,60}",
                "such as 123456:ABC…",
            ),
            _field(
                "chat",
                "Chat",
                "-?[0-9]{1,20}|@[A-Za-z0-9_]{5,32}",
                "a number, or @name",
                is_shown=True,
            ),
        ),
        "https://api.telegram.org/bot{token}/sendMessage",
        lambda message, values: {
            "chat_id": values["chat"],
            "text": message.text[:4_000],
        },
    ),
    Service(
        ChannelKind.GOOGLE_CHAT,
        (
            _field(
                "space",
                "Space",
                "[A-Za-z0-9_-]{5,40}",
                "the part after /spaces/",
                is_shown=True,
            ),
            _field(
                "key", "Key", "[A-Za-z0-9_-]{20,60}", "the value of key in the webhook"
            ),
            _field(
                "token",
                "Token",
                "[A-Za-z0-9_=-]{20,100}",
                "the value of token in the webhook, with = for %3D",
            ),
        ),
        "https://chat.googleapis.com/v1/spaces/{space}/messages?key={key}&token={token}",
        _plain_text,
    ),
    Service(
        ChannelKind.WEBEX,
        (_ROOM_TOKEN,),
        "https://webexapis.com/v1/webhooks/incoming/{token}",
        _plain_text,
    ),
    Service(
        ChannelKind.MATTERMOST,
        (_HOST_FIELD, _ROOM_TOKEN),
        "https://{host}/hooks/{token}",
        _plain_text,
    ),
    Service(
        ChannelKind.ROCKET_CHAT,
        (
            _HOST_FIELD,
            _field(
                "webhook",
                "Webhook",
                "[A-Za-z0-9]{8,40}",
                "the first part after /hooks/",
                is_shown=True,
            ),
            _ROOM_TOKEN,
        ),
        "https://{host}/hooks/{webhook}/{token}",
        _plain_text,
    ),
    Service(
        ChannelKind.GOTIFY,
        (_HOST_FIELD, _ROOM_TOKEN),
        "https://{host}/message",
        lambda message, _: {"title": message.title, "message": message.body[:10_000]},
        (("X-Gotify-Key", "{token}"),),
    ),
    Service(
        ChannelKind.NTFY,
        (
            _HOST_FIELD,
            _field("topic", "Topic", "[A-Za-z0-9_-]{1,64}", "letters, digits, - and _"),
            _field(
                "token",
                "Access token",
                "[A-Za-z0-9_]{8,100}",
                "letters, digits and _",
                is_required=False,
            ),
        ),
        "https://{host}/",
        lambda message, values: {
            "topic": values["topic"],
            "title": message.title,
            "message": message.body[:4_000],
        },
        (("Authorization", "Bearer {token}"),),
    ),
    Service(
        ChannelKind.PAGERDUTY,
        (
            _field(
                "key", "Integration key", "[A-Za-z0-9]{32}", "32 letters and digits"
            ),
            _REGION,
        ),
        "https://{host}/v2/enqueue",
        lambda message, values: {
            "routing_key": values["key"],
            "event_action": "resolve" if message.is_resolved else "trigger",
            "dedup_key": message.problem,
            "payload": {
                "summary": message.title,
                "source": "fleetui",
                "severity": "warning",
                "custom_details": {"message": message.body[:10_000]},
            },
        },
    ),
    Service(
        ChannelKind.OPSGENIE,
        (
            _field("key", "API key", "[A-Za-z0-9-]{20,60}", "letters, digits and -"),
            _REGION,
        ),
        "https://{host}/v2/alerts",
        lambda message, _: {
            "message": message.title[:130],
            "description": message.body[:15_000],
            "source": "fleetui",
            "alias": f"{message.problem}-resolved"
            if message.is_resolved
            else message.problem,
        },
        (("Authorization", "GenieKey {key}"),),
    ),
    Service(
        ChannelKind.EMAIL,
        (
            _field(
                "recipients",
                "Recipients",
                rf"{_MAIL}( *, *{_MAIL}){{0,{MOST_RECIPIENTS - 1}}}",
                f"up to {MOST_RECIPIENTS} addresses, separated by commas",
                is_shown=True,
            ),
        ),
    ),
)
SERVICES: Mapping[str, Service] = {service.kind.value: service for service in _ALL}


def former_fields(url: str) -> tuple[str, dict[str, str]] | None:
    """Return kind and fields of a former address such as slack://…; None for options and unknown services."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    user, _, host = parts.netloc.rpartition("@")
    path = [unquote(part) for part in parts.path.split("/") if part]
    if (
        parts.query
        or parts.fragment
        or (user and parts.scheme not in ("pagerduty", "ntfys"))
    ):
        return None
    found: dict[str, tuple[ChannelKind, list[str], list[str]]] = {
        "slack": (ChannelKind.SLACK, ["workspace", "webhook", "token"], [host, *path]),
        "discord": (ChannelKind.DISCORD, ["webhook", "token"], [host, *path]),
        "tgram": (ChannelKind.TELEGRAM, ["token", "chat"], [host, *path]),
        "gchat": (ChannelKind.GOOGLE_CHAT, ["space", "key", "token"], [host, *path]),
        "workflow": (ChannelKind.TEAMS, ["host", "workflow", "token"], [host, *path]),
        "workflows": (ChannelKind.TEAMS, ["host", "workflow", "token"], [host, *path]),
        "webexteams": (ChannelKind.WEBEX, ["token"], [host, *path]),
        "mmosts": (ChannelKind.MATTERMOST, ["host", "token"], [host, *path]),
        "rockets": (
            ChannelKind.ROCKET_CHAT,
            ["host", "webhook", "token"],
            [host, *path],
        ),
        "gotifys": (ChannelKind.GOTIFY, ["host", "token"], [host, *path]),
        "ntfys": (ChannelKind.NTFY, ["host", "topic", "token"], [host, *path, user]),
        "pagerduty": (ChannelKind.PAGERDUTY, ["key", "region"], [user, "us"]),
        "opsgenie": (ChannelKind.OPSGENIE, ["key", "region"], [host, *path, "us"]),
    }
    if parts.scheme not in found:
        return None
    kind, names, values = found[parts.scheme]
    if len(names) != len(values):
        return None
    return kind.value, {
        name: value for name, value in zip(names, values, strict=True) if value
    }
