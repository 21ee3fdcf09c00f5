"""Random histories of a hub, streams in any order: the rows equal those of a fresh projection (21.2)."""

import random
from typing import Any

import pytest

from clusters.hubs.stream import StreamItem
from clusters.models import ClusterLabel, MemberCluster, MirroredObject
from placements.models import Binding, Placement, PolicySnapshot, ResourceSnapshot
from tests.hubs.hub_documents import member, placement, snapshot
from tests.hubs.projecting import ProjectedHub
from tests.hubs.test_projection_placements import bound, changed, resource_snapshot, scheduled

pytestmark = pytest.mark.django_db
HISTORIES, PARTS = 300, 30
BOOKKEEPING = {"id", "hub", "revision", "updated_at", "placement", "policy_snapshot", "resource_snapshot"}
"""What may differ: keys, and how often a row was written."""
KINDS = {
    "MemberCluster": ("c0", "c1", "c2"),
    "ClusterResourcePlacement": ("p0", "p1"),
    "ClusterSchedulingPolicySnapshot": ("p0-0", "p0-1", "p1-0"),
    "ClusterResourceSnapshot": ("p0-0-snapshot", "p0-1-snapshot", "p1-0-snapshot"),
    "ClusterResourceBinding": tuple(f"p{p}-c{c}-{n}" for p in range(2) for c in range(3) for n in range(2)),
}


def content(kind: str, name: str, chance: random.Random) -> dict[str, Any]:
    """Return some state of an object."""
    owner, *rest = name.split("-")
    if kind == "MemberCluster":
        return member(name, region=chance.choice("ab"))
    if kind == "ClusterResourcePlacement":
        status = scheduled(chance.choice(("True", "False")), generation=chance.randint(1, 2))
        status["observedResourceIndex"] = chance.choice("01")
        odd: dict[str, Any] = {"newField": 1} if chance.random() < 0.2 else {}
        found = changed(placement(name, clusters=chance.randint(1, 3)), spec=odd, status=status)
        return changed(found, metadata={"generation": 2})
    if kind == "ClusterSchedulingPolicySnapshot":
        return snapshot(owner, int(rest[0]), is_latest=chance.random() < 0.7)
    if kind == "ClusterResourceSnapshot":
        return resource_snapshot(owner, int(rest[0]), is_latest=chance.random() < 0.7)
    state = chance.choice(("Scheduled", "Bound", "Bound", "Unscheduled", "Odd"))
    found = bound(owner, rest[0], spec={"state": state, "schedulingPolicySnapshotName": f"{owner}-{rest[1]}"})
    is_deleting = {"deletionTimestamp": "2026-11-01T09:59:00Z"} if chance.random() < 0.2 else {}
    return changed(found, metadata={"name": name, **is_deleting})


def rows(live: ProjectedHub) -> dict[str, list[Any]]:
    """Return all rows of the projection, without what may differ."""
    with live.scope():
        found: dict[str, list[Any]] = {
            model.__name__: sorted(
                str(
                    {
                        **{
                            field.name: getattr(row, field.attname)
                            for field in model._meta.concrete_fields
                            if field.name not in BOOKKEEPING | {"cluster"}
                        },
                        "refers": [str(getattr(row, name, "")) for name in ("placement", "cluster")],
                        "numbers": [
                            getattr(getattr(row, name, None), "number", None)
                            for name in ("policy_snapshot", "resource_snapshot")
                        ],
                    }
                )
                for row in model._default_manager.all()
            )
            for model in (MemberCluster, ClusterLabel, Placement, PolicySnapshot, ResourceSnapshot, Binding)
        }
        marks = MirroredObject.objects.order_by("kind", "name")
        found["marks"] = [*marks.values_list("kind", "name", "not_understood", "projection_error")]
    return found


def deliver(live: ProjectedHub, streams: dict[str, list[StreamItem]], chance: random.Random) -> None:
    """Deliver some events of each stream, in any order between the streams, some twice."""
    for kind in chance.sample(sorted(streams), len(streams)):
        waiting = streams[kind]
        taken = waiting[: chance.randint(0, len(waiting))]
        del waiting[: len(taken)]
        live.mirror.write([*taken, *taken[-1:]])


@pytest.mark.parametrize(
    "part", [0, 1, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(2, PARTS))]
)
def test_any_history_leads_to_the_rows_of_a_fresh_projection(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        chance, live = random.Random(seed), ProjectedHub(f"hub-{seed}")
        streams: dict[str, list[StreamItem]] = {kind: [] for kind in KINDS}
        state: dict[tuple[str, str], dict[str, Any]] = {}
        versions: dict[tuple[str, str], str] = {}
        for _ in range(12):
            for _ in range(chance.randint(1, 6)):
                kind = chance.choice(sorted(KINDS))
                name = chance.choice(KINDS[kind])
                if (kind, name) in state and chance.random() < 0.3:
                    del state[kind, name]
                    streams[kind].append(live.removal(kind, name, uid=versions[kind, name]))
                    continue
                if (kind, name) not in state:
                    versions[kind, name] = f"{kind}-{name}-{live.version}"
                state[kind, name] = content(kind, name, chance)
                item = live.item(kind, state[kind, name], uid=versions[kind, name])
                streams[kind].append(item)
            deliver(live, streams, chance)
            if chance.random() < 0.6:
                live.project()
        for kind, waiting in streams.items():
            live.mirror.write(waiting)
            streams[kind] = []
        live.project()

        fresh = ProjectedHub(f"fresh-{seed}")
        for kind, name in chance.sample(sorted(state), len(state)):
            item = fresh.item(kind, state[kind, name], uid=versions[kind, name])
            fresh.mirror.write([item])
        fresh.project()
        assert rows(live) == rows(fresh), f"seed {seed}"
