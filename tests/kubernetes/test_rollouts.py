"""Placements on two real clusters: rolled out, repaired, reported, removed, as the status says."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from clusters import kubernetes_drivers
from clusters.kubernetes_drivers import DriverCache
from clusters.operations.connection import ConnectionInput, set_connection
from clusters.operations.heartbeat import observe
from fleetui.apimachinery.yaml import Document
from placements.engine.rollout.state import Phase
from placements.explain.cluster_objects import ObjectState
from placements.models import Binding, Placement
from placements.services.dry_runs import dry_run_on_clusters
from placements.services.placements import delete_placement, save_placement
from placements.services.rollouts.cluster_objects import objects_on
from placements.services.rollouts.read_objects import read_objects
from placements.services.status import status_of
from tests.hub_objects import manifest
from tests.kubernetes.members import Administrator, Member, await_true
from tests.rows import NAMESPACE, config_map, namespace, placement_document, spec
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db
CONFIG = "/api/v1/namespaces/shop/configmaps/settings"


class RealWorld(World):
    """The two members as clusters of the fleet; time passes as fast as a test turns the clock."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.now, self.call_takes, self.tag = datetime.now(UTC), timedelta(), 0
        self.admins = {
            name: Administrator(member.client()) for name, member in members.items()
        }
        for admin in self.admins.values():
            admin.forget_inventories()
        for name, member in members.items():
            fields = {
                "server": member.server,
                "ca": member.connection.ca,
                "token": member.token,
            }
            wanted = ConnectionInput(fields=fields)
            set_connection(name, wanted, by=None, now=self.now, joins=True)
        observe(now=self.now)
        self.apply(namespace("shop"), config_map("settings", data={"color": "red"}))

    def data(self) -> list[Any]:
        """Return what the members have."""
        found = [admin.call("GET", CONFIG) for admin in self.admins.values()]
        return [
            response.body.get("data") if response.status == 200 else response.status
            for response in found
        ]

    def status(self) -> list[dict[str, Any]]:
        return list(
            status_of(Placement.objects.get(), now=self.now)["placementStatuses"]
        )

    def settle(self) -> None:
        self.run(until=self.is_settled, step=2)


@pytest.fixture
def world(
    member: Member, second_member: Member, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RealWorld]:
    monkeypatch.setattr(kubernetes_drivers, "drivers", DriverCache())
    with override_settings(MEMBER_LOOPBACK=True):
        world = RealWorld({"one": member, "two": second_member})
        yield world
    kubernetes_drivers.drivers.clear()
    for admin in world.admins.values():
        admin.purge_namespace("shop")


def conditions(status: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        condition["type"]: (condition["status"], condition["reason"])
        for condition in status["conditions"]
    }


def test_a_placement_is_rolled_out_and_removed(world: RealWorld) -> None:
    world.place("web", spec())
    world.settle()
    assert world.data() == [{"color": "red"}] * 2
    assert [conditions(document)["Available"] for document in world.status()] == [
        ("True", "AllWorkAreAvailable")
    ] * 2

    world.apply(config_map("settings", data={"color": "blue"}))
    world.work()
    world.settle()
    assert world.data() == [{"color": "blue"}] * 2

    delete_placement("web", by=None, now=world.now)

    def is_gone() -> bool:
        world.pass_time(30, step=30)
        return not Placement.objects.exists()

    await_true(is_gone, seconds=60)  # the namespace controller takes its own time
    assert world.data() == [404, 404]


def test_drift_is_repaired_and_shown_until_then(world: RealWorld) -> None:
    world.place("web", spec())
    world.settle()
    world.admins["one"].merge(CONFIG, {"data": {"color": "green"}})

    world.run(
        until=lambda: world.data() == [{"color": "red"}] * 2, seconds=600, step=15
    )

    repaired = Binding.objects.get(cluster_name="one")
    assert len(repaired.repairs) == 1
    world.pass_time(300, step=15)
    assert Binding.objects.get(cluster_name="one").drifted_objects == []


