"""Measuring one problem: the product warm and cold, the floor, the plain baseline, the record.

*Warm*: the fleet's columns are there, from a first run that does not count. *Cold*: from dictionaries to
decision. *Floor*: what is unavoidable, reading the labels once and two sorts. *Plain*: the baseline, a
faithful evaluation of every cluster in every round, filters and affinity given.
"""

import gc
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.record import pack
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from tests.engine.scheduling.plain_evaluation import Rank, plain_rounds
from tests.load.problems import Problem

REPEATS, MOST_REPEATS = 5, 50


@dataclass(frozen=True)
class Times:
    """Repeated measurements of one thing, in seconds."""

    seconds: tuple[float, ...]

    @property
    def p50(self) -> float:
        """Return the median."""
        return statistics.median(self.seconds)

    @property
    def p90(self) -> float:
        """Return what nine of ten repeats stay below, interpolated between the few there are."""
        return statistics.quantiles(self.seconds, n=10, method="inclusive")[-1]


@dataclass(frozen=True)
class Plain:
    """The baseline on the first `picks` picks, which came out equal to the product's."""

    picks: int
    seconds_a_pick: float


@dataclass(frozen=True)
class ReplayTimes:
    """Times of what a replay shows of one round."""

    cell: Times
    ranked_cell: Times
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
    record: Times
    record_bytes: int
    replay: ReplayTimes

    @property
    def seconds_a_pick(self) -> float:
        """Return the product's time for a pick, with its share of all of a warm run."""
        return self.warm.p50 / max(self.picks, 1)

    @property
    def ratio(self) -> float:
        """Return by how much a pick of the product is faster than one of the baseline."""
        return self.plain.seconds_a_pick / self.seconds_a_pick

    @property
    def floors(self) -> float:
        """Return the cold run as a multiple of the floor."""
        return self.cold.p50 / self.floor.p50

    @property
    def record_share(self) -> float:
        """Return what writing the record adds to a warm run."""
        return self.record.p50 / self.warm.p50

    @property
    def is_extrapolated(self) -> bool:
        """Return whether the baseline made fewer picks than the product."""
        return self.plain.picks < self.picks


def measure(problem: Problem, *, plain_seconds: float = 2.0) -> Row:
    """Measure a problem; raise AssertionError if product and baseline do not pick the same."""
    cells = {
        tuple(map(row["labels"].get, problem.keys))
        for row in problem.rows
        if "eligible" not in row
    }
    with _only_the_products_garbage():
        cycle = problem.cycle(problem.fleet())
        decision = schedule(cycle)
        warm = timed(lambda _: schedule(replace(cycle)))
        cold = timed(lambda _: schedule(replace(cycle, fleet=problem.fleet())))
        return Row(
            problem=problem,
            cells=len(cells),
            picks=len(decision.picked),
            warm=warm,
            cold=cold,
            floor=timed(_floor(problem)),
            plain=_plain(problem, decision, plain_seconds),
            record=timed(lambda _: pack(decision)),
            record_bytes=len(pack(decision)),
            replay=_replay_times(decision),
        )


@contextmanager
def _only_the_products_garbage() -> Iterator[None]:
    """Keep the collector from walking the benchmark's own dictionaries; it stays on for the product."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def timed(action: Callable[[int], object], *, seconds: float = 0.2) -> Times:
    """Time an action, which gets the number of the repeat: so often, and what is short for so long."""
    spent: list[float] = []
    while len(spent) < REPEATS or (sum(spent) < seconds and len(spent) < MOST_REPEATS):
        start = perf_counter()
        action(len(spent))
        spent.append(perf_counter() - start)
    return Times(tuple(spent))


def _floor(problem: Problem) -> Callable[[int], object]:
    rows, keys = problem.rows, problem.keys
    affinity = [len(row["labels"]["tier"]) for row in rows]

    def read_and_sort(_: int) -> object:
        columns = [[row["labels"].get(key) for row in rows] for key in keys]
        names = sorted([row["name"] for row in rows])
        return columns, names, sorted(range(len(rows)), key=affinity.__getitem__)

    return read_and_sort


def _plain(problem: Problem, decision: Decision, seconds: float) -> Plain:
    """Run the baseline for a time; without constraints its one round makes all picks at once."""
    rounds = plain_rounds(problem.case(), kubefleet=problem.semantics == "kubefleet")
    picks: list[Rank] = []
    spent = 0.0
    while len(picks) < len(decision.picked) and spent < seconds:
        start = perf_counter()
        one = next(rounds)
        spent += perf_counter() - start
        picks += one.ranked[:1] if problem.domains else one.ranked[: problem.wanted]
    expected = decision.picked[: len(picks)]
    assert [(pick[3], pick[0], pick[1]) for pick in picks] == [
        (picked.cluster, picked.topology_spread_score, picked.affinity_score)
        for picked in expected
    ], f"{problem.name}: the baseline picks differently"
    return Plain(len(picks), spent / max(len(picks), 1))


def _replay_times(decision: Decision) -> ReplayTimes:
    """Replay another cluster in another round each time, two thirds into the run."""
    replay, names = Replay(decision), decision.cycle.fleet.names
    middle = max(1, decision.number_of_rounds * 2 // 3 - MOST_REPEATS)

    def round_of(number: int) -> int:
        return min(middle + number, decision.number_of_rounds)

    def place_of(number: int) -> int:
        return number * 7919 % len(names)

    def cell(number: int) -> object:
        return replay.verdicts(round_of(number), names[place_of(number)])

    def table(number: int) -> object:
        one = decision.round(round_of(number))
        return one.spread, one.is_forbidden, one.ranked

    def ranked_cell(number: int) -> object:
        return replay.candidate(round_of(number), names[place_of(number)])

    ranked_cell(0)
    return ReplayTimes(timed(cell), timed(ranked_cell), timed(table))
