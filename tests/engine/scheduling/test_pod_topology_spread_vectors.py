"""PodTopologySpread as it is today (`rules/other-schedulers.md#kubernetes`).

Vectors with several pods on a node (T2 to T4, T8, T10 to T14) ask the strategy on given counts, since a
placement has a cluster once. In T9 a pod does not match its own selector; there are no selectors here.
"""

from collections.abc import Iterable

import pytest

from fleetui.apimachinery.errors import InvalidManifest
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from tests.builders import Document, cluster, fleet, spread, taint
from tests.engine.scheduling.other_cycles import (
    allowed,
    contenders,
    crowded,
    kubernetes,
    pending,
    picks,
    reason_texts,
    scores,
    zones,
)

# Hard constraints


@pytest.mark.parametrize(
    ("max_skew", "open_to"),
    [
        pytest.param(1, ["b-2"], id="T1"),
        pytest.param(2, ["a-3", "b-2"], id="T1-max-skew-2"),
    ],
)
def test_t1_zones_at_2_1(max_skew: int, open_to: list[str]) -> None:
    decision = schedule(
        kubernetes(zones(a=3, b=2), 4, [spread("zone", max_skew)], "a-1", "a-2", "b-1")
    )

    assert sorted(contenders(decision)) == open_to


BOTH_HARD = [spread("zone"), spread("node")]


def _nodes(zone_of: dict[str, str | None]) -> Cycle:
    members = (
        cluster(node, {"node": node, **({"zone": zone} if zone else {})})
        for node, zone in zone_of.items()
    )
    return kubernetes(fleet(*members), 1, BOTH_HARD)


@pytest.mark.parametrize(
    ("zone_of", "pods", "open_to"),
    [
        pytest.param(
            {"n1": "A", "n2": "A", "n3": "B", "n4": "B"},
            {"n1": 1, "n2": 1, "n3": 1, "n4": 0},
            ["n4"],
            id="T2",
        ),
        pytest.param(
            {"n1": "A", "n2": "A", "n3": "B"}, {"n1": 2, "n2": 1, "n3": 2}, [], id="T3"
        ),
        pytest.param(
            {"n1": None, "n2": "A", "n3": "B"},
            {"n1": 2, "n2": 1, "n3": 2},
            ["n2"],
            id="T4",
        ),
    ],
)
def test_zones_and_nodes_both_hard(
    zone_of: dict[str, str | None], pods: dict[str, int], open_to: list[str]
) -> None:
    cycle = _nodes(zone_of)

    assert allowed(crowded(pods, cycle), cycle) == open_to


def test_t3_the_two_constraints_want_different_nodes() -> None:
    cycle = _nodes({"n1": "A", "n2": "A", "n3": "B"})

    by_zone, by_node = (
        (~verdict.forbids).tolist()
        for verdict in crowded({"n1": 2, "n2": 1, "n3": 2}, cycle).verdicts
    )

    assert (by_zone, by_node) == ([False, False, True], [False, True, False])


def test_t5_a_misspelt_key_is_never_used_and_what_is_placed_there_never_counted() -> (
    None
):
    members = fleet(
        *zones(a=3, b=2).clusters, cluster("t-1", zonee="b"), cluster("t-2", zonee="b")
    )

    decision = schedule(kubernetes(members, 5, [spread("zone")], "a-1", "t-1"))

    assert Replay(decision).step(1).spreads[0].before == {"a": 1, "b": 0}
    assert decision.picked_names == ("b-1", "a-2", "b-2")
    assert reason_texts(schedule(kubernetes(members, 9, [spread("zone")])), "t-2") == [
        "No label zone, which the topology spread requires"
    ]


def test_t6_a_group_above_the_limit_does_not_block_the_others() -> None:
    placed = "z1-1", "z1-2", "z1-3", "z2-1", "z3-1"

    decision = schedule(
        kubernetes(zones(z1=4, z2=2, z3=2), 6, [spread("zone")], *placed)
    )

    assert list(contenders(decision)) == ["z2-2", "z3-2"]
    assert Replay(decision).step(1).spreads[0].after == {"z1": 3, "z2": 2, "z3": 1}


