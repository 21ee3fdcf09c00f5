"""Credentials that expire by time on a real API server: warned about, named, renewed, replaced."""

import base64
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from django.test import Client

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.client import Client as KubernetesClient
from clusters.models import ClusterCredential, MemberCluster
from clusters.operations.connection import ConnectionInput, renew_due, set_connection
from clusters.operations.credentials import CLUSTER, notify_expiring
from fleetui.models import Event
from tests.clusters.kubernetes.certificates import key_pem
from tests.kubernetes.faults import ACCOUNTS, BLUE, EVERYTHING, FaultWorld
from tests.kubernetes.members import RULES, Member, await_true
from tests.kubernetes.test_faults import HEALED_WITHIN, has, texts, unescaped

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
LEEWAY = timedelta(minutes=1)
"""So long after its expiry an API server of this version accepts a token."""
NO_RENEWAL = [
    {
        "apiGroups": [""],
        "resources": ["namespaces", "configmaps", "nodes", "pods"],
        "verbs": ["*"],
    },
    {"nonResourceURLs": ["*"], "verbs": ["get"]},
]


@pytest.fixture
def world(two_clusters: FaultWorld) -> FaultWorld:
    return two_clusters


def private_key(member: Member, name: str) -> rsa.RSAPrivateKey:
    path = member.folder / f"c{member.number}" / name
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


def signed_token(world: FaultWorld, account: str, *, expires: timedelta) -> str:
    """Sign a token as the API server of the second cluster would, but with any expiry."""
    member, now = world.members["two"], datetime.now(UTC)
    found = world.two.get(f"{ACCOUNTS}/{account}")["metadata"]
    issuer = f"https://member-{member.number}.test"
    claims = {
        "iss": issuer,
        "aud": [issuer],
        "sub": f"system:serviceaccount:fleetui-system:{account}",
        "iat": int((now - timedelta(hours=1)).timestamp()),
        "nbf": int((now - timedelta(hours=1)).timestamp()),
        "exp": int((now + expires).timestamp()),
        "kubernetes.io": {
            "namespace": "fleetui-system",
            "serviceaccount": {"name": account, "uid": found["uid"]},
        },
    }
    parts = [
        encoded(json.dumps(document).encode())
        for document in ({"alg": "RS256", "typ": "JWT"}, claims)
    ]
    text = ".".join(parts)
    signature = private_key(member, "sa.key").sign(
        text.encode(), padding.PKCS1v15(), hashes.SHA256()
    )
    return f"{text}.{encoded(signature)}"


