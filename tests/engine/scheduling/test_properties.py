"""What holds for every cycle, tried on random ones and compared with a plain evaluation of the rules."""

from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.binding import BindingState
from tests.builders import cycle_of
from tests.effort import examples
from tests.engine.scheduling.partition import check_partition
from tests.engine.scheduling.plain_evaluation import (
    PlainRound,
    passes_filters,
    plain_rounds,
)
from tests.engine.scheduling.random_cases import cases

Case = dict[str, Any]
THOROUGH = examples(200)
PICK_N = cases(types=("PickN",), malformed=False)


def _rounds(case: Case, decision: Decision) -> list[PlainRound]:
    """Evaluate plainly the rounds that the decision says there were, or fewer when none is left before."""
    rounds = plain_rounds(case, kubefleet=case["semantics"] == "kubefleet")
    return list(islice(rounds, max(len(decision.picked), decision.number_of_rounds)))


def _picking(case: Case) -> Decision:
    """Schedule a case; drop those in which PickN does not pick."""
    decision = schedule(cycle_of(case))
    assume(decision.kind is CycleKind.PICK)
    return decision


# Against the plain evaluation


@THOROUGH
@given(PICK_N)
def test_picks_and_their_scores_are_those_of_the_plain_evaluation(case: Case) -> None:
    decision = _picking(case)

    winners = [
        plain_round.winner
        for plain_round in _rounds(case, decision)
        if plain_round.winner
    ]

    assert [
        (picked.topology_spread_score, picked.affinity_score, picked.cluster)
        for picked in decision.picked
    ] == [(spread, affinity, name) for spread, affinity, _, name in winners]
    missing = case["policy"]["numberOfClusters"] - len(decision.kept)
    assert decision.is_fulfilled is (len(winners) == missing)


@THOROUGH
@given(PICK_N)
def test_every_round_ranks_and_forbids_what_the_plain_evaluation_does(
    case: Case,
) -> None:
    decision = _picking(case)
    names = decision.cycle.fleet.names

    for number, plain in enumerate(
        _rounds(case, decision)[: decision.number_of_rounds], start=1
    ):
        one = decision.round(number)
        taken = {
            names[position] for position in (*one.earlier_picks, *decision.cycle.placed)
        }
        forbidden = {
            names[position]
            for position in (one.is_forbidden & one.candidates.passes).nonzero()[0]
        }
        assert [names[position] for position in one.ranked] == [
            name for *_, name in plain.ranked
        ]
        assert forbidden - taken == set(plain.forbidden)


@given(PICK_N)
def test_replay_of_every_round_and_cluster_is_that_of_the_plain_evaluation(
    case: Case,
) -> None:
    decision = _picking(case)
    replay = Replay(decision)
    constraints = case["policy"]["topologySpreadConstraints"]

    for number, plain in enumerate(
        _rounds(case, decision)[: decision.number_of_rounds], start=1
    ):
        scores = {
            name: (spread, affinity, here)
            for spread, affinity, here, name in plain.ranked
        }
        for cluster in case["clusters"]:
            candidate = replay.candidate(number, cluster["name"])
            groups = [
                cluster["labels"].get(constraint["topologyKey"])
                for constraint in constraints
            ]
            expected = [
                (0, False) if group is None else judged[group]
                for group, judged in zip(groups, plain.judged, strict=True)
            ]
            assert [verdict.group for verdict in candidate.constraints] == groups
            assert replay.verdicts(number, cluster["name"]) == candidate.constraints
            assert [
                (verdict.score, verdict.violates) for verdict in candidate.constraints
            ] == expected
            if candidate.rank is not None:
                ranked: object = (
                    candidate.topology_spread_score,
                    candidate.affinity_score,
                    candidate.was_here,
                )
                assert ranked == scores[candidate.cluster]
                assert plain.ranked[candidate.rank - 1][-1] == candidate.cluster


@given(cases(types=("PickAll",), malformed=False))
def test_pick_all_picks_what_passes_the_filters_plainly(case: Case) -> None:
    decision = schedule(cycle_of(case))

    fit = {
        cluster["name"]
        for cluster in case["clusters"]
        if passes_filters(cluster, case["policy"])
    }
    assert list(decision.picked_names) == sorted(fit - set(decision.kept))


