"""Workers whose clocks differ by 30 seconds: all work is done, and once.

A preloaded library moves the clock of a process. That of libfaketime 0.9.10 breaks `sleep` or waits.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.rows import deployment, namespace, placement_document, spec
from tests.runtime.processes import eventually, watching
from tests.runtime.test_rollout_survives import as_yaml, books_of
from tests.runtime.test_survives import Stage, stage
from tests.services.rollouts.staged import run_document, strategy_document
from tests.services.rollouts.staged import stage as staged_stage

__all__ = ["stage"]
SHIFTED_CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*original)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = original(clock, now);
    const char *ahead = getenv("CLOCK_AHEAD");
    if (clock == CLOCK_REALTIME && ahead) now->tv_sec += atoi(ahead);
    return result;
}
"""
CLUSTERS = 12
# Half of them in each stage; one rejects what it gets until that is fixed.
JOIN = f"""
from datetime import UTC, datetime
from clusters.operations.join import ClusterSpec, upsert_clusters
from tests.rows import member_document
wanted = [
    ClusterSpec(
        member_document(f"c{{number:03}}", {{"stage": "first" if number < {CLUSTERS // 2} else "second"}}),
        "simulated",
        {{"faults": [{{"kind": "refuse", "objectKind": "Deployment"}}] if number == 0 else []}},
    )
    for number in range({CLUSTERS})
]
upsert_clusters(wanted, by=None, now=datetime.now(UTC))
"""
ACT = """
from datetime import UTC, datetime
from django.contrib.auth.models import User
from clusters.models import MemberCluster
from placements.services.rollouts import operations
from tests.rows import person
now = datetime.now(UTC)
"""
RECONNECT = 'MemberCluster.objects.filter(name="c000").update(connection={})\n'
APPROVE = """
by = User.objects.filter(username="ann").first() or person("ann", "approver")
operations.approve("one", "first", by=by, now=now)
"""
SHARED = {"applyStrategy": {"allowCoOwnership": True}}
WORKER = ("manage.py", "up", "--only", "worker")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.servers_nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="preloads a library of Linux"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]


Clock = Callable[[int], dict[str, str]]


@pytest.fixture
def shifted(tmp_path: Path) -> Clock:
    """Return what gives the environment of a process whose clock is so many seconds ahead."""
    library = tmp_path / "shifted_clock.so"
    compile_it = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library), "-ldl"]
    subprocess.run(compile_it, input=SHIFTED_CLOCK, text=True, check=True)
    return lambda seconds: {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(seconds)}


def act(stage: Stage, code: str, clock: Mapping[str, str]) -> None:
    """Run code in a process with another clock."""
    there = dict(stage.variables)
    stage.variables |= clock
    stage.manage("shell", "-v0", "-c", ACT + code)
    stage.variables = there


@pytest.mark.parametrize("ahead", [30, -30])
def test_a_worker_with_another_clock_does_all_the_work(
    stage: Stage, shifted: Clock, ahead: int
) -> None:
    stage.manage("shell", "-v0", "-c", JOIN.replace("== 0", "< 0"))
    with (
        watching(*WORKER, **stage.variables | shifted(ahead)),
        watching("manage.py", "up", "--only", "beat", **stage.variables),
    ):
        documents = (
            namespace("shop"),
            deployment("web", "web:1"),
            placement_document("web", spec()),
        )
        stage.manage("apply", "-f", "-", text=as_yaml(*documents))
        eventually(lambda: _available(stage) == CLUSTERS, seconds=120)
        assert stage.query(
            "select count(*) from clusters_membercluster where verdict != ''"
        ) == [(0,)]


def test_two_workers_with_different_clocks(stage: Stage, shifted: Clock) -> None:
    stage.manage("shell", "-v0", "-c", JOIN)
    stages = (
        staged_stage("first", before=True, after=True, most=3),
        staged_stage("second", wait="2h", most=6),
    )
    documents: list[Mapping[str, object]] = [
        *(namespace("shop"), deployment("web", "web:1"), strategy_document(*stages)),
        *(
            placement_document("web", spec(strategy={"type": "External", **SHARED})),
            placement_document("rolling", spec(strategy=SHARED)),
        ),
    ]
    with (
        watching(*WORKER, **stage.variables | shifted(30)),
        watching(*WORKER, **stage.variables),
        watching("manage.py", "up", "--only", "beat", **stage.variables),
    ):
        stage.manage("apply", "-f", "-", text=as_yaml(*documents))
        bound = "select count(*) from placements_binding"
        eventually(lambda: stage.query(bound) == [(2 * CLUSTERS,)], seconds=120)
        stage.manage("apply", "-f", "-", text=as_yaml(run_document("one")))
        eventually(lambda: _requests(stage, "before") == 1, seconds=120)
        act(stage, APPROVE, shifted(-30))
        eventually(lambda: _failed(stage) == 2, seconds=120)
        act(
            stage,
            RECONNECT
            + 'operations.retry_run("one", "c000", by=None, now=now)\n'
            + 'operations.retry("rolling", "c000", by=None, now=now)',
            shifted(60),
        )
        eventually(lambda: _requests(stage, "after") == 1, seconds=120)
        act(stage, APPROVE, shifted(60))
        eventually(lambda: _available(stage) == 2 * CLUSTERS, seconds=120)
        waiting = "select count(*) from placements_stagedrun where status = 'waiting'"
        eventually(lambda: stage.query(waiting) == [(1,)], seconds=60)
        act(
            stage,
            'operations.skip_wait("one", "second", by=None, now=now)',
            shifted(-30),
        )
        succeeded = (
            "select count(*) from placements_stagedrun where status = 'succeeded'"
        )
        eventually(lambda: stage.query(succeeded) == [(1,)], seconds=60)
        assert stage.query(
            "select count(*) from clusters_membercluster where verdict != ''"
        ) == [(0,)]

    changes = [state["changes"] for book in books_of(stage) for state in book.values()]
    assert len(changes) == 2 * CLUSTERS
    # Refused objects change the namespace first, and the rest once that is fixed.
    assert {count for change in changes for _, count in change} <= {1, 2}
    assert sum(count == 2 for change in changes for _, count in change) <= 2


def _available(stage: Stage) -> int:
    return stage.query(
        "select count(*) from placements_binding where phase = 'available'"
    )[0][0]


def _failed(stage: Stage) -> int:
    return stage.query(
        "select count(*) from placements_binding where phase = 'failed'"
    )[0][0]


def _requests(stage: Stage, side: str) -> int:
    return stage.query(
        f"select count(*) from placements_approvalrequest where side = '{side}'"
    )[0][0]
