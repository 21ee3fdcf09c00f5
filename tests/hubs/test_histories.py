"""Random histories of a hub, with duplicates and relists: the mirror equals that of a fresh list (21.2)."""

import random
from typing import Any

import pytest

from clusters.models import BindingChange, Hub
from fleetui.hub_scope import in_hub
from placements.hubs.kinds.kubefleet import KUBEFLEET
from placements.hubs.trimming import record_of
from placements.hubs.watching.mirror import GONE, HubMirror
from placements.hubs.watching.stream import ObjectRemoval, StreamItem
from tests.hubs.fake_hub import Change, FakeHub
from tests.hubs.hub_documents import binding, member
from tests.hubs.test_mirror import LEASE, NOW, live_hub, stream_row
from tests.hubs.test_trimming import stream
from tests.hubs.watching import mirrored, served

pytestmark = pytest.mark.django_db
HISTORIES, PARTS = 300, 30
PLURALS = {
    "memberclusters": "MemberCluster",
    "clusterresourcebindings": "ClusterResourceBinding",
}


class Delivery:
    """Delivers the history of a hub to a mirror as streams may: late, in pieces, twice, or by a list."""

    def __init__(self, fake: FakeHub, hub: Hub, chance: random.Random) -> None:
        self.fake, self.chance = fake, chance
        self.mirror = HubMirror(hub.pk, KUBEFLEET, LEASE, clock=lambda: NOW)
        self.rows = {}
        for plural, kind in PLURALS.items():
            row = stream_row(hub, stream(kind))
            self.mirror.add(row, stream(kind))
            self.rows[plural] = row
        self.seen = dict.fromkeys(PLURALS, 0)

    def item(self, plural: str, change: Change) -> StreamItem:
        kind = stream(PLURALS[plural])
        record = record_of(KUBEFLEET, kind, "v1beta1", {**change.object})
        number, position = self.rows[plural].pk, str(change.revision)
        if change.type == "DELETED":
            removal = ObjectRemoval(
                record.namespace, record.name, record.uid, record.resource_version
            )
            return StreamItem(number, removal=removal, position=position)
        return StreamItem(number, record, position=position)

    def watch(self, plural: str, *, everything: bool = False) -> list[StreamItem]:
        """Return the next events of a stream; the last ones come again after a cut."""
        mine = [change for change in self.fake.history if change.resource[1] == plural]
        fresh = [change for change in mine if change.revision > self.seen[plural]]
        if not everything:
            fresh = fresh[: self.chance.randint(0, len(fresh))]
        if fresh:
            self.seen[plural] = fresh[-1].revision
            if (
                self.chance.random() < 0.2
            ):  # cut: the watch starts again a little earlier
                self.seen[plural] = max(0, fresh[0].revision - 2)
        return [self.item(plural, change) for change in fresh]

    def relist(self, plural: str) -> list[StreamItem]:
        place = [
            documents
            for key, documents in self.fake.objects.items()
            if key[1] == plural
        ]
        objects: list[dict[str, Any]] = [
            document for documents in place for document in documents.values()
        ]
        kind, number = stream(PLURALS[plural]), self.rows[plural].pk
        records = [record_of(KUBEFLEET, kind, "v1beta1", {**one}) for one in objects]
        self.seen[plural] = self.fake.revision
        uids = frozenset(record.uid for record in records)
        items = [StreamItem(number, record, is_from_list=True) for record in records]
        return [
            *items,
            StreamItem(number, position=str(self.fake.revision), listed_uids=uids),
        ]

    def some(self) -> list[StreamItem]:
        """Return a part of what the streams have, in any order between them."""
        items = []
        for plural in self.chance.sample(sorted(PLURALS), len(PLURALS)):
            items += (
                self.relist(plural)
                if self.chance.random() < 0.15
                else self.watch(plural)
            )
        return items


def _change(fake: FakeHub, chance: random.Random, heartbeat: int) -> None:
    name = f"c{chance.randint(0, 4)}"
    known = fake.objects.get(
        ("placement.kubernetes-fleet.io", "clusterresourcebindings"), {}
    )
    what = chance.random()
    if what < 0.3:
        fake.put(
            "memberclusters",
            member(name, heartbeat=f"2026-11-01T10:00:{heartbeat % 60:02}Z"),
        )
    elif what < 0.4:
        fake.put("memberclusters", member(name, region=chance.choice("ab")))
    elif what < 0.8:
        state = chance.choice(("Scheduled", "Bound", "Unscheduled"))
        fake.put(
            "clusterresourcebindings",
            binding("web", name, state=state, policy=chance.randint(0, 1)),
        )
    elif known:
        fake.delete("clusterresourcebindings", chance.choice(sorted(known))[1])


@pytest.mark.parametrize(
    "part",
    [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, PARTS))],
)
def test_any_history_leads_to_the_mirror_of_a_fresh_list(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        chance, fake = random.Random(seed), FakeHub()
        hub = live_hub(f"hub-{seed}")
        delivery = Delivery(fake, hub, chance)
        for step in range(12):
            for _ in range(chance.randint(1, 5)):
                _change(fake, chance, step)
            items = delivery.some()
            for start in range(0, len(items), 4):
                delivery.mirror.write(items[start : start + 4])
            if chance.random() < 0.3:
                delivery.mirror.flush({})
        for plural in PLURALS:
            delivery.mirror.write(delivery.watch(plural, everything=True))
            delivery.mirror.write(delivery.watch(plural, everything=True))
        delivery.mirror.flush({})

        assert mirrored(hub) == served(fake), f"seed {seed}"
        bindings = [
            document
            for document in fake.all_objects().values()
            if "targetCluster" in document["spec"]
        ]
        wanted = {one["metadata"]["uid"]: one["spec"]["state"] for one in bindings}
        with in_hub(hub.pk):
            newest = dict(
                BindingChange.objects.order_by("pk").values_list("uid", "state")
            )
        assert {
            uid: state for uid, state in newest.items() if state != GONE
        } == wanted, f"seed {seed}"