@given(cases(types=("PickFixed",)))
def test_pick_fixed_picks_the_eligible_clusters_it_names(case: Case) -> None:
    decision = schedule(cycle_of(case))

    eligible = {
        cluster["name"] for cluster in case["clusters"] if cluster["eligible"]["value"]
    }
    named = case["policy"]["clusterNames"]
    assert list(decision.picked_names) == [
        name for name in named if name in eligible - set(decision.kept)
    ]
    assert decision.is_fulfilled is eligible.issuperset(named)


# The record


@given(cases())
def test_every_cluster_has_exactly_one_outcome_and_one_deciding_reason(
    case: Case,
) -> None:
    decision = schedule(cycle_of(case))

    assert sorted(decision.cycle.fleet.names) == sorted(
        cluster["name"] for cluster in case["clusters"]
    )
    check_partition(decision)


@given(PICK_N)
def test_an_outranked_cluster_could_have_been_picked_and_no_other_could(
    case: Case,
) -> None:
    decision = _picking(case)
    last = (
        _rounds(case, decision)[-1]
        if decision.candidates and decision.candidates.constraints
        else None
    )

    outranked = {
        outcome.cluster
        for outcome in Outcomes(decision)
        if outcome.outcome is Outcome.OUTRANKED
    }

    first = next(plain_rounds(case, kubefleet=case["semantics"] == "kubefleet"))
    left = {name for *_, name in (last or first).ranked}
    assert outranked == left - set(decision.picked_names) - set(decision.unscheduled)


@given(PICK_N)
def test_replay_agrees_with_the_record(case: Case) -> None:
    decision = _picking(case)
    assume(case["policy"]["topologySpreadConstraints"])
    replay = Replay(decision)

    steps = list(replay)

    assert [step.winner for step in steps if step.winner] == list(decision.picked_names)
    for step, picked in zip(steps, decision.picked, strict=False):
        winner = replay.candidate(step.number, picked.cluster)
        assert (winner.rank, winner.topology_spread_score) == (
            1,
            picked.topology_spread_score,
        )
        assert winner.affinity_score == picked.affinity_score == sum(winner.preferred)


@given(PICK_N)
def test_counts_and_skew_of_every_step_follow_from_the_bindings(case: Case) -> None:
    decision = _picking(case)
    placed = [
        decision.cycle.fleet.names[position] for position in decision.cycle.placed
    ]

    for step in Replay(decision):
        for spread in step.spreads:
            before = _counts(
                case,
                spread.topology_key,
                [*placed, *decision.picked_names[: step.number - 1]],
            )
            after = _counts(
                case,
                spread.topology_key,
                [*placed, *decision.picked_names[: step.number]],
            )
            assert (spread.before, spread.after) == (before, after)
            assert (spread.skew_before, spread.skew_after) == (
                _skew(before),
                _skew(after),
            )


@given(PICK_N)
def test_every_verdict_says_what_one_more_cluster_there_would_do(case: Case) -> None:
    decision = _picking(case)
    replay = Replay(decision)

    for number in range(1, decision.number_of_rounds + 1):
        for candidate in replay.candidates(number):
            for verdict, spread in zip(
                candidate.constraints, replay.step(number).spreads, strict=True
            ):
                assert (verdict.smallest, verdict.skew_before) == (
                    min(spread.before.values(), default=0),
                    spread.skew_before,
                )
                if verdict.group is not None and len(spread.before) > 1:
                    after = {
                        **spread.before,
                        verdict.group: spread.before[verdict.group] + 1,
                    }
                    assert (verdict.count, verdict.skew_after) == (
                        spread.before[verdict.group],
                        _skew(after),
                    )


# Order, prefixes, limits


@given(cases(), st.randoms(use_true_random=False))
def test_the_order_of_clusters_and_bindings_never_matters(
    case: Case, random: Any
) -> None:
    shuffled = {
        **case,
        "clusters": random.sample(case["clusters"], len(case["clusters"])),
        "bindings": random.sample(case["bindings"], len(case["bindings"])),
    }

    one, other = schedule(cycle_of(case)), schedule(cycle_of(shuffled))

    assert (one.id, one.picked, one.kept) == (other.id, other.picked, other.kept)
    assert (one.unscheduled, one.bindings_after) == (
        other.unscheduled,
        other.bindings_after,
    )
    assert list(Outcomes(one)) == list(Outcomes(other))


