"""Member clusters for tests: drivers with recorded requests, and an administrator who changes things."""

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from clusters.drivers.base import (
    ApplyOptions,
    Driver,
    DriverPending,
    DriverUnavailable,
    MemberIdentity,
    ObjectRef,
    PlacementSeen,
    Version,
)
from clusters.drivers.kubernetes.access import ApiClient
from clusters.drivers.kubernetes.client import APPLY_PATCH, Client, Response
from clusters.drivers.kubernetes.configuration import Connection
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.drivers.kubernetes.sockets import AddressRules
from clusters.drivers.kubernetes.targets import inventory_name
from clusters.kubernetes_drivers import hub_id

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "kube.sh"
RULES = AddressRules(allow_loopback=True)
INVENTORIES = "/api/v1/namespaces/fleetui-system/configmaps"
MISSING = "The tests on real Kubernetes clusters are left out: no binaries. `make kube` builds them."
Result = TypeVar("Result")


def kube_home() -> Path:
    usual = Path.home() / ".cache" / "fleetui" / "kube"
    return Path(os.environ.get("KUBE_HOME") or usual)


def environment_of(folder: Path) -> dict[str, str]:
    """Return the environment in which `.ci/kube.sh` keeps everything in a folder."""
    return {**os.environ, "S": str(folder), "KUBE_HOME": str(kube_home())}


@cache
def kube_version() -> tuple[int, ...]:
    """Return the version of the servers as numbers; empty where none is built."""
    found = subprocess.run(
        [SCRIPT, "version"], capture_output=True, text=True, check=False
    )
    return tuple(int(number) for number in found.stdout.strip().split(".") if number)


def kubectl() -> str:
    version = ".".join(str(number) for number in kube_version())
    return str(kube_home() / version / "kubectl")


def policy_version() -> str:
    """Return the version of PodDisruptionBudget that the servers serve: policy/v1 came with 1.21."""
    return "v1" if kube_version() >= (1, 21) else "v1beta1"


def cron_version() -> str:
    """Return the version of CronJob that the servers serve: batch/v1 has it since 1.21."""
    return "v1" if kube_version() >= (1, 21) else "v1beta1"


def is_possible() -> bool:
    return kube_version() != ()


class CrashError(BaseException):
    """The process ended here."""


@dataclass
class Recorder:
    """A client that records its requests; a hook may change what becomes of them."""

    inner: ApiClient
    log: list[tuple[str, str, int]] = field(default_factory=list)
    hook: Callable[[str, str, Callable[[], Response]], Response] | None = None
    lock: Lock = field(default_factory=Lock)

    def request(self, method: str, path: str, **options: Any) -> Response:
        def send() -> Response:
            return self.inner.request(method, path, **options)

        answer = self.hook(method, path, send) if self.hook else send()
        with self.lock:
            dry = "+dry" if (options.get("query") or {}).get("dryRun") else ""
            self.log.append((method + dry, path, answer.status))
        return answer

    @property
    def writes(self) -> list[str]:
        return [
            f"{method} {path}"
            for method, path, _ in self.log
            if method in ("PATCH", "DELETE", "POST", "PUT")
        ]


@dataclass(frozen=True)
class Member:
    """One running cluster."""

    folder: Path
    number: int
    clients: list[Client] = field(default_factory=list, compare=False)

    @property
    def server(self) -> str:
        return (self.folder / f"c{self.number}" / "server").read_text().strip()

    @property
    def connection(self) -> Connection:
        return Connection(
            self.server, ca=(self.folder / f"c{self.number}" / "ca.crt").read_text()
        )

    @property
    def token(self) -> str:
        return (self.folder / f"c{self.number}" / "token").read_text().strip()

    def client(self, *, token: str = "", server: str = "") -> Client:
        connection = self.connection
        if server:
            connection = Connection(server, ca=connection.ca)
        client = Client(connection, lambda: {"token": token or self.token}, rules=RULES)
        self.clients.append(client)
        return client

    def close(self) -> None:
        """Close the sockets of all clients."""
        while self.clients:
            self.clients.pop().close()

    def do(self, command: str, *more: str) -> None:
        """Run a command of the script for this cluster: kill, freeze, thaw, restart."""
        environment = {**os.environ, "S": str(self.folder)}
        subprocess.run(
            [SCRIPT, command, str(self.number), *more], check=True, env=environment
        )


