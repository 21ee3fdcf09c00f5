"""Six minutes of a real KubeFleet hub: at every place, what REST and pages say equals what its objects say.

The expected values are taken from the objects alone, by the rules of the hub's API and not by our projection.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.test import Client

from clusters.models import MemberCluster, MirroredObject
from placements.models import Binding, StagedRun
from tests.effort import IS_FULL
from tests.hubs.playing import RECORDING, Document, Player, lines
from tests.rows import api_token, person

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("collected_static"),
    pytest.mark.skipif(not RECORDING.exists(), reason="needs ../shared"),
]
PLACES = 200 if IS_FULL else 8
PLACEMENTS = ("ClusterResourcePlacement", "ResourcePlacement")
BINDINGS = ("ClusterResourceBinding", "ResourceBinding")
PARENT, LATEST = (
    "kubernetes-fleet.io/parent-CRP",
    "kubernetes-fleet.io/is-latest-snapshot",
)
REST = "/hubs/prod-eu/api/v1"
NOT_UNDERSTOOD = {
    (
        "clusterresourceplacement-290",
        "spec.policy.affinity.clusterAffinity.requiredDuringSchedulingIgnoredDuringExecution"
        ".clusterSelectorTerms[1].propertySelector.matchExpressions[1]",
    )
}
"""What a person wrote there, and KubeFleet's own webhook would refuse: two expressions about one property."""


def full_name(one: Document) -> str:
    metadata = one["metadata"]
    return (
        f"{metadata['namespace']}/{metadata['name']}"
        if "namespace" in metadata
        else metadata["name"]
    )


def owner(one: Document) -> str:
    name = one["metadata"].get("labels", {}).get(PARENT, "")
    namespace = one["metadata"].get("namespace")
    return f"{namespace}/{name}" if namespace else name


def is_true(one: Document, kind: str) -> bool:
    """Return whether a condition about the present generation is True."""
    return condition(one, kind).get("status") == "True"


def condition(one: Document, kind: str) -> Document:
    conditions = one.get("status", {}).get("conditions", ())
    generation = one["metadata"].get("generation")
    current = (
        each for each in conditions if each.get("observedGeneration") == generation
    )
    return next((each for each in current if each["type"] == kind), {})


def by_owner(objects: Iterable[Document]) -> dict[str, list[Document]]:
    found: dict[str, list[Document]] = defaultdict(list)
    for one in objects:
        found[owner(one)].append(one)
    return found


def selected(bindings: Iterable[Document]) -> list[Document]:
    """Return the binding of each selected cluster: one that is not being deleted, else the newest."""
    by_cluster: dict[str, Document] = {}
    order = ("deletionTimestamp", "creationTimestamp", "name")
    for binding in bindings:
        before = by_cluster.get(binding["spec"]["targetCluster"])

        def rank(each: Document) -> tuple[object, ...]:
            metadata = each["metadata"]
            return (
                "deletionTimestamp" not in metadata,
                *(metadata.get(key, "") for key in order[1:]),
            )

        if before is None or rank(binding) > rank(before):
            by_cluster[binding["spec"]["targetCluster"]] = binding
    return [
        document
        for document in by_cluster.values()
        if document["spec"]["state"] != "Unscheduled"
    ]


def expected_counts(
    placement: Document, bindings: list[Document], latest: str
) -> dict[str, int]:
    """Count the clusters of a placement as its objects have them."""
    kind = placement["kind"]
    strategy = placement["spec"].get("strategy", {}).get("type")
    has_started = strategy == "External" or is_true(placement, f"{kind}RolloutStarted")
    counts = dict.fromkeys(
        ("scheduled", "rolloutStarted", "applied", "available", "failed", "differs"), 0
    )
    for document in selected(bindings):
        spec = document["spec"]
        counts["scheduled"] += 1
        if spec["state"] != "Bound" or "deletionTimestamp" in document["metadata"]:
            continue
        is_latest = not latest or spec.get("resourceSnapshotName") == latest
        is_started = is_true(document, "RolloutStarted") and (is_latest or has_started)
        counts["rolloutStarted"] += is_started
        is_report = spec.get("applyStrategy", {}).get("type") == "ReportDiff"
        steps = ["Overridden", "WorkSynchronized"]
        is_there = is_started and all(is_true(document, step) for step in steps)
        if is_report:
            has_report = is_there and is_true(document, "DiffReported")
            differs = bool(document["status"].get("diffedPlacements"))
            counts["differs"] += has_report and differs
            counts["applied"] += has_report and not differs
            counts["available"] += has_report and not differs
            continue
        applied = condition(document, "Applied")
        counts["applied"] += is_there and is_true(document, "Applied")
        counts["available"] += (
            is_there and is_true(document, "Applied") and is_true(document, "Available")
        )
        has_failed = (
            is_there
            and applied.get("status") == "False"
            and bool(document["status"].get("failedPlacements"))
        )
        override = condition(document, "Overridden")
        has_failed |= is_started and override.get("reason") == "OverriddenFailed"
        counts["failed"] += has_failed
    return counts


def row_name(row: Document) -> str:
    return (
        f"{row['namespace']}/{row['name']}"
        if row.get("namespace")
        else str(row["name"])
    )


def rows_of(client: Client, address: str) -> Iterator[Document]:
    following = f"{REST}/{address}"
    while following:
        answer = client.get(following).json()
        yield from answer["items"]
        following = (answer.get("next") or "").removeprefix("http://testserver")


