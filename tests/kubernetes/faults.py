"""What goes wrong on real clusters: each fault with its cure, for the campaign in test_faults.py."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.test import override_settings

from clusters import kubernetes_drivers
from clusters.kubernetes_drivers import DriverCache
from clusters.operations.connection import ConnectionInput, set_connection
from placements.models import Binding
from placements.services.placements import save_placement
from tests.kubernetes.members import Administrator, Member, await_true
from tests.kubernetes.test_rollouts import RealWorld
from tests.rows import config_map, placement_document, spec

CONFIG_MAPS = "/api/v1/namespaces/shop/configmaps"
SECRETS = "/api/v1/namespaces/shop/secrets"
QUOTAS = "/api/v1/namespaces/shop/resourcequotas"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ACCOUNTS = "/api/v1/namespaces/fleetui-system/serviceaccounts"
VALUE = "correct-horse-battery"
"""The value of the Secret that no message may contain."""

EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
CRON_TABS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "crontabs.stable.example.com"},
    "spec": {
        "group": "stable.example.com",
        "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
CRON_TAB = {
    "apiVersion": "stable.example.com/v1",
    "kind": "CronTab",
    "metadata": {"name": "nightly", "namespace": "shop"},
    "spec": {"cron": "0 3 * * *"},
}
BLUE = config_map("settings", data={"color": "blue"})
KEYS = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "keys", "namespace": "shop"},
    "stringData": {"password": VALUE},
}
Cure = Callable[[], None]


class FaultWorld(RealWorld):
    """Real clusters, of which "two" gets the faults; also the drivers' clock is turned by the test."""

    def __init__(
        self,
        members: Mapping[str, Member],
        patch: pytest.MonkeyPatch,
        cleanup: ExitStack,
    ) -> None:
        self.began = self.now = datetime.now(UTC)
        self.members, self.cleanup = members, cleanup
        patch.setattr(
            kubernetes_drivers, "drivers", DriverCache(monotonic=self.monotonic)
        )
        super().__init__(members)

    def monotonic(self) -> float:
        return time.monotonic() + (self.now - self.began).total_seconds()

    @property
    def two(self) -> Administrator:
        return self.admins["two"]

    def place_on_all(self, name: str = "web", *, most: int | str = "100%") -> None:
        """Place the shop, so that `most` clusters may be unavailable, and wait until it is there."""
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": most}}
        save_placement(
            placement_document(name, spec(strategy=strategy)), by=None, now=self.now
        )
        self.work()
        self.settle()

    def binding(self, cluster: str = "two", name: str = "web") -> Binding:
        return Binding.objects.get(cluster_name=cluster, placement__name=name)

    def change(self, *documents: Mapping[str, Any]) -> None:
        if documents:
            self.apply(*documents)
            self.work()

    def reconnect(self, token: str) -> None:
        member = self.members["two"]
        fields = {"server": member.server, "ca": member.connection.ca, "token": token}
        set_connection("two", ConnectionInput(fields=fields), by=None, now=self.now)

    def use_account(self, name: str) -> str:
        """Connect the second cluster with a service account that may do everything until that is revoked."""
        system = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "fleetui-system"},
        }
        self.two.apply("/api/v1/namespaces/fleetui-system", system)
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name},
        }
        self.two.apply(f"{ACCOUNTS}/{name}", account)
        self.allow(name, EVERYTHING)
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": name,
        }
        subject = {
            "kind": "ServiceAccount",
            "name": name,
            "namespace": "fleetui-system",
        }
        role_binding = {
            "metadata": {"name": name},
            "roleRef": reference,
            "subjects": [subject],
        }
        self.two.create(f"{RBAC}/clusterrolebindings", role_binding)
        for plural in ("clusterroles", "clusterrolebindings"):
            self.cleanup.callback(self.two.delete, f"{RBAC}/{plural}/{name}")
        self.cleanup.callback(self.two.delete, f"{ACCOUNTS}/{name}")
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {},
        }
        token = self.two.create(f"{ACCOUNTS}/{name}/token", request)["status"]["token"]
        client = Administrator(self.members["two"].client(token=token))
        await_true(lambda: client.has("/api/v1/namespaces/shop"))
        self.reconnect(token)
        return str(token)

    def allow(self, name: str, rules: list[dict[str, Any]]) -> None:
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        self.two.apply(
            f"{RBAC}/clusterroles/{name}",
            {**role, "metadata": {"name": name}, "rules": rules},
        )

    def probe(self, path: str, body: Mapping[str, Any]) -> int:
        """Return what the second cluster answers to a create that is a dry run."""
        return self.two.call("POST", path, body=body, query={"dryRun": "All"}).status


@contextmanager
def fault_world(
    members: Mapping[str, Member], patch: pytest.MonkeyPatch
) -> Iterator[FaultWorld]:
    """Connect the members, and leave nothing on them."""
    with ExitStack() as cleanup, override_settings(MEMBER_LOOPBACK=True):
        world = FaultWorld(members, patch, cleanup)
        cleanup.callback(kubernetes_drivers.drivers.clear)
        for admin in world.admins.values():
            cleanup.callback(admin.purge_namespace, "shop")
        yield world


