"""The version of a hub moves with whatever requests, tasks and commands write, and not with books at rest."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from celery import current_app
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand
from django.db import OperationalError, connection, transaction

from clusters.drivers.base import Observation
from clusters.models import MemberCluster
from clusters.operations.heartbeat import report
from clusters.tasks import observe
from fleetui import changes
from fleetui.audit import AuditEvent, record
from fleetui.celery import HubTask
from fleetui.changes import noticed_changes, shown_tables, unnoticed
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.management.hub_command import HubCommand
from fleetui.transactions import try_out
from placements import tasks
from placements.models import Draft, Placement, ProblemBook
from placements.services.hub_version import stored_version
from tests.conftest import OUR_APPS
from tests.live_hubs import live_hub
from tests.rows import NOW, joined, spec
from tests.services.rollouts.world import settled_world

pytestmark = pytest.mark.django_db

WRITE_NOTHING_OF_A_HUB = {
    "backup",
    "restore",
    "completion",
    "end_sessions",
    "prepare",
    "up",
    "simulate",
}
"""They have a database of their own, stop the console first, or write sessions only."""


@pytest.fixture(autouse=True)
def _has_book() -> None:
    stored_version(LOCAL_HUB)


def _write(*_arguments: Any, **_options: Any) -> None:
    record(AuditEvent("edited", "placement", "web"), by=None, now=NOW)


def _moves() -> Iterator[bool]:
    """Yield whether the version has moved since the last time."""
    before = stored_version(LOCAL_HUB)
    while True:
        now = stored_version(LOCAL_HUB)
        yield now != before
        before = now


def test_every_task_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    current_app.loader.import_default_modules()
    ours = {
        name: task
        for name, task in current_app.tasks.items()
        if name.partition(".")[0] in OUR_APPS
    }
    moves = _moves()
    assert not next(moves)
    still = []
    for name, task in ours.items():
        assert isinstance(task, HubTask), name
        monkeypatch.setattr(task, "run", _write)
        task(hub=LOCAL_HUB)
        if not next(moves):
            still.append(name)

    assert len(ours) >= 20
    assert still == []


def test_every_command_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {
        name: app
        for name, app in get_commands().items()
        if str(app).partition(".")[0] in OUR_APPS
    }
    commands = {name: load_command_class(str(app), name) for name, app in ours.items()}
    others = {
        name
        for name, command in commands.items()
        if not isinstance(command, HubCommand)
    }
    assert others == WRITE_NOTHING_OF_A_HUB
    monkeypatch.setattr(BaseCommand, "execute", _write)
    moves = _moves()
    assert not next(moves)
    still = []
    for name in commands.keys() - others:
        command = commands[name]
        command.execute(hub="local")
        if not next(moves):
            still.append(name)

    assert still == []


def test_it_moves_for_the_hub_that_is_written_to() -> None:
    other = live_hub("prod").pk
    stored_version(other)
    moves = _moves()
    next(moves)

    with noticed_changes(), in_hub(other):
        _write()

    assert not next(moves)
    assert stored_version(other) == 1


def test_what_changes_no_row_or_is_rolled_back_or_shown_nowhere_does_not_move_it() -> (
    None
):
    moves = _moves()
    next(moves)

    with noticed_changes():
        Placement.objects.filter(full_name="nowhere").update(is_demo=True)
        try_out(_write)
        with unnoticed():
            _write()
        ProblemBook.objects.update(compared_at=NOW)

    assert not next(moves)
    assert Draft._meta.db_table not in shown_tables()
    assert Placement._meta.db_table in shown_tables()


@pytest.mark.django_db(transaction=True)
def test_a_long_pass_moves_it_meanwhile_and_never_inside_of_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changes, "MARK_SECONDS", 0.0)
    moves = _moves()
    next(moves)

    with noticed_changes():
        with transaction.atomic():
            _write()
            _write()
            assert not next(moves)
        Placement.objects.exists()
        assert next(moves)
    assert not next(moves)


@pytest.mark.django_db(transaction=True)
def test_a_mark_that_the_database_refuses_is_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SQLite refuses at once the write of a connection that reads rows older than another's commit."""
    monkeypatch.setattr(changes, "MARK_SECONDS", 0.0)
    moves = _moves()
    next(moves)
    busy = ["database is locked"]

    def refuse(execute: Any, sql: str, *rest: Any) -> Any:
        if busy and sql.startswith(f'UPDATE "{ProblemBook._meta.db_table}"'):
            raise OperationalError(busy.pop())
        return execute(sql, *rest)

    with connection.execute_wrapper(refuse), noticed_changes():
        _write()
        Placement.objects.exists()
        assert not busy

    assert next(moves)


def test_reports_that_say_the_same_do_not_move_it() -> None:
    for number in range(3):
        joined(f"c{number}")
    with noticed_changes():
        for number in range(3):
            report(f"c{number}", Observation(is_healthy=True), by=None, now=NOW)
    moves = _moves()
    next(moves)

    for second in range(2):
        now = NOW + timedelta(seconds=second)
        usage = {"allocatable": {"cpu": f"{second + 1}"}}
        for number in range(3):
            with noticed_changes():
                report(
                    f"c{number}",
                    Observation(is_healthy=True, usage=usage),
                    by=None,
                    now=now,
                )
    assert not next(moves)
    with noticed_changes():
        report(
            "c0", Observation(is_healthy=False), by=None, now=NOW + timedelta(seconds=3)
        )
    assert next(moves)


def test_a_console_at_rest_does_not_move_it() -> None:
    settled_world(3, spec())
    periodic = (
        observe,
        tasks.sweep,
        tasks.schedule_due,
        tasks.sync_due_rollouts,
        tasks.run_cluster_calls,
    )
    for task in periodic:
        task()
    MemberCluster.objects.update(observe_at=NOW)
    moves = _moves()
    next(moves)

    for task in periodic:
        task()

    assert MemberCluster.objects.filter(observe_at__gt=NOW).count() == 3
    assert not next(moves)