class Administrator:
    """Another user who works on the cluster, such as with kubectl."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    def call(self, method: str, path: str, **options: Any) -> Response:
        return self._client.request(
            method, path, deadline=time.monotonic() + 20, **options
        )

    def get(self, path: str) -> dict[str, Any]:
        answer = self.call("GET", path)
        assert answer.status == 200, answer
        return dict(answer.body)

    def has(self, path: str) -> bool:
        return self.call("GET", path).status == 200

    def apply(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        manager: str = "other-manager",
        **query: str,
    ) -> dict[str, Any]:
        query = {"fieldManager": manager, "force": "true", **query}
        answer = self.call(
            "PATCH", path, body=body, query=query, content_type=APPLY_PATCH
        )
        assert answer.status in (200, 201), answer
        return dict(answer.body)

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.call("POST", path, body=body)
        assert answer.status in (200, 201), answer
        return dict(answer.body)

    def merge(
        self, path: str, body: Mapping[str, Any], *, manager: str = "other-manager"
    ) -> dict[str, Any]:
        kind = "application/merge-patch+json"
        answer = self.call(
            "PATCH", path, body=body, query={"fieldManager": manager}, content_type=kind
        )
        assert answer.status == 200, answer
        return dict(answer.body)

    def delete(self, path: str) -> None:
        answer = self.call("DELETE", path)
        assert answer.status in (200, 202, 404), answer

    def forget_inventories(self) -> None:
        """Delete the inventories that earlier tests left: their database is gone, and this one has its ID."""
        for item in self.call("GET", INVENTORIES).body.get("items") or ():
            owner = str(
                (item["metadata"].get("annotations") or {}).get("fleetui.io/owner")
            )
            if owner.startswith(hub_id()):
                self.delete(f"{INVENTORIES}/{item['metadata']['name']}")

    def purge_namespace(self, name: str) -> None:
        """Delete a namespace at once, without its controller, which takes seconds."""
        path = f"/api/v1/namespaces/{name}"
        found = self.call("GET", path)
        if found.status == 404:
            return
        for kinds, root in (
            (
                "configmaps secrets services serviceaccounts persistentvolumeclaims pods",
                "/api/v1",
            ),
            ("deployments replicasets statefulsets daemonsets", "/apis/apps/v1"),
            ("jobs", "/apis/batch/v1"),
        ):
            for kind in kinds.split():
                where = f"{root}/namespaces/{name}/{kind}"
                for item in self.get(where).get("items") or ():
                    self._delete_with_finalizers(
                        f"{where}/{item['metadata']['name']}", item
                    )
        self.call("DELETE", path)
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name},
            "spec": {"finalizers": []},
        }
        self.call("PUT", f"{path}/finalize", body=body)

    def _delete_with_finalizers(self, path: str, found: Mapping[str, Any]) -> None:
        if found["metadata"].get("finalizers"):
            self.call(
                "PATCH",
                path,
                body={"metadata": {"finalizers": None}},
                content_type="application/merge-patch+json",
            )
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        self.call("DELETE", path, body=body)


@dataclass
class Hub:
    """One hub with its drivers of one cluster; each test has its own hub ID and namespace."""

    member: Member
    admin: Administrator
    hub_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    placement: str = "web"
    recorders: list[Recorder] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        return f"n-{self.hub_id[:8]}"

    @property
    def requests(self) -> list[tuple[str, str, int]]:
        return self.recorders[-1].log

    def driver(
        self,
        client: ApiClient | None = None,
        *,
        hub_id: str = "",
        member: str = "0000/one",
        cluster_uid: str = "some-uid",
        shared_with: str = "",
    ) -> KubernetesDriver:
        """Create a new driver, as a worker that was restarted does."""
        recorder = Recorder(client or self.member.client())
        self.recorders.append(recorder)
        return KubernetesDriver(
            recorder,
            identity=MemberIdentity(
                hub_id or self.hub_id, member, cluster_uid, shared_with
            ),
            server=self.member.server,
            monotonic=time.monotonic,
        )

    def version(
        self,
        id_: str,
        *manifests: Mapping[str, Any],
        was_applied: bool = False,
        **options: Any,
    ) -> Version:
        kinds = tuple(
            sorted(
                {
                    (str(manifest["apiVersion"]), str(manifest["kind"]))
                    for manifest in manifests
                }
            )
        )
        return Version(
            id_,
            self.placement,
            manifests,
            options=ApplyOptions(**options),
            kinds=kinds,
            was_applied=was_applied,
        )

    def seen(self, driver: Driver, **options: Any) -> PlacementSeen:
        found = driver.observe(self.placement, **options).of(self.placement)
        assert found is not None
        return found

    @property
    def inventory_path(self) -> str:
        return f"{INVENTORIES}/{inventory_name(self.hub_id, self.placement)}"

    def manifest(
        self, api_version: str, kind: str, name: str, **fields: Any
    ) -> dict[str, Any]:
        """Make a manifest in the namespace of this test."""
        metadata = {
            "name": name,
            "namespace": self.namespace,
            **fields.pop("metadata", {}),
        }
        return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}

    def namespace_manifest(self, **metadata: Any) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.namespace, **metadata},
        }

    def config_map(self, name: str, **data: str) -> dict[str, Any]:
        return self.manifest("v1", "ConfigMap", name, data=data)

    def deployment(
        self, name: str, *, image: str = "shop:1", replicas: int | None = 1
    ) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": image}]},
            },
        }
        if replicas is not None:
            spec["replicas"] = replicas
        return self.manifest("apps/v1", "Deployment", name, spec=spec)

    def path(self, plural: str, name: str = "", *, root: str = "/api/v1") -> str:
        where = f"{root}/namespaces/{self.namespace}/{plural}"
        return f"{where}/{name}" if name else where

    @property
    def namespace_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}"

    def deployments(self, name: str) -> str:
        return self.path("deployments", name, root="/apis/apps/v1")

    def ref(self, manifest: Mapping[str, Any]) -> ObjectRef:
        return ObjectRef.of(manifest)

    def objects(self) -> set[str]:
        """Return the objects with our owner annotation, past the driver."""
        return set(self.owned_objects())

    def owned_objects(self) -> Iterator[str]:
        owner = f"{self.hub_id}/{self.placement}"
        for path, kind in (
            ("/api/v1/namespaces", "Namespace"),
            (self.path("configmaps"), "ConfigMap"),
            (self.path("secrets"), "Secret"),
            (self.path("services"), "Service"),
            (self.path("serviceaccounts"), "ServiceAccount"),
            (self.path("deployments", root="/apis/apps/v1"), "Deployment"),
            (self.path("jobs", root="/apis/batch/v1"), "Job"),
        ):
            for item in self.admin.get(path).get("items") or ():
                metadata = item["metadata"]
                if (metadata.get("annotations") or {}).get("fleetui.io/owner") == owner:
                    yield f"{kind} {metadata['name']}"


def repeat(call: Callable[[], Result], *, seconds: float = 30.0) -> Result:
    """Repeat a call while it is pending, as a worker does."""
    until = time.monotonic() + seconds
    while True:
        try:
            return call()
        except DriverPending:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def await_true(condition: Callable[[], bool], *, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.1)


def unavailable(call: Callable[[], object]) -> DriverUnavailable:
    """Return the error of a call that finds no cluster."""
    try:
        call()
    except DriverUnavailable as error:
        return error
    raise AssertionError("the cluster was available")
