"""A hub without Kubernetes: sockets and threads that list and watch objects, with faults by name."""

import json
import re
import socket
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from operator import attrgetter
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.clusters.kubernetes.servers import (
    LocalServer,
    Request,
    answer,
    serve,
    status_body,
)
from tests.hubs.crds import BUILT_IN, CLUSTER, PLACEMENT, RESOURCES, Resource
from tests.hubs.fake_writes import Webhook, carry_out

TOKEN = "hub-token"
_PATH = re.compile(
    r"/(?:apis/(?P<group>[^/]+)|api)/(?P<version>[^/]+)(?:/namespaces/(?P<namespace>[^/]+))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<part>status))?"
)
_WATCH_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nDate: %s\r\n\r\n"
Key = tuple[str, str]


class Closed(OSError):
    """The connection ends here."""


@dataclass
class Fault:
    """What goes wrong with requests: `verb` list, watch or continue, "" for each; so many `times`.

    410 (an ERROR event on a watch), 410-status, 504, cut, stall, drip, 429, 503, 401, 403, 404, slow, html,
    cut-before and cut-after (a write that is not, or is executed; the connection ends without an answer),
    garbage (the lines of `lines`), error (another ERROR event).
    """

    name: str
    verb: str = ""
    plural: str = ""
    times: int = 1_000_000
    lines: tuple[bytes, ...] = ()
    seconds: float = 0.0
    hits: int = 0


@dataclass(frozen=True)
class Change:
    """An entry of the history that watches deliver."""

    revision: int
    type: str
    resource: Key
    object: Mapping[str, Any]


@dataclass
class Seen:
    """A request as the tests count them: list, continue, watch or another verb."""

    verb: str
    plural: str
    query: Mapping[str, str]
    headers: Mapping[str, str]


