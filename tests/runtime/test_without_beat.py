"""A console without beat says so from the outside, and calls nothing healthy that is not observed."""

import urllib.error
import urllib.request

import pytest

from tests.rows import member_document
from tests.runtime.processes import PATIENCE, eventually, watching
from tests.runtime.test_rollout_survives import as_yaml
from tests.runtime.test_survives import Stage, linux, stage

__all__ = ["stage"]
pytestmark = [pytest.mark.nightly, pytest.mark.servers_nightly, linux]
LATER = """
from datetime import timedelta
from django.db.models import F
from clusters.models import MemberCluster
from fleetui.models import WorkerHeartbeat
late = timedelta(minutes=10)
MemberCluster.objects.update(heartbeat_at=F("heartbeat_at") - late, observed_until=F("observed_until") - late)
WorkerHeartbeat.objects.update(swept_at=F("swept_at") - late, observed_at=F("observed_at") - late)
"""
"""What ten minutes without a beat leave."""


def ready(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{address}readyz", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_without_beat_the_console_is_not_ready_and_with_it_it_is(stage: Stage) -> None:
    parts = ("--only", "web", "--only", "worker", "--port", "0")
    members = [member_document(f"c{number:03}") for number in range(3)]
    stage.manage(
        "import_clusters", "-", "--driver", "simulated", text=as_yaml(*members)
    )
    with (
        watching("manage.py", "up", *parts, **stage.variables) as up,
        watching("manage.py", "up", "--only", "worker", **stage.variables),
    ):
        address = up.wait_for(r"^up +\| FleetUI: (http://127\.0\.0\.1:\d+/)")[1]
        eventually(lambda: "[+]worker ok" in ready(address)[1], seconds=120)
        status, text = ready(address)
        assert (status, "[-]sweep failed: no sweep has ended yet" in text) == (
            503,
            True,
        )

        with watching("manage.py", "up", "--only", "beat", **stage.variables) as beat:
            eventually(lambda: ready(address)[0] == 200, seconds=120)
            eventually(lambda: _silent(stage) == 0, seconds=120)
            beat.process.terminate()
            beat.process.wait()
        stage.manage("shell", "-v0", "-c", LATER)

        status, text = ready(address)
        assert (status, "[-]sweep failed: last sweep 6" in text) == (503, True)
        assert "[-]observation failed: last observation 6" in text
        assert _silent(stage) == 3
        with watching("manage.py", "up", "--only", "beat", **stage.variables):
            eventually(lambda: ready(address)[0] == 200, seconds=120)
            eventually(lambda: _silent(stage) == 0, seconds=120)


def _silent(stage: Stage) -> int:
    """Return how many clusters the probe for the metrics would count as not observed."""
    now = "now()" if stage.server else "strftime('%Y-%m-%d %H:%M:%f', 'now')"
    where = f"observed_until is null or observed_until < {now}"
    return stage.query(f"select count(*) from clusters_membercluster where {where}")[0][
        0
    ]
