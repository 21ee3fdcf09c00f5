"""Every example of KEP-895 with the answer it gives, by `rules/other-schedulers.md#kubernetes`.

Clusters are nodes and bindings pods. Where the KEP puts several pods on one node (K6, K13) a placement
cannot follow; there the strategy is called on the counts. Two formulas of the KEP were replaced since, which
changes none of its answers: its pseudo-code tests `matching − min < maxSkew`, which is the same test
for a pod that matches itself, and its soft score was `matching − min − maxSkew`, lower being better. The soft
columns assert today's normalised scores as well.
"""

import pytest

from clusters.fleet import Cluster, Fleet
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.round import SpreadScore
from placements.engine.scheduling.scheduler import schedule
from tests.builders import Document, cluster, expression, fleet, spread, taint
from tests.engine.scheduling.other_cycles import (
    allowed,
    contenders,
    crowded,
    kubernetes,
    numbered,
    pending,
    per_group,
    reason_texts,
    scores,
    zones,
)

OUT_OF_ORDER = taint("out-of-order")


def _state(counts: list[int], *, infeasible: bool = False) -> tuple[Fleet, list[str]]:
    """Make zones z1, z2, … with so many placed clusters and one free; return the placed ones as well.

    `infeasible` taints all of the last zone.
    """
    clusters: list[Cluster] = []
    placed = []
    for zone, count in enumerate(counts, start=1):
        taints = [OUT_OF_ORDER] if infeasible and zone == len(counts) else []
        names = [f"z{zone}-{number}" for number in range(1, count + 2)]
        clusters += (cluster(name, zone=f"z{zone}", taints=taints) for name in names)
        placed += names[:-1]
    return fleet(*clusters), placed


def _one_more(
    counts: list[int],
    *,
    max_skew: int = 1,
    hard: bool = True,
    infeasible: bool = False,
    **policies: str,
) -> Decision:
    members, placed = _state(counts, infeasible=infeasible)
    constraint = {**spread("zone", max_skew, hard=hard), **policies}
    return schedule(kubernetes(members, len(placed) + 1, [constraint], *placed))


def _open_zones(decision: Decision) -> list[str]:
    """List the zones that one more may go to."""
    return sorted(name.partition("-")[0] for name in contenders(decision))


def _score_of(decision: Decision) -> dict[str, SpreadScore | None]:
    """Return the normalised score of each zone that one more may go to, best first."""
    found = contenders(decision).items()
    return {
        name.partition("-")[0]: candidate.topology_spread_score
        for name, candidate in found
    }


# K1 to K3: how skew is calculated and enforced


@pytest.mark.parametrize(
    ("max_skew", "open_to"),
    [
        pytest.param(1, ["z3"], id="K1-hard"),
        pytest.param(2, ["z1", "z2", "z3"], id="K2-hard"),
    ],
)
def test_hard_zones_at_1_1_0(max_skew: int, open_to: list[str]) -> None:
    decision = _one_more([1, 1, 0], max_skew=max_skew)

    assert _open_zones(decision) == open_to
    assert decision.is_fulfilled


def test_k1_hard_it_becomes_1_1_1_and_the_others_would_reach_two() -> None:
    decision = _one_more([1, 1, 0])

    assert (decision.picked_names, per_group(decision, "zone")) == (
        ("z3-1",),
        {"z1": 1, "z2": 1, "z3": 1},
    )
    verdicts = [
        Replay(decision).candidate(1, name).constraints[0]
        for name in ("z1-2", "z2-2", "z3-1")
    ]
    assert [(verdict.skew_after, verdict.is_forbidden) for verdict in verdicts] == [
        (2, True),
        (2, True),
        (1, False),
    ]


