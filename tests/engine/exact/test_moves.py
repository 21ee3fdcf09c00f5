"""Few moves against brute force: the curve, the decision and the refusals.

See `rules/foresight.md#few-moves`.
"""

import random
from dataclasses import replace
from itertools import chain, combinations

import numpy as np
import pytest

from clusters.fleet import Cluster, Taint
from fleetui.apimachinery.model import Semantics
from placements.engine.exact import moves
from placements.engine.exact.moves import (
    MovePlan,
    NoPlanReason,
    can_balance,
    hub_difference,
    plan_moves,
)
from placements.engine.exact.record import SearchOptions
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.record import difference, pack, unpack
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import is_hard
from placements.explain.moves import repair_sentence
from tests.builders import (
    binding,
    cluster,
    cycle,
    fleet,
    grouped,
    pick_all,
    pick_n,
    spread,
)
from tests.engine.exact.random_problems import random_decision

LONG = pytest.param(2_000, marks=pytest.mark.nightly)


def _drifted(rng: random.Random) -> Cycle:
    """Draw a placement whose clusters were not picked by its policy."""
    given = random_decision(rng).cycle
    number = given.policy.number_of_clusters or 0
    names = [one.name for one in given.fleet]
    placed = rng.sample(names, rng.randint(0, min(number, len(names))))
    return replace(given, bindings=tuple(binding(name) for name in placed))


def _columns(
    problem: Cycle, members: frozenset[int]
) -> tuple[tuple[int, ...], list[int]]:
    """Return the columns of a set from the labels, larger is better, and the excess of each hard limit."""
    candidates = candidates_of(replace(problem, bindings=()))
    labels = [one.labels for one in problem.fleet]
    hard, soft, total = list[int](), 0, 0
    for constraint in problem.policy.topology_spread_constraints:
        key = constraint.topology_key
        domains = {label[key] for label in labels if key in label}
        if len(domains) < 2:
            continue
        counts = [
            sum(labels[at].get(key) == domain for at in members) for domain in domains
        ]
        skew = max(counts) - min(counts)
        total += skew
        if is_hard(constraint):
            hard.append(max(0, skew - constraint.max_skew))
        else:
            soft += max(0, skew - constraint.max_skew)
    stale = sum(not candidates.passes[at] for at in members)
    affinity = sum(int(candidates.preference[at]) for at in members)
    moves = len(set(problem.placed.tolist()) - members)
    return (len(members), -sum(hard), -soft, -stale, -total, affinity, -moves), hard


def _brute_force(problem: Cycle) -> list[tuple[int, ...]]:
    """Return the columns of every set that exceeds no hard limit by more than today."""
    placed = set(problem.placed.tolist())
    _, today = _columns(problem, frozenset(placed))
    passes = candidates_of(replace(problem, bindings=())).passes
    usable = sorted(placed | set(np.nonzero(passes)[0].tolist()))
    most = min(problem.policy.number_of_clusters or 0, len(usable))
    sets = chain.from_iterable(combinations(usable, size) for size in range(most + 1))
    found = [_columns(problem, frozenset(one)) for one in sets]
    return [
        value
        for value, hard in found
        if all(now <= before for now, before in zip(hard, today, strict=True))
    ]


@pytest.mark.parametrize("count", [60, LONG])
def test_the_curve_equals_brute_force_and_one_decision_makes_the_moves(
    count: int,
) -> None:
    rng = random.Random(11)
    repaired = 0
    for _ in range(count):
        problem = _drifted(rng)
        plan = plan_moves(problem)
        assert isinstance(plan, MovePlan)
        values = _brute_force(problem)
        rows = []
        for point in plan.curve:
            row = (
                point.placed,
                -point.hard_excess,
                -point.excess,
                -point.stale,
                -point.skew,
            )
            rows.append((*row, point.affinity, -point.moves))
            assert rows[-1] == max(
                value for value in values if -value[-1] <= point.limit
            )
        # The moves are the last column: with more of them allowed, no set is worse in the others.
        assert [one[:-1] for one in rows] == sorted(one[:-1] for one in rows)
        best = max(value[:2] for value in values)
        fewest = min(-value[-1] for value in values if value[:2] == best)
        assert fewest in [point.limit for point in plan.curve]
        if plan.current.hard_excess:
            repaired += 1
            assert plan.chosen.limit == fewest
        _check_decision(problem, plan)
    assert repaired > count // 20


def _check_decision(problem: Cycle, plan: MovePlan) -> None:
    """Make the moves by a cycle: its decision is stored, replayed, and reaches what was planned."""
    decision = schedule(replace(problem, batch=plan.batch))
    assert decision.picked_names == plan.joins
    assert decision.unscheduled == tuple(sorted(plan.leaves))
    assert difference(unpack(pack(decision), problem.fleet), decision) == ""
    assert {outcome.outcome for outcome in Outcomes(decision)} <= {*Outcome} - {
        Outcome.OUTRANKED
    }
    positions = problem.fleet.positions
    placed = {
        positions[placed_binding.cluster]
        for placed_binding in decision.bindings_after
        if placed_binding.is_active
    }
    value, after = _columns(problem, frozenset(placed))
    _, before = _columns(problem, frozenset(problem.placed.tolist()))
    assert all(now <= earlier for earlier, now in zip(before, after, strict=True))
    assert value[:-1] == (
        plan.chosen.placed,
        -plan.chosen.hard_excess,
        -plan.chosen.excess,
        -plan.chosen.stale,
        -plan.chosen.skew,
        plan.chosen.affinity,
    )


