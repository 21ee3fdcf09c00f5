"""Killed in the middle of scheduling, with the queue wiped: every placement is decided, and decided once."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from fleetui.apimachinery.yaml import dump_yaml
from tests.rows import member_document, placement_document, spec
from tests.runtime.processes import PATIENCE, ROOT, Watched, eventually, watching
from tests.runtime.test_up import parts_of

PLACEMENTS = 150
CLUSTERS = 300
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Stage:
    """A folder and a database of their own, for one console."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {
            "FLEETUI_VAR_DIR": str(folder),
            "FLEETUI_ADMIN_PASSWORD": "long enough for anyone",
        }
        self.server = os.environ.get("DATABASE_URL")
        self.name = f"survives{os.getpid()}"
        if self.server:
            self.variables["DATABASE_URL"] = re.sub(
                r"/\w+$", f"/{self.name}", self.server
            )
        self._connection: (
            psycopg.Connection[tuple[Any, ...]] | sqlite3.Connection | None
        ) = None

    def make(self) -> None:
        """Make the database with its tables; those of a file are there already."""
        if self.server:
            self._serve(f"create database {self.name}")
            self.manage("migrate", "-v0")

    def drop(self) -> None:
        """Drop the database, with all connections."""
        if self._connection:
            self._connection.close()
        self._serve(f"drop database if exists {self.name} with (force)")

    def _serve(self, statement: str) -> None:
        if self.server:
            with psycopg.connect(self.server, autocommit=True) as connection:
                connection.execute(statement.encode())

    def query(self, sql: str) -> list[tuple[int, ...]]:
        """Query the database of the running console from outside of it, over one connection."""
        if self.server:
            if not self._connection:
                self._connection = psycopg.connect(
                    self.variables["DATABASE_URL"], autocommit=True
                )
            assert isinstance(self._connection, psycopg.Connection)
            return self._connection.execute(sql.encode()).fetchall()
        if not self._connection:
            self._connection = sqlite3.connect(
                f"file:{self.folder}/fleetui.sqlite3?mode=ro", uri=True
            )
        assert isinstance(self._connection, sqlite3.Connection)
        return self._connection.execute(sql).fetchall()

    def run(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run a command of the console, whatever its exit status is."""
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=os.environ | self.variables,
            input=text,
            text=True,
            check=False,
            capture_output=True,
        )

    def manage(self, *arguments: str, text: str = "") -> str:
        """Run a command of the console that succeeds, and return its output."""
        run = self.run(*arguments, text=text)
        assert run.returncode == 0, run.stderr
        return run.stdout

    def wipe_the_queue(self) -> None:
        """Lose every message that is waiting."""
        if "CELERY_BROKER_URL" in os.environ:
            redis.Redis.from_url(os.environ["CELERY_BROKER_URL"]).flushdb()
        else:
            with suppress(FileNotFoundError):
                shutil.rmtree(self.folder / "queue")


@pytest.fixture
def stage(console_folder: Path) -> Iterator[Stage]:
    """Create a stage, and remove it afterwards."""
    found = Stage(console_folder)
    found.make()
    yield found
    found.drop()


def _decided(stage: Stage) -> int:
    return stage.query("select count(*) from placements_decision")[0][0]


def _due(stage: Stage) -> int:
    return stage.query(
        "select count(*) from placements_placement where observed_generation < generation"
    )[0][0]


def _kill_everything(up: Watched, stage: Stage) -> None:
    for process_id in parts_of(up).values():
        with suppress(ProcessLookupError):
            os.killpg(process_id, signal.SIGKILL)
    stage.wipe_the_queue()


@linux
@pytest.mark.nightly
@pytest.mark.servers_nightly
def test_every_placement_is_decided_exactly_once(stage: Stage) -> None:
    members = (member_document(f"c{number:04}") for number in range(CLUSTERS))
    stage.manage("apply", "-f", "-", text="---\n".join(map(dump_yaml, members)))
    placements = (
        placement_document(f"p{number:02}", spec()) for number in range(PLACEMENTS)
    )
    with watching("manage.py", "up", "--port", "0", **stage.variables) as up:
        up.wait_for(r"ready in")
        stage.manage("apply", "-f", "-", text="---\n".join(map(dump_yaml, placements)))
        eventually(lambda: _decided(stage) >= 3)
        _kill_everything(up, stage)
        killed_at = _decided(stage)
        eventually(lambda: _due(stage) == 0)
        up.process.terminate()
        up.process.wait(timeout=PATIENCE)

    assert killed_at < PLACEMENTS
    each = stage.query(
        "select placement_id, count(*) from placements_decision group by 1"
    )
    assert [count for _, count in each] == [1] * PLACEMENTS
    bindings = stage.query(
        "select placement_id, count(*) from placements_binding group by 1"
    )
    assert [count for _, count in bindings] == [CLUSTERS] * PLACEMENTS
