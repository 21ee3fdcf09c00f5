"""Tasks and hints: a full queue takes no more, and a task ends soon however much is due."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery.schedules import schedule
from kombu import Connection

from fleetui import task_queue
from fleetui.celery import app
from placements import tasks
from placements.models import Placement
from placements.services import scheduling, workqueue
from placements.services.rollouts import controller
from tests.rows import NOW, joined, pick_n_spec, saved

SEND_NOW = task_queue.send_now
"""Before the fixture of all tests replaces it."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Send hints into a folder of this test."""
    with Connection(
        "atomicfs://", transport_options={"folder": tmp_path}
    ) as connection:
        producer = app.amqp.Producer(connection)
        monkeypatch.setattr(
            app, "producer_or_acquire", lambda _=None: nullcontext(producer)
        )
        yield tmp_path


def test_a_queue_takes_twenty_hints_and_no_more(folder: Path) -> None:
    for _ in range(50):
        SEND_NOW("placements.tasks.schedule_due", {})

    assert len(list(folder.glob("*.celery.msg"))) == task_queue.MOST_WAITING


def test_a_full_queue_leaves_room_in_the_others(folder: Path) -> None:
    for task in ["placements.tasks.schedule_due"] * 30 + [
        "placements.tasks.evaluate_resilience"
    ]:
        SEND_NOW(task, {})

    assert len(list(folder.glob("*.analyses.msg"))) == 1


def test_beat_leaves_ticks_out_while_no_worker_reads_them(folder: Path) -> None:
    scheduler = task_queue.BoundedScheduler(app=app, lazy=True)
    entry = scheduler.Entry(
        name="sweep", task="placements.tasks.sweep", schedule=schedule(1.0), app=app
    )
    with app.producer_or_acquire() as producer:
        for _ in range(50):
            scheduler.apply_async(entry, producer=producer, advance=False)

    assert len(list(folder.glob("*.periodic.msg"))) == task_queue.MOST_WAITING


def test_hints_and_ticks_are_valid_for_a_worker_whose_clock_is_ahead(
    folder: Path,
) -> None:
    SEND_NOW("placements.tasks.schedule_due", {})

    ahead = datetime.now(UTC) + timedelta(seconds=60)
    message = json.loads(next(folder.glob("*.celery.msg")).read_text())
    assert datetime.fromisoformat(message["headers"]["expires"]) > ahead
    ticks = [entry["options"]["expires"] for entry in app.conf.beat_schedule.values()]
    assert min(ticks) > 60


@pytest.mark.django_db
@pytest.mark.parametrize(
    "name",
    ["schedule_due", "sync_due_rollouts", "run_cluster_calls", "evaluate_resilience"],
)
def test_a_task_ends_though_more_is_due_and_enqueues_another(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    clock = iter(range(100))
    steps = {
        "schedule_due": "placements.services.scheduling.schedule_due",
        "sync_due_rollouts": "placements.services.rollouts.controller.sync_due_rollouts",
        "run_cluster_calls": "placements.services.rollouts.worker.run_cluster_calls",
        "evaluate_resilience": "placements.services.loss.report.evaluate_due",
    }
    monkeypatch.setattr(steps[name], lambda **_: 1)
    monkeypatch.setattr("placements.services.assertions.check_due", lambda **_: 0)
    monkeypatch.setattr(tasks, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(tasks, "send_now", lambda task, _: sent.append(task))

    getattr(tasks, name)()

    assert sent == [f"placements.tasks.{name}"]


@pytest.mark.django_db
def test_the_sweep_hints_at_what_is_due_and_at_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(
        tasks, "send_now", lambda task, _: sent.append(task.rpartition(".")[2])
    )
    tasks.sweep()
    at_rest = list(sent)
    joined("a")
    saved("web", pick_n_spec(1))
    tasks.sweep()

    assert at_rest == []
    assert "schedule_due" in sent
    assert "run_cluster_calls" not in sent


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("module", "step", "due"),
    [
        (scheduling, "schedule_placement", scheduling.schedule_due),
        (controller, "sync_rollout", controller.sync_due_rollouts),
    ],
)
def test_one_that_fails_delays_no_other(
    monkeypatch: pytest.MonkeyPatch, module: object, step: str, due: object
) -> None:
    for name in ("bad", "good", "fine"):
        saved(name, pick_n_spec(1))
    Placement.objects.update(rollout_generation=5)
    bad = Placement.objects.get(name="bad").pk
    done: list[int] = []

    def run(placement_id: int, *, now: datetime) -> None:
        del now
        done.append(placement_id)
        if placement_id == bad:
            raise ZeroDivisionError

    monkeypatch.setattr(module, step, run)
    monkeypatch.setattr(scheduling, "_schedule_together", lambda claimed, **_: claimed)

    with pytest.raises(ZeroDivisionError):
        due(now=NOW)  # type: ignore[operator]

    assert sorted(done) == sorted(Placement.objects.values_list("pk", flat=True))


@pytest.mark.django_db
@pytest.mark.parametrize(("placements", "hints"), [(0, 0), (1, 1), (150, 2), (900, 4)])
def test_more_workers_get_a_hint_where_more_placements_are_due(
    placements: int, hints: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(workqueue, "enqueue", sent.append)

    workqueue.enqueue_scheduling(range(placements), trigger="the fleet changed")

    assert sent == [workqueue.SCHEDULE_DUE] * hints
