"""Errors of the environment are reported as what they are: by commands, REST and pages."""

import errno
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from celery.signals import after_setup_logger, after_setup_task_logger
from django.core.management import CommandError
from django.db import (
    DatabaseError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connection,
)
from django.test import Client
from kombu.exceptions import OperationalError as BrokerError
from rest_framework.test import APIClient

from fleetui import command_line, environment
from fleetui.environment import environment_problem
from tests.caches import forget_problems
from tests.commands import call_command
from tests.rows import namespace, person

ROOT = Path(__file__).resolve().parents[1]


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


ERRORS = [
    (OperationalError("database or disk is full"), "disk-full"),
    (OperationalError("attempt to write a readonly database"), "read-only"),
    (OperationalError("unable to open database file"), "read-only"),
    (OperationalError("database is locked"), "database-locked"),
    (DatabaseError("database disk image is malformed"), "database-corrupted"),
    (DatabaseError("file is not a database"), "database-corrupted"),
    (OSError(errno.ENOSPC, "No space left on device"), "disk-full"),
    (OSError(errno.EROFS, "Read-only file system"), "read-only"),
    (caused(OperationalError("full"), psycopg.errors.DiskFull("full")), "disk-full"),
    (
        caused(OperationalError("x"), psycopg.errors.AdminShutdown("x")),
        "database-stopped",
    ),
    (
        caused(OperationalError("x"), psycopg.errors.CannotConnectNow("x")),
        "database-stopped",
    ),
    (
        caused(OperationalError("refused"), psycopg.OperationalError("refused")),
        "database-stopped",
    ),
    (
        caused(InterfaceError("closed"), psycopg.InterfaceError("closed")),
        "database-stopped",
    ),
    (
        caused(OperationalError("x"), psycopg.errors.DeadlockDetected("x")),
        "database-locked",
    ),
    (
        caused(OperationalError("x"), psycopg.errors.QueryCanceled("x")),
        "statement-ended",
    ),
    (
        caused(
            OperationalError("password authentication failed"),
            psycopg.OperationalError("x"),
        ),
        "database-refused",
    ),
]


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_each_cause_is_recognized(error: Exception, code: str) -> None:
    problem = environment_problem(error)

    assert problem is not None
    assert problem.code == code


@pytest.mark.parametrize("text", ["disk I/O error", "unable to open database file"])
def test_a_full_disk_is_recognized_where_sqlite_reports_something_else(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "disk_usage", lambda _: SimpleNamespace(free=4096))

    problem = environment_problem(OperationalError(text))

    assert problem is environment.DISK_FULL


@pytest.mark.parametrize(
    "error",
    [
        IntegrityError("UNIQUE constraint failed"),
        OperationalError("no such table: x"),
        OSError(errno.ENOENT, "No such file"),
        ValueError("is locked"),
        caused(DatabaseError("x"), psycopg.errors.SyntaxError("x")),
        None,
    ],
)
def test_other_errors_are_not_blamed_on_the_environment(
    error: Exception | None,
) -> None:
    assert environment_problem(error) is None


@pytest.fixture
def broken(db: None) -> Iterator[None]:  # noqa: ARG001 -- a connection
    """Make every statement fail as with a full disk."""

    def fail(*_arguments: Any) -> None:
        raise OperationalError("database or disk is full")

    person("olga", "operator")
    with connection.execute_wrapper(fail):
        yield


@pytest.mark.usefixtures("broken", "collected_static")
def test_rest_responds_with_503_and_when_to_retry() -> None:
    answer = APIClient().get("/api/v1/clusters", HTTP_AUTHORIZATION="Token x")

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
    assert answer.json()["type"] == "urn:fleetui:problem:disk-full"
    assert "free space" in answer.json()["detail"]


@pytest.mark.usefixtures("broken", "collected_static")
def test_a_page_responds_with_503_and_what_to_do() -> None:
    client = Client(raise_request_exception=False)
    client.cookies["sessionid"] = "a" * 32

    answer = client.get("/clusters/")

    page = answer.content.decode()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "60")
    assert "<h1>The disk is full</h1>" in page
    assert "free space" in page


@pytest.mark.usefixtures("broken")
def test_a_command_ends_with_status_4() -> None:
    with pytest.raises(CommandError, match="The disk is full") as refused:
        call_command("export", "clusters")

    assert refused.value.returncode == 4


def corrupt(folder: Path) -> None:
    (folder / "fleetui.sqlite3").write_bytes(b"no database " * 1000)


