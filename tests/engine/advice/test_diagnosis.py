"""Blocking domains, dead ends, limits exceeded beforehand, stale picks (`rules/scheduler.md#traps`)."""

from dataclasses import replace
from itertools import combinations

import numpy as np
from hypothesis import given

from placements.engine.advice.diagnosis import (
    OverLimit,
    PinnedDomain,
    favoured_without_key,
    feasibility_bound,
    outdated,
    over_limits,
    pinned_groups,
    stale_picks,
)
from placements.engine.balance import exceeded_limits
from placements.engine.loss import without
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import is_hard
from placements.explain.advice import over_limit_sentences
from tests.builders import (
    binding,
    cluster,
    cycle,
    decide,
    fleet,
    grouped,
    labelled,
    pick_all,
    pick_n,
    spread,
)
from tests.effort import examples
from tests.engine.advice.test_advice import decisions


def test_a_group_without_candidates_is_pinned() -> None:
    clusters = [
        *grouped("region", east="e1 e2", west="w1"),
        cluster("s", region="south", not_eligible="noAgent"),
    ]

    decision = decide(fleet(*clusters), pick_n(3, spread=[spread("region")]))

    assert pinned_groups(decision) == (
        PinnedDomain("region", "south", 0, has_candidates=False),
    )


def test_a_group_that_is_used_up_is_pinned_too() -> None:
    decision = decide(
        fleet(*grouped("region", east="e1 e2 e3", west="w1")),
        pick_n(4, spread=[spread("region")]),
    )

    assert pinned_groups(decision) == (
        PinnedDomain("region", "west", 1, has_candidates=True),
    )


def test_a_fulfilled_decision_has_no_pinned_group() -> None:
    assert pinned_groups(decide(fleet("a"), pick_n(1, spread=[spread("region")]))) == ()


def test_a_limit_broken_before_the_first_pick_is_reported() -> None:
    zones = fleet(*grouped("zone", z1="a1 a2 a3", z2="b1 b2"))

    decision = decide(
        zones, pick_n(4, spread=[spread("zone")]), *map(binding, ("a1", "a2", "a3"))
    )

    assert over_limits(decision) == (OverLimit("zone", 3, 1),)


def test_clusters_without_the_key_that_went_first_are_named() -> None:
    mixed = fleet(*grouped("region", east="e1", west="w1"), "yak", "zeta")

    decision = decide(mixed, pick_n(3, spread=[spread("region")]))

    assert favoured_without_key(decision) == {"region": ("zeta", "yak")}


def test_a_placed_cluster_that_a_fresh_run_would_not_pick_is_stale() -> None:
    decision = decide(
        fleet(cluster("a", tier="edge"), "b"),
        pick_n(1, required=[labelled(tier="edge")]),
        binding("b"),
    )

    assert stale_picks(decision) == ("b",)


def test_the_demo_reaches_at_most_seven() -> None:
    regions = grouped("region", east="a b c", west="d e f", north="g h", south="i")

    assert (
        feasibility_bound(cycle(fleet(*regions), pick_n(5, spread=[spread("region")])))
        == 7
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
    for constraint, groups, start in zip(
        candidates.constraints, candidates.groups, starts, strict=True
    ):
        counts = start + groups.count(np.array(chosen, dtype=np.int64))
        if (
            is_hard(constraint)
            and len(counts)
            and counts.max() - counts.min() > constraint.max_skew
        ):
            return False
    return True


@examples(60)
@given(decision=decisions())
def test_the_bound_is_exact_for_one_hard_constraint(decision: Decision) -> None:
    if decision.candidates is None or over_limits(decision):
        return

    bound = feasibility_bound(decision.cycle)

    hard = [
        constraint
        for constraint in decision.cycle.policy.topology_spread_constraints
        if is_hard(constraint)
    ]
    assert bound == (_largest_valid_set(decision) if len(hard) <= 1 else None)


def _exceeded() -> Decision:
    """Decide for a third cluster while two are in one region and a third region has none left."""
    regions = fleet(
        *grouped("region", east="e1 e2", north="n1"),
        cluster("w1", region="west", not_eligible="noAgent"),
    )
    return decide(
        regions, pick_n(3, spread=[spread("region")]), binding("e1"), binding("e2")
    )


def test_a_cluster_that_is_selected_over_the_limit_is_not_called_outdated_afterwards() -> (
    None
):
    decision = _exceeded()
    assert decision.picked_names == ("n1",)

    after = replace(decision.cycle, bindings=decision.bindings_after)
    fresh = schedule(after.rescheduled())

    assert exceeded_limits(after, ["e1", "e2", "n1"])
    assert "n1" not in outdated(after, fresh, ["e1", "e2", "n1"])


def test_the_header_says_why_a_pick_over_the_limit_is_allowed() -> None:
    [sentence] = over_limit_sentences(_exceeded())

    assert sentence == (
        "region: the skew was 2 before the first step (maxSkew 1);"
        " a selection is allowed unless it increases the skew"
    )


@examples(100)
@given(decision=decisions())
def test_no_pick_of_a_decision_is_outdated_right_after_it_while_a_limit_is_exceeded(
    decision: Decision,
) -> None:
    if decision.is_failed or not decision.picked_names:
        return
    after = replace(decision.cycle, bindings=decision.bindings_after)
    placed = after.placed_before
    last = decision.picked_names[-1]

    if (
        exceeded_limits(after, placed)
        and last in schedule(without(after, last)).picked_names
    ):
        assert last not in outdated(after, schedule(after.rescheduled()), placed)
