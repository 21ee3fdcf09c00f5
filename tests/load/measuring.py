"""Measuring one problem: the product warm and cold, the floor, the plain baseline, the record.

*Warm*: the fleet's columns are there, from a first run that is thrown away. *Cold*: from dictionaries to
decision. *Floor*: what nobody can avoid, reading the labels once and two sorts. *Plain*: the baseline, a
faithful evaluation of every cluster in every round, filters and affinity given.
"""

import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from placements.scheduling.decision import Decision
from placements.scheduling.replay import Replay
from placements.scheduling.scheduler import schedule
from placements.scheduling.scores.preferred import affinity
from placements.scheduling.storage import pack
from tests.load.problems import Problem
from tests.scheduling.plain_evaluation import Rank, plain_rounds

REPEATS = 5


@dataclass(frozen=True)
class Times:
    """Repeated measurements of one thing, in seconds."""

    seconds: tuple[float, ...]

    @property
    def p50(self) -> float:
        """Give the median."""
        return statistics.median(self.seconds)

    @property
    def p90(self) -> float:
        """Give the nine out of ten mark: of a handful of repeats, the largest but for a share of it."""
        return statistics.quantiles(self.seconds, n=10, method="inclusive")[-1]


@dataclass(frozen=True)
class Plain:
    """The baseline on the first `picks` picks, which came out equal to the product's."""

    picks: int
    seconds_a_pick: float


@dataclass(frozen=True)
class Explanation:
    """What it costs to ask the record, in seconds: one cluster in one round, all clusters in one round."""

    cell: Times
    table: Times


@dataclass(frozen=True)
class Row:
    """All that was measured of one problem."""

    problem: Problem
    cells: int
    picks: int
    warm: Times
    cold: Times
    floor: Times
    plain: Plain
    record_bytes: int
    record: Times
    explanation: Explanation

    @property
    def seconds_a_pick(self) -> float:
        """Give the product's time for one pick, all of a warm run included."""
        return self.warm.p50 / max(self.picks, 1)

    @property
    def ratio(self) -> float:
        """Give by how much the product's pick is faster than the baseline's."""
        return self.plain.seconds_a_pick / self.seconds_a_pick

    @property
    def floors(self) -> float:
        """Give the cold run as a multiple of the floor."""
        return self.cold.p50 / self.floor.p50

    @property
    def is_extrapolated(self) -> bool:
        """Tell whether the baseline picked less than the product did."""
        return self.plain.picks < self.picks


def measure(problem: Problem, *, plain_seconds: float = 2.0, repeats: int = REPEATS) -> Row:
    """Measure a problem; raises AssertionError if product and baseline pick differently."""
    rows, fleet = problem.rows, problem.fleet()
    gc.collect()
    gc.freeze()  # the dictionaries are the benchmark's, not the product's: the collector shall not walk them
    cycle = problem.cycle(fleet)
    decision = schedule(cycle)
    row = Row(
        problem=problem,
        cells=len({tuple(map(each["labels"].get, problem.keys)) for each in rows if "eligible" not in each}),
        picks=len(decision.picked),
        warm=timed(lambda: schedule(problem_again(cycle)), repeats),
        cold=timed(lambda: schedule(problem_again(cycle, problem)), repeats),
        floor=timed(_floor(problem, decision), repeats),
        plain=_plain(problem, decision, plain_seconds),
        record_bytes=len(pack(decision)),
        record=timed(lambda: pack(decision), repeats),
        explanation=_explanation(decision, repeats),
    )
    gc.unfreeze()
    return row
