"""Vectors of `ocm` beyond the proposal's use cases (`rules/other-schedulers.md#prioritizers`).

They come from the merged enhancement (M1), from its two ways to join levels (J2, J3), from Steady against
spread (S1, S2), from upstream's tests of the prioritizers, and from the table of candidates for even_score.
"""

from typing import Any

import pytest

from clusters.fleet import Cluster, Fleet, ResourceUsage
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from tests.builders import Document, cluster, fleet, labelled, prefer, spread
from tests.engine.scheduling.other_cycles import (
    WEIGHTED,
    allowed,
    contenders,
    crowded,
    numbered,
    ocm,
    ocm_cycle,
    pending,
    per_group,
    picks,
    ranking,
    reason_texts,
    scores,
    zones,
)
from tests.ocm_documents import ocm_document

BOTH_MODES = pytest.mark.parametrize(
    "options", [{}, {"mode": "weighted", "u": 2}], ids=["strict", "u=2"]
)
NO_PRIORITIZERS: Document = {"mode": "Exact"}


# M1: the merged enhancement's worked example


EXAMPLE = fleet(
    *(
        cluster(name, region=region, zone=zone, points=points)
        for name, points, region, zone in [
            ("c1", "50", "us-east", "1a"),
            ("c2", "50", "us-east", "1a"),
            ("c3", "0", "us-east", "1b"),
            ("c4", "0", "us-west", "w1a"),
            ("c5", "50", "us-west", "w1a"),
        ]
    )
)
FIFTY = [prefer(50, labelled(points="50"))]
SOFT_REGION_HARD_ZONE = [spread("region", hard=False), spread("zone")]


def _m1(number: int, *spreads: Document, **options: Any) -> Any:
    terms = spreads or SOFT_REGION_HARD_ZONE
    return schedule(
        ocm(
            EXAMPLE,
            number,
            terms,
            preferred=FIFTY,
            steadyWeight=0,
            balanceWeight=0,
            **options,
        )
    )


@BOTH_MODES
@pytest.mark.parametrize(
    ("number", "expected"),
    [
        pytest.param(2, ["c1", "c5"], id="M1"),
        pytest.param(5, ["c1", "c5", "c3", "c4", "c2"], id="M1-to-5"),
    ],
)
def test_m1_picks(number: int, expected: list[str], options: Document) -> None:
    decision = _m1(number, **options)

    assert (list(decision.picked_names), decision.is_fulfilled) == (expected, True)


def test_m1_second_round_has_the_numbers_of_the_enhancement() -> None:
    decision = _m1(2, **WEIGHTED)

    assert {
        name: candidate.topology_spread_score
        for name, candidate in contenders(decision, 2).items()
    } == {
        "c5": 100,
        "c4": 100,
        "c3": -100,
    }
    assert ranking(decision, 2, "final") == {"c5": 250, "c4": 200, "c3": -200}
    (forbidden,) = (
        candidate
        for candidate in Replay(decision).candidates(2)
        if candidate.rank is None
    )
    assert (forbidden.cluster, forbidden.constraints[1].skew_after) == ("c2", 2)


def test_m1_levels_are_packed_six_bits_each_so_that_the_second_one_hardly_counts() -> (
    None
):
    """With both terms soft c2 stays in: levels 0/63/4032 become −100, −96.9 and +100 (2.5 says −96.9)."""
    decision = _m1(
        2, spread("region", hard=False), spread("zone", hard=False), **WEIGHTED
    )

    evens = {
        name: candidate.topology_spread_score
        for name, candidate in contenders(decision, 2).items()
    }
    assert evens == {
        "c4": 100,
        "c5": 100,
        "c3": pytest.approx(200 * 63 / 4032 - 100),
        "c2": -100,
    }
    assert ranking(decision, 2, "final")["c2"] > ranking(decision, 2, "final")["c3"]


# J2, J3: nested or independent


def _region_of_three_zones() -> Fleet:
    east = {f"e{zone}": ({"region": "east", "zone": zone}, 2) for zone in "abc"}
    return fleet(*numbered({**east, "w": ({"region": "west", "zone": "w"}, 3)}))


BOTH_HARD = [spread("region"), spread("zone")]


@BOTH_MODES
def test_j2_nested_fills_both_regions(options: Document) -> None:
    decision = schedule(ocm(_region_of_three_zones(), 6, BOTH_HARD, **options))

    assert (len(decision.picked), decision.is_fulfilled) == (6, True)
    assert per_group(decision, "region") == {"east": 3, "west": 3}
    assert per_group(decision, "zone") == {"a": 1, "b": 1, "c": 1, "w": 3}


