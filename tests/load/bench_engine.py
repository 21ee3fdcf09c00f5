"""Measure the scheduling engine against its goals: `make bench`, or `python -m tests.load.bench_engine`.

    --quick      small fleets only, some seconds
    --million    also one million clusters, in a process of its own

One fixed seed, shuffled names, product and baseline on the same dictionaries; the picks and scores that the
baseline makes in its time are asserted equal, those it does not make are extrapolated and marked (*). A run
of the product is `schedule()` with its record: verdicts, affinity, picks, scores. Affinity of two preferred
terms is evaluated in every run of the product and given to the baseline.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import perf_counter

import numpy as np

from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import labels_read, properties_read
from placements.engine.scheduling.record import pack_fleet
from placements.engine.scheduling.scheduler import schedule
from tests.builders import expression, pick_n, spread
from tests.load.goals import (
    Compared,
    Results,
    exponent,
    goals,
    plain_seconds,
    print_goals,
    warm_seconds,
)
from tests.load.measuring import REPEATS, Row, measure, timed
from tests.load.million import Million
from tests.load.problems import Problem

BOTH = (Semantics.FLEET, Semantics.KUBEFLEET)
FEW_CELLS, MANY_CELLS = (7, 7, 6), (10, 14, 21)
MAIN = [
    Problem("main", 1_000, 100, FEW_CELLS),
    Problem("main", 1_000, 500, FEW_CELLS),
    Problem("main", 10_000, 1_000, FEW_CELLS),
    Problem("main", 10_000, 1_000, MANY_CELLS),
    Problem("main", 100_000, 10_000, FEW_CELLS),
    Problem("main", 100_000, 10_000, MANY_CELLS),
]
CASES = [
    Problem("no key", 100_000, 10_000),
    Problem("one key", 100_000, 10_000, (300,)),
    Problem("two keys", 100_000, 10_000, (17, 18)),
    Problem("zipf", 10_000, 1_000, MANY_CELLS, shape="zipf"),
    Problem("all hard", 10_000, 1_000, MANY_CELLS, max_skew=1, hard=True),
    Problem("stuck minimum", 10_000, 1_000, MANY_CELLS, shape="stuck"),
    Problem("stuck and hard", 10_000, 1_000, MANY_CELLS, hard=True, shape="stuck"),
    Problem("bound 30 %", 10_000, 1_000, MANY_CELLS, shape="bound"),
    Problem("10 % no label", 10_000, 1_000, MANY_CELLS, shape="missing_key"),
    Problem("unique key", 100_000, 10_000, (100_000, 20)),
    Problem("10 keys of 4", 100_000, 500, (4,) * 10),
    Problem("selective", 10_000, 1_000, FEW_CELLS, is_selective=True),
    Problem("selective", 100_000, 10_000, FEW_CELLS, is_selective=True),
]
SIDE_BY_SIDE = [
    *MAIN[2:5],
    replace(MAIN[2], hard=True, max_skew=1),
    replace(MAIN[3], hard=True, max_skew=1),
]
HEAD = (
    f"{'case':<15}{'rules':<10}{'C':>8}{'N':>7}{'T':>3}{'K':>8}{'picks':>7}{'warm p50':>10}{'p90':>9}"
    f"{'cold':>9}{'floor':>8}{'xfloor':>7}{'µs/pick':>9}{'plain ms/pick':>14}{'k':>6}{'ratio':>10}"
)


def main() -> None:
    """Measure, print every row as it comes, and hold the results against the goals."""
    arguments = _arguments()
    started = perf_counter()
    print(
        f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}; times in ms"
    )
    rows = _measure(_quick() if arguments.quick else [*MAIN, *CASES])
    _print_records(row for row in rows if row.problem.name in ("main", "selective"))
    _print_fleet(rows[0].problem if arguments.quick else MAIN[-2])
    compared = _compare_semantics(MAIN[:2] if arguments.quick else SIDE_BY_SIDE)
    results = Results(
        rows, _many_placements(50 if arguments.quick else 1_000), compared
    )
    _print_growth(results)
    if arguments.million:
        results = replace(results, million=_million())
    print_goals(list(goals(results)))
    _print_noise(rows)
    print(f"\n{perf_counter() - started:.0f} s in all")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small fleets only")
    parser.add_argument(
        "--million", action="store_true", help="also one million clusters"
    )
    return parser.parse_args()


def _quick() -> list[Problem]:
    """Shrink every problem; those of which a shrunken one is there already are left out."""
    shrunk = (
        replace(case, clusters=case.clusters // 20, wanted=case.wanted // 20)
        for case in CASES
    )
    whole = (
        replace(problem, domains=(problem.clusters, 20))
        if problem.name == "unique key"
        else problem
        for problem in shrunk
    )
    return [*MAIN[:2], *whole]


def _measure(problems: Sequence[Problem]) -> list[Row]:
    print(f"\n{HEAD}")
    rows = []
    for problem in problems:
        for semantics in BOTH:
            seconds = 2.0 if problem.name == "main" else 1.0
            row = measure(replace(problem, semantics=semantics), plain_seconds=seconds)
            rows.append(row)
            _print_row(row)
    print("* extrapolated from the first k picks, which came out equal")
    return rows


def _print_row(row: Row) -> None:
    one = row.problem
    print(
        f"{one.name:<15}{one.semantics:<10}{one.clusters:>8}{one.wanted:>7}{len(one.domains):>3}{row.cells:>8}"
        f"{row.picks:>7}{row.warm.p50 * 1e3:>10.2f}{row.warm.p90 * 1e3:>9.2f}{row.cold.p50 * 1e3:>9.1f}"
        f"{row.floor.p50 * 1e3:>8.1f}{row.floors:>7.1f}{row.seconds_a_pick * 1e6:>9.1f}"
        f"{row.plain.seconds_a_pick * 1e3:>14.3f}{row.plain.picks:>6}{row.ratio:>9,.0f}"
        f"{'*' if row.is_extrapolated else ' '}",
        flush=True,
    )


def _print_records(rows: Iterable[Row]) -> None:
    """Print the cost of the record and of reading it, in milliseconds."""
    print(
        f"\n{'record of':<15}{'rules':<10}{'C':>8}{'N':>7}{'K':>8}{'kB':>8}{'pack':>8}{'% of run':>9}",
        end="",
    )
    print(f"{'a cell':>9}{'with rank':>10}{'a table':>9}")
    for row in rows:
        one, replay = row.problem, row.replay
        costs = (row.record.p50 * 1e3, row.record_share * 100, replay.cell.p50 * 1e3)
        print(
            f"{one.name:<15}{one.semantics:<10}{one.clusters:>8}{one.wanted:>7}{row.cells:>8}"
            f"{row.record_bytes / 1e3:>8.1f}{costs[0]:>8.2f}{costs[1]:>9.1f}{costs[2]:>9.3f}"
            f"{replay.ranked_cell.p50 * 1e3:>10.3f}{replay.table.p50 * 1e3:>9.2f}"
        )


def _print_fleet(problem: Problem) -> None:
    """Print what is paid once per version of a fleet, not per decision: the digest that the id needs.

    The columns are those that the engine made for the decision.
    """
    cycle = problem.cycle(problem.fleet())
    reads = labels_read(cycle), properties_read(cycle)

    fleets = [problem.fleet() for _ in range(REPEATS)]
    for fleet in fleets:
        schedule(problem.cycle(fleet))
    digest = timed(lambda repeat: fleets[repeat].digest(*reads), seconds=0).p50
    size = len(pack_fleet(problem.fleet())) / 1e6
    print(
        f"\nonce per fleet version, {problem.clusters:,} clusters: digest {digest * 1e3:.0f} ms (goal 30 at 100,000);",
        end=" ",
    )
    print(f"stored {size:.2f} MB")


def _compare_semantics(problems: Iterable[Problem]) -> list[Compared]:
    """Print the time of a warm run under each semantics, and return it as a multiple of `fleet`."""
    print()
    compared = [_compared(problem) for problem in problems]
    for one in compared:
        problem, hard = one.problem, "hard" if one.problem.hard else "soft"
        print(
            f"{problem.clusters:,} clusters, {problem.wanted:,} picks, {hard}, domains {problem.domains}:"
        )
        print(
            "  "
            + ", ".join(
                f"{name} {took * 1e3:.1f} ms" for name, took in one.seconds.items()
            )
        )
    return compared


def _compared(problem: Problem) -> Compared:
    seconds = {
        str(semantics): _warm(replace(problem, semantics=semantics))
        for semantics in Semantics
    }
    weighted = replace(problem, semantics=Semantics.OCM)
    return Compared(
        problem, seconds | {"ocm, weighted": _warm(weighted, mode="weighted")}
    )


def _warm(problem: Problem, **options: str) -> float:
    cycle = replace(problem.cycle(problem.fleet()), options=options)
    schedule(cycle)
    return timed(lambda _: schedule(replace(cycle))).p50


def _many_placements(count: int) -> float:
    """Schedule placements that want different clusters of one fleet; return the seconds for a thousand."""
    problem = Problem("many placements", 1_000, 100, FEW_CELLS)
    fleet = problem.fleet()
    values = [f"v{index:06}" for index in range(7)]
    policies = [
        pick_n(
            100,
            required=[expression("spread-0", "NotIn", values[number % 7])],
            spread=[spread(key, 1 + number % 5, hard=False) for key in problem.keys],
        )
        for number in range(count)
    ]
    start = perf_counter()
    picks = sum(len(schedule(Cycle(fleet, policy)).picked) for policy in policies)
    seconds = (perf_counter() - start) * 1_000 / count
    print(
        f"\n{count:,} placements on 1,000 clusters, {picks:,} picks: {seconds:.2f} s for a thousand"
    )
    return seconds


def _print_growth(results: Results) -> None:
    for semantics in BOTH:
        rows = results.growth(semantics)
        if len(rows) > 1:
            ours, plain = exponent(rows, warm_seconds), exponent(rows, plain_seconds)
            print(
                f"time ~ C^x with N = C/10, {semantics}: x = {ours:.2f}, baseline {plain:.2f}"
            )
    for row in results.select("main", 100_000):
        micros = row.seconds_a_pick * 1e6
        print(
            f"at 100k/10k with {row.cells} cells, {row.problem.semantics}: {micros:.1f} µs a pick"
        )


def _million() -> Million:
    command = [sys.executable, "-m", "tests.load.million"]
    million = Million(
        **json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True).stdout
        )
    )
    print(f"\n{million}")
    return million


def _print_noise(rows: Sequence[Row]) -> None:
    """Print how much the machine itself varied: the floor is the same work in every row of one size."""
    floors: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        floors.setdefault((row.problem.clusters, len(row.problem.domains)), []).append(
            row.floor.p50 * 1e3
        )
    (clusters, keys), most = max(
        floors.items(), key=lambda item: max(item[1]) / min(item[1])
    )
    print(
        f"\nnoise: the floor at {clusters:,} clusters and {keys} keys, the same work each time, took "
        f"{min(most):.1f} to {max(most):.1f} ms; judge the seconds above by that"
    )


if __name__ == "__main__":
    main()
