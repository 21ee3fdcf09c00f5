"""Every worked example of the guides, and the traps of `rules/scheduler.md#traps`, each as a test.

In this order: the guides on affinity, on the placement API and on topology spread; the traps. Fleets on which
schedulers disagree are in `test_disputed_fleets.py`, the nine-cluster demo in `test_demo_of_nine.py`.
"""

from typing import Any

import pytest

from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.model import IntOrPercent
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.round import SpreadScore
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    binding,
    cluster,
    decide,
    expression,
    fleet,
    grouped,
    labelled,
    pick_all,
    pick_fixed,
    pick_n,
    prefer,
    spread,
)

BOTH = pytest.mark.parametrize("semantics", ["fleet", "kubefleet"])

CRITICAL_AND_OTHERS = fleet(
    cluster("k1", system="critical"),
    cluster("k2", system="standard"),
    cluster("k3", system="dev"),
    cluster("k4", region="east"),
)
EAST_AND_WEST = fleet(
    cluster("bravelion", region="east", system="critical"),
    cluster("smartfish", region="east"),
    cluster("jumpingcat", region="west", system="critical"),
    cluster("flyingpenguin", region="west"),
)


def _scores(decision: Decision) -> list[tuple[str, SpreadScore | None]]:
    return [
        (picked.cluster, picked.topology_spread_score) for picked in decision.picked
    ]


# Using affinity to pick clusters


@pytest.mark.parametrize(
    ("term", "picked"),
    [
        (labelled(system="critical"), ("k1",)),
        (expression("system", "In", "critical", "standard"), ("k1", "k2")),
        (expression("system", "Exists"), ("k1", "k2", "k3")),
        (expression("system", "DoesNotExist"), ("k4",)),
        (expression("system", "NotIn", "critical"), ("k2", "k3", "k4")),
    ],
    ids=["matchLabels", "In", "Exists", "DoesNotExist", "NotIn"],
)
def test_affinity_guide_required_terms(
    term: dict[str, Any], picked: tuple[str, ...]
) -> None:
    assert decide(CRITICAL_AND_OTHERS, pick_all(required=[term])).picked_names == picked


def test_affinity_guide_labels_and_expressions_in_one_term() -> None:
    exists = [{"key": "system", "operator": "Exists"}]
    term = {
        "labelSelector": {"matchLabels": {"region": "east"}, "matchExpressions": exists}
    }
    one = fleet(
        cluster("both", region="east", system="x"),
        cluster("east", region="east"),
        cluster("x", system="x"),
    )

    assert decide(one, pick_all(required=[term])).picked_names == ("both",)


def test_affinity_guide_several_terms_are_alternatives() -> None:
    terms = [labelled(region="west"), expression("system", "DoesNotExist")]
    one = fleet(
        cluster("east-any", region="east"),
        cluster("east-x", region="east", system="x"),
        cluster("west-x", region="west", system="x"),
    )

    assert decide(one, pick_all(required=terms)).picked_names == ("east-any", "west-x")


def test_affinity_guide_a_preferred_term_scores_its_weight() -> None:
    one = fleet(cluster("west", region="west"), cluster("x-other"))

    decision = decide(one, pick_n(10, prefer=[prefer(20, labelled(region="west"))]))

    assert [(picked.cluster, picked.affinity_score) for picked in decision.picked] == [
        ("west", 20),
        ("x-other", 0),
    ]


def test_affinity_guide_weights_are_summed_up() -> None:
    one = fleet(
        cluster("west", region="west"),
        cluster("west-prod", region="west", environment="prod"),
    )
    terms = [
        prefer(20, labelled(region="west")),
        prefer(-20, labelled(environment="prod")),
    ]

    decision = decide(one, pick_n(10, prefer=terms))

    assert [(picked.cluster, picked.affinity_score) for picked in decision.picked] == [
        ("west", 20),
        ("west-prod", 0),
    ]


def test_affinity_guide_required_terms_filter_before_preferred_ones_score() -> None:
    one = fleet(
        cluster("system-west", system="a", region="west"),
        cluster("system", system="b"),
        cluster("west", region="west"),
    )
    preference = prefer(20, labelled(region="west"))

    decision = decide(
        one, pick_n(10, required=[expression("system", "Exists")], prefer=[preference])
    )

    picked = [(each.cluster, each.affinity_score) for each in decision.picked]
    assert picked == [("system-west", 20), ("system", 0)]


# Using the ClusterResourcePlacement API


def test_placement_guide_pick_fixed_names_its_clusters() -> None:
    decision = decide(EAST_AND_WEST, pick_fixed("bravelion", "smartfish"))

    assert (decision.picked_names, decision.is_fulfilled) == (
        ("bravelion", "smartfish"),
        True,
    )


def test_placement_guide_pick_all_ignores_clusters_without_the_label() -> None:
    decision = decide(EAST_AND_WEST, pick_all(required=[labelled(system="critical")]))

    assert decision.picked_names == ("bravelion", "jumpingcat")


