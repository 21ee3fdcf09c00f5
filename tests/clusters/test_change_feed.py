"""A process that holds a fleet reads what changed since, and has the fleet that a new process would load."""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from clusters.fleet import Cluster, Fleet
from clusters.models import ClusterTombstone, FleetState, MemberCluster
from clusters.operations.edit import change_labels, cordon, forget, leave, uncordon
from clusters.operations.join import ClusterSpec, put_cluster, upsert_clusters
from clusters.queries import NO_FLEET, FleetSnapshot, current_fleet
from fleetui.hub_scope import LOCAL_HUB, in_hub
from tests.builders import cluster, taint
from tests.caches import forget_cached_fleet
from tests.rows import NOW, all_joined, joined, member_document

LABELS = {"region": ["east", "west", "north", None], "tier": ["gold", None]}
QUANTITIES = ["1", "2", "500m", "1Ki", "lots", None]
TAINTS = [[], [taint("gpu")], [taint("cordon")], [taint("gpu"), taint("cordon")]]
KINDS = [None, None, None, "leaving", "unhealthy"]


@pytest.mark.nightly
def test_a_patched_fleet_is_the_one_that_would_be_created() -> None:
    rng = random.Random(7)
    held = Fleet(_random_cluster(rng, f"c{number:02}") for number in range(12))
    _seen(held)
    for step in range(1500):
        changed = [
            _random_cluster(rng, f"c{rng.randrange(14):02}")
            for _ in range(rng.choice([1, 1, 3]))
        ]
        gone = (
            {rng.choice(held.names)} - {one.name for one in changed}
            if rng.random() < 0.1
            else set()
        )
        before, was = held, _seen(held) if not step % 50 else None

        held = held.with_clusters(changed, gone=gone)

        assert _seen(held) == _seen(Fleet(held.clusters)), step
        assert was is None or _seen(before) == was


def _random_cluster(rng: random.Random, name: str) -> Cluster:
    properties = {"cpu": rng.choice(QUANTITIES), "memory": rng.choice(["1", "2"])}
    return cluster(
        name,
        labels={
            key: value
            for key, values in LABELS.items()
            if (value := rng.choice(values))
        },
        properties={key: value for key, value in properties.items() if value},
        taints=rng.choice(TAINTS),
        not_eligible=rng.choice(KINDS),
    )


def _seen(fleet: Fleet) -> list[Any]:
    """Return all that a scheduler reads of a fleet; every column exists after it."""
    labels = [
        (label.values, label.codes.tolist()) for label in map(fleet.label, LABELS)
    ]
    columns = [fleet.property("cpu"), fleet.property("memory")]
    properties = [
        (
            column.texts,
            column.distinct,
            column.ranks.tolist(),
            column.is_malformed.tolist(),
        )
        for column in columns
    ]
    approximates = [str(column.approximates.tolist()) for column in columns]
    claims = [
        (column.values, column.codes.tolist())
        for column in map(fleet.claim, ("cpu", "memory"))
    ]
    return [
        *(fleet.names, fleet.clusters, fleet.positions, fleet.is_eligible.tolist()),
        *(labels, properties, approximates, claims),
        [fleet.taint_sets[code] for code in fleet.taint_codes],
        fleet.digest(("region", "tier"), ("cpu",)),
        fleet.digest(("region",), (), "shop"),
    ]


@pytest.fixture
def any_share(settings: Settings) -> None:
    settings.FLEET_PATCH_PERCENT = 100