def client_certificate(member: Member, *, valid: timedelta) -> dict[str, str]:
    """Issue a client certificate of an administrator that is valid for so long."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    names = [
        (NameOID.ORGANIZATION_NAME, "system:masters"),
        (NameOID.COMMON_NAME, "short-lived"),
    ]
    issuer = x509.load_pem_x509_certificate(member.connection.ca.encode())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(*name) for name in names]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + valid)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .sign(private_key(member, "ca.key"), hashes.SHA256())
    )
    return {
        "certificate": certificate.public_bytes(serialization.Encoding.PEM).decode(),
        "key": key_pem(key),
    }


def is_rejected(member: Member, secret: dict[str, str]) -> Callable[[], bool]:
    """Return a function that returns whether the API server rejects a secret by now."""
    client = KubernetesClient(member.connection, lambda: secret, rules=RULES)

    def check() -> bool:
        try:
            client.request("GET", "/version", deadline=time.monotonic() + 5)
        except DriverUnavailable as error:
            return error.code == "credentials"
        finally:
            client.close_idle(seconds=0)
        return False

    return check


def reconnect(world: FaultWorld, **secret: str) -> None:
    member = world.members["two"]
    fields: dict[str, Any] = {
        "server": member.server,
        "ca": member.connection.ca,
        **secret,
    }
    set_connection("two", ConnectionInput(fields=fields), by=None, now=world.now)


def assert_named_and_alone(world: FaultWorld, client: Client) -> None:
    """Check that the other cluster is served, and that status, REST and pages name the credentials."""
    world.change(BLUE)
    world.pass_time(120, step=15)
    assert has(world, "one", BLUE)
    assert not has(world, "two", BLUE)
    binding = world.binding()
    assert (binding.failure, binding.unavailable_code) == ("unreachable", "credentials")
    assert MemberCluster.objects.get(name="two").unanswered_code == "credentials"
    shown = texts(client)
    for address in ("/api/v1/placements/web/bindings", "rollout", "/clusters/two/"):
        assert "credentials rejected" in unescaped(shown[address]).lower(), address


def heal(world: FaultWorld) -> None:
    world.run(until=lambda: has(world, "two", BLUE), seconds=HEALED_WITHIN, step=15)
    world.settle()
    assert world.binding().unavailable_code == ""


def test_a_token_that_expires_is_warned_about_named_and_replaced(
    world: FaultWorld, admin_client: Client
) -> None:
    world.place_on_all()
    world.use_account("expiring")
    world.allow("expiring", NO_RENEWAL)
    reconnect(world, token=signed_token(world, "expiring", expires=timedelta(days=13)))
    assert renew_due(now=world.now + timedelta(days=7)) == 0
    assert "403" in ClusterCredential.objects.get(cluster__name="two").renewal_error

    assert notify_expiring(CLUSTER, now=world.now) == 1
    warned = Event.objects.filter(verb="credentials expiring").get()
    assert warned.after["notice"].startswith("cannot renew; expires on ")
    assert warned.after["notice"] in unescaped(
        admin_client.get("/clusters/two/connection/", follow=True).content.decode()
    )

    token = signed_token(world, "expiring", expires=timedelta(seconds=3) - LEEWAY)
    reconnect(world, token=token)  # accepted for three more seconds
    await_true(is_rejected(world.members["two"], {"token": token}), seconds=40)
    assert_named_and_alone(world, admin_client)

    reconnect(world, token=signed_token(world, "expiring", expires=timedelta(hours=1)))
    heal(world)


def test_a_token_that_may_be_renewed_is_replaced_before_it_expires(
    world: FaultWorld,
) -> None:
    world.place_on_all()
    world.use_account("renewing")
    world.allow("renewing", EVERYTHING)
    token = signed_token(world, "renewing", expires=timedelta(seconds=5) - LEEWAY)
    reconnect(world, token=token)
    before = ClusterCredential.objects.get(cluster__name="two")
    assert before.renew_at is not None
    assert before.renew_at <= world.now  # more than half of its hour is over

    assert renew_due(now=world.now) == 1
    await_true(is_rejected(world.members["two"], {"token": token}), seconds=40)

    after = ClusterCredential.objects.get(cluster__name="two")
    assert after.revision == before.revision + 1
    assert after.expires_at is not None
    assert after.expires_at > datetime.now(UTC) + timedelta(minutes=9)
    world.change(BLUE)
    heal(world)
    assert MemberCluster.objects.get(name="two").unanswered_code == ""


def test_a_client_certificate_that_expires_is_named_and_replaced(
    world: FaultWorld, admin_client: Client
) -> None:
    world.place_on_all()
    secret = client_certificate(world.members["two"], valid=timedelta(seconds=4))
    reconnect(world, **secret)
    assert (
        notify_expiring(CLUSTER, now=world.now) == 1
    )  # at once, as this is less than 14 days
    await_true(is_rejected(world.members["two"], secret), seconds=30)

    assert_named_and_alone(world, admin_client)

    reconnect(
        world, **client_certificate(world.members["two"], valid=timedelta(days=30))
    )
    heal(world)
    credential = ClusterCredential.objects.get(cluster__name="two")
    assert (credential.kind, credential.subject) == ("certificate", "short-lived")