def test_drift_is_left_and_reported_where_the_strategy_says_so(
    world: RealWorld,
) -> None:
    apply_strategy = {"whenToApply": "IfNotDrifted"}
    world.place(
        "web", spec(strategy={"type": "RollingUpdate", "applyStrategy": apply_strategy})
    )
    world.settle()
    world.admins["one"].merge(CONFIG, {"data": {"color": "green"}})

    def is_reported() -> bool:
        return "driftedPlacements" in world.status()[0]

    world.run(until=is_reported, seconds=600, step=15)

    first, second = world.status()
    assert world.data() == [{"color": "green"}, {"color": "red"}]
    assert conditions(first)["Applied"] == ("False", "NotAllWorkHaveBeenApplied")
    (drifted,) = first["driftedPlacements"]
    assert (drifted["kind"], drifted["name"], drifted["namespace"]) == (
        "ConfigMap",
        "settings",
        "shop",
    )
    assert drifted["observedDrifts"] == [
        {"path": "/data/color", "valueInMember": '"green"', "valueInHub": '"red"'}
    ]
    assert first["failedPlacements"][0]["condition"]["reason"] == "FoundDrifts"
    assert "driftedPlacements" not in second

    world.admins["one"].merge(CONFIG, {"data": {"color": "red"}})
    world.run(until=lambda: not is_reported(), seconds=1800, step=60)
    assert conditions(world.status()[0])["Available"] == ("True", "AllWorkAreAvailable")


def test_differences_are_reported_and_nothing_is_written(world: RealWorld) -> None:
    world.admins["one"].apply("/api/v1/namespaces/shop", namespace("shop"))
    world.admins["one"].apply(CONFIG, config_map("settings", data={"color": "green"}))

    world.place(
        "web",
        spec(
            strategy={"type": "RollingUpdate", "applyStrategy": {"type": "ReportDiff"}}
        ),
    )
    world.settle()

    assert world.data() == [{"color": "green"}, 404]
    first, second = world.status()
    for document in (first, second):
        assert conditions(document)["DiffReported"] == (
            "True",
            "AllWorkHaveDiffReported",
        )
        assert conditions(document).keys().isdisjoint({"Applied", "Available"})
    (changed,) = first["diffedPlacements"]
    assert changed["observedDiffs"] == [
        {"path": "/data/color", "valueInMember": '"green"', "valueInHub": '"red"'}
    ]
    assert [placement["kind"] for placement in second["diffedPlacements"]] == [
        "ConfigMap",
        "Namespace",
    ]
    assert all(
        "targetClusterObservedGeneration" not in placement
        for placement in second["diffedPlacements"]
    )


def test_a_change_of_the_strategy_is_a_version_of_real_clusters(
    world: RealWorld,
) -> None:
    world.place("web", spec())
    world.settle()
    before = set(Binding.objects.values_list("applied_version", flat=True))

    strategy = {"type": "RollingUpdate", "applyStrategy": {"type": "ServerSideApply"}}
    save_placement(
        placement_document("web", spec(strategy=strategy)), by=None, now=world.now
    )
    world.work()
    world.settle()

    after = set(Binding.objects.values_list("applied_version", flat=True))
    assert len(after) == 1
    assert after.isdisjoint(before)


def test_a_killed_api_server_is_unreachable_and_heals(
    world: RealWorld, second_member: Member
) -> None:
    world.place("web", spec())
    world.settle()
    second_member.do("kill")
    try:
        world.apply(config_map("settings", data={"color": "blue"}))
        world.work()
        world.pass_time(20, step=5)
        binding = Binding.objects.get(cluster_name="two")
        assert (binding.failure, binding.unavailable_code) == ("unreachable", "refused")
    finally:
        second_member.do("restart")

    world.run(
        until=lambda: world.data() == [{"color": "blue"}] * 2, seconds=600, step=10
    )
    world.settle()
    assert Binding.objects.get(cluster_name="two").unavailable_code == ""


