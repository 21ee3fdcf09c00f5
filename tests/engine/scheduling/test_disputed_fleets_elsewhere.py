"""The fleets D1 to D8 on which the semantics disagree, under `ocm` and `kubernetes`.

`test_disputed_fleets.py` has the same fleets under the two readings of Fleet's rules, and the table with all
four is `rules/other-schedulers.md#fleets-on-which-the-rules-differ`. For `ocm` u is 2 and Steady 100; both
modes agree unless it is said.
"""

import pytest

from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from tests.builders import (
    Document,
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
from tests.engine.scheduling.other_cycles import (
    WEIGHTED,
    contenders,
    kubernetes,
    ocm,
    pending,
    per_group,
    picks,
    reason_texts,
    zones,
)

BOTH_MODES = pytest.mark.parametrize(
    "options", [{}, {"mode": "weighted", "u": 2}], ids=["strict", "u=2"]
)
SOFT_ZONE = [spread("zone", hard=False)]

# D1: already too uneven


THREE_ZONES = zones(z1=4, z2=4, z3=4)
UNEVEN = ("z1-1", "z1-2", "z1-3", "z2-1", "z3-1")


@BOTH_MODES
def test_d1_ocm_drops_one_and_adds_two(options: Document) -> None:
    decision = schedule(ocm(THREE_ZONES, 6, [spread("zone")], *UNEVEN, **options))

    assert per_group(decision, "zone") == {"z1": 2, "z2": 2, "z3": 2}
    assert decision.unscheduled == ("z1-3",)
    assert reason_texts(decision, "z1-3")[0] == "Placed before, not selected again"


def test_d1_kubernetes_adds_one_in_either_of_the_emptier_zones() -> None:
    decision = schedule(kubernetes(THREE_ZONES, 6, [spread("zone")], *UNEVEN))

    assert {name.partition("-")[0] for name in contenders(decision)} == {"z2", "z3"}
    assert sorted(per_group(decision, "zone").values()) == [1, 2, 3]
    assert decision.picked_names == ("z2-2",)


# D2: clusters without the key


HALF_LABELLED = fleet(
    cluster("east-1", region="east"), cluster("west-1", region="west"), "yak", "zeta"
)


@BOTH_MODES
def test_d2_ocm_gives_the_unlabelled_one_place_of_their_own(options: Document) -> None:
    assert picks(ocm(HALF_LABELLED, 3, [spread("region")], **options)) == [
        "east-1",
        "west-1",
        "yak",
    ]


@BOTH_MODES
@pytest.mark.parametrize(
    ("unset", "expected"),
    [("exclude", ["east-1", "west-1"]), ("free", ["east-1", "west-1", "yak"])],
    ids=["exclude", "free"],
)
def test_d2_ocm_with_the_other_policies_for_the_unlabelled(
    unset: str, expected: list[str], options: Document
) -> None:
    assert (
        picks(ocm(HALF_LABELLED, 3, [spread("region")], unsetPolicy=unset, **options))
        == expected
    )


def test_d2_kubernetes_leaves_one_pending_and_never_uses_the_unlabelled() -> None:
    decision = schedule(kubernetes(HALF_LABELLED, 3, [spread("region")]))

    assert (decision.picked_names, pending(decision)) == (("east-1", "west-1"), 1)
    assert reason_texts(decision, "yak") == [
        "No label region, which the topology spread requires"
    ]


# D3: two levels


TWO_LEVELS = fleet(
    *(
        cluster(f"e{zone}{number}", region="east", zone=zone)
        for zone in "abc"
        for number in (1, 2)
    ),
    *(cluster(f"w{number}", region="west", zone="w") for number in (1, 2, 3)),
)


def _both(*, hard: bool) -> list[Document]:
    return [spread("region", hard=hard), spread("zone", hard=hard)]


@BOTH_MODES
@pytest.mark.parametrize("hard", [True, False], ids=["D3-hard", "D3-soft"])
def test_d3_ocm_fills_both_regions_and_the_zones_in_each(
    hard: bool, options: Document
) -> None:
    decision = schedule(ocm(TWO_LEVELS, 6, _both(hard=hard), **options))

    assert (len(decision.picked), decision.is_fulfilled) == (6, True)
    assert per_group(decision, "region") == {"east": 3, "west": 3}
    assert per_group(decision, "zone") == {"a": 1, "b": 1, "c": 1, "w": 3}


def test_d3_kubernetes_with_two_hard_levels_is_stuck_half_way() -> None:
    decision = schedule(kubernetes(TWO_LEVELS, 6, _both(hard=True)))

    assert (decision.picked_names, pending(decision)) == (("ea1", "w1", "eb1"), 3)
    assert reason_texts(decision, "w2") == [
        "Step 4: selecting it would make zone=w 2 vs. minimum 0 (gap 2 > maxSkew 1)"
    ]


def test_d3_kubernetes_with_two_soft_levels_prefers_the_region_of_more_zones() -> None:
    decision = schedule(kubernetes(TWO_LEVELS, 6, _both(hard=False)))

    assert per_group(decision, "region") == {"east": 4, "west": 2}
    assert per_group(decision, "zone") == {"a": 2, "b": 1, "c": 1, "w": 2}


# D4: a middle group versus an empty one


FOUR_ZONES = zones(a=2, b=2, c=3, d=4)
MIDDLE = [spread("zone", 2, hard=False)]
AT_C_AND_D = ("c-1", "d-1", "d-2")


@pytest.mark.parametrize(
    "options", [{}, *({**WEIGHTED, "u": u} for u in (2, 1, 0.5))], ids=str
)
def test_d4_ocm_moves_one_to_have_one_in_each(options: Document) -> None:
    decision = schedule(ocm(FOUR_ZONES, 4, MIDDLE, *AT_C_AND_D, **options))

    assert per_group(decision, "zone") == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert decision.unscheduled == ("d-2",)


@pytest.mark.parametrize("u", [0.49, 0.25])
def test_d4_ocm_with_u_below_a_half_moves_nothing(u: float) -> None:
    decision = schedule(ocm(FOUR_ZONES, 4, MIDDLE, *AT_C_AND_D, **WEIGHTED, u=u))

    assert per_group(decision, "zone") == {"a": 1, "b": 0, "c": 1, "d": 2}


def test_d4_kubernetes_scores_the_empty_zones_above_the_middle_one() -> None:
    decision = schedule(kubernetes(FOUR_ZONES, 4, MIDDLE, *AT_C_AND_D))

    assert per_group(decision, "zone") == {"a": 1, "b": 0, "c": 1, "d": 2}
    found = {
        name[0]: candidate.topology_spread_score
        for name, candidate in contenders(decision).items()
    }
    assert found == {"a": 100, "b": 100, "c": 60, "d": 20}


# D5: soft spread against a preference


def _points(number: int) -> list[Document]:
    """Prefer zone a by so many points; a term holds at most 100."""
    return [prefer(weight, labelled(zone="a")) for weight in (100, number - 100)]


THREE_OF_EIGHT = zones(a=8, b=8, c=8)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, [3, 3, 3], id="D5-strict"),
        pytest.param({**WEIGHTED, "u": 2}, [3, 3, 3], id="D5-u=2"),
        pytest.param({**WEIGHTED, "u": 1}, [3, 3, 3], id="D5-u=1"),
        pytest.param({**WEIGHTED, "u": 0.5}, [8, 1, 0], id="D5-u=0.5"),
    ],
)
def test_d5_ocm(options: Document, expected: list[int]) -> None:
    decision = schedule(
        ocm(THREE_OF_EIGHT, 9, SOFT_ZONE, preferred=_points(120), **options)
    )

    assert list(per_group(decision, "zone").values()) == expected


