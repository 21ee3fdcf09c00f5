"""How soon a whole console notices that an API server is dead or frozen."""

import os
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.kubernetes.members import Member
from tests.runtime.processes import ROOT, eventually, watching

PERIOD, PATIENCE = 60, 5
"""Seconds between two heartbeats, and those that are allowed beyond."""
COLUMNS = "heartbeat_at, unanswered_since, unanswered_code"
pytestmark = pytest.mark.nightly  # waits for real heartbeats


@pytest.mark.parametrize(
    ("fault", "cure", "code"),
    [("kill", "restart", "refused"), ("freeze", "thaw", "timeout")],
)
def test_a_dead_api_server_is_noticed_within_a_period_and_five_seconds(
    tmp_path: Path, second_member: Member, fault: str, cure: str, code: str
) -> None:
    database = tmp_path / "fleetui.sqlite3"
    variables = {
        "DATABASE_URL": f"sqlite:///{database}",
        "FLEETUI_VAR_DIR": str(tmp_path),
        "FLEETUI_MEMBER_LOOPBACK": "1",
        "FLEETUI_ADMIN_PASSWORD": "long enough for anyone",
    }

    def cluster() -> tuple[datetime | None, str | None, str]:
        with sqlite3.connect(database, timeout=20) as link:
            found = link.execute(
                f"SELECT {COLUMNS} FROM clusters_membercluster"
            ).fetchone()
        heartbeat = (
            datetime.fromisoformat(found[0]).replace(tzinfo=UTC) if found[0] else None
        )
        return heartbeat, found[1], found[2]

    with watching("manage.py", "up", "--port", "0", **variables) as up:
        up.wait_for("ready in")
        kubeconfig = second_member.folder / f"c{second_member.number}" / "kubeconfig"
        command = [
            sys.executable,
            str(ROOT / "manage.py"),
            "join",
            "two",
            "--kubeconfig",
            str(kubeconfig),
        ]
        subprocess.run(command, check=True, env=os.environ | variables, timeout=90)
        first = eventually(lambda: cluster()[0])
        # The worst time is right after a heartbeat.
        eventually(lambda: cluster()[0] != first)
        second_member.do(fault)
        dead = time.monotonic()
        try:
            eventually(lambda: cluster()[1])
            noticed = time.monotonic() - dead
            assert cluster()[2] == code
        finally:
            second_member.do(cure)

    assert noticed <= PERIOD + PATIENCE, f"{noticed:.1f} s"
