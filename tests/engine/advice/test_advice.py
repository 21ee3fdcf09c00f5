"""Why not this cluster, and what would have to change."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements.engine.advice.changes import ChangeKind, edited
from placements.engine.advice.search import Advice, Suggestion, how_to_fulfil, why_not
from placements.engine.loss import CORDON
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcome
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.scheduler import schedule
from placements.explain.advice import change_words
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
from tests.effort import examples
from tests.engine.scheduling.test_demo_of_nine import (
    CANARY,
    CRITICAL,
    ENV,
    NINE,
    REGION,
)


def _details(
    suggestions: tuple[Suggestion, ...], kind: ChangeKind
) -> list[dict[str, Any]]:
    return [
        dict(suggestion.change.facts)
        for suggestion in suggestions
        if suggestion.change.kind is kind
    ]


@pytest.fixture(name="bravelion", scope="module")
def _bravelion() -> Advice:
    web = pick_n(5, spread=[REGION, ENV], prefer=[CRITICAL, CANARY])
    return why_not(decide(NINE, web), "bravelion")


@pytest.mark.nightly
def test_seven_clusters_would_reach_bravelion_and_six_would_not(
    bravelion: Advice,
) -> None:
    assert _details(bravelion.helps, ChangeKind.NUMBER) == [{"number": 7, "today": 5}]
    assert _details(bravelion.fails, ChangeKind.NUMBER) == [{"number": 6, "today": 5}]


def test_without_the_env_constraint_bravelion_would_be_picked(
    bravelion: Advice,
) -> None:
    assert _details(bravelion.helps, ChangeKind.DROP_CONSTRAINT) == [
        {"constraint": 1, "topologyKey": "env"}
    ]


def test_a_label_of_bravelion_would_replace_oldbadger(bravelion: Advice) -> None:
    canary = next(
        suggestion
        for suggestion in bravelion.helps
        if suggestion.change.kind is ChangeKind.LABEL
        and suggestion.change.facts["value"] == "canary"
    )

    assert (canary.gains, canary.losses) == (("bravelion",), ("oldbadger",))


def test_what_would_not_help_bravelion_goes_to_the_end_of_its_range(
    bravelion: Advice,
) -> None:
    skews = [
        suggestion
        for suggestion in bravelion.fails
        if suggestion.change.kind is ChangeKind.MAX_SKEW
    ]
    ranges = [
        (skew.change.facts["maxSkew"], skew.furthest and skew.furthest.facts["maxSkew"])
        for skew in skews
    ]

    assert ranges == [(2, 5), (3, 5), (1, None)]
    hardness = [
        detail["topologyKey"]
        for detail in _details(bravelion.fails, ChangeKind.WHEN_UNSATISFIABLE)
    ]
    assert hardness == ["region", "env"]


def test_the_nearest_max_skew_that_helps_is_named() -> None:
    full = fleet(*grouped("zone", a="a1 a2 a3 a4", b="b1"))
    decision = decide(full, pick_n(5, spread=[spread("zone")]))

    advice = why_not(decision, "a1")

    assert _details(advice.helps, ChangeKind.MAX_SKEW) == [
        {"constraint": 0, "topologyKey": "zone", "maxSkew": 3, "today": 1}
    ]


@pytest.mark.nightly
def test_the_weight_that_beats_the_cut_is_the_nearest_one() -> None:
    pair = fleet(cluster("a", tier="edge"), cluster("b", disk="fast"))
    decision = decide(
        pair,
        pick_n(
            1,
            prefer=[
                prefer(10, labelled(disk="fast")),
                prefer(1, labelled(tier="edge")),
            ],
        ),
    )

    advice = why_not(decision, "a")

    assert [
        (detail["term"], detail["selector"], detail["weight"], detail["today"])
        for detail in _details(advice.helps, ChangeKind.WEIGHT)
    ] == [
        (0, {"labelSelector": {"matchLabels": {"disk": "fast"}}}, 0, 10),
        (1, {"labelSelector": {"matchLabels": {"tier": "edge"}}}, 11, 1),
    ]


def test_a_toleration_helps_a_tainted_cluster() -> None:
    decision = decide(
        fleet(cluster("a", taints=[taint("gpu", "true")]), "b"), pick_all()
    )

    advice = why_not(decision, "a")

    assert _details(advice.helps, ChangeKind.TOLERATION) == [
        {"cluster": "a", "key": "gpu", "value": "true"}
    ]


def test_one_toleration_does_not_help_against_two_taints() -> None:
    decision = decide(
        fleet(cluster("a", taints=[taint("gpu"), taint("spot")])), pick_all()
    )

    advice = why_not(decision, "a")

    assert advice.helps == ()
    assert [
        detail["key"] for detail in _details(advice.fails, ChangeKind.TOLERATION)
    ] == [
        "gpu",
        "spot",
    ]


def test_leaving_out_a_requirement_or_the_term_helps_a_filtered_cluster() -> None:
    required = {"labelSelector": {"matchLabels": {"env": "prod", "tier": "edge"}}}
    decision = decide(fleet(cluster("a", env="prod")), pick_n(1, required=[required]))

    advice = why_not(decision, "a")

    assert _details(advice.helps, ChangeKind.DROP_REQUIREMENT) == [
        {"term": 0, "selector": required, "requirement": "tier"}
    ]
    [dropped] = [
        suggestion.change
        for suggestion in advice.helps
        if suggestion.change.kind is ChangeKind.DROP_TERM
    ]
    assert dropped.facts == {"term": 0, "selector": required}
    assert change_words(dropped) == "without the required term env=prod and tier=edge"
    assert _details(advice.fails, ChangeKind.DROP_REQUIREMENT) == [
        {"term": 0, "selector": required, "requirement": "env"}
    ]


def test_an_ineligible_cluster_gets_what_it_must_report() -> None:
    decision = decide(fleet(cluster("a", not_eligible="staleHeartbeat")), pick_n(1))

    advice = why_not(decision, "a")

    assert _details(advice.helps, ChangeKind.REPORT) == [
        {"cluster": "a", "kind": "staleHeartbeat", "reason": "staleHeartbeat"}
    ]


def test_pick_fixed_needs_the_name() -> None:
    decision = decide(fleet("a", "b"), pick_fixed("b"))

    advice = why_not(decision, "a")

    assert [suggestion.change.kind for suggestion in advice.helps] == [ChangeKind.NAME]


def test_a_placed_cluster_needs_no_advice() -> None:
    advice = why_not(decide(fleet("a"), pick_all()), "a")

    assert (advice.helps, advice.fails, advice.not_tried) == ((), (), ())


def test_a_cluster_that_the_fleet_lacks_is_an_error() -> None:
    with pytest.raises(KeyError):
        why_not(decide(fleet("a"), pick_all()), "z")


def test_a_label_does_not_help_where_enough_clusters_are_placed() -> None:
    decision = decide(
        fleet(cluster("a", zone="x"), "b"),
        pick_n(1, required=[expression("zone", "Exists")]),
        binding("a"),
    )

    advice = why_not(decision, "b")

    assert _details(advice.helps, ChangeKind.LABEL) == []


def test_what_the_budget_leaves_out_is_reported_as_not_tried() -> None:
    advice = why_not(decide(NINE, pick_n(1)), "bravelion", runs=0)

    assert advice.helps == advice.fails == ()
    assert advice.not_tried[0].kind is ChangeKind.PREFERENCE


def test_changing_only_the_number_keeps_the_bindings_current() -> None:
    cycle = decide(fleet("a", "b"), pick_n(1), binding("a")).cycle

    more = edited(cycle, lambda plain: plain.update(numberOfClusters=2))
    other = edited(
        cycle,
        lambda plain: plain.update(tolerations=[{"key": "x", "operator": "Exists"}]),
    )

    assert [placed_binding.is_current for placed_binding in more.bindings] == [True]
    assert [placed_binding.is_current for placed_binding in other.bindings] == [False]


def test_a_pinned_placement_gets_every_way_out() -> None:
    pinned = fleet(
        *(cluster(name, region="east", env="prod") for name in ("e1", "e2")),
        *(cluster(name, region="west", env="prod") for name in ("w1", "w2")),
        cluster("s1", region="south", env="canary"),
    )
    decision = decide(
        pinned, pick_n(4, required=[labelled(env="prod")], spread=[spread("region")])
    )

    ways = [
        (suggestion.change.kind, dict(suggestion.change.facts))
        for suggestion in how_to_fulfil(decision)
    ]

    skew = {"constraint": 0, "topologyKey": "region", "maxSkew": 2, "today": 1}
    assert (ChangeKind.MAX_SKEW, skew) in ways
    assert ChangeKind.LABEL not in {kind for kind, _ in ways}
    assert {kind for kind, _ in ways} >= {
        ChangeKind.WHEN_UNSATISFIABLE,
        ChangeKind.DROP_CONSTRAINT,
    }


def test_no_advice_is_to_tolerate_a_cordon() -> None:
    cordoned = cluster("a", taints=[CORDON, taint("gpu")])

    advice = why_not(decide(fleet(cordoned, "b"), pick_n(2)), "a")

    tried = [suggestion.change for suggestion in (*advice.helps, *advice.fails)]
    tolerations = [change for change in tried if change.kind is ChangeKind.TOLERATION]
    assert [toleration.facts["key"] for toleration in tolerations] == ["gpu"]


def test_ways_out_are_ordered_by_what_an_operator_would_accept() -> None:
    pinned = fleet(
        cluster("e1", region="east", system="critical"),
        cluster("s1", region="south"),
        *(cluster(name, region="west", system="critical") for name in ("w1", "w2")),
    )
    critical = [labelled(system="critical")]
    decision = decide(pinned, pick_n(3, required=critical, spread=[spread("region")]))

    ways = how_to_fulfil(decision)

    assert [(str(way.change.kind), way.gains) for way in ways] == [
        ("label", ("s1",)),
        ("prefer-terms", ("s1",)),
        ("when-unsatisfiable", ("w1",)),
        ("max-skew", ("w1",)),
        ("drop-constraint", ("w1",)),
        ("fewer-clusters", ()),
    ]
    assert dict(ways[0].change.facts) == {
        "cluster": "s1",
        "key": "system",
        "value": "critical",
        "today": None,
    }
    terms = schedule(ways[1].change.changed()).cycle.policy.preferred_terms
    assert [term.weight for term in terms] == [100]
    assert dict(ways[-1].change.facts) == {"number": 2, "today": 3}


def test_a_fulfilled_placement_needs_no_way_out() -> None:
    assert how_to_fulfil(decide(fleet("a"), pick_n(1))) == ()


ZONES, TIERS = (
    st.sampled_from(["x", "y", "z", None]),
    st.sampled_from(["edge", "core", None]),
)


@st.composite
def decisions(draw: st.DrawFn) -> Decision:
    """Draw decisions of small PickN placements, some with bindings."""
    names = "abcdefg"[: draw(st.integers(2, 7))]
    members = []
    for name in names:
        drawn = {"zone": draw(ZONES), "tier": draw(TIERS)}
        members.append(
            cluster(
                name, {key: value for key, value in drawn.items() if value is not None}
            )
        )
    constraints = [
        spread(key, draw(st.integers(1, 2)), hard=draw(st.booleans()))
        for key in draw(st.lists(st.sampled_from(["zone", "tier"]), unique=True))
    ]
    preferred = (
        [prefer(draw(st.integers(-30, 30)), labelled(tier="edge"))]
        if draw(st.booleans())
        else []
    )
    policy = pick_n(
        draw(st.integers(0, len(names))), spread=constraints, prefer=preferred
    )
    placed = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
    bindings = [binding(name, obsolete=draw(st.booleans())) for name in placed]
    return decide(
        fleet(*members),
        policy,
        *bindings,
        semantics=draw(st.sampled_from(["fleet", "kubefleet"])),
    )


def _is_placed(decision: Decision, name: str) -> bool:
    return name in decision.picked_names or name in decision.kept


NEARER = {
    ChangeKind.NUMBER: "number",
    ChangeKind.MAX_SKEW: "maxSkew",
    ChangeKind.WEIGHT: "weight",
}


def _nearer(decision: Decision, one: Suggestion) -> list[Decision]:
    """Decide with every value between today's and the suggested one."""
    if one.change.kind not in NEARER:
        return []
    facts, field = one.change.facts, NEARER[one.change.kind]
    step = 1 if facts[field] > facts["today"] else -1
    values = range(facts["today"] + step, facts[field], step)
    return [
        schedule(edited(decision.cycle, partial(_set, one=one, value=value)))
        for value in values
    ]


