"""The mirror of a hub on a real API server equals it, whatever happens (`rules/live-hub.md#mirror`)."""

import json
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from clusters.drivers.kubernetes.client import Client
from placements.hubs.kinds.kubefleet import IS_LATEST, KUBEFLEET, PARENT, PREFIX
from placements.hubs.trimming import unpack
from placements.hubs.watching.stream import StreamItem, StreamReader
from tests.hubs.fake_hub import find
from tests.hubs.hub_documents import binding, member, placement, snapshot
from tests.hubs.test_trimming import stream
from tests.kubernetes.hub_server import HubServer, hub_server
from tests.kubernetes.members import kube_version
from tests.runtime.processes import Watched, eventually, watching
from tests.runtime.test_watch_hubs import end_lease, manage

KILLS = 4
CLUSTERS = ("east", "west", "north")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubServer]:
    with hub_server(tmp_path_factory.mktemp("hub")) as server:
        yield server


@dataclass(frozen=True)
class Console:
    """A console in a folder of its own that is connected to the hub as a viewer."""

    folder: Path
    hub: HubServer

    @property
    def variables(self) -> dict[str, str]:
        return {"FLEETUI_VAR_DIR": str(self.folder), "FLEETUI_MEMBER_LOOPBACK": "1"}

    def connect(self, *options: str) -> str:
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(self.hub.kubeconfig()))
        if not (self.folder / "fleetui.sqlite3").exists():
            assert manage(self.variables, "migrate").returncode == 0
        done = manage(
            self.variables,
            "connect_hub",
            "prod-eu",
            "--kubeconfig",
            str(path),
            *options,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.folder / "fleetui.sqlite3", timeout=20) as database:
            return database.execute(query).fetchall()

    def mirror(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        rows = self.rows(
            "SELECT kind, namespace, name, manifest FROM clusters_mirroredobject"
        )
        return {
            (kind, namespace, name): unpack(content)
            for kind, namespace, name, content in rows
        }

    def differences(self) -> list[str]:
        """Return what is missing, too much or different in the mirror."""
        mirrored, served = self.mirror(), self.hub.objects()
        return [
            f"{key}: {compared(mirrored.get(key))} instead of {compared(served.get(key))}"
            for key in sorted({*mirrored, *served})
            if compared(mirrored.get(key)) != compared(served.get(key))
        ]

    def await_equal(self, *, seconds: float = 60) -> None:
        until = time.monotonic() + seconds
        while different := self.differences():
            assert time.monotonic() < until, different[:5]
            time.sleep(0.2)

    def state(self) -> str:
        found: str = self.rows("SELECT state FROM clusters_hub WHERE name = 'prod-eu'")[
            0
        ][0]
        return found

    def relists(self) -> int:
        return int(self.rows("SELECT SUM(relists) FROM clusters_hubstream")[0][0])


def compared(one: Mapping[str, Any] | None) -> object:
    """Return what has to be equal; of kinds that are mirrored as metadata, that."""
    if one is None:
        return None
    metadata = {
        key: one["metadata"].get(key)
        for key in ("uid", "resourceVersion", "labels", "finalizers")
    }
    if one["kind"] in ("ClusterResourceSnapshot", "ResourceSnapshot", "Namespace"):
        return metadata
    return metadata, one.get("spec"), one.get("status"), one.get("reason")


def terminate(watcher: Watched) -> None:
    """End a watcher, which writes its counters then."""
    watcher.process.send_signal(signal.SIGTERM)
    assert watcher.process.wait(10) == 0


@pytest.fixture
def console(hub: HubServer, tmp_path: Path) -> Console:
    return Console(tmp_path, hub)


def condition(
    kind: str, status: str = "True", *, generation: int = 1
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": f"{kind}{status}",
        "message": "as its controller writes it",
        "observedGeneration": generation,
        "lastTransitionTime": "2026-11-01T09:30:00Z",
    }


def decision(cluster: str, *, selected: bool) -> dict[str, Any]:
    reason = (
        f"Successfully scheduled resources for placement in {cluster}"
        if selected
        else "outranked"
    )
    score = {"affinityScore": 0, "priorityScore": 10}
    return {
        "clusterName": cluster,
        "selected": selected,
        "clusterScore": score,
        "reason": reason,
    }


def decided(
    owner: str, number: int, *clusters: str, is_latest: bool = True
) -> dict[str, Any]:
    """Return a policy snapshot with what the scheduler decided."""
    targets = [decision(cluster, selected=cluster in clusters) for cluster in CLUSTERS]
    status = {
        "observedCRPGeneration": number + 1,
        "conditions": [condition("Scheduled")],
        "targetClusters": targets,
    }
    return {**snapshot(owner, number, is_latest=is_latest), "status": status}


def resources(owner: str, number: int, *, is_latest: bool = True) -> dict[str, Any]:
    labels = {
        PARENT: owner,
        f"{PREFIX}resource-index": str(number),
        IS_LATEST: str(is_latest).lower(),
    }
    selected = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": owner}}
    return {
        "metadata": {"name": f"{owner}-{number}-snapshot", "labels": labels},
        "spec": {"selectedResources": [selected]},
    }


def life_of_a_placement(hub: HubServer, owner: str) -> Iterator[None]:
    """Write what the controllers of a hub write, from creation to deletion, and yield in between."""
    for name in CLUSTERS:
        hub.put("memberclusters", member(name))
    yield
    hub.put("clusterresourceplacements", placement(owner))
    hub.put("clusterschedulingpolicysnapshots", snapshot(owner))
    hub.put("clusterresourcesnapshots", resources(owner, 0))
    yield
    for cluster in ("east", "west"):
        hub.put("clusterresourcebindings", {**binding(owner, cluster), "status": {}})
    hub.put("clusterschedulingpolicysnapshots", decided(owner, 0, "east", "west"))
    conditions = [
        condition(f"ClusterResourcePlacement{kind}")
        for kind in ("Scheduled", "RolloutStarted")
    ]
    hub.put(
        "clusterresourceplacements",
        {**placement(owner), "status": {"conditions": conditions}},
    )
    yield
    for cluster in ("east", "west"):
        hub.put("clusterresourcebindings", binding(owner, cluster, state="Bound"))
    yield
    # The policy changes: another snapshot, and another cluster in place of one.
    hub.put("clusterresourceplacements", placement(owner, clusters=1))
    hub.put(
        "clusterschedulingpolicysnapshots",
        decided(owner, 0, "east", "west", is_latest=False),
    )
    hub.put("clusterschedulingpolicysnapshots", decided(owner, 1, "north"))
    for cluster in ("east", "west"):
        hub.put("clusterresourcebindings", binding(owner, cluster, state="Unscheduled"))
    hub.put(
        "clusterresourcebindings", binding(owner, "north", state="Scheduled", policy=1)
    )
    yield
    for cluster in ("east", "west"):
        hub.delete(
            "clusterresourcebindings", binding(owner, cluster)["metadata"]["name"]
        )
    hub.put("clusterresourcebindings", binding(owner, "north", state="Bound", policy=1))
    yield
    staged_run(hub, owner)
    yield
    hub.delete("clusterresourcebindings", binding(owner, "north")["metadata"]["name"])
    for number in (0, 1):
        hub.delete("clusterschedulingpolicysnapshots", f"{owner}-{number}")
    hub.delete("clusterresourcesnapshots", f"{owner}-0-snapshot")
    hub.delete("clusterresourceplacements", owner)


def staged_run(hub: HubServer, owner: str) -> None:
    """Write a staged update run that waits for an approval, gets it, and ends."""
    hub.put(
        "clusterstagedupdatestrategies",
        {
            "metadata": {"name": f"{owner}-stages"},
            "spec": {"stages": [{"name": "canary"}]},
        },
    )
    run = {
        "metadata": {"name": f"{owner}-run"},
        "spec": {
            "placementName": owner,
            "stagedRolloutStrategyName": f"{owner}-stages",
            "state": "Run",
        },
    }
    hub.put(
        "clusterstagedupdateruns",
        {**run, "status": {"conditions": [condition("Initialized")]}},
    )
    labels = {
        f"{PREFIX}targetUpdateRun": f"{owner}-run",
        f"{PREFIX}isLatestUpdateRunApproval": "true",
    }
    request = {
        "metadata": {"name": f"{owner}-run-after-canary", "labels": labels},
        "spec": {"parentStageRollout": f"{owner}-run", "targetStage": "canary"},
    }
    for conditions in (
        [],
        [condition("Approved")],
        [condition("Approved"), condition("ApprovalAccepted")],
    ):
        hub.put(
            "clusterapprovalrequests", {**request, "status": {"conditions": conditions}}
        )
    hub.put(
        "clusterstagedupdateruns",
        {**run, "status": {"conditions": [condition("Succeeded")]}},
    )


def test_a_viewer_connects_with_the_manifest_and_sees_what_it_may_do(
    console: Console,
) -> None:
    printed = console.connect("--check")

    assert [
        line.split(":")[0].split()[-1]
        for line in printed.splitlines()
        if line.startswith("failed")
    ] == []
    table = {
        line.split()[0]: line.split()[1:]
        for line in printed.splitlines()
        if ".kubernetes-fleet.io" in line
    }
    mirrored = {kind.resource for kind in KUBEFLEET.streams if kind.group}
    assert {
        name
        for name, verbs in table.items()
        if verbs == ["yes", "yes", "no", "no", "no"]
    } == mirrored


def test_the_mirror_equals_the_server_through_the_life_of_a_placement(
    console: Console, hub: HubServer
) -> None:
    console.connect()
    with watching("manage.py", "watch_hubs", **console.variables) as watcher:
        for _ in life_of_a_placement(hub, "shop"):
            console.await_equal()
        console.await_equal()
        eventually(lambda: console.state() == "live", seconds=20)
        terminate(watcher)
    assert console.relists() == 0
    # Each binding was seen in each of its states, although the last ones were deleted.
    changes = console.rows(
        "SELECT cluster, state FROM clusters_bindingchange WHERE owner = 'shop'"
    )
    assert {
        ("east", "Bound"),
        ("east", "Gone"),
        ("north", "Bound"),
        ("north", "Gone"),
    } <= set(changes)


def test_a_watcher_killed_at_random_moments_leaves_a_mirror_that_equals_the_server(
    console: Console, hub: HubServer
) -> None:
    console.connect()
    chance = random.Random(11)
    for number in range(KILLS):
        life = life_of_a_placement(hub, f"killed-{number}")
        with watching("manage.py", "watch_hubs", **console.variables) as watcher:
            until = time.monotonic() + chance.uniform(1.0, 6.0)
            while time.monotonic() < until:
                next(life, None)
                hub.put(
                    "memberclusters",
                    member(
                        "east",
                        heartbeat=f"2026-11-01T10:{number:02}:{chance.randrange(60):02}Z",
                    ),
                )
            os.kill(watcher.process.pid, signal.SIGKILL)
            watcher.process.wait(10)
        for _ in range(chance.randrange(3)):  # while no watcher runs
            next(life, None)
        end_lease(console.folder)
    hub.delete("memberclusters", "north")

    with watching("manage.py", "watch_hubs", **console.variables):
        console.await_equal()
        eventually(lambda: console.state() == "live", seconds=20)


def test_a_position_that_etcd_compacted_is_listed_again_and_nothing_is_lost(
    console: Console, hub: HubServer
) -> None:
    console.connect()
    assert manage(console.variables, "watch_hubs", "--once").returncode == 0
    assert console.differences() == []
    before = console.rows("SELECT id, name FROM clusters_mirroredobject")
    for step in range(3):
        hub.put("memberclusters", member(f"new-{step}"))
    hub.delete("memberclusters", "new-0")
    hub.put("clusterresourceplacements", placement("compacted"))
    hub.compact()
    hub.restart()  # its cache of recent changes would serve the position still

    with watching("manage.py", "watch_hubs", **console.variables) as watcher:
        console.await_equal()
        eventually(lambda: console.state() == "live", seconds=20)
        terminate(watcher)
    assert console.relists() > 0
    # What was there before kept its row: nothing disappeared and came back.
    assert set(before) <= set(
        console.rows("SELECT id, name FROM clusters_mirroredobject")
    )


def test_the_api_server_restarts_and_nothing_seems_to_have_left(
    console: Console, hub: HubServer
) -> None:
    console.connect()
    with watching("manage.py", "watch_hubs", **console.variables) as watcher:
        console.await_equal()
        eventually(lambda: console.state() == "live", seconds=20)
        hub.put("clusterresourceplacements", placement("before"))
        console.await_equal()
        before = console.rows("SELECT id, name FROM clusters_mirroredobject")
        hub.restart()  # it serves no position from before, and so each kind is listed again
        hub.put("clusterresourceplacements", placement("after"))
        console.await_equal()
        eventually(lambda: console.state() == "live", seconds=20)
        terminate(watcher)
    assert set(before) <= set(
        console.rows("SELECT id, name FROM clusters_mirroredobject")
    )
    assert (
        console.rows("SELECT cluster FROM clusters_bindingchange WHERE state = 'Gone'")
        == []
    )


def test_the_stored_version_is_read_where_the_stable_one_is_served_too(
    console: Console, hub: HubServer
) -> None:
    content = member("versions")
    content["spec"]["deleteOptions"] = {"validationMode": "Skip"}
    content["status"]["namespaces"] = {"shop": "web"}
    hub.put("memberclusters", content)
    stable = hub.admin.get(
        hub.path(find("memberclusters"), name="versions", version="v1")
    )
    assert "deleteOptions" not in stable["spec"]
    console.connect()

    assert manage(console.variables, "watch_hubs", "--once").returncode == 0

    found = console.mirror()["MemberCluster", "", "versions"]
    assert found["apiVersion"] == "cluster.kubernetes-fleet.io/v1beta1"
    assert found["spec"]["deleteOptions"] == {"validationMode": "Skip"}
    assert found["status"]["namespaces"] == {"shop": "web"}
    assert console.differences() == []


@dataclass
class Access:
    """One client for a stream that has no hub row."""

    opened: Client

    def client(self) -> Client:
        return self.opened

    def rejected(self, _client: Client) -> None:
        raise AssertionError("credentials rejected")

    def accepted(self, _client: Client) -> None:
        pass

    def blocked(self) -> float:
        return 0.0

    def path_missing(self) -> None:
        raise AssertionError("not served")


@dataclass
class Collected:
    """The items of a stream; something happens after the first one."""

    happens: Callable[[], None]
    items: list[StreamItem] = field(default_factory=list)
    is_listed: threading.Event = field(default_factory=threading.Event)

    def put(self, item: StreamItem) -> bool:
        self.items.append(item)
        if len(self.items) == 1:
            self.happens()
        if item.listed_uids is not None:
            self.is_listed.set()
        return True


def test_a_list_whose_continue_token_expires_starts_again_and_is_complete(
    hub: HubServer,
) -> None:
    for number in range(510):
        content = binding("large", f"c{number}")
        hub.put(
            "clusterresourcebindings",
            {"metadata": {"name": f"large-{number}"}, "spec": content["spec"]},
        )

    def compact() -> None:
        hub.put("clusterresourceplacements", placement("later"))
        hub.compact()

    sink = Collected(compact)
    client = hub.member.client(token=hub.token)
    reader = StreamReader(
        1,
        KUBEFLEET,
        stream("ClusterResourceBinding"),
        "v1beta1",
        "",
        Access(client),
        sink,
    )
    thread = threading.Thread(target=reader.run)
    thread.start()
    try:
        assert sink.is_listed.wait(60)
    finally:
        reader.stop()
        thread.join(10)

    names = [
        item.record.name
        for item in sink.items
        if item.record and item.record.name.startswith("large-")
    ]
    assert len(set(names)) == 510
    # From 1.34 on a list goes on from a snapshot of the cache; before, the first page is read twice.
    assert len(names) == (510 if kube_version() >= (1, 34) else 1_010)
    assert next(
        item.listed_uids for item in sink.items if item.listed_uids is not None
    ) == {item.record.uid for item in sink.items if item.record}
    hub.admin.delete(hub.path(find("clusterresourcebindings")))
