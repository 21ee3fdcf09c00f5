"""Gates on the engine's speed: ratios and counts at small sizes, never seconds, with ample room for noise.

`bench_engine` measures the goals; these only show when a change has made the engine slower by a class.
`make test` runs those that count; those that compare times are marked `timing` and run by `make bench-more`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from time import perf_counter

import pytest

from clusters import fleet as fleet_module
from clusters.columns import Ints, LabelColumn, label_column
from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.outcome import Outcomes
from placements.engine.scheduling.picker import pick
from placements.engine.scheduling.record import pack
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import SkewAfterPick
from placements.engine.scheduling.spread.fleet import FleetSpread
from placements.manifests.policy import TopologySpreadConstraint
from tests.builders import pick_n, spread
from tests.engine.scheduling.plain_evaluation import plain_rounds
from tests.load.counting import lines_of
from tests.load.problems import Problem

GATE = Problem("gate", 2_000, 200, (7, 7, 6))
MOST_TIMES_FLEET = 10
OTHERS = pytest.mark.parametrize(
    ("semantics", "options"),
    [
        (Semantics.KUBERNETES, {}),
        (Semantics.OCM, {}),
        (Semantics.OCM, {"mode": "weighted"}),
    ],
    ids=["kubernetes", "ocm", "ocm, weighted"],
)
BOTH = pytest.mark.parametrize("semantics", [Semantics.FLEET, Semantics.KUBEFLEET])


def _best(action: Callable[[], object], repeats: int) -> float:
    """Return the shortest time of several, which other work on the machine disturbs least."""
    times = []
    for _ in range(repeats):
        start = perf_counter()
        action()
        times.append(perf_counter() - start)
    return min(times)


def _seconds_a_pick(problem: Problem) -> float:
    cycle = problem.cycle(problem.fleet())
    picks = len(schedule(cycle).picked)
    return _best(lambda: schedule(replace(cycle)), 8) / picks


def _plain_seconds_a_pick(problem: Problem) -> float:
    rounds = plain_rounds(
        problem.case(), kubefleet=problem.semantics is Semantics.KUBEFLEET
    )
    return _best(lambda: next(rounds), 15)


@pytest.mark.timing
@BOTH
@pytest.mark.parametrize(
    ("problem", "times"),
    [
        (GATE, 40),
        (replace(GATE, hard=True, max_skew=1), 30),
        (replace(GATE, domains=(2_000, 20)), 40),
        (replace(GATE, shape="bound"), 20),
    ],
    ids=["soft", "hard", "unique key", "bound"],
)
def test_a_pick_is_many_times_faster_than_evaluating_every_cluster(
    problem: Problem, times: int, semantics: Semantics
) -> None:
    problem = replace(problem, semantics=semantics)

    assert _plain_seconds_a_pick(problem) >= times * _seconds_a_pick(problem)


@pytest.mark.timing
def test_a_pick_costs_about_the_same_in_a_fleet_eight_times_as_large() -> None:
    small, large = (
        _seconds_a_pick(GATE),
        _seconds_a_pick(replace(GATE, clusters=16_000, wanted=1_600)),
    )

    assert large <= 3 * small


@pytest.mark.timing
def test_building_a_fleet_and_scheduling_is_within_sight_of_reading_and_sorting_it() -> (
    None
):
    problem = replace(GATE, clusters=8_000, wanted=800)
    cycle, rows = problem.cycle(problem.fleet()), problem.rows

    def floor() -> object:
        columns = [[row["labels"].get(key) for row in rows] for key in problem.keys]
        return columns, sorted([row["name"] for row in rows]), sorted(range(len(rows)))

    assert _best(
        lambda: schedule(replace(cycle, fleet=problem.fleet())), 5
    ) <= 40 * _best(floor, 5)


@pytest.mark.timing
@OTHERS
@pytest.mark.parametrize("clusters", [1_000, 10_000])
@pytest.mark.parametrize(
    "problem",
    [
        replace(GATE, domains=(7,)),
        GATE,
        replace(GATE, hard=True, max_skew=1),
        replace(GATE, domains=(10, 14, 21)),
        replace(GATE, domains=(10, 14, 21), hard=True, max_skew=1),
    ],
    ids=["one key", "soft", "hard", "many cells", "many cells, hard"],
)
def test_the_other_semantics_take_at_most_ten_times_as_long_as_fleet(
    problem: Problem, clusters: int, semantics: Semantics, options: dict[str, str]
) -> None:
    problem = replace(problem, clusters=clusters, wanted=clusters // 10)
    fleet_cycle = problem.cycle(problem.fleet())
    other_cycle = replace(fleet_cycle, semantics=semantics, options=options)

    cycles = (fleet_cycle, other_cycle)
    # Hard limits may end the run of `fleet` long before the other.
    picks = [len(schedule(cycle).picked) for cycle in cycles]
    seconds = _best_in_turn([partial(_schedule_uncached, cycle) for cycle in cycles])
    fleet, other = (spent / count for spent, count in zip(seconds, picks, strict=True))

    assert other <= MOST_TIMES_FLEET * fleet


@OTHERS
@pytest.mark.parametrize("hard", [False, True])
def test_the_other_semantics_take_at_most_ten_times_the_steps_of_fleet(
    hard: bool, semantics: Semantics, options: dict[str, str]
) -> None:
    problem = replace(GATE, clusters=1_000, wanted=100, hard=hard, max_skew=1)
    cycle = problem.cycle(problem.fleet())
    other_cycle = replace(cycle, semantics=semantics, options=options)

    fleet, other = (
        lines_of(partial(_schedule_uncached, each)) for each in (cycle, other_cycle)
    )

    assert other <= MOST_TIMES_FLEET * fleet


def _schedule_uncached(cycle: Cycle) -> object:
    return schedule(replace(cycle))


def _best_in_turn(actions: Sequence[Callable[[], object]]) -> list[float]:
    """Return the shortest time of each, all taking turns, so that other work disturbs them alike."""
    rounds = [[_best(action, 1) for action in actions] for _ in range(20)]
    return [min(times) for times in zip(*rounds, strict=True)]


class _Counting(FleetSpread):
    """The rules of `fleet`, with how many counts each call had."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def score(
        self, constraint: TopologySpreadConstraint, after_pick: SkewAfterPick
    ) -> Ints:
        self.sizes.append(len(after_pick.counts))
        return super().score(constraint, after_pick)


