"""Requests to one API server: deadlines, a size limit, and errors by class.

See `rules/kubernetes-driver.md#client`.
"""

import http.client
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

from urllib3 import HTTPHeaderDict
from urllib3.exceptions import HTTPError, ProxyError, ReadTimeoutError
from urllib3.response import BaseHTTPResponse

from clusters.drivers.base import DriverUnavailable
from clusters.drivers.kubernetes import sockets
from clusters.drivers.kubernetes.configuration import Connection, split_server
from clusters.drivers.kubernetes.sockets import (
    AddressNotAllowed,
    AddressRules,
    BoundedConnection,
    NameNotResolved,
    tls_context,
)

MOST_WARNINGS, LONGEST_WARNING = 10, 256
LARGEST_BODY = 64 * 1024 * 1024
MOST_RATIO, SMALL_BODY = 100, 1024 * 1024
"""A larger body that was compressed more than so many times is no answer of an API server."""
MOST_REQUESTS = 4
"""At a time, per cluster and process."""
IDLE_SECONDS = 20.0
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
JSON = "application/json"
APPLY_PATCH = "application/apply-patch+yaml"
READYZ = "/readyz"
USER_AGENT = "fleetui (cluster-driver)"
_PIECE = _LARGEST_TEXT = 65_536
_BUSY = frozenset({408, 425, 429, 502, 503, 504})
_PAUSES = {429: SHORTEST_PAUSE}
"""Where the answer names none."""
# API priority and fairness sets it in every answer; its refusal is plain text. That of a limit of requests in
# flight is the same text without the header.
_FLOW_SCHEMA = "X-Kubernetes-PF-FlowSchema-UID"
_NO_PATH = b"404 page not found"
"""An API server says so of a kind whose definition was removed; proxies in front of one may say the same."""
_TOO_MANY = b"Too many requests, please try again later."
_DISCOVERY = re.compile(r"/api(/v1)?|/apis(/[^/]+){0,2}")
_WARNING = re.compile(r'\d{3} \S+ "((?:[^"\\]|\\.)*)"')
# JSON is YAML except for these: line breaks of YAML, and what its readers refuse unless it is escaped.
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of an API server: its JSON object, or the plain text of /readyz."""

    status: int
    body: Mapping[str, Any]
    text: str = ""
    warnings: tuple[str, ...] = ()


class Client:
    """Sends requests to one API server; safe for several threads.

    `secret` is called when a socket is opened, and returns {"token": …} or {"certificate": …, "key": …}; it
    may raise DriverUnavailable.
    """

    def __init__(
        self,
        connection: Connection,
        secret: Callable[[], Mapping[str, str]],
        *,
        rules: AddressRules,
        monotonic: Callable[[], float] = time.monotonic,
        user_agent: str = USER_AGENT,
    ) -> None:
        self.connection = connection
        self.secret = secret
        self._rules = rules
        self._monotonic = monotonic
        self._address = split_server(connection.server)
        self._headers = {"Accept-Encoding": "gzip", "User-Agent": user_agent}
        self._slots = threading.BoundedSemaphore(MOST_REQUESTS)
        self._lock = threading.Lock()
        self._idle: list[BoundedConnection] = []
        self._keeps_sockets = True
        self._tls: ssl.SSLContext | None = None
        self._paused_until = 0.0
        self._pause_code = ""

    def __repr__(self) -> str:
        return f"<Client of {self.connection.server}>"

    def request(
        self,
        method: str,
        path: str,
        *,
        deadline: float,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
        headers: Mapping[str, str | tuple[str, ...]] | None = None,
    ) -> Response:
        """Return every answer that is a Status or another JSON object; `deadline` is a monotonic time.

        A header with several values is sent once for each. A request is repeated while the server prepares
        the storage of a new kind. Raise DriverUnavailable with a code for everything else.
        """
        sent = HTTPHeaderDict({**self._headers, "Accept": accept})
        for name, values in (headers or {}).items():
            for value in (values,) if isinstance(values, str) else values:
                sent.add(name, value)
        content = None
        if body is not None:
            content = encode_body(body, content_type)
            sent["Content-Type"] = content_type
        url = self._url(path, query)
        while True:
            with self._slot(deadline):
                self._check_pause()
                with errors_mapped(self.connection):
                    status, answered, raw = self._exchange(
                        method, url, content, sent, deadline
                    )
            if not _is_kind_starting(status, raw):
                break
            pause = parse_retry_after(answered.get("Retry-After")) or SHORTEST_PAUSE
            if self._monotonic() + pause >= deadline:
                break
            time.sleep(pause)
        return self._interpret(path, status, answered, raw)

    def connect(self, deadline: float) -> None:
        """Open a socket ahead of a request: if this fails, nothing was sent. Raise DriverUnavailable."""
        self._check_pause()
        with errors_mapped(self.connection):
            self._keep(self._open(deadline))

    def stream(
        self, path: str, *, query: Mapping[str, str], silence: float, accept: str = JSON
    ) -> "ByteStream | Response":
        """Open a watch; return it, or the answer that is not one, such as a Status of 410.

        It has no end and no size limit, and it counts among no requests at a time. Every wait for its bytes
        ends `silence` seconds after the last `renew`. Raise DriverUnavailable.
        """
        self._check_pause()
        with errors_mapped(self.connection), ExitStack() as stack:
            link = self._open(self._monotonic() + silence)
            stack.callback(link.close)
            sent = {**self._headers, "Accept": accept, "Accept-Encoding": "identity"}
            if link.authorization:
                sent["Authorization"] = link.authorization
            link.deadline = self._monotonic() + silence
            link.request(
                "GET", self._url(path, query), None, sent, preload_content=False
            )
            # The response closes the socket with itself; what another thread shuts down has to be kept.
            kept = link.sock
            answer = link.getresponse()
            if answer.status == http.client.OK and kept is not None:
                stack.pop_all()
                return ByteStream(link, kept, answer, silence=silence)
            with closing(answer):
                raw = read_body(answer)
        return self._interpret(path, answer.status, answer.headers, raw)

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self._address.path}{path}?{urlencode(query or {})}".removesuffix("?")

    def _check_pause(self) -> None:
        left = self._paused_until - self._monotonic()
        if left > 0:
            message = f"the API server requested a pause; no request for {left:.0f} s"
            raise DriverUnavailable(message, code=self._pause_code, retry_after=left)

    def close(self) -> None:
        self._keeps_sockets = False
        self.close_idle(seconds=0.0)

    def close_idle(self, *, seconds: float = IDLE_SECONDS) -> None:
        oldest = self._monotonic() - seconds
        with self._lock:
            expired = [
                connection
                for connection in self._idle
                if connection.idle_since <= oldest
            ]
            self._idle = [
                connection
                for connection in self._idle
                if connection.idle_since > oldest
            ]
        for connection in expired:
            sockets.idle_sockets.discard(connection)
            connection.close()

    def close_if_idle(self, link: BoundedConnection) -> None:
        """Close a connection, unless it has been taken for a request meanwhile."""
        with self._lock:
            if link not in self._idle:
                return
            self._idle.remove(link)
        link.close()

    @property
    def idle_sockets(self) -> int:
        return len(self._idle)

    @contextmanager
    def _slot(self, deadline: float) -> Iterator[None]:
        if not self._slots.acquire(timeout=max(0.0, deadline - self._monotonic())):
            raise DriverUnavailable(
                f"timeout: {MOST_REQUESTS} other requests to the cluster took all the time",
                code="timeout",
            )
        try:
            yield
        finally:
            self._slots.release()

    def _exchange(
        self,
        method: str,
        url: str,
        content: bytes | None,
        headers: HTTPHeaderDict,
        deadline: float,
    ) -> tuple[int, Mapping[str, str], bytes]:
        link = self._idle_connection() or self._open(deadline)
        with ExitStack() as stack:
            stack.callback(link.close)
            link.deadline = deadline
            if link.authorization:
                headers["Authorization"] = link.authorization
            link.request(method, url, content, headers, preload_content=False)
            answer = link.getresponse()
            with closing(answer):
                raw = read_body(answer)
            if answer.status != http.client.UNAUTHORIZED and link.sock is not None:
                self._keep(link)
                stack.pop_all()
        return answer.status, answer.headers, raw

    def _keep(self, link: BoundedConnection) -> None:
        link.idle_since = self._monotonic()
        sockets.idle_sockets.add(link, self.close_if_idle)
        with self._lock:
            self._idle.append(link)
        if not self._keeps_sockets:  # the client was closed meanwhile
            self.close_idle(seconds=0.0)

    def _idle_connection(self) -> BoundedConnection | None:
        """Return the connection that was used last, or None; close those that the server has closed."""
        self.close_idle()
        while self._idle:
            with self._lock:
                link = self._idle.pop() if self._idle else None
            if link:
                sockets.idle_sockets.discard(link)
            if link and link.is_connected:
                if (
                    self.connection.in_cluster
                ):  # its token changes while the socket is open
                    link.authorization = _authorization(self.secret())
                return link
            if link:
                link.close()
        return None

    def _open(self, deadline: float) -> BoundedConnection:
        """Open a socket to a checked address. Raise DriverUnavailable and what errors_mapped maps."""
        connection, rules = self.connection, self._rules
        if connection.insecure_tls and not rules.allow_insecure_tls:
            raise DriverUnavailable(
                "TLS verification is off, and FLEETUI_ALLOW_INSECURE_TLS is not set on this console",
                code="tls-insecure-not-allowed",
            )
        if connection.proxy and connection.proxy not in rules.proxies:
            raise DriverUnavailable(
                "the proxy is not in FLEETUI_MEMBER_PROXIES", code="proxy"
            )
        secret = self.secret()
        with self._lock:
            if self._tls is None:
                self._tls = tls_context(connection, secret)
        link = BoundedConnection(
            self._address.host,
            self._address.port,
            connection,
            self._tls,
            rules,
            self._monotonic,
        )
        link.authorization = _authorization(secret)
        link.deadline = deadline
        with ExitStack() as stack:
            stack.callback(link.close)
            link.connect()
            stack.pop_all()
        return link

    def _interpret(
        self, path: str, status: int, headers: Mapping[str, str], raw: bytes
    ) -> Response:
        body = None
        with suppress(ValueError, RecursionError):
            body = json.loads(raw)
        if not isinstance(body, dict):
            body = None
        has_status = body is not None and body.get("kind") == "Status"
        if status == http.client.UNAUTHORIZED:
            raise DriverUnavailable("credentials rejected (401)", code="credentials")
        if status in _BUSY or (
            status >= http.client.INTERNAL_SERVER_ERROR and not has_status
        ):
            if path.startswith(READYZ) and status == http.client.INTERNAL_SERVER_ERROR:
                return Response(
                    status, {}, raw[:_LARGEST_TEXT].decode(errors="replace")
                )
            raise self._busy(status, headers, raw, has_status=has_status)
        if (
            path.startswith(READYZ)
            and status == http.client.OK
            and raw.startswith(b"ok")
        ):
            return Response(status, {}, raw[:_LARGEST_TEXT].decode(errors="replace"))
        if (
            status == http.client.NOT_FOUND
            and not has_status
            and _DISCOVERY.fullmatch(path)
        ):
            return Response(status, {})
        if status == http.client.NOT_FOUND and body is None and raw.strip() == _NO_PATH:
            raise DriverUnavailable("404 page not found", code="no-such-path")
        is_success = http.client.OK <= status < http.client.MULTIPLE_CHOICES
        if body is None or not (
            is_success or (status >= http.client.BAD_REQUEST and has_status)
        ):
            raise DriverUnavailable(
                f"{status}, and not from an API server", code="not-kubernetes"
            )
        return Response(status, body, warnings=parse_warnings(headers.get("Warning")))

    def _busy(
        self, status: int, headers: Mapping[str, str], raw: bytes, *, has_status: bool
    ) -> DriverUnavailable:
        pause = parse_retry_after(headers.get("Retry-After")) or _PAUSES.get(status)
        code = f"http-{status}"
        if _is_kind_starting(status, raw):  # other kinds are served: no pause for them
            message = f"{status}: the API server prepares the storage of a new kind"
            return DriverUnavailable(message, code=code, retry_after=pause)
        if pause is not None and status in (
            http.client.TOO_MANY_REQUESTS,
            http.client.SERVICE_UNAVAILABLE,
        ):
            self._paused_until, self._pause_code = self._monotonic() + pause, code
        message = f"{status}, and not from an API server"
        if has_status:
            message = f"{status}, answered by the API server"
        elif status == http.client.TOO_MANY_REQUESTS and (
            _FLOW_SCHEMA in headers
            or (
                raw.strip() == _TOO_MANY
                and headers.get("Content-Type", "").startswith("text/plain")
            )
        ):
            message = f"{status}: the API server limits the requests of this account; continuing in {pause:.0f} s"
        return DriverUnavailable(message, code=code, retry_after=pause)


def _is_kind_starting(status: int, raw: bytes) -> bool:
    """Return whether the storage of a new kind is not ready yet (Kubernetes 1.31 and later)."""
    return (
        status == http.client.TOO_MANY_REQUESTS
        and b"storage is (re)initializing" in raw
    )


class ByteStream:
    """An open watch. One thread reads it; another one may end it by `shut_down`."""

    def __init__(
        self,
        link: BoundedConnection,
        kept: socket.socket,
        answer: BaseHTTPResponse,
        *,
        silence: float,
    ) -> None:
        self._link, self._kept, self._answer, self._silence = (
            link,
            kept,
            answer,
            silence,
        )
        self.date = answer.headers.get("Date", "")
        self.renew()

    def renew(self) -> None:
        """Start the silence limit again, since something complete has arrived."""
        self._link.deadline = self._link.monotonic() + self._silence

    def read(self) -> bytes:
        """Return the next bytes, at most 64 KiB; none at the end. Raise DriverUnavailable."""
        with errors_mapped(self._link.connection):
            return self._answer.read1(_PIECE)

    def shut_down(self) -> None:
        """End the stream from any thread: the one that reads gets the end or an error immediately."""
        with suppress(OSError):
            # Past TLS, whose state belongs to the thread that reads.
            socket.socket.shutdown(self._kept, socket.SHUT_RDWR)

    def close(self) -> None:
        self._answer.close()
        self._link.close()


@contextmanager
def errors_mapped(connection: Connection) -> Iterator[None]:
    """Raise DriverUnavailable for what connecting, sending and reading raise; nothing remote is quoted."""
    try:
        yield
    except tuple(_MESSAGES) as error:
        code, message = next(
            texts for kind, texts in _MESSAGES.items() if isinstance(error, kind)
        )
        proxy = urlsplit(connection.proxy).netloc
        words = message.format(error=error, proxy=proxy, reason=reason_of(error))
        raise DriverUnavailable(words, code=code) from error


def reason_of(error: Exception) -> str:
    """Return why a connection failed in the words of the system, or of OpenSSL."""
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "").replace("_", " ").lower()
        return getattr(error, "verify_message", "") or reason or "the handshake failed"
    if strerror := getattr(error, "strerror", ""):
        return f"failed: {strerror}"
    return f"broke off ({type(error).__name__})"


class _TooLarge(Exception):
    """The body has more bytes than allowed, or more than its compressed form can have in good faith."""


# The first class that fits an error decides.
_MESSAGES: Mapping[type[Exception], tuple[str, str]] = {
    NameNotResolved: ("dns", "name not resolved: {error}"),
    AddressNotAllowed: ("address", "{error}; {error.setting}"),
    # Connections that were cut, not bad ones.
    ssl.SSLEOFError: ("broken", "the connection was closed"),
    ssl.SSLZeroReturnError: ("broken", "the connection was closed"),
    ssl.SSLError: ("tls", "TLS: {reason}"),
    ConnectionRefusedError: ("refused", "connection refused"),
    ProxyError: (
        "proxy",
        "the proxy {proxy} refuses the connection or cannot be reached",
    ),
    TimeoutError: ("timeout", "no answer in time"),
    ReadTimeoutError: ("timeout", "no answer in time"),
    _TooLarge: ("too-large", "the answer {error}"),
    ConnectionResetError: ("broken", "the connection was reset"),
    OSError: ("broken", "the connection {reason}"),
    HTTPError: ("broken", "the connection {reason}"),
    http.client.HTTPException: ("broken", "the connection {reason}"),
    ValueError: ("broken", "the connection {reason}"),
}


def read_body(answer: BaseHTTPResponse) -> bytes:
    """Read a body in pieces of at most 64 KiB; the socket below keeps the deadline."""
    pieces: list[bytes] = []
    size = 0
    while piece := answer.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST_BODY:
            raise _TooLarge(f"has more than {LARGEST_BODY // 1024 // 1024} MiB")
        if size > max(SMALL_BODY, MOST_RATIO * answer.tell()):
            raise _TooLarge(f"is compressed more than {MOST_RATIO} times")
    return b"".join(pieces)


def encode_body(body: Mapping[str, Any], content_type: str) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    if content_type == APPLY_PATCH:
        text = _NOT_YAML.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
    return text.encode()


def _authorization(secret: Mapping[str, str]) -> str:
    return f"Bearer {secret['token']}" if "token" in secret else ""


def parse_retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header, 1 to 60; None where there is none."""
    if not value:
        return None
    if value.strip().isdecimal():
        return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, float(value[:9])))
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    left = (
        until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)
    ).total_seconds()
    return min(LONGEST_PAUSE, max(SHORTEST_PAUSE, left))


def parse_warnings(value: str | None) -> tuple[str, ...]:
    """Return the texts of Warning headers, the first 10, each of at most 256 characters on one line."""
    texts = []
    for found in _WARNING.finditer(value or ""):
        # Headers are read as Latin-1, and API servers write UTF-8.
        text = (
            found.group(1).encode("latin-1", errors="replace").decode(errors="replace")
        )
        text = re.sub(r"\\(.)", r"\1", text)
        texts.append("".join(filter(str.isprintable, text))[:LONGEST_WARNING])
    return tuple(dict.fromkeys(filter(None, texts)))[:MOST_WARNINGS]
