"""The addresses of channels: checked, encrypted, and shown without their secrets."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.db import transaction

from clusters.credentials import CHANNEL_PURPOSE, decrypt, encrypt, fingerprint
from clusters.drivers.kubernetes.addresses import (
    AddressNotAllowed,
    AddressRules,
    check_address,
    checked_addresses,
    is_ip_address,
)
from clusters.hubs.dispatch import on_live_hub
from clusters.kubeconfig import Secret
from clusters.kubernetes_drivers import address_rules
from clusters.models import ChannelKind, NotificationChannel
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.audit import AuditEvent, actor_name, record

SERVICES = {
    **dict.fromkeys(("slack", "discord", "tgram", "gchat", "pagerduty", "opsgenie", "webexteams"), False),
    **dict.fromkeys(("msteams", "workflows", "workflow", "zulip", "pover", "pushover"), False),
    **dict.fromkeys(("mailtos", "mailto", "mmosts", "rockets", "matrixs", "gotifys", "ntfys"), True),
}
"""The schemes of apprise that may be used, and whether the host in their address is called.

Others are refused: those that call any address without a signature, and those that run something here.
"""
_ALLOWED = f"an address such as slack://…, with one of the schemes {', '.join(sorted(SERVICES))}"
_SHORTEST_KEY = 16
CHANNEL = "channel"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a channel sends to; `key` signs the messages of a webhook."""

    url: str
    key: str = ""

    @property
    def summary(self) -> str:
        """Return what may be shown: the service, and the host only where that is no secret."""
        parts = urlsplit(self.url)
        is_shown = parts.scheme == "https" or SERVICES.get(parts.scheme, False)
        return f"{parts.scheme}://{parts.hostname or ''}/…" if is_shown else f"{parts.scheme}://…"


def rules_for_channels() -> AddressRules:
    """Return the rules of cluster connections without their networks: channels are outside of these."""
    rules = address_rules()
    return AddressRules(allow_loopback=rules.allow_loopback, resolve=rules.resolve)


def check_channel(kind: str, address: Address) -> None:
    """Raise InvalidManifest unless messages may be sent to an address."""
    try:
        parts = urlsplit(address.url)
        is_port = parts.port is None or parts.port > 0
    except ValueError as error:
        raise InvalidManifest.of("address", "bad-format", "Invalid value", _ALLOWED) from error
    errors = []
    if kind == ChannelKind.WEBHOOK:
        is_plain = parts.hostname and is_port and not parts.username and not parts.fragment
        if parts.scheme != "https" or not is_plain:
            message = "Invalid value: must be an address without user and fragment"
            errors.append(FieldError("address", "bad-format", message, "https://…"))
        if len(address.key) < _SHORTEST_KEY:
            message = f"Too short: must have at least {_SHORTEST_KEY} characters"
            errors.append(FieldError("key", "too-short", message, "a random text"))
    elif kind != ChannelKind.APPRISE:
        errors.append(FieldError("kind", "not-one-of", "Unsupported value", ", ".join(ChannelKind.values)))
    elif parts.scheme not in SERVICES or not parts.netloc:
        errors.append(FieldError("address", "bad-format", "Invalid value: unknown service", _ALLOWED))
    if not errors and parts.hostname and is_ip_address(parts.hostname):
        try:
            check_address(parts.hostname, rules_for_channels())
        except AddressNotAllowed as error:
            errors.append(FieldError("address", "not-allowed", f"Forbidden: {error}", error.setting))
    if errors:
        raise InvalidManifest(errors)


def check_host(url: str) -> None:
    """Check the addresses that a host has now. Raise NameNotResolved, AddressNotAllowed."""
    parts = urlsplit(url)
    if SERVICES.get(parts.scheme) and parts.hostname:
        checked_addresses(parts.hostname, parts.port or 443, rules_for_channels(), seconds=5)


def address_of(channel: NotificationChannel) -> Address:
    """Return the address of a channel. Raise CredentialsUnreadable."""
    values = decrypt(channel.uid, channel.ciphertext, purpose=CHANNEL_PURPOSE).values
    return Address(values["url"], values["key"])


@on_live_hub(None)
def save_channel(
    name: str, kind: str, address: Address, *, by: User | None, now: datetime
) -> NotificationChannel:
    """Create a channel, or replace the address of the one with this name. Raise InvalidManifest."""
    check_channel(kind, address)
    secret = Secret({"url": address.url, "key": address.key})
    with transaction.atomic():
        row = NotificationChannel.objects.select_for_update().filter(name=name).first()
        verb = "changed" if row else "created"
        row = row or NotificationChannel(name=name, created_at=now, created_by=actor_name(by))
        row.kind, row.summary = kind, address.summary
        row.ciphertext = encrypt(row.uid, secret, purpose=CHANNEL_PURPOSE)
        row.fingerprint = fingerprint(secret)
        row.save()
        facts = {"kind": kind, "address": row.summary, "fingerprint": row.fingerprint}
        record(AuditEvent(verb, CHANNEL, name, after=facts), by=by, now=now)
    return row
