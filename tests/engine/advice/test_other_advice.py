"""What would have to change under `ocm` and `kubernetes`: their own fields and options, and dead ends.

The rules are in `rules/other-schedulers.md`; each change that helps is run again.
"""

from typing import Any

from placements.engine.advice.changes import Change, ChangeKind
from placements.engine.advice.search import how_to_fulfil, why_not
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.explain.advice import change_words, failure_sentences, trap_sentences
from tests.builders import cluster, fleet, labelled, prefer, spread, taint
from tests.engine.scheduling.other_cycles import kubernetes, ocm, zones

J3 = fleet(
    cluster("m", x="1", y="1", liked="yes"),
    cluster("a", x="1", y="2"),
    cluster("z", x="2", y="1"),
)
LIKED = [prefer(10, labelled(liked="yes"))]
BOTH_HARD = [spread("x"), spread("y")]


def _helping(decision: Decision, kind: ChangeKind) -> list[Change]:
    return [
        suggestion.change
        for suggestion in how_to_fulfil(decision)
        if suggestion.change.kind is kind
    ]


def _fulfils(change: Change) -> bool:
    return schedule(change.changed()).is_fulfilled


def test_t7_as_many_min_domains_as_there_are_groups() -> None:
    placed = [f"z{zone}-{number}" for zone in (1, 2, 3) for number in (1, 2)]
    five = {**spread("zone", 2), "minDomains": 5}

    decision = schedule(kubernetes(zones(z1=3, z2=3, z3=3), 7, [five], *placed))

    (change,) = _helping(decision, ChangeKind.MIN_DOMAINS)
    assert change_words(change) == "zone minDomains 3 (now 5)"
    assert _fulfils(change)


def test_d6_a_tainted_group_that_no_longer_counts() -> None:
    members = fleet(
        *zones(z1=3, z2=3).clusters, cluster("z3-1", zone="z3", taints=[taint("gpu")])
    )

    decision = schedule(kubernetes(members, 3, [spread("zone")], "z1-1", "z2-1"))

    (change,) = _helping(decision, ChangeKind.COUNTED)
    assert change_words(change) == "zone nodeTaintsPolicy Honor"
    assert _fulfils(change)


def test_uc3_clusters_without_the_key_left_out_of_the_count() -> None:
    members = fleet(*zones(a=4, b=4).clusters, "missing_key")

    decision = schedule(ocm(members, 8, [spread("zone")]))

    assert (len(decision.picked), decision.is_fulfilled) == (5, False)
    (change,) = _helping(decision, ChangeKind.OPTION)
    assert change_words(change) == "unsetPolicy exclude (now bucket)"
    assert _fulfils(change)


def test_j2_levels_by_nesting_instead_of_each_for_itself() -> None:
    members = fleet(
        *(
            cluster(f"e{zone}{n}", region="east", zone=zone)
            for zone in "abc"
            for n in (1, 2)
        ),
        *(cluster(f"w{n}", region="west", zone="w") for n in (1, 2, 3)),
    )

    decision = schedule(
        ocm(members, 6, [spread("region"), spread("zone")], nested=False)
    )

    assert "nested true (now false)" in map(
        change_words, _helping(decision, ChangeKind.OPTION)
    )


def _uc5(u: float) -> Cycle:
    members = fleet(
        *(cluster(f"us-east-1a-{n}", region="us-east", zone="1a") for n in range(1, 5)),
        *(cluster(f"us-east-1b-{n}", region="us-east", zone="1b") for n in range(1, 5)),
        *(
            cluster(f"us-west-1a-{n}", region="us-west", zone="w1a")
            for n in range(1, 5)
        ),
    )
    rows = [
        {"weight": weight, "operator": "In", "values": [zone]}
        for zone, weight in (("1a", 20), ("1b", 10))
    ]
    terms: list[dict[str, Any]] = [{"topologyKey": "zone", "topologyWeights": rows}]
    return ocm(
        members,
        4,
        [spread("region", hard=False)],
        mode="weighted",
        u=u,
        affinityTerms=terms,
    )


def test_uc5b_the_smallest_u_that_brings_the_other_region_in() -> None:
    advice = why_not(schedule(_uc5(0.5)), "us-west-1a-1")

    options = [
        change_words(suggestion.change)
        for suggestion in advice.helps
        if suggestion.change.kind is ChangeKind.OPTION
    ]
    assert options == ["mode strict (now weighted)", "u 1 (now 0.5)"]


def test_a_soft_level_of_ocm_has_no_limit_to_change() -> None:
    decision = schedule(ocm(zones(a=3, b=3), 2, [spread("zone", 1, hard=False)]))

    advice = why_not(decision, "a-2")

    tried = {suggestion.change.kind for suggestion in (*advice.helps, *advice.fails)}
    assert ChangeKind.MAX_SKEW not in tried
    assert ChangeKind.WHEN_UNSATISFIABLE in tried


def test_options_that_do_not_help_are_reported_in_a_line() -> None:
    decision = schedule(
        ocm(
            fleet(*zones(a=3, b=3).clusters, "missing_key"),
            2,
            [spread("zone", hard=False)],
        )
    )

    failures = failure_sentences(why_not(decision, "a-3").fails)

    assert "unsetPolicy exclude or free (now bucket)" in failures
    assert "mode weighted (now strict)" in failures


def test_a_group_pins_its_siblings_only() -> None:
    west = [cluster("w1", region="west", zone="w")]
    east = [
        cluster(f"e{zone}{number}", region="east", zone=zone)
        for zone, number in ("a1", "a2", "a3", "b1")
    ]
    cycle = ocm(fleet(*east, *west), 5, [spread("region", 9), spread("zone")])

    assert [
        words for words in trap_sentences(schedule(cycle)) if "blocking" in words
    ] == [
        "blocking domain: zone=east/b has no more candidates, so the minimum stays at 1"
    ]


def test_what_stands_above_no_group_is_not_above_the_emptiest() -> None:
    cycle = kubernetes(
        zones(a=3, b=3), 4, [{**spread("zone"), "minDomains": 3}], "a-1", "a-2", "b-1"
    )

    sentences = [
        words
        for words in trap_sentences(schedule(cycle))
        if "before the first step" in words
    ]

    assert sentences == [
        "zone: the fullest domain was 2 above 0 (fewer than 3 domains) before the first step (maxSkew 1)"
    ]
