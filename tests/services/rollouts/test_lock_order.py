"""The fleet is locked before a placement, and that before what hangs on it: else two may wait for each other.

Each test holds the row that is to come first, and sees that what waits for it holds nothing else yet.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event
from typing import Any

import pytest
from django.db import connection, connections, transaction

from clusters.models import FleetState
from clusters.operations.change_log import lock_fleet, share_fleet
from clusters.operations.edit import change_labels
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from fleetui.bulk import update_each
from fleetui.concurrency import retry_on_conflict
from fleetui.hub_scope import LOCAL_HUB, in_hub
from placements.models import Placement, StagedRun
from placements.services import scheduling
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
from placements.services.scheduling import schedule_due
from placements.services.workqueue import enqueue_rollout, enqueue_scheduling
from tests.rows import (
    deployment,
    member_document,
    person,
    pick_n_spec,
    placement_document,
    saved,
)
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.servers]


@pytest.fixture(autouse=True)
def _needs_row_locks() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")


@contextmanager
def held(lock: Callable[[], object], *acts: Callable[[], object]) -> Iterator[None]:
    """Hold a row during actions that have to wait, each begun when those before it wait.

    They continue to the end afterwards.
    """
    with ThreadPoolExecutor(len(acts)) as others:
        acting: list[Future[None]] = []
        with transaction.atomic():
            lock()
            for act in acts:
                acting.append(others.submit(_run_apart, act))
                _until_others_wait(acting)
            yield
        for future in acting:
            future.result(timeout=60)


@in_hub(LOCAL_HUB)
def _run_apart(act: Callable[[], object]) -> None:
    try:
        act()
    finally:
        connections.close_all()


def _until_others_wait(acting: "list[Future[None]]") -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until and not acting[-1].done():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_stat_clear_snapshot()"
            )  # else a transaction sees what it saw first
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )  # other processes have databases of their own, and wait there
            if cursor.fetchone()[0] == len(acting):
                return
    acting[-1].result(timeout=0)
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
    both = [
        applied
        for document in listed
        for applied in load_documents(dump_yaml(document))
    ]

    with held(lock_fleet, lambda: apply_documents(both, by=None, now=world.now)):
        assert Placement.objects.select_for_update(nowait=True).get().name == "web"


def _one_more_wanted(world: World) -> None:
    world.place("web", pick_n_spec(1))
    Placement.objects.update(number_of_clusters=2)
    placement = Placement.objects.get()
    enqueue_scheduling([placement.pk], trigger="one more cluster is wanted")


def test_a_decision_does_not_wait_for_another_one_on_the_fleet() -> None:
    world = World(2)
    _one_more_wanted(world)

    with ThreadPoolExecutor(1) as other, transaction.atomic():
        share_fleet()
        decide = partial(schedule_due, now=world.now)
        other.submit(_run_apart, decide).result(timeout=60)

    assert Placement.objects.get().placed_count == 2


def test_a_change_of_the_fleet_waits_for_a_decision_and_later_decisions_for_it() -> (
    None
):
    world = World(2)
    _one_more_wanted(world)
    change = partial(
        change_labels, ["c000"], put={"tier": "gold"}, by=None, now=world.now
    )

    with held(share_fleet, change, partial(schedule_due, now=world.now)):
        version = FleetState.objects.get().version
        assert Placement.objects.get().placed_count == 1

    assert FleetState.objects.get().version == version + 1
    assert Placement.objects.get().placed_count == 2


def test_a_change_of_the_fleet_does_not_wait_for_the_rows_of_a_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(2)
    _one_more_wanted(world)
    is_writing, is_changed = Event(), Event()
    record_all = scheduling.record_all

    def record_after_a_change(events: Any, **options: Any) -> None:
        record_all(events, **options)
        is_writing.set()
        is_changed.wait(timeout=20)

    monkeypatch.setattr(scheduling, "record_all", record_after_a_change)
    change = partial(
        change_labels, ["c000"], put={"tier": "gold"}, by=None, now=world.now
    )
    with ThreadPoolExecutor(2) as others:
        deciding = others.submit(_run_apart, partial(schedule_due, now=world.now))
        assert is_writing.wait(timeout=20)
        others.submit(_run_apart, change).result(timeout=15)
        is_changed.set()
        deciding.result(timeout=60)

    assert Placement.objects.get().placed_count == 2


def _in_the_order_of_the_table(act: Callable[[], object]) -> None:
    """Act on a connection that uses no index, as the planner may decide for any table."""
    with connection.cursor() as cursor:
        cursor.execute("SET enable_indexscan = off; SET enable_bitmapscan = off")
    act()


def _update_each(keys: list[int]) -> None:
    update_each(Placement.objects.all(), {pk: {"health_level": "ok"} for pk in keys})


@pytest.mark.parametrize(
    "act",
    [
        partial(enqueue_scheduling, trigger="a label changed"),
        enqueue_rollout,
        lambda _keys: Placement.objects.update(has_assertions=True),
        _update_each,
    ],
    ids=["scheduling", "rollout", "all", "each"],
)
def test_several_placements_are_locked_in_the_order_of_their_keys(
    act: Callable[[list[int]], object],
) -> None:
    World(2)
    keys = [saved(name, pick_n_spec(1)).pk for name in ("a", "b", "c")]
    first, *others = keys
    # PostgreSQL writes a new version of the row behind the others, and would update these before it.
    Placement.objects.filter(pk=first).update(has_assertions=False)

    with held(
        lambda: Placement.objects.select_for_update().get(pk=first),
        lambda: _in_the_order_of_the_table(lambda: act(keys[::-1])),
    ):
        free = Placement.objects.filter(pk__in=others).select_for_update(nowait=True)
        assert set(free.values_list("pk", flat=True)) == set(others)


def test_an_edit_that_the_database_ends_as_one_of_a_deadlock_is_made_again() -> None:
    World(2)
    first = saved("a", pick_n_spec(1))
    second = saved("b", pick_n_spec(1))
    is_between = Event()
    attempts = []

    @retry_on_conflict
    def edit() -> None:
        attempts.append(1)
        Placement.objects.select_for_update().get(pk=second.pk)
        is_between.set()
        Placement.objects.select_for_update().get(pk=first.pk)

    with ThreadPoolExecutor(1) as others:
        with transaction.atomic():
            with connection.cursor() as cursor:
                # So that the other one looks for the deadlock, and is ended.
                cursor.execute("SET LOCAL deadlock_timeout = '1min'")
            Placement.objects.select_for_update().get(pk=first.pk)
            editing = others.submit(_run_apart, edit)
            assert is_between.wait(timeout=20)
            Placement.objects.select_for_update().get(pk=second.pk)
        editing.result(timeout=60)

    assert len(attempts) == 2
