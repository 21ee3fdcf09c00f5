"""Measure exact search, few moves, resilience and incremental decisions against their goals.

`make bench-more`, or `python -m tests.load.bench_foresight`. The goals are ratios of CPU seconds and counts,
so they hold on any machine; the seconds of this one are printed beside them.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import process_time
from typing import Any

from clusters.fleet import Fleet
from placements.engine.exact.model import ModelProgram, build_model
from placements.engine.exact.moves import MovePlan, plan_moves
from placements.engine.exact.record import SearchOptions
from placements.engine.exact.solver import SearchLimits
from placements.engine.loss import (
    EvaluatedPlacement,
    LossVariant,
    PlacementIndex,
    domains_of,
)
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.fleet_change import can_change_picks, schedule_changed
from placements.engine.scheduling.scheduler import schedule
from tests.builders import labelled, pick_all
from tests.load.goals import Goal, print_goals
from tests.load.problems import Problem, large_world

DOMAINS = (7, 7, 6)
_UNCUT = SearchOptions(limit_seconds=600)
"""The limit is one of time on the clock, which other processes of the machine use up."""


def main() -> None:
    """Measure, print the seconds of each case, and hold the ratios against the goals."""
    print_goals([*_exact(), *_moves(), *_resilience(), *_incremental()])


def _seconds(action: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Return the shortest CPU time of several runs, and the result."""
    times, result = [], None
    for _ in range(repeats):
        started = process_time()
        result = action()
        times.append(process_time() - started)
    return max(min(times), 1e-9), result


def _exact() -> Iterator[Goal]:
    """Compare the first stage of exact search with the greedy run."""
    for shape in ("uniform", "zipf"):
        for clusters, most in ((10_000, 3), (100_000, 1)):
            problem = Problem(
                "exact",
                clusters,
                clusters // 10,
                DOMAINS,
                max_skew=1,
                hard=True,
                shape=shape,
            )
            cycle = problem.cycle(problem.fleet())
            schedule(cycle)  # builds the columns of the fleet
            greedy, decision = _seconds(partial(schedule, cycle), 3)

            def search(decision: Any = decision, wanted: int = problem.wanted) -> int:
                candidates = decision.candidates
                model = build_model(
                    candidates, wanted, decision.chosen, passes=candidates.passes
                ).cells[0]
                taken, _, _ = ModelProgram.of(model, model.greedy).stage(
                    "n", SearchLimits(60, 20_000)
                )
                return int(taken.sum())

            exact, found = _seconds(search, 3)
            print(
                f"exact, {shape}, {clusters:,} clusters, N = {problem.wanted:,}:"
                f" greedy {len(decision.chosen):,} in {greedy:.3f} s, exact {found:,} in {exact:.3f} s",
                flush=True,
            )
            name = f"exact, stage n, {shape}, {clusters // 1000}k, to greedy"
            yield Goal(
                name, f"<= {most} x", f"{exact / greedy:.2f} x", exact <= most * greedy
            )


