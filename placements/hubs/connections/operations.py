"""Hubs are added, changed, paused and removed here, by pages, REST and commands alike."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.connection_input import ConnectionInput, parse_connection_input
from clusters.credentials import credential_of, kept_secret
from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.check import ConnectionCheckFailed
from clusters.hub_queries import UnknownHubError, live_hub
from clusters.hub_state import HubState
from clusters.kubeconfig import ParsedConnection, Secret
from clusters.models import BindingChange, Hub, HubStream, MirroredObject
from clusters.models.hubs import (
    LONGEST_HUB_NAME,
    RESERVED_HUB_NAMES,
    HubIdentity,
    HubMode,
)
from clusters.operations.connection import SavedConnection, unreadable_step
from clusters.operations.credentials import HUB, remove_secret, save_secret
from fleetui.apimachinery.errors import FieldError, InvalidManifest, raise_errors
from fleetui.audit import AuditEvent, actor_name, record_all
from fleetui.bulk import save_fields
from fleetui.encryption import keep_keys
from fleetui.errors import FleetError
from fleetui.hub_scope import in_hub
from placements.hubs.connections.connection import (
    HubTarget,
    ServerNotAllowedError,
    check_token_server,
    secret_values,
    token_command,
)
from placements.hubs.connections.discovery import HubCheckReport, check_hub
from placements.hubs.kinds import HUB_KINDS
from placements.hubs.queries import removed_hubs_with_rows

MOST_NAMESPACES = 20
LONGEST_TITLE = 120
BATCH = 1_000
_NAME = re.compile(rf"[a-z0-9]([-a-z0-9]{{0,{LONGEST_HUB_NAME - 2}}}[a-z0-9])?")
_LABEL = "a DNS-1123 label of at most 63 characters: [a-z0-9]([-a-z0-9]*[a-z0-9])?"


class HubExists(FleetError):
    """The name belongs to another hub."""

    problem_type = "exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"hub {name} exists already")


@dataclass(frozen=True, slots=True)
class HubSpec:
    """What a person decides about a hub, beside its connection."""

    name: str
    title: str = ""
    kind: str = "kubefleet"
    mode: str = HubMode.READ.value
    identity: str = HubIdentity.SHARED.value
    namespaces: tuple[str, ...] = ()


def spec_of(hub: Hub) -> HubSpec:
    return HubSpec(
        hub.name, hub.title, hub.kind, hub.mode, hub.identity, tuple(hub.namespaces)
    )


def check_spec(spec: HubSpec) -> None:
    """Raise InvalidManifest with every error."""
    errors = []
    if not _NAME.fullmatch(spec.name):
        errors.append(
            FieldError(
                "name", "bad-format", f"Invalid value: {spec.name[:80]!r}", _LABEL
            )
        )
    elif spec.name in RESERVED_HUB_NAMES:
        reserved = ", ".join(RESERVED_HUB_NAMES)
        errors.append(
            FieldError(
                "name",
                "reserved",
                f"Forbidden: {spec.name} is reserved",
                f"not {reserved}",
            )
        )
    if len(spec.title) > LONGEST_TITLE or not spec.title.isprintable():
        allowed = f"at most {LONGEST_TITLE} characters on one line"
        errors.append(FieldError("title", "too-long", "Invalid value", allowed))
    for path, value, allowed_values in (
        ("kind", spec.kind, tuple(HUB_KINDS)),
        ("mode", spec.mode, tuple(HubMode.values)),
        ("identity", spec.identity, tuple(HubIdentity.values)),
    ):
        if value not in allowed_values:
            allowed = ", ".join(allowed_values)
            errors.append(
                FieldError(
                    path, "not-one-of", f"Unsupported value: {value[:80]!r}", allowed
                )
            )
    if len(spec.namespaces) > MOST_NAMESPACES:
        errors.append(
            FieldError(
                "namespaces", "too-many", "Too many", f"at most {MOST_NAMESPACES}"
            )
        )
    errors += [
        FieldError(
            f"namespaces[{at}]", "bad-format", f"Invalid value: {name[:80]!r}", _LABEL
        )
        for at, name in enumerate(spec.namespaces)
        if not _NAME.fullmatch(name)
    ]
    raise_errors(errors)


def parse_hub_input(
    wanted: ConnectionInput,
    *,
    hub: Hub | None,
    name: str,
    now: datetime,
) -> ParsedConnection:
    """Return the connection that a user entered. Raise InvalidManifest.

    Without a secret the stored one is kept, while nothing else changes; with a token command none is needed.
    """

    def kept(connection: Mapping[str, Any]) -> Secret | None:
        return None if token_command(name) else kept_secret(hub, connection)

    parsed = parse_connection_input(wanted, kept=kept, now=now)
    try:
        check_token_server(name, parsed.connection)
    except ServerNotAllowedError as error:
        raise InvalidManifest.of(
            parsed.server_path, "not-allowed", f"Forbidden: {error}", error.allowed
        ) from error
    return parsed


def check_parsed(spec: HubSpec, parsed: ParsedConnection) -> HubCheckReport:
    """Check a connection that is not saved; no transaction may be open."""
    if parsed.secret:
        return check_hub(HUB_KINDS[spec.kind], parsed.connection, parsed.secret.values)
    target = HubTarget(0, spec.name, Hub().uid, parsed.connection)
    return _check_target(spec.kind, target)


def check_stored_hub(name: str) -> HubCheckReport:
    """Check the connection that a hub has, and keep what was found. Raise UnknownHubError."""
    hub = live_hub(name)
    report = _check_target(hub.kind, HubTarget.of(hub))
    if report.permissions:
        found = {**hub.found, "permissions": report.documents}
        Hub.objects.filter(pk=hub.pk).update(found=found)
    return report


def _check_target(kind: str, target: HubTarget) -> HubCheckReport:
    try:
        values = secret_values(target)
    except DriverUnavailable as error:
        return HubCheckReport((unreadable_step(error),))
    return check_hub(HUB_KINDS[kind], target.connection, values)


def save_hub(
    spec: HubSpec,
    wanted: ConnectionInput,
    *,
    by: User | None,
    now: datetime,
    confirmed: bool = False,
    replaces: bool = False,
) -> SavedConnection[Hub]:
    """Check a connection and save the hub; the network is used before the transaction.

    `confirmed`: save it although the check fails. `replaces`: the hub exists, and gets this connection. Raise
    InvalidManifest, HubExists, UnknownHubError, ConnectionCheckFailed.
    """
    check_spec(spec)
    before = (
        Hub.objects.select_related("credential")
        .filter(name=spec.name, removed_at=None)
        .first()
    )
    if before and not replaces:
        raise HubExists(spec.name)
    if before is None and replaces:
        raise UnknownHubError(spec.name)
    parsed = parse_hub_input(wanted, hub=before, name=spec.name, now=now)
    report = check_parsed(spec, parsed)
    if not report.is_passed and not confirmed:
        raise ConnectionCheckFailed(report)

    if parsed.secret:
        keep_keys()
    with transaction.atomic():
        is_new = store_hub(spec, parsed, report, replaces=replaces, by=by, now=now)
    return SavedConnection(live_hub(spec.name), report, is_new)


def store_hub(
    spec: HubSpec,
    parsed: ParsedConnection,
    report: HubCheckReport,
    *,
    replaces: bool,
    by: User | None,
    now: datetime,
) -> bool:
    """Save a hub with its secret in the present transaction; return whether it is new. Raise HubExists."""
    values = {
        **asdict(spec),
        "namespaces": list(spec.namespaces),
        "connection": dict(parsed.connection),
    }
    hub = (
        Hub.objects.select_for_update().filter(name=spec.name, removed_at=None).first()
    )
    if hub and not replaces:
        raise HubExists(spec.name)
    is_new = hub is None
    verb = "connection set" if hub else "added"
    hub = hub or Hub(
        name=spec.name, created_at=now, created_by=actor_name(by), state_since=now
    )
    before = hub.connection
    moved = not is_new and before.get("server") != parsed.connection.get("server")
    for key, value in values.items():
        setattr(hub, key, value)
    if report.permissions:
        hub.found = {**hub.found, "permissions": report.documents}
    hub.server_version = report.server_version or hub.server_version
    hub.save()
    if moved:  # versions of another server mean nothing there
        with in_hub(hub.pk):
            HubStream.objects.update(resource_version="")
    events = [
        AuditEvent(verb, HUB, hub.name, after=shown_spec(hub)),
        *save_secret(hub, parsed.secret, before=before, by=by, now=now),
    ]
    record_all(events, by=by, now=now)
    return is_new


def shown_spec(hub: Hub) -> dict[str, Any]:
    return {
        "title": hub.title,
        "kind": hub.kind,
        "mode": hub.mode,
        "identity": hub.identity,
        "namespaces": hub.namespaces,
        "server": hub.connection.get("server", ""),
        "paused": hub.is_paused,
    }


_PAUSED = {
    True: (HubState.PAUSED, "paused"),
    False: (HubState.CONNECTING, "resumed"),
}


def change_hub(
    name: str,
    changes: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
) -> Hub:
    """Change title, mode, identity, namespaces or `paused`. Raise UnknownHubError, InvalidManifest."""
    hub = live_hub(name)
    chosen = {key: value for key, value in changes.items() if key != "paused"}
    if "namespaces" in chosen:
        chosen["namespaces"] = tuple(chosen["namespaces"])
    spec = replace(spec_of(hub), **chosen)
    check_spec(spec)
    with transaction.atomic():
        hub = Hub.objects.select_for_update().get(pk=hub.pk)
        before = shown_spec(hub)
        values: dict[str, Any] = {
            "title": spec.title,
            "mode": spec.mode,
            "identity": spec.identity,
            "namespaces": list(spec.namespaces),
        }
        verb = "changed"
        paused = changes.get("paused")
        if paused is not None and paused != hub.is_paused:
            # The watcher writes all other states.
            state, verb = _PAUSED[paused]
            values |= {"is_paused": paused, "state": state, "state_since": now}
            values["state_reason"] = ""
        save_fields(hub, **values)
        if (after := shown_spec(hub)) != before:
            record_all(
                [AuditEvent(verb, HUB, name, before=before, after=after)],
                by=by,
                now=now,
            )
    return live_hub(name)


def remove_hub(name: str, *, by: User | None, now: datetime) -> Hub:
    """Remove a hub: its credential at once, its rows by `delete_rows`. Raise UnknownHubError."""
    hub = live_hub(name)
    with transaction.atomic():
        hub = Hub.objects.select_for_update().get(pk=hub.pk)
        events = remove_secret(hub, credential_of(hub), by=by, now=now)
        before = shown_spec(hub)
        save_fields(
            hub,
            state=HubState.REMOVED,
            state_reason="",
            state_since=now,
            removed_at=now,
            connection={},
        )
        record_all(
            [*events, AuditEvent("removed", HUB, name, before=before)], by=by, now=now
        )
    return hub


def delete_removed_hubs() -> None:
    for pk in removed_hubs_with_rows():
        delete_rows(pk, most=10 * BATCH)


def delete_rows(hub: int, *, most: int = 100 * BATCH) -> bool:
    """Delete the mirror of a removed hub in batches; return whether there is more.

    A hub that another watcher is still writing is left to the next call: its lease has to be over.
    """
    if Hub.objects.filter(pk=hub).exclude(lease_token="").exists():
        return True
    deleted = 0
    with in_hub(hub):
        models: Sequence[Any] = (MirroredObject, BindingChange, HubStream)
        for model in models:
            while pks := list(model.objects.values_list("pk", flat=True)[:BATCH]):
                model.objects.filter(pk__in=pks).delete()
                deleted += len(pks)
                if deleted >= most:
                    return True
    return False