@dataclass
class FakeHub:
    """The objects of a hub with their history; safe for several threads."""

    token: str = TOKEN
    version: str = "v1.30.1"
    groups: set[str] = field(default_factory=lambda: {PLACEMENT, CLUSTER})
    absent: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    """`verb plural`, or `verb *`."""
    incomplete_rules: bool = False
    storage: dict[str, str] = field(default_factory=dict)
    """Storage versions of plurals that are not stored in the first version of the table."""
    clock_offset: float = 0.0
    bookmark_seconds: float = 0.2
    revision: int = 1_000
    compacted: int = 0
    seen: list[Seen] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    watches: int = 0
    webhooks: list[Webhook] = field(default_factory=list)
    strangers: set[str] = field(default_factory=set)
    """Impersonated users without any permission."""

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.objects: dict[Key, dict[Key, dict[str, Any]]] = {}
        self.history: list[Change] = []
        self.epoch = 0
        self._uids = 0

    # --- objects ---

    def put(
        self, plural: str, content: Mapping[str, Any], *, group: str = ""
    ) -> dict[str, Any]:
        """Create or change an object; return it as stored."""
        with self.changed:
            resource = find(plural, group)
            stored = self._stored(resource, content)
            place = self.objects.setdefault((resource.group, resource.plural), {})
            key = (stored["metadata"].get("namespace", ""), stored["metadata"]["name"])
            before = place.get(key)
            self._uids += not before
            metadata = stored["metadata"]
            metadata.setdefault(
                "uid", before["metadata"]["uid"] if before else f"uid-{self._uids:06}"
            )
            metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            has_new_spec = before is not None and before.get("spec") != stored.get(
                "spec"
            )
            metadata["generation"] = (
                (before["metadata"]["generation"] + has_new_spec) if before else 1
            )
            self._append(
                "MODIFIED" if before else "ADDED",
                (resource.group, resource.plural),
                stored,
            )
            place[key] = stored
            return deepcopy(stored)

    def delete(self, plural: str, name: str, namespace: str = "") -> None:
        with self.changed:
            resource = find(plural)
            key = (resource.group, resource.plural)
            gone = self.objects[key].pop((namespace, name))
            self._append("DELETED", key, deepcopy(gone))

    def get(self, plural: str, name: str, namespace: str = "") -> dict[str, Any]:
        resource = find(plural)
        return deepcopy(self.objects[resource.group, resource.plural][namespace, name])

    def all_objects(self) -> dict[tuple[str, str, str, str], dict[str, Any]]:
        with self.changed:
            return {
                (*resource, *key): deepcopy(document)
                for resource, place in self.objects.items()
                for key, document in place.items()
            }

    def compact(self) -> None:
        """Forget the history: watches and continue tokens from before get 410."""
        with self.changed:
            self.compacted = self.revision
            self.history.clear()
            self.changed.notify_all()

    def cut_watches(self) -> None:
        """End all open watches in the middle of a line."""
        with self.changed:
            self.epoch += 1
            self.changed.notify_all()

    def copy_state(self) -> tuple[int, dict[Key, dict[Key, dict[str, Any]]]]:
        """Return a backup for `restore`."""
        with self.changed:
            return self.revision, deepcopy(self.objects)

    def restore(
        self,
        backup: tuple[int, dict[Key, dict[Key, dict[str, Any]]]],
        *,
        new_uids: bool = False,
    ) -> None:
        """Go back to a backup: resourceVersions go back as well."""
        with self.changed:
            self.revision, self.objects = backup[0], deepcopy(backup[1])
            self.history.clear()
            self.compacted = self.revision
            self.epoch += 1
            if new_uids:
                for place in self.objects.values():
                    for document in place.values():
                        document["metadata"]["uid"] += "-restored"
            self.changed.notify_all()

    def fault(
        self, name: str, verb: str = "", plural: str = "", **options: Any
    ) -> Fault:
        """Inject a fault; it stays until it has hit so many times or is removed from `faults`."""
        one = Fault(name, verb, plural, **options)
        with self.changed:
            self.faults.append(one)
        return one

    def wait_until(
        self, is_true: Callable[[], object], *, seconds: float = 10.0
    ) -> None:
        """Wait for something that requests or changes bring about."""
        with self.changed:
            assert self.changed.wait_for(is_true, seconds)

    def count(self, verb: str, plural: str = "") -> int:
        return sum(
            seen.verb == verb and plural in ("", seen.plural) for seen in self.seen
        )

    def _stored(self, resource: Resource, content: Mapping[str, Any]) -> dict[str, Any]:
        version = resource.versions[0]
        api_version = f"{resource.group}/{version}" if resource.group else version
        return deepcopy({**content, "apiVersion": api_version, "kind": resource.kind})

    def _append(self, kind: str, resource: Key, content: dict[str, Any]) -> None:
        self.revision += 1
        content["metadata"]["resourceVersion"] = str(self.revision)
        self.history.append(Change(self.revision, kind, resource, content))
        self.changed.notify_all()

    # --- requests ---

    def __call__(
        self, link: socket.socket, request: Request, server: LocalServer
    ) -> None:
        """Answer one request; raise Closed to close the connection."""
        url = urlsplit(request.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        found = _PATH.fullmatch(url.path)
        verb, plural = (
            self._verb(request, query, found),
            (found["plural"] if found else url.path),
        )
        with self.changed:
            self.seen.append(Seen(verb, plural, query, request.headers))
            fault = self._fault_for(verb, plural)
            self.changed.notify_all()
        if fault and self._misbehave(link, fault, verb, server):
            return
        if request.headers.get("authorization") != f"Bearer {self.token}":
            link.sendall(answer(401, status_body(401, "Unauthorized")))
        elif found and verb in ("list", "continue", "watch"):
            self._collection(link, found, query, request, server, fault)
        else:
            is_write = "dryRun" not in query
            if fault and fault.name == "cut-before" and is_write:
                raise Closed
            content = self._other(url.path, request)
            if fault and fault.name == "cut-after" and is_write:
                raise Closed
            link.sendall(content)

    def _verb(
        self, request: Request, query: Mapping[str, str], found: re.Match[str] | None
    ) -> str:
        if request.method != "GET" or not found or found["name"]:
            return request.method.lower()
        if "watch" in query:
            return "watch"
        return "continue" if "continue" in query else "list"

    def _fault_for(self, verb: str, plural: str) -> Fault | None:
        for fault in self.faults:
            if (
                fault.hits < fault.times
                and fault.verb in ("", verb)
                and fault.plural in ("", plural)
            ):
                fault.hits += 1
                return fault
        return None

    def _misbehave(
        self, link: socket.socket, fault: Fault, verb: str, server: LocalServer
    ) -> bool:
        """Answer badly; return False where the fault is one of the watch itself."""
        name = fault.name
        if name.isdecimal() and name != "410":
            headers = (
                {"Retry-After": "1"}
                if name in ("429", "503") and not fault.seconds
                else {}
            )
            link.sendall(
                answer(
                    int(name),
                    status_body(int(name), "Fault", "as the test wants"),
                    headers=headers,
                )
            )
        elif name == "410-status" or (name == "410" and verb != "watch"):
            body = status_body(410, "Expired", "too old")
            body["metadata"] = {"continue": "an inconsistent remainder"}
            link.sendall(answer(410, body))
        elif name == "html":
            link.sendall(answer(200, raw=b"<html>not an API server</html>"))
        elif name == "slow":
            server.stopped.wait(fault.seconds)
            return False
        elif name == "stall" and verb != "watch":
            server.stopped.wait(fault.seconds or 3600)
            raise Closed
        elif name == "cut" and verb != "watch":
            link.sendall(answer(200, {"kind": "List", "items": ["x" * 100]})[:-50])
            raise Closed
        else:
            return False
        return True

    def _collection(
        self,
        link: socket.socket,
        found: re.Match[str],
        query: Mapping[str, str],
        request: Request,
        server: LocalServer,
        fault: Fault | None,
    ) -> None:
        resource = self._resource(found)
        verb = "watch" if "watch" in query else "list"
        if resource is None:
            link.sendall(
                answer(
                    404,
                    raw=b"404 page not found\n",
                    headers={"Content-Type": "text/plain"},
                )
            )
        elif not self._may(verb, resource.plural):
            body = status_body(403, "Forbidden", f"{resource.plural} is forbidden")
            link.sendall(answer(403, body))
        elif verb == "list":
            is_partial = "PartialObjectMetadata" in request.headers.get("accept", "")
            link.sendall(
                self._list(
                    resource, found["namespace"] or "", query, is_partial=is_partial
                )
            )
        else:
            with self.changed:
                self.watches += 1
            try:
                self._watch(
                    link,
                    resource,
                    found["namespace"] or "",
                    query,
                    request,
                    server,
                    fault,
                )
            finally:
                with self.changed:
                    self.watches -= 1
                    self.changed.notify_all()

    def _resource(self, found: re.Match[str]) -> Resource | None:
        for resource in (*RESOURCES, *BUILT_IN):
            if (resource.group, resource.plural) == (
                found["group"] or "",
                found["plural"],
            ):
                is_served = (
                    not resource.group or resource.group in self.groups
                ) and resource.plural not in self.absent
                return (
                    resource
                    if is_served and found["version"] in resource.versions
                    else None
                )
        return None

    def _may(self, verb: str, plural: str) -> bool:
        return not self.denied & {f"{verb} {plural}", f"{verb} *"}

    def _list(
        self,
        resource: Resource,
        namespace: str,
        query: Mapping[str, str],
        *,
        is_partial: bool,
    ) -> bytes:
        with self.changed:
            place = self.objects.get((resource.group, resource.plural), {})
            revision, start = self.revision, 0
            if token := query.get("continue"):
                revision, start = map(int, token.split(":"))
                if revision < self.compacted:
                    return answer(
                        410,
                        status_body(410, "Expired", "the continue token has expired"),
                    )
            rows = [
                document
                for _, document in sorted(place.items())
                if _matches(document, namespace)
            ]
            size = int(query.get("limit", 0)) or len(rows)
            page = deepcopy(rows[start : start + size])
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if start + size < len(rows):
            metadata["continue"] = f"{revision}:{start + size}"
        items = [_partial(document) if is_partial else document for document in page]
        if not resource.group:  # as built-in kinds are listed
            items = [
                {
                    key: value
                    for key, value in item.items()
                    if key not in ("kind", "apiVersion")
                }
                for item in items
            ]
        kind = "PartialObjectMetadataList" if is_partial else f"{resource.kind}List"
        body = {"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items}
        return answer(200, body, headers={"Date": self.date()})

    def date(self) -> str:
        return formatdate(time.time() + self.clock_offset, usegmt=True)

    def _watch(
        self,
        link: socket.socket,
        resource: Resource,
        namespace: str,
        query: Mapping[str, str],
        request: Request,
        server: LocalServer,
        fault: Fault | None,
    ) -> None:
        is_partial = "PartialObjectMetadata" in request.headers.get("accept", "")
        position, end = (
            int(query["resourceVersion"]),
            time.monotonic() + float(query["timeoutSeconds"]),
        )
        with self.changed:
            epoch = self.epoch
            if position > self.revision:
                body = status_body(504, "Timeout", "Too large resource version")
                link.sendall(answer(504, body))
                return None
            is_expired = position < self.compacted
        link.sendall(_WATCH_HEAD % self.date().encode())
        if is_expired or (fault and fault.name == "410"):
            send_event(
                link, "ERROR", status_body(410, "Expired", "too old resource version")
            )
            return send_end(link)
        if fault and self._spoil(link, fault, server):
            return send_end(link)
        matching = partial(_matches, namespace=namespace)
        while not server.stopped.is_set() and time.monotonic() < end:
            with self.changed:
                if self.epoch == epoch and self.revision <= position:
                    self.changed.wait(self.bookmark_seconds)
                fresh = self.history[
                    bisect_right(self.history, position, key=attrgetter("revision")) :
                ]
                revision, is_cut = self.revision, self.epoch != epoch
            for change in fresh:
                if change.resource == (resource.group, resource.plural) and matching(
                    change.object
                ):
                    content = dict(change.object)
                    send_event(
                        link, change.type, _partial(content) if is_partial else content
                    )
            if is_cut:
                link.sendall(b'10\r\n{"type":"MODI')
                raise Closed
            position = max(position, revision)
            if not fresh and query.get("allowWatchBookmarks"):
                bookmark = {
                    "kind": resource.kind,
                    "metadata": {"resourceVersion": str(position)},
                }
                send_event(link, "BOOKMARK", bookmark)
        return send_end(link)

    def _spoil(self, link: socket.socket, fault: Fault, server: LocalServer) -> bool:
        """Spoil an open watch; return whether it ends properly now."""
        if fault.name == "stall":
            server.stopped.wait(fault.seconds or 3600)
            raise Closed
        if fault.name == "drip":
            while not server.stopped.wait(0.02):
                link.sendall(b"1\r\nx\r\n")
            raise Closed
        if fault.name == "cut":
            link.sendall(b'10\r\n{"type":"MODI')
            raise Closed
        if fault.name == "error":
            send_event(
                link, "ERROR", status_body(500, "InternalError", "as the test wants")
            )
            return True
        for line in fault.lines:
            send_chunk(link, line + b"\n")
        return False

    def _other(self, path: str, request: Request) -> bytes:
        if path == "/version":
            _, minor = self.version.split(".")[:2]
            return answer(
                200, {"gitVersion": self.version, "major": "1", "minor": minor}
            )
        if path == "/apis":
            groups = [
                {"name": group, "versions": [{"version": "v1beta1"}, {"version": "v1"}]}
                for group in self.groups
            ]
            return answer(200, {"kind": "APIGroupList", "groups": groups})
        if path.startswith(("/apis/", "/api/v1")) and len(path.split("/")) <= 4:
            return self._resource_list(path)
        if path.startswith("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"):
            return self._definition(path.rpartition("/")[2])
        if path.endswith("/selfsubjectaccessreviews"):
            wanted = json.loads(request.body)["spec"]["resourceAttributes"]
            body = {
                "status": {"allowed": self._may(wanted["verb"], wanted["resource"])}
            }
            return answer(201, {"kind": "SelfSubjectAccessReview", **body})
        if path.endswith("/selfsubjectrulesreviews"):
            return answer(
                201, {"kind": "SelfSubjectRulesReview", "status": self._rules()}
            )
        if (found := _PATH.fullmatch(path)) and request.method in (
            "POST",
            "PATCH",
            "DELETE",
        ):
            return self._write(found, request)
        if found and found["name"] and request.method == "GET":
            resource = self._resource(found)
            place = (
                self.objects.get((resource.group, resource.plural), {})
                if resource
                else {}
            )
            if stored := place.get((found["namespace"] or "", found["name"])):
                return answer(200, stored)
        return answer(404, status_body(404, "NotFound", "not found"))

    def _write(self, found: re.Match[str], request: Request) -> bytes:
        resource = self._resource(found)
        if resource is None:
            return answer(404, status_body(404, "NotFound", "not found"))
        if request.headers.get("impersonate-user") in self.strangers:
            return answer(
                403, status_body(403, "Forbidden", "the user may not do this")
            )
        query = {
            key: values[0]
            for key, values in parse_qs(urlsplit(request.path).query).items()
        }
        with self.changed:
            return carry_out(self, resource, found.groupdict(), query, request)

    def _resource_list(self, path: str) -> bytes:
        parts = (
            path.removeprefix("/apis/").split("/")
            if path.startswith("/apis/")
            else ["", "v1"]
        )
        group, version = parts[0], parts[-1]
        rows = [
            resource
            for resource in (*RESOURCES, *BUILT_IN)
            if resource.group == group and version in resource.versions
        ]
        if (group and group not in self.groups) or not rows:
            return answer(404, raw=b"404 page not found\n")
        verbs = ["get", "list", "watch", "create", "patch", "delete"]
        listed = [
            {
                "name": row.plural,
                "kind": row.kind,
                "namespaced": row.is_namespaced,
                "verbs": verbs,
            }
            for row in rows
            if row.plural not in self.absent
        ]
        return answer(200, {"kind": "APIResourceList", "resources": listed})

    def _definition(self, name: str) -> bytes:
        if not self._may("get", "customresourcedefinitions"):
            return answer(
                403,
                status_body(403, "Forbidden", "customresourcedefinitions is forbidden"),
            )
        plural = name.partition(".")[0]
        one = find(plural)
        stored = self.storage.get(plural, one.versions[0])
        versions = [
            {"name": version, "served": True, "storage": version == stored}
            for version in one.versions
        ]
        return answer(
            200, {"kind": "CustomResourceDefinition", "spec": {"versions": versions}}
        )

    def _rules(self) -> dict[str, Any]:
        rules = []
        for resource in (*RESOURCES, *BUILT_IN):
            verbs = [
                verb
                for verb in ("get", "list", "watch", "create", "patch", "delete")
                if self._may(verb, resource.plural)
            ]
            rules.append(
                {
                    "apiGroups": [resource.group],
                    "resources": [resource.plural],
                    "verbs": verbs,
                }
            )
        if self._may("get", "customresourcedefinitions"):
            definitions = ["customresourcedefinitions"]
            rules.append(
                {
                    "apiGroups": ["apiextensions.k8s.io"],
                    "resources": definitions,
                    "verbs": ["get", "list"],
                }
            )
        return {
            "resourceRules": [] if self.incomplete_rules else rules,
            "incomplete": self.incomplete_rules,
        }


def find(plural: str, group: str = "") -> Resource:
    return next(
        resource
        for resource in (*RESOURCES, *BUILT_IN)
        if resource.plural == plural and group in ("", resource.group)
    )


def _matches(one: Mapping[str, Any], namespace: str) -> bool:
    return not namespace or one["metadata"].get("namespace") == namespace


def _partial(one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": one["metadata"],
    }


def send_chunk(link: socket.socket, content: bytes) -> None:
    link.sendall(b"%x\r\n%s\r\n" % (len(content), content))


def send_event(link: socket.socket, kind: str, content: Mapping[str, Any]) -> None:
    send_chunk(link, json.dumps({"type": kind, "object": content}).encode() + b"\n")


def send_end(link: socket.socket) -> None:
    link.sendall(b"0\r\n\r\n")


@contextmanager
def serve_hub(hub: FakeHub | None = None) -> Iterator[tuple[FakeHub, LocalServer]]:
    """Serve a hub until the block ends."""
    hub = hub or FakeHub()
    with serve(hub) as server:
        try:
            yield hub, server
        finally:
            hub.cut_watches()