def test_j2_nested_groups_are_reported_with_the_group_they_lie_in() -> None:
    decision = schedule(ocm(_region_of_three_zones(), 8, BOTH_HARD))

    assert list(Replay(decision).step(1).spreads[1].before) == [
        "east/a",
        "east/b",
        "east/c",
        "west/w",
    ]
    assert reason_texts(decision, "eb-2") == [
        "Step 8: selecting it would make region=east 5 vs. minimum 3 (gap 2 > maxSkew 1)",
    ]
    assert reason_texts(
        schedule(ocm(_region_of_three_zones(), 4, BOTH_HARD)), "ea-2"
    ) == [
        "Step 4: selecting it would make region=east 3 vs. minimum 1 (gap 2 > maxSkew 1)",
        "Step 4: selecting it would make zone=east/a 2 vs. minimum 0 among its siblings (gap 2 > maxSkew 1)",
    ]


@BOTH_MODES
def test_j2_independent_is_stuck_at_three(options: Document) -> None:
    decision = schedule(
        ocm(_region_of_three_zones(), 6, BOTH_HARD, nested=False, **options)
    )

    assert (len(decision.picked), pending(decision)) == (3, 3)
    assert per_group(decision, "region") == {"east": 2, "west": 1}


CROSSED = fleet(
    cluster("m", x="x1", y="y1", best="yes"),
    cluster("a", x="x1", y="y2"),
    cluster("z", x="x2", y="y1"),
)
X_AND_Y = [spread("x"), spread("y")]
TEN = [prefer(10, labelled(best="yes"))]


@BOTH_MODES
def test_j3_independent_the_preferred_cluster_leads_into_a_dead_end(
    options: Document,
) -> None:
    decision = schedule(
        ocm(CROSSED, 2, X_AND_Y, preferred=TEN, nested=False, **options)
    )

    assert (decision.picked_names, decision.is_fulfilled) == (("m",), False)


@BOTH_MODES
def test_j3_without_the_preference_both_are_found(options: Document) -> None:
    assert picks(ocm(CROSSED, 2, X_AND_Y, nested=False, **options)) == ["a", "z"]


@BOTH_MODES
def test_j3_nested_finds_both(options: Document) -> None:
    assert picks(ocm(CROSSED, 2, X_AND_Y, preferred=TEN, **options)) == ["m", "z"]


# S1, S2: Steady against spread


def _steady(u: float | None) -> Any:
    mode: Document = {} if u is None else {**WEIGHTED, "u": u}
    placed = "a-1", "a-2", "b-1"
    cycle = ocm(
        zones(a=2, b=2, c=2, d=2),
        4,
        [spread("zone", hard=False)],
        *placed,
        steadyWeight=100,
        **mode,
    )
    return schedule(cycle)


@pytest.mark.parametrize(
    "u", [None, 2, 1, 0.5], ids=["S1-strict", "S1-u=2", "S1-u=1", "S1-u=0.5"]
)
def test_s1_one_chosen_cluster_is_moved(u: float | None) -> None:
    decision = _steady(u)

    assert per_group(decision, "zone") == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert decision.unscheduled == ("a-2",)
    assert reason_texts(decision, "a-2")[0] == "Placed before, not selected again"


def test_s2_steady_outweighs_a_quarter_of_a_u_and_nothing_is_moved() -> None:
    decision = _steady(0.25)

    assert per_group(decision, "zone") == {"a": 2, "b": 1, "c": 1, "d": 0}
    assert decision.unscheduled == ()


# 1.4: Balance, Steady and the allocatable resources


THREE = fleet("c1", "c2", "c3")


@pytest.mark.parametrize(
    ("balance", "placed", "totals"),
    [
        pytest.param(
            {"c1": 1, "c2": 2, "c3": 1},
            ["c3"],
            {"c3": 100, "c1": 0, "c2": -100},
            id="stays where it is",
        ),
        pytest.param(
            {"c1": 1, "c2": 1},
            [],
            {"c3": 100, "c1": -100, "c2": -100},
            id="takes the unused one",
        ),
    ],
)
def test_balance_and_steady_with_their_default_weights(
    balance: dict[str, int], placed: list[str], totals: dict[str, float]
) -> None:
    decision = schedule(ocm(THREE, 1, [], *placed, balance=balance))

    assert decision.picked_names == ("c3",)
    assert ranking(decision) == totals


def test_balance_is_cut_to_whole_numbers_before_it_is_doubled_so_it_is_always_even() -> (
    None
):
    decision = schedule(ocm(THREE, 1, [], balance={"c1": 1, "c2": 2, "c3": 3}))

    assert ranking(decision) == {"c1": 32, "c2": -32, "c3": -100}