def replace_by_folder(folder: Path) -> None:
    (folder / "fleetui.sqlite3").unlink()
    (folder / "fleetui.sqlite3").mkdir()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("command", "damage", "words"),
    [
        (["export", "clusters"], corrupt, "The database file is corrupted"),
        (["showmigrations"], replace_by_folder, "cannot be written"),
    ],
)
def test_commands_end_with_status_4_and_no_traceback(
    tmp_path: Path, command: list[str], damage: Callable[[Path], None], words: str
) -> None:
    with closing(sqlite3.connect(tmp_path / "fleetui.sqlite3")) as file:
        file.execute("CREATE TABLE x (y)")
    damage(tmp_path)
    variables = {
        key: value for key, value in os.environ.items() if key != "DATABASE_URL"
    }

    run = subprocess.run(
        [sys.executable, "manage.py", *command],
        cwd=ROOT,
        env=variables | {"FLEETUI_VAR_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, words in run.stderr) == (4, True), run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.nightly
def test_a_stopped_server_ends_a_command_with_status_4() -> None:
    run = subprocess.run(
        [sys.executable, "manage.py", "showmigrations"],
        cwd=ROOT,
        env=os.environ
        | {"DATABASE_URL": "postgres://u:p@127.0.0.1:1/x", "PGCONNECT_TIMEOUT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 4, run.stderr
    assert "The database does not respond" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="a limit of SQLite")
def test_a_full_database_changes_nothing(tmp_path: Path) -> None:
    """The limit of pages simulates a full disk."""
    manifest = tmp_path / "one.yaml"
    pages = connection.cursor().execute("PRAGMA page_count").fetchone()[0]
    manifest.write_text(str({**namespace("big"), "data": "x" * 1_000_000}))
    connection.cursor().execute(f"PRAGMA max_page_count = {pages + 10}")
    try:
        with pytest.raises(CommandError, match="The disk is full") as refused:
            call_command("apply", "-f", str(manifest))
    finally:
        connection.cursor().execute("PRAGMA max_page_count = 1073741823")

    assert refused.value.returncode == 4
    assert call_command("export", "resources") is None


def test_a_command_ends_silently_where_the_reader_of_its_output_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def execute(_utility: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(command_line.ManagementUtility, "execute", execute)
    monkeypatch.setattr(command_line.os, "_exit", sys.exit)
    with pytest.raises(SystemExit, match="141"):
        command_line.main(["manage.py", "checks"])


class Lines(logging.Handler):
    """Keeps what is written, with the filter of the console."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.addFilter(environment.EnvironmentFilter(clock=clock))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(logging.Formatter().format(record))


@pytest.fixture
def written() -> Iterator[tuple[logging.Logger, list[str], list[float]]]:
    """Return a logger, its lines and its clock."""
    now = [1000.0]
    handler, logger = Lines(lambda: now[0]), logging.getLogger("tests.environment")
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, handler.lines, now
    logger.removeHandler(handler)
    forget_problems()


def fail(logger: logging.Logger, error: Exception) -> None:
    try:
        raise error
    except type(error):
        logger.exception("Task %s raised unexpected", "sweep")


def test_a_full_disk_is_one_line_a_minute_with_a_count(
    written: tuple[logging.Logger, list[str], list[float]],
) -> None:
    logger, lines, now = written

    for _ in range(72):
        fail(logger, OperationalError("database or disk is full"))
    assert lines == [str(environment.DISK_FULL)]
    now[0] += 61
    fail(logger, OperationalError("database or disk is full"))
    assert lines[1:] == [
        f"{environment.DISK_FULL} (71 more errors since the last line)"
    ]


def test_each_kind_of_problem_has_a_line_and_other_errors_their_traceback(
    written: tuple[logging.Logger, list[str], list[float]],
) -> None:
    logger, lines, _ = written
    stopped = caused(OperationalError("x"), psycopg.errors.AdminShutdown("x"))

    for _ in range(2):
        fail(logger, stopped)
        logger.warning(
            "wake-up not sent: error=%s",
            BrokerError("Error 111 connecting to 127.0.0.1:6379"),
        )
        fail(logger, OperationalError("database is locked"))
        fail(logger, ValueError("a fault of the console"))

    assert lines[:2] == [str(environment.STOPPED), str(environment.BROKER_STOPPED)]
    assert len(lines) == 6
    assert all("Traceback" in line for line in lines[2:])


def test_handlers_of_celery_have_the_filter() -> None:
    logger, handler = logging.Logger("worker"), logging.NullHandler()
    logger.addHandler(handler)

    for signal in (after_setup_logger, after_setup_task_logger):
        signal.send(sender=None, logger=logger)

    assert [type(filter_) for filter_ in handler.filters] == [
        environment.EnvironmentFilter
    ]
    console = logging.getLogger("django").handlers[0]
    assert any(
        isinstance(filter_, environment.EnvironmentFilter)
        for filter_ in console.filters
    )


@pytest.mark.django_db
@pytest.mark.usefixtures("collected_static")
def test_probes_and_pages_say_that_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client()
    client.force_login(person("vera", "viewer"))
    words = "The disk is full"
    assert words not in client.get("/rollouts/").content.decode()
    assert "[+]disk ok" in client.get("/readyz").content.decode()

    monkeypatch.setattr(environment, "disk_usage", lambda _: SimpleNamespace(free=4096))

    assert words in client.get("/rollouts/").content.decode()
    answer = client.get("/readyz?exclude=worker&exclude=broker")
    assert (
        answer.status_code,
        f"[-]disk failed: {words}" in answer.content.decode(),
    ) == (503, True)


@pytest.mark.usefixtures("broken", "collected_static")
def test_probes_say_that_a_statement_failed_for_a_full_disk() -> None:
    APIClient().get("/api/v1/clusters", HTTP_AUTHORIZATION="Token x")

    assert (
        "[-]disk failed: The disk is full" in Client().get("/readyz").content.decode()
    )
