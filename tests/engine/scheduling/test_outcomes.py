"""What became of each cluster, and why (`rules/scheduler.md#record-of-a-decision`)."""

import pytest

from clusters.fleet import Fleet
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.explain.vocabulary import reason_sentence
from placements.manifests.binding import BindingState, PlacedBinding
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
    pick_fixed,
    pick_n,
    prefer,
    sorted_by,
    spread,
    taint,
)


def _of(decision: Decision, name: str) -> ClusterOutcome:
    return Outcomes(decision).of(name)


def _codes(outcome: ClusterOutcome) -> list[str]:
    """Return the codes of the reasons, the deciding one with an asterisk."""
    return [
        f"{reason.code}*" if reason.is_deciding else str(reason.code)
        for reason in outcome.reasons
    ]


def _seen(decision: Decision) -> dict[str, str]:
    return {outcome.cluster: str(outcome.outcome) for outcome in Outcomes(decision)}


# One outcome after the other


def test_picked_names_pick_round_and_scores() -> None:
    one = fleet(*grouped("region", east="e", west="w"))

    outcome = _of(decide(one, pick_n(2, spread=[spread("region")])), "e")

    facts = {"pick": 2, "round": 2, "topologySpreadScore": 1, "affinityScore": 0}
    reason = Reason(ReasonCode.PICKED, facts, is_deciding=True)
    assert outcome == ClusterOutcome("e", Outcome.PICKED, (reason,), round=2)


def test_without_constraints_every_pick_is_of_the_one_round_with_a_rank() -> None:
    decision = decide(fleet("a", "b", "c"), pick_n(2))

    outcomes = [_of(decision, name) for name in "cb"]

    assert [
        (
            outcome.round,
            outcome.reasons[0].facts["pick"],
            outcome.reasons[0].facts["rank"],
        )
        for outcome in outcomes
    ] == [(1, 1, 1), (1, 2, 2)]
    assert (
        reason_sentence(outcomes[1].reasons[0]) == "Selected with rank 2 (affinity 0)"
    )


@pytest.mark.parametrize(
    ("policy", "code"),
    [(pick_all(), ReasonCode.PICKED_ALL), (pick_fixed("a"), ReasonCode.PICKED_BY_NAME)],
)
def test_picked_without_ranking_has_no_round(
    policy: PlacementPolicy, code: ReasonCode
) -> None:
    outcome = _of(decide(fleet("a"), policy), "a")

    assert outcome == ClusterOutcome(
        "a", Outcome.PICKED, (Reason(code, is_deciding=True),)
    )


@pytest.mark.parametrize("policy", [pick_all(), pick_fixed("a", "b", "c"), pick_n(3)])
def test_picked_stays_if_it_was_placed_before(policy: PlacementPolicy) -> None:
    bindings = [binding("a", "Bound", obsolete=True), binding("b", "Unscheduled")]

    outcomes = Outcomes(decide(fleet("a", "b", "c"), policy, *bindings))

    assert [outcome.stays for outcome in outcomes] == [True, False, False]


def test_kept_gives_the_binding() -> None:
    outcome = _of(
        decide(fleet("a"), pick_all(), binding("a", "Bound", scores=(1, 2))), "a"
    )

    facts = {"state": BindingState.BOUND, "topologySpreadScore": 1, "affinityScore": 2}
    kept = Reason(ReasonCode.KEPT, facts, is_deciding=True)
    assert outcome == ClusterOutcome("a", Outcome.KEPT, (kept,), stays=True)


def test_kept_adds_the_filters_that_the_cluster_would_not_pass_today() -> None:
    one = fleet(cluster("a", not_eligible="unhealthy", taints=[taint("gpu")]))

    outcome = _of(
        decide(one, pick_all(required=[labelled(tier="edge")]), binding("a")), "a"
    )

    assert _codes(outcome) == [
        "kept*",
        "required-affinity",
        "not-eligible",
        "untolerated-taint",
    ]


