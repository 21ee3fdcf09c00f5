"""TLS settings of a connection: client certificates leave no file, and the roots of the system are shared."""

import os
import ssl
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from clusters.drivers.kubernetes.configuration import Connection
from clusters.drivers.kubernetes.sockets import load_certificate, tls_context
from tests.clusters.kubernetes.certificates import authority, key_pem

SERVER = "https://member.test"


def open_files() -> set[str]:
    return {
        str(path.readlink())
        for path in Path("/proc/self/fd").iterdir()
        if path.is_symlink()
    }


def test_a_client_certificate_goes_through_memory() -> None:
    pair = authority().issue("admin")

    load_certificate(
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair.certificate, pair.key
    )

    assert not any("memfd" in file for file in open_files())


def test_without_memory_files_it_goes_through_a_private_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    modes: list[int] = []
    opened = os.open

    def watched(path: Any, flags: int, mode: int = 0o777, **options: Any) -> int:
        if flags & os.O_CREAT:
            modes.extend((Path(path).parent.stat().st_mode & 0o777, mode))
        return opened(path, flags, mode, **options)

    monkeypatch.setattr(os, "open", watched)
    pair = authority().issue("admin")

    load_certificate(
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair.certificate, pair.key
    )

    assert modes == [0o700, 0o600] * 2
    assert list(tmp_path.iterdir()) == []


def test_a_key_with_a_password_does_not_wait_for_it() -> None:
    pair = authority().issue("admin")
    key = key_pem(ec.generate_private_key(ec.SECP256R1()), password=b"secret")

    with pytest.raises((ssl.SSLError, ValueError)):
        load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair.certificate, key)


def test_the_roots_of_the_system_are_loaded_once() -> None:
    shared = tls_context(Connection(SERVER), {"token": "a"})

    assert tls_context(Connection("https://other.test"), {"token": "b"}) is shared
    assert (
        tls_context(Connection(SERVER, ca=authority().pem), {"token": "a"})
        is not shared
    )


def test_tls_is_verified_and_new_enough() -> None:
    pair = authority().issue("admin")
    secret = {"certificate": pair.certificate, "key": pair.key}
    for connection in (Connection(SERVER), Connection(SERVER, ca=authority().pem)):
        for document in (secret, {"token": "a"}):
            context = tls_context(connection, document)
            assert (context.verify_mode, context.check_hostname) == (
                ssl.CERT_REQUIRED,
                True,
            )
            assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    insecure = tls_context(Connection(SERVER, insecure_tls=True), secret)
    assert (insecure.verify_mode, insecure.check_hostname) == (ssl.CERT_NONE, False)
    assert insecure.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_connection_does_not_change_the_context_that_other_threads_use() -> None:
    """urllib3 sets the protocols with each connection, while other threads copy them for their handshake."""
    context = tls_context(Connection(SERVER, ca=authority().pem), {"token": "a"})

    context.set_alpn_protocols(["h2"])

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority().issue("member")
    load_certificate(server, pair.certificate, pair.key)
    server.set_alpn_protocols(["h2", "http/1.1"])
    assert agreed_protocol(context, server) == "http/1.1"


def agreed_protocol(
    client_context: ssl.SSLContext, server_context: ssl.SSLContext
) -> str | None:
    """Return the protocol of a handshake in memory."""
    to_server = ssl.MemoryBIO()
    to_client = ssl.MemoryBIO()
    client = client_context.wrap_bio(
        to_client, to_server, server_hostname="member.test"
    )
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    return client.selected_alpn_protocol()