def test_placement_guide_pick_all_is_forward_looking() -> None:
    policy = pick_all(required=[labelled(system="critical")])
    before = decide(EAST_AND_WEST, policy)

    after = decide(
        EAST_AND_WEST.with_cluster(cluster("late", system="critical")),
        policy,
        *before.bindings_after,
    )

    assert (after.kept, after.picked_names) == (("bravelion", "jumpingcat"), ("late",))


@pytest.mark.parametrize("policy", [None, pick_all()], ids=["no policy", "no affinity"])
def test_placement_guide_without_a_policy_or_affinity_the_whole_fleet_is_picked(
    policy: PlacementPolicy | None,
) -> None:
    assert decide(EAST_AND_WEST, policy).picked_names == EAST_AND_WEST.names


def test_placement_guide_takes_others_only_when_there_are_too_few_preferred_clusters() -> (
    None
):
    level = {"critical-level": "1"}
    one = fleet(cluster("a", level), "b", cluster("c", level), "d")

    decision = decide(one, pick_n(3, prefer=[prefer(20, labelled(**level))]))

    assert decision.picked_names == ("c", "a", "d")


def test_placement_guide_without_terms_names_decide_the_last_one_first() -> None:
    assert decide(EAST_AND_WEST, pick_n(3)).picked_names == (
        "smartfish",
        "jumpingcat",
        "flyingpenguin",
    )


def test_placement_guide_keeps_looking_until_all_are_found_and_then_stops() -> None:
    first = decide(fleet("a"), pick_n(2))
    second = decide(fleet("a", "b"), pick_n(2), *first.bindings_after)
    third = decide(fleet("a", "b", "z"), pick_n(2), *second.bindings_after)

    assert [decision.is_fulfilled for decision in (first, second, third)] == [
        False,
        True,
        True,
    ]
    assert (third.kind, third.kept, third.picked) == (
        CycleKind.NOTHING_TO_DO,
        ("a", "b"),
        (),
    )


def test_placement_guide_scaling_up_scores_only_what_is_not_picked() -> None:
    first = decide(EAST_AND_WEST, pick_n(1))

    second = decide(EAST_AND_WEST, pick_n(3), *first.bindings_after)

    assert (second.kept, second.picked_names) == (
        ("smartfish",),
        ("jumpingcat", "flyingpenguin"),
    )


def test_placement_guide_scaling_down_uses_the_ranking_of_the_time_of_scheduling() -> (
    None
):
    policy = prefer(20, labelled(system="critical"))
    first = decide(EAST_AND_WEST, pick_n(4, prefer=[policy]))
    without_labels = Fleet(Cluster(name) for name in EAST_AND_WEST.names)

    second = decide(without_labels, pick_n(2, prefer=[policy]), *first.bindings_after)

    assert (second.kept, second.unscheduled) == (
        ("bravelion", "jumpingcat"),
        ("flyingpenguin", "smartfish"),
    )


@pytest.mark.parametrize(
    "changed",
    [
        cluster("bravelion"),
        cluster("bravelion", system="critical", not_eligible="unhealthy"),
    ],
    ids=["label removed", "unhealthy"],
)
@pytest.mark.parametrize("number", [None, 2])
def test_placement_guide_a_placed_cluster_that_became_unfit_stays(
    changed: Cluster, number: int | None
) -> None:
    critical = [labelled(system="critical")]
    policy = (
        pick_all(required=critical)
        if number is None
        else pick_n(number, required=critical)
    )
    first = decide(EAST_AND_WEST, policy)

    second = decide(EAST_AND_WEST.with_cluster(changed), policy, *first.bindings_after)

    assert (second.kept, second.picked, second.unscheduled) == (
        ("bravelion", "jumpingcat"),
        (),
        (),
    )


def test_placement_guide_a_cluster_that_leaves_is_replaced() -> None:
    first = decide(EAST_AND_WEST, pick_n(1))

    second = decide(
        EAST_AND_WEST.without("smartfish"), pick_n(1), *first.bindings_after
    )

    assert (second.picked_names, second.unscheduled) == (
        ("jumpingcat",),
        ("smartfish",),
    )


def test_placement_guide_a_quarter_of_ten_clusters_rounds_up_to_three() -> None:
    assert IntOrPercent(25, is_percent=True).of(10) == 3


# Using topology spread constraints


def test_spread_guide_one_label_splits_the_fleet_whatever_the_others_say() -> None:
    one = fleet(
        cluster("bravelion", system="critical", region="east"),
        cluster("smartfish", system="critical", region="west"),
        cluster("jumpingcat", system="normal", region="east"),
    )

    decision = decide(one, pick_n(3, spread=[spread("system", 2)]))

    assert Replay(decision).step(1).spreads[0].before == {"critical": 0, "normal": 0}
    assert _scores(decision) == [
        ("smartfish", -1),
        ("jumpingcat", 1),
        ("bravelion", -1),
    ]


