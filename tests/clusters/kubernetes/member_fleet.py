"""Many small member clusters behind one local server, distinguished by their tokens.

What is applied is kept as it is sent: enough for rollouts and observations, no imitation of server-side
apply. As a process of its own (`python -m tests.clusters.kubernetes.member_fleet`) it costs the console no
processor time.
"""

import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from clusters.drivers.kubernetes.inventory import SYSTEM_NAMESPACE_PATH
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import (
    LocalServer,
    Request,
    answer,
    serve,
    status_body,
    system_namespace,
)

VERBS = ["get", "list", "create", "patch", "delete"]
KINDS = {
    "/api/v1": {
        "namespaces": ("Namespace", False),
        "configmaps": ("ConfigMap", True),
        "secrets": ("Secret", True),
        "services": ("Service", True),
        "serviceaccounts": ("ServiceAccount", True),
    },
    "/apis/apps/v1": {"deployments": ("Deployment", True)},
    "/apis/rbac.authorization.k8s.io/v1": {
        "roles": ("Role", True),
        "rolebindings": ("RoleBinding", True),
    },
}
AMOUNTS = {"cpu": "4", "memory": "16Gi"}
NODES = {"items": [{"status": {"capacity": AMOUNTS, "allocatable": AMOUNTS}}] * 3}
PODS = {
    "items": [{"spec": {"containers": [{"resources": {"requests": {"cpu": "100m"}}}]}}]
    * 10
}
Objects = dict[str, dict[str, Any]]


def _resources(path: str) -> dict[str, Any]:
    found = KINDS[path].items()
    return {
        "kind": "APIResourceList",
        "resources": [
            {"name": name, "kind": kind, "namespaced": is_namespaced, "verbs": VERBS}
            for name, (kind, is_namespaced) in found
        ],
    }


FIXED = {
    "/readyz": answer(200, raw=b"ok"),
    "/version": answer(200, {"gitVersion": "v1.30.1"}),
    "/api/v1/nodes": answer(200, NODES),
    "/api/v1/pods": answer(200, PODS),
    **{path: answer(200, _resources(path)) for path in KINDS},
}