def test_two_moves_repair_a_region_that_holds_all() -> None:
    east = grouped("region", east="a b c d", west="e f", north="g h")
    problem = cycle(
        fleet(*east), pick_n(4, spread=[spread("region")]), *map(binding, "abcd")
    )

    plan = plan_moves(problem)

    assert isinstance(plan, MovePlan)
    assert (plan.current.hard_excess, plan.chosen.limit, plan.chosen.hard_excess) == (
        3,
        2,
        0,
    )
    assert (len(plan.leaves), len(plan.joins)) == (2, 2)


@pytest.mark.parametrize(
    ("south", "expected"), [("", False), ("s", True)], ids=["empty", "with a cluster"]
)
def test_a_limit_is_repaired_where_moves_exceed_it_less(
    south: str, *, expected: bool
) -> None:
    clusters = grouped("region", east="a b", west="c d")
    blocked = cluster("z", region="south", taints=[Taint("gpu")])
    free = [cluster(name, region="south") for name in south]
    problem = cycle(
        fleet(*clusters, blocked, *free),
        pick_n(4, spread=[spread("region")]),
        *map(binding, "abcd"),
    )

    assert can_balance(problem) is expected
    other = replace(problem, semantics=Semantics.OCM)
    assert can_balance(other) is None


def test_no_better_set_is_denied_before_the_search_has_proved_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = grouped("region", east="a b c d", west="e f")
    problem = cycle(
        fleet(*clusters), pick_n(4, spread=[spread("region")]), *map(binding, "abcd")
    )
    assert can_balance(problem) is True

    monkeypatch.setattr(moves, "INLINE_OPTIONS", SearchOptions(limit_seconds=0))

    assert can_balance(problem) is None


def test_a_larger_skew_is_no_help_where_no_hard_limit_is_exceeded() -> None:
    problem = cycle(fleet("a", "b"), pick_n(3), *map(binding, "ab"))

    plan = plan_moves(problem)

    assert isinstance(plan, MovePlan)
    assert repair_sentence(plan) == "No other set within the hard limits is better."


@pytest.mark.parametrize(
    ("clusters", "placed", "difference"),
    [
        # After the eviction only f keeps the limit; above it before the first step, the hub selects nothing.
        (grouped("region", east="a b c", west="e f", north="g"), "abceg", None),
        (grouped("region", east="a b c d", west="e f", north="g h"), "abcd", (1, ())),
    ],
)
def test_a_live_hub_follows_a_plan_that_its_own_decisions_make(
    clusters: list[Cluster], placed: str, difference: tuple[int, tuple[str, ...]] | None
) -> None:
    policy = pick_n(len(placed), spread=[spread("region")])
    problem = cycle(
        fleet(*clusters), policy, *map(binding, placed), semantics=Semantics.KUBEFLEET
    )
    plan = plan_moves(problem)

    assert isinstance(plan, MovePlan)
    assert plan.leaves
    assert hub_difference(problem, plan) == difference


def test_a_stale_cluster_is_replaced_although_no_limit_is_broken() -> None:
    clusters = fleet("a", "b", cluster("c", not_eligible="noAgent"))

    plan = plan_moves(cycle(clusters, pick_n(1), binding("c")))

    assert isinstance(plan, MovePlan)
    assert (plan.current.stale, plan.chosen.limit, plan.chosen.stale) == (1, 1, 0)
    assert plan.leaves == ("c",)


def test_a_plan_that_only_evens_out_the_skew_has_moves_by_default() -> None:
    clusters = fleet(*grouped("region", east="a b c", west="d e f"))
    problem = cycle(
        clusters,
        pick_n(4, spread=[spread("region", 2, hard=False)]),
        *map(binding, "abcd"),
    )
    plan, none = plan_moves(problem), plan_moves(problem, moves=0)

    assert isinstance(plan, MovePlan)
    assert isinstance(none, MovePlan)
    assert (plan.chosen.moves, plan.chosen.skew, plan.current.skew) == (1, 0, 2)
    assert repair_sentence(plan) == "With 1 move, skew 0 (now 2)."
    assert repair_sentence(none) == "No set that so few moves reach is better."


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (cycle(fleet("a"), pick_all()), NoPlanReason.TYPE),
        (
            replace(cycle(fleet("a"), pick_n(1)), semantics=Semantics.KUBERNETES),
            NoPlanReason.SEMANTICS,
        ),
        (
            cycle(fleet("a"), pick_n(1), binding("a", obsolete=True)),
            NoPlanReason.OBSOLETE,
        ),
        (
            cycle(fleet("a", "b"), pick_n(1), binding("a"), binding("b")),
            NoPlanReason.SCALES_DOWN,
        ),
    ],
)
def test_what_has_no_plan_says_why(problem: Cycle, reason: NoPlanReason) -> None:
    assert plan_moves(problem) is reason
