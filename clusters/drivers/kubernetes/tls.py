"""TLS settings of a connection: CA, client certificate, and the exception without verification."""

import os
import ssl
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from clusters.drivers.kubernetes.configuration import Connection


def tls_context(connection: Connection, secret: Mapping[str, str]) -> ssl.SSLContext:
    """Return the context of a connection. Raise ssl.SSLError, ValueError for a pair that cannot be used."""
    has_certificate = "certificate" in secret
    if not (connection.ca or connection.insecure_tls or has_certificate):
        return _system_context()
    context = _create()
    if connection.insecure_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif connection.ca:
        context.load_verify_locations(cadata=connection.ca)
    else:
        context.load_default_certs()
    if has_certificate:
        load_certificate(context, secret["certificate"], secret["key"])
    return context


@cache
def _system_context() -> ssl.SSLContext:
    """Return the context with the root certificates of the system, which take 25 ms of CPU to load."""
    context = _create()
    context.load_default_certs()
    return context


class SharedContext(ssl.SSLContext):
    """A context from which several threads open connections at the same time.

    urllib3 sets the protocols again with each connection. That frees memory which the handshake of another
    thread may be copying: its hello then has wrong bytes, and the server ends it with "decode error".
    """

    def set_alpn_protocols(self, alpn_protocols: Iterable[str]) -> None:
        """Change nothing: `_create` has set the protocols."""


def _create() -> ssl.SSLContext:
    context = SharedContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    ssl.SSLContext.set_alpn_protocols(context, ["http/1.1"])
    return context


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a client certificate and its key without a file that others can open.

    See `rules/kubernetes-driver.md#secrets`.
    """
    if not hasattr(os, "memfd_create"):
        with tempfile.TemporaryDirectory(prefix="fleetui-") as folder:  # of mode 0700
            paths = [Path(folder) / name for name in ("certificate", "key")]
            for path, text in zip(paths, (certificate, key), strict=True):
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(text)
            context.load_cert_chain(paths[0], paths[1], _refuse_password)
        return
    fds: list[int] = []
    try:
        for text in (certificate, key):
            fd = os.memfd_create("pair", os.MFD_CLOEXEC)
            fds.append(fd)
            os.write(fd, text.encode())
        context.load_cert_chain(
            f"/proc/self/fd/{fds[0]}", f"/proc/self/fd/{fds[1]}", _refuse_password
        )
    finally:
        for fd in fds:
            os.close(fd)


def _refuse_password() -> str:
    """Return no password: OpenSSL would prompt for one on the terminal of the console."""
    return ""