@pytest.mark.parametrize(("used", "stays"), [(1, True), (2, False)])
def test_steady_gives_way_when_the_share_of_balance_is_more_than_half_above(
    used: int, stays: bool
) -> None:
    """200·Δu > 100, and c3 with 3 placements sets the scale: a share of 1/3 stays, one of 2/3 goes."""
    decision = schedule(ocm(THREE, 1, [], "c2", balance={"c2": used, "c3": 3}))

    assert decision.picked_names == (("c2",) if stays else ("c1",))


def _with(resource: str, *amounts: str | None) -> Fleet:
    return fleet(
        *(
            _usable(f"c{number}", resource, amount)
            for number, amount in enumerate(amounts, start=1)
        )
    )


def _usable(name: str, resource: str, amount: str | None) -> Cluster:
    amounts = {resource: amount} if amount else {}
    return cluster(name, usage=ResourceUsage(amounts, amounts, {}))


def _prioritized(weights: dict[str, int], number: int = 1, **policy: Any) -> Document:
    configurations = [
        {"scoreCoordinate": {"type": "BuiltIn", "builtIn": name}, "weight": weight}
        for name, weight in weights.items()
    ]
    return ocm_document(
        numberOfClusters=number,
        prioritizerPolicy={**policy, "configurations": configurations},
    )


@pytest.mark.parametrize(
    ("prioritizer", "resource", "amounts", "expected"),
    [
        pytest.param(
            "Memory",
            "memory",
            ("20", "60", "100"),
            [-100, 0, 100],
            id="memory 20/60/100",
        ),
        pytest.param(
            "Memory",
            "memory",
            ("50", "50", "50"),
            [100, 100, 100],
            id="memory all equal",
        ),
        pytest.param("CPU", "cpu", ("10", "6", "2"), [100, 0, -100], id="cpu 10/6/2"),
        pytest.param(
            "CPU", "cpu", ("10", None, "2"), [100, 0, -100], id="cpu of one not known"
        ),
        pytest.param(
            "CPU", "cpu", ("0", "1", "3"), [-100, -33, 100], id="truncated toward zero"
        ),
    ],
)
def test_allocatable_resources(
    prioritizer: str,
    resource: str,
    amounts: tuple[str | None, ...],
    expected: list[float],
) -> None:
    document = _prioritized({f"ResourceAllocatable{prioritizer}": 1}, **NO_PRIORITIZERS)

    totals = ranking(schedule(ocm_cycle(document, _with(resource, *amounts))))

    assert [totals[name] for name in ("c1", "c2", "c3")] == expected


def test_additive_weights_add_up() -> None:
    """Upstream's scores of an add-on, 30/40/50, are preferred terms here; the add-on itself is refused."""
    members = fleet(
        *(
            cluster(
                f"c{number}",
                points=points,
                usage=ResourceUsage({"memory": "100"}, {"memory": memory}, {}),
            )
            for number, (memory, points) in enumerate(
                [("100", "30"), ("50", "40"), ("0", "50")], start=1
            )
        )
    )
    points = [prefer(int(one), labelled(points=one)) for one in ("30", "40", "50")]

    decision = schedule(
        ocm(members, 2, [], preferred=points, balanceWeight=3, memoryWeight=1)
    )

    assert ranking(decision) == {"c1": 430, "c2": 340, "c3": 250}
    assert decision.picked_names == ("c1", "c2")


def test_four_wanted_of_two_are_two_and_two_unscheduled() -> None:
    decision = schedule(ocm(fleet("c1", "c2"), 4, []))

    assert (decision.picked_names, pending(decision), decision.is_fulfilled) == (
        ("c1", "c2"),
        2,
        False,
    )


# 2.2: the affinity score


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(
            [(20, "In", ["a"]), (10, "In", ["b"])],
            {"a": 100, "b": 0, None: -100},
            id="In",
        ),
        pytest.param(
            [(20, "NotIn", ["a"])],
            {"a": -100, "b": 100, None: 100},
            id="NotIn matches no key",
        ),
        pytest.param(
            [(5, "Exists", [])], {"a": 100, "b": 100, None: -100}, id="Exists"
        ),
        pytest.param(
            [(5, "DoesNotExist", [])],
            {"a": -100, "b": -100, None: 100},
            id="DoesNotExist",
        ),
        pytest.param(
            [(5, "Exists", []), (5, "DoesNotExist", [])],
            {"a": 0, "b": 0, None: 0},
            id="all equal",
        ),
    ],
)
def test_affinity_rows_are_summed_and_stretched(
    rows: list[tuple[int, str, list[str]]], expected: dict[str | None, float]
) -> None:
    weights = [
        {"weight": weight, "operator": operator, "values": values}
        for weight, operator, values in rows
    ]
    terms = [{"topologyKey": "zone", "topologyWeights": weights}]

    decision = schedule(
        ocm(
            fleet(cluster("a", zone="a"), cluster("b", zone="b"), "c"),
            3,
            [],
            affinityTerms=terms,
        )
    )

    scores = {picked.cluster: picked.affinity_score for picked in decision.picked}
    assert scores == {"a": expected["a"], "b": expected["b"], "c": expected[None]}


