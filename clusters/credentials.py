"""Secrets of clusters, hubs and channels at rest: encrypted, bound to what they belong to, rotated (3.3).

`fleetui/encryption.py` has the keys.
"""

import hashlib
import hmac
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, overload
from uuid import UUID

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Case, F, Q, Value, When
from django.db.models.functions import Coalesce

from clusters.drivers.base import DriverUnavailable
from clusters.kubeconfig import Secret
from clusters.models import (
    ClusterCredential,
    Hub,
    HubCredential,
    MemberCluster,
    NotificationChannel,
)
from fleetui import encryption
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.encryption import KeysUnreadable
from fleetui.env import new_encryption_key
from fleetui.threads import brief_connection

PURPOSE = "credential"
HUB_PURPOSE = "hub-credential"
CHANNEL_PURPOSE = "notification-channel"
VERSION = 1
UNREADABLE = "credentials-unreadable"
BLOCKED_AFTER = 2
"""So many consecutive 401 answers stop the calls for a while, so that no account is locked."""
BLOCKED_FOR = timedelta(minutes=5)
BATCH = 200
NOTICE_DAYS = (1, 7, 14)
"""Before credentials expire that are not renewed."""
Credential = ClusterCredential | HubCredential
Stored = Credential | NotificationChannel
Connected = MemberCluster | Hub
Owner = Connected | NotificationChannel
_NOUNS: dict[type[Owner], str] = {Hub: "hub ", NotificationChannel: "channel "}
_PURPOSES: dict[type[Owner], str] = {
    MemberCluster: PURPOSE,
    Hub: HUB_PURPOSE,
    NotificationChannel: CHANNEL_PURPOSE,
}


