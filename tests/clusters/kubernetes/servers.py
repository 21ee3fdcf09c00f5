"""A local HTTPS server that behaves as each test says: correctly, or badly in one of many ways."""

import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from clusters.drivers.kubernetes.inventory import SYSTEM_NAMESPACE_PATH
from clusters.drivers.kubernetes.sockets import load_certificate
from tests.clusters.kubernetes.certificates import Authority, Pair, authority


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class LocalServer:
    """Where the server listens, and what it got."""

    port: int
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


Behaviour = Callable[[socket.socket, Request, LocalServer], None]
"""Answers one request on the socket; the server closes it after an exception."""


@contextmanager
def serve(
    behave: Behaviour,
    *,
    pair: Pair | None = None,
    plain: bool = False,
    greeting: bytes = b"",
    client_ca: Authority | None = None,
) -> Iterator[LocalServer]:
    """Serve until the block ends; `plain`: without TLS.

    `client_ca`: client certificates are required. The greeting is sent before any request.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    server = LocalServer(listener.getsockname()[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = pair or authority().issue()
    load_certificate(context, pair.certificate, pair.key)
    if client_ca:
        context.load_verify_locations(cadata=client_ca.pem)
        context.verify_mode = ssl.CERT_REQUIRED

    links: list[socket.socket] = []

    def accept() -> None:
        while not server.stopped.is_set():
            with suppress(OSError):
                link, _ = listener.accept()
                server.connections += 1
                threading.Thread(target=talk, args=(link,), daemon=True).start()

    def talk(raw: socket.socket) -> None:
        with suppress(OSError, ValueError):
            link = raw
            if not plain:
                link = context.wrap_socket(
                    raw, server_side=True, do_handshake_on_connect=False
                )
            links.append(link)
            with link, link.makefile("rb") as reader:
                if isinstance(link, ssl.SSLSocket):
                    link.do_handshake()
                link.sendall(greeting)
                while request := _read_request(reader):
                    server.requests.append(request)
                    behave(link, request, server)
        server.closed += 1

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stopped.set()
        for one in (listener, *links):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _read_request(reader: Any) -> Request | None:
    first = reader.readline().decode().split()
    if not first:
        return None
    headers = {}
    while line := reader.readline().decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", 0)))
    return Request(first[0], first[1], headers, body)


def answer(
    status: int,
    body: object = None,
    *,
    headers: Mapping[str, str] | None = None,
    raw: bytes | None = None,
) -> bytes:
    """Return the bytes of an answer with a JSON body, or with a raw one."""
    content = raw if raw is not None else json.dumps(body).encode()
    lines = {
        "Content-Length": str(len(content)),
        "Content-Type": "application/json",
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + content


def status_body(code: int, reason: str = "", message: str = "") -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def always(content: bytes) -> Behaviour:
    """Answer every request by these bytes."""

    def behave(link: socket.socket, request: Request, server: LocalServer) -> None:
        link.sendall(content)

    return behave


def freeze(link: socket.socket, request: Request, server: LocalServer) -> None:
    server.stopped.wait()


def drip(head: bytes, piece: bytes = b" ") -> Behaviour:
    """Send a head, and then one piece every 20 ms for ever."""

    def behave(link: socket.socket, request: Request, server: LocalServer) -> None:
        link.sendall(head)
        while not server.stopped.wait(0.02):
            link.sendall(piece)

    return behave


def endless(link: socket.socket, request: Request, server: LocalServer) -> None:
    link.sendall(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n["
    )
    piece = b"1234567," * 32_768
    while not server.stopped.is_set():
        link.sendall(piece)


def truncate(link: socket.socket, request: Request, server: LocalServer) -> None:
    link.sendall(answer(200, {"kind": "Pod", "name": "x" * 100})[:-20])
    raise OSError("closed")


def reset(link: socket.socket, request: Request, server: LocalServer) -> None:
    linger = struct.pack("ii", 1, 0)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    os.close(link.detach())


@contextmanager
def connect_proxy(*, status: int = 200) -> Iterator[LocalServer]:
    """Serve as an HTTP proxy that answers CONNECT with a status and then forwards bytes."""

    def behave(link: socket.socket, request: Request, server: LocalServer) -> None:
        link.sendall(f"HTTP/1.1 {status} Whatever\r\n\r\n".encode())
        if status != 200:
            raise OSError("refused")
        host, _, port = request.path.rpartition(":")
        with socket.create_connection((host, int(port))) as other:
            back = threading.Thread(target=_forward, args=(other, link), daemon=True)
            back.start()
            _forward(link, other)
            back.join()

    with serve(behave, plain=True) as server:
        yield server


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


INVENTORIES = "/api/v1/namespaces/fleetui-system/configmaps"


def system_namespace(uid: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "kube-system", "uid": uid},
    }


@dataclass
class Member:
    """Answers like an API server for what a check and a renewal need; `denied` holds "verb resource"."""

    tokens: set[str] = field(default_factory=lambda: {"marker-token"})
    denied: set[str] = field(default_factory=set)
    reviews: bool = True
    issued: list[str] = field(default_factory=list)
    requested: list[dict[str, Any]] = field(default_factory=list)
    cluster_uid: str = field(default_factory=lambda: str(uuid4()))

    def __call__(
        self, link: socket.socket, request: Request, server: LocalServer
    ) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        link.sendall(
            self._answer(request)
            if token in self.tokens
            else answer(401, status_body(401))
        )

    def _answer(self, request: Request) -> bytes:
        if request.path == "/readyz":
            return answer(200, raw=b"ok")
        if request.path == SYSTEM_NAMESPACE_PATH:
            if "get namespaces" in self.denied:
                return answer(403, status_body(403, "Forbidden"))
            return answer(200, system_namespace(self.cluster_uid))
        if request.method == "GET" and urlsplit(request.path).path == INVENTORIES:
            return answer(200, {"items": []})
        if request.path == "/version":
            return answer(200, {"gitVersion": "v1.30.1"})
        if request.path == "/apis/apps/v1":
            verbs = ["get", "patch"]
            return answer(
                200,
                {
                    "resources": [
                        {"name": "deployments", "kind": "Deployment", "verbs": verbs}
                    ]
                },
            )
        if request.path.endswith("/selfsubjectaccessreviews"):
            wanted = json.loads(request.body)["spec"]["resourceAttributes"]
            allowed = f"{wanted['verb']} {wanted['resource']}" not in self.denied
            status = {"allowed": allowed} if self.reviews else None
            return answer(201, {"kind": "SelfSubjectAccessReview", "status": status})
        if request.path.endswith("/serviceaccounts/fleetui/token"):
            if "create serviceaccounts/token" in self.denied:
                return answer(403, status_body(403, "Forbidden"))
            self.requested.append(json.loads(request.body)["spec"])
            self.tokens.add(self.issued[0])
            return answer(
                201, {"kind": "TokenRequest", "status": {"token": self.issued.pop(0)}}
            )
        return answer(404, status_body(404, "NotFound"))
