"""Connections to one API server: to checked addresses only, and with a deadline for all that they do.

urllib3's connections are used without its pool: the read timeout of a pool bounds each read of a socket, so
that a server that sends its headers byte by byte holds a call for minutes.
"""

import http.client
import io
import os
import socket
import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from urllib3.connection import HTTPSConnection
from urllib3.exceptions import ProxyError

from clusters.drivers.kubernetes.addresses import (
    AddressRules,
    NameNotResolved,
    check_address,
    checked_addresses,
    is_ip_address,
    resolved_addresses,
)
from clusters.drivers.kubernetes.configuration import Connection

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
