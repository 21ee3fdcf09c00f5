"""The fleet is locked before a placement, and that before what hangs on it: else two may wait for each other.

Each test holds the row that is to come first, and sees that what waits for it holds nothing else yet.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from django.db import connection, connections, transaction

from clusters.operations.change_log import lock_fleet
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.hub_scope import LOCAL_HUB, in_hub
from placements.models import Placement, StagedRun
from placements.services.apply import apply_documents
from placements.services.editor.operations import (
    ReviewedDraft,
    confirm_draft,
    start_draft,
)
from placements.services.editor.preview import preview_draft
from placements.services.editor.validation import PlacementDraft
from placements.services.rollouts import operations
from placements.services.rollouts.controller import sync_rollout
from tests.rows import (
    deployment,
    member_document,
    person,
    pick_n_spec,
    placement_document,
)
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]


@pytest.fixture(autouse=True)
def _needs_row_locks() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")


@contextmanager
def held(lock: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """Hold a row during an action that has to wait for it; the action continues to the end afterwards."""

    @in_hub(LOCAL_HUB)
    def run() -> None:
        try:
            act()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            lock()
            acting = other.submit(run)
            _until_another_waits(acting)
            yield
        acting.result(timeout=60)


def _until_another_waits(acting: "Future[None]") -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until and not acting.done():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_stat_clear_snapshot()"
            )  # else a transaction sees what it saw first
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            )
            if cursor.fetchone()[0]:
                return
    acting.result(timeout=0)
    raise AssertionError("nothing waits for the locked row")


def lock_placement() -> Placement:
    """Hold the only placement."""
    return Placement.objects.select_for_update().get()


def waiting_run() -> StagedWorld:
    """Return a staged run that waits for an approval."""
    world = StagedWorld({"prod": ["c000"]}, stage("prod", before=True))
    world.place("web", staged_spec())
    world.begin("one")
    return world


@pytest.mark.parametrize("action", ["approve", "stop", "abandon"])
def test_actions_on_a_staged_run_wait_for_its_placement_first(action: str) -> None:
    world = waiting_run()
    action_on = {
        "approve": lambda: operations.approve(
            "one", "prod", by=world.approver, now=world.now
        ),
        "stop": lambda: operations.set_state("one", "Stop", by=None, now=world.now),
        "abandon": lambda: operations.abandon("one", by=None, now=world.now),
    }

    with held(lock_placement, action_on[action]):
        assert StagedRun.objects.select_for_update(nowait=True).get().name == "one"


def test_a_look_at_staged_runs_waits_for_the_placement_first() -> None:
    world = waiting_run()
    operations.approve("one", "prod", by=world.approver, now=world.now)
    placement = Placement.objects.get()

    with held(lock_placement, lambda: sync_rollout(placement.pk, now=world.now)):
        assert StagedRun.objects.select_for_update(nowait=True).get().name == "one"
        assert (
            placement.bindings.select_for_update(nowait=True).get().cluster_name
            == "c000"
        )


def test_who_confirms_a_draft_waits_for_the_fleet_first() -> None:
    world = World(2)
    world.place("web", pick_n_spec(1))
    ana = person("ana", "operator")
    text = dump_yaml(placement_document("web", pick_n_spec(2)))
    draft = start_draft(text, placement=Placement.objects.get(), by=ana, now=world.now)
    preview = preview_draft(
        PlacementDraft.parse(text), saved=draft.placement, now=world.now
    )
    reviewed = ReviewedDraft(PlacementDraft(text).digest, preview.decision_id)

    with held(
        lock_fleet,
        lambda: confirm_draft(draft.pk, reviewed=reviewed, by=ana, now=world.now),
    ):
        assert (
            Placement.objects.select_for_update(nowait=True).get().number_of_clusters
            == 1
        )

    assert Placement.objects.get().number_of_clusters == 2


def test_who_applies_resources_with_clusters_waits_for_the_fleet_first() -> None:
    world = World(1)
    world.place("web", pick_n_spec(1))
    listed = [deployment("web", "web:new"), member_document("c001")]
    both = [one for document in listed for one in load_documents(dump_yaml(document))]

    with held(lock_fleet, lambda: apply_documents(both, by=None, now=world.now)):
        assert Placement.objects.select_for_update(nowait=True).get().name == "web"
