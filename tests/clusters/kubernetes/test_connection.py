"""Connections: the check before saving, events, kept and removed secrets, renewal, notices."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from clusters.credentials import decrypt, expiry_notice
from clusters.drivers.base import KUBERNETES, DriverRejected
from clusters.models import ClusterCredential, MemberCluster
from clusters.operations.connection import (
    INSECURE_WARNING,
    ConnectionCheckFailed,
    ConnectionInput,
    ConnectionNotAllowed,
    NoConnectionError,
    SavedConnection,
    check_stored_connection,
    remove_connection,
    renew_credentials,
    renew_due,
    set_connection,
)
from clusters.operations.credentials import CLUSTER, notify_expiring
from clusters.operations.edit import UnknownClusterError, leave
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.concurrency import RevisionConflict
from fleetui.models import Event
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.local_members import TOKEN
from tests.clusters.kubernetes.servers import LocalServer, Member, serve
from tests.clusters.kubernetes.test_kubeconfig import encode, token_of
from tests.rows import joined, simulated

NOW = datetime.now(UTC).replace(microsecond=0)
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("local_drivers")]


def fields_of(server: LocalServer, /, **changes: Any) -> ConnectionInput:
    return ConnectionInput(
        fields={"server": server.url, "ca": authority().pem, "token": TOKEN, **changes}
    )


def save(
    wanted: ConnectionInput, name: str = "member", **options: Any
) -> SavedConnection[MemberCluster]:
    return set_connection(name, wanted, by=None, now=NOW, **options)


def credential() -> ClusterCredential:
    return ClusterCredential.objects.select_related("cluster").get()


def events(verb: str) -> list[tuple[Any, Any]]:
    return list(
        Event.objects.filter(verb=verb).order_by("pk").values_list("before", "after")
    )


def account_token(
    *,
    lifetime: timedelta = timedelta(days=30),
    age: timedelta = timedelta(),
    **claims: Any,
) -> str:
    issued = NOW - age
    return token_of(
        sub="system:serviceaccount:fleetui-system:fleetui",
        iat=int(issued.timestamp()),
        exp=int((issued + lifetime).timestamp()),
        **claims,
    )


@pytest.mark.nightly
def test_a_connection_is_checked_and_saved(server: LocalServer) -> None:
    joined("member")

    saved = save(fields_of(server))

    steps = {step.step: (step.ok, step.message) for step in saved.result.steps}
    assert list(steps)[:5] == ["address", "TCP", "TLS", "version", "authentication"]
    assert all(ok for ok, _ in steps.values())
    assert steps["address"] == (True, "127.0.0.1 is 127.0.0.1")
    assert steps["version"] == (True, "Kubernetes v1.30.1")
    assert steps["TLS"][1].startswith(
        "certificate of member, issued by test, valid until "
    )
    assert steps["create configmaps in fleetui-system"] == (True, "allowed")
    assert "list nodes" in steps
    assert (saved.owner.driver, saved.owner.connection) == (
        KUBERNETES,
        {"server": server.url, "ca": authority().pem},
    )
    row = credential()
    assert decrypt(row.cluster.uid, row.ciphertext).values == {"token": TOKEN}
    facts = {
        "kind": "token",
        "subject": "",
        "fingerprint": row.fingerprint,
        "expiresAt": None,
    }
    assert events("credentials set") == [(None, facts)]


@pytest.mark.nightly
def test_a_kubeconfig_gives_the_same(server: LocalServer) -> None:
    joined("member")
    document = {
        "current-context": "other",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": server.url,
                    "certificate-authority-data": encode(authority().pem),
                },
            }
        ],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
    }

    saved = save(ConnectionInput(kubeconfig=json.dumps(document), context="main"))

    assert saved.owner.connection == {"server": server.url, "ca": authority().pem}
    document["clusters"] = [
        {"name": "c", "cluster": {"server": "https://169.254.169.254"}}
    ]
    with pytest.raises(InvalidManifest) as error:
        save(ConnectionInput(kubeconfig=json.dumps(document), context="main"))
    (one,) = error.value.errors
    assert (one.path, one.code) == (
        "kubeconfig.clusters[0].cluster.server",
        "address-not-allowed",
    )
    assert "169.254.169.254" in one.message


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a: &a [1, 1]\nb: *a\n" * 2, "duplicate"),
        ("x" * (256 * 1024 + 1), "too-large"),
        ("{", "bad-syntax"),
        ("a: 1\n---\nb: 1\n", "wrong-type"),
        ("- 1", "wrong-type"),
    ],
)
def test_texts_that_are_no_kubeconfig(text: str, code: str) -> None:
    joined("member")
    with pytest.raises(InvalidManifest) as error:
        save(ConnectionInput(kubeconfig=text))
    assert error.value.errors[0].code == code


def test_a_yaml_bomb_is_refused() -> None:
    joined("member")
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(InvalidManifest):
        save(ConnectionInput(kubeconfig="\n".join(lines)))


def test_a_cluster_may_join_by_its_connection(server: LocalServer) -> None:
    with pytest.raises(UnknownClusterError):
        save(fields_of(server), name="other")

    saved = save(fields_of(server), name="other", joins=True)

    assert saved.is_new
    assert saved.owner.membership == "joining"
    with pytest.raises(ConnectionNotAllowed, match="in the fleet already"):
        save(fields_of(server), name="other", joins=True)


@pytest.mark.nightly
def test_a_failed_check_saves_only_after_confirmation(
    server: LocalServer, member: Member
) -> None:
    joined("member")
    member.denied = {"list nodes", "list pods"}

    with pytest.raises(ConnectionCheckFailed) as error:
        save(fields_of(server))
    assert [step.step for step in error.value.result.steps if not step.ok] == [
        "list nodes",
        "list pods",
    ]
    assert not ClusterCredential.objects.exists()
    assert MemberCluster.objects.get().driver == ""

    assert save(fields_of(server), confirmed=True).owner.driver == KUBERNETES
    member.denied = {"list pods"}  # not required
    assert save(fields_of(server, token=TOKEN)).result.steps


def test_a_review_without_an_answer_is_no_refusal(
    server: LocalServer, member: Member
) -> None:
    joined("member")
    member.reviews = False
    with pytest.raises(ConnectionCheckFailed) as error:
        save(fields_of(server))
    failed = {
        step.step: step.message for step in error.value.result.steps if step.ok is False
    }
    assert failed == {
        "authentication": "the credentials may not review their own access"
    }


def test_steps_after_a_failed_one_are_not_run(server: LocalServer) -> None:
    joined("member")
    for changes, failed, rest in (
        ({"token": "wrong"}, "authentication", 2),
        ({"ca": authority("other").pem}, "TLS", 4),
        ({"server": "https://127.0.0.1:1"}, "TCP", 5),
        ({"server": "https://none.invalid"}, "address", 6),
    ):
        with pytest.raises(ConnectionCheckFailed) as error:
            save(fields_of(server, **changes))
        steps = error.value.result.steps
        assert [step.step for step in steps if step.ok is False] == [failed]
        assert [step.message for step in steps if step.ok is None] == ["not run"] * rest


def test_the_kinds_that_are_placed_are_checked(
    server: LocalServer, member: Member
) -> None:
    joined("member")
    member.denied = {"patch deployments"}
    with pytest.raises(ConnectionCheckFailed) as error:
        save(
            fields_of(server),
            kinds=[("apps/v1", "Deployment"), ("example.com/v1", "Crontab")],
        )

    failed = {
        step.step: step.message for step in error.value.result.steps if step.ok is False
    }
    assert failed == {
        "patch deployments.apps": "not allowed",
        "Crontab in example.com/v1": "the cluster serves no Crontab in example.com/v1",
    }


def test_the_stored_connection_is_checked(server: LocalServer, member: Member) -> None:
    joined("member")
    with pytest.raises(NoConnectionError):
        check_stored_connection("member")
    save(fields_of(server))
    member.tokens = set()

    steps = check_stored_connection("member").steps
    assert [step.step for step in steps if step.ok is False] == ["authentication"]
    with override_settings(CREDENTIAL_KEYS=(("B" * 43 + "="),)):
        assert [
            (step.step, step.ok) for step in check_stored_connection("member").steps
        ] == [("credentials", False)]


@pytest.mark.nightly
def test_the_same_again_changes_nothing(server: LocalServer) -> None:
    joined("member")
    first = save(fields_of(server))

    for wanted in (fields_of(server), fields_of(server, token="")):
        again = save(wanted)
        assert again.owner.revision == first.owner.revision
        assert credential().revision == 1
    assert len(events("credentials set")) == 1


def test_another_server_does_not_get_the_stored_secret(server: LocalServer) -> None:
    joined("member")
    save(fields_of(server))

    for changes in ({"server": "https://127.0.0.1:1"}, {"tlsServerName": "other"}):
        with pytest.raises(InvalidManifest) as error:
            save(fields_of(server, token="", **changes))
        assert [
            (field_error.path, field_error.code) for field_error in error.value.errors
        ] == [("token", "required")]


@pytest.mark.nightly
def test_a_new_secret_has_a_new_revision_and_ends_a_block(
    server: LocalServer, member: Member
) -> None:
    joined("member")
    save(fields_of(server))
    ClusterCredential.objects.update(
        unauthorized_count=2,
        unauthorized_since=NOW,
        blocked_until=NOW + timedelta(minutes=5),
    )
    member.tokens.add("newer")

    save(fields_of(server, token="newer"))

    row = credential()
    assert (row.revision, row.unauthorized_count, row.blocked_until) == (2, 0, None)
    (_, first), (before, after) = events("credentials set")
    assert before == first
    assert after["fingerprint"] == row.fingerprint != first["fingerprint"]


def test_what_cannot_have_a_connection(server: LocalServer) -> None:
    simulated("simulated")
    joined("leaving")
    leave(["leaving"], by=None, now=NOW)
    for name in ("simulated", "leaving"):
        with pytest.raises(ConnectionNotAllowed, match=name):
            save(fields_of(server), name=name)
    joined("member")
    with pytest.raises(RevisionConflict):
        save(fields_of(server), expected=7)


def test_a_connection_is_removed(server: LocalServer) -> None:
    joined("member")
    save(fields_of(server))
    facts = events("credentials set")[0][1]

    row = remove_connection("member", by=None, now=NOW)

    assert (row.driver, row.connection) == ("", {})
    assert not ClusterCredential.objects.exists()
    assert events("credentials removed") == [(facts, None)]
    with pytest.raises(NoConnectionError):
        remove_connection("member", by=None, now=NOW)


@override_settings(ALLOW_INSECURE_TLS=True)
def test_insecure_tls_warns_and_leaves_an_event() -> None:
    joined("member")
    with serve(Member(), pair=authority("other").issue()) as server:
        saved = save(
            ConnectionInput(
                fields={"server": server.url, "insecureTLS": True, "token": TOKEN}
            )
        )

    assert saved.warnings == (INSECURE_WARNING,)
    assert len(events("TLS verification off")) == 1
    tls = next(step for step in saved.result.steps if step.step == "TLS")
    assert tls.message == "the certificate of the server was not verified"


def test_a_token_is_renewed_after_half_of_its_lifetime(
    server: LocalServer, member: Member
) -> None:
    old, new = account_token(), account_token(age=-timedelta(days=1))
    member.tokens, member.issued = {old}, [new]
    joined("member")
    save(fields_of(server, token=old))
    row = credential()
    assert (row.subject, row.renew_at) == (
        "system:serviceaccount:fleetui-system:fleetui",
        NOW + timedelta(days=15),
    )

    assert renew_due(now=NOW + timedelta(days=14)) == 0
    assert renew_due(now=NOW + timedelta(days=15)) == 1

    row = credential()
    assert decrypt(row.cluster.uid, row.ciphertext).values == {"token": new}
    assert (row.revision, row.renew_at, row.set_by) == (
        2,
        NOW + timedelta(days=16),
        "system",
    )
    assert member.requested == [{"expirationSeconds": 30 * 86_400}]
    ((before, after),) = events("credentials renewed")
    assert before["fingerprint"] != after["fingerprint"] == row.fingerprint


@pytest.mark.parametrize(
    ("claims", "bound"),
    [
        ({"secret": {"name": "seal", "uid": "u-1"}}, ("Secret", "seal", "u-1")),
        (
            {"pod": {"name": "web", "uid": "u-2"}, "node": {"name": "n", "uid": "u-3"}},
            ("Pod", "web", "u-2"),
        ),
        ({"node": {"name": "n", "uid": "u-3"}}, ("Node", "n", "u-3")),
        ({"secret": {"name": "seal"}}, None),
        ({"secret": "seal"}, None),
        ("none", None),
    ],
)
def test_a_token_is_renewed_for_the_object_that_it_is_bound_to(
    server: LocalServer, member: Member, claims: Any, bound: tuple[str, str, str] | None
) -> None:
    named: dict[str, Any] = {"kubernetes.io": claims}
    old, new = (account_token(age=-timedelta(days=days), **named) for days in (0, 1))
    member.tokens, member.issued = {old}, [new]
    joined("member")
    save(fields_of(server, token=old))

    assert renew_due(now=NOW + timedelta(days=15)) == 1

    (requested,) = member.requested
    kind, name, uid = bound or ("", "", "")
    reference = {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}
    assert requested.get("boundObjectRef") == (reference if bound else None)


def test_a_renewal_that_is_refused_is_tried_hourly(
    server: LocalServer, member: Member
) -> None:
    old = account_token()
    member.tokens, member.denied = {old}, {"create serviceaccounts/token"}
    joined("member")
    save(fields_of(server, token=old))
    later = NOW + timedelta(days=15)

    assert [
        renew_due(now=later + timedelta(minutes=minutes)) for minutes in (0, 59, 60)
    ] == [0, 0, 0]

    requests = [
        request for request in server.requests if request.path.endswith("/token")
    ]
    assert len(requests) == 2
    row = credential()
    assert row.renewal_error == "the API server answers 403 to the request for a token"
    soon = NOW + timedelta(days=29)
    assert (
        expiry_notice(row, now=soon)
        == f"cannot renew; expires on {NOW + timedelta(days=30):%Y-%m-%d}"
    )
    with pytest.raises(DriverRejected):
        renew_credentials("member", by=None, now=NOW)


@pytest.mark.nightly
def test_a_new_token_that_does_not_work_is_not_stored(
    server: LocalServer, member: Member
) -> None:
    old = account_token()
    member.tokens, member.issued = {old}, ["does-not-work"]
    joined("member")
    save(fields_of(server, token=old))
    member.tokens = _Fixed({old})

    assert renew_due(now=NOW + timedelta(days=15)) == 0

    row = credential()
    assert (row.revision, row.renewal_error) == (1, "credentials rejected (401)")


class _Fixed(set[str]):
    def add(self, element: str) -> None:
        """Forget the new token at once."""


def test_notices_fourteen_seven_and_one_day_before_the_expiry() -> None:
    pair = authority().issue("admin", days=30)
    joined("member")
    with serve(Member(), client_ca=authority()) as server:
        wanted = {
            "server": server.url,
            "ca": authority().pem,
            "certificate": pair.certificate,
            "key": pair.key,
        }
        save(ConnectionInput(fields=wanted), confirmed=True)
    expires_at = credential().expires_at
    assert expires_at is not None

    found = [
        notify_expiring(CLUSTER, now=expires_at - timedelta(days=days))
        for days in (15, 14, 13, 7, 2, 1, 0)
    ]

    assert found == [0, 1, 0, 1, 0, 1, 0]
    notices = [after["notice"] for _, after in events("credentials expiring")]
    assert notices == [f"expires on {expires_at:%Y-%m-%d}"] * 3
    assert (
        expiry_notice(credential(), now=expires_at)
        == f"expired on {expires_at:%Y-%m-%d}"
    )


@pytest.mark.nightly
def test_a_token_that_is_renewed_gets_no_notice(
    server: LocalServer, member: Member
) -> None:
    token = account_token(lifetime=timedelta(hours=1))
    member.tokens = {token}
    joined("member")
    save(fields_of(server, token=token))

    assert notify_expiring(CLUSTER, now=NOW) == 0
