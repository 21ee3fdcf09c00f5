"""Connections to real API servers: the prepared account, its check and renewal, rejected credentials."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from clusters.credentials import decrypt
from clusters.driver_factory import driver_for
from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes.check import CheckStep
from clusters.kubeconfig import facts_of
from clusters.models import ClusterCredential, MemberCluster
from clusters.operations.connection import (
    ConnectionCheckFailed,
    ConnectionInput,
    SavedConnection,
    check_stored_connection,
    renew_due,
    set_connection,
)
from clusters.preparation import Preparation, preparation_documents
from tests.kubernetes.members import Administrator, Member, await_true

ACCOUNT = "/api/v1/namespaces/fleetui-system/serviceaccounts/fleetui"
PATHS = {
    "Namespace": "/api/v1/namespaces/{name}",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts/{name}",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles/{name}",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{name}",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles/{name}",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}",
}
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("local_drivers")]


@pytest.fixture
def token(admin: Administrator) -> str:
    """Apply the manifest of a prepared cluster, and return a token of its account."""
    return prepared(admin, Preparation())


def prepared(admin: Administrator, chosen: Preparation) -> str:
    admin.forget_inventories()
    for document in preparation_documents(chosen):
        metadata: dict[str, str] = document["metadata"]
        admin.apply(
            PATHS[document["kind"]].format_map({"namespace": "", **metadata}), document
        )
    return issue(admin, seconds=3600)


def issue(admin: Administrator, *, seconds: int, **spec: Any) -> str:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, **spec},
    }
    return str(admin.create(f"{ACCOUNT}/token", body)["status"]["token"])


def connect(
    member: Member, token: str, **options: Any
) -> SavedConnection[MemberCluster]:
    fields = {
        "server": member.connection.server,
        "ca": member.connection.ca,
        "token": token,
    }
    now = datetime.now(UTC)
    return set_connection(
        "member",
        ConnectionInput(fields=fields),
        by=None,
        now=now,
        joins=True,
        **options,
    )


def failed(steps: tuple[CheckStep, ...]) -> list[str]:
    return [step.step for step in steps if step.ok is False]


def test_the_prepared_account_passes_the_check(member: Member, token: str) -> None:
    kinds = [
        ("apps/v1", "Deployment"),
        ("v1", "Secret"),
        ("rbac.authorization.k8s.io/v1", "Role"),
    ]

    saved = connect(member, token, kinds=kinds)

    assert failed(saved.result.steps) == []
    assert {step.step for step in saved.result.steps} >= {
        "patch deployments.apps",
        "delete secrets",
        "list nodes",
    }
    credential = ClusterCredential.objects.get()
    assert credential.subject == "system:serviceaccount:fleetui-system:fleetui"
    assert credential.expires_at is not None
    row = MemberCluster.objects.select_related("credential").get()
    assert driver_for(row).observe().is_healthy


def test_what_the_account_may_not_do_is_named(
    member: Member, admin: Administrator
) -> None:
    token = prepared(admin, Preparation(pods=False))

    with pytest.raises(ConnectionCheckFailed) as error:
        connect(member, token, kinds=[("rbac.authorization.k8s.io/v1", "ClusterRole")])

    verbs = ("get", "create", "patch", "delete")
    wanted = [
        "list pods",
        *(f"{verb} clusterroles.rbac.authorization.k8s.io" for verb in verbs),
    ]
    assert failed(error.value.result.steps) == wanted


def test_the_account_renews_its_token(
    member: Member, admin: Administrator, token: str
) -> None:
    connect(member, token)
    while issue(admin, seconds=3600) == token:  # tokens of the same second are equal
        pass
    before = ClusterCredential.objects.get()
    assert before.renew_at is not None

    assert renew_due(now=before.renew_at + timedelta(seconds=1)) == 1

    after = ClusterCredential.objects.select_related("cluster").get()
    assert (after.revision, after.renewal_error) == (2, "")
    assert after.fingerprint != before.fingerprint
    assert decrypt(after.cluster.uid, after.ciphertext).values != {"token": token}
    assert failed(check_stored_connection("member").steps) == []


@pytest.mark.usefixtures("token")
def test_a_renewed_token_ends_with_the_secret_that_it_is_bound_to(
    member: Member, admin: Administrator
) -> None:
    secrets = "/api/v1/namespaces/fleetui-system/secrets"
    created = admin.create(secrets, {"metadata": {"name": "seal"}})
    reference = {
        "apiVersion": "v1",
        "kind": "Secret",
        "name": "seal",
        "uid": created["metadata"]["uid"],
    }
    connect(member, issue(admin, seconds=3600, boundObjectRef=reference))
    due = ClusterCredential.objects.get().renew_at
    assert due is not None

    assert renew_due(now=due + timedelta(seconds=1)) == 1

    row = ClusterCredential.objects.select_related("cluster").get()
    bound = facts_of(decrypt(row.cluster.uid, row.ciphertext)).bound_to
    assert bound == ("Secret", "seal", created["metadata"]["uid"])
    admin.delete(f"{secrets}/seal")
    await_true(
        lambda: failed(check_stored_connection("member").steps) == ["authentication"]
    )


def test_a_wrong_token_is_rejected_and_blocked(member: Member, token: str) -> None:
    with pytest.raises(ConnectionCheckFailed) as error:
        connect(member, f"{token}x")
    assert failed(error.value.result.steps) == ["authentication"]
    connect(member, f"{token}x", confirmed=True)

    codes = []
    for _ in range(3):
        row = MemberCluster.objects.select_related("credential").get()
        with pytest.raises(DriverUnavailable) as unavailable:
            driver_for(row).observe()
        codes.append(
            (unavailable.value.code, unavailable.value.retry_after is not None)
        )

    assert codes == [
        ("credentials", False),
        ("credentials", False),
        ("credentials", True),
    ]


def test_a_frozen_server_ends_the_check_in_time(second_member: Member) -> None:
    second_member.do("freeze")
    try:
        started = time.monotonic()
        with pytest.raises(ConnectionCheckFailed) as error:
            connect(second_member, "any")
        duration = time.monotonic() - started
    finally:
        second_member.do("thaw")

    assert failed(error.value.result.steps) == ["TLS"]
    assert duration < 11
