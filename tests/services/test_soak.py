"""Thousands of changes of every kind, accelerated: with pruning no table and no file grows for ever.

The long form: `FLEETUI_SOAK=100000 pytest -s tests/services/test_soak.py -m nightly` (changes), which prints
the sizes over time.
"""

import os
import sys
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import connection

from clusters import driver_factory
from clusters.models import MemberCluster
from clusters.operations.edit import change_labels, change_taints, forget
from clusters.operations.heartbeat import observe
from clusters.operations.join import ClusterSpec, upsert_clusters
from fleetui.apimachinery.kinds import CLUSTER_OVERRIDE_KIND
from placements.models import Binding
from placements.services import bulk_changes
from placements.services.disruption.drains import advance_drains, cancel_drain, drain
from placements.services.disruption.evictions import evict
from placements.services.loss import report as resilience
from placements.services.notifications.evaluation import evaluate
from placements.services.overrides.operations import delete_override, save_override
from placements.services.placements import delete_placement, save_placement
from placements.services.pruning import prune
from placements.services.rollouts import removals
from placements.services.rollouts.staged_runs import save_run
from tests.rows import config_map, member_document, pick_n_spec, placement_document
from tests.services.rollouts.overrides import annotate, for_clusters, rule
from tests.services.rollouts.staged import StagedWorld, run_document, stage, staged_spec
from tests.services.rollouts.world import QUICK, World

CHANGES = 100
"""In an hour."""
FEW = {"revisionHistoryLimit": 1}
KEPT = (
    "EVENTS",
    "DECISIONS",
    "ROLLOUTS",
    "EVICTIONS",
    "ANALYSES",
    "DRAFTS",
    "NOTIFICATIONS",
)


def change(world: World, hour: int) -> None:
    """Make the changes of an hour, each about something else, under names that are new or come back."""
    system: dict[str, Any] = {"by": None, "now": world.now}
    world.apply(
        *(
            config_map(f"settings-{number}", data={"hour": str(hour)})
            for number in range(80)
        )
    )
    world.change()
    save_placement(placement_document("web", pick_n_spec(1 + hour % 2) | FEW), **system)
    save_placement(placement_document(f"new-{hour}", pick_n_spec(1)), **system)
    save_run(run_document(f"run-{hour}", placementName="staged"), **system)
    change_labels(["c000"], put={"tier": str(hour % 3)}, **system)
    change_taints(
        ["c001"],
        add=[{"key": f"key-{hour}", "effect": "NoSchedule"}] if hour % 2 else [],
        replaces=True,
        **system,
    )
    patch = rule(annotate(hour=str(hour)))
    save_override(for_clusters(f"of-{hour}", patch, placement="web"), **system)
    joining = [ClusterSpec(member_document(f"new-{hour}"), "simulated", QUICK)]
    upsert_clusters(joining, **system)
    bulk_changes.change_clusters(
        bulk_changes.BULK_ACTIONS["labels"],
        {"put": {"bulk": str(hour)}, "remove": []},
        ["c000"],
        **system,
    )
    resilience.start_report(**system)
    world.work()
    evict(
        "web",
        Binding.objects.filter(placement__name="web").latest("pk").cluster_name,
        **system,
    )
    drain(["c000"], **system)
    advance_drains(now=world.now)
    world.work()
    cancel_drain(["c000"], **system)
    delete_placement(f"new-{hour}", **system)
    delete_override(CLUSTER_OVERRIDE_KIND, "", f"of-{hour}", **system)
    forget(MemberCluster.objects.filter(name=f"new-{hour}"), verb="left", **system)


def soak(hours: int) -> list[Counter[str]]:
    """Advance the clock by hours; return the rows of each table and the bytes of the database after each."""
    world = StagedWorld({"first": ["c000", "c001"]}, stage("first"))
    save_placement(
        placement_document("staged", staged_spec() | FEW), by=None, now=world.now
    )
    world.place("web", pick_n_spec(1) | FEW)
    sizes = []
    for hour in range(hours):
        change(world, hour)
        for seconds in (60, 60, 3480):
            world.now += timedelta(seconds=seconds)
            observe(now=world.now)
            world.work()
        evaluate(now=world.now)
        removals.remove_orphans(now=world.now, threads=0, clock=lambda: world.now)
        prune(now=world.now)
        sizes.append(sizes_now())
        if not (hour + 1) % max(1, hours // 20):
            rows, size = sizes[-1].total() - sizes[-1]["bytes"], sizes[-1]["bytes"]
            sys.stdout.write(
                f"{(hour + 1) * CHANGES:,} changes: {rows:,} rows, {size / 1024:,.0f} KiB\n"
            )
    return sizes


def sizes_now() -> Counter[str]:
    """Count the rows of the tables of this project, and the bytes of the pages in use."""
    configs = [
        apps.get_app_config(app) for app in ("fleetui", "clusters", "placements")
    ]
    models = [model for config in configs for model in config.get_models()]
    sizes = Counter(
        {model.__name__: model._default_manager.count() for model in models}
    )
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            pages, free, size = (
                cursor.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("page_count", "freelist_count", "page_size")
            )
        sizes["bytes"] = (pages - free) * size
    return sizes


@pytest.mark.nightly
@pytest.mark.parametrize("changes", [int(os.environ.get("FLEETUI_SOAK", "10000"))])
def test_a_soak_ends_with_a_bounded_database(
    changes: int,
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    db: None,  # noqa: ARG001
) -> None:
    hours = changes // CHANGES
    for name in KEPT:
        setattr(settings, f"KEEP_{name}", timedelta(hours=min(5, hours // 6)))
    settings.KEEP_TOMBSTONES = timedelta()  # by the clock of this machine
    monkeypatch.setattr(driver_factory, "MOST_FENCES", 2)
    monkeypatch.setattr(resilience, "KEPT", hours // 4)

    sizes = soak(hours)

    early, late = sizes[: hours // 2], sizes[hours // 2 :]
    grown = {
        name: (
            max(counter[name] for counter in early),
            max(counter[name] for counter in late),
        )
        for name in sizes[-1]
        if max(counter[name] for counter in late)
        > 1.05 * max(counter[name] for counter in early) + 2
    }
    assert grown == {}