class CredentialsUnreadable(DriverUnavailable):
    """A stored secret cannot be decrypted: its key was lost, or it belongs to another cluster."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the stored credentials cannot be read: {reason}", code=UNREADABLE
        )


def encryption_keys() -> tuple[str, ...]:
    """Return the keys, the one that encrypts first. Raise CredentialsUnreadable."""
    try:
        return encryption.encryption_keys()
    except KeysUnreadable as error:
        raise CredentialsUnreadable(str(error)) from error


def add_key() -> None:
    """Put a new key ahead of those in the key file. Raise CredentialsUnreadable."""
    content = "\n".join([new_encryption_key(), *encryption_keys(), ""])
    path: Path = settings.CREDENTIAL_KEY_FILE
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    Path(aside).replace(path)


def encrypt(cluster: UUID, secret: Secret, *, purpose: str = PURPOSE) -> str:
    """Return the ciphertext of a secret, bound to its cluster or hub. Raise CredentialsUnreadable."""
    content = {
        "cluster": str(cluster),
        "purpose": purpose,
        "v": VERSION,
        **secret.values,
    }
    return _cipher(encryption_keys()).encrypt(json.dumps(content).encode()).decode()


def decrypt(cluster: UUID, ciphertext: str, *, purpose: str = PURPOSE) -> Secret:
    """Return the secret of a cluster or hub. Raise CredentialsUnreadable."""
    return decrypt_with(encryption_keys(), cluster, ciphertext, purpose=purpose)


@overload
def credential_of(owner: MemberCluster) -> ClusterCredential | None: ...
@overload
def credential_of(owner: Connected) -> Credential | None: ...
def credential_of(owner: Connected) -> Credential | None:
    """Return the credential of a cluster or hub; a query unless it was selected with its owner."""
    try:
        with brief_connection():
            return owner.credential
    except ObjectDoesNotExist:
        return None


def kept_secret(owner: Connected | None, connection: Mapping[str, Any]) -> Secret:
    """Return the stored secret for a connection without one. Raise InvalidManifest.

    It is kept only while nothing else changes: another server must not get it.
    """
    credential = credential_of(owner) if owner else None
    if owner is None or credential is None:
        message = "Required value: the credentials"
    elif connection != owner.connection:
        message = "Required value: the credentials, since the connection changes"
    else:
        try:
            return decrypt(owner.uid, credential.ciphertext, purpose=purpose_of(owner))
        except CredentialsUnreadable as error:
            message = f"Required value: {error}"
    raise InvalidManifest.of(
        "token", "required", message, "a token, or a client certificate with its key"
    )


def fingerprint(secret: Secret) -> str:
    """Return 16 hex digits that recognize a secret, of use only to who has the first key."""
    key = hmac.digest(
        encryption_keys()[0].encode(), b"fleetui credential fingerprint", "sha256"
    )
    content = json.dumps(dict(secret.values), sort_keys=True).encode()
    return hmac.new(key, content, hashlib.sha256).hexdigest()[:16]


def decrypt_with(
    keys: Sequence[str],
    cluster: UUID,
    ciphertext: str,
    *,
    purpose: str = PURPOSE,
) -> Secret:
    """Return the secret of a cluster or hub by one of these keys. Raise CredentialsUnreadable."""
    try:
        content: dict[str, Any] = json.loads(_cipher(keys).decrypt(ciphertext.encode()))
    except (InvalidToken, ValueError) as error:
        raise CredentialsUnreadable("no key of this console decrypts them") from error
    bound = {"cluster": str(cluster), "purpose": purpose, "v": VERSION}
    if any(content.pop(key, None) != value for key, value in bound.items()):
        raise CredentialsUnreadable("they belong to another cluster")
    return Secret(content)


def _cipher(keys: Sequence[str]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


@dataclass(frozen=True, slots=True)
class KeyReport:
    """Stored credentials by key; `unreadable` names those that no key decrypts."""

    first_key: int
    other_keys: int
    unreadable: tuple[str, ...]


def check_credentials(*, reencrypt: bool = False) -> KeyReport:
    """Decrypt all stored credentials, of clusters and of hubs. Raise CredentialsUnreadable without keys.

    `reencrypt`: encrypt them with the first key and compute their fingerprints again. What was encrypted with
    it already is left, so that a rotation which was stopped continues. Credentials that change meanwhile are
    left, too: they have the first key.
    """
    keys = encryption_keys()
    first = other = 0
    unreadable = []
    for row, owner in stored_credentials():
        purpose = purpose_of(owner)
        try:
            secret = decrypt_with(keys, owner.uid, row.ciphertext, purpose=purpose)
        except CredentialsUnreadable:
            unreadable.append(f"{_NOUNS.get(type(owner), '')}{owner.name}")
            continue
        if has_first_key(row, owner, keys):
            first += 1
        elif reencrypt:
            same = type(row).objects.filter(pk=row.pk, ciphertext=row.ciphertext)
            ciphertext = encrypt(owner.uid, secret, purpose=purpose)
            same.update(ciphertext=ciphertext, fingerprint=fingerprint(secret))
            first += 1
        else:
            other += 1
    return KeyReport(first, other, tuple(sorted(unreadable)))


def stored_credentials() -> Iterator[tuple[Stored, Owner]]:
    """Yield all credentials with what they belong to, and the addresses of notification channels."""
    last = 0
    rows = ClusterCredential.objects.select_related("cluster").order_by("pk")
    while batch := list(rows.filter(pk__gt=last)[:BATCH]):
        last = batch[-1].pk
        yield from ((row, row.cluster) for row in batch)
    yield from (
        (row, row.hub)
        for row in HubCredential.objects.select_related("hub").order_by("pk")
    )
    yield from ((row, row) for row in NotificationChannel.objects.order_by("pk"))


def purpose_of(owner: Owner) -> str:
    return _PURPOSES[type(owner)]


def has_first_key(row: Stored, owner: Owner, keys: Sequence[str]) -> bool:
    purpose = purpose_of(owner)
    try:
        secret = decrypt_with(keys[:1], owner.uid, row.ciphertext, purpose=purpose)
    except CredentialsUnreadable:
        return False
    return row.fingerprint == fingerprint(secret)


def record_rejection(pk: int, *, revision: int, now: datetime) -> None:
    """Count a 401 answer to a secret; the second in a row blocks calls for five minutes, for all workers."""
    is_blocked = When(
        unauthorized_count__gte=BLOCKED_AFTER - 1, then=Value(now + BLOCKED_FOR)
    )
    # One statement, which a database does as a whole or not at all.
    ClusterCredential.objects.filter(pk=pk, revision=revision).update(
        unauthorized_count=F("unauthorized_count") + 1,
        unauthorized_since=Coalesce("unauthorized_since", Value(now)),
        blocked_until=Case(is_blocked, default="blocked_until"),
    )


def record_acceptance(pk: int, *, revision: int) -> None:
    """Forget the 401 answers to a secret, since a call with it succeeded."""
    ClusterCredential.objects.filter(pk=pk, revision=revision).update(
        unauthorized_count=0, unauthorized_since=None, blocked_until=None
    )


def public_facts(credential: Credential | None) -> dict[str, Any] | None:
    """Return what events and REST show of a credential."""
    if credential is None:
        return None
    expires_at = credential.expires_at
    return {
        "kind": credential.kind,
        "subject": credential.subject,
        "fingerprint": credential.fingerprint,
        "expiresAt": expires_at and expires_at.isoformat(),
    }


def days_left(credential: Credential, *, now: datetime) -> int | None:
    """Return the smallest number of days of a notice that is due; None before the first one."""
    left = credential.expires_at - now if credential.expires_at else None
    return next(
        (
            days
            for days in NOTICE_DAYS
            if left is not None and left <= timedelta(days=days)
        ),
        None,
    )


def notice_due(*, now: datetime) -> Q:
    """Return the condition of a credential of which a notice is due: it expires and is not renewed."""
    due = Q()
    for threshold in NOTICE_DAYS:
        is_new = Q(notified_days=None) | Q(notified_days__gt=threshold)
        due |= Q(expires_at__lte=now + timedelta(days=threshold)) & is_new
    return due & ~Q(renew_at__isnull=False, renewal_error="")


def expiry_notice(credential: Credential, *, now: datetime) -> str:
    """Return the notice about the expiry of credentials; "" while there is none."""
    is_renewed = credential.renew_at is not None and not credential.renewal_error
    if (
        credential.expires_at is None
        or is_renewed
        or days_left(credential, now=now) is None
    ):
        return ""
    verb = "expired" if credential.expires_at <= now else "expires"
    reason = "cannot renew; " if credential.renewal_error else ""
    return f"{reason}{verb} on {credential.expires_at:%Y-%m-%d}"
