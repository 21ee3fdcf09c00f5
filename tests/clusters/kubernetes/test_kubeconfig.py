"""Kubeconfigs and separate fields: every row of the tables of `rules/kubernetes-driver.md#connections`."""

import base64
import json
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from clusters.drivers.kubernetes.sockets import AddressRules
from clusters.kubeconfig import (
    LONGEST_TOKEN,
    ParsedConnection,
    Secret,
    SecretFacts,
    facts_of,
    parse_fields,
    parse_kubeconfig,
)
from fleetui.apimachinery.errors import InvalidManifest
from tests.clusters.kubernetes.certificates import authority, key_pem

NOW = datetime.now(UTC)
RULES = AddressRules()
SERVER = "https://10.0.0.7:6443"
CA = authority().pem
USER, CLUSTER = "kubeconfig.users[0].user", "kubeconfig.clusters[0].cluster"


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def token_of(**claims: Any) -> str:
    parts = ({"alg": "none"}, claims)
    return ".".join(
        [
            *(
                base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                for part in parts
            ),
            "x",
        ]
    )


def kubeconfig(user: dict[str, Any] | None = None, /, **cluster: Any) -> dict[str, Any]:
    content = {"server": SERVER, "certificate-authority-data": encode(CA), **cluster}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [
            {"name": "main", "context": {"cluster": "one", "user": "fleetui"}}
        ],
        "clusters": [
            {
                "name": "one",
                "cluster": {
                    key: one for key, one in content.items() if one is not None
                },
            }
        ],
        "users": [
            {"name": "fleetui", "user": {"token": "abc"} if user is None else user}
        ],
    }


def errors_of(
    document: object, *, context: str = "", rules: AddressRules = RULES
) -> list[tuple[str, str]]:
    with pytest.raises(InvalidManifest) as error:
        parse_kubeconfig(document, context=context, rules=rules, now=NOW)
    return [(field_error.path, field_error.code) for field_error in error.value.errors]


def field_errors(
    fields: dict[str, Any], *, rules: AddressRules = RULES
) -> list[tuple[str, str]]:
    with pytest.raises(InvalidManifest) as error:
        parse_fields(fields, rules=rules, now=NOW)
    return [(field_error.path, field_error.code) for field_error in error.value.errors]


def test_a_kubeconfig_and_the_fields_have_the_same_result() -> None:
    wanted = ParsedConnection({"server": SERVER, "ca": CA}, Secret({"token": "abc"}))

    assert parse_kubeconfig(kubeconfig(), rules=RULES, now=NOW) == wanted
    assert (
        parse_fields({"server": SERVER, "ca": CA, "token": "abc"}, rules=RULES, now=NOW)
        == wanted
    )
    assert "abc" not in repr(wanted)


def test_all_fields() -> None:
    pair = authority().issue("admin")
    rules = replace(RULES, proxies=frozenset({"http://proxy.test:3128"}))
    user = {
        "client-certificate-data": encode(pair.certificate),
        "client-key-data": encode(pair.key),
    }
    document = kubeconfig(
        user, **{"tls-server-name": "kubernetes", "proxy-url": "http://proxy.test:3128"}
    )

    found = parse_kubeconfig(document, rules=rules, now=NOW)

    connection = {
        "server": SERVER,
        "ca": CA,
        "tlsServerName": "kubernetes",
        "proxy": "http://proxy.test:3128",
    }
    assert found == ParsedConnection(
        connection, Secret({"certificate": pair.certificate, "key": pair.key})
    )


def test_of_several_contexts_one_is_named_and_what_others_need_does_not_matter() -> (
    None
):
    document = kubeconfig()
    document["contexts"].append(
        {"name": "other", "context": {"cluster": "two", "user": "program"}}
    )
    document["users"].append({"name": "program", "user": {"exec": {"command": "aws"}}})
    document["clusters"].append(
        {"name": "two", "cluster": {"server": "https://two.test"}}
    )
    document["current-context"] = "other"

    assert (
        parse_kubeconfig(document, context="main", rules=RULES, now=NOW).connection[
            "server"
        ]
        == SERVER
    )
    assert errors_of(document) == [("context", "required")]
    errors = errors_of(document, context="other")
    assert errors == [("kubeconfig.users[1].user.exec", "not-supported")]


def test_without_a_ca_the_roots_of_the_system_apply() -> None:
    document = kubeconfig(**{"certificate-authority-data": None})

    assert parse_kubeconfig(document, rules=RULES, now=NOW).connection == {
        "server": SERVER
    }


