"""Fleets on which documents, code and other schedulers disagree, under the two readings of Fleet's rules.

The fleets are those of `rules/other-schedulers.md#fleets-on-which-the-rules-differ`, with two examples more.
The same fleets under `ocm` and `kubernetes`, and where all four agree: `test_disputed_fleets_elsewhere.py`.
"""

from collections import Counter

import pytest

from clusters.fleet import Cluster, Fleet
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.round import SpreadScore
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    binding,
    cluster,
    decide,
    fleet,
    grouped,
    labelled,
    pick_n,
    prefer,
    spread,
    taint,
)

BOTH = pytest.mark.parametrize("semantics", ["fleet", "kubefleet"])


def _scores(decision: Decision) -> list[tuple[str, SpreadScore | None]]:
    return [
        (picked.cluster, picked.topology_spread_score) for picked in decision.picked
    ]


def _per_group(decision: Decision, key: str) -> dict[str, int]:
    """Count what is placed after the cycle by the value of a label."""
    column = decision.cycle.fleet.label(key)
    positions = [
        decision.cycle.fleet.positions[placed_binding.cluster]
        for placed_binding in decision.bindings_after
        if placed_binding.is_active
    ]
    placed = Counter(column.value_at(position) for position in positions)
    return {value: placed[value] for value in column.values}


# Where documents, code and other schedulers disagree


@pytest.mark.parametrize(
    ("semantics", "picked"), [("fleet", ("z",)), ("kubefleet", ("a",))]
)
def test_single_group_documents_and_code_differ(
    semantics: str, picked: tuple[str, ...]
) -> None:
    one = fleet(*grouped("region", east="y z"), "a")

    assert (
        decide(
            one, pick_n(1, spread=[spread("region")]), semantics=semantics
        ).picked_names
        == picked
    )


def _zones(**sizes: int) -> list[Cluster]:
    """Make so many clusters per zone, named zone-number."""
    return [
        cluster(f"{zone}-{number + 1}", zone=zone)
        for zone, size in sizes.items()
        for number in range(size)
    ]


@pytest.mark.parametrize(
    ("semantics", "picked", "zones"),
    [
        ("fleet", ("z3-4",), {"z1": 3, "z2": 1, "z3": 2}),
        ("kubefleet", (), {"z1": 3, "z2": 1, "z3": 1}),
    ],
)
def test_d1_already_too_uneven(
    semantics: str, picked: tuple[str, ...], zones: dict[str, int]
) -> None:
    placed = map(binding, ("z1-1", "z1-2", "z1-3", "z2-1", "z3-1"))

    decision = decide(
        fleet(*_zones(z1=4, z2=4, z3=4)),
        pick_n(6, spread=[spread("zone")]),
        *placed,
        semantics=semantics,
    )

    assert (decision.picked_names, _per_group(decision, "zone")) == (picked, zones)


@BOTH
def test_d2_clusters_without_the_key(semantics: str) -> None:
    one = fleet(*grouped("region", east="east-1", west="west-1"), "yak", "zeta")

    decision = decide(one, pick_n(3, spread=[spread("region")]), semantics=semantics)

    assert _scores(decision) == [("zeta", 0), ("yak", 0), ("west-1", -1)]


def _two_levels() -> Fleet:
    east = [
        cluster(f"e{zone}{number}", region="east", zone=zone)
        for zone in "abc"
        for number in (1, 2)
    ]
    return fleet(
        *east, *(cluster(f"w{number}", region="west", zone="w") for number in (1, 2, 3))
    )


@BOTH
def test_d3_two_hard_levels_get_stuck_half_way(semantics: str) -> None:
    decision = decide(
        _two_levels(),
        pick_n(6, spread=[spread("region"), spread("zone")]),
        semantics=semantics,
    )

    assert (decision.picked_names, decision.is_fulfilled) == (
        ("w3", "ec2", "eb2"),
        False,
    )


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

    decision = decide(
        fleet(*_zones(a=2, b=2, c=3, d=4)), policy, *placed, semantics=semantics
    )

    assert _scores(decision) == [("c-3", 0)]
    assert _per_group(decision, "zone") == {"a": 0, "b": 0, "c": 2, "d": 2}


@BOTH
def test_d5_spread_comes_first_whatever_is_preferred(semantics: str) -> None:
    terms = [prefer(100, labelled(zone="a")), prefer(20, labelled(zone="a"))]
    policy = pick_n(9, spread=[spread("zone", hard=False)], prefer=terms)

    decision = decide(fleet(*_zones(a=8, b=8, c=8)), policy, semantics=semantics)

    assert _per_group(decision, "zone") == {"a": 3, "b": 3, "c": 3}