def permission_revoked(world: FaultWorld) -> Cure:
    """Revoke the permission to patch ConfigMaps."""
    world.use_account("revoked")
    world.pass_time(2)
    verbs = ["get", "list", "create", "patch", "delete"]
    role = {
        "kind": "Role",
        "metadata": {"name": "inventory"},
        "apiVersion": "rbac.authorization.k8s.io/v1",
    }
    where = f"{RBAC}/namespaces/fleetui-system"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]
    world.two.apply(f"{where}/roles/inventory", {**role, "rules": rules})
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "Role",
        "name": "inventory",
    }
    subject = {
        "kind": "ServiceAccount",
        "name": "revoked",
        "namespace": "fleetui-system",
    }
    body = {
        "metadata": {"name": "inventory"},
        "roleRef": reference,
        "subjects": [subject],
    }
    world.two.create(f"{where}/rolebindings", body)
    for plural in ("roles", "rolebindings"):
        world.cleanup.callback(world.two.delete, f"{where}/{plural}/inventory")
    others = {"apiGroups": [""], "resources": ["namespaces", "secrets"], "verbs": ["*"]}
    reading = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}
    paths = {"nonResourceURLs": ["*"], "verbs": ["get"]}
    world.allow("revoked", [others, reading, paths])
    return lambda: world.allow("revoked", EVERYTHING)


def quota_filled(world: FaultWorld) -> Cure:
    status = {"hard": {"count/secrets": "0"}, "used": {"count/secrets": "0"}}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    world.two.create(QUOTAS, {**quota, "spec": {"hard": status["hard"]}})
    # As its controller would, which is not among those that run here.
    world.two.merge(f"{QUOTAS}/few/status", {"status": status})
    await_true(lambda: world.probe(SECRETS, KEYS) == 403)

    def cure() -> None:
        world.two.delete(f"{QUOTAS}/few")
        await_true(lambda: world.probe(SECRETS, KEYS) == 201)

    return cure


def webhook(world: FaultWorld, resources: str, **client: str) -> Cure:
    """Install a webhook for objects, and wait until it decides about them."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["*"],
        "resources": [resources],
    }
    shop = {"matchLabels": {"guarded": "yes"}}
    world.two.merge(
        "/api/v1/namespaces/shop", {"metadata": {"labels": {"guarded": "yes"}}}
    )
    hook = {
        "name": "guard.example.com",
        "clientConfig": client,
        "rules": [rule],
        "namespaceSelector": shop,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    world.two.create(WEBHOOKS, {"metadata": {"name": "guard"}, "webhooks": [hook]})
    world.cleanup.callback(world.two.delete, f"{WEBHOOKS}/guard")
    await_true(lambda: world.probe(SECRETS, KEYS) != 201)

    def cure() -> None:
        world.two.delete(f"{WEBHOOKS}/guard")
        await_true(lambda: world.probe(SECRETS, KEYS) == 201)

    return cure


def webhook_down(world: FaultWorld) -> Cure:
    return webhook(world, "secrets", url="https://127.0.0.1:9/")


class Refusing(BaseHTTPRequestHandler):
    """Refuses every object, and quotes all of it."""

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        data = (request.get("object") or {}).get("data")
        message = (
            f"the policy of the shop does not allow {json.dumps(data)} nor {VALUE}"
        )
        response = {
            "uid": request["uid"],
            "allowed": False,
            "status": {"code": 403, "message": message},
        }
        body = json.dumps({**review, "response": response}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def webhook_refuses(world: FaultWorld) -> Cure:
    """Start a webhook with the certificate of the API server: that has the address for its name."""
    folder = world.members["two"].folder / f"c{world.members['two'].number}"
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    world.cleanup.callback(server.server_close)
    world.cleanup.callback(server.shutdown)
    bundle = base64.b64encode((folder / "ca.crt").read_bytes()).decode()
    return webhook(
        world,
        "secrets",
        url=f"https://127.0.0.1:{server.server_port}/",
        caBundle=bundle,
    )


def immutable_field(world: FaultWorld) -> Cure:
    world.two.merge(f"{CONFIG_MAPS}/settings", {"immutable": True})
    return lambda: world.two.delete(f"{CONFIG_MAPS}/settings")


def is_established(definition: Mapping[str, Any]) -> bool:
    found = definition.get("status", {}).get("conditions") or ()
    return any(
        one["type"] == "Established" and one["status"] == "True" for one in found
    )


def serve_cron_tabs(world: FaultWorld, name: str) -> None:
    """Define the kind CronTab on a cluster."""
    path, admin = f"{DEFINITIONS}/crontabs.stable.example.com", world.admins[name]
    admin.apply(path, CRON_TABS)
    world.cleanup.callback(admin.delete, path)
    await_true(lambda: is_established(admin.get(path)))


def definition_missing(world: FaultWorld) -> Cure:
    serve_cron_tabs(world, "one")
    return lambda: serve_cron_tabs(world, "two")


def object_ends_never(world: FaultWorld) -> Cure:
    """Delete an object of the placement that a finalizer keeps."""
    path = f"{CONFIG_MAPS}/settings"
    world.two.merge(path, {"metadata": {"finalizers": ["example.com/never"]}})
    world.two.delete(path)

    def cure() -> None:
        world.two.merge(path, {"metadata": {"finalizers": None}})

    return cure