def test_states_of_objects_have_the_uids_of_the_cluster_and_are_read_now(
    world: RealWorld,
) -> None:
    world.place("web", spec())
    world.settle()
    world.pass_time(240, step=15)
    binding = Binding.objects.select_related("placement", "resource_snapshot").get(
        cluster_name="one"
    )
    uid = world.admins["one"].get(CONFIG)["metadata"]["uid"]

    found = {
        cluster_object.name: cluster_object for cluster_object in objects_on(binding)
    }
    assert found["settings"].live is not None
    assert (found["settings"].live.uid, found["settings"].state) == (
        uid,
        ObjectState.AVAILABLE,
    )

    world.admins["one"].delete(CONFIG)
    read_objects(binding, clock=lambda: world.now)
    found = {
        cluster_object.name: cluster_object for cluster_object in objects_on(binding)
    }
    assert found["settings"].state is ObjectState.MISSING


def test_a_dry_run_of_an_edit_asks_both_members(world: RealWorld) -> None:
    world.place("web", spec())
    world.settle()
    world.admins["two"].merge(CONFIG, {"data": {"color": "green"}})
    edit = [Document(config_map("settings", data={"color": "blue"}), 1)]

    result = dry_run_on_clusters(documents=edit, by=None, now=world.now)

    found = {
        answer.cluster: [tuple(field) for field in answer.changes[0].fields]
        for answer in result.answers
    }
    assert found == {
        "one": [("/data/color", '"red"', '"blue"')],
        "two": [("/data/color", '"green"', '"blue"')],
    }
    assert world.data() == [{"color": "red"}, {"color": "green"}]


def test_a_namespaced_placement_waits_for_its_namespace_and_owns_its_objects(
    world: RealWorld,
) -> None:
    version = "placement.kubernetes-fleet.io/v1beta1"
    inner = config_map("inner", data={"size": "small"})
    box = manifest(
        "ResourceEnvelope", "box", "shop", version=version, data={"inner.yaml": inner}
    )
    world.apply(box)
    group, _, number = version.partition("/")
    selectors = [
        {"group": group, "version": number, "kind": "ResourceEnvelope", "name": "box"},
        {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"},
    ]
    document = placement_document("config", {"resourceSelectors": selectors})
    document |= {
        "kind": "ResourcePlacement",
        "metadata": {"name": "config", "namespace": "shop"},
    }
    save_placement(document, by=None, now=world.now)
    world.work()
    world.pass_time(4, step=2)
    [first, *_] = Binding.objects.filter(placement__full_name="shop/config").order_by(
        "cluster_name"
    )
    assert first.phase == Phase.FAILED
    assert "namespace shop is missing; place it with a ClusterResource" in str(
        first.failed_objects
    )

    only = {**NAMESPACE, "selectionScope": "NamespaceOnly"}
    save_placement(
        placement_document("spaces", {"resourceSelectors": [only]}),
        by=None,
        now=world.now,
    )
    world.run(
        until=lambda: set(world.phases("config").values()) == {Phase.AVAILABLE}, step=2
    )

    assert world.data() == [{"color": "red"}] * 2
    inside = [
        admin.call("GET", CONFIG.replace("settings", "inner"))
        for admin in world.admins.values()
    ]
    assert [response.body["data"] for response in inside] == [{"size": "small"}] * 2
    save_placement(placement_document("all", spec()), by=None, now=world.now)
    world.work()
    world.pass_time(4, step=2)
    [other, *_] = Binding.objects.filter(placement__full_name="all").order_by(
        "cluster_name"
    )
    assert other.phase == Phase.FAILED
    assert "shop/config" in str(other.failed_objects), (
        "the objects belong to the namespaced placement"
    )
    delete_placement("shop/config", by=None, now=world.now)
    world.run(
        until=lambda: not Placement.objects.filter(full_name="shop/config").exists(),
        step=2,
    )
    assert Placement.objects.filter(full_name="all").exists()
