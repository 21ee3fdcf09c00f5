"""A node without containers: pods are bound to it, run and end, as an API server sees them."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from clusters.drivers.base import DriverUnavailable
from tests.kubernetes.members import Administrator

NODE = "node-1"
PERIOD = 0.1
CAPACITY = {"cpu": "4", "memory": "16Gi", "pods": "110"}
CONDITIONS = ("Ready", "ContainersReady", "Initialized", "PodScheduled")


class FakeKubelet(threading.Thread):
    """Binds pods to one node and lets them run; pods of an image named bad… never become ready."""

    def __init__(self, admin: Administrator) -> None:
        super().__init__(daemon=True, name="kubelet")
        self.admin, self.stopped = admin, threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(PERIOD):
            try:
                for pod in self.admin.get("/api/v1/pods").get("items") or ():
                    self.sync(pod)
            except (
                DriverUnavailable,
                AssertionError,
            ):  # the API server is down, or the pod changed
                continue

    def sync(self, pod: Mapping[str, Any]) -> None:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        if metadata.get("deletionTimestamp"):
            body = {
                "kind": "DeleteOptions",
                "apiVersion": "v1",
                "gracePeriodSeconds": 0,
            }
            self.admin.call("DELETE", path, body=body)
        elif not pod["spec"].get("nodeName"):
            target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": metadata["name"]},
            }
            self.admin.call(
                "POST", f"{path}/binding", body={**binding, "target": target}
            )
        elif not pod["status"].get("startTime"):
            self.admin.merge(
                f"{path}/status", {"status": self.status_of(pod)}, manager="kubelet"
            )

    def status_of(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        containers = pod["spec"]["containers"]
        is_ready = not containers[0]["image"].startswith("bad")
        waiting = {
            "waiting": {"reason": "ImagePullBackOff", "message": "no such image"}
        }
        state = {"running": {"startedAt": now}} if is_ready else waiting
        status = "True" if is_ready else "False"
        return {
            "phase": "Running" if is_ready else "Pending",
            "startTime": now,
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": condition, "status": status, "lastTransitionTime": now}
                for condition in CONDITIONS
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": container["image"],
                    "ready": is_ready,
                    "restartCount": 0,
                    "state": state,
                }
                for container in containers
            ],
        }


@contextmanager
def running_kubelet(admin: Administrator) -> Iterator[FakeKubelet]:
    """Run a node on a cluster until the block ends."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
    admin.create(
        "/api/v1/nodes",
        {**node, "status": {"capacity": CAPACITY, "allocatable": CAPACITY}},
    )
    kubelet = FakeKubelet(admin)
    kubelet.start()
    try:
        yield kubelet
    finally:
        kubelet.stopped.set()
        kubelet.join()
        admin.delete(f"/api/v1/nodes/{NODE}")