@pytest.mark.parametrize(
    "max_skew", [pytest.param(1, id="K1-soft"), pytest.param(2, id="K2-soft")]
)
def test_soft_at_1_1_0_the_empty_zone_is_first(max_skew: int) -> None:
    decision = _one_more([1, 1, 0], max_skew=max_skew, hard=False)

    assert decision.picked_names == ("z3-1",)
    normalised = {1: {"z3": 100, "z1": 0, "z2": 0}, 2: {"z3": 100, "z1": 33, "z2": 33}}
    assert _score_of(decision) == normalised[max_skew]


@pytest.mark.parametrize(
    ("counts", "skews"),
    [
        pytest.param([1, 1, 0], [1, 1, 0], id="K1"),
        pytest.param([3, 2, 1], [2, 1, 0], id="K3"),
    ],
)
def test_actual_skews(counts: list[int], skews: list[int]) -> None:
    """The KEP's ActualSkew of a zone is its count minus the smallest one."""
    decision = _one_more(counts)

    names = (f"z{zone}-{count + 1}" for zone, count in enumerate(counts, start=1))
    verdicts = [Replay(decision).candidate(1, name).constraints[0] for name in names]
    assert [
        verdict.count - verdict.smallest
        for verdict in verdicts
        if verdict.count is not None
    ] == skews


# K4: node affinity restricts the zones that count


TEN_ZONES = zones({f"zone{number:02}": 3 for number in range(1, 11)})
TWO_OF_TEN = expression("zone", "In", "zone01", "zone02")


@pytest.mark.parametrize(
    "hard", [pytest.param(True, id="K4-hard"), pytest.param(False, id="K4-soft")]
)
def test_k4_only_the_zones_that_affinity_chooses_count(hard: bool) -> None:
    cycle = kubernetes(TEN_ZONES, 4, [spread("zone", hard=hard)], required=[TWO_OF_TEN])

    decision = schedule(cycle)

    assert decision.picked_names == ("zone01-1", "zone02-1", "zone01-2", "zone02-2")
    assert Replay(decision).step(1).spreads[0].before == {"zone01": 0, "zone02": 0}
    assert reason_texts(decision, "zone03-1") == [
        "Does not match required affinity: zone=zone03, required zone01 or zone02"
    ]


def test_k4_with_the_affinity_policy_ignore_the_other_zones_pin_the_minimum() -> None:
    constraint = {**spread("zone"), "nodeAffinityPolicy": "Ignore"}

    decision = schedule(kubernetes(TEN_ZONES, 4, [constraint], required=[TWO_OF_TEN]))

    assert (decision.picked_names, pending(decision)) == (("zone01-1", "zone02-1"), 2)
    assert len(Replay(decision).step(1).spreads[0].before) == 10


# K5: the chicken and the egg


@pytest.mark.parametrize(
    "hard", [pytest.param(True, id="K5-hard"), pytest.param(False, id="K5-soft")]
)
def test_k5_the_first_pod_may_go_anywhere(hard: bool) -> None:
    decision = _one_more([0, 0, 0], hard=hard)

    assert _open_zones(decision) == ["z1", "z2", "z3"]
    assert set(_score_of(decision).values()) == {0 if hard else 100}


# K6: the table of three zones with seven nodes


PODS = {"1a": 1, "1b": 2, "1c": 0, "2a": 2, "2b": 0, "2c": 0, "3a": 1}
NODES = fleet(
    *(
        cluster(f"node{name}", zone=f"zone{name[0]}", node=f"node{name}")
        for name in PODS
    )
)
ON_NODES = {f"node{name}": pods for name, pods in PODS.items()}


@pytest.mark.parametrize(
    ("key", "open_to"),
    [
        pytest.param("zone", ["node3a"], id="K6a-hard"),
        pytest.param("node", ["node1c", "node2b", "node2c"], id="K6b-hard"),
    ],
)
def test_k6_hard(key: str, open_to: list[str]) -> None:
    cycle = kubernetes(NODES, 1, [spread(key)])

    assert allowed(crowded(ON_NODES, cycle), cycle) == open_to