@pytest.mark.parametrize("wanted", [200, 1_600])
def test_the_rules_are_evaluated_once_per_domain_state_not_once_per_pick_or_cluster(
    wanted: int,
) -> None:
    counting = _Counting()
    candidates = replace(candidates_of(GATE.cycle(GATE.fleet())), strategy=counting)

    picks = pick(candidates, wanted)

    assert len(picks.positions) == wanted
    assert len(counting.sizes) <= 10 * len(GATE.domains)
    assert max(counting.sizes) <= 10


def test_the_rules_are_evaluated_for_the_counts_that_occur_not_for_all_below_them() -> (
    None
):
    """One domain is used up at once, so that every pick in the other makes the skew larger."""
    one = Fleet(Cluster(f"c{at:03}", {"region": f"r{at > 0}"}) for at in range(401))
    policy = pick_n(400, spread=[spread("region", 1, hard=False)])
    counting = _Counting()
    candidates = replace(candidates_of(Cycle(one, policy)), strategy=counting)

    picks = pick(candidates, 400)

    assert len(picks.positions) == 400
    assert sum(counting.sizes) <= 4 * 400


def test_columns_of_a_fleet_are_made_once_for_all_placements(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[LabelColumn] = []

    def counted(values: list[str | None], order: Ints) -> LabelColumn:
        made.append(label_column(values, order))
        return made[-1]

    monkeypatch.setattr(fleet_module, "label_column", counted)
    fleet = GATE.fleet()

    for wanted in (10, 20, 30):
        schedule(replace(GATE, wanted=wanted).cycle(fleet))

    assert len(made) == len({"eligibility", "tier", "stage", *GATE.keys})


@BOTH
def test_a_record_takes_a_few_bytes_a_cluster_and_a_pick(semantics: Semantics) -> None:
    decision = schedule(replace(GATE, semantics=semantics).cycle(GATE.fleet()))

    assert len(pack(decision)) <= 2_000 + 5 * GATE.clusters + 3 * GATE.wanted


@pytest.mark.timing
def test_the_baseline_is_no_straw_man() -> None:
    """Its pick costs what its work has to: labels read and counted, clusters scored and sorted."""
    rows = [(row["name"], row["labels"]) for row in GATE.rows]

    def least_work() -> object:
        scored = [
            (len([labels.get(key) for key in GATE.keys]), 0, 0, name)
            for name, labels in rows
        ]
        return sorted(scored, reverse=True)

    rounds = list(islice(plain_rounds(GATE.case()), 1))

    assert len(rounds[0].ranked) == GATE.clusters
    assert _plain_seconds_a_pick(GATE) <= 4 * _best(least_work, 15)


@pytest.mark.timing
def test_reading_the_outcome_of_every_cluster_grows_no_faster_than_the_fleet() -> None:
    def seconds(problem: Problem) -> float:
        decision = schedule(problem.cycle(problem.fleet()))
        return _best(lambda: list(Outcomes(decision)), 3)

    small = replace(GATE, clusters=1_000, wanted=100, shape="bound")

    assert seconds(replace(small, clusters=8_000)) <= 15 * seconds(small)


@pytest.mark.parametrize("semantics", list(Semantics))
def test_a_pick_takes_as_many_steps_in_a_fleet_eight_times_as_large(
    semantics: Semantics,
) -> None:
    def steps_a_pick(problem: Problem) -> float:
        cycle = problem.cycle(problem.fleet())
        picks = len(schedule(cycle).picked)
        return lines_of(lambda: schedule(replace(cycle))) / picks

    small = replace(GATE, clusters=500, wanted=50, semantics=semantics)

    assert steps_a_pick(
        replace(small, clusters=4_000, wanted=400)
    ) <= 1.5 * steps_a_pick(small)


def test_building_a_fleet_takes_eight_times_the_steps_for_eight_times_the_clusters() -> (
    None
):
    small = replace(GATE, clusters=250)
    large = replace(GATE, clusters=2_000)
    assert (len(small.rows), len(large.rows)) == (250, 2_000)

    assert lines_of(large.fleet) <= 10 * lines_of(small.fleet)


def test_outcomes_of_every_cluster_take_eight_times_the_steps_for_eight_times_the_clusters() -> (
    None
):
    def steps(problem: Problem) -> int:
        decision = schedule(problem.cycle(problem.fleet()))
        return lines_of(lambda: list(Outcomes(decision)))

    small = replace(GATE, clusters=250, wanted=25, shape="bound")

    assert steps(replace(small, clusters=2_000)) <= 10 * steps(small)
