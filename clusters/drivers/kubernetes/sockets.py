"""Connections to one API server: to allowed addresses only, with TLS and a deadline for all they do.

urllib3's connections are used without its pool: the read timeout of a pool bounds each read of a socket, so
that a server that sends its headers byte by byte holds a call for minutes.
"""

import http.client
import io
import os
import socket
import ssl
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from urllib3.connection import HTTPSConnection
from urllib3.exceptions import ProxyError

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


Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_METADATA = frozenset({ip_address("100.100.100.200"), ip_address("fd00:ec2::254")})
"""Metadata services of clouds that are not link-local."""
_THIS_NETWORK = IPv4Network("0.0.0.0/8")
# The prefix for local use, 64:ff9b:1::/48, is not read: it stays reserved, and so denied.
_NAT64 = IPv6Network("64:ff9b::/96")


class AddressNotAllowed(Exception):
    """An address that connections must not go to; `setting` names what allows or denies it."""

    def __init__(self, address: str, reason: str, setting: str) -> None:
        super().__init__(f"{address} is not allowed: {reason}")
        self.address = address
        self.setting = setting


class NameNotResolved(Exception):
    """A host name has no address, or the name servers did not answer in time."""


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host. Raise OSError."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


@dataclass(frozen=True, slots=True)
class AddressRules:
    """The settings of this console that decide what may be connected to.

    Without `networks` every address is allowed that is not always denied.
    """

    networks: tuple[Network, ...] = ()
    allow_loopback: bool = False
    proxies: frozenset[str] = frozenset()
    allow_insecure_tls: bool = False
    allow_in_cluster: bool = False
    resolve: Callable[[str, int], list[str]] = field(
        default=resolve_host, compare=False, repr=False
    )


def check_address(text: str, rules: AddressRules) -> None:
    """Raise AddressNotAllowed unless connections may go to the address."""
    inner = embedded_address(ip_address(text.partition("%")[0]))
    if inner.is_loopback:
        if not rules.allow_loopback:
            raise AddressNotAllowed(
                text, "loopback", "FLEETUI_MEMBER_LOOPBACK=1 allows it"
            )
        return
    for reason, is_denied in (
        (
            "unspecified",
            inner.is_unspecified or (inner.version == 4 and inner in _THIS_NETWORK),
        ),
        ("link-local", inner.is_link_local),
        ("multicast", inner.is_multicast),
        ("reserved", inner.is_reserved),
        ("a metadata service", inner in _METADATA),
    ):
        if is_denied:
            raise AddressNotAllowed(text, reason, "no setting allows it")
    if rules.networks and not any(
        inner in network
        for network in rules.networks
        if network.version == inner.version
    ):
        reason = "outside of the networks of members"
        raise AddressNotAllowed(
            text, reason, "FLEETUI_MEMBER_NETWORKS lists the allowed networks"
        )


def checked_addresses(
    host: str, port: int, rules: AddressRules, *, seconds: float
) -> list[str]:
    """Resolve a host; return its addresses, all of them allowed. Raise NameNotResolved, AddressNotAllowed."""
    addresses = resolved_addresses(host, port, rules, seconds=seconds)
    for address in addresses:
        check_address(address, rules)
    return addresses


