"""The Kubernetes driver keeps the drivers' contract on a real API server."""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from clusters.drivers.base import (
    Applied,
    DiffResult,
    Driver,
    DriverUnavailable,
    Observation,
    Removed,
    Version,
)
from clusters.drivers.kubernetes.client import Response
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.drivers.readiness import Readiness
from tests.clusters.driver_contract import V1, WEB, Clock, DriverContract
from tests.kubernetes.members import INVENTORIES, Administrator, Hub, repeat

DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"


@dataclass
class PatientDriver:
    """Repeats a call while it is pending, as a worker does; may lose the answer of an apply."""

    driver: KubernetesDriver
    loses_answer: bool = False

    def apply(self, version: Version, *, timeout: float = 10) -> Applied:
        applied = repeat(lambda: self.driver.apply(version, timeout=timeout))
        if self.loses_answer:
            raise DriverUnavailable("the answer was lost")
        return applied

    def observe(
        self,
        *placements: str,
        inventory: bool = False,
        version_of: Callable[[str], Version | None] | None = None,
        timeout: float = 10,
    ) -> Observation:
        return self.driver.observe(
            *placements, inventory=inventory, version_of=version_of, timeout=timeout
        )

    def remove(self, placement: str, *, fence: int = 0, timeout: float = 10) -> Removed:
        return repeat(
            lambda: self.driver.remove(placement, fence=fence, timeout=timeout)
        )

    def diff(
        self, version: Version, *, as_apply: bool = False, timeout: float = 10
    ) -> DiffResult:
        return self.driver.diff(version, as_apply=as_apply, timeout=timeout)

    def release(
        self, placement: str, *, fence: int = 0, timeout: float = 10
    ) -> Removed:
        return repeat(
            lambda: self.driver.release(placement, fence=fence, timeout=timeout)
        )

    def serves(
        self, kinds: Collection[tuple[str, str]], *, timeout: float = 10
    ) -> bool:
        return self.driver.serves(kinds, timeout=timeout)

    def leave(self, *, timeout: float = 10) -> None:
        self.driver.leave(timeout=timeout)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connect(hub: Hub, clock: Clock) -> Iterator[Callable[..., Driver]]:
    """Return a maker of drivers; faults are injected between driver and server."""

    def make(faults: list[dict[str, Any]] | None = None) -> Driver:
        driver = PatientDriver(hub.driver())
        for fault in faults or ():
            if fault["kind"] == "lostState":
                for item in hub.admin.get(INVENTORIES)["items"]:
                    hub.admin.delete(f"{INVENTORIES}/{item['metadata']['name']}")
            elif fault["kind"] == "timeOut":
                driver.loses_answer = True
            else:
                hub.recorders[-1].hook = injected(fault, clock)
        return driver

    yield make
    for name in ("shop", "other"):
        hub.admin.purge_namespace(name)


def injected(fault: dict[str, Any], clock: Clock) -> Callable[..., Response]:
    """Return what answers in place of the server: a refusal of the Deployment, or nothing."""

    def hook(method: str, path: str, send: Callable[[], Response]) -> Response:
        if fault["kind"] == "unreachable" and clock().isoformat() < fault["until"]:
            raise DriverUnavailable("connection refused", code="refused")
        if fault["kind"] == "refuse" and (method, path) == ("PATCH", DEPLOYMENT):
            return Response(
                403, {"kind": "Status", "message": "a webhook denied the request"}
            )
        return send()

    return hook


@pytest.fixture
def holds(hub: Hub) -> Callable[[str], set[str]]:
    def held(placement: str) -> set[str]:
        owner = f"{hub.hub_id}/{placement}"
        found = set()
        for path, kind in (
            ("/api/v1/namespaces", "Namespace"),
            ("/api/v1/configmaps", "ConfigMap"),
            ("/apis/apps/v1/deployments", "Deployment"),
        ):
            for item in hub.admin.get(path)["items"]:
                metadata = item["metadata"]
                if (metadata.get("annotations") or {}).get("fleetui.io/owner") == owner:
                    place = (
                        f"{metadata['namespace']}/" if "namespace" in metadata else ""
                    )
                    if kind != "ConfigMap" or metadata["namespace"] != "fleetui-system":
                        found.add(f"{kind} {place}{metadata['name']}")
        return found

    return held


class TestKubernetesDriver(DriverContract):
    prunes_despite_refusals = False

    # By a simulated clock; in real time: test_time_and_requests.test_a_frozen_api_server_….
    test_a_call_ends_at_its_time_out = None  # type: ignore[assignment]
    # A driver without a request has nothing to fail: test_removal.test_a_cluster_that_left_….
    test_an_unreachable_cluster_is_no_refusal_and_does_not_change = None  # type: ignore[assignment]

    def test_an_object_is_available_only_when_its_controller_is_done(
        self,
        connect: Callable[..., Driver],
        clock: Clock,  # noqa: ARG002 -- as in the contract
    ) -> None:
        """Here it is never done, since there is no kubelet; see below for the other half."""
        driver = connect()
        driver.apply(V1)

        seen = driver.observe("web").of("web")

        assert seen
        assert [
            (object_seen.object, object_seen.readiness) for object_seen in seen.unready
        ] == [(WEB, Readiness.NOT_YET)]


def test_an_unreachable_cluster_does_not_change(
    connect: Callable[..., Driver], clock: Clock, holds: Callable[[str], set[str]]
) -> None:
    driver = connect([{"kind": "unreachable", "until": clock().isoformat() + "1"}])

    for call in (
        lambda: driver.apply(V1),
        driver.observe,
        lambda: driver.remove("web"),
    ):
        with pytest.raises(DriverUnavailable):
            call()

    assert holds("web") == set()
    clock.sleep(300)
    assert driver.apply(V1).changed


def test_a_controller_that_is_done_makes_an_object_available(
    connect: Callable[..., Driver], admin: Administrator
) -> None:
    driver = connect()
    driver.apply(V1)
    until = time.monotonic() + 20
    while True:
        generation = admin.get(DEPLOYMENT)["metadata"]["generation"]
        counts = dict.fromkeys(
            ("replicas", "availableReplicas", "updatedReplicas", "readyReplicas"), 2
        )
        status = {
            **counts,
            "unavailableReplicas": None,
            "observedGeneration": generation,
        }
        admin.merge(f"{DEPLOYMENT}/status", {"status": status})
        seen = driver.observe("web").of("web")
        assert seen
        if seen.readiness is Readiness.AVAILABLE:
            break
        assert time.monotonic() < until  # the real controller writes the status, too
