"""One API server under two names, and two consoles on one cluster: neither removes what the other wants."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from clusters import kubernetes_drivers
from clusters.connection_input import ConnectionInput
from clusters.drivers.base import KUBERNETES, DriverPending, DriverRejected
from clusters.kubeconfig import Secret
from clusters.kubernetes_drivers import DriverCache
from clusters.models import MemberCluster
from clusters.operations.connection import (
    ConnectionNotAllowed,
    new_member,
    set_connection,
)
from clusters.operations.credentials import store_secret
from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from placements.engine.rollout.state import Phase
from placements.services.rollouts.removals import remove_orphans
from tests.kubernetes.members import INVENTORIES, Hub, Member, repeat
from tests.kubernetes.test_rollouts import RealWorld
from tests.rows import spec

pytestmark = pytest.mark.django_db
SPACE = "/api/v1/namespaces/shop"
TEAM = f"{SPACE}/configmaps/written-by-the-team"


@pytest.fixture
def world(member: Member, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealWorld]:
    monkeypatch.setattr(kubernetes_drivers, "drivers", DriverCache())
    with override_settings(MEMBER_LOOPBACK=True):
        world = RealWorld({"one": member})
        yield world
    kubernetes_drivers.drivers.clear()
    world.admins["one"].purge_namespace("shop")


@pytest.fixture(autouse=True)
def left_clean(hub: Hub) -> Iterator[None]:
    """Delete what the consoles of a test leave: other tests count the inventories."""
    yield
    hub.admin.purge_namespace(hub.namespace)
    for item in hub.admin.call("GET", INVENTORIES).body.get("items") or ():
        if item["metadata"]["name"].startswith("fleetui-"):
            hub.admin.delete(f"{INVENTORIES}/{item['metadata']['name']}")


def sweep(world: RealWorld) -> None:
    """Do what the console does in some minutes: heartbeats, calls, and the removal of orphans."""
    for _ in range(4):
        world.now += timedelta(seconds=130)
        observe(now=world.now)
        world.work()
        remove_orphans(now=world.now, threads=0, clock=lambda: world.now)
        world.work()


def test_one_server_joined_under_two_names_loses_nothing(
    world: RealWorld, member: Member
) -> None:
    admin = world.admins["one"]
    policy = {"placementType": "PickFixed", "clusterNames": ["one"]}
    world.place("web", spec(policy))
    world.settle()
    uid = admin.get(SPACE)["metadata"]["uid"]
    team = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "written-by-the-team"},
    }
    admin.create(f"{SPACE}/configmaps", {**team, "data": {"v": "important"}})
    fields = {
        "server": member.server,
        "ca": member.connection.ca,
        "token": member.token,
    }
    with pytest.raises(
        ConnectionNotAllowed,
        match="this API server is that of member cluster one already",
    ):
        set_connection(
            "two",
            ConnectionInput(fields=fields),
            by=None,
            now=world.now,
            joins=True,
            confirmed=True,
            other_cluster=True,
        )

    # As a release before this one would have joined it, and not noticed.
    connection = {"server": member.server, "ca": member.connection.ca}
    wanted = ClusterSpec(new_member("two"), driver=KUBERNETES, connection=connection)
    upsert_clusters([wanted], by=None, now=world.now)
    row = MemberCluster.objects.get(name="two")
    store_secret(row, None, Secret({"token": member.token}), by=None, now=world.now)
    sweep(world)

    shared = dict(MemberCluster.objects.values_list("name", "shares_server_with"))
    assert shared == {"one": "two", "two": "one"}
    assert admin.get(SPACE)["metadata"]["uid"] == uid
    assert admin.get(TEAM)["data"] == {"v": "important"}
    assert world.phases() == {"one": Phase.AVAILABLE}


def test_a_second_member_on_one_server_takes_and_removes_nothing(hub: Hub) -> None:
    version = hub.version("v1", hub.namespace_manifest(), hub.config_map("a", x="1"))
    hub.driver().apply(version)
    second = hub.driver(member="1111/two", cluster_uid="some-uid")

    with pytest.raises(DriverRejected) as caught:
        second.apply(version)
    assert caught.value.code == "OwnedByAnotherMember"
    assert "as member one" in str(caught.value)
    assert second.observe(inventory=True).fences == {}
    assert second.observe("web").of("web") is None
    assert not second.remove("web").existed

    assert hub.objects() == {f"Namespace {hub.namespace}", "ConfigMap a"}
    assert hub.seen(hub.driver()).missing == ()


def test_members_that_share_a_server_prune_and_remove_nothing(hub: Hub) -> None:
    version = hub.version(
        "v1", hub.namespace_manifest(), hub.config_map("a"), hub.config_map("b")
    )
    hub.driver().apply(version)
    shared = hub.driver(shared_with="two")

    with pytest.raises(DriverRejected, match="objects refused"):
        shared.apply(hub.version("v2", hub.namespace_manifest(), hub.config_map("a")))
    with pytest.raises(DriverRejected) as caught:
        shared.remove("web")

    assert {refusal.code for refusal in caught.value.refusals} == {"SharedServer"}
    assert {"ConfigMap a", "ConfigMap b"} <= hub.objects()


def without_identity(hub: Hub, *paths: str) -> None:
    """Make these objects as the release before wrote them."""
    for path in paths:
        hub.admin.merge(
            path, {"metadata": {"annotations": {"fleetui.io/member": None}}}
        )


def member_of(hub: Hub, path: str) -> Any:
    return hub.admin.get(path)["metadata"]["annotations"].get("fleetui.io/member")


def test_records_of_the_release_before_are_adopted_by_an_apply(hub: Hub) -> None:
    version = hub.version("v1", hub.namespace_manifest(), hub.config_map("a"))
    hub.driver().apply(version)
    paths = [hub.inventory_path, hub.namespace_path, hub.path("configmaps", "a")]
    without_identity(hub, *paths)

    assert hub.driver(cluster_uid="").apply(version).changed is False

    assert [member_of(hub, path) for path in paths] == ["0000/one"] * 3


def test_records_of_the_release_before_are_removed_only_where_they_are_proved(
    hub: Hub,
) -> None:
    version = hub.version("v1", hub.namespace_manifest(), hub.config_map("a"))
    hub.driver().apply(version)
    without_identity(
        hub, hub.inventory_path, hub.namespace_path, hub.path("configmaps", "a")
    )

    unknown = hub.driver(cluster_uid="")
    assert unknown.observe(inventory=True).fences == {}
    with pytest.raises(DriverPending, match="kube-system"):
        unknown.remove("web")
    assert "ConfigMap a" in hub.objects()

    known = hub.driver()
    assert known.observe(inventory=True).fences == {"web": 0}
    assert repeat(lambda: known.remove("web")).existed
    assert hub.objects() == set()


def test_a_namespace_with_objects_of_another_console_stays(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), hub.config_map("a")))
    other = hub.driver(hub_id="99999999-other", member="9999/theirs")
    other.apply(hub.version("x1", hub.config_map("b")))

    with pytest.raises(DriverRejected) as caught:
        driver.remove("web")

    (refusal,) = caught.value.refusals
    assert "is still used by placement web of another console" in refusal.message
    assert hub.admin.has(hub.path("configmaps", "b"))
    assert repeat(lambda: other.remove("web")).existed
    assert repeat(lambda: driver.remove("web")).existed


def test_a_takeover_that_only_the_inventory_remembers_keeps_the_namespace(
    hub: Hub,
) -> None:
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), hub.config_map("a")))
    annotations = {"fleetui.io/taken-over": None}
    hub.admin.merge(hub.namespace_path, {"metadata": {"annotations": annotations}})

    assert repeat(lambda: driver.remove("web")).existed

    assert hub.admin.has(hub.namespace_path)


def test_a_version_that_the_console_does_not_know_is_not_pruned(hub: Hub) -> None:
    newer = hub.version(
        "v2", hub.namespace_manifest(), hub.config_map("a"), hub.config_map("b")
    )
    hub.driver().apply(newer)
    older = hub.version("v1", hub.namespace_manifest(), hub.config_map("a"))
    restored = replace(older, known=("v0", "v1"))
    for _ in range(2):
        with pytest.raises(DriverRejected) as caught:
            hub.driver().apply(restored)
        assert caught.value.code == "RemovalNotConfirmed"
    assert "ConfigMap b" in hub.objects()

    assert repeat(
        lambda: hub.driver().apply(replace(restored, is_removal_confirmed=True))
    ).changed
    assert "ConfigMap b" not in hub.objects()