def resolved_addresses(
    host: str, port: int, rules: AddressRules, *, seconds: float
) -> list[str]:
    """Return the addresses of a host, allowed or not. Raise NameNotResolved.

    A name is resolved in a thread of its own: getaddrinfo has no timeout, and may take half a minute.
    """
    if is_ip_address(host):
        return [host]
    addresses: list[str] = []

    def resolve() -> None:
        with suppress(
            OSError, UnicodeError
        ):  # UnicodeError: a label that IDNA does not encode
            addresses.extend(rules.resolve(host, port))

    thread = threading.Thread(target=resolve, name=f"resolve {host}", daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if thread.is_alive():
        raise NameNotResolved(f"the name servers did not answer for {host} in time")
    if not addresses:
        raise NameNotResolved(f"{host} has no address")
    return addresses


def is_ip_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def embedded_address(address: Address) -> Address:
    """Return the IPv4 address in a mapped, NAT64 or 6to4 address; any other address unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or address


CONNECT_SECONDS = 5.0
MOST_IDLE = 400
"""Idle sockets of a process: the usual limit of open files is 1,024, and a fleet may have more clusters."""
_RECORD = 16_384


class BoundedConnection(HTTPSConnection):
    """One connection to the API server, bounded by `deadline` in all that it does."""

    def __init__(
        self,
        host: str,
        port: int,
        connection: Connection,
        tls: ssl.SSLContext,
        rules: AddressRules,
        monotonic: Callable[[], float],
    ) -> None:
        self.connection = connection
        self.is_proxied = bool(connection.proxy)
        if self.is_proxied:
            proxy = urlsplit(connection.proxy)
            super().__init__(proxy.hostname or "", proxy.port, ssl_context=tls)
            self.set_tunnel(host, port, scheme="http")
        else:
            super().__init__(host, port, ssl_context=tls)
        self.server_hostname = connection.tls_server_name or host
        self.server = (host, port)
        self.rules = rules
        self.monotonic = monotonic
        self.deadline = 0.0
        self.idle_since = 0.0
        self.authorization = ""
        self.response_class = self._response  # type: ignore[assignment]  # a factory in place of the class

    def time_left(self, most: float = float("inf")) -> float:
        """Return the seconds until the deadline. Raise TimeoutError at the deadline."""
        left = self.deadline - self.monotonic()
        if left <= 0:
            raise TimeoutError("deadline")
        return min(left, most)

    def connect(self) -> None:
        """Open the socket. Raise ProxyError, OSError, NameNotResolved, AddressNotAllowed."""
        try:
            super().connect()
        except ssl.SSLError:  # of the server, at the other end of the tunnel
            raise
        except (NameNotResolved, OSError, http.client.HTTPException) as error:
            if not self.is_proxied:
                raise
            raise ProxyError("the proxy cannot be used", error) from error

    def _new_conn(self) -> socket.socket:
        """Connect to a checked address of the server, or to the proxy, which the operator chose."""
        stop = self.monotonic() + self.time_left(CONNECT_SECONDS)
        host, port = self.server
        if not self.is_proxied:
            addresses = checked_addresses(
                host, port, self.rules, seconds=stop - self.monotonic()
            )
            return self._connect_to(addresses, stop)
        if is_ip_address(host):
            check_address(host, self.rules)
        addresses = resolved_addresses(
            self.host, self.port, self.rules, seconds=stop - self.monotonic()
        )
        return self._connect_to(addresses, stop)

    def _connect_to(self, addresses: Sequence[str], stop: float) -> socket.socket:
        """Connect to the first address that answers. Raise the OSError of the last one."""
        for others in reversed(range(len(addresses))):
            # One that drops packets leaves half of the time for the others.
            timeout = max(0.001, (stop - self.monotonic()) / (2 if others else 1))
            try:
                link = socket.create_connection(
                    (addresses[-1 - others], self.port), timeout
                )
            except OSError:
                if not others:
                    raise
            else:
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                link.settimeout(self.time_left(CONNECT_SECONDS))
                return link
        raise OSError("no address")

    def send(self, data: Any) -> None:
        """Send record by record, so that a server that reads slowly does not hold the call."""
        if self.sock is None or not isinstance(data, bytes):
            super().send(data)
            return
        for start in range(0, len(data), _RECORD):
            self.sock.settimeout(self.time_left())
            self.sock.sendall(data[start : start + _RECORD])

    def _response(
        self, link: socket.socket, *args: Any, **kwargs: Any
    ) -> http.client.HTTPResponse:
        answer = http.client.HTTPResponse(link, *args, **kwargs)
        answer.fp.close()
        answer.fp = io.BufferedReader(_BoundedReader(link, self.time_left))
        return answer


class _BoundedReader(io.RawIOBase):
    """Reads a socket; every read ends at the deadline, however little the server sends at a time."""

    def __init__(self, link: socket.socket, time_left: Callable[[], float]) -> None:
        self._link = link
        self._raw = link.makefile("rb", buffering=0)
        self._time_left = time_left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._link.settimeout(self._time_left())
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class IdleSockets:
    """The idle connections of a process: of too many, the one that has been idle longest is closed."""

    def __init__(self, most: int = MOST_IDLE) -> None:
        self._most = most
        self._lock = Lock()
        self._links: OrderedDict[
            BoundedConnection, Callable[[BoundedConnection], None]
        ] = OrderedDict()

    def add(
        self, link: BoundedConnection, close: Callable[[BoundedConnection], None]
    ) -> None:
        """Count a connection that is idle now; `close` ends it unless it is in use again."""
        excess = None
        with self._lock:
            self._links[link] = close
            if len(self._links) > self._most:
                excess = self._links.popitem(last=False)
        if excess:
            oldest, close_oldest = excess
            close_oldest(oldest)

    def discard(self, link: BoundedConnection) -> None:
        with self._lock:
            self._links.pop(link, None)

    def __len__(self) -> int:
        return len(self._links)


idle_sockets = IdleSockets()


def forget_after_fork() -> None:
    """Start with no idle connection in a child process: the sockets belong to the parent."""
    global idle_sockets  # noqa: PLW0603 -- one limit per process
    idle_sockets = IdleSockets()


os.register_at_fork(after_in_child=forget_after_fork)