@given(PICK_N)
def test_picks_for_n_are_a_prefix_of_picks_for_one_more(case: Case) -> None:
    more = {
        **case,
        "policy": {
            **case["policy"],
            "numberOfClusters": case["policy"]["numberOfClusters"] + 1,
        },
    }

    fewer, one_more = schedule(cycle_of(case)).picked, schedule(cycle_of(more)).picked

    assert one_more[: len(fewer)] == fewer
    assert len(one_more) <= len(fewer) + 1 or not fewer


@given(PICK_N)
def test_no_pick_makes_a_hard_constraint_worse_than_its_limit_under_fleet_rules(
    case: Case,
) -> None:
    decision = _picking({**case, "semantics": "fleet"})

    for step in Replay(decision):
        for spread in step.spreads:
            if spread.is_hard and len(spread.before) > 1:
                assert spread.skew_after <= max(spread.max_skew, spread.skew_before)


@given(PICK_N)
def test_no_pick_in_a_group_leaves_a_hard_constraint_above_its_limit_under_kubefleet_rules(
    case: Case,
) -> None:
    decision = _picking({**case, "semantics": "kubefleet"})

    for step in Replay(decision):
        for spread in step.spreads:
            if spread.is_hard and spread.before != spread.after:
                assert spread.skew_after <= spread.max_skew


# Bindings


@given(cases())
def test_bindings_after_are_those_kept_picked_and_unscheduled(case: Case) -> None:
    decision = schedule(cycle_of(case))
    before = {binding.cluster: binding for binding in decision.cycle.live_bindings}
    after = {binding.cluster: binding for binding in decision.bindings_after}

    assert set(after) == set(before) | set(decision.picked_names)
    assert all(after[name] == before[name] for name in decision.kept)
    for picked in decision.picked:
        one = after[picked.cluster]
        assert (one.is_active, one.is_current) == (True, True)
        assert (one.topology_spread_score, one.affinity_score) == (
            picked.topology_spread_score,
            picked.affinity_score,
        )
    for name in decision.unscheduled:
        assert after[name].state is BindingState.UNSCHEDULED
        assert after[name].previous_state is before[name].state
    assert not set(decision.kept) & set(decision.picked_names)
    assert not set(decision.unscheduled) & {*decision.kept, *decision.picked_names}


@THOROUGH
@given(cases())
def test_running_again_on_what_a_cycle_left_behind_changes_nothing(case: Case) -> None:
    first = schedule(cycle_of(case))

    second = schedule(replace(first.cycle, bindings=first.bindings_after))

    assert (second.picked, second.unscheduled) == ((), ())
    assert second.bindings_after == first.bindings_after
    assert second.is_fulfilled is first.is_fulfilled


@given(PICK_N)
def test_a_fulfilled_pick_n_has_as_many_as_it_wants(case: Case) -> None:
    decision = schedule(cycle_of(case))

    active = [binding for binding in decision.bindings_after if binding.is_active]

    assert decision.is_fulfilled is (len(active) == case["policy"]["numberOfClusters"])
    assert len(active) <= case["policy"]["numberOfClusters"]


@given(cases())
def test_kubefleet_fails_where_fleet_warns_and_at_sorters_of_weight_zero(
    case: Case,
) -> None:
    cycle = cycle_of(case)
    preferred = cycle.policy.preferred_terms

    warned, failed = (
        schedule(_under(cycle, semantics))
        for semantics in (Semantics.FLEET, Semantics.KUBEFLEET)
    )

    assert failed.is_failed is bool(failed.malformed)
    assert {*warned.malformed} <= {*failed.malformed}
    if all(term.weight for term in preferred if term.preference.property_sorter):
        assert failed.malformed == warned.malformed


def _under(cycle: Cycle, semantics: Semantics) -> Cycle:
    return replace(cycle, semantics=semantics)


def _counts(case: Case, key: str, placed: list[str]) -> dict[str, int]:
    labels = {
        cluster["name"]: cluster["labels"].get(key) for cluster in case["clusters"]
    }
    counted = Counter(labels[name] for name in placed)
    return {
        value: counted[value]
        for value in sorted({value for value in labels.values() if value is not None})
    }


def _skew(counts: dict[str, int]) -> int:
    return max(counts.values(), default=0) - min(counts.values(), default=0)
