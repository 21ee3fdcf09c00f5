"""A worker is stopped beyond its lease while it holds calls; what it does afterwards changes no cluster."""

import os
import signal
import sys

import pytest

from tests.rows import deployment, member_document, namespace, placement_document, spec
from tests.runtime.processes import eventually, watching
from tests.runtime.test_rollout_survives import as_yaml, books_of
from tests.runtime.test_survives import Stage, stage
from tests.runtime.test_up import parts_of

__all__ = ["stage"]
CLUSTERS = 40
# So slow that a worker is stopped in the middle of its calls.
SLOW = """
from clusters.models import MemberCluster
MemberCluster.objects.update(connection={"applyMilliseconds": 3000, "readySeconds": 0})
"""
DELETE = """
from django.utils import timezone
from placements.services.placements import delete_placement
delete_placement("web", by=None, now=timezone.now())
"""
ALL_AT_ONCE = {"rollingUpdate": {"maxUnavailable": "100%"}}
WORKER = ("manage.py", "up", "--only", "worker", "--concurrency", "1")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.servers,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]


def test_a_worker_that_continues_after_its_lease_changes_nothing(stage: Stage) -> None:
    members = [member_document(f"c{number:03}") for number in range(CLUSTERS)]
    stage.manage(
        "apply", "-f", "-", text=as_yaml(namespace("shop"), deployment("web", "web:1"))
    )
    stage.manage(
        "import_clusters", "-", "--driver", "simulated", text=as_yaml(*members)
    )
    stage.manage("shell", "-v0", "-c", SLOW)
    with (
        watching(*WORKER, **stage.variables) as first,
        watching("manage.py", "up", "--only", "beat", **stage.variables),
    ):
        stage.manage(
            "apply",
            "-f",
            "-",
            text=as_yaml(placement_document("web", spec(strategy=ALL_AT_ONCE))),
        )
        eventually(lambda: _called(stage) > 0)
        stopped = parts_of(first)["worker"]
        os.killpg(stopped, signal.SIGSTOP)
        with watching(*WORKER, **stage.variables) as second:
            eventually(lambda: _available(stage) == CLUSTERS, seconds=180)
            stage.manage("shell", "-v0", "-c", DELETE)
            eventually(lambda: _placements(stage) == 0, seconds=180)
            second.process.terminate()
            second.process.wait()
        os.killpg(stopped, signal.SIGCONT)
        # The worker runs one task at a time: when this is placed, the calls that it held are over.
        stage.manage(
            "apply",
            "-f",
            "-",
            text=as_yaml(placement_document("api", spec(strategy=ALL_AT_ONCE))),
        )
        eventually(lambda: _available(stage) == CLUSTERS, seconds=180)

    books = books_of(stage)
    assert len(books) == CLUSTERS
    holding = [
        [name for name, state in book.items() if state["held"]] for book in books
    ]
    assert holding == [["api"]] * CLUSTERS


def _called(stage: Stage) -> int:
    return stage.query(
        "select count(*) from placements_binding where call_lease_token != ''"
    )[0][0]


def _available(stage: Stage) -> int:
    return stage.query(
        "select count(*) from placements_binding where phase = 'available'"
    )[0][0]


def _placements(stage: Stage) -> int:
    return stage.query("select count(*) from placements_placement")[0][0]