def _with_a_tainted_zone() -> Fleet:
    return fleet(
        *_zones(z1=3, z2=3), cluster("z3-1", zone="z3", taints=[taint("out-of-order")])
    )


@BOTH
def test_d6_a_group_without_a_usable_cluster_pins_the_minimum(semantics: str) -> None:
    placed = map(binding, ("z1-1", "z2-1"))

    decision = decide(
        _with_a_tainted_zone(),
        pick_n(3, spread=[spread("zone")]),
        *placed,
        semantics=semantics,
    )

    assert (decision.picked, decision.is_fulfilled) == ((), False)


@pytest.mark.parametrize(
    ("semantics", "picked"), [("fleet", ("z2-3",)), ("kubefleet", ())]
)
def test_d6_variant_already_over_the_limit(
    semantics: str, picked: tuple[str, ...]
) -> None:
    placed = map(binding, ("z1-1", "z1-2", "z2-1"))

    decision = decide(
        _with_a_tainted_zone(),
        pick_n(4, spread=[spread("zone")]),
        *placed,
        semantics=semantics,
    )

    assert decision.picked_names == picked


@BOTH
def test_d7_greedy_dead_end(semantics: str) -> None:
    one = fleet(
        cluster("m", x="x1", y="y1", best="yes"),
        cluster("a", x="x1", y="y2"),
        cluster("z", x="x2", y="y1"),
    )
    policy = pick_n(
        2, spread=[spread("x"), spread("y")], prefer=[prefer(10, labelled(best="yes"))]
    )

    decision = decide(one, policy, semantics=semantics)

    assert (decision.picked_names, decision.is_fulfilled) == (("m",), False)


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

    decision = decide(
        _with_a_tainted_zone(), policy, *map(binding, placed), semantics=semantics
    )

    candidates = Replay(decision).candidates(1)
    assert {
        candidate.cluster: candidate.topology_spread_score
        for candidate in candidates
        if candidate.rank and candidate.cluster.endswith("-3")
    } == scores


# Two worked examples


PINNED = (
    *(cluster(name, region="east", env="prod") for name in ("e1", "e2")),
    *(cluster(name, region="west", env="prod") for name in ("w1", "w2")),
)
SOUTH = cluster("s1", region="south", env="canary")


def _four_of_prod(max_skew: int = 1, *, hard: bool = True) -> PlacementPolicy:
    return pick_n(
        4,
        required=[labelled(env="prod")],
        spread=[spread("region", max_skew, hard=hard)],
    )


@BOTH
def test_pinned_group_stops_after_one_west_and_one_east(semantics: str) -> None:
    decision = decide(fleet(*PINNED, SOUTH), _four_of_prod(), semantics=semantics)

    outcome = Outcomes(decision).of("w1")
    reason = outcome.reasons[0]
    assert (_scores(decision), decision.is_fulfilled) == (
        [("w2", -1), ("e2", 0)],
        False,
    )
    assert (outcome.outcome, reason.code) == (
        Outcome.FILTERED,
        ReasonCode.TOPOLOGY_SPREAD,
    )
    assert (
        reason.facts["count"],
        reason.facts["smallest"],
        reason.facts["skewAfter"],
    ) == (1, 0, 2)


@BOTH
@pytest.mark.parametrize(
    ("one", "policy"),
    [
        (fleet(*PINNED, SOUTH), _four_of_prod(2)),
        (fleet(*PINNED, SOUTH), _four_of_prod(hard=False)),
        (
            fleet(*PINNED, SOUTH, cluster("s2", region="south", env="prod")),
            _four_of_prod(),
        ),
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


CROSSED = [
    ("c0", "r0", "e0"),
    ("c1", "r2", "e0"),
    ("c2", "r2", "e1"),
    ("c3", "r0", "e1"),
    ("c4", "r0", "e1"),
]


@BOTH
def test_greedy_dead_end_stops_at_three_of_four(semantics: str) -> None:
    one = fleet(
        *(cluster(name, region=region, env=env) for name, region, env in CROSSED)
    )

    decision = decide(
        one, pick_n(4, spread=[spread("region"), spread("env")]), semantics=semantics
    )

    assert (_scores(decision), decision.is_fulfilled) == (
        [("c4", -2), ("c1", 2), ("c3", -2)],
        False,
    )


def test_greedy_dead_end_although_a_set_of_four_exists() -> None:
    one = fleet(
        *(cluster(name, region=region, env=env) for name, region, env in CROSSED)
    )

    placed = decide(one, pick_n(4), *map(binding, ("c0", "c1", "c2", "c3")))

    assert _per_group(placed, "region") == {"r0": 2, "r2": 2}
    assert _per_group(placed, "env") == {"e0": 2, "e1": 2}
