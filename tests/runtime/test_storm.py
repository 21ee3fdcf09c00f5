"""A storm of edits: clusters are observed all the time, the queue stays short, and everything converges.

The long form: `FLEETUI_STORM="100 100 600 300" pytest -s tests/runtime/test_storm.py -m nightly` (placements,
clusters, seconds of storm, seconds at rest). It prints the processor seconds of each process, too: unlike
times, they depend little on other work of the machine. `FLEETUI_STORM_WORKERS=4` has three more workers
beside the console, which needs PostgreSQL and Redis.
"""

import os
import sys
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from threading import Thread

import pytest
import redis

from fleetui.apimachinery.yaml import dump_yaml
from tests.load.polling import cpu_seconds, with_children
from tests.rows import deployment, member_document, namespace, placement_document, spec
from tests.runtime.processes import Watched, eventually, watching
from tests.runtime.test_survives import Stage, stage
from tests.runtime.test_up import linux, parts_of

__all__ = ["stage"]
LONGEST_GAP = 15.0
"""Seconds between two rounds of observation."""
MOST_MESSAGES = 200
ANOTHER_WORKER = ("up", "--prepared", "--only", "worker")
CONVERGED = "select count(*) from placements_binding where phase != 'available'"
STORM = """
import time
from datetime import UTC, datetime
from placements.services.resources.operations import apply_resources
from tests.rows import deployment
for number in range({seconds}):
    started = time.monotonic()
    apply_resources([deployment("web", f"web:{{number + 1}}")], by=None, now=datetime.now(UTC))
    time.sleep(max(0.0, 1.0 - (time.monotonic() - started)))
"""


@linux
@pytest.mark.nightly
def test_a_short_storm_delays_no_observation(stage: Stage) -> None:
    placements, clusters, seconds, *more = map(
        int, os.environ.get("FLEETUI_STORM", "20 30 20").split()
    )
    members = [member_document(f"c{number:03}") for number in range(clusters)]
    stage.manage(
        "import_clusters", "-", "--driver", "simulated", text=as_yaml(*members)
    )
    shared = spec(
        strategy={"applyStrategy": {"allowCoOwnership": True}}
    )  # all select the same objects
    wanted = [
        placement_document(f"p{number:03}", shared) for number in range(placements)
    ]
    stage.manage(
        "apply",
        "-f",
        "-",
        text=as_yaml(namespace("shop"), deployment("web", "web:0"), *wanted),
    )
    with ExitStack() as consoles:
        console = watching("manage.py", "up", "--port", "0", **stage.variables)
        up = consoles.enter_context(console)
        up.wait_for("ready in")
        others = []
        for _ in range(1, int(os.environ.get("FLEETUI_STORM_WORKERS", "1"))):
            another = watching("manage.py", *ANOTHER_WORKER, **stage.variables)
            others.append(consoles.enter_context(another))
            eventually(lambda: "worker" in parts_of(others[-1]))
        eventually(lambda: _bound(stage) == placements * clusters, seconds=600)
        eventually(lambda: stage.query(CONVERGED)[0][0] == 0, seconds=600)
        longest_gap, most_messages, before = 0.0, 0, _processor_seconds(up)
        storm = Thread(
            target=stage.manage,
            args=("shell", "-v0", "-c", STORM.format(seconds=seconds)),
        )
        storm.start()
        while storm.is_alive():
            longest_gap = max(longest_gap, _gap(stage))
            most_messages = max(most_messages, _messages(stage))
            storm.join(timeout=0.5)
        ended = time.monotonic()
        eventually(lambda: _is_converged(stage), seconds=300)
        took = time.monotonic() - ended
        busy = _processor_seconds(up)
        sys.stdout.write(
            f"{_edits(stage)} edits: longest gap {longest_gap:.1f} s, most messages {most_messages}, "
            f"converged after {took:.1f} s; processor seconds {busy - before}, "
            f"of other workers {[*map(_processor_seconds, others)]}\n"
        )
        for rest in more:
            time.sleep(
                150
            )  # the last observations of the storm, and then the usual ones
            before = _processor_seconds(up)
            time.sleep(rest)
            sys.stdout.write(
                f"{rest} s at rest; processor seconds {_processor_seconds(up) - before}\n"
            )
        assert longest_gap <= LONGEST_GAP
        assert most_messages <= MOST_MESSAGES
        stale = "select count(*) from clusters_membercluster where verdict != ''"
        assert stage.query(stale) == [(0,)]


def _processor_seconds(up: Watched) -> Counter[str]:
    """Return what each process of a console has used so far."""
    return Counter(
        {
            name: round(cpu_seconds(with_children(process_id)))
            for name, process_id in parts_of(up).items()
        }
    )


def as_yaml(*documents: object) -> str:
    return "---\n".join(map(dump_yaml, documents))


def _bound(stage: Stage) -> int:
    return stage.query("select count(*) from placements_binding")[0][0]


def _is_converged(stage: Stage) -> bool:
    running = stage.query(
        "select count(*) from placements_rollout where state = 'running'"
    )[0][0]
    return running == 0 and stage.query(CONVERGED)[0][0] == 0


def _edits(stage: Stage) -> int:
    return stage.query(
        "select max(revision) from placements_resource where kind = 'Deployment'"
    )[0][0]


def _gap(stage: Stage) -> float:
    """Return the seconds since the last round of observation."""
    at = str(stage.query("select observed_at from clusters_fleetstate")[0][0])
    moment = datetime.fromisoformat(at)
    return (
        datetime.now(UTC) - moment.replace(tzinfo=moment.tzinfo or UTC)
    ).total_seconds()


def _messages(stage: Stage) -> int:
    if url := os.environ.get("CELERY_BROKER_URL"):
        server = redis.Redis.from_url(url)
        return sum(server.llen(key) for key in server.scan_iter(_type="list"))
    return len(list((stage.folder / "queue").glob("*.msg")))