@pytest.mark.parametrize(("placed", "skew"), [(("a1", "a2"), 2), (("a1", "b1"), 0)])
def test_spread_guide_skew_is_the_fullest_group_minus_the_emptiest(
    placed: tuple[str, ...], skew: int
) -> None:
    one = fleet(*grouped("group", a="a1 a2 a3", b="b1 b2"))

    decision = decide(
        one, pick_n(3, spread=[spread("group", 3)]), *map(binding, placed)
    )

    assert Replay(decision).step(1).spreads[0].skew_before == skew


def test_spread_guide_a_key_with_a_single_value_takes_no_effect() -> None:
    one = fleet(*grouped("region", east="a b"), "c")

    decision = decide(one, pick_n(3, spread=[spread("region")]))

    assert _scores(decision) == [("c", 0), ("b", 0), ("a", 0)]


def test_spread_guide_a_cluster_without_the_key_may_still_be_picked() -> None:
    one = fleet(*grouped("region", east="e1 e2", west="w1"), "missing_key")

    decision = decide(one, pick_n(4, spread=[spread("region")]))

    assert _scores(decision) == [("missing_key", 0), ("w1", -1), ("e2", 1), ("e1", -1)]


@BOTH
def test_spread_guide_walk_through(semantics: str) -> None:
    decision = decide(
        EAST_AND_WEST, pick_n(2, spread=[spread("region")]), semantics=semantics
    )

    first, second = (Replay(decision).candidates(number) for number in (1, 2))
    assert [
        (candidate.cluster, candidate.topology_spread_score) for candidate in first
    ] == [
        ("smartfish", -1),
        ("jumpingcat", -1),
        ("flyingpenguin", -1),
        ("bravelion", -1),
    ]
    assert [
        (candidate.cluster, candidate.topology_spread_score)
        for candidate in second
        if candidate.rank
    ] == [
        ("jumpingcat", 1),
        ("flyingpenguin", 1),
    ]
    assert [
        (candidate.cluster, candidate.constraints[0].is_forbidden)
        for candidate in second
        if not candidate.rank
    ] == [("bravelion", True)]
    assert decision.picked_names == ("smartfish", "jumpingcat")


@BOTH
def test_spread_guide_two_constraints_one_of_which_no_cluster_has(
    semantics: str,
) -> None:
    constraints = [spread("region", 2), spread("environment", 3, hard=False)]

    decision = decide(EAST_AND_WEST, pick_n(2, spread=constraints), semantics=semantics)

    assert _scores(decision) == [("smartfish", -1), ("jumpingcat", 1)]


@pytest.mark.parametrize(
    ("semantics", "second"), [("fleet", "jumpingcat"), ("kubefleet", "flyingpenguin")]
)
def test_spread_guide_two_constraints_one_of_which_has_a_single_group(
    semantics: str, second: str
) -> None:
    constraints = [spread("region", 2), spread("system", 3, hard=False)]

    decision = decide(EAST_AND_WEST, pick_n(2, spread=constraints), semantics=semantics)

    assert _scores(decision) == [("smartfish", -1), (second, 1)]


@pytest.mark.parametrize(
    ("hard", "picked"),
    [
        (True, [("w1", -1), ("e3", 1), ("e2", -1)]),
        (False, [("w1", -1), ("e3", 1), ("e2", -1), ("e1", -1000)]),
    ],
)
def test_spread_guide_what_happens_when_all_options_are_exhausted(
    hard: bool, picked: list[tuple[str, int]]
) -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1"))

    decision = decide(one, pick_n(4, spread=[spread("region", hard=hard)]))

    assert _scores(decision) == picked
    assert decision.is_fulfilled is not hard


# Traps (rules/scheduler.md#traps)


def test_trap_a_stale_pick_stays_though_a_fresh_run_would_not_pick_it() -> None:
    one = fleet(cluster("a"), cluster("b", tier="edge"))
    policy = pick_n(1, required=[labelled(tier="edge")])

    placed = decide(one, policy, binding("a"))

    assert (placed.kept, placed.picked) == (("a",), ())
    assert decide(one, policy).picked_names == ("b",)


@pytest.mark.parametrize(
    ("semantics", "picked"), [("fleet", ("w2",)), ("kubefleet", ())]
)
def test_trap_a_constraint_over_its_limit_before_the_first_round(
    semantics: str, picked: tuple[str, ...]
) -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1 w2"))

    decision = decide(
        one,
        pick_n(4, spread=[spread("region")]),
        *map(binding, ("e1", "e2", "e3")),
        semantics=semantics,
    )

    assert decision.picked_names == picked


def test_trap_a_missing_label_wins_against_the_highest_affinity() -> None:
    one = fleet(
        cluster("preferred", region="east", tier="edge"),
        cluster("other", region="west"),
        cluster("missing_key"),
    )

    decision = decide(
        one,
        pick_n(
            1, spread=[spread("region")], prefer=[prefer(100, labelled(tier="edge"))]
        ),
    )

    assert decision.picked_names == ("missing_key",)
