"""A run may name the resource snapshot that does not exist yet, and waits for it with a reason."""

import pytest

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.secrets import HubObject
from fleetui.apimachinery.yaml import Document
from placements.models import Placement, StagedRun
from placements.services.apply import apply_documents
from placements.services.resources.snapshots import take_resource_snapshot
from placements.services.rollouts.queries import progress_document, run_manifest
from placements.services.rollouts.staged_runs import save_run
from tests.rows import namespace, placement_document
from tests.services.rollouts.staged import (
    StagedWorld,
    run_document,
    stage,
    staged_spec,
    strategy_document,
)

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
WAITS = "Waits until the resource snapshot 1 exists."


def world_of_one_file() -> StagedWorld:
    """Apply a run, a placement and a strategy together, the run first."""
    world = StagedWorld({"prod": ["c000"]}, stage("prod"))
    documents = [
        run_document("one", index="0"),
        placement_document("web", staged_spec()),
        strategy_document(stage("prod")),
        namespace("web"),
    ]
    apply_documents(
        [Document(document, at) for at, document in enumerate(documents)],
        by=None,
        now=world.now,
    )
    return world


@pytest.mark.servers_only
def test_one_file_with_placement_strategy_and_run_is_rolled_out() -> None:
    world = world_of_one_file()
    run = StagedRun.objects.get()
    assert progress_document(run)["sentences"] == [
        "The latest change of the placement is not scheduled yet."
    ]

    world.run(until=lambda: StagedRun.objects.get().ended_at is not None)

    run.refresh_from_db()
    assert (run.status, run.resource_number) == ("succeeded", 0)


def test_a_run_waits_with_a_reason_until_its_snapshot_exists() -> None:
    world = world_of_one_file()
    world.run(until=lambda: StagedRun.objects.get().ended_at is not None)
    world.begin("two", index="1")
    run = StagedRun.objects.get(name="two")
    assert progress_document(run)["sentences"] == [WAITS]
    assert run_manifest(run)["status"]["conditions"][0]["message"] == WAITS

    made = (HubObject.of(namespace("web", team="a")),)
    take_resource_snapshot(Placement.objects.get(), made, by="ann", now=world.now)
    world.run(
        until=lambda: not StagedRun.objects.filter(ended_at=None).exists(), seconds=60
    )

    numbers = StagedRun.objects.order_by("pk").values_list(
        "name", "status", "resource_number"
    )
    assert list(numbers) == [("one", "succeeded", 0), ("two", "succeeded", 1)]


def test_a_snapshot_beyond_the_next_is_refused() -> None:
    world = world_of_one_file()
    placement = Placement.objects.get()

    for index in ("1", "7"):
        with pytest.raises(
            InvalidManifest, match=f"{placement.name} has no resource snapshot {index}"
        ):
            save_run(run_document("two", index=index), by=None, now=world.now)