@dataclass
class MemberFleet:
    """The clusters by token: their objects by path, their requests, and which are frozen until an event.

    `servers` maps tokens to that of another cluster, whose API server they are for. `answered` is called
    after each answer, `deleted` before an object goes, with what a Namespace takes along. The list of the
    times of heartbeats by token is at `/heartbeats`.
    """

    objects: dict[str, Objects] = field(default_factory=lambda: defaultdict(dict))
    requests: dict[str, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    heartbeats: dict[str, list[float]] = field(
        default_factory=lambda: defaultdict(list)
    )
    frozen: dict[str, threading.Event] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    servers: dict[str, str] = field(default_factory=dict)
    deleted: Callable[[str, str], None] = lambda _token, _path: None
    answered: Callable[[str, str], None] = lambda _token, _path: None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(
        self, link: socket.socket, request: Request, server: LocalServer
    ) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        path = urlsplit(request.path).path
        if path == "/readyz":
            self.heartbeats[token].append(time.monotonic())
        if token.startswith("frozen"):
            server.stopped.wait()
        if thawed := self.frozen.get(token):
            thawed.wait()
        with self.lock:
            self.requests[token][f"{request.method} {path}"] += 1
            content = FIXED.get(path) or self._stored(token, request, path)
        link.sendall(content)
        self.answered(token, path)

    def _stored(self, token: str, request: Request, path: str) -> bytes:
        token = self.servers.get(token, token)
        objects = self.objects[token]
        if path == SYSTEM_NAMESPACE_PATH:
            return answer(
                200, system_namespace(self.uids.get(token) or f"uid-of-{token}")
            )
        if path == "/heartbeats":
            return answer(200, self.heartbeats)
        if path.endswith("/selfsubjectaccessreviews"):
            return answer(
                201, {"kind": "SelfSubjectAccessReview", "status": {"allowed": True}}
            )
        if request.method in ("POST", "PATCH"):
            return self._written(objects, request, path)
        found = objects.get(path)
        if (
            found is None
            and request.method == "GET"
            and path.rpartition("/")[2] in _PLURALS
        ):
            items = [
                document
                for where, document in objects.items()
                if where.startswith(f"{path}/")
            ]
            return answer(200, {"items": items})
        if found is None:
            name = path.rpartition("/")[2]
            return answer(
                404, {**status_body(404, "NotFound"), "details": {"name": name}}
            )
        if request.method == "DELETE":
            self._delete(token, path)
        return answer(200, found)

    def _written(self, objects: Objects, request: Request, path: str) -> bytes:
        body = json.loads(request.body)
        if request.method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            if path in objects:
                return answer(409, status_body(409, "AlreadyExists"))
        before = objects.get(path)
        expected = body["metadata"].get("resourceVersion")
        if (
            expected
            and (before or {}).get("metadata", {}).get("resourceVersion") != expected
        ):
            return answer(409, status_body(409, "Conflict"))
        if before and "merge-patch" in request.headers.get("content-type", ""):
            body = _merged(before, body)
        live = _live(body, before)
        if "dryRun" not in request.path:
            objects[path] = live
        return answer(200 if before else 201, live)

    def _delete(self, token: str, path: str) -> None:
        is_namespace = path.rpartition("/")[0] == "/api/v1/namespaces"
        inside = f"/namespaces/{path.rpartition('/')[2]}/" if is_namespace else None
        for each in [
            one
            for one in self.objects[token]
            if one == path or (inside and inside in one)
        ]:
            self.deleted(token, each)
            del self.objects[token][each]


_PLURALS = {plural for kinds in KINDS.values() for plural in kinds}


def _merged(before: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a merge patch makes of an object; None removes a field."""
    merged = {
        key: value for key, value in before.items() if patch.get(key, value) is not None
    }
    for key, value in patch.items():
        if isinstance(value, dict):
            merged[key] = _merged(before.get(key) or {}, value)
        elif value is not None:
            merged[key] = value
    return merged


def _live(body: Mapping[str, Any], before: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an object as an API server would store it, with a field set that depends on its content."""
    version = int(before["metadata"]["resourceVersion"]) + 1 if before else 1
    digest = sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    entry = {
        "manager": "fleetui",
        "operation": "Apply",
        "fieldsV1": {f"f:{digest}": {}},
    }
    metadata = {
        **body["metadata"],
        "uid": before["metadata"]["uid"] if before else str(uuid4()),
        "resourceVersion": str(version),
        "generation": version,
        "managedFields": [entry],
    }
    live = {**body, "metadata": metadata}
    if body["kind"] == "Deployment":
        count = (body.get("spec") or {}).get("replicas", 1)
        names = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
        live["status"] = {"observedGeneration": version, **dict.fromkeys(names, count)}
    if body["kind"] == "Service":
        live["spec"] = {
            **(body.get("spec") or {}),
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"],
        }
    return live


@dataclass(frozen=True)
class FleetProcess:
    """Where a fleet in a process of its own listens."""

    url: str
    ca: str
    pid: int


@contextmanager
def separate_fleet() -> Iterator[FleetProcess]:
    """Serve a fleet from a process of its own; the cluster whose token begins with "frozen" never answers."""
    command = [sys.executable, "-m", "tests.clusters.kubernetes.member_fleet"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            started = json.loads(process.stdout.readline())
            yield FleetProcess(started["url"], started["ca"], process.pid)
        finally:
            process.stdin.close()
            process.wait(timeout=30)


def main() -> None:
    """Serve until the standard input ends."""
    with serve(MemberFleet()) as server:
        sys.stdout.write(json.dumps({"url": server.url, "ca": authority().pem}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
