"""The stored form of a connection: every error with its path."""

from typing import Any

import pytest

from clusters.drivers.kubernetes.configuration import (
    IN_CLUSTER_SERVER,
    Connection,
    ServerAddress,
    parse_connection,
    split_server,
)
from fleetui.apimachinery.errors import InvalidManifest
from tests.clusters.kubernetes.certificates import authority

SERVER = "https://member.test:6443"


def errors_of(connection: object) -> list[tuple[str, str]]:
    with pytest.raises(InvalidManifest) as error:
        parse_connection(connection)
    return [(field_error.path, field_error.code) for field_error in error.value.errors]


def test_all_fields() -> None:
    ca = authority().pem

    found = parse_connection(
        {
            "server": f"{SERVER}/k8s/",
            "ca": ca,
            "tlsServerName": "kubernetes",
            "proxy": "http://proxy.test:3128",
        }
    )

    assert found == Connection(
        f"{SERVER}/k8s", ca, "kubernetes", "http://proxy.test:3128"
    )
    assert parse_connection({"server": SERVER, "insecureTLS": True}).insecure_tls
    assert parse_connection({"inCluster": True}) == Connection(
        IN_CLUSTER_SERVER, in_cluster=True
    )


@pytest.mark.parametrize(
    ("server", "parts"),
    [
        ("https://member.test", ("member.test", 443, "")),
        ("https://10.0.0.7:6443", ("10.0.0.7", 6443, "")),
        ("https://[fd00::7]:6443/k8s/c-1", ("fd00::7", 6443, "/k8s/c-1")),
    ],
)
def test_servers(server: str, parts: tuple[str, int, str]) -> None:
    assert split_server(parse_connection({"server": server}).server) == ServerAddress(
        *parts
    )


@pytest.mark.parametrize(
    "server",
    [
        "http://member.test",
        "ftp://member.test",
        "member.test:6443",
        "https://",
        "https://:6443",
        "//member.test",
        "https://member.test:0",
        "https://member.test:65536",
        "https://member.test:x",
        "https://a b",
        "https://user@member.test",
        "https://user:password@member.test",
        "https://member.test?x=1",
        "https://member.test#x",
        "https://member.test?",
        "https://member.test/a b",
        "https://member.test/\r\nX: y",
        "https://-member.test",
        "https://mem_ber..test",
        "https://[::1",
        "https://" + "a" * 300,
    ],
)
def test_a_server_that_is_refused(server: str) -> None:
    assert ("connection.server", "bad-format") in errors_of({"server": server})


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({}, [("connection.server", "required")]),
        ({"server": SERVER, "ca": "x"}, [("connection.ca", "bad-format")]),
        (
            {"server": SERVER, "ca": authority().pem * 21},
            [("connection.ca", "bad-format")],
        ),
        (
            {
                "server": SERVER,
                "ca": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            },
            [("connection.ca", "bad-format")],
        ),
        ({"server": SERVER, "ca": "x" * 300_000}, [("connection.ca", "too-long")]),
        (
            {"server": SERVER, "ca": authority().pem, "insecureTLS": True},
            [("connection.ca", "conflict")],
        ),
        (
            {"server": SERVER, "tlsServerName": "a b"},
            [("connection.tlsServerName", "bad-format")],
        ),
        (
            {"server": SERVER, "proxy": "socks5://proxy.test:1"},
            [("connection.proxy", "bad-format")],
        ),
        (
            {"server": SERVER, "proxy": "http://user:x@proxy.test:1"},
            [("connection.proxy", "bad-format")],
        ),
        (
            {"server": SERVER, "proxy": "http://proxy.test:1/path"},
            [("connection.proxy", "bad-format")],
        ),
        ({"server": SERVER, "inCluster": True}, [("connection.server", "conflict")]),
        ({"server": SERVER, "token": "x"}, [("connection.token", "unknown-field")]),
        ({"server": 7}, [("connection.server", "wrong-type")]),
        ([], [("connection", "wrong-type")]),
    ],
)
def test_refused(fields: Any, errors: list[tuple[str, str]]) -> None:
    assert errors_of(fields) == errors
