"""The replay of a decision: any round, any cluster in it, after the fact."""

import pytest

from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.replay import (
    Candidate,
    ConstraintCheck,
    Cut,
    Replay,
    RoundSummary,
    Spread,
)
from tests.builders import (
    binding,
    cluster,
    decide,
    fleet,
    grouped,
    labelled,
    pick_all,
    pick_n,
    prefer,
    sorted_by,
    spread,
)

EAST_WEST = fleet(*grouped("region", east="e1 e2", west="w1"))


def _round_by_round(
    decision: Decision,
) -> list[tuple[str | None, str | None, str | None]]:
    return [(step.winner, step.runner_up, step.decided_by) for step in Replay(decision)]


# Steps


def test_a_step_shows_the_groups_before_and_after_the_pick() -> None:
    step = Replay(decide(EAST_WEST, pick_n(2, spread=[spread("region", 2)]))).step(2)

    before, after = {"east": 0, "west": 1}, {"east": 1, "west": 1}
    assert step == RoundSummary(
        number=2,
        winner="e2",
        runner_up="e1",
        decided_by="name",
        spreads=(
            Spread(
                "region", 2, True, before, after, skew_before=1, skew_after=0, forbids=0
            ),
        ),
        cut=None,
        candidates=2,
        equal=("topology", "affinity"),
    )


def test_the_first_candidates_are_those_of_all_of_them() -> None:
    replay = Replay(decide(EAST_WEST, pick_n(3, spread=[spread("region")])))

    every = replay.candidates(2)

    assert len(every) == replay.step(2).candidates
    assert [replay.candidates(2, most=most) for most in range(4)] == [
        every[:most] for most in range(4)
    ]


def test_there_is_one_step_a_round() -> None:
    decision = decide(EAST_WEST, pick_n(3, spread=[spread("region")]))

    assert _round_by_round(decision) == [
        ("w1", "e2", "name"),
        ("e2", "e1", "name"),
        ("e1", None, None),
    ]


def test_the_last_step_of_a_run_that_stopped_short_has_no_winner() -> None:
    one = fleet(
        *grouped("region", east="e1 e2", west="w1"),
        cluster("n", region="north", not_eligible="noAgent"),
    )

    step = list(Replay(decide(one, pick_n(9, spread=[spread("region")]))))[-1]

    assert (step.number, step.winner, step.runner_up, step.decided_by) == (
        3,
        None,
        None,
        None,
    )
    assert (
        step.spreads[0].before
        == step.spreads[0].after
        == {"east": 1, "north": 0, "west": 1}
    )


def test_picking_a_cluster_without_the_key_changes_no_count() -> None:
    step = Replay(
        decide(fleet(*EAST_WEST, "missing_key"), pick_n(1, spread=[spread("region")]))
    ).step(1)

    assert step.winner == "missing_key"
    assert step.spreads[0].before == step.spreads[0].after == {"east": 0, "west": 0}


@pytest.mark.parametrize(
    ("labels", "obsolete", "decided_by"),
    [
        ({"region": "west"}, [], "topology"),
        ({"region": "east", "tier": "edge"}, [], "affinity"),
        ({"region": "east"}, ["new"], "was-here"),
        ({"region": "east"}, [], "name"),
    ],
)
def test_the_first_column_that_differs_decided(
    labels: dict[str, str], obsolete: list[str], decided_by: str
) -> None:
    one = fleet(*grouped("region", east="a placed"), cluster("new", labels))
    policy = pick_n(
        2, spread=[spread("region", 9)], prefer=[prefer(1, labelled(tier="edge"))]
    )
    bindings = [binding("placed"), *(binding(name, obsolete=True) for name in obsolete)]

    assert _round_by_round(decide(one, policy, *bindings)) == [("new", "a", decided_by)]


def test_without_constraints_a_step_shows_where_the_line_was_drawn() -> None:
    one = fleet("a", cluster("b", tier="edge"), "c", "d")

    steps = list(
        Replay(decide(one, pick_n(2, prefer=[prefer(1, labelled(tier="edge"))])))
    )

    cut = Cut(2, "d", first_out="c", decided_by="name", equal=("affinity",))
    assert steps == [
        RoundSummary(1, "b", "d", "affinity", spreads=(), cut=cut, candidates=4)
    ]


def test_the_cut_of_a_run_that_took_all_leaves_no_cluster_out() -> None:
    step = Replay(decide(fleet("a", "b"), pick_n(5))).step(1)

    assert step.cut == Cut(size=2, last_in="a", first_out=None, decided_by=None)


def test_there_is_no_cut_where_no_cluster_could_be_picked() -> None:
    step = Replay(decide(fleet(cluster("a", not_eligible="noAgent")), pick_n(1))).step(
        1
    )

    assert step == RoundSummary(1, None, None, None, spreads=(), cut=None, candidates=0)


def test_a_decision_without_rounds_has_no_steps() -> None:
    replay = Replay(decide(fleet("a"), pick_all()))

    assert list(replay) == []
    with pytest.raises(IndexError, match="round 1 not found"):
        replay.step(1)


# Clusters in a step


