"""Killed again and again while a rollout is under way: it finishes, each cluster changed once a version.

Which process is killed at which moment comes from a seed, printed with the moments: FLEETUI_KILL_SEED=11.
"""

import json
import os
import random
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from fleetui.apimachinery.yaml import dump_yaml
from tests.rows import deployment, namespace, placement_document, spec
from tests.runtime.consoles import EVERY_PART, SUPERVISOR, Console, kept_running
from tests.runtime.processes import eventually
from tests.runtime.test_survives import Stage, stage

__all__ = ["stage"]
CLUSTERS = 24
FLOOR = 18  # a quarter may be unavailable
READY_AFTER = timedelta(seconds=2)  # what a simulated cluster takes
# So slow that a worker is killed in the middle of its calls.
JOIN = f"""
from datetime import UTC, datetime
from clusters.operations.join import ClusterSpec, upsert_clusters
from tests.rows import member_document
slow = {{"applyMilliseconds": 300}}
documents = [member_document(f"c{{number:03}}") for number in range({CLUSTERS})]
wanted = [ClusterSpec(one, "simulated", slow) for one in documents]
upsert_clusters(wanted, by=None, now=datetime.now(UTC))
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
@pytest.mark.nightly
@pytest.mark.servers_nightly
def test_a_rollout_finishes_and_keeps_within_its_lines(stage: Stage) -> None:
    chance = _chance()
    stage.manage("shell", "-v0", "-c", JOIN)
    with kept_running(stage) as console:
        documents = [
            namespace("shop"),
            deployment("web", "web:1"),
            placement_document("web", spec()),
        ]
        stage.manage("apply", "-f", "-", text=as_yaml(*documents))
        eventually(lambda: _available(stage) == CLUSTERS, seconds=180)
        stage.manage("apply", "-f", "-", text=as_yaml(deployment("web", "web:2")))
        _disturb(console, stage, chance)
        eventually(lambda: finished(stage) == 2, seconds=180)

    running = stage.query(
        "select distinct applied_version, phase from placements_binding"
    )
    first, second = (
        row[0]
        for row in stage.query("select version from placements_rollout order by number")
    )
    books = [book["web"] for book in books_of(stage)]
    assert running == [(second, "available")]
    assert [book["held"]["version"] for book in books] == [second] * CLUSTERS
    assert [dict(book["changes"]) for book in books] == [
        {first: 1, second: 1}
    ] * CLUSTERS
    assert _fewest_available([book["log"] for book in books]) >= FLOOR


def _chance() -> random.Random:
    seed = int(os.environ.get("FLEETUI_KILL_SEED", "7"))
    sys.stdout.write(f"FLEETUI_KILL_SEED={seed}\n")
    return random.Random(seed)


def as_yaml(*documents: Mapping[str, Any]) -> str:
    """Write documents."""
    return "---\n".join(map(dump_yaml, documents))


def _available(stage: Stage) -> int:
    return stage.query(
        "select count(*) from placements_binding where phase = 'available'"
    )[0][0]


def finished(stage: Stage) -> int:
    """Count the runs that have come to their end."""
    return stage.query(
        "select count(*) from placements_rollout where state = 'finished'"
    )[0][0]


def _updated(stage: Stage) -> int:
    """Count the clusters on which the second run has come to its end."""
    number = "(select id from placements_rollout where number = 2)"
    ended = f"rollout_id = {number} and outcome = 'available'"
    return stage.query(f"select count(*) from placements_clusterupdate where {ended}")[
        0
    ][0]


def _disturb(console: Console, stage: Stage, chance: random.Random) -> None:
    """Kill each sort of process at random moments, then all of them, and lose the queue once."""
    victims = [*EVERY_PART, SUPERVISOR]
    chance.shuffle(victims)
    _wait_for(chance.randrange(1, CLUSTERS // 3), stage, chance)
    for victim in victims:
        _say(f"{victim} is killed", stage)
        console.kill(victim, chance)
        time.sleep(chance.uniform(0.1, 2.0))
    _wait_for(chance.randrange(CLUSTERS // 2, CLUSTERS * 3 // 4), stage, chance)
    _say("everything is killed and the queue wiped", stage)
    console.kill_everything(meanwhile=stage.wipe_the_queue)
    assert _updated(stage) < CLUSTERS


def _wait_for(updated: int, stage: Stage, chance: random.Random) -> None:
    """Wait until so many clusters are updated, and then for a random moment."""
    eventually(lambda: _updated(stage) >= updated, seconds=180)
    time.sleep(chance.uniform(0.1, 2.0))


def _say(what: str, stage: Stage) -> None:
    sys.stdout.write(
        f"{datetime.now(UTC):%T.%f}: {what} with {_updated(stage)} clusters updated\n"
    )


def books_of(stage: Stage) -> list[dict[str, Any]]:
    """Return what each simulated cluster keeps by placement: what it holds, its calls and changes."""
    rows_of_placements = "clusters_simulatedplacement where placement_name != ''"
    query = f"select cluster_id, placement_name, content from {rows_of_placements} order by 1, 2"
    books: dict[int, dict[str, Any]] = {}
    rows: list[tuple[Any, ...]] = list(stage.query(query))
    for cluster, placement, content in rows:
        kept = json.loads(content) if isinstance(content, str) else content
        books.setdefault(cluster, {})[placement] = kept
    return list(books.values())


def _fewest_available(logs: list[list[list[str]]]) -> int:
    """Count from the clusters' own logs how many were available at the worst moment once all had been."""
    changes = sorted(change for log in logs for change in _changes(log))
    counts = [0]
    for _, change in changes:
        counts.append(counts[-1] + change)
    return min(counts[counts.index(CLUSTERS) :])


def _changes(log: list[list[str]]) -> Iterator[tuple[datetime, int]]:
    """Return when a cluster became available, +1, and when it was taken down, −1."""
    applied = [datetime.fromisoformat(at) for at, what, *_ in log if what == "applied"]
    yield from ((at + READY_AFTER, 1) for at in applied)
    yield from ((at, -1) for at in applied[1:])
    assert all(later - earlier >= READY_AFTER for earlier, later in pairwise(applied))
