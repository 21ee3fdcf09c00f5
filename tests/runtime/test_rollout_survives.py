"""Killed again and again while a rollout is under way: it finishes, each cluster changed once a version."""

import json
import os
import random
import signal
import sys
import time
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest

from placements.manifests import dump_yaml
from tests.rows import deployment, member_document, namespace, placement_document, spec
from tests.runtime.processes import Watched, eventually, watching
from tests.runtime.test_survives import Stage, stage
from tests.runtime.test_up import parts_of

__all__ = ["stage"]
CLUSTERS = 60
MOST_DOWN = 15  # a quarter may be unavailable
READY_AFTER = timedelta(seconds=2)  # what a simulated cluster takes
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
@pytest.mark.servers
def test_a_rollout_finishes_and_keeps_within_its_lines(stage: Stage) -> None:
    stage.manage("migrate", "-v0")
    stage.manage("apply", "-f", "-", text=_yaml(namespace("shop"), deployment("web", "web:1")))
    stage.manage("import_clusters", "-", "--driver", "simulated", text=_yaml(*_members()))
    with watching("manage.py", "up", "--port", "0", **stage.variables) as up:
        up.wait_for(r"ready in")
        stage.manage("apply", "-f", "-", text=_yaml(placement_document("web", spec())))
        eventually(lambda: _available(stage) == CLUSTERS, seconds=60)
        stage.manage("apply", "-f", "-", text=_yaml(deployment("web", "web:2")))
        _kill_at_random(up, stage, times=4)
        eventually(lambda: _finished(stage) == 2 and _available(stage) == CLUSTERS, seconds=120)
        up.process.terminate()
        up.process.wait(timeout=15)

    running = stage.ask("select distinct running_version from placements_binding")
    assert len(running) == 1
    books = _books(stage)
    assert [count for book in books for _, count in book["changes"]] == [1] * 2 * CLUSTERS
    assert _most_down_at_once(books, str(running[0][0])) <= MOST_DOWN


def _yaml(*documents: dict[str, Any]) -> str:
    return "---\n".join(map(dump_yaml, documents))


def _members() -> list[dict[str, Any]]:
    return [member_document(f"c{number:03}") for number in range(CLUSTERS)]


def _available(stage: Stage) -> int:
    return stage.ask("select count(*) from placements_binding where phase = 'available'")[0][0]


def _finished(stage: Stage) -> int:
    return stage.ask("select count(*) from placements_rollout where state = 'finished'")[0][0]


def _kill_at_random(up: Watched, stage: Stage, *, times: int) -> None:
    """Kill one part or all of them at moments that nobody chose, and lose the queue once."""
    chance = random.Random(7)
    for turn in range(times):
        time.sleep(chance.uniform(0.3, 1.5))
        parts = eventually(lambda: parts_of(up))
        doomed = list(parts.values()) if turn == 1 else [chance.choice(list(parts.values()))]
        for process_id in doomed:
            with suppress(ProcessLookupError):
                os.killpg(process_id, signal.SIGKILL)
        if turn == 1:
            stage.wipe_the_queue()


def _books(stage: Stage) -> list[dict[str, Any]]:
    """Give the books that the simulated clusters keep of themselves."""
    rows: list[tuple[Any, ...]] = list(stage.ask("select content from clusters_simulatedstate"))
    return [json.loads(row[0]) if isinstance(row[0], str) else row[0] for row in rows]


def _most_down_at_once(books: list[dict[str, Any]], version: str) -> int:
    """Count from the clusters' own books how many were on their way to a version at the worst moment."""
    begun = [
        datetime.fromisoformat(at)
        for book in books
        for at, what, _, applied in book["log"]
        if (what, applied) == ("applied", version)
    ]
    moments = sorted([(at, 1) for at in begun] + [(at + READY_AFTER, -1) for at in begun])
    return max(accumulate(change for _, change in moments))