def placement_faults(player: Player, client: Client) -> list[Any]:
    """Compare the list of placements over REST with the objects."""
    found: list[Any] = []
    bindings = by_owner(player.of_kind(*BINDINGS))
    latest = {
        owner(document): document["metadata"]["name"]
        for document in player.of_kind("ClusterResourceSnapshot", "ResourceSnapshot")
        if document["metadata"]["labels"].get(LATEST) == "true"
        and document["metadata"]["name"].endswith("-snapshot")
    }
    objects = {
        full_name(document): document for document in player.of_kind(*PLACEMENTS)
    }
    rows = {row_name(row): row for row in rows_of(client, "placements?limit=500")}
    if rows.keys() != objects.keys():
        found.append((player.now, "placements", rows.keys() ^ objects.keys()))
    for name in rows.keys() & objects.keys():
        placement, health = objects[name], rows[name]["health"]
        counts = expected_counts(placement, bindings[name], latest.get(name, ""))
        if counts.items() - health["counts"].items():
            found.append((player.now, name, counts, health["counts"]))
        found += [
            (player.now, name, fault)
            for fault in word_faults(placement, health, counts)
        ]
    return found


def word_faults(
    placement: Document, health: Document, counts: dict[str, int]
) -> Iterator[str]:
    """Return where the level of a placement is better or worse than its clusters and the hub's condition."""
    scheduled = condition(placement, f"{placement['kind']}Scheduled").get("status")
    is_complete = counts["available"] == counts["scheduled"]
    is_wrong = counts["failed"] or counts["differs"] or scheduled == "False"
    is_away = health["counts"]["notReady"] or health["counts"]["unreachable"]
    if health["level"] == "healthy" and (
        is_wrong or scheduled != "True" or not is_complete
    ):
        yield "false green"
    is_fine = is_complete and counts["scheduled"] and not is_wrong and not is_away
    if health["level"] in ("failed", "attention") and is_fine:
        yield "false red"
    if (
        is_wrong
        and health["level"] in ("progress", "suspended")
        and not is_deleting(placement)
    ):
        yield f"not shown: {health['word']}"


def is_deleting(one: Document) -> bool:
    return "deletionTimestamp" in one["metadata"]


def binding_faults(player: Player) -> Iterator[Any]:
    """Compare the bindings that pages read, with their drifts and differences, with the objects."""
    stored = Binding.objects.select_related("placement")
    rows = {
        (binding.placement.full_name, binding.cluster_name): binding
        for binding in stored
    }
    owners = {full_name(document) for document in player.of_kind(*PLACEMENTS)}
    for name, bindings in by_owner(player.of_kind(*BINDINGS)).items():
        for document in selected(bindings) if name in owners else ():
            row = rows.get((name, document["spec"]["targetCluster"]))
            if row is None:
                yield player.now, name, document["spec"]["targetCluster"], "no row"
                continue
            status = document.get("status", {})
            for key, parts, objects in (
                ("driftedPlacements", "observedDrifts", row.drifted_objects),
                ("diffedPlacements", "observedDiffs", row.diffed_objects),
            ):
                wanted = [
                    (
                        each["kind"],
                        each["name"],
                        [part["path"] for part in each.get(parts, ())],
                    )
                    for each in status.get(key, ())
                ]
                if wanted != [
                    (each["kind"], each["name"], [part[0] for part in each["fields"]])
                    for each in objects
                ]:
                    yield player.now, name, key


def other_faults(player: Player) -> Iterator[Any]:
    """Compare clusters and runs with the objects; everything is understood, but for what runs ahead."""
    members = {
        document["metadata"]["name"] for document in player.of_kind("MemberCluster")
    }
    if set(MemberCluster.objects.values_list("name", flat=True)) != members:
        yield player.now, "member clusters"
    runs = {
        document["metadata"]["name"]: document
        for document in player.of_kind("ClusterStagedUpdateRun")
    }
    for run in StagedRun.objects.all():
        has_ended = condition(runs[run.name], "Succeeded").get("status") in (
            "True",
            "False",
        )
        if (run.ended_at is not None) is not has_ended:
            yield player.now, "run", run.name
    owners = {full_name(document) for document in player.of_kind(*PLACEMENTS)}
    ahead = {  # their watch is ahead of that of the placements
        document["metadata"]["name"]
        for document in player.of_kind(*BINDINGS)
        if owner(document) not in owners and not is_deleting(document)
    }
    unresolved = MirroredObject.objects.filter(is_unresolved=True).exclude(
        name__in=ahead
    )
    paths = {
        (mirrored_object.name, path)
        for mirrored_object in unresolved
        for path in (*mirrored_object.not_understood, mirrored_object.projection_error)
    }
    not_understood = {pair for pair in paths if pair[1]} - NOT_UNDERSTOOD
    if not_understood:
        yield player.now, "not understood", not_understood


@pytest.mark.larger
def test_all_statements_equal_the_objects_of_the_recording() -> None:
    recorded = lines()
    client = Client(
        headers={"Authorization": f"Token {api_token(person('ann', 'operator'))}"}
    )
    player = Player()
    found: list[Any] = []
    for place in range(PLACES):
        player.play(
            recorded[
                place * len(recorded) // PLACES : (place + 1) * len(recorded) // PLACES
            ]
        )
        found += placement_faults(player, client)
        with player.live.scope():
            found += [*binding_faults(player), *other_faults(player)]

    assert found == []
    assert len(player.objects) > 1_800
