"""Our status of recorded situations, and what a real KubeFleet hub wrote for the same ones."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from placements.explain.hub_conditions import (
    SORTS,
    Condition,
    conditions_in_all,
    conditions_on,
    controlled_externally,
)
from placements.explain.hub_status import why_selected
from placements.hubs.replay.observed_decisions import observe_decision
from placements.manifests.placement import parse_placement
from placements.models import Binding, Placement
from placements.services.conditions import ConditionReader
from placements.services.status import status_of
from tests.hubs.playing import RECORDING, Document, Player, lines
from tests.hubs.test_played_recording import BINDINGS, PLACEMENTS, full_name, owner

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(not RECORDING.exists(), reason="needs ../shared"),
]
Words = list[tuple[str, str, str, str]]


def written(conditions: list[Document], prefix: str = "") -> Words:
    """Return type, status, reason and message of the conditions of a hub, in the order of their steps."""
    by_type = {
        condition["type"].removeprefix(prefix): condition for condition in conditions
    }
    each = [(sort, by_type[sort]) for sort in ("Scheduled", *SORTS) if sort in by_type]
    return [
        (sort, document["status"], document["reason"], plain(sort, document["message"]))
        for sort, document in each
    ]


def ours(conditions: list[Condition]) -> Words:
    return [
        (
            condition.sort,
            condition.status.value,
            condition.reason,
            plain(condition.sort, condition.message),
        )
        for condition in conditions
    ]


def plain(sort: str, message: str) -> str:
    """Return a message without the details of a cluster that follow, such as the staged update run."""
    if sort == "Scheduled":  # its text has the scores
        return message
    blocked = "because of the rollout strategy"  # of two sentences about the same
    if message.endswith(blocked):
        return "The rollout is being blocked by the rollout strategy"
    return message.partition(": ")[0].removesuffix(", resourceSnapshotIndex")


def situations(player: Player) -> Iterator[tuple[str, Words, Words]]:
    """Yield what the hub wrote and what we write, for each cluster and for a placement.

    Not where the hub had yet to copy the conditions of a binding into the status of its placement.
    """
    bindings = {
        (owner(document), document["spec"]["targetCluster"]): document
        for document in player.of_kind(*BINDINGS)
    }
    rows = {
        (row.placement.full_name, row.cluster_name): row
        for row in Binding.objects.select_related("placement")
    }
    for placement in player.of_kind(*PLACEMENTS):
        name = full_name(placement)
        status = placement.get("status", {})
        entries = [
            one for one in status.get("placementStatuses", ()) if "clusterName" in one
        ]
        keys = [(name, entry["clusterName"]) for entry in entries]
        if not keys or not all(key in rows and key in bindings for key in keys):
            continue
        each = [
            conditions_of(rows[key], bindings[key], entry, placement)
            for key, entry in zip(keys, entries, strict=True)
        ]
        pairs = list(zip(entries, each, strict=True))
        if any(
            is_behind(entry, bindings[name, entry["clusterName"]]) for entry in entries
        ):
            continue
        for entry, conditions in pairs:
            hub = written(entry["conditions"])
            yield f"{name} on {entry['clusterName']}", hub, ours(conditions)
        in_all = conditions_in_all(each)
        if placement["spec"].get("strategy", {}).get("type") == "External":
            kind = placement["kind"]
            in_all = [
                controlled_externally(condition, kind=kind, started=0)
                for condition in in_all
            ]
        hub = written(status["conditions"], placement["kind"])
        yield name, hub[1:], ours(in_all)


def is_behind(entry: Document, binding: Document) -> bool:
    now = {
        condition["type"]: condition["status"]
        for condition in binding.get("status", {}).get("conditions", ())
        if condition["observedGeneration"] == binding["metadata"]["generation"]
    }
    return any(
        now.get(condition["type"], "Unknown") != condition["status"]
        for condition in entry["conditions"][1:]
    )


def conditions_of(
    row: Binding, binding: Document, entry: Document, placement: Document
) -> list[Condition]:
    """Return our conditions of a binding as the mirror reads it."""
    reader = ConditionReader.of(parse_placement(placement), None, now=datetime.now(UTC))
    states: dict[str, Any] = {
        condition["type"]: condition["status"] == "True"
        for condition in entry["conditions"]
    }
    wanted = row.applied_version if states.get("RolloutStarted") else ""
    words = why_selected(
        row.cluster_name, row.affinity_score, row.topology_spread_score
    )
    facts = reader.of_binding(row, wanted, why_selected=words)
    overrides = ("clusterResourceOverrideSnapshots", "resourceOverrideSnapshots")
    has_overrides = any(binding["spec"].get(key) for key in overrides)
    return conditions_on(replace(facts, has_overrides=has_overrides))


def nameless(status: Document) -> Words:
    """Return the condition of each entry without a cluster: of a cluster that is missing."""
    return [
        (
            condition["type"],
            condition["status"],
            condition["reason"],
            condition["message"],
        )
        for entry in status["placementStatuses"]
        if "clusterName" not in entry
        for condition in entry["conditions"]
    ]


@pytest.mark.larger
def test_our_status_of_recorded_situations_is_what_the_hub_wrote() -> None:
    player = Player()
    player.play(lines())

    with player.live.scope():
        compared = list(situations(player))
        for row in Placement.objects.all():
            observe_decision(row.pk, player.live.hub, now=player.now)
        left_out = [
            (
                nameless(document["status"]),
                nameless(status_of(rows[full_name(document)])),
            )
            for rows in [{row.full_name: row for row in Placement.objects.all()}]
            for document in player.of_kind(*PLACEMENTS)
            if "placementStatuses" in document.get("status", {})
            and full_name(document) in rows
        ]

    assert [one for one in compared if one[1] != one[2]] == []
    assert len(compared) > 500
    assert [one for one in left_out if one[0] != one[1]] == []
    assert sum(bool(hub) for hub, _ in left_out) > 0
    reasons = {reason for _, hub, _ in compared for _, _, reason, _ in hub}
    assert len(reasons) == 20, sorted(reasons)
    assert "(affinity score: 40, topology spread score: 0)" in str(compared)