@pytest.mark.parametrize(
    ("key", "first"),
    [
        pytest.param("zone", {"node3a"}, id="K6a-soft"),
        pytest.param("node", {"node1c", "node2b", "node2c"}, id="K6b-soft"),
    ],
)
def test_k6_soft(key: str, first: set[str]) -> None:
    cycle = kubernetes(NODES, 1, [spread(key, hard=False)])

    found = scores(crowded(ON_NODES, cycle), cycle)

    assert {
        name for name, score in found.items() if score == max(found.values())
    } == first


def test_k6a_as_a_placement_says_why_the_fuller_zones_are_closed() -> None:
    decision = _one_more([3, 2, 1])

    assert _open_zones(decision) == ["z3"]
    again = schedule(
        kubernetes(decision.cycle.fleet, 8, [spread("zone")], *_state([3, 2, 1])[1])
    )
    assert reason_texts(again, "z1-4") == [
        "Step 2: selecting it would make zone=z1 4 vs. minimum 2 (gap 2 > maxSkew 1)"
    ]


# K7 to K11: a zone without a usable node, ~so many~ placed in it


@pytest.mark.parametrize(
    ("counts", "open_to"),
    [
        pytest.param([3, 3, 0], [], id="K7-hard"),
        pytest.param([1, 1, 0], [], id="K8-hard"),
        pytest.param([2, 1, 0], [], id="K9-hard"),
        pytest.param([1, 1, 1], ["z1", "z2"], id="K10-hard"),
        pytest.param([2, 1, 1], ["z2"], id="K11-hard"),
    ],
)
def test_hard_with_an_infeasible_zone(counts: list[int], open_to: list[str]) -> None:
    decision = _one_more(counts, infeasible=True)

    assert _open_zones(decision) == open_to
    assert pending(decision) == (0 if open_to else 1)


@pytest.mark.parametrize(
    ("counts", "normalised"),
    [
        pytest.param([3, 3, 0], {"z1": 100, "z2": 100}, id="K7-soft"),
        pytest.param([1, 1, 0], {"z1": 100, "z2": 100}, id="K8-soft"),
        pytest.param([2, 1, 0], {"z2": 100, "z1": 33}, id="K9-soft"),
        pytest.param([1, 1, 1], {"z1": 100, "z2": 100}, id="K10-soft"),
        pytest.param([2, 1, 1], {"z2": 100, "z1": 33}, id="K11-soft"),
    ],
)
def test_soft_with_an_infeasible_zone(
    counts: list[int], normalised: dict[str, int]
) -> None:
    decision = _one_more(counts, hard=False, infeasible=True)

    assert list(_score_of(decision).items()) == list(normalised.items())
    assert decision.picked_names[0].startswith(next(iter(normalised)))


@pytest.mark.parametrize(
    ("counts", "open_to"),
    [
        pytest.param([3, 3, 0], ["z1", "z2"], id="K7-Honor"),
        pytest.param([1, 1, 0], ["z1", "z2"], id="K8-Honor"),
        pytest.param([2, 1, 0], ["z2"], id="K9-Honor"),
        pytest.param([1, 1, 1], ["z1", "z2"], id="K10-Honor"),
        pytest.param([2, 1, 1], ["z2"], id="K11-Honor"),
    ],
)
def test_honor_takes_a_tainted_zone_out_of_the_minimum(
    counts: list[int], open_to: list[str]
) -> None:
    """The specification's addition: the KEP knows no taints policy, and Ignore is the default since."""
    decision = _one_more(counts, infeasible=True, nodeTaintsPolicy="Honor")

    assert _open_zones(decision) == open_to
    assert set(Replay(decision).step(1).spreads[0].before) == {"z1", "z2"}


def test_k7_hard_says_that_the_unusable_zone_holds_the_minimum_at_none() -> None:
    decision = _one_more([3, 3, 0], infeasible=True)

    assert reason_texts(decision, "z1-4") == [
        "Step 1: selecting it would make zone=z1 4 vs. minimum 0 (gap 4 > maxSkew 1)"
    ]
    assert reason_texts(decision, "z3-1") == ["Untolerated taint: out-of-order"]