@pytest.mark.parametrize(
    ("number", "points", "expected"),
    [
        pytest.param(9, 120, [5, 2, 2], id="D5"),
        pytest.param(12, 120, [6, 3, 3], id="D5-12-wanted"),
        pytest.param(12, 150, [8, 2, 2], id="D5-12-wanted-preference-150"),
    ],
)
def test_d5_kubernetes(number: int, points: int, expected: list[int]) -> None:
    decision = schedule(
        kubernetes(THREE_OF_EIGHT, number, SOFT_ZONE, preferred=_points(points))
    )

    assert list(per_group(decision, "zone").values()) == expected


# D6: a group with no usable cluster


WITH_A_TAINTED_ZONE = fleet(
    *zones(z1=3, z2=3).clusters,
    cluster("z3-1", zone="z3", taints=[taint("out-of-order")]),
)
HONOR = {"nodeTaintsPolicy": "Honor"}


@BOTH_MODES
def test_d6_ocm_does_not_know_the_unusable_zone(options: Document) -> None:
    decision = schedule(
        ocm(WITH_A_TAINTED_ZONE, 3, [spread("zone")], "z1-1", "z2-1", **options)
    )

    assert per_group(decision, "zone") == {"z1": 2, "z2": 1, "z3": 0}
    assert set(Replay(decision).step(1).spreads[0].before) == {"z1", "z2"}


