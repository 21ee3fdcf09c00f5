"""Memory of the demo of 100 with `make up`, and what 100 placements on 100 clusters cost at rest."""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.load.goals import Goal
from tests.load.polling import cpu_seconds, with_children
from tests.rows import deployment, member_document, namespace, placement_document, spec
from tests.runtime.processes import Watched, eventually, watching
from tests.runtime.test_storm import CONVERGED, as_yaml
from tests.runtime.test_survives import Stage

_DEMO, _SIZE = 100, 100
_MOST_MEGABYTES, _MOST_SHARE = 450.0, 0.03
_SECONDS, _UNCHANGED = 60.0, 20.0
_A_DAY_LATER = """
from datetime import UTC, datetime, timedelta
from clusters.models import MemberCluster
from placements.models import Binding
from placements.services.rollouts.call_results import next_at_rest
now = datetime.now(UTC)
before = now - timedelta(days=1)
for cluster in MemberCluster.objects.all():
    later = next_at_rest(cluster, before, now)
    rows = Binding.objects.filter(cluster_name=cluster.name)
    rows.update(phase_changed_at=before, next_call_at=later)
"""
"""Nothing has changed since: the pauses between observations of a cluster have grown to their longest."""


@contextmanager
def _console() -> Iterator[tuple[Stage, Watched]]:
    """Run a console with a database of its own."""
    with TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        stage.make()
        try:
            with watching("manage.py", "up", "--port", "0", **stage.variables) as up:
                up.wait_for("ready in")
                yield stage, up
        finally:
            stage.drop()


def memory() -> Goal:
    with _console() as (stage, up):
        stage.manage("load_demo", str(_DEMO))
        _wait_until_still(stage)
        used = _megabytes(_processes(up))
    return Goal(
        f"memory with the demo of {_DEMO}, PSS",
        f"<= {_MOST_MEGABYTES:.0f} MB",
        f"{used:.0f} MB",
        used <= _MOST_MEGABYTES,
    )


def share_at_rest() -> Goal:
    members = [member_document(f"c{number:03}") for number in range(_SIZE)]
    at_once = {"maxUnavailable": "100%", "maxSurge": "100%"}
    strategy = {"applyStrategy": {"allowCoOwnership": True}, "rollingUpdate": at_once}
    shared = spec(strategy=strategy)
    wanted = [placement_document(f"p{number:03}", shared) for number in range(_SIZE)]
    hub = [namespace("shop"), deployment("web", "web:0")]
    with _console() as (stage, up):
        clusters = as_yaml(*members)
        stage.manage("import_clusters", "-", "--driver", "simulated", text=clusters)
        stage.manage("apply", "-f", "-", text=as_yaml(*hub, *wanted))
        eventually(lambda: _placed(stage) == _SIZE**2, seconds=600, pause=1)
        eventually(lambda: stage.query(CONVERGED)[0][0] == 0, seconds=600, pause=1)
        stage.manage("shell", "-c", _A_DAY_LATER)
        processes = _processes(up)
        before = cpu_seconds(processes)
        time.sleep(_SECONDS)
        share = (cpu_seconds(processes) - before) / _SECONDS
    return Goal(
        f"at rest, {_SIZE} placements on {_SIZE} clusters",
        f"<= {_MOST_SHARE:.0%} of a core",
        f"{share:.1%}",
        share <= _MOST_SHARE,
    )


def _wait_until_still(stage: Stage) -> None:
    """Wait until no binding changes for a while: some of the demo fail, and never become available."""
    phases = "select phase, count(*) from placements_binding group by phase"
    before = None
    for _ in range(20):
        now = sorted(stage.query(phases))
        if now == before:
            return
        before = now
        time.sleep(_UNCHANGED)
    raise AssertionError(f"still changes: {before}")


def _placed(stage: Stage) -> int:
    return stage.query("select count(*) from placements_binding")[0][0]


def _processes(up: Watched) -> list[int]:
    return with_children(up.process.pid)


def _megabytes(processes: Iterable[int]) -> float:
    """Return the memory of these processes; what several share counts once."""
    kilobytes = 0
    for process in processes:
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
        kilobytes += int(rollup.partition("Pss:")[2].split()[0])
    return kilobytes / 1024
