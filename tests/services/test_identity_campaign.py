"""Random joins under two names, restored backups, rebuilt clusters and a second console on the same servers.

After each step no object may have been deleted that a placement wants: of this console, also of a time that a
restored backup has forgotten, or of the other console. The short form runs the same sequences each time; the
long form others, each printed: `pytest -m nightly -s tests/services/test_identity_campaign.py`; CAMPAIGN_SEED
repeats one of them.
"""

import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.test import override_settings

from clusters import kubernetes_drivers
from clusters.connection_input import ConnectionInput
from clusters.drivers.base import KUBERNETES, DriverError, MemberIdentity, Version
from clusters.drivers.kubernetes.configuration import parse_connection
from clusters.drivers.kubernetes.driver import KubernetesDriver
from clusters.drivers.kubernetes.targets import OWNER
from clusters.kubeconfig import Secret
from clusters.kubernetes_drivers import open_client
from clusters.models import MemberCluster, Membership
from clusters.operations.connection import (
    ConnectionNotAllowed,
    new_member,
    set_connection,
)
from clusters.operations.credentials import store_secret
from clusters.operations.edit import forget, leave
from clusters.operations.join import ClusterSpec, upsert_clusters
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.models import Binding, Placement, Resource
from placements.services.placements import delete_placement, save_placement
from placements.services.resources.operations import apply_resources, delete_resource
from placements.services.rollouts.removals import confirm_removal, waiting_removals
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.member_fleet import MemberFleet
from tests.clusters.kubernetes.servers import LocalServer, serve
from tests.database import forget_caches, rolled_back
from tests.rows import config_map, namespace, placement_document, spec
from tests.services.rollouts.many_members import ManyMembers

pytestmark = pytest.mark.django_db
SERVERS = {"one": "token-one", "two": "token-two"}
SECOND_NAME, SECOND_TOKEN = "one-again", "token-again"
NAMES = ("red", "blue", "green")
STEPS = 25


def path_of(space: str, name: str = "") -> str:
    where = f"/api/v1/namespaces/{space}"
    return f"{where}/configmaps/{name}" if name else where


class OtherConsole:
    """Another installation that places ConfigMaps on the first server, with its own sweep of orphans."""

    def __init__(self, url: str) -> None:
        connection = {"server": url, "ca": authority().pem}
        client = open_client(
            parse_connection(connection), lambda: {"token": SERVERS["one"]}
        )
        self.hub = str(uuid4())
        member = f"{uuid4()}/theirs"
        identity = MemberIdentity(self.hub, member, f"uid-of-{SERVERS['one']}")
        self.driver = KubernetesDriver(
            client, identity=identity, server=url, monotonic=time.monotonic
        )
        self.wanted: dict[str, tuple[str, set[str]]] = {}
        self.fence = 0

    def place(self, name: str, space: str, *, has_namespace: bool) -> None:
        manifests = [config_map(f"theirs-{name}", in_=space)]
        manifests += [namespace(space)] if has_namespace else []
        self.fence += 1
        version = Version(f"v{self.fence}", name, tuple(manifests), self.fence)
        self.wanted[name] = space, {path_of(space, f"theirs-{name}")}
        with suppress(DriverError):
            self.driver.apply(version)

    def remove(self, name: str) -> None:
        self.wanted.pop(name, None)
        self.fence += 1
        with suppress(DriverError):
            self.driver.remove(name, fence=self.fence)

    def sweep(self) -> None:
        for name in self.driver.observe(inventory=True).fences or ():
            if name not in self.wanted:
                self.remove(name)