def _set(plain: dict[str, Any], *, one: Suggestion, value: int) -> None:
    facts = one.change.facts
    if one.change.kind is ChangeKind.NUMBER:
        plain["numberOfClusters"] = value
    elif one.change.kind is ChangeKind.MAX_SKEW:
        plain["topologySpreadConstraints"][facts["constraint"]]["maxSkew"] = value
    else:
        terms = plain["affinity"]["clusterAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        terms[facts["term"]]["weight"] = value


@pytest.mark.nightly
@examples(40)
@given(decision=decisions(), data=st.data())
def test_every_suggestion_is_true_and_minimal(
    decision: Decision, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(decision.cycle.fleet.names))

    advice = why_not(decision, name)

    for suggestion in advice.helps:
        assert _is_placed(schedule(suggestion.change.changed()), name)
        assert not any(
            _is_placed(nearer, name) for nearer in _nearer(decision, suggestion)
        )
    for suggestion in advice.fails:
        assert not _is_placed(schedule(suggestion.change.changed()), name)
        if suggestion.furthest is not None:
            assert not any(
                _is_placed(between, name)
                for between in _nearer(
                    decision, replace(suggestion, change=suggestion.furthest)
                )
            )


ADDS = ("weight", "preference", "term", "name", "toleration", "report", "number")
WEAKENS = (
    *("prefer-terms", "drop-requirement", "drop-term", "when-unsatisfiable"),
    *("max-skew", "min-domains", "counted", "option"),
)
REMOVES = ("drop-constraint", "fewer-clusters")


@examples(60)
@given(decision=decisions(), data=st.data())
def test_what_adds_comes_before_what_weakens_and_no_label_is_removed(
    decision: Decision, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(decision.cycle.fleet.names))

    for suggestions in (why_not(decision, name).helps, how_to_fulfil(decision)):
        kinds = [
            str(suggestion.change.kind)
            for suggestion in suggestions
            if suggestion.change.kind is not ChangeKind.LABEL
        ]
        places = [(*ADDS, *WEAKENS, *REMOVES).index(kind) for kind in kinds]
        assert places == sorted(places)
        labels = [
            suggestion.change.facts
            for suggestion in suggestions
            if suggestion.change.kind is ChangeKind.LABEL
        ]
        assert all(facts["value"] for facts in labels)
        # A value that a cluster has is not called wrong before anything else was proposed.
        if suggestions[:1] and suggestions[0].change.kind is ChangeKind.LABEL and kinds:
            assert suggestions[0].change.facts["today"] is None
    tried = why_not(decision, name)
    assert all(
        suggestion.change.facts["value"]
        for suggestion in (*tried.helps, *tried.fails)
        if suggestion.change.kind is ChangeKind.LABEL
    )


def test_a_preferred_term_for_a_label_that_few_have_is_proposed_first() -> None:
    pair = fleet(cluster("a", disk="fast", env="prod"), cluster("b", env="prod"))

    [first, *_] = why_not(decide(pair, pick_n(1)), "a").helps

    assert first.change.kind is ChangeKind.PREFERENCE
    assert dict(first.change.facts) == {"key": "disk", "value": "fast", "weight": 100}


def test_no_second_term_is_proposed_for_what_a_term_weighs() -> None:
    pair = fleet(cluster("a", env="canary"), cluster("b", env="prod", disk="fast"))
    avoids = [prefer(-10, labelled(env="canary"))]

    advice = why_not(decide(pair, pick_n(1, prefer=avoids)), "a")

    tried = [suggestion.change for suggestion in (*advice.helps, *advice.fails)]
    assert not [change for change in tried if change.kind is ChangeKind.PREFERENCE]
    assert any(change.kind is ChangeKind.WEIGHT for change in tried)


def test_a_required_term_is_added_before_another_is_dropped() -> None:
    pair = fleet(cluster("a", disk="fast"), cluster("b", env="prod"))

    helps = why_not(decide(pair, pick_all(required=[labelled(env="prod")])), "a").helps

    assert [suggestion.change.kind for suggestion in helps] == [
        ChangeKind.TERM,
        ChangeKind.LABEL,
        ChangeKind.DROP_TERM,
    ]


@examples(40)
@given(decision=decisions())
def test_every_way_to_fulfil_fulfils(decision: Decision) -> None:
    assert all(
        schedule(suggestion.change.changed()).is_fulfilled
        for suggestion in how_to_fulfil(decision)
    )


def test_a_decision_that_ranked_nothing_explains_a_cluster_by_rescheduling() -> None:
    members = fleet("a", "b", cluster("c", taints=[taint("gpu")]))
    decision = decide(members, pick_n(1), binding("b"))
    assert not decision.number_of_rounds

    advice = why_not(decision, "c")
    assert advice.is_rescheduled
    assert advice.outcome.outcome is Outcome.FILTERED
    assert advice.outcome.against.code is ReasonCode.UNTOLERATED_TAINT
    assert why_not(decision, "a").outcome.outcome is Outcome.OUTRANKED
    assert not why_not(decision, "b").is_rescheduled