def test_kept_under_pick_fixed_shows_that_the_target_became_ineligible() -> None:
    one = fleet(cluster("a", not_eligible="unhealthy"))

    assert _codes(_of(decide(one, pick_fixed("a"), binding("a")), "a")) == [
        "kept*",
        "not-eligible",
    ]


def test_unscheduled_because_the_cluster_leaves() -> None:
    one = fleet(cluster("a", not_eligible="leaving"), "b")

    outcome = _of(decide(one, pick_n(1), binding("a")), "a")

    assert (outcome.outcome, _codes(outcome)) == (
        Outcome.UNSCHEDULED,
        ["cluster-left*", "not-eligible"],
    )


def test_unscheduled_because_of_the_new_policy_and_what_speaks_against_it() -> None:
    one = fleet(cluster("a", taints=[taint("gpu")]), "b")

    outcome = _of(decide(one, pick_n(1), binding("a", obsolete=True)), "a")

    assert (outcome.outcome, _codes(outcome)) == (
        Outcome.UNSCHEDULED,
        ["policy-changed*", "untolerated-taint"],
    )


def test_unscheduled_because_of_the_new_policy_and_outranked() -> None:
    one = fleet("a", cluster("b", tier="edge"))

    outcome = _of(
        decide(
            one,
            pick_n(1, prefer=[prefer(1, labelled(tier="edge"))]),
            binding("a", obsolete=True),
        ),
        "a",
    )

    assert (outcome.outcome, _codes(outcome)) == (
        Outcome.UNSCHEDULED,
        ["policy-changed*", "outranked"],
    )


def test_unscheduled_on_scaling_down() -> None:
    outcome = _of(
        decide(
            fleet("a", "b"),
            pick_n(1),
            binding("a", scores=(0, 0)),
            binding("b", scores=(0, 0)),
        ),
        "a",
    )

    facts = {
        "state": BindingState.BOUND,
        "topologySpreadScore": 0,
        "affinityScore": 0,
        "behind": "b",
        "decidedBy": "name",
        "behindTopologySpreadScore": 0,
        "behindAffinityScore": 0,
    }
    reason = Reason(ReasonCode.SCALED_DOWN, facts, is_deciding=True)
    assert outcome == ClusterOutcome("a", Outcome.UNSCHEDULED, (reason,))


def test_not_named() -> None:
    outcome = _of(decide(fleet("a", "b"), pick_fixed("a")), "b")

    assert outcome == ClusterOutcome(
        "b", Outcome.NOT_NAMED, (Reason(ReasonCode.NOT_NAMED, is_deciding=True),)
    )


@pytest.mark.parametrize(
    ("policy", "placed", "semantics", "code"),
    [
        (pick_n(0), ["b"], "fleet", ReasonCode.SCALING_DOWN),
        (pick_n(1), ["b"], "fleet", ReasonCode.NOTHING_TO_DO),
        (pick_fixed(), ["b"], "fleet", ReasonCode.NO_NAMES),
        (
            pick_n(2, prefer=[prefer(1, sorted_by("cpu"))]),
            [],
            "kubefleet",
            ReasonCode.CYCLE_FAILED,
        ),
    ],
)
def test_not_reached_where_the_cycle_did_not_pick(
    policy: PlacementPolicy, placed: list[str], semantics: str, code: ReasonCode
) -> None:
    one = fleet(cluster("a", properties={"cpu": "lots"}, not_eligible="noAgent"), "b")

    outcome = _of(decide(one, policy, *map(binding, placed), semantics=semantics), "a")

    assert outcome == ClusterOutcome(
        "a", Outcome.NOT_REACHED, (Reason(code, is_deciding=True),)
    )


@pytest.mark.parametrize(
    "policy",
    [pick_all(), pick_fixed("a"), pick_n(1), pick_n(1, spread=[spread("region")])],
)
def test_not_eligible_is_an_outcome_of_its_own(policy: PlacementPolicy) -> None:
    outcome = _of(decide(fleet(cluster("a", not_eligible="noAgent")), policy), "a")

    facts = {"kind": "noAgent", "reason": "noAgent"}
    reason = Reason(ReasonCode.NOT_ELIGIBLE, facts, is_deciding=True)
    assert outcome == ClusterOutcome("a", Outcome.NOT_ELIGIBLE, (reason,))