class Campaign(ManyMembers):
    """What people do to a console, and what they want to run where."""

    def __init__(
        self,
        chosen: random.Random,
        fleet: MemberFleet,
        server: LocalServer,
        patch: pytest.MonkeyPatch,
    ) -> None:
        super().__init__(server.url, authority().pem, SERVERS, patch)
        self.random, self.fleet, self.server = chosen, fleet, server
        self.other = OtherConsole(server.url)
        self.wanted: dict[tuple[str, str], set[str]] = {}
        """By placement and server, the paths that users want there."""
        self.forgotten: dict[tuple[str, str], set[str]] = {}
        """What was wanted when a backup was restored that does not know of it."""
        self.backup: str | None = None
        self.wanted_at_backup: dict[tuple[str, str], set[str]] = {}
        self.violations: list[str] = []
        self.uids = 0
        fleet.deleted = self.judge
        fleet.servers[SECOND_TOKEN] = SERVERS["one"]
        self.tick()

    def judge(self, token: str, path: str) -> None:
        """Note a deletion of what somebody wants.

        A namespace that the other console made on a rebuilt server is its own while it has nothing of ours.
        """
        live = self.fleet.objects[token]
        owner = (live[path]["metadata"].get("annotations") or {}).get(OWNER, "")
        lost = {path}
        if owner.startswith(self.other.hub):
            lost = {one for one in live if one.startswith(f"{path}/")}
        wanted = [*self.wanted.items(), *self.forgotten.items()]
        mine = any(
            token == SERVERS[server] and not lost.isdisjoint(paths)
            for (_, server), paths in wanted
        )
        theirs = token == SERVERS["one"] and any(
            path in paths for _, paths in self.other.wanted.values()
        )
        if mine or theirs:
            self.violations.append(f"{path} on {token}")

    def hub_paths(self, name: str) -> set[str]:
        return {path_of(name)} | {path_of(name, one) for one in self.config_maps(name)}

    def config_maps(self, name: str) -> list[str]:
        rows = Resource.objects.filter(namespace=name, kind="ConfigMap").order_by(
            "name"
        )
        return list(rows.values_list("name", flat=True))

    def place(self, name: str) -> None:  # type: ignore[override]
        """Create or change a placement, and what it selects."""
        count = self.random.randrange(1, 9)
        maps = [
            config_map(f"c{at}", in_=name, data={"x": str(self.random.random())})
            for at in range(count)
        ]
        apply_resources([namespace(name), *maps], by=None, now=self.now)
        for old in self.config_maps(name)[count:]:
            delete_resource(("", "ConfigMap", name, old), by=None, now=self.now)
        for key in self.wanted:
            if key[0] == name:
                self.wanted[key] = self.hub_paths(name)
        servers = self.random.choice((["one"], ["two"], ["one", "two"]))
        kept = Placement.objects.filter(full_name=name).first()
        is_fixed = len(servers) < len(SERVERS)
        if kept and (
            kept.deleting_since or (kept.placement_type == "PickFixed") != is_fixed
        ):
            return  # the type of a policy does not change
        policy: dict[str, Any] = {"placementType": "PickAll"}
        if is_fixed:
            policy = {"placementType": "PickFixed", "clusterNames": servers}
        selector = {"group": "", "version": "v1", "kind": "Namespace", "name": name}
        save_placement(
            placement_document(name, spec(policy, resourceSelectors=[selector])),
            by=None,
            now=self.now,
        )
        for server in SERVERS:
            self.wanted.pop((name, server), None)
            if server in servers:
                self.wanted[name, server] = self.hub_paths(name)
            else:
                self.forgotten.pop((name, server), None)

    def delete(self, name: str) -> None:
        if Placement.objects.filter(full_name=name, deleting_since=None).exists():
            for server in SERVERS:
                self.wanted.pop((name, server), None)
                self.forgotten.pop((name, server), None)
            delete_placement(name, by=None, now=self.now)

    def save_backup(self) -> None:
        if (
            self.backup is None
            and not Placement.objects.exclude(deleting_since=None).exists()
        ):
            self.backup = transaction.savepoint()
            self.wanted_at_backup = {
                key: set(paths) for key, paths in self.wanted.items()
            }

    def restore_backup(self) -> None:
        """Go back to the backup; what was wanted since is still wanted."""
        if self.backup is None:
            return
        transaction.savepoint_rollback(self.backup)
        transaction.savepoint_commit(self.backup)
        self.backup = None
        forget_caches()
        kubernetes_drivers.drivers.clear()
        for key, paths in self.wanted.items():
            self.forgotten[key] = self.forgotten.get(key, set()) | paths
        self.wanted = self.wanted_at_backup

    def rebuild(self, server: str) -> None:
        self.uids += 1
        self.fleet.objects[SERVERS[server]].clear()
        self.fleet.uids[SERVERS[server]] = f"rebuilt-{self.uids}"

    def join_twice(self) -> None:
        """Try to join a server under a second name; then do it as an earlier release would have."""
        if MemberCluster.objects.filter(name=SECOND_NAME).exists():
            return
        fields = {
            "server": self.server.url,
            "ca": authority().pem,
            "token": SECOND_TOKEN,
        }
        uid = self.fleet.uids.get(SERVERS["one"]) or f"uid-of-{SERVERS['one']}"
        if MemberCluster.objects.filter(name="one", cluster_uid=uid).exists():
            with pytest.raises(ConnectionNotAllowed):
                set_connection(
                    SECOND_NAME,
                    ConnectionInput(fields=fields),
                    by=None,
                    now=self.now,
                    joins=True,
                    confirmed=True,
                    other_cluster=True,
                )
        connection = {"server": self.server.url, "ca": authority().pem}
        wanted = ClusterSpec(
            new_member(SECOND_NAME), driver=KUBERNETES, connection=connection
        )
        upsert_clusters([wanted], by=None, now=self.now)
        row = MemberCluster.objects.get(name=SECOND_NAME)
        store_secret(row, None, Secret({"token": SECOND_TOKEN}), by=None, now=self.now)

    def leave_second(self) -> None:
        if (
            MemberCluster.objects.filter(name=SECOND_NAME)
            .exclude(membership=Membership.LEAVING)
            .exists()
        ):
            leave([SECOND_NAME], by=None, now=self.now)
            forget(
                MemberCluster.objects.filter(name=SECOND_NAME),
                verb="left",
                by=None,
                now=self.now,
            )

    def confirm(self) -> None:
        """Confirm a removal: what it would take is not wanted any more, apart from what is placed."""
        for removal in waiting_removals():
            key = removal.placement_name, removal.cluster_name
            self.forgotten.pop(key, None)
            is_placed = Binding.objects.filter(
                placement__full_name=key[0],
                placement__deleting_since=None,
                cluster_name=key[1],
            ).exists()
            if is_placed:
                self.wanted[key] = self.hub_paths(key[0])
            else:
                self.wanted.pop(key, None)
            confirm_removal(
                removal.cluster_name, removal.placement_name, by=None, now=self.now
            )

    def pass_some_time(self) -> None:
        for _ in range(self.random.choice((1, 3))):
            self.tick(seconds=self.random.choice((5, 60, 130)))

    def step(self) -> str:
        name = self.random.choice(NAMES)
        space = self.random.choice((*NAMES, "theirs"))
        actions = {
            f"place {name}": lambda: self.place(name),
            f"change {name}": lambda: self.place(name),
            f"delete {name}": lambda: self.delete(name),
            "backup": self.save_backup,
            "restore": self.restore_backup,
            "rebuild": lambda: self.rebuild(self.random.choice(tuple(SERVERS))),
            "join twice": self.join_twice,
            "leave": self.leave_second,
            "confirm": self.confirm,
            f"their placement in {space}": lambda: self.other.place(
                name, space, has_namespace=self.random.random() < 0.5
            ),
            f"their removal of {name}": lambda: self.other.remove(name),
            "their sweep": self.other.sweep,
            "time": self.pass_some_time,
        }
        chosen = self.random.choice((*actions, "time", "time"))
        actions[chosen]()
        self.tick()
        return chosen

    def converge(self) -> None:
        """End what is wrong, decide what waits, and see that all that is placed is there."""
        self.leave_second()
        for name in list(self.other.wanted):
            self.other.remove(name)
        if not MemberCluster.objects.filter(inherited_names=SECOND_NAME).exists():
            self.forget_second_name()
        for _ in range(40):
            self.confirm()
            self.tick(seconds=130)
            if not self.missing():
                return
        raise AssertionError(f"not there: {self.missing()}")

    def forget_second_name(self) -> None:
        """Do what the guide says where a restored backup does not know the second name any more."""
        for live in self.fleet.objects[SERVERS["one"]].values():
            annotations = live["metadata"].get("annotations") or {}
            if annotations.get("fleetui.io/member", "").endswith(f"/{SECOND_NAME}"):
                del annotations["fleetui.io/member"]

    def missing(self) -> list[str]:
        rows = Binding.objects.exclude(state=BindingState.UNSCHEDULED).select_related(
            "placement"
        )
        missing = [
            f"{row}: {row.phase}: {row.message}"
            for row in rows
            if row.phase != Phase.AVAILABLE
        ]
        for row in rows:
            objects = self.fleet.objects[SERVERS[row.cluster_name]]
            paths = self.hub_paths(row.placement.full_name)
            missing += [
                f"{path} on {row.cluster_name}"
                for path in sorted(paths - objects.keys())
            ]
        return missing


