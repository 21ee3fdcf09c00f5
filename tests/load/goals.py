"""The goals of the engine and whether what was measured meets them; a goal without its row is left out."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.load.measuring import Row
from tests.load.million import Million
from tests.load.problems import Problem


@dataclass(frozen=True)
class Goal:
    """One goal: what is wanted, what was measured, whether that is enough."""

    name: str
    wanted: str
    measured: str
    is_met: bool


@dataclass(frozen=True)
class Compared:
    """One problem under every semantics: the seconds of a warm run by name."""

    problem: Problem
    seconds: dict[str, float]

    def times_fleet(self, name: str) -> float:
        """Return the time under other semantics as a multiple of that under `fleet`."""
        return self.seconds[name] / self.seconds["fleet"]


@dataclass(frozen=True)
class Results:
    """All that a run of the benchmark measured."""

    rows: list[Row]
    thousand_placements: float
    compared: list[Compared]
    million: Million | None = None

    def select(self, name: str, clusters: int, wanted: int | None = None) -> list[Row]:
        """Return the rows of one kind and size, all semantics and numbers of cells."""
        return [
            row
            for row in self.rows
            if (row.problem.name, row.problem.clusters) == (name, clusters)
            and wanted in (None, row.problem.wanted)
        ]

    def growth(self, semantics: str) -> list[Row]:
        """Return the rows that differ in size only, with N = C/10."""
        main = [
            row
            for row in self.rows
            if row.problem.name == "main" and row.problem.semantics == semantics
        ]
        domains = main[0].problem.domains
        return [
            row
            for row in main
            if row.problem.domains == domains
            and row.problem.wanted * 10 == row.problem.clusters
        ]


def exponent(rows: list[Row], seconds: Callable[[Row], float]) -> float:
    """Fit seconds ~ C^x by least squares on the logarithms."""
    xs = [math.log(row.problem.clusters) for row in rows]
    ys = [math.log(seconds(row)) for row in rows]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - x_mean) ** 2 for x in xs)


def warm_seconds(row: Row) -> float:
    """Return the median of the product's warm runs."""
    return row.warm.p50


def plain_seconds(row: Row) -> float:
    """Return what the baseline would take for as many picks."""
    return row.plain.seconds_a_pick * row.picks


def goals(results: Results) -> list[Goal]:
    """Hold the results against every goal; the worst row counts."""
    found = [
        *_times(results),
        *_selective(results),
        *_growth(results),
        *_ratios(results),
        *_semantics(results),
        *_rates(results),
        *_records(results),
        *_worst_cases(results),
    ]
    return [*found, *_million(results.million)] if results.million else found


def _times(results: Results) -> Iterator[Goal]:
    if large := results.select("main", 100_000, 10_000):
        yield _at_most("100k/10k/3 warm", large, warm_seconds, 0.25, "s")
        yield _at_most("100k/10k/3 cold", large, lambda row: row.cold.p50, 0.4, "s")
        yield _at_most(
            "100k/10k/3 cold over floor", large, lambda row: row.floors, 6, "x"
        )
    if middle := results.select("main", 10_000, 1_000):
        yield _at_most(
            "10k/1k/3 warm", middle, lambda row: row.warm.p50 * 1e3, 25, "ms"
        )
    if small := results.select("main", 1_000, 100):
        yield _at_most("1k/100/3 warm", small, lambda row: row.warm.p50 * 1e3, 3, "ms")
    seconds = results.thousand_placements
    yield Goal(
        "1,000 placements of 1k/100/3", "≤ 3 s", f"{seconds:.2f} s", seconds <= 3
    )


def _selective(results: Results) -> Iterator[Goal]:
    if rows := results.select("selective", 100_000):
        yield _at_most("100k/10k/3 selective, warm", rows, warm_seconds, 0.25, "s")
        yield _at_most(
            "100k/10k/3 selective, first run", rows, lambda row: row.cold.p50, 1, "s"
        )


def _growth(results: Results) -> Iterator[Goal]:
    for semantics in ("fleet", "kubefleet"):
        rows = results.growth(semantics)
        if len(rows) > 1:
            ours, plain = exponent(rows, warm_seconds), exponent(rows, plain_seconds)
            yield Goal(f"exponent, {semantics}", "≤ 1.15", f"{ours:.2f}", ours <= 1.15)
            yield Goal(
                f"exponent of the baseline, {semantics}",
                "≥ 1.9",
                f"{plain:.2f}",
                plain >= 1.9,
            )