FIVE_DOMAINS = {**spread("zone", 2), "minDomains": 5}


def test_t7_fewer_groups_than_min_domains_make_the_minimum_zero() -> None:
    placed = [f"z{zone}-{number}" for zone in (1, 2, 3) for number in (1, 2)]

    decision = schedule(kubernetes(zones(z1=3, z2=3, z3=3), 7, [FIVE_DOMAINS], *placed))

    assert (decision.picked, pending(decision)) == ((), 1)
    (verdict,) = Replay(decision).candidate(1, "z1-3").constraints
    assert (verdict.count, verdict.smallest, verdict.skew_after) == (2, 0, 3)
    assert reason_texts(decision, "z1-3") == [
        "Step 1: selecting it would make zone=z1 3 vs. minimum 0, as there are fewer than 5 domains"
        " (gap 3 > maxSkew 2)"
    ]


def test_t7_with_enough_groups_or_an_empty_one_the_minimum_is_what_it_is() -> None:
    placed = [f"z{zone}-{number}" for zone in (1, 2, 3) for number in (1, 2)]

    decision = schedule(
        kubernetes(
            zones(z1=4, z2=3, z3=3), 9, [{**FIVE_DOMAINS, "minDomains": 3}], *placed
        )
    )
    empty = schedule(
        kubernetes(zones(z1=3, z2=1), 4, [{**FIVE_DOMAINS, "maxSkew": 1}], "z1-1")
    )

    assert decision.picked_names == ("z1-3", "z1-4", "z2-3")
    assert reason_texts(empty, "z1-2") == [
        "Step 2: selecting it would make zone=z1 2 vs. minimum 0, as there are fewer than 5 domains"
        " (gap 2 > maxSkew 1)"
    ]
    (verdict,) = Replay(empty).candidate(1, "z1-2").constraints
    assert (verdict.smallest, verdict.lacks_domains) == (0, None)


def _fill(nodes: Iterable[str], pods: dict[str, int], replicas: int) -> dict[str, int]:
    """Put one replica after the other on the emptiest node that takes it."""
    members = fleet(*(cluster(node, zone=node) for node in nodes))
    cycle = kubernetes(members, 1, [FIVE_DOMAINS])
    pods = dict.fromkeys(nodes, 0) | pods
    for _ in range(replicas):
        if open_to := allowed(crowded(pods, cycle), cycle):
            pods[min(open_to, key=pods.__getitem__)] += 1
    return pods


def test_t8_six_of_ten_replicas_until_two_more_nodes_come() -> None:
    first = _fill(["n1", "n2", "n3"], {}, 10)
    second = _fill(["n1", "n2", "n3", "n4", "n5"], first, 10 - sum(first.values()))

    assert first == {"n1": 2, "n2": 2, "n3": 2}
    assert second == {"n1": 2, "n2": 2, "n3": 2, "n4": 2, "n5": 2}


@pytest.mark.parametrize("field", ["labelSelector", "matchLabelKeys"])
def test_t9_what_makes_a_pod_not_count_for_itself_is_refused(field: str) -> None:
    with pytest.raises(InvalidManifest) as raised:
        kubernetes(zones(a=3, b=2), 4, [{**spread("zone"), field: {}}])

    assert [error.path for error in raised.value.errors] == [
        f"policy.topologySpreadConstraints[0].{field}"
    ]


def test_t9_so_at_2_1_a_third_in_the_fuller_zone_is_always_one_too_many() -> None:
    decision = schedule(
        kubernetes(zones(a=3, b=1), 4, [spread("zone")], "a-1", "a-2", "b-1")
    )

    assert (decision.picked, pending(decision)) == ((), 1)
    assert reason_texts(decision, "a-3") == [
        "Step 1: selecting it would make zone=a 3 vs. minimum 1 (gap 2 > maxSkew 1)"
    ]


