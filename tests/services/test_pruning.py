"""Rows are kept as long as configured, and as long as something refers to them."""

import os
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.utils import ConnectionHandler

from fleetui.apimachinery.kinds import CLUSTER_OVERRIDE_KIND
from fleetui.models import Event
from placements.models import (
    Binding,
    ClusterUpdate,
    Decision,
    DecisionRecord,
    Drain,
    Eviction,
    FleetRecord,
    OverrideSnapshot,
    Placement,
    Rollout,
)
from placements.services import pruning
from placements.services.disruption.drains import Pace, drain
from placements.services.disruption.evictions import apply_eviction, evict
from placements.services.overrides.operations import delete_override, save_override
from placements.services.placements import delete_placement, save_placement
from placements.services.pruning import prune
from tests.commands import call_command
from tests.rows import NOW, pick_n_spec, placement_document
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.world import World, settled_world

KEPT = timedelta(days=90)
EVICTION = {
    "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
    "kind": "ClusterResourcePlacementEviction",
    "metadata": {"name": "kept"},
    "spec": {"placementName": "web", "clusterName": "c002"},
}


@pytest.fixture(autouse=True)
def _queue_folder(tmp_path: Path, settings: Any) -> None:
    """Provide a queue folder, so that no messages of a console in this folder are pruned."""
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {"folder": tmp_path / "queue"}


@pytest.fixture
def world(db: None) -> World:  # noqa: ARG001
    """Return a world of three clusters, with a placement on two of them."""
    return settled_world(3, pick_n_spec(2))


def edited(world: World, times: int) -> None:
    """Change the number of clusters, and let each change end."""
    for number in range(times):
        save_placement(
            placement_document("web", pick_n_spec(1 + number % 2)),
            by=None,
            now=world.now,
        )
        world.work()
        world.run(until=world.is_settled)


@pytest.mark.nightly
@pytest.mark.django_db
def test_nothing_young_is_deleted(world: World) -> None:
    edited(world, 3)

    counts = prune(now=world.now + KEPT - timedelta(hours=1))

    assert {name: count for name, count in counts.items() if count} == {}


@pytest.mark.nightly
def test_what_is_old_goes_and_the_last_of_each_stays(world: World) -> None:
    edited(world, 6)
    bound = set(Binding.objects.values_list("decision", flat=True))

    counts = prune(now=world.now + KEPT + timedelta(hours=1))

    assert not Event.objects.exists()
    assert counts["rollouts"] == 6
    assert Rollout.objects.count() == 1
    assert ClusterUpdate.objects.exists()
    latest = Decision.objects.get(number=Placement.objects.get().decisions_made)
    assert set(Decision.objects.values_list("pk", flat=True)) == bound | {latest.pk}
    assert (
        DecisionRecord.objects.count()
        == Decision.objects.values("record").distinct().count()
    )
    assert (
        FleetRecord.objects.count()
        == DecisionRecord.objects.values("fleet").distinct().count()
    )


@pytest.mark.nightly
def test_what_a_deleted_placement_leaves_goes_completely(world: World) -> None:
    delete_placement("web", by=None, now=world.now)
    world.run(until=lambda: not Placement.objects.exists())

    prune(now=world.now + KEPT + timedelta(hours=1))

    left = [
        model.objects.count()
        for model in (Decision, DecisionRecord, FleetRecord, Rollout, Event)
    ]
    assert left == [0, 0, 0, 0, 0]


@pytest.mark.nightly
def test_a_placement_is_decided_after_the_record_of_its_fleet_was_pruned(
    world: World,
) -> None:
    delete_placement("web", by=None, now=world.now)
    world.run(until=lambda: not Placement.objects.exists())
    prune(now=world.now + KEPT + timedelta(hours=1))

    world.place("web", pick_n_spec(2))

    assert Decision.objects.get().record.fleet_id in FleetRecord.objects.values_list(
        "pk", flat=True
    )