def _ratios(results: Results) -> Iterator[Goal]:
    for clusters, wanted, ratio in (
        (1_000, 500, 50),
        (10_000, 1_000, 600),
        (100_000, 10_000, 8_000),
    ):
        if rows := results.select("main", clusters, wanted):
            yield _at_least(
                f"{clusters:,}/{wanted:,}/3 over baseline",
                rows,
                lambda row: row.ratio,
                ratio,
                "x",
            )


def _semantics(results: Results) -> Iterator[Goal]:
    for compared in results.compared:
        for name in ("kubernetes", "ocm", "ocm, weighted"):
            times = compared.times_fleet(name)
            size, hard = (
                f"{compared.problem.clusters // 1000}k, {compared.problem.domains}",
                compared.problem.hard,
            )
            yield Goal(
                f"{name}{', hard' * hard}, {size}",
                "≤ 10x fleet",
                f"{times:.1f}x",
                times <= 10,
            )


def _rates(results: Results) -> Iterator[Goal]:
    def thousands(row: Row) -> float:
        return 1 / row.seconds_a_pick / 1e3

    for clusters in (1_000, 10_000, 100_000):
        if rows := results.select("main", clusters):
            yield _at_least(
                f"picks a second, three keys, {clusters:,}", rows, thousands, 60, "k"
            )
    if rows := results.select("one key", 100_000):
        yield _at_least("picks a second, one key, 100,000", rows, thousands, 500, "k")


def _records(results: Results) -> Iterator[Goal]:
    for clusters, table in ((10_000, 1), (100_000, 10)):
        rows = results.select("main", clusters)
        if not rows:
            continue
        size = f"{clusters // 1000}k"
        if clusters == 10_000:
            yield _at_most(
                "record at 10k/1k", rows, lambda row: row.record_bytes / 1e3, 100, "kB"
            )
        yield _at_most(
            f"record over run, {size}",
            rows,
            lambda row: row.record_share * 100,
            15,
            "%",
        )
        yield _at_most(
            f"a cell, {size}", rows, lambda row: row.replay.cell.p50 * 1e3, 0.1, "ms"
        )
        yield _at_most(
            f"a step's table, {size}",
            rows,
            lambda row: row.replay.table.p50 * 1e3,
            table,
            "ms",
        )


def _worst_cases(results: Results) -> Iterator[Goal]:
    for name, limit in (("unique key", 60), ("10 keys of 4", 1_000)):
        if rows := results.select(name, 100_000):
            yield _at_most(
                f"{name}, a pick at 100k",
                rows,
                lambda row: row.seconds_a_pick * 1e6,
                limit,
                "µs",
            )


def _million(million: Million) -> Iterator[Goal]:
    for name, value, limit, unit in (
        ("1M/100k/3 warm", million.warm_seconds, 3, "s"),
        ("1M/100k/3 cold", million.cold_seconds, 5, "s"),
        ("1M/100k/3 peak of memory", million.peak_gigabytes, 1.5, "GB"),
    ):
        yield Goal(name, f"≤ {limit} {unit}", f"{value:.2f} {unit}", value <= limit)


def _at_most(
    name: str, rows: list[Row], value: Callable[[Row], float], limit: float, unit: str
) -> Goal:
    worst = max(map(value, rows))
    return Goal(name, f"≤ {limit:,} {unit}", f"{worst:,.3g} {unit}", worst <= limit)


def _at_least(
    name: str, rows: list[Row], value: Callable[[Row], float], limit: float, unit: str
) -> Goal:
    worst = min(map(value, rows))
    return Goal(
        name, f"≥ {limit:,} {unit}", f"{_rounded(worst)} {unit}", worst >= limit
    )


def _rounded(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def print_goals(found: Sequence[Goal]) -> None:
    """Print each goal, what was measured, and whether that is enough."""
    print(f"\n{'goal':<40}{'wanted':>14}{'measured':>14}  met")
    for goal in found:
        print(
            f"{goal.name:<40}{goal.wanted:>14}{goal.measured:>14}  {'yes' if goal.is_met else 'NO'}"
        )