def test_k9_honor_says_what_the_rest_is_measured_by() -> None:
    members, placed = _state([2, 1, 0], infeasible=True)
    constraint = {**spread("zone"), "nodeTaintsPolicy": "Honor"}

    decision = schedule(kubernetes(members, 5, [constraint], *placed))

    assert (decision.picked_names, pending(decision)) == (("z2-2", "z1-3"), 0)
    assert reason_texts(
        _one_more([2, 1, 0], infeasible=True, nodeTaintsPolicy="Honor"), "z1-3"
    ) == ["Step 1: selecting it would make zone=z1 3 vs. minimum 1 (gap 2 > maxSkew 1)"]


@pytest.mark.parametrize(
    ("policies", "open_to"),
    [({}, []), ({"nodeTaintsPolicy": "Honor"}, ["z1-2", "z2-2"])],
    ids=["Ignore", "Honor"],
)
def test_k8_with_a_zone_that_is_not_eligible_is_as_with_a_taint(
    policies: Document, open_to: list[str]
) -> None:
    members = fleet(
        *zones(z1=2, z2=2).clusters,
        cluster("z3-1", zone="z3", not_eligible="unhealthy"),
    )

    decision = schedule(
        kubernetes(members, 3, [{**spread("zone"), **policies}], "z1-1", "z2-1")
    )

    assert list(contenders(decision)) == open_to


# K12: when the check is enforced


def test_k12_what_became_uneven_later_is_not_moved() -> None:
    members = fleet(
        *zones(z1=4).clusters, cluster("z2-1", zone="z2", taints=[OUT_OF_ORDER])
    )
    placed = "z1-1", "z1-2", "z1-3", "z2-1"

    decision = schedule(kubernetes(members, 4, [spread("zone")], *placed))

    assert (decision.kind, decision.kept, decision.unscheduled) == (
        CycleKind.NOTHING_TO_DO,
        placed,
        (),
    )


def test_k12_after_a_loss_the_rest_stays_and_only_the_new_one_is_placed_evenly() -> (
    None
):
    placed = "z1-1", "z1-2", "z2-1", "z2-2"

    decision = schedule(
        kubernetes(zones(z1=4, z2=4).without("z2-1"), 4, [spread("zone")], *placed)
    )

    assert (decision.kept, decision.picked_names) == (
        ("z1-1", "z1-2", "z2-2"),
        ("z2-3",),
    )


# K13, the second user story: a pod more than nodes during an update


@pytest.mark.parametrize(
    ("pods", "open_to"),
    [
        pytest.param({"node1": 1, "node2": 1}, ["node1", "node2"], id="K13"),
        pytest.param(
            {"node1": 1, "node2": 1, "node3": 0}, ["node3"], id="K13-third-node"
        ),
    ],
)
def test_k13_a_surge_pod_is_tolerated_only_where_no_node_is_free(
    pods: dict[str, int], open_to: list[str]
) -> None:
    nodes = fleet(*numbered({name: ({"node": name}, 1) for name in pods}))
    cycle = kubernetes(nodes, 1, [spread("node")])

    evaluation = crowded({f"{name}-1": number for name, number in pods.items()}, cycle)

    assert allowed(evaluation, cycle) == [f"{name}-1" for name in open_to]


# The first user story, as the KEP writes it out


def test_the_first_user_story_spreads_an_application_over_zones() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "k8s.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
    }

    decision = schedule(
        kubernetes(zones(key="k8s.io/zone", a=3, b=3, c=3), 7, [constraint])
    )

    assert per_group(decision, "k8s.io/zone") == {"a": 3, "b": 2, "c": 2}


def test_hard_is_the_default_and_the_limit_is_one() -> None:
    members, placed = _state([1, 1, 0])

    decision = schedule(kubernetes(members, 3, [{"topologyKey": "zone"}], *placed))

    assert _open_zones(decision) == ["z3"]