@pytest.mark.parametrize(
    ("user", "path"),
    [
        ({"exec": {"command": "aws"}}, "exec"),
        ({"auth-provider": {"name": "gcp"}}, '["auth-provider"]'),
        ({"client-certificate": "/etc/cert"}, '["client-certificate"]'),
        ({"client-key": "/etc/key"}, '["client-key"]'),
        ({"tokenFile": "/etc/token"}, "tokenFile"),
        ({"username": "a"}, "username"),
        ({"password": "a"}, "password"),
        ({"token": "a", "as": "admin"}, "as"),
        ({"token": "a", "as-groups": ["system:masters"]}, '["as-groups"]'),
        ({"token": "a", "as-uid": "1"}, '["as-uid"]'),
    ],
)
def test_what_is_not_supported_in_a_user(user: dict[str, Any], path: str) -> None:
    place = f"{USER}{path}" if path.startswith("[") else f"{USER}.{path}"

    assert errors_of(kubeconfig(user)) == [(place, "not-supported")]


def test_messages_say_what_to_do() -> None:
    with pytest.raises(InvalidManifest) as error:
        parse_kubeconfig(kubeconfig({"exec": {"command": "aws"}}), rules=RULES, now=NOW)
    assert str(error.value) == (
        "kubeconfig.users[0].user.exec: Not supported: "
        "would run a program chosen by the file on this console; "
        "use a service account token"
    )
    with pytest.raises(
        InvalidManifest, match="use the certificate-authority-data form"
    ):
        parse_kubeconfig(
            kubeconfig(**{"certificate-authority": "/etc/ca"}), rules=RULES, now=NOW
        )


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"current-context": ""}, 'kubeconfig["current-context"]'),
        ({"current-context": "none"}, 'kubeconfig["current-context"]'),
        ({"contexts": None}, 'kubeconfig["current-context"]'),
        ({"clusters": []}, "kubeconfig.contexts[0].context.cluster"),
        ({"users": []}, "kubeconfig.contexts[0].context.user"),
        (
            {"contexts": [{"name": "main", "context": {"cluster": "one"}}]},
            "kubeconfig.contexts[0].context.user",
        ),
        (
            {"users": [{"name": "fleetui", "user": {"token": "a"}}] * 2},
            "kubeconfig.users",
        ),
        (
            {"clusters": [{"name": "one", "cluster": {"server": SERVER}}] * 2},
            "kubeconfig.clusters",
        ),
        (
            {
                "contexts": [
                    {"name": "main", "context": {"cluster": "one", "user": "fleetui"}}
                ]
                * 2
            },
            "kubeconfig.contexts",
        ),
    ],
)
def test_references(change: dict[str, Any], path: str) -> None:
    assert errors_of({**kubeconfig(), **change}) == [(path, "bad-reference")]


def test_an_unknown_context_of_the_request() -> None:
    assert errors_of(kubeconfig(), context="none") == [("context", "bad-reference")]


@pytest.mark.parametrize(
    "server",
    ["http://a.test", "ftp://a.test", "https://", "https://a.test:0", "a.test"],
)
def test_servers(server: str) -> None:
    assert errors_of(kubeconfig(server=server)) == [(f"{CLUSTER}.server", "bad-format")]
    assert field_errors({"server": server, "token": "a"}) == [("server", "bad-format")]


def test_base64_and_pem() -> None:
    path = f'{CLUSTER}["certificate-authority-data"]'
    assert errors_of(kubeconfig(**{"certificate-authority-data": "%%%"})) == [
        (path, "bad-format")
    ]
    assert errors_of(
        kubeconfig(**{"certificate-authority-data": encode("no PEM")})
    ) == [(path, "bad-format")]
    assert errors_of(kubeconfig(**{"certificate-authority-data": encode(CA * 21)})) == [
        (path, "bad-format")
    ]
    user = {"client-certificate-data": "%%%", "client-key-data": "%%%"}
    assert errors_of(kubeconfig(user)) == [
        (f'{USER}["client-certificate-data"]', "bad-format"),
        (f'{USER}["client-key-data"]', "bad-format"),
    ]


def test_client_certificates() -> None:
    pair, other = authority().issue("admin"), authority().issue("other")
    expired = authority().issue("old", days=-1)
    encrypted = key_pem(ec.generate_private_key(ec.SECP256R1()), password=b"secret")

    def errors(**fields: str) -> list[tuple[str, str]]:
        return field_errors({"server": SERVER, **fields})

    assert errors(certificate=pair.certificate) == [("certificate", "bad-format")]
    assert errors(key=pair.key) == [("key", "bad-format")]
    assert errors(certificate=pair.certificate, key=other.key) == [
        ("key", "bad-format")
    ]
    assert errors(certificate=pair.certificate, key=encrypted) == [
        ("key", "bad-format")
    ]
    assert errors(certificate="x", key="x") == [
        ("certificate", "bad-format"),
        ("key", "bad-format"),
    ]
    assert errors(certificate=expired.certificate, key=expired.key) == [
        ("certificate", "expired")
    ]
    assert errors(certificate=pair.certificate, key=pair.key, token="a") == [
        ("token", "conflict")
    ]


