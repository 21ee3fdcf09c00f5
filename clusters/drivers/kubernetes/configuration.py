"""The connection of a Kubernetes cluster: its public part; the secret is stored apart.

See `rules/kubernetes-driver.md#connections`.

{"server": "https://10.0.0.7:6443", "ca": "-----BEGIN CERTIFICATE-----…"}
"""

import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple
from urllib.parse import SplitResult, urlsplit

from pydantic import Field

from fleetui.apimachinery.errors import ErrorDetail
from fleetui.apimachinery.fields import Flag, Text
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    Raw,
    conflict,
    parse_manifest,
)

MOST_CERTIFICATES = 20
LARGEST_CA = 256 * 1024
USUAL_PORT = 443
SERVER = "https://host[:port][/path]"
PROXY = "http://host:port"
IN_CLUSTER_SERVER = "https://kubernetes.default.svc"
_HOST_NAME = re.compile(
    r"(?=.{1,253}\.?$)[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?(\.[A-Za-z0-9_-]+)*\.?"
)
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+")
_URL_PATH = re.compile(r"(/[-A-Za-z0-9._~!$&'()*+,;=:@%]*)*")


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach an API server, without the secret.

    `server` has no trailing slash. `ca` is "" where the root certificates of the system apply.
    """

    server: str
    ca: str = ""
    tls_server_name: str = ""
    proxy: str = ""
    insecure_tls: bool = False
    in_cluster: bool = False


class ServerAddress(NamedTuple):
    """The parts of a server URL; `path` is "" or starts with a slash and ends without one."""

    host: str
    port: int
    path: str


def split_server(server: str) -> ServerAddress:
    """Return the parts of a server that `parse_connection` accepted."""
    url = urlsplit(server)
    return ServerAddress(
        url.hostname or "", url.port or USUAL_PORT, url.path.rstrip("/")
    )


class ConnectionFields(ManifestModel):
    server: Text = ""
    ca: Text = ""
    tls_server_name: Text = ""
    proxy: Text = ""
    insecure_tls: Annotated[Flag, Field(alias="insecureTLS")] = False
    in_cluster: Flag = False

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        if raw.get("inCluster") is True:
            for key in ("server", "ca", "tlsServerName", "proxy", "insecureTLS"):
                if raw.get(key):
                    yield conflict(
                        key, "inCluster uses the service account of this console's pod"
                    )
        elif isinstance(raw.get("server", ""), str):
            yield from _server_problems(raw.get("server", ""))
        if isinstance(ca := raw.get("ca"), str) and ca:
            if raw.get("insecureTLS") is True:
                yield conflict(
                    "ca", "insecureTLS checks no certificate; remove one of the two"
                )
            yield from _ca_problems(ca)
        name = raw.get("tlsServerName")
        if isinstance(name, str) and name and not is_host(name):
            yield ErrorDetail(
                ("tlsServerName",),
                "bad-format",
                "Invalid value: not a host name",
                "a host name",
            )
        if isinstance(proxy := raw.get("proxy"), str) and proxy and not is_proxy(proxy):
            message = "Invalid value: not the URL of an HTTP proxy"
            yield ErrorDetail(("proxy",), "bad-format", message, PROXY)


def parse_connection(connection: object, *, path: str = "connection") -> Connection:
    """Return the connection for its stored form. Raise InvalidManifest with every error."""
    fields = parse_manifest(
        ConnectionFields, connection, semantics=DEFAULT_SEMANTICS, path=path
    )
    return Connection(
        server=IN_CLUSTER_SERVER if fields.in_cluster else fields.server.rstrip("/"),
        ca=fields.ca,
        tls_server_name=fields.tls_server_name,
        proxy=fields.proxy,
        insecure_tls=fields.insecure_tls,
        in_cluster=fields.in_cluster,
    )


def _server_problems(server: str) -> Iterator[ErrorDetail]:
    url = _split(server)
    if not server:
        yield ErrorDetail(
            ("server",), "required", "Required value: the URL of the API server", SERVER
        )
        return
    if url is None or not url.hostname or not is_host(url.hostname):
        problem = "names no host"
    elif url.scheme != "https":
        problem = "the scheme must be https"
    elif "@" in url.netloc:
        problem = "must not contain a user or a password"
    elif "?" in server or "#" in server:
        problem = "must not contain a query or a fragment"
    elif url.port == 0:
        problem = "port 0"
    elif not _URL_PATH.fullmatch(url.path):
        problem = "the path contains characters that a URL does not have"
    else:
        return
    yield ErrorDetail(("server",), "bad-format", f"Invalid value: {problem}", SERVER)


def _ca_problems(ca: str) -> Iterator[ErrorDetail]:
    if len(ca) > LARGEST_CA:
        yield ErrorDetail(
            ("ca",),
            "too-long",
            f"Too long: {len(ca):,} characters",
            f"at most {LARGEST_CA:,} characters",
        )
        return
    count = ca.count("-----BEGIN CERTIFICATE-----")
    if not 1 <= count <= MOST_CERTIFICATES:
        yield ErrorDetail(
            ("ca",),
            "bad-format",
            f"Invalid value: holds {count} certificates",
            f"1 to {MOST_CERTIFICATES} certificates in PEM format",
        )
    else:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=ca)
        except (ssl.SSLError, ValueError):
            yield ErrorDetail(
                ("ca",),
                "bad-format",
                "Invalid value: the CA certificates cannot be read",
                "certificates in PEM format",
            )


def is_host(text: str) -> bool:
    """Return whether a text is a host name or an IP address, without brackets."""
    return bool(_HOST_NAME.fullmatch(text) or (":" in text and _IPV6.fullmatch(text)))


def is_proxy(text: str) -> bool:
    """Return whether a text is the URL of an HTTP proxy, without user, path, query or fragment."""
    url = _split(text)
    return bool(
        url
        and url.scheme == "http"
        and url.hostname
        and is_host(url.hostname)
        and url.port
        and "@" not in text
        and text == f"http://{url.netloc}"
    )


def _split(text: str) -> SplitResult | None:
    """Return the parts of a URL; None where host or port cannot be read."""
    if any(character.isspace() or not character.isprintable() for character in text):
        return None
    try:
        url = urlsplit(text)
        return url if url.port is None or url.port >= 0 else None
    except ValueError:
        return None
