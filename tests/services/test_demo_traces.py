"""Nothing names the placements and clusters of a demo once it is removed, apart from the audit log."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db.models import CharField, JSONField, TextField

from clusters.models import MemberCluster
from placements.models import (
    Eviction,
    Leftover,
    Placement,
    ResilienceReport,
    Resource,
    Rollout,
    StalenessCheck,
    WaitingRemoval,
)
from placements.services.demo.load import remove_demo
from placements.services.disruption.drains import drain
from tests.rows import person, spec
from tests.services.rollouts.world import World, settled_world

pytestmark = pytest.mark.django_db

LOGS = ("fleetui.Event", "clusters.FleetChange", "clusters.ClusterTombstone")
"""The audit log stays, and what other processes learn of changes from is trimmed with age."""


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value.partition("/")[0]
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from (*texts(key), *texts(one))
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from texts(one)


def models_that_name(*names: str) -> set[str]:
    """Return the models of all applications that have rows with one of these names in any column."""
    found = set()
    for model in apps.get_models():
        columns = model._meta.concrete_fields
        fields = [
            column.name
            for column in columns
            if isinstance(column, (CharField, TextField, JSONField))
        ]
        for values in model._base_manager.values_list(*fields) if fields else ():
            if not set(names).isdisjoint(texts(list(values))):
                found.add(model._meta.label)
    return found


def world_with_histories() -> World:
    world = settled_world(3, spec())
    world.change()
    world.work()
    drain(["c000"], by=None, now=world.now)
    placement = Placement.objects.get()
    ann, now = person("ann", "operator"), world.now
    placement.drafts.create(
        owner=ann, text="web", base={}, created_at=now, updated_at=now
    )
    names: dict[str, Any] = {"placement_name": "web", "cluster_name": "c001"}
    Leftover.objects.create(**names, noted_at=now)
    WaitingRemoval.objects.create(**names, objects_count=1, of_objects=1, noted_at=now)
    Eviction.objects.create(
        **names,
        placement=placement,
        at=now,
        outcome=Eviction.Outcome.EXECUTED,
        why="allowed",
    )
    report = ResilienceReport.objects.create(
        keys=[],
        variants=["down"],
        created_at=now,
        created_by="ann",
        totals={"cluster": {"worst": "c001"}},
    )
    counts = dict.fromkeys(
        ("clusters_count", "placements_count", "lost", "moved", "unfulfilled", "empty"),
        1,
    )
    report.losses.create(
        level="cluster", value="c001", variant="down", cells=b"", **counts
    )
    report.placements.create(placement=placement, decisions_made=1)
    check, _ = StalenessCheck.objects.get_or_create(
        placement=placement,
        defaults={
            "fleet_version": 1,
            "readings": 1,
            "decisions_made": 1,
            "checked_at": now,
        },
    )
    check.stale.create(cluster_name="c001")
    return world


def test_nothing_names_what_was_of_a_demo() -> None:
    world = world_with_histories()
    for model in (MemberCluster, Placement, Resource):
        model.objects.update(is_demo=True)
    before = models_that_name("web", "c000", "c001", "c002")
    assert {"placements.Rollout", "placements.ResilienceLoss"} < before

    remove_demo(by=None, now=world.now)

    assert not Placement.objects.exists()
    assert models_that_name("web", "c000", "c001", "c002") - {*LOGS} == set()


def test_what_is_not_of_a_demo_stays() -> None:
    world = world_with_histories()
    before = models_that_name("web", "c001")

    remove_demo(by=None, now=world.now)

    assert models_that_name("web", "c001") == before
    assert Rollout.objects.exists()
