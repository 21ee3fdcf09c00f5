"""Where sets of rules differ, explained by the rule that separates them.

The fleets are D1 to D8 of `rules/other-schedulers.md#fleets-on-which-the-rules-differ`, and the
single domain there.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from clusters.fleet import Cluster, Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.engine.scheduling.scheduler import schedule
from placements.explain.comparison import (
    difference_sentence,
    divergences,
    later_divergences,
)
from placements.explain.decisions import explain_rank, out_words
from placements.explain.vocabulary import TIMES
from placements.manifests.policy import PlacementPolicy
from tests.builders import (
    binding,
    cluster,
    decide,
    fleet,
    grouped,
    labelled,
    measured,
    pick_all,
    pick_n,
    prefer,
    spread,
    taint,
)
from tests.engine.scheduling.other_cycles import kubernetes

FLEET, KUBEFLEET, OCM, KUBERNETES = Semantics


def _zones(**sizes: int) -> list[Cluster]:
    return [
        cluster(f"{zone}-{number + 1}", zone=zone)
        for zone, size in sizes.items()
        for number in range(size)
    ]


def _compared(
    of: Fleet,
    policy: PlacementPolicy,
    *placed: str,
    ocm: Mapping[str, Any] | None = None,
) -> SemanticsComparison:
    """Decide under all four."""
    decisions = {
        semantics: decide(of, policy, *map(binding, placed), semantics=semantics)
        for semantics in Semantics
    }
    if ocm:
        decisions[OCM] = schedule(replace(decisions[OCM].cycle, options=ocm))
    return SemanticsComparison(decisions)


def _two_levels() -> Fleet:
    east = [
        cluster(f"e{zone}{number}", region="east", zone=zone)
        for zone in "abc"
        for number in (1, 2)
    ]
    return fleet(
        *east, *(cluster(f"w{number}", region="west", zone="w") for number in (1, 2, 3))
    )


def _already_uneven() -> SemanticsComparison:
    placed = ("z1-1", "z1-2", "z1-3", "z2-1", "z3-1")
    return _compared(
        fleet(*_zones(z1=4, z2=4, z3=4)), pick_n(6, spread=[spread("zone")]), *placed
    )


def _without_the_key() -> SemanticsComparison:
    one = fleet(*grouped("region", east="east-1", west="west-1"), "yak", "zeta")
    return _compared(one, pick_n(3, spread=[spread("region")]))


def _stuck_half_way() -> SemanticsComparison:
    return _compared(
        _two_levels(), pick_n(6, spread=[spread("region"), spread("zone")])
    )


def _middle_group() -> SemanticsComparison:
    policy = pick_n(4, spread=[spread("zone", 2, hard=False)])
    return _compared(fleet(*_zones(a=2, b=2, c=3, d=4)), policy, "c-1", "d-1", "d-2")


def _preference(**ocm: Any) -> SemanticsComparison:
    terms = [prefer(100, labelled(zone="a")), prefer(20, labelled(zone="a"))]
    policy = pick_n(9, spread=[spread("zone", hard=False)], prefer=terms)
    return _compared(fleet(*_zones(a=8, b=8, c=8)), policy, ocm=ocm)


def _unusable_group() -> SemanticsComparison:
    one = fleet(
        *_zones(z1=3, z2=3), cluster("z3-1", zone="z3", taints=[taint("out-of-order")])
    )
    return _compared(one, pick_n(3, spread=[spread("zone")]), "z1-1", "z2-1")


def _dead_end() -> SemanticsComparison:
    one = fleet(
        cluster("m", x="x1", y="y1", first="yes"),
        cluster("a", x="x1", y="y2"),
        cluster("z", x="x2", y="y1"),
    )
    likes = [prefer(10, labelled(first="yes"))]
    return _compared(one, pick_n(2, spread=[spread("x"), spread("y")], prefer=likes))


def _agreed() -> SemanticsComparison:
    return _compared(fleet(*_zones(a=3, b=1, c=3)), pick_n(5, spread=[spread("zone")]))


def _single_group() -> SemanticsComparison:
    return _compared(
        fleet(*grouped("region", east="y z"), "a"), pick_n(1, spread=[spread("region")])
    )


@pytest.mark.parametrize(
    ("comparison", "rules"),
    [
        (
            _already_uneven(),
            [
                "ocm selects z2-1 rather than z1-2: every cycle selects again and counts from 0"
            ],
        ),
        (
            _without_the_key(),
            [
                "select zeta rather than east-1: a cluster without the label region scores 0",
                "east-1 rather than zeta: clusters without region are a domain of their own, (unset)",
                "zeta is ruled out: it has no label region, which a hard limit requires",
            ],
        ),
        (
            _unusable_group(),
            [
                "z3 does not count, as no cluster there passes",
                "z3 keeps the minimum at 0, without candidates",
            ],
        ),
        (
            _dead_end(),
            [
                "ocm selects z: domains of y are compared within one x only",
                "one more in y=y1 makes the skew 2 (the smallest domain has 0), limit 1",
                "one more in y=y1 would be 2 above the emptiest domain (0), limit 1",
            ],
        ),
        (
            _single_group(),
            [
                "z rather than a: every score is the same, and the last name of the alphabet wins",
                "one more in region=east raises the skew to 1 and scores -1",
            ],
        ),
    ],
    ids=["D1", "D2", "D6", "D7", "single domain"],
)
def test_the_first_difference_names_the_rules_that_separate(
    comparison: SemanticsComparison, rules: list[str]
) -> None:
    sentence = difference_sentence(comparison)

    assert [rule for rule in rules if rule not in sentence] == []


@pytest.mark.parametrize(
    ("comparison", "other", "rules"),
    [
        (
            _already_uneven(),
            KUBEFLEET,
            ["no more than before, and only a selection that adds to it is forbidden"],
        ),
        (
            _stuck_half_way(),
            OCM,
            [
                "domains of zone are compared within one region only",
                "fleet finds no cluster",
            ],
        ),
        (
            _middle_group(),
            KUBERNETES,
            [
                "only a change of the skew scores, and one more in zone=c (1) or a (0) changes it alike"
            ],
        ),
        (
            _preference(),
            KUBERNETES,
            ["spread comes before affinity", "the affinity outweighs the spread"],
        ),
        (
            _preference(mode="weighted", u=0.5),
            OCM,
            [
                f"a-1 rather than c-8: u {TIMES} spread + preference is 170 = 0.5 {TIMES} (-100) + 220"
            ],
        ),
        (
            _agreed(),
            OCM,
            [
                "selects the first name of equals where fleet selects the last",
                "otherwise they select the same",
            ],
        ),
    ],
    ids=["D1", "D3", "D4", "D5", "D5 weighted", "D8"],
)
def test_each_is_followed_to_where_the_rules_part(
    comparison: SemanticsComparison, other: Semantics, rules: list[str]
) -> None:
    (found,) = [
        divergence.words
        for divergence in divergences(comparison)
        if divergence.semantics is other
    ]

    assert [rule for rule in rules if rule not in found] == []


def test_what_the_first_difference_says_is_not_repeated() -> None:
    assert [
        divergence.semantics for divergence in later_divergences(_already_uneven())
    ] == [
        KUBEFLEET,
        KUBERNETES,
    ]
    assert [
        divergence.semantics for divergence in later_divergences(_single_group())
    ] == [
        OCM,
        KUBERNETES,
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "comparison",
    [
        _already_uneven(),
        _without_the_key(),
        _stuck_half_way(),
        _middle_group(),
        _preference(),
        _agreed(),
    ],
)
@pytest.mark.parametrize("base", list(Semantics))
def test_the_words_are_those_of_whose_rules_they_use(
    comparison: SemanticsComparison, base: Semantics
) -> None:
    seen = divergences(SemanticsComparison(comparison.decisions, base))

    for clause in (
        clause
        for divergence in seen
        for clause in re.split(r"\. |: (?=fleet|kube|ocm)", divergence.words)
    ):
        if re.match(r"(ocm|kubernetes)\b", clause):
            assert "skew" not in clause
        if re.match(r"(fleet|kubefleet)\b", clause):
            assert "sibling" not in clause
            assert "preference" not in clause


def test_the_same_clusters_in_another_order_are_no_other_choice() -> None:
    one = _compared(
        fleet(*grouped("region", east="a", west="b")),
        pick_n(2, spread=[spread("region")]),
    )

    assert one.is_same_set
    assert difference_sentence(one).startswith(
        "all place the same clusters, in another order from rank 1 on: fleet and kubefleet select b"
    )


def _text_of(comparison: SemanticsComparison) -> str:
    """Return all that is said of where each parts from each."""
    bases = [SemanticsComparison(comparison.decisions, base) for base in Semantics]
    return "\n".join(
        divergence.words for base in bases for divergence in divergences(base)
    )


def test_a_cycle_that_fails_is_not_one_that_wants_no_more() -> None:
    one = fleet(
        cluster("a", properties={"cores": "x"}), cluster("b", properties={"cores": "2"})
    )

    text = _text_of(_compared(one, pick_n(1, required=[measured("cores", "Gt", "1")])))

    assert (
        "kubefleet finds no cluster: Scheduling failed: property value is not a valid quantity"
        in text
    )
    assert "no more clusters are requested" not in text


def test_all_or_none_says_that_it_wants_no_fewer() -> None:
    one = fleet(*grouped("region", east="a b c", west="d"))

    text = _text_of(
        _compared(
            one, pick_n(4, spread=[spread("region")]), ocm={"unsatisfiable": "error"}
        )
    )

    assert (
        "ocm finds no cluster: No cluster selected: fewer than 4 clusters can be"
        in text
    )
    assert "no more clusters are requested" not in text


def test_a_cluster_that_leaves_is_reported_by_the_filter_that_it_fails() -> None:
    one = fleet(cluster("a", taints=[taint("broken")]), "b", "c")

    text = _text_of(_compared(one, pick_all(), "a"))
    first = _text_of(_compared(one, pick_n(2, spread=[spread("region")]), "a"))

    assert "a: Untolerated taint: broken" in first
    assert "not selected again" not in text + first


def test_where_all_are_picked_a_cluster_is_missing_for_what_it_fails() -> None:
    one = fleet("a", cluster("b", taints=[taint("broken")]))

    text = _text_of(_compared(one, pick_all(), "a", "b"))

    assert "ocm finds no cluster: b: Untolerated taint: broken" in text
    assert "no more clusters are requested" not in text


def test_nothing_is_counted_where_nothing_is_spread() -> None:
    one = fleet(cluster("a", tier="edge"), "b")

    text = _text_of(
        _compared(one, pick_n(1, prefer=[prefer(100, labelled(tier="edge"))]), "b")
    )

    assert "counts from 0" not in text


def test_a_bucket_is_no_group_that_no_cluster_passes() -> None:
    one = fleet(*grouped("region", east="a b c", west="d e f"), "g")

    text = _text_of(_compared(one, pick_n(7, spread=[spread("region")]), "g"))

    assert "(unset) keeps the minimum at 1, without candidates" in text
    assert "(unset) does not count" not in text
    assert "clusters without region are in no domain" in text


def test_a_group_out_of_the_count_is_not_called_one_without_passing_clusters() -> None:
    others = [
        cluster(f"{one}{number}", region=one, zone="1")
        for one in ("east", "south")
        for number in range(3)
    ]
    one = fleet(*others, cluster("y", region="west"))

    text = _text_of(
        _compared(one, pick_n(7, spread=[spread("region"), spread("zone")]), "y")
    )

    assert "kubernetes would select east0" in text
    assert "west does not count" in text
    assert "west does not count, as no cluster there passes" not in text


def test_only_a_label_that_is_missing_is_called_missing() -> None:
    one = fleet(cluster("a", region="east", zone="1"), cluster("y", region="west"))
    policy = pick_n(2, spread=[spread("region"), spread("zone", 2)])

    text = _text_of(_compared(one, policy))

    assert "y is ruled out: it has no label zone, which a hard limit requires" in text
    assert "no label region" not in text


def test_an_untolerated_taint_is_no_missing_label() -> None:
    one = fleet(
        cluster("a", region="east", taints=[taint("gpu")]), cluster("b", region="east")
    )
    constraint = {**spread("region"), "nodeTaintsPolicy": "Honor"}
    decision = schedule(kubernetes(one, 1, [constraint]))

    assert out_words(decision, decision.round(1), "a") == "a: Untolerated taint: gpu"


def test_a_limit_that_scores_a_thousand_twice_is_not_changed_alike() -> None:
    one = fleet(*_zones(a=5, b=2, c=3))
    policy = pick_n(
        5,
        spread=[spread("zone", 1, hard=False)],
        prefer=[prefer(5, labelled(zone="a"))],
    )

    comparison = _compared(one, policy, "a-1", "a-2", "a-3", "c-1")
    decision = comparison.decisions[KUBEFLEET]

    assert "changes it alike" not in explain_rank(
        decision, decision.round(1), "a-5", "c-3", with_rules=True
    )


def test_groups_beyond_counting_are_reported_by_the_first_of_them() -> None:
    tainted = [
        cluster(f"t{one:02}", zone=f"t{one:02}", taints=[taint("broken")])
        for one in range(30)
    ]
    one = fleet(*_zones(a=3, b=3), *tainted)

    text = _text_of(_compared(one, pick_n(5, spread=[spread("zone")])))

    assert "t00, t01, t02, t03, t04 and 25 more keep the minimum at 0" in text
    assert (
        "t00, t01, t02, t03, t04 and 25 more do not count, as no cluster there passes"
        in text
    )
