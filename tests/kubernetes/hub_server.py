"""A hub on a real API server: its kinds, an account that reads them, what its controllers would write."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from clusters.drivers.kubernetes.client import Client, Response
from tests.hubs.crds import BUILT_IN, RESOURCES, Resource, definitions
from tests.hubs.fake_hub import find
from tests.kubernetes.members import (
    SCRIPT,
    Administrator,
    Member,
    environment_of,
    kubectl,
)
from tests.runtime.processes import ROOT, eventually

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TOKEN_REQUEST = "/api/v1/namespaces/fleetui-system/serviceaccounts/fleetui/token"
MERGE_PATCH = "application/merge-patch+json"
MIRRORED_EVENTS = ("MemberCluster", "ClusterResourcePlacement", "ResourcePlacement")
Key = tuple[str, str, str]


@dataclass
class HubServer:
    """One API server with the kinds of a hub; `put` and `delete` take the place of its controllers."""

    folder: Path
    token: str = ""
    _clients: list[Client] = field(default_factory=list)

    @cached_property
    def member(self) -> Member:
        return Member(self.folder, 1)

    @property
    def admin(self) -> Administrator:
        if not self._clients:
            self._clients.append(self.member.client())
        return Administrator(self._clients[0])

    def prepare(self) -> None:
        """Define the kinds, apply the manifest of a viewer, and request a token of its account."""
        for definition in definitions():
            self.admin.create(DEFINITIONS, definition)
        for resource in RESOURCES:
            for version in resource.versions:
                path = f"/apis/{resource.group}/{version}/{resource.plural}"
                eventually(lambda path=path: self.admin.has(path), seconds=30)  # type: ignore[misc]
        self.kubectl("apply", "-f", str(ROOT / "docs" / "hubs" / "viewer.yaml"))
        self.token = self.new_token()

    def new_token(self, *, seconds: int = 7200) -> str:
        """Return a token of the account that the manifest of a viewer creates."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        token: str = self.admin.create(TOKEN_REQUEST, body)["status"]["token"]
        return token

    def kubectl(self, *arguments: str) -> str:
        done = subprocess.run(
            [kubectl(), "--kubeconfig", self.folder / "c1" / "kubeconfig", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def kubeconfig(self) -> dict[str, Any]:
        """Return a kubeconfig with the token of the viewer."""
        text = self.kubectl("config", "view", "--raw", "-o", "json")
        found: dict[str, Any] = json.loads(text)
        found["users"] = [
            {"name": found["users"][0]["name"], "user": {"token": self.token}}
        ]
        return found

    # --- what the controllers write ---

    def path(
        self,
        resource: Resource,
        namespace: str = "",
        name: str = "",
        *,
        version: str = "",
    ) -> str:
        version = version or resource.versions[0]
        root = (
            f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
        )
        inside = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{inside}/{resource.plural}" + (f"/{name}" if name else "")

    def put(self, plural: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object with its status, or change both as far as they are given."""
        resource, metadata = find(plural), content["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        version = resource.versions[0]
        api_version = f"{resource.group}/{version}" if resource.group else version
        body = {**content, "apiVersion": api_version, "kind": resource.kind}
        body["metadata"] = {
            key: value for key, value in metadata.items() if key != "managedFields"
        }
        status = body.pop("status", None)
        answer = self.admin.call("POST", self.path(resource, namespace), body=body)
        if answer.status == 409:
            answer = self._merge(self.path(resource, namespace, name), body)
        assert answer.status in (200, 201), answer
        if status is not None:
            part = "/status" if resource.has_status else ""
            answer = self._merge(
                self.path(resource, namespace, name) + part, {"status": status}
            )
            assert answer.status == 200, answer
        return dict(answer.body)

    def _merge(self, path: str, body: Mapping[str, Any]) -> Response:
        query = {"fieldManager": "hubagent"}
        return self.admin.call(
            "PATCH", path, body=body, query=query, content_type=MERGE_PATCH
        )

    def delete(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object as soon as its finalizers were removed, as its controllers would."""
        resource = find(plural)
        path = self.path(resource, namespace, name)
        self.admin.delete(path)
        answer = self._merge(path, {"metadata": {"finalizers": None}})
        assert answer.status in (200, 404), answer

    # --- what there is ---

    def objects(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        """Return all objects of the kinds that are mirrored, as the stored version has them."""
        found = {}
        for resource in (*RESOURCES, *BUILT_IN):
            if resource.plural == "works":
                continue
            for item in self.admin.get(self.path(resource)).get("items") or ():
                involved = item.get("involvedObject") or {}
                if (
                    resource.kind == "Event"
                    and involved.get("kind") not in MIRRORED_EVENTS
                ):
                    continue
                metadata = item["metadata"]
                key = (resource.kind, metadata.get("namespace", ""), metadata["name"])
                found[key] = {
                    **item,
                    "kind": resource.kind,
                }  # which lists of built-in kinds leave out
        return found

    # --- faults ---

    def compact(self) -> None:
        """Make etcd forget all revisions before the present one."""
        found = self._etcd("range", {"key": "AA==", "limit": "1"})
        self._etcd(
            "compaction", {"revision": found["header"]["revision"], "physical": True}
        )

    def _etcd(self, call: str, body: Mapping[str, Any]) -> dict[str, Any]:
        ports = dict(
            line.split("=") for line in (self.folder / "ports").read_text().split()
        )
        url = f"http://127.0.0.1:{ports['ETCD_PORT']}/v3/kv/{call}"
        request = urllib.request.Request(url, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=20) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def restart(self) -> None:
        """Restart the API server, whose memory of recent changes is lost with it."""
        self.close()
        self.member.do("restart")

    def close(self) -> None:
        self._clients.clear()
        self.member.close()


@contextmanager
def hub_server(folder: Path) -> Iterator[HubServer]:
    """Start an API server with the kinds of a hub, and leave nothing of it behind."""
    environment = environment_of(folder)
    subprocess.run([SCRIPT, "start", "1"], check=True, env=environment, timeout=180)
    server = HubServer(folder)
    try:
        server.prepare()
        yield server
    finally:
        server.close()
        subprocess.run([SCRIPT, "stop"], check=True, env=environment, timeout=60)