def test_a_candidate_has_its_rank_scores_and_what_put_the_winner_before_it() -> None:
    one = fleet(
        *grouped("region", east="e1 e2", west="w1"),
        cluster("w2", region="west", tier="edge"),
    )
    policy = pick_n(
        2,
        spread=[spread("region", 2)],
        prefer=[prefer(3, labelled(tier="edge")), prefer(4)],
    )

    candidate = Replay(decide(one, policy)).candidate(2, "w1")

    verdict = ConstraintCheck(
        topology_key="region",
        max_skew=2,
        is_hard=True,
        group="west",
        count=1,
        smallest=0,
        skew_before=1,
        skew_after=2,
        limits_skew=True,
        score=-1,
        violates=False,
        is_forbidden=False,
    )
    assert candidate == Candidate(
        cluster="w1",
        rank=3,
        topology_spread_score=-1,
        affinity_score=4,
        was_here=0,
        decided_by="topology",
        constraints=(verdict,),
        preferred=(0, 4),
        combined={},
    )


def test_the_winner_was_put_behind_no_cluster() -> None:
    candidate = Replay(
        decide(EAST_WEST, pick_n(1, spread=[spread("region")]))
    ).candidate(1, "w1")

    assert (candidate.rank, candidate.decided_by) == (1, None)


def test_a_forbidden_cluster_has_no_rank() -> None:
    candidate = Replay(
        decide(EAST_WEST, pick_n(2, spread=[spread("region")]), binding("e1"))
    ).candidate(1, "e2")

    verdict = candidate.constraints[0]
    assert (candidate.rank, candidate.decided_by) == (None, None)
    assert (verdict.count, verdict.skew_before, verdict.skew_after) == (1, 1, 2)
    assert (verdict.violates, verdict.is_forbidden) == (True, True)


def test_a_cluster_without_the_key_has_no_group_and_no_count() -> None:
    candidate = Replay(
        decide(fleet(*EAST_WEST, "missing_key"), pick_n(1, spread=[spread("region")]))
    ).candidate(1, "missing_key")

    verdict = candidate.constraints[0]
    assert (verdict.group, verdict.count, verdict.skew_after) == (None, None, None)
    assert (verdict.score, verdict.violates, verdict.is_forbidden) == (0, False, False)


def test_a_filtered_cluster_is_judged_too_but_not_ranked() -> None:
    one = fleet(*EAST_WEST, cluster("e3", region="east", not_eligible="noAgent"))

    candidate = Replay(decide(one, pick_n(1, spread=[spread("region")]))).candidate(
        1, "e3"
    )

    assert (candidate.rank, candidate.topology_spread_score) == (None, -1)


def test_candidates_lists_the_ranked_then_the_forbidden_without_picked_and_filtered_ones() -> (
    None
):
    one = fleet(
        *grouped("region", east="e1 e2", west="w1 w2"),
        cluster("sick", not_eligible="unhealthy"),
    )

    candidates = Replay(decide(one, pick_n(3, spread=[spread("region")]))).candidates(2)

    assert [(candidate.cluster, candidate.rank) for candidate in candidates] == [
        ("e2", 1),
        ("e1", 2),
        ("w1", None),
    ]


def test_was_here_is_shown_as_the_round_uses_it() -> None:
    one = fleet(*grouped("region", east="e1", west="w1"))
    policy, obsolete = (
        pick_n(2, spread=[spread("region")]),
        binding("e1", obsolete=True),
    )

    fleet_rules = Replay(decide(one, policy, obsolete, semantics="fleet"))
    kubefleet_rules = Replay(decide(one, policy, obsolete, semantics="kubefleet"))

    assert [fleet_rules.candidate(number, "e1").was_here for number in (1, 2)] == [1, 1]
    assert [kubefleet_rules.candidate(number, "e1").was_here for number in (1, 2)] == [
        1,
        0,
    ]


def test_preferred_shows_every_term_also_those_of_weight_zero() -> None:
    one = fleet(
        cluster("a", properties={"cpu": "1"}),
        cluster("b", tier="edge", properties={"cpu": "3"}),
        "c",
    )
    terms = [prefer(10, sorted_by("cpu")), prefer(0), prefer(-5, labelled(tier="edge"))]

    candidate = Replay(decide(one, pick_n(1, prefer=terms))).candidate(1, "b")

    assert (candidate.preferred, candidate.affinity_score) == ((10, 0, -5), 5)


@pytest.mark.parametrize("number", [0, 3])
def test_there_is_no_candidate_in_a_round_that_was_not_evaluated(number: int) -> None:
    with pytest.raises(IndexError, match="this decision has 2"):
        Replay(decide(EAST_WEST, pick_n(2, spread=[spread("region")]))).candidate(
            number, "e1"
        )


def test_there_is_no_candidate_that_the_fleet_does_not_have() -> None:
    with pytest.raises(KeyError, match="gone"):
        Replay(decide(EAST_WEST, pick_n(1, spread=[spread("region")]))).candidate(
            1, "gone"
        )


def test_a_verdict_as_plain_data_leaves_out_what_follows_from_the_rest() -> None:
    candidate = Replay(
        decide(EAST_WEST, pick_n(1, spread=[spread("region")]))
    ).candidate(1, "w1")

    assert candidate.constraints[0].facts == {
        "topologyKey": "region",
        "maxSkew": 1,
        "hard": True,
        "group": "west",
        "count": 0,
        "smallest": 0,
        "skewBefore": 0,
        "skewAfter": 1,
        "score": -1,
        "violates": False,
    }
