"""Secrets at rest (`rules/kubernetes-driver.md#secrets`): encryption, keys, rotation, blocking."""

import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from django.test import override_settings

from clusters.credentials import (
    HUB_PURPOSE,
    CredentialsUnreadable,
    KeyReport,
    add_key,
    check_credentials,
    decrypt,
    encrypt,
    encryption_keys,
    fingerprint,
    record_acceptance,
    record_rejection,
)
from clusters.kubeconfig import Secret
from clusters.models import ClusterCredential, Hub, HubCredential
from fleetui.encryption import keep_keys
from tests.clusters.kubernetes.conftest import KEYS
from tests.rows import joined

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
SECRET = Secret({"token": "marker-token"})
UID = uuid4()


def stored(name: str, secret: Secret = SECRET) -> ClusterCredential:
    cluster = joined(name)
    return ClusterCredential.objects.create(
        cluster=cluster,
        ciphertext=encrypt(cluster.uid, secret),
        kind=secret.kind,
        fingerprint=fingerprint(secret),
        set_by="ana",
        set_at=NOW,
    )


@pytest.fixture
def key_file(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "credential.keys"
    with override_settings(CREDENTIAL_KEYS=(), CREDENTIAL_KEY_FILE=path):
        yield path


def test_a_secret_comes_back_and_is_not_in_the_ciphertext() -> None:
    ciphertext = encrypt(UID, SECRET)

    assert decrypt(UID, ciphertext) == SECRET
    assert "marker" not in ciphertext
    assert encrypt(UID, SECRET) != ciphertext
    assert "marker" not in repr(SECRET)


def test_it_does_not_decrypt_for_another_cluster_or_with_another_key() -> None:
    ciphertext = encrypt(UID, SECRET)

    with pytest.raises(CredentialsUnreadable, match="another cluster") as error:
        decrypt(uuid4(), ciphertext)
    assert error.value.code == "credentials-unreadable"
    for broken in ("", "x", ciphertext[:-2], "marker-token"):
        with pytest.raises(CredentialsUnreadable, match="no key"):
            decrypt(UID, broken)
    with (
        override_settings(CREDENTIAL_KEYS=KEYS[1:]),
        pytest.raises(CredentialsUnreadable, match="no key"),
    ):
        decrypt(UID, ciphertext)


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    ciphertext = encrypt(UID, SECRET)
    with override_settings(CREDENTIAL_KEYS=KEYS[::-1]):
        assert decrypt(UID, ciphertext) == SECRET
        newer = encrypt(UID, SECRET)
    with override_settings(CREDENTIAL_KEYS=KEYS[1:]):
        assert decrypt(UID, newer) == SECRET


def test_fingerprints_depend_on_secret_and_key() -> None:
    found = fingerprint(SECRET)

    assert len(found) == 16
    assert found == fingerprint(Secret({"token": "marker-token"}))
    assert found != fingerprint(Secret({"token": "other"}))
    with override_settings(CREDENTIAL_KEYS=KEYS[1:]):
        assert found != fingerprint(SECRET)


def test_the_key_file(key_file: Path) -> None:
    with pytest.raises(CredentialsUnreadable, match=r"credential\.keys is missing"):
        encryption_keys()

    keep_keys()
    (key,) = encryption_keys()
    keep_keys()
    assert encryption_keys() == (key,)
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600

    add_key()
    assert encryption_keys()[1:] == (key,)
    assert len(encryption_keys()) == 2
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    key_file.write_text("nonsense")
    with pytest.raises(CredentialsUnreadable, match="does not hold Fernet keys"):
        encryption_keys()


@pytest.mark.django_db
def test_rotation_encrypts_with_the_first_key_and_names_what_it_cannot_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("clusters.credentials.BATCH", 2)
    rows = [stored(f"member-{number}") for number in range(5)]
    lost = stored("lost")
    ClusterCredential.objects.filter(pk=lost.pk).update(ciphertext=rows[0].ciphertext)

    with override_settings(CREDENTIAL_KEYS=KEYS[::-1]):
        assert check_credentials() == KeyReport(0, 5, ("lost",))
        assert check_credentials(reencrypt=True) == KeyReport(5, 0, ("lost",))
        assert check_credentials() == KeyReport(5, 0, ("lost",))
    with override_settings(CREDENTIAL_KEYS=KEYS[1:]):
        row = ClusterCredential.objects.select_related("cluster").get(pk=rows[3].pk)
        assert decrypt(row.cluster.uid, row.ciphertext) == SECRET
        assert row.fingerprint == fingerprint(SECRET)
        assert row.revision == 1


@pytest.mark.django_db
def test_credentials_of_hubs_are_checked_and_rotated_as_well() -> None:
    hubs = [
        Hub.objects.create(
            name=name, kind="kubefleet", created_at=NOW, created_by="ana"
        )
        for name in ("prod-eu", "lost")
    ]
    for hub in hubs:
        # That of the second one belongs to the first.
        HubCredential.objects.create(
            hub=hub,
            ciphertext=encrypt(hubs[0].uid, SECRET, purpose=HUB_PURPOSE),
            kind="token",
            fingerprint=fingerprint(SECRET),
            set_by="ana",
            set_at=NOW,
        )
    stored("member")

    with override_settings(CREDENTIAL_KEYS=KEYS[::-1]):
        assert check_credentials() == KeyReport(0, 2, ("hub lost",))
        assert check_credentials(reencrypt=True) == KeyReport(2, 0, ("hub lost",))
    with override_settings(CREDENTIAL_KEYS=KEYS[1:]):
        row = HubCredential.objects.get(hub=hubs[0])
        assert decrypt(hubs[0].uid, row.ciphertext, purpose=HUB_PURPOSE) == SECRET
        assert (row.fingerprint, row.revision) == (fingerprint(SECRET), 1)


@pytest.mark.django_db
def test_the_second_rejection_in_a_row_blocks_for_five_minutes() -> None:
    row = stored("member")

    record_rejection(row.pk, revision=1, now=NOW)
    row.refresh_from_db()
    assert (row.unauthorized_count, row.unauthorized_since, row.blocked_until) == (
        1,
        NOW,
        None,
    )

    later = NOW + timedelta(minutes=1)
    record_rejection(row.pk, revision=1, now=later)
    row.refresh_from_db()
    assert (row.unauthorized_count, row.unauthorized_since) == (2, NOW)
    assert row.blocked_until == later + timedelta(minutes=5)

    record_rejection(row.pk, revision=7, now=later)  # of a secret that was replaced
    record_acceptance(row.pk, revision=1)
    row.refresh_from_db()
    assert (row.unauthorized_count, row.unauthorized_since, row.blocked_until) == (
        0,
        None,
        None,
    )