# 2.5: even_score on given counts


def _even(pods: dict[str, int], **options: Any) -> dict[str, float]:
    members = fleet(*(cluster(name, zone=name) for name in pods))
    cycle = ocm(members, 1, [spread("zone", hard=False)], **options)
    return scores(crowded(pods, cycle), cycle)


def test_e1_is_the_gap_to_the_emptiest_domain() -> None:
    assert _even({"a": 3, "b": 1, "c": 0}) == {"a": -3, "b": -1, "c": 0}


def test_e5_levels_of_3_1_0_stretch_to_the_same_as_the_gaps() -> None:
    """trunc(63·(3 − m)/3) is 0/42/63, and stretching makes of it what it makes of −3/−1/0."""
    stretched = {"a": -100, "b": pytest.approx(100 / 3), "c": 100}

    assert _even({"a": 3, "b": 1, "c": 0}, **WEIGHTED) == stretched


@pytest.mark.parametrize("counts", [{"a": 2, "b": 2, "c": 2}, {"a": 5}])
def test_equal_domains_score_nothing(counts: dict[str, int]) -> None:
    assert set(_even(counts).values()) == set(_even(counts, **WEIGHTED).values()) == {0}


def test_e2_would_be_too_coarse_and_is_not_what_decides() -> None:
    """With 2/1/0/0 a change of the skew misses the second zone among the empty ones; the gap does not."""
    assert _even({"a": 2, "b": 1, "c": 0, "d": 0}) == {"a": -2, "b": -1, "c": 0, "d": 0}


@pytest.mark.parametrize(
    ("counts", "open_to"),
    [
        pytest.param({"z1": 1, "z2": 1}, ["z1", "z2"], id="K10"),
        pytest.param({"z1": 2, "z2": 1}, ["z2"], id="K11"),
    ],
)
def test_hard_limits_on_given_counts_are_those_of_kubernetes(
    counts: dict[str, int], open_to: list[str]
) -> None:
    """D8 has all semantics agree on K10 and K11; `ocm` counts from nothing, so it is called on the counts."""
    cycle = ocm(
        fleet(*(cluster(name, zone=name) for name in counts)), 1, [spread("zone")]
    )

    assert allowed(crowded(counts, cycle), cycle) == open_to


def _ranks(counts: dict[str, int], weights: dict[str, int]) -> dict[str, float]:
    return _even(counts, domainWeights={"zone": weights})


def test_domain_weights_rank_by_the_largest_quotient_then_by_fewer_picks() -> None:
    """w/(2m+1): a 6/3 = 2, b 2/1 = 2 with fewer picks, c 1/1; those equal in both share a rank."""
    assert _ranks({"a": 1, "b": 0, "c": 0, "d": 0}, {"a": 6, "b": 2}) == {
        "b": 0,
        "a": -1,
        "c": -2,
        "d": -2,
    }


def test_equal_domain_weights_are_an_even_spread() -> None:
    weighted = picks(
        ocm(
            zones(a=3, b=3),
            5,
            [spread("zone", hard=False)],
            domainWeights={"zone": {"a": 1}},
        )
    )

    assert weighted == picks(ocm(zones(a=3, b=3), 5, [spread("zone", hard=False)]))


# What the text says beside its vectors


def test_a_label_called_unset_has_the_weight_that_is_named() -> None:
    """`rules/other-schedulers.md#translation`: "(unset)" is a sentinel, not a value."""
    members = fleet(cluster("a", zone="e"), cluster("b", zone="(unset)"), "c")
    weights = {"zone": {"e": 2, "(unset)": 3}}

    assert picks(
        ocm(members, 3, [spread("zone", hard=False)], domainWeights=weights)
    ) == ["b", "a", "c"]


def test_the_last_of_many_levels_still_decides_over_the_name() -> None:
    """2.5: a lower level counts for less, not for nothing, though a float cannot hold 14 of them."""
    keys = [f"k{number}" for number in range(14)]
    same = dict.fromkeys(keys, "1")
    far, near = {**same, "k0": "2"}, {**same, "k0": "2", "k13": "2"}
    members = fleet(
        cluster("a", same), cluster("b", far), cluster("c", near), cluster("z", same)
    )
    soft = [spread(key, hard=False) for key in keys]

    assert picks(ocm(members, 2, soft, mode="weighted", nested=False)) == ["a", "c"]