@pytest.mark.parametrize(
    ("policies", "placed", "picked"),
    [
        pytest.param({}, ["z1-1", "z2-1"], (), id="D6"),
        pytest.param(HONOR, ["z1-1", "z2-1"], ("z1-2",), id="D6-Honor"),
        pytest.param({}, ["z1-1", "z1-2", "z2-1"], (), id="D6-variant"),
        pytest.param(HONOR, ["z1-1", "z1-2", "z2-1"], ("z2-2",), id="D6-variant-Honor"),
    ],
)
def test_d6_kubernetes(
    policies: Document, placed: list[str], picked: tuple[str, ...]
) -> None:
    constraint = {**spread("zone"), **policies}

    decision = schedule(
        kubernetes(WITH_A_TAINTED_ZONE, len(placed) + 1, [constraint], *placed)
    )

    assert (decision.picked_names, pending(decision)) == (picked, 1 - len(picked))


# D7: a greedy dead end


CROSSED = fleet(
    cluster("m", x="x1", y="y1", best="yes"),
    cluster("a", x="x1", y="y2"),
    cluster("z", x="x2", y="y1"),
)
X_AND_Y = [spread("x"), spread("y")]
TEN = [prefer(10, labelled(best="yes"))]


@BOTH_MODES
def test_d7_ocm_nested_finds_both(options: Document) -> None:
    assert picks(ocm(CROSSED, 2, X_AND_Y, preferred=TEN, **options)) == ["m", "z"]


def test_d7_kubernetes_is_stuck_after_the_preferred_one() -> None:
    decision = schedule(kubernetes(CROSSED, 2, X_AND_Y, preferred=TEN))

    assert (decision.picked_names, pending(decision)) == (("m",), 1)


# D8: where all agree


ALL_FOUR = pytest.mark.parametrize(
    "semantics", ["fleet", "kubefleet", "ocm", "kubernetes"]
)


@ALL_FOUR
@pytest.mark.parametrize(
    ("sizes", "number", "hard", "expected"),
    [
        pytest.param({"a": 3, "b": 3}, 4, True, {"a": 2, "b": 2}, id="UC2-hard"),
        pytest.param({"a": 3, "b": 3}, 4, False, {"a": 2, "b": 2}, id="UC2-soft"),
        pytest.param(
            {"a": 3, "b": 1, "c": 3}, 5, True, {"a": 2, "b": 1, "c": 2}, id="3-1-3"
        ),
        pytest.param(
            {"a": 1, "b": 4, "c": 4}, 5, True, {"a": 1, "b": 2, "c": 2}, id="1-4-4"
        ),
    ],
)
def test_d8_all_four_agree(
    sizes: dict[str, int],
    number: int,
    hard: bool,
    expected: dict[str, int],
    semantics: str,
) -> None:
    decision = decide(
        zones(sizes),
        pick_n(number, spread=[spread("zone", hard=hard)]),
        semantics=semantics,
    )

    assert (per_group(decision, "zone"), decision.is_fulfilled) == (expected, True)


# K10 and K11 of D8: `test_kep_895_vectors.py` has them for `kubernetes`, `test_ocm_vectors.py` for `ocm`.


# 6.2: what the documents of Fleet leave to each reading


@pytest.mark.parametrize(
    ("semantics", "picked"),
    [
        ("fleet", ("smartfish", "jumpingcat")),
        ("kubefleet", ("smartfish", "jumpingcat")),
        ("ocm", ("bravelion", "flyingpenguin")),
        ("kubernetes", ("bravelion", "flyingpenguin")),
    ],
)
def test_6_2_the_walk_through_of_the_spread_guide(
    semantics: str, picked: tuple[str, ...]
) -> None:
    """Names decide it: descending in Fleet, ascending elsewhere."""
    members = fleet(
        *grouped("region", east="bravelion smartfish", west="flyingpenguin jumpingcat")
    )

    decision = decide(
        members, pick_n(2, spread=[spread("region")]), semantics=semantics
    )

    assert decision.picked_names == picked


@pytest.mark.parametrize(
    ("semantics", "picked"),
    [("fleet", ("z",)), ("kubefleet", ("a",)), ("ocm", ("a",)), ("kubernetes", ("y",))],
)
def test_6_2_a_single_group(semantics: str, picked: tuple[str, ...]) -> None:
    """z and y in one group, a without the key: the two readings of Fleet part.

    `ocm` has a group for a, and the name decides; `kubernetes` never uses a.
    """
    members = fleet(*grouped("region", east="y z"), "a")

    decision = decide(
        members, pick_n(1, spread=[spread("region")]), semantics=semantics
    )

    assert decision.picked_names == picked