def test_filtered_lists_every_failing_filter_and_marks_the_first() -> None:
    one = fleet(cluster("a", not_eligible="unhealthy", taints=[taint("gpu")]))

    outcome = _of(decide(one, pick_all(required=[labelled(tier="edge")])), "a")

    assert outcome.outcome is Outcome.FILTERED
    assert _codes(outcome) == [
        "required-affinity*",
        "not-eligible",
        "untolerated-taint",
    ]


def test_not_eligible_decides_before_taints() -> None:
    one = fleet(cluster("a", not_eligible="unhealthy", taints=[taint("gpu")]))

    outcome = _of(decide(one, pick_n(1)), "a")

    assert (outcome.outcome, _codes(outcome)) == (
        Outcome.NOT_ELIGIBLE,
        ["not-eligible*", "untolerated-taint"],
    )


def test_filtered_by_spread_gives_the_numbers_of_the_last_round() -> None:
    one = fleet(
        *grouped("region", east="e1 e2", west="w1"),
        cluster("n1", region="north", not_eligible="noAgent"),
    )

    outcome = _of(decide(one, pick_n(3, spread=[spread("region")])), "e1")

    facts = {
        "round": 3,
        "topologyKey": "region",
        "maxSkew": 1,
        "hard": True,
        "group": "east",
        "count": 1,
        "smallest": 0,
        "skewBefore": 1,
        "skewAfter": 2,
        "score": -1000,
        "violates": True,
    }
    reason = Reason(ReasonCode.TOPOLOGY_SPREAD, facts, is_deciding=True)
    assert outcome == ClusterOutcome(
        "e1", Outcome.FILTERED, (reason,), lost=outcome.lost
    )


def test_a_blocked_cluster_says_to_which_it_lost_its_domain() -> None:
    one = fleet(*grouped("region", east="e1 e2", west="w1 w2"))
    decision = decide(one, pick_n(3, spread=[spread("region")]))
    stuck = decide(
        one.with_cluster(cluster("n1", region="north", not_eligible="noAgent")),
        pick_n(3, spread=[spread("region")]),
    )

    blocked = [_of(stuck, name).lost for name in ("e1", "w1")]

    assert _of(decision, "e1").lost is None
    assert [
        (lost.facts["round"], lost.facts["behind"]) for lost in blocked if lost
    ] == [
        (2, "e2"),
        (1, "w2"),
    ]


def test_filtered_by_spread_comes_after_the_other_filters_one_reason_a_constraint() -> (
    None
):
    labels = {"region": "east", "env": "prod"}
    one = fleet(
        *(cluster(name, labels) for name in ("a", "b")),
        cluster("c", labels, taints=[taint("gpu")]),
        cluster("d", region="west", env="test", not_eligible="noAgent"),
    )

    outcome = _of(decide(one, pick_n(3, spread=[spread("region"), spread("env")])), "c")

    assert _codes(outcome) == [
        "untolerated-taint*",
        "topology-spread",
        "topology-spread",
    ]
    assert [reason.facts["topologyKey"] for reason in outcome.reasons[1:]] == [
        "region",
        "env",
    ]


def test_a_broken_soft_constraint_filters_no_cluster() -> None:
    one = fleet(*grouped("region", east="e1 e2 e3", west="w1"))

    outcome = _of(decide(one, pick_n(3, spread=[spread("region", hard=False)])), "e1")

    assert (outcome.outcome, _codes(outcome)) == (Outcome.OUTRANKED, ["outranked*"])


def test_outranked_names_the_cluster_ahead_and_the_column_that_decided() -> None:
    one = fleet("a", cluster("b", tier="edge"), "c")

    outcome = _of(
        decide(one, pick_n(1, prefer=[prefer(20, labelled(tier="edge"))])), "a"
    )

    facts = {
        "round": 1,
        "rank": 3,
        "behind": "b",
        "decidedBy": "affinity",
        "topologySpreadScore": 0,
        "affinityScore": 0,
        "behindTopologySpreadScore": 0,
        "behindAffinityScore": 20,
    }
    reason = Reason(ReasonCode.OUTRANKED, facts, is_deciding=True)
    assert outcome == ClusterOutcome("a", Outcome.OUTRANKED, (reason,))


