"""Pinned groups, dead ends, limits broken before the first pick, stale picks (`spec/scheduler.md` 6)."""

from itertools import combinations

import numpy as np
from hypothesis import given

from placements.engine.advice.diagnosis import (
    Bound,
    LargerSet,
    OverLimit,
    PinnedDomain,
    favoured_without_key,
    feasibility_bound,
    is_dead_end,
    over_limits,
    pinned_groups,
    stale_picks,
)
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.spread.base import is_hard
from tests.builders import binding, cluster, cycle, decide, fleet, grouped, labelled, pick_all, pick_n, spread
from tests.effort import examples
from tests.engine.advice.test_advice import decisions

DEAD_END = decide(
    fleet(
        cluster("c0", region="r0", env="e0"),
        cluster("c1", region="r2", env="e0"),
        cluster("c2", region="r2", env="e1"),
        cluster("c3", region="r0", env="e1"),
        cluster("c4", region="r0", env="e1"),
    ),
    pick_n(4, spread=[spread("region"), spread("env")]),
)


def test_a_group_that_nobody_can_be_picked_from_is_pinned() -> None:
    clusters = [
        *grouped("region", east="e1 e2", west="w1"),
        cluster("s", region="south", not_eligible="noAgent"),
    ]

    decision = decide(fleet(*clusters), pick_n(3, spread=[spread("region")]))

    assert pinned_groups(decision) == (PinnedDomain("region", "south", 0, has_candidates=False),)


def test_a_group_that_is_used_up_is_pinned_too() -> None:
    decision = decide(
        fleet(*grouped("region", east="e1 e2 e3", west="w1")), pick_n(4, spread=[spread("region")])
    )

    assert pinned_groups(decision) == (PinnedDomain("region", "west", 1, has_candidates=True),)


def test_a_fulfilled_decision_has_no_pinned_group() -> None:
    assert pinned_groups(decide(fleet("a"), pick_n(1, spread=[spread("region")]))) == ()


def test_the_dead_end_of_the_guide_names_the_set_that_was_missed() -> None:
    assert DEAD_END.picked_names == ("c4", "c1", "c3")
    assert is_dead_end(DEAD_END) == LargerSet(("c0", "c1", "c2", "c4"), is_settled=True)


def test_a_search_that_runs_out_of_steps_says_so() -> None:
    assert is_dead_end(DEAD_END, most_steps=3) == LargerSet(None, is_settled=False)


def test_impossible_is_distinguished_from_not_found() -> None:
    clusters = [
        cluster("a", region="x", env="p"),
        cluster("b", region="x", env="q"),
        cluster("c", region="x", env="q"),
    ]
    pinned = cluster("d", region="y", env="p", not_eligible="noAgent")

    decision = decide(fleet(*clusters, pinned), pick_n(3, spread=[spread("region"), spread("env")]))

    assert is_dead_end(decision) == LargerSet(None, is_settled=True)


def test_one_hard_constraint_makes_no_dead_end() -> None:
    decision = decide(
        fleet(*grouped("region", east="e1 e2 e3", west="w1")), pick_n(4, spread=[spread("region")])
    )

    assert is_dead_end(decision) is None


def test_a_limit_broken_before_the_first_pick_is_told() -> None:
    zones = fleet(*grouped("zone", z1="a1 a2 a3", z2="b1 b2"))

    decision = decide(zones, pick_n(4, spread=[spread("zone")]), *map(binding, ("a1", "a2", "a3")))

    assert over_limits(decision) == (OverLimit("zone", 3, 1),)


def test_clusters_without_the_key_that_went_first_are_named() -> None:
    mixed = fleet(*grouped("region", east="e1", west="w1"), "yak", "zeta")

    decision = decide(mixed, pick_n(3, spread=[spread("region")]))

    assert favoured_without_key(decision) == {"region": ("zeta", "yak")}


def test_a_placed_cluster_that_a_fresh_run_would_not_pick_is_stale() -> None:
    decision = decide(
        fleet(cluster("a", tier="edge"), "b"), pick_n(1, required=[labelled(tier="edge")]), binding("b")
    )

    assert stale_picks(decision) == ("b",)


def test_the_demo_reaches_at_most_seven() -> None:
    regions = grouped("region", east="a b c", west="d e f", north="g h", south="i")

    assert feasibility_bound(cycle(fleet(*regions), pick_n(5, spread=[spread("region")]))) == Bound(
        7, is_exact=True
    )


def test_only_pick_n_has_a_bound() -> None:
    assert feasibility_bound(cycle(fleet("a"), pick_all())) is None


def _largest_valid_set(decision: Decision) -> int:
    """Try all sets of candidates on top of what is kept; in a valid one every hard skew is in its limit."""
    candidates = decision.candidates
    assert candidates is not None
    free = candidates.passes.nonzero()[0].tolist()
    for size in range(len(free), -1, -1):
        if any(_is_valid(decision, chosen) for chosen in combinations(free, size)):
            return size + len(decision.kept)
    return len(decision.kept)


def _is_valid(decision: Decision, chosen: tuple[int, ...]) -> bool:
    candidates = decision.candidates
    assert candidates is not None
    starts = candidates.starting_counts()
    for constraint, groups, start in zip(candidates.constraints, candidates.groups, starts, strict=True):
        counts = start + groups.count(np.array(chosen, dtype=np.int64))
        if is_hard(constraint) and len(counts) and counts.max() - counts.min() > constraint.max_skew:
            return False
    return True


@examples(60)
@given(decision=decisions())
def test_the_bound_is_exact_for_one_hard_constraint_and_never_too_low(decision: Decision) -> None:
    if decision.candidates is None or over_limits(decision):
        return

    bound = feasibility_bound(decision.cycle)

    assert bound is not None
    largest = _largest_valid_set(decision)
    assert bound.most >= largest
    if bound.is_exact:
        assert bound.most == largest


@examples(60)
@given(decision=decisions())
def test_a_larger_set_is_larger_and_valid_and_impossible_is_impossible(decision: Decision) -> None:
    found = is_dead_end(decision)
    if found is None or over_limits(decision):
        return

    if found.clusters is None:
        assert _largest_valid_set(decision) <= len(decision.picked_names) + len(decision.kept)
    else:
        assert len(found.clusters) > len(decision.picked_names)
        assert _is_valid(decision, tuple(decision.cycle.fleet.positions[name] for name in found.clusters))
