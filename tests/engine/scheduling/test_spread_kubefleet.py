"""Spread under `kubefleet`: what the released scheduler does (`rules/scheduler.md#topology-spread`)."""

import numpy as np
import pytest

from placements.engine.scheduling.spread.base import SkewAfterPick, levels_of
from placements.engine.scheduling.spread.fleet import KubeFleetSpread
from placements.manifests.policy import TopologySpreadConstraint, WhenUnsatisfiable
from tests.builders import binding, decide, fleet, grouped, pick_n, spread

STRATEGY = KubeFleetSpread()


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
    ("counts", "max_skew", "judged"),
    [
        ([0, 0], 1, [(-1, False), (-1, False)]),
        ([1, 0], 1, [(-1000, True), (1, False)]),
        ([1, 0], 2, [(-1, False), (1, False)]),
        ([1, 0, 0], 1, [(-1000, True), (0, False), (0, False)]),
        ([2, 1, 0], 2, [(-1000, True), (0, False), (1, False)]),
    ],
)
def test_within_the_limit_it_judges_as_the_guides_say(
    counts: list[int], max_skew: int, judged: list[tuple[int, bool]]
) -> None:
    assert _judged(counts, max_skew) == judged


def test_over_the_limit_already_every_pick_breaks_it_even_one_that_helps() -> None:
    assert _judged([3, 1, 1]) == [(-1000, True)] * 3
    assert _judged([3, 0]) == [(-1000, True)] * 2
    assert _judged([2, 0]) == [(-1000, True), (1, False)]


@pytest.mark.parametrize("count", [0, 1, 7])
def test_a_single_group_scores_minus_one_and_never_breaks_the_limit(count: int) -> None:
    assert _judged([count]) == [(-1, False)]


def test_in_a_single_group_clusters_without_the_key_go_first() -> None:
    one = fleet(*grouped("region", east="z"), "a")

    assert decide(
        one, pick_n(1, spread=[spread("region")]), semantics="kubefleet"
    ).picked_names == ("a",)
    assert decide(
        one, pick_n(1, spread=[spread("region")]), semantics="fleet"
    ).picked_names == ("z",)


def test_a_hard_constraint_over_its_limit_blocks_every_group() -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1 w2"))
    placed = [binding(name) for name in ("e1", "e2", "e3", "w1")]

    assert decide(
        one, pick_n(5, spread=[spread("region")]), *placed, semantics="kubefleet"
    ).picked_names == ("w2",)
    assert (
        decide(
            one,
            pick_n(4, spread=[spread("region")]),
            *placed[:3],
            semantics="kubefleet",
        ).picked_names
        == ()
    )


def test_a_cluster_without_the_key_is_never_blocked() -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1"), "missing_key")
    placed = [binding(name) for name in ("e1", "e2", "e3")]

    decision = decide(
        one, pick_n(5, spread=[spread("region")]), *placed, semantics="kubefleet"
    )

    assert decision.picked_names == ("missing_key",)


def test_the_first_round_unschedules_other_obsolete_bindings_even_when_it_picks_none() -> (
    None
):
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1"))
    placed = [binding("e1"), binding("e2"), binding("e3"), binding("w1", obsolete=True)]

    decision = decide(
        one, pick_n(4, spread=[spread("region")]), *placed, semantics="kubefleet"
    )

    assert (decision.picked_names, decision.unscheduled) == ((), ("w1",))


def test_a_later_round_takes_up_again_what_the_first_one_unscheduled() -> None:
    one = fleet(*grouped("region", east="e1", west="w1"))
    obsolete = [
        binding("e1", "Bound", obsolete=True),
        binding("w1", "Scheduled", obsolete=True),
    ]

    decision = decide(
        one, pick_n(2, spread=[spread("region")]), *obsolete, semantics="kubefleet"
    )

    assert decision.picked_names == ("w1", "e1")
    assert [
        str(placed_binding.state) for placed_binding in decision.bindings_after
    ] == ["Bound", "Scheduled"]
    assert decision.unscheduled == ()
