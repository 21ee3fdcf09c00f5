"""Every worked example that the scheduler has to agree with, each as a test.

In this order: the guides on affinity, on the placement API and on topology spread; the traps of
`spec/scheduler.md` 6; the fleets of `spec/other-schedulers.md` 6.2 and 6.3 on which schedulers disagree;
the two examples of `design/ui.md` 0.2. The nine-cluster demo has a file of its own, `test_demo_of_nine.py`.
"""

from collections import Counter
from typing import Any

import pytest

from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.door.amounts import IntOrPercent
from placements.scheduling.fleet import Cluster, Fleet
from placements.scheduling.outcomes import Outcome, Outcomes
from placements.scheduling.policy import PlacementPolicy
from placements.scheduling.reasons import ReasonCode
from placements.scheduling.replay import Replay
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
    taint,
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


def _scores(decision: Decision) -> list[tuple[str, float | None]]:
    return [(one.cluster, one.topology_spread_score) for one in decision.picked]


def _per_group(decision: Decision, key: str) -> dict[str, int]:
    """Count what is placed after the cycle by the value of a label."""
    column = decision.cycle.fleet.label(key)
    positions = [
        decision.cycle.fleet.positions[one.cluster] for one in decision.bindings_after if one.is_active
    ]
    placed = Counter(column.value_at(position) for position in positions)
    return {value: placed[value] for value in column.values}


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
def test_affinity_guide_required_terms(term: dict[str, Any], picked: tuple[str, ...]) -> None:
    assert decide(CRITICAL_AND_OTHERS, pick_all(required=[term])).picked_names == picked


