"""Random histories of a hub, streams in any order: the rows equal those of a fresh projection (21.2)."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from clusters.models import ClusterLabel, MemberCluster, MirroredObject
from fleetui.apimachinery.words import split_full_name
from placements.hubs.watching.stream import StreamItem
from placements.models import (
    ApprovalRequest,
    Binding,
    DisruptionBudget,
    Eviction,
    Override,
    OverrideSnapshot,
    Placement,
    PolicySnapshot,
    ResourceSnapshot,
    StagedRun,
    StagedStrategy,
)
from tests.hubs.hub_documents import (
    approval,
    budget,
    condition,
    eviction,
    member,
    override,
    override_snapshot,
    placement,
    run_status,
    snapshot,
    staged_run,
    strategy,
)
from tests.hubs.projecting import ProjectedHub
from tests.hubs.test_projection_placements import (
    bound,
    changed,
    resource_snapshot,
    scheduled,
)

pytestmark = pytest.mark.django_db
HISTORIES, PARTS = 300, 150
GENERATION = 2
"""Of each placement: its revisions start there."""
BOOKKEEPING = {
    *(
        "id",
        "hub",
        "hub_changes",
        "updated_at",
        "placement",
        "policy_snapshot",
        "resource_snapshot",
        "run",
    ),
    *("progress_version", "runs_made", "observe_rollout", "changed_in"),
}
"""What may differ: keys, how often a row was written, and the rollouts, which depend on the history."""
MODELS = (
    *(
        MemberCluster,
        ClusterLabel,
        Placement,
        PolicySnapshot,
        ResourceSnapshot,
        Binding,
        Override,
    ),
    *(
        OverrideSnapshot,
        DisruptionBudget,
        Eviction,
        StagedStrategy,
        StagedRun,
        ApprovalRequest,
    ),
)
REFERENCES = ("placement", "cluster", "resource_snapshot", "run")
KINDS = {
    "MemberCluster": ("c0", "c1", "c2"),
    "ClusterResourcePlacement": ("p0", "p1"),
    "ClusterSchedulingPolicySnapshot": ("p0-0", "p0-1", "p1-0"),
    "ClusterResourceSnapshot": ("p0-0-snapshot", "p0-1-snapshot", "p1-0-snapshot"),
    "ClusterResourceBinding": tuple(
        f"p{p}-c{c}-{n}" for p in range(2) for c in range(3) for n in range(2)
    ),
    "ResourcePlacement": ("ns/p0",),
    "SchedulingPolicySnapshot": ("ns/p0-0",),
    "ResourceSnapshot": ("ns/p0-0-snapshot",),
    "ResourceBinding": ("ns/p0-c0-0",),
    "ClusterResourceOverride": ("o0", "o1"),
    "ClusterResourceOverrideSnapshot": ("o0-0", "o0-1"),
    "ResourceOverrideSnapshot": ("ns/o0-0", "ns/o0-1"),
    "ClusterResourcePlacementDisruptionBudget": ("p0",),
    "ClusterResourcePlacementEviction": ("e0", "e1"),
    "ClusterStagedUpdateStrategy": ("s0",),
    "ClusterStagedUpdateRun": ("r0", "r1"),
    "StagedUpdateRun": ("ns/r0",),
    "ClusterApprovalRequest": ("r0-before-s1", "r0-after-s1", "r1-after-s1"),
    "ApprovalRequest": ("ns/r0-after-s1",),
}


NAMESPACED = {
    "ResourcePlacement": "ClusterResourcePlacement",
    "SchedulingPolicySnapshot": "ClusterSchedulingPolicySnapshot",
    "ResourceSnapshot": "ClusterResourceSnapshot",
    "ResourceBinding": "ClusterResourceBinding",
    "StagedUpdateRun": "ClusterStagedUpdateRun",
    "ApprovalRequest": "ClusterApprovalRequest",
}
"""Kinds inside namespaces, and the kinds of the cluster that look the same."""


def some_override(name: str, chance: random.Random) -> dict[str, Any]:
    found = override(name, value=chance.choice("12"))
    if chance.random() < 0.2:
        del found["spec"]["policy"]
    return found


def some_snapshot(name: str, chance: random.Random) -> dict[str, Any]:
    own, _, number = name.partition("-")
    return override_snapshot(own, int(number), is_latest=chance.random() < 0.7)


def some_eviction(name: str, chance: random.Random) -> dict[str, Any]:
    executed = condition("Executed", chance.choice(("True", "False", "Unknown")))
    return eviction(
        name,
        chance.choice(("p0", "p1")),
        "c0",
        *([executed] if chance.random() < 0.7 else []),
    )


def some_run(name: str, chance: random.Random) -> dict[str, Any]:
    state = chance.choice(("Initialize", "Run", "Stop", "Odd"))
    reason = chance.choice(
        ("UpdateRunWaiting", "UpdateRunStuck", "UpdateRunStopped", "New")
    )
    steps = [
        {"clusterName": one, "conditions": [condition("Started")]}
        for one in chance.sample("abc", 2)
    ]
    stages = [{"stageName": chance.choice(("canary", "new")), "clusters": steps}]
    ends = chance.choice(
        ([], [], [condition("Succeeded", chance.choice(("True", "False")))])
    )
    status = run_status(
        condition("Progressing", "False", reason=reason), *ends, stages=stages
    )
    status["resourceSnapshotIndexUsed"] = chance.choice(("0", "1"))
    found = staged_run(name, chance.choice(("p0", "p1")), state=state)
    return {**found, "status": status} if chance.random() < 0.8 else found


def some_approval(name: str, chance: random.Random) -> dict[str, Any]:
    run, side, stage = name.split("-")
    kinds = chance.sample(("Approved", "ApprovalAccepted"), chance.randint(0, 2))
    return approval(run, stage, *map(condition, kinds), side=side)


OTHER_KINDS: dict[str, Callable[[str, random.Random], dict[str, Any]]] = {
    "ClusterResourceOverride": some_override,
    "ClusterResourceOverrideSnapshot": some_snapshot,
    "ResourceOverrideSnapshot": some_snapshot,
    "ClusterResourcePlacementDisruptionBudget": lambda name, chance: budget(
        name, **chance.choice(({"minAvailable": 1}, {"maxUnavailable": "25%"}, {}))
    ),
    "ClusterResourcePlacementEviction": some_eviction,
    "ClusterStagedUpdateStrategy": lambda name, chance: strategy(
        name, *chance.sample(("a", "b"), 2)
    ),
    "ClusterStagedUpdateRun": some_run,
    "ClusterApprovalRequest": some_approval,
}


def content(kind: str, name: str, chance: random.Random) -> dict[str, Any]:
    """Return some state of an object."""
    namespace, name = split_full_name(name)
    if namespace:
        found = content(NAMESPACED.get(kind, kind), name, chance)
        return changed(found, metadata={"namespace": namespace})
    if kind in OTHER_KINDS:
        return OTHER_KINDS[kind](name, chance)
    owner, *rest = name.split("-")
    if kind == "MemberCluster":
        return member(name, region=chance.choice("ab"))
    if kind == "ClusterResourcePlacement":
        status = scheduled(
            chance.choice(("True", "False")), generation=chance.randint(1, GENERATION)
        )
        status["observedResourceIndex"] = chance.choice("01")
        odd: dict[str, Any] = {"newField": 1} if chance.random() < 0.2 else {}
        found = changed(
            placement(name, clusters=chance.randint(1, 3)), spec=odd, status=status
        )
        return changed(found, metadata={"generation": GENERATION})
    if kind == "ClusterSchedulingPolicySnapshot":
        return snapshot(owner, int(rest[0]), is_latest=chance.random() < 0.7)
    if kind == "ClusterResourceSnapshot":
        return resource_snapshot(owner, int(rest[0]), is_latest=chance.random() < 0.7)
    state = chance.choice(("Scheduled", "Bound", "Bound", "Unscheduled", "Odd"))
    found = bound(
        owner,
        rest[0],
        spec={"state": state, "schedulingPolicySnapshotName": f"{owner}-{rest[1]}"},
    )
    is_deleting = (
        {"deletionTimestamp": "2026-11-01T09:59:00Z"} if chance.random() < 0.2 else {}
    )
    return changed(found, metadata={"name": name, **is_deleting})


def known_revision(row: Any) -> dict[str, int | None]:
    """Return the revision of a row that must be known without its history: that of latest resources.

    Older resources, and runs whose resources are gone, have one only if they were seen while these were the
    latest: then it is the same.
    """
    if not isinstance(row, (ResourceSnapshot, StagedRun)):
        return {}
    snapshot = row.resource_snapshot if isinstance(row, StagedRun) else row
    number = row.resource_number if isinstance(row, StagedRun) else row.number
    due = None if number is None else GENERATION + number
    is_latest = snapshot is not None and snapshot.is_latest
    assert row.revision_number in ((due,) if is_latest else (due, None))
    if snapshot is not None:
        assert row.revision_number == snapshot.revision_number
    return {"revision_number": due if is_latest else None}


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
                        **known_revision(row),
                        "refers": [str(getattr(row, name, "")) for name in REFERENCES],
                        "numbers": [
                            getattr(getattr(row, name, None), "number", None)
                            for name in ("policy_snapshot", "resource_snapshot")
                        ],
                    }
                )
                for row in model._default_manager.all()
            )
            for model in MODELS
        }
        columns = (
            "kind",
            "namespace",
            "name",
            "not_understood",
            "projection_error",
            "is_unresolved",
        )
        found["marks"] = [
            *MirroredObject.objects.order_by(*columns[:3]).values_list(*columns)
        ]
    return found


def deliver(
    live: ProjectedHub, streams: dict[str, list[StreamItem]], chance: random.Random
) -> None:
    """Deliver some events of each stream, in any order between the streams, some twice."""
    for kind in chance.sample(sorted(streams), len(streams)):
        waiting = streams[kind]
        taken = waiting[: chance.randint(0, len(waiting))]
        del waiting[: len(taken)]
        live.mirror.write([*taken, *taken[-1:]])


@pytest.mark.parametrize(
    "part",
    [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, PARTS))],
)
def test_any_history_leads_to_the_rows_of_a_fresh_projection(part: int) -> None:
    for seed in range(part, HISTORIES, PARTS):
        chance, live = random.Random(seed), ProjectedHub(f"hub-{seed}")
        streams: dict[str, list[StreamItem]] = {kind: [] for kind in KINDS}
        state: dict[tuple[str, str], dict[str, Any]] = {}
        versions: dict[tuple[str, str], str] = {}
        for _ in range(8):
            for _ in range(chance.randint(2, 9)):
                kind = chance.choice(sorted(KINDS))
                name = chance.choice(KINDS[kind])
                if (kind, name) in state and chance.random() < 0.3:
                    del state[kind, name]
                    streams[kind].append(
                        live.removal(kind, name, uid=versions[kind, name])
                    )
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
