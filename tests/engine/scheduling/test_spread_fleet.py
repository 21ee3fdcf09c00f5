"""Spread under `fleet` semantics: the documented rules (`rules/scheduler.md#topology-spread`)."""

import numpy as np
import pytest

from placements.engine.scheduling.spread.base import (
    SkewAfterPick,
    SkewLevels,
    SpreadInput,
    levels_of,
)
from placements.engine.scheduling.spread.fleet import FleetSpread
from placements.manifests.policy import TopologySpreadConstraint, WhenUnsatisfiable
from tests.builders import (
    binding,
    cluster,
    cycle,
    decide,
    fleet,
    grouped,
    pick_n,
    spread,
)

STRATEGY = FleetSpread()


def _judged(counts: list[int], max_skew: int = 1) -> list[tuple[int, bool]]:
    """Return score and violation for one more cluster in each of the groups."""
    constraint = TopologySpreadConstraint(
        topology_key="region",
        max_skew=max_skew,
        when_unsatisfiable=WhenUnsatisfiable.SCHEDULE_ANYWAY,
    )
    after_pick = SkewAfterPick(np.array(counts), levels_of(np.array(counts)))
    scores, violates = (
        STRATEGY.score(constraint, after_pick),
        STRATEGY.violates(constraint, after_pick),
    )
    return list(zip(scores.tolist(), violates.tolist(), strict=True))


@pytest.mark.parametrize(
    ("counts", "after", "change"),
    [
        ([0, 0], [1, 1], [1, 1]),
        ([1, 0], [2, 0], [1, -1]),
        ([2, 0], [3, 1], [1, -1]),
        ([1, 0, 0], [2, 1, 1], [1, 0, 0]),
        ([2, 1, 0], [3, 2, 1], [1, 0, -1]),
        ([3], [0], [0]),
    ],
)
def test_prospect_gives_the_skew_after_one_more_and_its_change(
    counts: list[int], after: list[int], change: list[int]
) -> None:
    after_pick = SkewAfterPick(np.array(counts), levels_of(np.array(counts)))

    assert (after_pick.after.tolist(), after_pick.change.tolist()) == (after, change)


@pytest.mark.parametrize(
    ("counts", "levels"),
    [
        ([], SkewLevels(0, 0, has_lone_smallest=False, groups=0)),
        ([2], SkewLevels(2, 2, has_lone_smallest=True, groups=1)),
        ([2, 2], SkewLevels(2, 2, has_lone_smallest=False, groups=2)),
        ([0, 3, 1], SkewLevels(0, 3, has_lone_smallest=True, groups=3)),
    ],
)
def test_levels_are_read_off_the_counts(counts: list[int], levels: SkewLevels) -> None:
    assert levels_of(np.array(counts, dtype=np.int64)) == levels


@pytest.mark.parametrize(
    ("counts", "max_skew", "judged"),
    [
        ([0, 0], 1, [(-1, False), (-1, False)]),
        ([1, 0], 1, [(-1000, True), (1, False)]),
        ([1, 0], 2, [(-1, False), (1, False)]),
        ([1, 0, 0], 1, [(-1000, True), (0, False), (0, False)]),
        ([2, 1, 0], 2, [(-1000, True), (0, False), (1, False)]),
    ],
)
def test_scores_the_change_and_forbids_more_than_the_limit(
    counts: list[int], max_skew: int, judged: list[tuple[int, bool]]
) -> None:
    assert _judged(counts, max_skew) == judged


def test_over_the_limit_already_lets_picks_through_that_do_not_make_it_worse() -> None:
    assert _judged([3, 1, 1]) == [(-1000, True), (0, False), (0, False)]
    assert _judged([3, 0]) == [(-1000, True), (1, False)]


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_single_group_has_no_effect(count: int) -> None:
    assert _judged([count]) == [(0, False)]


def test_makes_a_group_of_every_value_eligible_or_not() -> None:
    one = fleet(
        cluster("a", region="east"),
        cluster("b", region="west", not_eligible="noAgent"),
        cluster("c"),
    )
    constraint = TopologySpreadConstraint(topology_key="region")

    (groups,) = STRATEGY.groups(SpreadInput(one, (constraint,), {}))

    assert (groups.values, groups.codes.tolist(), len(groups)) == (
        ("east", "west"),
        [0, 1, -1],
        2,
    )


def test_counts_scheduled_and_bound_bindings_of_the_current_policy_only() -> None:
    one = fleet(*grouped("region", east="a b c", west="d e f"))
    bindings = [
        binding("a", "Scheduled"),
        binding("b", "Bound"),
        binding("c", "Unscheduled"),
        binding("d", "Bound", obsolete=True),
        binding("e", "Bound", deleting=True),
        binding("gone", "Bound"),
    ]
    constraint = TopologySpreadConstraint(topology_key="region")
    (groups,) = STRATEGY.groups(SpreadInput(one, (constraint,), {}))

    assert STRATEGY.starting_counts(
        groups, cycle(one, None, *bindings).placed
    ).tolist() == [2, 0]


def test_a_cluster_without_the_key_goes_first_even_against_a_high_affinity() -> None:
    one = fleet(*grouped("region", east="east-1", west="west-1"), "yak", "zeta")

    decision = decide(one, pick_n(3, spread=[spread("region")]))

    assert [
        (picked.cluster, picked.topology_spread_score) for picked in decision.picked
    ] == [
        ("zeta", 0),
        ("yak", 0),
        ("west-1", -1),
    ]


def test_a_key_that_no_cluster_has_constrains_none() -> None:
    decision = decide(fleet("a", "b"), pick_n(2, spread=[spread("nowhere")]))

    assert decision.picked_names == ("b", "a")
    assert decision.is_fulfilled


def test_scores_of_several_constraints_add_up_hard_ones_too() -> None:
    one = fleet(
        cluster("a", region="east", env="prod"), cluster("b", region="west", env="prod")
    )

    decision = decide(
        one, pick_n(2, spread=[spread("region"), spread("env", hard=False)])
    )

    assert [picked.topology_spread_score for picked in decision.picked] == [-1, 1]


def test_one_broken_hard_constraint_is_enough_to_be_out() -> None:
    one = fleet(
        cluster("a", region="east", env="prod"),
        cluster("b", region="west", env="prod"),
        "c",
    )
    other = one.with_cluster(cluster("c", region="west", env="test"))
    constraints = [spread("region", 9), spread("env")]

    decision = decide(other, pick_n(3, spread=constraints), binding("a"))

    assert decision.picked_names == ("c", "b")


def test_a_broken_soft_constraint_scores_minus_thousand_and_may_still_be_picked() -> (
    None
):
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1"))

    decision = decide(one, pick_n(4, spread=[spread("region", hard=False)]))

    assert [
        (picked.cluster, picked.topology_spread_score) for picked in decision.picked
    ] == [
        ("w1", -1),
        ("e3", 1),
        ("e2", -1),
        ("e1", -1000),
    ]


def test_stops_where_a_hard_constraint_leaves_no_candidate() -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1"))

    decision = decide(one, pick_n(4, spread=[spread("region")]))

    assert decision.picked_names == ("w1", "e3", "e2")
    assert not decision.is_fulfilled
    assert STRATEGY.stops_without_candidate()
