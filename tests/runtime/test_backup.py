"""A backup made in the middle of a rollout: restored, the workers continue and every cluster converges."""

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.rows import deployment, namespace, placement_document, spec
from tests.runtime.processes import eventually, watching
from tests.runtime.test_rollout_survives import JOIN, as_yaml, books_of, finished
from tests.runtime.test_survives import Stage, stage

__all__ = ["stage"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
CLUSTERS = 20
EACH = """
from io import StringIO
from django.core.management import CommandError
from tests.commands import call_command
for words in {commands}:
    try:
        call_command(*words, stdout=StringIO())
        print(0)
    except CommandError as error:
        print(error.returncode, str(error).replace("\\n", " "))
"""
IS_READ = """
from datetime import UTC, datetime
from fleetui.task_queue import record_heartbeat
record_heartbeat(["updates"], now=datetime.now(UTC))
"""
FORGET = (
    "from fleetui.models import WorkerHeartbeat; WorkerHeartbeat.objects.all().delete()"
)
SLOW = re.sub(r"range\(\d+\)", f"range({CLUSTERS})", JOIN)


def _failure(stage: Stage, *arguments: str) -> tuple[int, str]:
    run = stage.run(*arguments)
    return run.returncode, run.stderr


def _run_each(stage: Stage, *commands: tuple[str, ...], before: str = "") -> list[str]:
    """Run commands in one process; return the exit code and the error of each."""
    code = before + EACH.format(commands=commands)
    return stage.manage("shell", "-v0", "-c", code).splitlines()


def _back_up(stage: Stage, file: str) -> None:
    """Write a backup as the guide says."""
    if not stage.server:
        stage.manage("backup", file)
        return
    database = stage.variables["DATABASE_URL"]
    table = "--exclude-table-data=django_session"
    subprocess.run(
        ["pg_dump", "--format=custom", table, f"--file={file}", database], check=True
    )


def _restore(stage: Stage, file: str) -> None:
    if stage.server:
        command = [
            "pg_restore",
            "--clean",
            "--if-exists",
            "--single-transaction",
            "--no-owner",
        ]
        subprocess.run(
            [*command, f"--dbname={stage.variables['DATABASE_URL']}", file], check=True
        )
        stage.manage("prepare")
        return
    stage.manage("shell", "-v0", "-c", FORGET)
    code, output = _failure(stage, "restore", file)
    assert (code, "--force replaces it" in output) == (1, True)
    stage.manage("restore", "--force", file)


def _available(stage: Stage) -> int:
    return stage.query(
        "select count(*) from placements_binding where phase = 'available'"
    )[0][0]


@linux
@pytest.mark.nightly
@pytest.mark.servers_nightly
def test_a_restored_rollout_converges(stage: Stage, tmp_path: Path) -> None:
    stage.manage("shell", "-v0", "-c", SLOW)
    backup = str(tmp_path / "fleet.backup")
    first = as_yaml(
        namespace("shop"), deployment("web", "web:1"), placement_document("web", spec())
    )
    with watching("manage.py", "up", "--port", "0", **stage.variables) as up:
        up.wait_for("ready in")
        stage.manage("apply", "-f", "-", text=first)
        eventually(lambda: _available(stage) == CLUSTERS)
        stage.manage("apply", "-f", "-", text=as_yaml(deployment("web", "web:2")))
        second = "(select id from placements_rollout where number = 2)"
        updated = f"select count(*) from placements_clusterupdate where rollout_id = {second} and outcome != ''"
        eventually(lambda: stage.query(updated)[0][0] >= 3)
        _back_up(stage, backup)
        progress = stage.query(updated)[0][0]
        if not stage.server:
            assert _failure(stage, "restore", "--force", backup)[0] == 1
        eventually(lambda: finished(stage) == 2)
        # What was never in the backup is deleted afterwards.
        stage.manage(
            "apply",
            "-f",
            "-",
            text=as_yaml(deployment("web", "web:3"), namespace("later")),
        )
        eventually(lambda: finished(stage) == 3)
        up.process.terminate()
        up.process.wait(timeout=60)

    _restore(stage, backup)
    assert stage.query("select count(*) from django_session")[0][0] == 0
    assert stage.query(updated)[0][0] <= progress < CLUSTERS
    with watching("manage.py", "up", "--port", "0", **stage.variables) as up:
        up.wait_for("ready in")
        eventually(lambda: finished(stage) == 2 and _available(stage) == CLUSTERS)
        up.process.terminate()
        up.process.wait(timeout=60)

    assert (
        stage.query("select count(*) from placements_resource where name = 'later'")[0][
            0
        ]
        == 0
    )
    wanted = stage.query("select version from placements_rollout where number = 2")[0][
        0
    ]
    assert {book["web"]["held"]["version"] for book in books_of(stage)} == {wanted}


@pytest.mark.skipif("DATABASE_URL" in os.environ, reason="of SQLite")
def test_a_file_that_cannot_be_restored_changes_nothing(
    stage: Stage, tmp_path: Path
) -> None:
    backup = tmp_path / "fleet.backup"
    backup.touch()
    command = ("backup", str(backup))
    assert _run_each(stage, command, (*command, "--force")) == [
        f"1 {backup} exists; --force replaces it",
        "0",
    ]
    cut = tmp_path / "cut.backup"
    cut.write_bytes(backup.read_bytes()[:-5000])
    text = tmp_path / "text.backup"
    text.write_text("no database")
    other = tmp_path / "other.backup"
    with closing(sqlite3.connect(other)) as database:
        database.execute("create table things (id integer)")
    newer = tmp_path / "newer.backup"
    shutil.copy(backup, newer)
    with closing(sqlite3.connect(newer)) as database:
        database.execute(
            "insert into django_migrations (app, name, applied) values ('placements', '0999_newer', '')"
        )
        database.commit()

    refusals = {
        cut: "damaged",
        text: "is no backup, or is damaged",
        other: "is no backup of FleetUI",
        newer: "is of a newer version: placements.0999_newer is unknown here",
        tmp_path / "missing": "no such file",
    }
    answers = _run_each(
        stage, *(("restore", "--force", str(file)) for file in [*refusals, backup])
    )
    assert answers.pop() == "0"
    for answer, words in zip(answers, refusals.values(), strict=True):
        assert answer.startswith("1 "), answer
        assert words in answer

    assert backup.stat().st_mode & 0o777 == 0o600
    assert (
        stage.query("select count(*) from django_migrations where name = '0999_newer'")[
            0
        ][0]
        == 0
    )


@pytest.mark.skipif("DATABASE_URL" in os.environ, reason="of SQLite")
def test_a_console_that_runs_is_not_restored(stage: Stage, tmp_path: Path) -> None:
    backup = str(tmp_path / "fleet.backup")
    stage.manage("backup", backup)

    (answer,) = _run_each(stage, ("restore", "--force", backup), before=IS_READ)

    assert answer.startswith("1 ")
    assert "a worker has read updates in the last minute; stop all parts" in answer


def test_a_backup_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no such folder|use its own tools"):
        call_command("backup", str(tmp_path / "missing" / "fleet.backup"))
