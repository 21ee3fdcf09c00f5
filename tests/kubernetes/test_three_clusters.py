"""Three real clusters with nodes: pods become ready, faults of two clusters at once delay no third one."""

from collections.abc import Mapping
from typing import Any

import pytest
from django.test import Client

from placements.engine.rollout.state import Phase
from placements.models import Binding
from tests.kubernetes import faults
from tests.kubernetes.faults import BLUE, FaultWorld
from tests.kubernetes.kubelet import running_kubelet
from tests.kubernetes.members import Member, await_true
from tests.kubernetes.test_faults import has, texts, turn, unescaped
from tests.kubernetes.test_rollouts import conditions
from tests.rows import deployment

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
WEB = "/apis/apps/v1/namespaces/shop/deployments/web"
NAMES = ["one", "three", "two"]


@pytest.fixture
def world(three_clusters: FaultWorld) -> FaultWorld:
    return three_clusters


def images(world: FaultWorld) -> dict[str, Any]:
    """Return the image that runs ready on every cluster, None where it is not."""
    found = {}
    for name, admin in world.admins.items():
        live = admin.get(WEB)
        status = live.get("status") or {}
        is_ready = (
            status.get("observedGeneration") == live["metadata"]["generation"]
            and status.get("updatedReplicas") == status.get("availableReplicas") == 1
            and not status.get("unavailableReplicas")
        )
        found[name] = (
            live["spec"]["template"]["spec"]["containers"][0]["image"]
            if is_ready
            else None
        )
    return found


def until_available(world: FaultWorld, count: int, *, seconds: float = 90) -> None:
    """Advance the clock by real seconds: controllers and nodes need them."""
    await_true(
        lambda: turn(world, 1) and len(world.available()) == count, seconds=seconds
    )


def test_a_deployment_becomes_available_by_its_controllers_and_nodes(
    world: FaultWorld, admin_client: Client
) -> None:
    for admin in world.admins.values():
        world.cleanup.enter_context(running_kubelet(admin))
    world.apply(deployment("web", "shop:1"))
    world.place_on_all(most=1)
    until_available(world, 3)
    assert images(world) == dict.fromkeys(NAMES, "shop:1")
    assert [conditions(document)["Available"] for document in world.status()] == [
        ("True", "AllWorkAreAvailable")
    ] * 3

    world.change(deployment("web", "bad:1"))
    world.pass_time(300, step=5)

    # One cluster may be unavailable: the others keep what runs.
    phases = world.phases()
    assert sorted(phases.values()) == [Phase.AVAILABLE, Phase.AVAILABLE, Phase.APPLIED]
    (waiting,) = (name for name, phase in phases.items() if phase == Phase.APPLIED)
    assert sorted(map(str, images(world).values())) == ["None", "shop:1", "shop:1"]
    (status,) = (
        document for document in world.status() if document["clusterName"] == waiting
    )
    assert conditions(status)["Available"] == ("False", "NotAllWorkAreAvailable")
    (failed,) = status["failedPlacements"]
    assert (failed["kind"], failed["name"]) == ("Deployment", "web")
    assert "web" in unescaped(texts(admin_client)["rollout"])

    world.change(deployment("web", "shop:2"))
    until_available(world, 3)
    assert images(world) == dict.fromkeys(NAMES, "shop:2")


def test_a_deployment_that_stops_being_available_is_noticed_and_heals(
    world: FaultWorld,
) -> None:
    kubelets = {
        name: world.cleanup.enter_context(running_kubelet(administrator))
        for name, administrator in world.admins.items()
    }
    world.apply(deployment("web", "shop:1"))
    world.place_on_all()
    until_available(world, 3)
    kubelets["two"].stopped.set()
    kubelets["two"].join()
    for pod in world.two.get("/api/v1/namespaces/shop/pods")["items"]:
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        world.two.call(
            "DELETE",
            f"/api/v1/namespaces/shop/pods/{pod['metadata']['name']}",
            body=body,
        )
    await_true(lambda: images(world)["two"] is None)

    world.run(
        until=lambda: world.phases()["two"] == Phase.APPLIED, seconds=300, step=15
    )

    assert world.available() == ["one", "three"]
    failed = {
        document["clusterName"]: document.get("failedPlacements")
        for document in world.status()
    }
    assert failed["two"]
    assert failed["one"] is None

    restarted = type(kubelets["two"])(world.two)
    restarted.start()
    world.cleanup.callback(restarted.join)
    world.cleanup.callback(restarted.stopped.set)
    until_available(world, 3)


def test_two_faults_at_once_hold_no_third_cluster_and_heal(
    world: FaultWorld, members: Mapping[str, Member], admin_client: Client
) -> None:
    world.place_on_all()
    members["two"].do("freeze")
    world.cleanup.callback(members["two"].do, "thaw")
    members["three"].do("kill")
    try:
        world.change(BLUE)
        world.pass_time(60, step=30)

        assert has(world, "one", BLUE)
        codes = dict(Binding.objects.values_list("cluster_name", "unavailable_code"))
        assert codes == {"one": "", "two": "timeout", "three": "refused"}
        assert world.phases()["one"] == Phase.AVAILABLE
        rollout = unescaped(texts(admin_client)["rollout"])
        assert "two" in rollout
        assert "three" in rollout
    finally:
        members["three"].do("restart")
    members["two"].do("thaw")
    world.run(
        until=lambda: has(world, "two", BLUE) and has(world, "three", BLUE),
        seconds=20 * 60,
        step=15,
    )
    world.settle()
    assert world.available() == NAMES
    assert set(Binding.objects.values_list("unavailable_code", flat=True)) == {""}


def test_a_third_cluster_that_refuses_costs_the_budget_and_nothing_else(
    world: FaultWorld,
) -> None:
    world.place_on_all(most=2)
    path = f"{faults.CONFIG_MAPS}/settings"
    world.admins["three"].merge(path, {"immutable": True})

    world.change(BLUE)
    world.pass_time(300, step=15)

    assert world.phases() == {"one": "available", "three": "failed", "two": "available"}
    world.admins["three"].delete(path)
    world.run(until=lambda: has(world, "three", BLUE), seconds=20 * 60, step=30)
    world.settle()
