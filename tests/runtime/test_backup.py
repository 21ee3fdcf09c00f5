"""A backup made in the middle of a rollout: restored, the workers continue and every cluster converges."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from clusters.backups import BackupRefused, BadBackup, check_fit, open_backup
from clusters.management.commands.restore import refuse_live_workers
from fleetui.broker import UPDATES
from fleetui.env import new_encryption_key
from fleetui.task_queue import record_heartbeat
from tests.rows import deployment, namespace, placement_document, spec
from tests.runtime.processes import ROOT, eventually, watching
from tests.runtime.test_rollout_survives import JOIN, as_yaml, books_of, finished
from tests.runtime.test_survives import Stage, stage

__all__ = ["stage"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
CLUSTERS = 20
SLOW = re.sub(r"range\(\d+\)", f"range({CLUSTERS})", JOIN)
HELD = (
    "update placements_binding "
    "set call_lease_token = 'old', call_lease_expires_at = '2099-01-01 00:00:00+00:00'"
)


def _failure(stage: Stage, *arguments: str) -> tuple[int, str]:
    with pytest.raises(subprocess.CalledProcessError) as found:
        stage.manage(*arguments)
    return found.value.returncode, found.value.stderr


def _available(stage: Stage) -> int:
    return stage.query("select count(*) from placements_binding where phase = 'available'")[0][0]


@linux
@pytest.mark.nightly
@pytest.mark.servers_nightly
def test_a_restored_rollout_converges_and_old_leases_are_void(stage: Stage, tmp_path: Path) -> None:
    stage.manage("shell", "-v0", "-c", SLOW)
    backup = str(tmp_path / "fleet.backup")
    first = as_yaml(namespace("shop"), deployment("web", "web:1"), placement_document("web", spec()))
    with watching("manage.py", "up", "--port", "0", **stage.variables) as up:
        up.wait_for("ready in")
        stage.manage("apply", "-f", "-", text=first)
        eventually(lambda: _available(stage) == CLUSTERS)
        stage.manage("apply", "-f", "-", text=as_yaml(deployment("web", "web:2")))
        second = "(select id from placements_rollout where number = 2)"
        updated = (
            f"select count(*) from placements_clusterupdate where rollout_id = {second} and outcome != ''"
        )
        eventually(lambda: stage.query(updated)[0][0] >= 3)
        stage.manage("backup", backup)
        progress = stage.query(updated)[0][0]
        assert _failure(stage, "restore", "--force", backup)[0] == 1
        eventually(lambda: finished(stage) == 2)
        # What was never in the backup is deleted afterwards.
        stage.manage("apply", "-f", "-", text=as_yaml(deployment("web", "web:3"), namespace("later")))
        eventually(lambda: finished(stage) == 3)
        up.process.terminate()
        up.process.wait(timeout=60)

    stage.manage("shell", "-v0", "-c", f"from django.db import connection as c; c.cursor().execute({HELD!r})")
    code, output = _failure(stage, "restore", backup)
    assert (code, "--force replaces it" in output) == (1, True)
    stage.manage("restore", "--force", backup)
    assert stage.query("select count(*) from placements_binding where call_lease_token != ''")[0][0] == 0
    assert stage.query("select count(*) from django_session")[0][0] == 0
    assert stage.query(updated)[0][0] <= progress < CLUSTERS
    with watching("manage.py", "up", "--port", "0", **stage.variables) as up:
        up.wait_for("ready in")
        eventually(lambda: finished(stage) == 2 and _available(stage) == CLUSTERS)
        up.process.terminate()
        up.process.wait(timeout=60)

    assert stage.query("select count(*) from placements_resource where name = 'later'")[0][0] == 0
    wanted = stage.query("select version from placements_rollout where number = 2")[0][0]
    assert {book["web"]["held"]["version"] for book in books_of(stage)} == {wanted}


@pytest.mark.servers_nightly
@pytest.mark.django_db
def test_a_backup_is_checked_before_anything_is_changed(stage: Stage, tmp_path: Path) -> None:
    backup, key = tmp_path / "fleet.backup", new_encryption_key()
    stage.variables["FLEETUI_CREDENTIAL_KEYS"] = key
    backup.touch()
    assert _failure(stage, "backup", str(backup)) == (
        1,
        f"CommandError: {backup} exists; --force replaces it\n",
    )
    stage.manage("backup", "--force", str(backup))
    archive = zipfile.ZipFile(backup)
    facts = json.loads(archive.read("backup.json"))

    def changed(name: str, change: Callable[[bytes], bytes]) -> Path:
        odd = tmp_path / f"{uuid4().hex}.backup"
        with zipfile.ZipFile(odd, "w") as target:
            for one in archive.namelist():
                content = archive.read(one)
                target.writestr(one, change(content) if one == name else content)
        return odd

    def stating(**values: object) -> Path:
        return changed("backup.json", lambda _: json.dumps(facts | values).encode())

    newer = [*facts["migrations"], ["placements", "0999_newer"]]
    cut = tmp_path / "cut.backup"
    cut.write_bytes(backup.read_bytes()[:-100])
    odd: tuple[tuple[Path, type[Exception], str], ...] = (
        (changed(next(iter(facts["checksums"])), lambda content: content + b" "), BadBackup, "its checksum"),
        (cut, BadBackup, "is no backup of FleetUI"),
        (stating(format=99), BadBackup, "has the format 99"),
        (stating(database="mysql"), BackupRefused, "the backup is of mysql"),
        (stating(migrations=newer), BackupRefused, "0999_newer is unknown here"),
    )
    for file, kind, words in odd:
        with pytest.raises(kind, match=words), open_backup(file) as (_, found):
            check_fit(found)
    assert _failure(stage, "restore", str(cut))[0] == 2

    assert backup.stat().st_mode & 0o777 == 0o600
    assert key.encode() not in backup.read_bytes()
    assert not any(one in name for name in archive.namelist() for one in ("keys", "secret", "session"))
    stage.variables["FLEETUI_CREDENTIAL_KEYS"] = new_encryption_key()
    command = [sys.executable, "manage.py", "restore", "--check", str(stating(credentials=2))]
    environment = os.environ | stage.variables
    check = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert (
        f"2 credentials and stored Secrets need the encryption key {facts['keys'][0]}, which is not here"
        in check.stderr
    )


@pytest.mark.django_db
def test_workers_that_report_are_noticed() -> None:
    waited: list[float] = []
    now = datetime.now(UTC)
    record_heartbeat([UPDATES], now=now)

    def later(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            record_heartbeat([UPDATES], now=datetime.now(UTC))

    with pytest.raises(BackupRefused, match=f"a worker reads {UPDATES}; stop all parts"):
        refuse_live_workers(say=waited.append, sleep=later)  # type: ignore[arg-type]
    assert len(waited) < 10

    refuse_live_workers(say=lambda _: None, sleep=lambda _: None)  # it reported no more


def test_a_backup_needs_a_folder(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no such folder"):
        call_command("backup", str(tmp_path / "missing" / "fleet.backup"))