@pytest.mark.nightly
def test_a_run_that_does_not_end_keeps_its_last_sample_and_updates(
    world: World,
) -> None:
    run = Rollout.objects.get()
    Rollout.objects.update(state=Rollout.State.RUNNING, ended_at=None)
    ClusterUpdate.objects.create(
        rollout=run,
        cluster_name=world.available()[0],
        what="update",
        started_at=NOW,
        ended_at=NOW,
        outcome="failed",
    )
    samples, updates = run.samples.count(), run.updates.count()
    assert (samples > 1, updates) == (True, 3)
    later = world.now + KEPT + timedelta(hours=1)
    counts = {name: rows.count() for name, rows in pruning.prunable(now=later)}
    assert counts["rollout samples"] == samples - 1

    prune(now=later)

    assert (run.samples.count(), run.updates.count()) == (1, 2)


@pytest.mark.nightly
def test_drains_and_evictions(world: World) -> None:
    evict("web", Binding.objects.first().cluster_name, by=None, now=world.now)  # type: ignore[union-attr]
    apply_eviction(EVICTION, by=None, now=world.now)
    drain(["c000"], by=None, now=world.now, pace=Pace())

    prune(now=world.now + KEPT + timedelta(hours=1))

    assert list(Eviction.objects.values_list("name", flat=True)) == ["kept"]
    assert Drain.objects.count() == 1


@pytest.mark.nightly
def test_snapshots_of_a_deleted_override_go_when_no_cluster_runs_them(
    world: World,
) -> None:
    save_override(
        for_clusters("tint", rule(annotate(team="a"))), by=None, now=world.now
    )
    world.work()
    world.run(until=world.is_settled)
    delete_override(CLUSTER_OVERRIDE_KIND, "", "tint", by=None, now=world.now)
    assert prune(now=world.now)["override snapshots"] == 0

    world.work()
    world.run(until=world.is_settled)

    assert prune(now=world.now)["override snapshots"] == 1
    assert not OverrideSnapshot.objects.exists()


@pytest.mark.nightly
def test_pruning_stops_after_its_time_and_stays_due(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pruning, "_BATCH", 1)
    later = world.now + KEPT + timedelta(hours=1)
    before = Event.objects.count()

    assert not pruning.is_pruning_due(now=world.now)
    assert pruning.is_pruning_due(now=later)
    prune(now=later, seconds=0)
    assert Event.objects.count() == before
    assert pruning.is_pruning_due(now=later)
    prune(now=later)
    assert not pruning.is_pruning_due(now=later)
    assert pruning.is_pruning_due(now=later + timedelta(hours=1))


def test_the_command_counts_and_then_deletes(world: World) -> None:
    Event.objects.update(at=NOW - timedelta(days=3650))
    events = Event.objects.count()

    def output_of(*arguments: str) -> str:
        out = StringIO()
        call_command("prune", *arguments, stdout=out)
        return out.getvalue()

    assert f"{events:>8} events" in output_of("--dry-run")
    assert Event.objects.count() == events
    assert f"{events:>8} events" in output_of()
    assert not Event.objects.exists()
    del world


@pytest.mark.django_db
def test_old_messages_leave_the_queue_folder(tmp_path: Path, settings: Any) -> None:
    settings.CELERY_BROKER_URL = "atomicfs://"
    settings.CELERY_BROKER_TRANSPORT_OPTIONS = {"folder": tmp_path}
    (tmp_path / "claims").mkdir()
    for name in ("old.celery.msg", "claims/old.of-no-worker.msg", "young.celery.msg"):
        (tmp_path / name).write_text("{}")
        written = NOW - timedelta(minutes=59 if name.startswith("young") else 61)
        os.utime(tmp_path / name, (written.timestamp(), written.timestamp()))

    counts = prune(now=NOW)

    assert counts["messages"] == 2
    assert [path.name for path in tmp_path.rglob("*.msg")] == ["young.celery.msg"]


@pytest.mark.django_db(transaction=True)
def test_the_write_ahead_log_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("only SQLite has such a log")
    values = {**connection.settings_dict, "NAME": tmp_path / "console.sqlite3"}
    file = ConnectionHandler(
        {"default": {**values, "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL;"}}}
    )
    monkeypatch.setattr(pruning, "connection", file["default"])
    with file["default"].cursor() as cursor:
        cursor.execute("CREATE TABLE soak (number)")
        assert pruning.wal_bytes() > 0

        pruning.truncate_wal()

        assert pruning.wal_bytes() == 0
        assert cursor.execute("PRAGMA busy_timeout").fetchone()[0] > 200
    file["default"].close()
