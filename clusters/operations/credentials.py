"""The secrets of connections, of clusters and of hubs: saved and removed with events; notices of expiry.

See `rules/kubernetes-driver.md#secrets`.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from clusters.credentials import (
    Connected,
    Credential,
    CredentialsUnreadable,
    days_left,
    decrypt,
    encrypt,
    expiry_notice,
    fingerprint,
    notice_due,
    public_facts,
    purpose_of,
)
from clusters.kubeconfig import Secret, SecretFacts, facts_of
from clusters.models import ClusterCredential, Hub, HubCredential
from clusters.operations.join import CLUSTER
from fleetui.access.audit import record_access
from fleetui.audit import SYSTEM, AuditEvent, actor_name, record_all
from fleetui.hub_scope import in_hub

HUB = "hub"
BATCH = 50
_ROWS: Mapping[str, Any] = {CLUSTER: ClusterCredential, HUB: HubCredential}
"""By the kind of the owner, which is also the name of the column that refers to it."""


def save_secret(
    owner: Connected,
    secret: Secret | None,
    *,
    before: Mapping[str, Any],
    by: User | None,
    now: datetime,
) -> list[AuditEvent]:
    """Save the secret of a connection, or remove that of one without; return the events of a change.

    `before` is the connection until now.
    """
    events = []
    if owner.connection.get("insecureTLS") and not before.get("insecureTLS"):
        events.append(secret_event("TLS verification off", owner))
    kind = kind_of(owner)
    # As it is now, whatever was selected with its owner.
    row: Credential | None = _ROWS[kind].objects.filter(**{kind: owner}).first()
    if secret is None:
        return remove_secret(owner, row, by=by, now=now) + events
    if row and row.fingerprint == fingerprint(secret):
        # What the present keys do not decrypt is encrypted again.
        with suppress(CredentialsUnreadable):
            if decrypt(owner.uid, row.ciphertext, purpose=purpose_of(owner)) == secret:
                return events
    facts = public_facts(row)
    stored = store_secret(owner, row, secret, by=by, now=now)
    event = secret_event("credentials set", owner, facts, public_facts(stored))
    return [event, *events]


def kind_of(owner: Connected) -> str:
    return HUB if isinstance(owner, Hub) else CLUSTER


def store_secret(
    owner: Connected,
    before: Credential | None,
    secret: Secret,
    *,
    by: User | None,
    now: datetime,
) -> Credential:
    """Save a secret with what may be shown of it, in the transaction of the operation."""
    kind = kind_of(owner)
    facts = facts_of(secret)
    values: dict[str, Any] = {
        "ciphertext": encrypt(owner.uid, secret, purpose=purpose_of(owner)),
        "revision": before.revision + 1 if before else 1,
        "kind": facts.kind,
        "subject": facts.subject,
        "fingerprint": fingerprint(secret),
        "expires_at": facts.expires_at,
        "notified_days": None,
        "set_by": actor_name(by),
        "set_at": now,
    }
    if kind == CLUSTER:  # the watcher of a hub counts, and no token is renewed
        values |= {
            "unauthorized_count": 0,
            "unauthorized_since": None,
            "blocked_until": None,
            "renew_at": renewal_time(facts),
            "renewal_error": "",
        }
    _record_change(owner, by, now, fingerprint=values["fingerprint"])
    row: Credential
    row, _ = _ROWS[kind].objects.update_or_create(**{kind: owner}, defaults=values)
    return row


def remove_secret(
    owner: Connected,
    credential: Credential | None,
    *,
    by: User | None,
    now: datetime,
) -> list[AuditEvent]:
    """Remove the secret of a connection, if it has one; return the events."""
    if credential is None:
        return []
    facts = public_facts(credential)
    credential.delete()
    _record_change(owner, by, now)
    return [secret_event("credentials removed", owner, facts)]


def _record_change(
    owner: Connected, by: User | None, now: datetime, **details: Any
) -> None:
    record_access(
        "credentials changed",
        f"{kind_of(owner)} {owner.name}",
        by=by or SYSTEM,
        details=details or None,
        now=now,
    )


def secret_event(
    verb: str,
    owner: Connected,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    *,
    is_warning: bool = False,
) -> AuditEvent:
    return AuditEvent(
        verb,
        kind_of(owner),
        owner.name,
        revision=getattr(owner, "revision", None),
        before=before,
        after=after,
        is_warning=is_warning,
    )


def renewal_time(facts: SecretFacts) -> datetime | None:
    """Return when a token has lived half of its time; None if it is not one that can be renewed."""
    if (
        facts.service_account is None
        or facts.issued_at is None
        or facts.expires_at is None
    ):
        return None
    return facts.issued_at + (facts.expires_at - facts.issued_at) / 2


def notify_expiring(kind: str, *, now: datetime) -> int:
    """Record an event 14, 7 and 1 days before credentials expire that are not renewed; return how many."""
    rows = _ROWS[kind].objects.filter(notice_due(now=now)).select_related(kind)
    due = list(rows.order_by("pk")[:BATCH])
    for row in due:
        _ROWS[kind].objects.filter(pk=row.pk, revision=row.revision).update(
            notified_days=days_left(row, now=now)
        )
        after = {**(public_facts(row) or {}), "notice": expiry_notice(row, now=now)}
        event = secret_event(
            "credentials expiring", getattr(row, kind), None, after, is_warning=True
        )
        with in_hub(row.hub_id):  # who has no role there learns nothing of it
            record_all([event], by=None, now=now)
    return len(due)