@pytest.mark.servers_only
@pytest.mark.django_db
@pytest.mark.servers
@pytest.mark.usefixtures("any_share")
def test_advancing_reads_the_changed_rows_only_and_gives_the_current_fleet() -> None:
    rng = random.Random(11)
    all_joined(*(f"c{number:02}" for number in range(20)))
    held = current_fleet()
    for step in range(60):
        _change(rng)
        after = held.advance()
        assert _seen(after.fleet) == _seen(NO_FLEET.advance().fleet), step
        assert after.fleet is held.fleet or after.sequence > held.sequence
        if step % 3:  # otherwise two changes at once
            held = after

    joined("c05", region="far")
    with CaptureQueriesContext(connection) as captured:
        held = current_fleet()
        change_labels(["c05"], put={"region": "near"}, remove=(), by=None, now=NOW)
        count = len(captured)
        fleet = held.advance().fleet
        assert fleet.label("region").value_at(fleet.positions["c05"]) == "near"
    assert len(captured) - count == 3  # counters, rows, tombstones
    assert 'changed_in" >' in captured[-2]["sql"]


def _change(rng: random.Random) -> None:
    names = list(MemberCluster.objects.order_by("name").values_list("name", flat=True))
    name, other = rng.choice(names), f"c{rng.randrange(25):02}"
    kind = rng.choice(
        ["labels", "labels", "cordon", "uncordon", "report", "leave", "forget", "join"]
    )
    if kind == "labels":
        change_labels(
            [name], put={"region": rng.choice("abc")}, remove=(), by=None, now=NOW
        )
    elif kind == "cordon":
        cordon([name], by=None, now=NOW)
    elif kind == "uncordon":
        uncordon([name], by=None, now=NOW)
    elif kind == "report":
        status = {"properties": {"cpu": {"value": str(rng.randrange(4))}}}
        put_cluster(
            ClusterSpec({**member_document(other), "status": status}), by=None, now=NOW
        )
    elif kind == "leave":
        leave([name], by=None, now=NOW)
    elif kind == "forget" and len(names) > 5:
        forget(
            list(MemberCluster.objects.filter(name=name)), verb="left", by=None, now=NOW
        )
        if rng.random() < 0.5:
            upsert_clusters(
                [ClusterSpec(member_document(name, {"region": "again"}))],
                by=None,
                now=NOW,
            )
    else:
        upsert_clusters(
            [ClusterSpec(member_document(other, {"tier": "gold"}))], by=None, now=NOW
        )


@pytest.mark.django_db
def test_too_many_changes_or_a_deleted_tombstone_load_the_whole_fleet(
    settings: Settings,
) -> None:
    all_joined(*(f"c{number:02}" for number in range(20)))
    held = current_fleet()

    change_labels(["c00", "c01"], put={"region": "a"}, remove=(), by=None, now=NOW)
    assert _loads(held)
    settings.FLEET_PATCH_PERCENT = 20
    assert not _loads(held)

    forget(
        list(MemberCluster.objects.filter(name="c02")), verb="left", by=None, now=NOW
    )
    assert not _loads(held)
    ClusterTombstone.objects.update(deleted_at=timezone.now() - timedelta(hours=2))
    forget(
        list(MemberCluster.objects.filter(name="c03")), verb="left", by=None, now=NOW
    )
    assert list(ClusterTombstone.objects.values_list("name", flat=True)) == ["c03"]
    assert _loads(held)
    assert held.advance().fleet.names == NO_FLEET.advance().fleet.names


def _loads(held: FleetSnapshot) -> bool:
    with CaptureQueriesContext(connection) as captured:
        held.advance()
    return any(
        "member" in document["sql"] and "changed_in" not in document["sql"]
        for document in captured
    )


@pytest.mark.servers
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("any_share")
def test_two_writers_at_once_lose_no_change() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")
    all_joined("a", "b", "c")
    held, times = current_fleet(), 15

    @in_hub(LOCAL_HUB)
    def write(name: str) -> None:
        try:
            for number in range(times):
                change_labels(
                    [name], put={"turn": f"{number}"}, remove=(), by=None, now=NOW
                )
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as people:
        writers = [people.submit(write, name) for name in "ab"]
        while not all(writer.done() for writer in writers):
            held = held.advance()
        for writer in writers:
            writer.result()
    held = held.advance()

    assert [one.labels.get("turn") for one in held.fleet] == [
        f"{times - 1}",
        f"{times - 1}",
        None,
    ]
    assert held.sequence == FleetState.objects.get().sequence
    forget_cached_fleet()