@pytest.fixture
def fleet() -> MemberFleet:
    return MemberFleet()


@pytest.fixture
def server(fleet: MemberFleet) -> Iterator[LocalServer]:
    with serve(fleet) as fake_server, override_settings(MEMBER_LOOPBACK=True):
        yield fake_server


def run_sequence(
    number: int, fleet: MemberFleet, server: LocalServer, patch: pytest.MonkeyPatch
) -> None:
    with rolled_back():
        fleet.objects.clear()
        fleet.uids.clear()
        forget_caches()
        campaign = Campaign(random.Random(number), fleet, server, patch)
        steps: list[str] = []
        for _ in range(STEPS):
            steps.append(campaign.step())
            assert campaign.violations == [], (number, steps)
        campaign.converge()
        assert campaign.violations == [], (number, steps)


@pytest.mark.parametrize("number", range(3))
def test_no_object_is_deleted_that_a_placement_wants(
    number: int,
    fleet: MemberFleet,
    server: LocalServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_sequence(number, fleet, server, monkeypatch)


@pytest.mark.nightly
def test_no_object_is_deleted_in_many_sequences(
    fleet: MemberFleet, server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = os.environ.get("CAMPAIGN_SEED")
    seeds = (
        [int(given)] if given else [int.from_bytes(os.urandom(4)) for _ in range(60)]
    )
    for at, number in enumerate(seeds):
        sys.stdout.write(f"CAMPAIGN_SEED={number} ({at + 1} of {len(seeds)})\n")
        run_sequence(number, fleet, server, monkeypatch)