def _drifted(clusters: int, keys: int, shape: str) -> Cycle:
    """Relabel 5 % of all clusters to the first domain of each key after a placement was decided."""
    problem = Problem(
        "drift",
        clusters,
        clusters // 10,
        DOMAINS[:keys],
        max_skew=2,
        hard=True,
        shape=shape,
    )
    decision = schedule(problem.cycle(problem.fleet()))
    rng = random.Random(5)
    fleet = decision.cycle.fleet
    moved = [
        cluster.with_changes(labels={**cluster.labels, key: fleet.label(key).values[0]})
        for key in problem.keys
        for cluster in rng.sample(fleet.clusters, clusters // 20 // keys)
    ]
    return replace(
        decision.cycle,
        fleet=fleet.with_clusters(moved),
        bindings=decision.bindings_after,
    )


def _moves() -> Iterator[Goal]:
    """Compare the moves of plans with those of a fresh reschedule, and their cost with a greedy run."""
    few, largest, cases = 0, 0.0, 0
    for clusters, most_keys in ((1_000, 3), (10_000, 3), (100_000, 2)):
        for keys in range(1, most_keys + 1):
            for shape in ("uniform", "zipf"):
                cycle = _drifted(clusters, keys, shape)
                greedy, decision = _seconds(partial(schedule, cycle.rescheduled()), 2)
                fresh = len(
                    {binding.cluster for binding in cycle.live_bindings}
                    - {*decision.picked_names}
                )
                seconds, plan = _seconds(partial(plan_moves, cycle, options=_UNCUT))
                assert isinstance(plan, MovePlan)
                cases += 1
                repairs = plan.chosen.hard_excess == 0 and not plan.is_cut
                few += repairs and (
                    plan.chosen.moves <= fresh
                    or plan.chosen.placed > len(decision.picked_names)
                )
                if (clusters, keys) == (10_000, 3):
                    largest = max(largest, seconds / greedy)
                print(
                    f"few moves, {shape}, {clusters:,} clusters, {keys} keys:"
                    f" excess {plan.current.hard_excess} to {plan.chosen.hard_excess},"
                    f" {plan.chosen.moves} moves in {seconds:.2f} s;"
                    f" rescheduled, {fresh} moves in {greedy:.4f} s",
                    flush=True,
                )
    yield Goal(
        "few moves, plans with no more moves than a reschedule",
        f"{cases} of {cases}",
        str(few),
        few == cases,
    )
    yield Goal(
        "few moves, 10k, 3 keys, to greedy",
        "<= 200 x",
        f"{largest:.0f} x",
        largest <= 200,
    )


def _resilience() -> Iterator[Goal]:
    """Compare the report over 36 domains with deciding its 1,000 placements once."""
    fleet, cycles = large_world(random.Random(5), 1_000, 1_000)
    once, decisions = _seconds(lambda: [schedule(cycle) for cycle in cycles])
    subjects = {
        at: EvaluatedPlacement(
            replace(decision.cycle, bindings=decision.bindings_after),
            decision.is_fulfilled,
        )
        for at, decision in enumerate(decisions)
    }
    losses = domains_of(fleet, ("region", "zone", "provider"), has_clusters=False)
    for variant in (LossVariant.CORDON, LossVariant.LEAVE):

        def report(variant: LossVariant = variant) -> int:
            placed = PlacementIndex(subjects)
            return sum(
                len(counts)
                for domain in losses
                for _, counts in placed.counts(fleet, domain.clusters, [variant])
            )

        seconds, cells = _seconds(report)
        print(
            f"resilience, {variant}: {len(losses)} domains, {cells:,} cells in {seconds:.2f} s,"
            f" decided once in {once:.2f} s"
        )
        name = f"resilience, {variant}, to deciding once"
        yield Goal(name, "<= 12 x", f"{seconds / once:.1f} x", seconds <= 12 * once)


def _incremental() -> Iterator[Goal]:
    """Compare one changed cluster with the whole fleet: the fleet itself, and a PickAll placement."""
    problem = Problem("change", 100_000, 10_000, DOMAINS)
    full, fleet = _seconds(problem.fleet)
    policy = pick_all(required=[labelled(tier="edge")])
    cycle = Cycle(fleet, policy)
    decision = schedule(cycle)
    cycle = replace(cycle, bindings=decision.bindings_after)
    former = schedule(cycle)
    selected = set(decision.picked_names)
    others = [cluster for cluster in fleet.clusters if cluster.name not in selected][
        :200
    ]
    changed = [
        other.with_changes(labels={**other.labels, "stage": "changed"})
        for other in others
    ]
    patched, _ = _seconds(lambda: fleet.with_clusters(changed[:1]), 3)
    joins = others[0].with_changes(labels={**others[0].labels, "tier": "edge"})
    after = replace(cycle, fleet=fleet.with_clusters([joins]))
    fresh = iter([replace(after) for _ in range(3)])
    whole, full_cycle = _seconds(lambda: schedule(next(fresh)), 3)
    merging, merged = _seconds(lambda: schedule_changed(former, after, [joins.name]), 3)
    assert merged is not None
    assert merged.picked_names == full_cycle.picked_names == (joins.name,)
    partial_cycles = [
        replace(cycle, fleet=Fleet([one]), bindings=()) for one in changed
    ]

    def judge() -> int:
        return sum(
            can_change_picks(cycle, label_keys={"stage"}, is_membership_changed=False)
            for cycle in partial_cycles
        )

    seconds, cycles = _seconds(judge, 3)
    one = seconds / len(changed)
    print(
        f"one change, 100,000 clusters: fleet built in {full:.2f} s, patched in {patched:.4f} s;"
        f" PickAll cycle {whole:.4f} s, from the changed cluster {merging:.6f} s, or {one:.6f} s to see that"
        " nothing changes"
    )
    yield Goal(
        "fleet, one change, to building it",
        "<= 1 %",
        f"{patched / full:.2%}",
        patched <= 0.01 * full,
    )
    slowest = max(one, merging)
    yield Goal(
        "PickAll, one change, to a full cycle",
        "<= 1 %",
        f"{slowest / whole:.2%}",
        slowest <= 0.01 * whole,
    )
    yield Goal(
        "full cycles after changes that concern no filter", "0", str(cycles), not cycles
    )


if __name__ == "__main__":
    main()