def test_outranked_without_constraints_is_measured_against_the_last_one_in() -> None:
    decision = decide(fleet("a", "b", "c", "d"), pick_n(2))

    facts = [_of(decision, name).reasons[0].facts for name in ("b", "a")]

    assert [(fact["rank"], fact["behind"], fact["decidedBy"]) for fact in facts] == [
        (3, "c", "name"),
        (4, "c", "name"),
    ]


def test_outranked_with_constraints_is_measured_against_the_winner_of_the_last_round() -> (
    None
):
    one = fleet(*grouped("region", east="e1 e2", west="w1 w2"))

    facts = (
        _of(decide(one, pick_n(2, spread=[spread("region")])), "e1").reasons[0].facts
    )

    assert (facts["round"], facts["rank"], facts["behind"], facts["decidedBy"]) == (
        2,
        2,
        "e2",
        "name",
    )


# Which comes first


@pytest.mark.parametrize(
    ("policy", "placed", "outcome"),
    [
        (pick_n(1), binding("a", obsolete=True), Outcome.PICKED),
        (pick_all(required=[labelled(tier="edge")]), binding("a"), Outcome.KEPT),
        (pick_n(0), binding("a"), Outcome.UNSCHEDULED),
        (pick_fixed("b"), binding("a", obsolete=True), Outcome.UNSCHEDULED),
        (pick_fixed("b"), binding("a", "Unscheduled"), Outcome.NOT_NAMED),
        (pick_fixed(), binding("a", obsolete=True), Outcome.NOT_REACHED),
        (
            pick_all(required=[labelled(tier="edge")]),
            binding("a", obsolete=True),
            Outcome.UNSCHEDULED,
        ),
        (
            pick_all(required=[labelled(tier="edge")]),
            binding("a", "Unscheduled"),
            Outcome.FILTERED,
        ),
        (pick_n(0), binding("a", "Unscheduled"), Outcome.NOT_REACHED),
    ],
)
def test_the_first_that_applies_is_the_outcome(
    policy: PlacementPolicy, placed: PlacedBinding, outcome: Outcome
) -> None:
    assert _of(decide(fleet("a"), policy, placed), "a").outcome is outcome


def test_every_cluster_has_one_outcome_with_one_deciding_reason() -> None:
    one = fleet(
        "picked",
        "outranked",
        "kept",
        cluster("leaving", not_eligible="leaving"),
        cluster("sick", not_eligible="unhealthy"),
        cluster("tainted", taints=[taint("gpu")]),
    )

    outcomes = list(
        Outcomes(
            decide(one, pick_n(2), binding("kept"), binding("leaving"), binding("gone"))
        )
    )

    assert {outcome.cluster: str(outcome.outcome) for outcome in outcomes} == {
        "kept": "kept",
        "leaving": "unscheduled",
        "outranked": "outranked",
        "picked": "picked",
        "sick": "not eligible",
        "tainted": "filtered",
    }
    assert all(
        sum(reason.is_deciding for reason in outcome.reasons) == 1
        for outcome in outcomes
    )


def test_a_cluster_that_the_fleet_does_not_have_has_no_outcome() -> None:
    with pytest.raises(KeyError, match="gone"):
        _of(decide(fleet("a"), pick_n(1), binding("gone")), "gone")


def test_an_empty_fleet_has_no_outcomes() -> None:
    assert _seen(decide(Fleet(), pick_n(1))) == {}


def test_a_malformed_property_is_one_that_does_not_match() -> None:
    one = fleet(cluster("a", properties={"cpu": "lots"}))

    outcome = _of(decide(one, pick_all(required=[measured("cpu", "Ge", "1")])), "a")

    missed = {"property": "cpu", "operator": "Ge", "values": ["1"], "actual": "lots"}
    assert outcome.reasons[0].facts == {"terms": [[missed]]}
