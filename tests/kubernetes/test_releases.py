"""Deletion with Abandon on real clusters: objects stay, without anything of ours, and can be taken over."""

from typing import Any

import pytest

from placements.models import Binding, Leftover, Placement
from placements.services.placements import delete_placement, save_placement
from tests.kubernetes.faults import CONFIG_MAPS, FaultWorld
from tests.kubernetes.members import INVENTORIES, Administrator, await_true
from tests.kubernetes.test_faults import turn
from tests.rows import placement_document, spec

pytestmark = pytest.mark.django_db
ABANDON = {"type": "RollingUpdate", "deleteStrategy": {"propagationPolicy": "Abandon"}}
NAMESPACE = "/api/v1/namespaces/shop"
SETTINGS = f"{CONFIG_MAPS}/settings"


@pytest.fixture
def world(two_clusters: FaultWorld) -> FaultWorld:
    return two_clusters


def place(world: FaultWorld, name: str, strategy: dict[str, Any]) -> None:
    save_placement(
        placement_document(name, spec(strategy=strategy)), by=None, now=world.now
    )
    world.work()


def traces(admin: Administrator) -> list[str]:
    """Return what shows on a cluster that a placement had the shop: metadata, field managers, inventories."""
    found = []
    for path in (NAMESPACE, SETTINGS):
        metadata = admin.get(path)["metadata"]
        keys = [*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})]
        found += [
            f"{path}: {key}"
            for key in keys
            if "fleetui.io/" in key or "applyset" in key
        ]
        fields = metadata.get("managedFields") or ()
        managers = {
            field["manager"] for field in fields if field["operation"] == "Apply"
        }
        found += [f"{path}: managed by {manager}" for manager in managers]
    inventories = admin.get(INVENTORIES)["items"]
    return found + [
        inventory["metadata"]["name"]
        for inventory in inventories
        if inventory["metadata"]["name"].endswith("-web")
    ]


def test_an_abandoned_placement_leaves_its_objects_without_a_trace(
    world: FaultWorld,
) -> None:
    place(world, "web", ABANDON)
    world.settle()
    assert all(traces(admin) for admin in world.admins.values())

    delete_placement("web", by=None, now=world.now)
    await_true(lambda: turn(world, 1) and not Placement.objects.exists())

    assert world.data() == [{"color": "red"}] * 2
    assert [traces(admin) for admin in world.admins.values()] == [[], []]
    assert not Leftover.objects.exists()
    world.pass_time(300, step=60)  # nothing is removed later as an orphan, either
    assert world.data() == [{"color": "red"}] * 2

    place(world, "again", {"type": "RollingUpdate"})
    world.settle()
    assert world.available("again") == ["one", "two"]


def test_a_shared_namespace_passes_to_the_second_placement_and_stays_after_it(
    world: FaultWorld,
) -> None:
    place(world, "web", ABANDON)
    world.settle()
    place(world, "late", {"type": "RollingUpdate"})
    world.pass_time(60, step=15)
    assert set(world.phases("late").values()) == {"failed"}  # all of it belongs to web

    delete_placement("web", by=None, now=world.now)
    await_true(
        lambda: turn(world, 60) and world.available("late") == ["one", "two"],
        seconds=120,
    )
    assert [placement.name for placement in Placement.objects.all()] == ["late"]

    delete_placement("late", by=None, now=world.now)
    await_true(lambda: turn(world, 30) and not Placement.objects.exists(), seconds=60)
    # Of what was taken over, Namespaces are released and all other objects are removed.
    assert world.data() == [404, 404]
    for admin in world.admins.values():
        assert "annotations" not in admin.get(NAMESPACE)["metadata"]


def test_a_release_waits_for_a_cluster_out_of_reach(world: FaultWorld) -> None:
    place(world, "web", ABANDON)
    world.settle()
    world.members["two"].do("kill")
    try:
        delete_placement("web", by=None, now=world.now)
        world.pass_time(120, step=15)

        assert traces(world.admins["one"]) == []
        (binding,) = Binding.objects.all()
        assert (binding.cluster_name, binding.phase, binding.failure) == (
            "two",
            "removing",
            "unreachable",
        )
    finally:
        world.members["two"].do("restart")

    await_true(lambda: turn(world, 30) and not Placement.objects.exists(), seconds=60)
    assert traces(world.two) == []
    assert world.data() == [{"color": "red"}] * 2


def test_a_release_that_may_not_change_an_object_is_named_and_continues(
    world: FaultWorld,
) -> None:
    place(world, "web", ABANDON)
    world.settle()
    world.use_account("reader")
    reading = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}
    world.allow("reader", [reading, {"nonResourceURLs": ["*"], "verbs": ["get"]}])
    await_true(lambda: not may_patch(world, "reader"))

    delete_placement("web", by=None, now=world.now)
    world.pass_time(60, step=15)

    (binding,) = Binding.objects.all()
    assert (binding.cluster_name, binding.phase) == ("two", "remove-failed")
    assert "cannot patch resource" in binding.message
    world.reconnect(world.members["two"].token)
    await_true(lambda: turn(world, 60) and not Placement.objects.exists(), seconds=60)
    assert traces(world.two) == []


def may_patch(world: FaultWorld, account: str) -> bool:
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:fleetui-system:{account}",
            "resourceAttributes": {
                "verb": "patch",
                "resource": "configmaps",
                "namespace": "shop",
            },
        },
    }
    review = world.two.create(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews", body
    )
    return bool(review["status"]["allowed"])