def test_affinity_guide_labels_and_expressions_in_one_term() -> None:
    exists = [{"key": "system", "operator": "Exists"}]
    term = {"labelSelector": {"matchLabels": {"region": "east"}, "matchExpressions": exists}}
    one = fleet(
        cluster("both", region="east", system="x"), cluster("east", region="east"), cluster("x", system="x")
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

    assert [(each.cluster, each.affinity_score) for each in decision.picked] == [("west", 20), ("x-other", 0)]


def test_affinity_guide_weights_are_summed_up() -> None:
    one = fleet(cluster("west", region="west"), cluster("west-prod", region="west", environment="prod"))
    terms = [prefer(20, labelled(region="west")), prefer(-20, labelled(environment="prod"))]

    decision = decide(one, pick_n(10, prefer=terms))

    assert [(each.cluster, each.affinity_score) for each in decision.picked] == [
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

    decision = decide(one, pick_n(10, required=[expression("system", "Exists")], prefer=[preference]))

    picked = [(each.cluster, each.affinity_score) for each in decision.picked]
    assert picked == [("system-west", 20), ("system", 0)]


# Using the ClusterResourcePlacement API


def test_placement_guide_pick_fixed_names_its_clusters() -> None:
    decision = decide(EAST_AND_WEST, pick_fixed("bravelion", "smartfish"))

    assert (decision.picked_names, decision.is_fulfilled) == (("bravelion", "smartfish"), True)


def test_placement_guide_pick_all_ignores_clusters_without_the_label() -> None:
    decision = decide(EAST_AND_WEST, pick_all(required=[labelled(system="critical")]))

    assert decision.picked_names == ("bravelion", "jumpingcat")


def test_placement_guide_pick_all_is_forward_looking() -> None:
    policy = pick_all(required=[labelled(system="critical")])
    before = decide(EAST_AND_WEST, policy)

    after = decide(
        EAST_AND_WEST.with_cluster(cluster("late", system="critical")), policy, *before.bindings_after
    )

    assert (after.kept, after.picked_names) == (("bravelion", "jumpingcat"), ("late",))


@pytest.mark.parametrize("policy", [None, pick_all()], ids=["no policy", "no affinity"])
def test_placement_guide_without_a_policy_or_affinity_the_whole_fleet_is_picked(
    policy: PlacementPolicy | None,
) -> None:
    assert decide(EAST_AND_WEST, policy).picked_names == EAST_AND_WEST.names


def test_placement_guide_takes_others_only_when_there_are_too_few_preferred_clusters() -> None:
    level = {"critical-level": "1"}
    one = fleet(cluster("a", level), "b", cluster("c", level), "d")

    decision = decide(one, pick_n(3, prefer=[prefer(20, labelled(**level))]))

    assert decision.picked_names == ("c", "a", "d")


def test_placement_guide_without_terms_names_decide_the_last_one_first() -> None:
    assert decide(EAST_AND_WEST, pick_n(3)).picked_names == ("smartfish", "jumpingcat", "flyingpenguin")


def test_placement_guide_keeps_looking_until_all_are_found_and_then_stops() -> None:
    first = decide(fleet("a"), pick_n(2))
    second = decide(fleet("a", "b"), pick_n(2), *first.bindings_after)
    third = decide(fleet("a", "b", "z"), pick_n(2), *second.bindings_after)

    assert [each.is_fulfilled for each in (first, second, third)] == [False, True, True]
    assert (third.kind, third.kept, third.picked) == (CycleKind.NOTHING_TO_DO, ("a", "b"), ())


def test_placement_guide_scaling_up_scores_only_what_is_not_picked() -> None:
    first = decide(EAST_AND_WEST, pick_n(1))

    second = decide(EAST_AND_WEST, pick_n(3), *first.bindings_after)

    assert (second.kept, second.picked_names) == (("smartfish",), ("jumpingcat", "flyingpenguin"))


def test_placement_guide_scaling_down_uses_the_ranking_of_the_time_of_scheduling() -> None:
    policy = prefer(20, labelled(system="critical"))
    first = decide(EAST_AND_WEST, pick_n(4, prefer=[policy]))
    without_labels = Fleet(Cluster(name) for name in EAST_AND_WEST.names)

    second = decide(without_labels, pick_n(2, prefer=[policy]), *first.bindings_after)

    assert (second.kept, second.unscheduled) == (("bravelion", "jumpingcat"), ("flyingpenguin", "smartfish"))


@pytest.mark.parametrize(
    "changed",
    [cluster("bravelion"), cluster("bravelion", system="critical", not_eligible="unhealthy")],
    ids=["label removed", "unhealthy"],
)
@pytest.mark.parametrize("number", [None, 2])
def test_placement_guide_a_placed_cluster_that_became_unfit_stays(
    changed: Cluster, number: int | None
) -> None:
    critical = [labelled(system="critical")]
    policy = pick_all(required=critical) if number is None else pick_n(number, required=critical)
    first = decide(EAST_AND_WEST, policy)

    second = decide(EAST_AND_WEST.with_cluster(changed), policy, *first.bindings_after)

    assert (second.kept, second.picked, second.unscheduled) == (("bravelion", "jumpingcat"), (), ())


def test_placement_guide_a_cluster_that_leaves_is_replaced() -> None:
    first = decide(EAST_AND_WEST, pick_n(1))

    second = decide(EAST_AND_WEST.without("smartfish"), pick_n(1), *first.bindings_after)

    assert (second.picked_names, second.unscheduled) == (("jumpingcat",), ("smartfish",))


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
    assert _scores(decision) == [("smartfish", -1), ("jumpingcat", 1), ("bravelion", -1)]


@pytest.mark.parametrize(("placed", "skew"), [(("a1", "a2"), 2), (("a1", "b1"), 0)])
def test_spread_guide_skew_is_the_fullest_group_minus_the_emptiest(
    placed: tuple[str, ...], skew: int
) -> None:
    one = fleet(*grouped("group", a="a1 a2 a3", b="b1 b2"))

    decision = decide(one, pick_n(3, spread=[spread("group", 3)]), *map(binding, placed))

    assert Replay(decision).step(1).spreads[0].skew_before == skew


def test_spread_guide_a_key_with_a_single_value_takes_no_effect() -> None:
    one = fleet(*grouped("region", east="a b"), "c")

    decision = decide(one, pick_n(3, spread=[spread("region")]))

    assert _scores(decision) == [("c", 0), ("b", 0), ("a", 0)]


def test_spread_guide_a_cluster_without_the_key_may_still_be_picked() -> None:
    one = fleet(*grouped("region", east="e1 e2", west="w1"), "keyless")

    decision = decide(one, pick_n(4, spread=[spread("region")]))

    assert _scores(decision) == [("keyless", 0), ("w1", -1), ("e2", 1), ("e1", -1)]


@BOTH
def test_spread_guide_walk_through(semantics: str) -> None:
    decision = decide(EAST_AND_WEST, pick_n(2, spread=[spread("region")]), semantics=semantics)

    first, second = (Replay(decision).candidates(number) for number in (1, 2))
    assert [(one.cluster, one.topology_spread_score) for one in first] == [
        ("smartfish", -1),
        ("jumpingcat", -1),
        ("flyingpenguin", -1),
        ("bravelion", -1),
    ]
    assert [(one.cluster, one.topology_spread_score) for one in second if one.rank] == [
        ("jumpingcat", 1),
        ("flyingpenguin", 1),
    ]
    assert [(one.cluster, one.constraints[0].is_forbidden) for one in second if not one.rank] == [
        ("bravelion", True)
    ]
    assert decision.picked_names == ("smartfish", "jumpingcat")


@BOTH
def test_spread_guide_two_constraints_one_of_which_no_cluster_has(semantics: str) -> None:
    constraints = [spread("region", 2), spread("environment", 3, hard=False)]

    decision = decide(EAST_AND_WEST, pick_n(2, spread=constraints), semantics=semantics)

    assert _scores(decision) == [("smartfish", -1), ("jumpingcat", 1)]


@pytest.mark.parametrize(("semantics", "second"), [("fleet", "jumpingcat"), ("kubefleet", "flyingpenguin")])
def test_spread_guide_two_constraints_one_of_which_has_a_single_group(semantics: str, second: str) -> None:
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


# Traps (spec/scheduler.md 6)


def test_trap_a_stale_pick_stays_though_a_fresh_run_would_not_pick_it() -> None:
    one = fleet(cluster("a"), cluster("b", tier="edge"))
    policy = pick_n(1, required=[labelled(tier="edge")])

    placed = decide(one, policy, binding("a"))

    assert (placed.kept, placed.picked) == (("a",), ())
    assert decide(one, policy).picked_names == ("b",)


@pytest.mark.parametrize(("semantics", "picked"), [("fleet", ("w2",)), ("kubefleet", ())])
def test_trap_a_constraint_over_its_limit_before_the_first_round(
    semantics: str, picked: tuple[str, ...]
) -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1 w2"))

    decision = decide(
        one, pick_n(4, spread=[spread("region")]), *map(binding, ("e1", "e2", "e3")), semantics=semantics
    )

    assert decision.picked_names == picked


def test_trap_a_missing_label_wins_against_the_highest_affinity() -> None:
    one = fleet(
        cluster("preferred", region="east", tier="edge"), cluster("other", region="west"), cluster("keyless")
    )

    decision = decide(one, pick_n(1, spread=[spread("region")], prefer=[prefer(100, labelled(tier="edge"))]))

    assert decision.picked_names == ("keyless",)


# Where documents, code and other schedulers disagree (spec/other-schedulers.md 6.2, 6.3)


@pytest.mark.parametrize(("semantics", "picked"), [("fleet", ("z",)), ("kubefleet", ("a",))])
def test_single_group_documents_and_code_differ(semantics: str, picked: tuple[str, ...]) -> None:
    one = fleet(*grouped("region", east="y z"), "a")

    assert decide(one, pick_n(1, spread=[spread("region")]), semantics=semantics).picked_names == picked


def _zones(**sizes: int) -> list[Cluster]:
    """Make so many clusters per zone, named zone-number."""
    return [
        cluster(f"{zone}-{number + 1}", zone=zone) for zone, size in sizes.items() for number in range(size)
    ]


@pytest.mark.parametrize(
    ("semantics", "picked", "zones"),
    [("fleet", ("z3-4",), {"z1": 3, "z2": 1, "z3": 2}), ("kubefleet", (), {"z1": 3, "z2": 1, "z3": 1})],
)
def test_d1_already_too_uneven(semantics: str, picked: tuple[str, ...], zones: dict[str, int]) -> None:
    placed = map(binding, ("z1-1", "z1-2", "z1-3", "z2-1", "z3-1"))

    decision = decide(
        fleet(*_zones(z1=4, z2=4, z3=4)), pick_n(6, spread=[spread("zone")]), *placed, semantics=semantics
    )

    assert (decision.picked_names, _per_group(decision, "zone")) == (picked, zones)


@BOTH
def test_d2_clusters_without_the_key(semantics: str) -> None:
    one = fleet(*grouped("region", east="east-1", west="west-1"), "yak", "zeta")

    decision = decide(one, pick_n(3, spread=[spread("region")]), semantics=semantics)

    assert _scores(decision) == [("zeta", 0), ("yak", 0), ("west-1", -1)]


def _two_levels() -> Fleet:
    east = [cluster(f"e{zone}{number}", region="east", zone=zone) for zone in "abc" for number in (1, 2)]
    return fleet(*east, *(cluster(f"w{number}", region="west", zone="w") for number in (1, 2, 3)))


@BOTH
def test_d3_two_hard_levels_get_stuck_half_way(semantics: str) -> None:
    decision = decide(
        _two_levels(), pick_n(6, spread=[spread("region"), spread("zone")]), semantics=semantics
    )

    assert (decision.picked_names, decision.is_fulfilled) == (("w3", "ec2", "eb2"), False)


@BOTH
def test_d3_two_soft_levels_fill_both_regions(semantics: str) -> None:
    soft = [spread("region", hard=False), spread("zone", hard=False)]

    decision = decide(_two_levels(), pick_n(6, spread=soft), semantics=semantics)

    assert _per_group(decision, "region") == {"east": 3, "west": 3}
    assert _per_group(decision, "zone") == {"a": 1, "b": 1, "c": 1, "w": 3}


@BOTH
def test_d4_a_middle_group_is_as_good_as_an_empty_one(semantics: str) -> None:
    placed = map(binding, ("c-1", "d-1", "d-2"))
    policy = pick_n(4, spread=[spread("zone", 2, hard=False)])

    decision = decide(fleet(*_zones(a=2, b=2, c=3, d=4)), policy, *placed, semantics=semantics)

    assert _scores(decision) == [("c-3", 0)]
    assert _per_group(decision, "zone") == {"a": 0, "b": 0, "c": 2, "d": 2}


@BOTH
def test_d5_spread_comes_first_whatever_is_preferred(semantics: str) -> None:
    terms = [prefer(100, labelled(zone="a")), prefer(20, labelled(zone="a"))]
    policy = pick_n(9, spread=[spread("zone", hard=False)], prefer=terms)

    decision = decide(fleet(*_zones(a=8, b=8, c=8)), policy, semantics=semantics)

    assert _per_group(decision, "zone") == {"a": 3, "b": 3, "c": 3}


def _with_a_tainted_zone() -> Fleet:
    return fleet(*_zones(z1=3, z2=3), cluster("z3-1", zone="z3", taints=[taint("out-of-order")]))


@BOTH
def test_d6_a_group_without_a_usable_cluster_pins_the_minimum(semantics: str) -> None:
    placed = map(binding, ("z1-1", "z2-1"))

    decision = decide(
        _with_a_tainted_zone(), pick_n(3, spread=[spread("zone")]), *placed, semantics=semantics
    )

    assert (decision.picked, decision.is_fulfilled) == ((), False)


@pytest.mark.parametrize(("semantics", "picked"), [("fleet", ("z2-3",)), ("kubefleet", ())])
def test_d6_variant_already_over_the_limit(semantics: str, picked: tuple[str, ...]) -> None:
    placed = map(binding, ("z1-1", "z1-2", "z2-1"))

    decision = decide(
        _with_a_tainted_zone(), pick_n(4, spread=[spread("zone")]), *placed, semantics=semantics
    )

    assert decision.picked_names == picked


@BOTH
def test_d7_greedy_dead_end(semantics: str) -> None:
    one = fleet(
        cluster("m", x="x1", y="y1", best="yes"), cluster("a", x="x1", y="y2"), cluster("z", x="x2", y="y1")
    )
    policy = pick_n(2, spread=[spread("x"), spread("y")], prefer=[prefer(10, labelled(best="yes"))])

    decision = decide(one, policy, semantics=semantics)

    assert (decision.picked_names, decision.is_fulfilled) == (("m",), False)


@BOTH
@pytest.mark.parametrize(
    ("sizes", "number", "hard", "zones"),
    [
        ({"a": 3, "b": 3}, 4, True, {"a": 2, "b": 2}),
        ({"a": 3, "b": 3}, 4, False, {"a": 2, "b": 2}),
        ({"a": 3, "b": 1, "c": 3}, 5, True, {"a": 2, "b": 1, "c": 2}),
        ({"a": 1, "b": 4, "c": 4}, 5, True, {"a": 1, "b": 2, "c": 2}),
    ],
)
def test_d8_where_all_agree(
    sizes: dict[str, int], number: int, hard: bool, zones: dict[str, int], semantics: str
) -> None:
    decision = decide(
        fleet(*_zones(**sizes)), pick_n(number, spread=[spread("zone", hard=hard)]), semantics=semantics
    )

    assert (_per_group(decision, "zone"), decision.is_fulfilled) == (zones, True)


@BOTH
@pytest.mark.parametrize(
    ("placed", "scores"),
    [
        (("z1-1", "z2-1", "z3-1"), {"z1-3": -1, "z2-3": -1}),
        (("z1-1", "z1-2", "z2-1", "z3-1"), {"z2-3": 0}),
    ],
    ids=["K10", "K11"],
)
def test_d8_vectors_of_kubernetes_on_which_all_agree(
    placed: tuple[str, ...], scores: dict[str, int], semantics: str
) -> None:
    policy = pick_n(len(placed) + 1, spread=[spread("zone")])

    decision = decide(_with_a_tainted_zone(), policy, *map(binding, placed), semantics=semantics)

    candidates = Replay(decision).candidates(1)
    assert {
        one.cluster: one.topology_spread_score
        for one in candidates
        if one.rank and one.cluster.endswith("-3")
    } == scores


# Two worked examples (design/ui.md 0.2)


PINNED = (
    *(cluster(name, region="east", env="prod") for name in ("e1", "e2")),
    *(cluster(name, region="west", env="prod") for name in ("w1", "w2")),
)
SOUTH = cluster("s1", region="south", env="canary")


def _four_of_prod(max_skew: int = 1, *, hard: bool = True) -> PlacementPolicy:
    return pick_n(4, required=[labelled(env="prod")], spread=[spread("region", max_skew, hard=hard)])


@BOTH
def test_pinned_group_stops_after_one_west_and_one_east(semantics: str) -> None:
    decision = decide(fleet(*PINNED, SOUTH), _four_of_prod(), semantics=semantics)

    outcome = Outcomes(decision).of("w1")
    reason = outcome.reasons[0]
    assert (_scores(decision), decision.is_fulfilled) == ([("w2", -1), ("e2", 0)], False)
    assert (outcome.outcome, reason.code) == (Outcome.FILTERED, ReasonCode.TOPOLOGY_SPREAD)
    assert (reason.facts["count"], reason.facts["smallest"], reason.facts["skewAfter"]) == (1, 0, 2)


@BOTH
@pytest.mark.parametrize(
    ("one", "policy"),
    [
        (fleet(*PINNED, SOUTH), _four_of_prod(2)),
        (fleet(*PINNED, SOUTH), _four_of_prod(hard=False)),
        (fleet(*PINNED, SOUTH, cluster("s2", region="south", env="prod")), _four_of_prod()),
        (fleet(*PINNED), _four_of_prod()),
        (fleet(*PINNED, cluster("s1", env="canary")), _four_of_prod()),
    ],
    ids=[
        "max skew 2",
        "ScheduleAnyway",
        "an eligible cluster in south",
        "south leaves",
        "south loses its label",
    ],
)
def test_pinned_group_is_freed_by_each_of_the_ways_out(
    one: Fleet, policy: PlacementPolicy, semantics: str
) -> None:
    decision = decide(one, policy, semantics=semantics)

    assert (len(decision.picked), decision.is_fulfilled) == (4, True)


CROSSED = [("c0", "r0", "e0"), ("c1", "r2", "e0"), ("c2", "r2", "e1"), ("c3", "r0", "e1"), ("c4", "r0", "e1")]


@BOTH
def test_greedy_dead_end_stops_at_three_of_four(semantics: str) -> None:
    one = fleet(*(cluster(name, region=region, env=env) for name, region, env in CROSSED))

    decision = decide(one, pick_n(4, spread=[spread("region"), spread("env")]), semantics=semantics)

    assert (_scores(decision), decision.is_fulfilled) == ([("c4", -2), ("c1", 2), ("c3", -2)], False)


def test_greedy_dead_end_although_a_set_of_four_exists() -> None:
    one = fleet(*(cluster(name, region=region, env=env) for name, region, env in CROSSED))

    placed = decide(one, pick_n(4), *map(binding, ("c0", "c1", "c2", "c3")))

    assert _per_group(placed, "region") == {"r0": 2, "r2": 2}
    assert _per_group(placed, "env") == {"e0": 2, "e1": 2}