# Soft constraints


def _scores(
    pods: dict[str, int],
    *spreads: Document,
    infeasible: str = "",
    missing_key: str = "",
) -> list[float]:
    members = (
        cluster(node, {} if node in missing_key else {"node": node}) for node in pods
    )
    cycle = kubernetes(fleet(*members), 1, spreads)
    return list(scores(crowded(pods, cycle, infeasible=infeasible), cycle).values())


@pytest.mark.parametrize(
    ("counts", "max_skew", "expected"),
    [
        pytest.param([2, 1, 0, 3], 1, [20, 60, 100, 0], id="T10"),
        pytest.param([2, 1, 0, 3], 2, [33, 66, 100, 16], id="T11"),
        pytest.param([4, 3, 2, 1], 3, [44, 66, 77, 100], id="T12"),
    ],
)
def test_scores_of_nodes(counts: list[int], max_skew: int, expected: list[int]) -> None:
    pods = dict(zip("abcd", counts, strict=True))

    assert _scores(pods, spread("node", max_skew, hard=False)) == expected


def test_t13_an_infeasible_node_neither_scores_nor_makes_a_domain() -> None:
    pods = {"a": 4, "b": 2, "c": 1, "d": 3}

    assert _scores(pods, spread("node", hard=False), infeasible="d") == [33, 83, 100]


def test_t14_a_node_without_the_key_scores_lowest() -> None:
    pods = {"a": 4, "b": 0, "c": 1, "d": 3}

    found = _scores(pods, spread("node", hard=False), infeasible="d", missing_key="b")

    assert found == [16, 0, 100]


def test_t14_a_node_without_the_key_is_still_usable() -> None:
    members = fleet(cluster("a", node="a"), "b")

    assert picks(kubernetes(members, 2, [spread("node", hard=False)])) == ["a", "b"]


def test_t15_zones_at_6_4() -> None:
    taken = [
        *(f"z1-{number}" for number in range(1, 7)),
        *(f"z2-{number}" for number in range(1, 5)),
    ]

    decision = schedule(
        kubernetes(zones(z1=8, z2=5), 11, [spread("zone", hard=False)], *taken)
    )

    found = {
        name: candidate.topology_spread_score
        for name, candidate in contenders(decision).items()
    }
    assert found == {"z2-5": 100, "z1-7": 75, "z1-8": 75}
    assert decision.picked_names == ("z2-5",)


def test_t16_two_soft_constraints_are_added() -> None:
    """a and b lie in zone 1, x and y in zone 2; b and y hold pods and take none."""
    lie = {"a": "1", "b": "1", "x": "2", "y": "2"}
    full = [taint("full")]
    members = (
        cluster(node, node=node, zone=zone, taints=full if node in "by" else [])
        for node, zone in lie.items()
    )
    cycle = kubernetes(
        fleet(*members), 1, [spread("zone", hard=False), spread("node", hard=False)]
    )

    assert scores(crowded({"a": 2, "b": 1, "x": 2, "y": 4}, cycle), cycle) == {
        "a": 100,
        "x": 63,
    }


# Rules that no vector shows


def test_spread_counts_twice_against_preference_and_says_so() -> None:
    decision = schedule(
        kubernetes(zones(a=2, b=1), 2, [spread("zone", hard=False)], "a-1")
    )

    assert decision.picked_names == ("b-1",)
    assert {
        name: candidate.combined for name, candidate in contenders(decision).items()
    } == {
        "b-1": {"score": 200},
        "a-2": {"score": 0},
    }
    assert reason_texts(decision, "a-2") == [
        "Rank 2 in step 1; lost to b-1 on 2 \N{MULTIPLICATION SIGN} spread + affinity (0 vs. 200)"
    ]


def test_without_a_soft_constraint_the_spread_score_is_none() -> None:
    decision = schedule(kubernetes(zones(a=2, b=1), 2, [spread("zone")]))

    assert [picked.topology_spread_score for picked in decision.picked] == [0, 0]
