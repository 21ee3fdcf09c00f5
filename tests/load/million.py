"""The row of a million clusters, in a process of its own so that its peak of memory is its own.

Run by `bench_engine --million`; prints one line of JSON. No baseline: it would take seconds a pick.
"""

import gc
import json
import resource
from dataclasses import asdict, dataclass, replace

from placements.engine.scheduling.record import pack
from placements.engine.scheduling.scheduler import schedule
from tests.load.measuring import timed
from tests.load.problems import Problem

MILLION = Problem("million", 1_000_000, 100_000, (7, 7, 6))


@dataclass(frozen=True)
class Million:
    """What a million clusters cost: seconds, bytes of the record, gigabytes at the peak."""

    clusters: int
    wanted: int
    picks: int
    cold_seconds: float
    warm_seconds: float
    record_bytes: int
    peak_gigabytes: float


def run(problem: Problem = MILLION) -> Million:
    """Build and schedule; the dictionaries that the fleet is built from count in the peak of memory."""
    problem.rows  # noqa: B018 -- made here, kept for the runs
    gc.freeze()
    cycle = problem.cycle(problem.fleet())
    decision = schedule(cycle)
    cold = timed(lambda _: schedule(replace(cycle, fleet=problem.fleet())), seconds=2)
    warm = timed(lambda _: schedule(replace(cycle)), seconds=2)
    return Million(
        clusters=problem.clusters,
        wanted=problem.wanted,
        picks=len(decision.picked),
        cold_seconds=cold.p50,
        warm_seconds=warm.p50,
        record_bytes=len(pack(decision)),
        peak_gigabytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
    )


if __name__ == "__main__":
    print(json.dumps(asdict(run())))