@pytest.mark.parametrize(
    ("token", "code"),
    [
        *((token, "bad-format") for token in ("a b", "a\n", "a\x00", "é")),
        ("a" * (LONGEST_TOKEN + 1), "too-long"),
    ],
)
def test_tokens(token: str, code: str) -> None:
    assert field_errors({"server": SERVER, "token": token}) == [("token", code)]
    assert errors_of(kubeconfig({"token": token})) == [(f"{USER}.token", code)]


def test_insecure_tls() -> None:
    key = "insecure-skip-tls-verify"
    allowed = replace(RULES, allow_insecure_tls=True)
    document = kubeconfig(**{key: True, "certificate-authority-data": None})
    with pytest.raises(InvalidManifest) as error:
        parse_kubeconfig(document, rules=RULES, now=NOW)
    assert str(error.value) == (
        f'{CLUSTER}["{key}"]: TLS verification cannot be turned off here; give the CA certificate, '
        "or set FLEETUI_ALLOW_INSECURE_TLS=1 on this console"
    )
    assert error.value.errors[0].code == "not-supported"

    found = parse_kubeconfig(document, rules=allowed, now=NOW)
    assert found.connection == {"server": SERVER, "insecureTLS": True}
    both = kubeconfig(**{key: True})
    assert errors_of(both, rules=allowed) == [
        (f'{CLUSTER}["certificate-authority-data"]', "conflict")
    ]


def test_in_cluster_needs_permission() -> None:
    fields = {"inCluster": True}

    assert field_errors(fields) == [("inCluster", "not-supported")]
    allowed = replace(RULES, allow_in_cluster=True)
    assert parse_fields(fields, rules=allowed, now=NOW) == ParsedConnection(
        {"inCluster": True}
    )
    assert field_errors({**fields, "token": "a"}, rules=allowed) == [
        ("token", "conflict")
    ]


def test_only_listed_proxies() -> None:
    fields = {"server": SERVER, "token": "a", "proxy": "http://proxy.test:3128"}

    assert field_errors(fields) == [("proxy", "not-supported")]


@pytest.mark.parametrize(
    "document", [None, [], "text", {}, {"contexts": "x", "current-context": 7}]
)
def test_other_documents(document: object) -> None:
    assert errors_of(document)


def test_odd_types_are_errors() -> None:
    for path in ("contexts", "clusters", "users"):
        for odd in ("x", [1], [{"name": "main"}], [{"name": "one", "cluster": 1}]):
            assert errors_of({**kubeconfig(), path: odd})
    for user in ({"token": 7}, {"client-certificate-data": 7, "client-key-data": []}):
        assert errors_of(kubeconfig(user))
    assert errors_of(kubeconfig(server=7)) == [(f"{CLUSTER}.server", "wrong-type")]


def test_nothing_secret_in_messages() -> None:
    pair = authority().issue("admin")
    document = kubeconfig(
        {"token": "marker secret", "client-key-data": encode(pair.key)}
    )
    with pytest.raises(InvalidManifest) as error:
        parse_kubeconfig(deepcopy(document), rules=RULES, now=NOW)

    assert "marker" not in str(error.value)


def test_facts_of_tokens() -> None:
    token = token_of(
        sub="system:serviceaccount:fleetui-system:fleetui", iat=1000, exp=5000
    )
    facts = facts_of(Secret({"token": token}))

    assert facts == SecretFacts(
        "token",
        "system:serviceaccount:fleetui-system:fleetui",
        datetime(1970, 1, 1, 0, 16, 40, tzinfo=UTC),
        datetime(1970, 1, 1, 1, 23, 20, tzinfo=UTC),
    )
    assert facts.service_account == ("fleetui-system", "fleetui")


@pytest.mark.parametrize(
    "token",
    [
        "abc",
        "a.b.c",
        "a.%%%.c",
        token_of(sub=7, exp="soon"),
        token_of(exp=10**30, iat=True, sub="\n"),
    ],
)
def test_a_token_without_readable_claims(token: str) -> None:
    facts = facts_of(Secret({"token": token}))

    assert facts == SecretFacts("token", "", None, None)
    assert facts.service_account is None


def test_facts_of_certificates() -> None:
    pair = authority().issue("admin", days=10)
    facts = facts_of(Secret({"certificate": pair.certificate, "key": pair.key}))

    assert (facts.kind, facts.subject) == ("certificate", "admin")
    assert facts.expires_at is not None
    assert 9 <= (facts.expires_at - NOW).days <= 10
