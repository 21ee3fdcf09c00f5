"""The fields of channels: checked, encrypted, and shown without their secrets."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from clusters.credentials import (
    CHANNEL_PURPOSE,
    CredentialsUnreadable,
    decrypt,
    encrypt,
    fingerprint,
)
from clusters.drivers.kubernetes.addresses import (
    AddressNotAllowed,
    AddressRules,
    check_address,
    is_ip_address,
)
from clusters.kubeconfig import Secret
from clusters.kubernetes_drivers import address_rules
from clusters.models import FORMER_KIND, ChannelKind, NotificationChannel
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.audit import AuditEvent, actor_name, record
from placements.services.notifications.services import (
    SERVICES,
    Service,
    Values,
    former_fields,
)

CHANNEL = "channel"
_FORMER = "its address is not one of the present services, or has options; enter its fields again"


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
    if errors := list(_errors(service, fields)):
        raise InvalidManifest(errors)
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
        if not value and field.is_required:
            yield FieldError(field.name, "required", "Required value", field.allowed)
        elif value and not field.pattern.fullmatch(value):
            yield FieldError(field.name, "bad-format", "Invalid value", field.allowed)
        elif value and field.name in ("address", "host"):
            yield from _address_errors(field.name, value, field.allowed)
    if service.kind == ChannelKind.EMAIL and not settings.EMAIL_HOST:
        message = "Forbidden: the console has no mail server"
        yield FieldError("kind", "not-allowed", message, "set FLEETUI_MAIL_SERVER")


def _address_errors(path: str, value: str, allowed: str) -> Iterator[FieldError]:
    """Yield what is wrong with a host or an address as it is entered; each connection checks it again."""
    url = value if path == "address" else f"https://{value}"
    try:
        parts = urlsplit(url)
        is_valid = (
            (parts.port is None or parts.port > 0)
            and parts.scheme == "https"
            and parts.hostname
        )
    except ValueError:
        is_valid = False
    if not is_valid or parts.username is not None or "#" in url:
        yield FieldError(
            path,
            "bad-format",
            "Invalid value: must have no user and no fragment",
            allowed,
        )
        return
    host, rules = (parts.hostname or "").rstrip("."), rules_for_channels()
    if is_ip_address(host):
        try:
            check_address(host, rules)
        except AddressNotAllowed as error:
            yield FieldError(path, "not-allowed", f"Forbidden: {error}", error.setting)
        return
    last = host.rpartition(".")[2]
    if not last[:1].isalpha() or (last == "localhost" and not rules.allow_loopback):
        yield FieldError(
            path,
            "not-allowed",
            "Forbidden: a host of this machine, or no name",
            allowed,
        )


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
        record(AuditEvent(verb, CHANNEL, name, after=facts), by=by, now=now)
    return row


def convert_former_channels(*, now: datetime) -> None:
    """Turn channels of a former address into one of a service, or disable them with the reason."""
    rows = NotificationChannel.objects.filter(kind=FORMER_KIND, is_enabled=True)
    for row in rows.order_by("pk"):
        reason = _FORMER
        try:
            found = former_fields(fields_of(row).get("url", ""))
            if found:
                save_channel(row.name, *found, by=None, now=now)
                continue
        except CredentialsUnreadable as error:
            reason = str(error)
        except InvalidManifest:
            pass
        disabled = {"is_enabled": False, "disabled_reason": reason[:200]}
        NotificationChannel.objects.filter(pk=row.pk, kind=FORMER_KIND).update(
            **disabled
        )
        event = AuditEvent(
            "disabled", CHANNEL, row.name, after={"reason": reason}, is_warning=True
        )
        record(event, by=None, now=now)
