"""What holds of the outcomes of any decision, whichever rules made it."""

from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes


def check_partition(decision: Decision) -> None:
    """Hold that every cluster has one outcome, and each outcome one deciding reason, which comes first."""
    outcomes = list(Outcomes(decision))
    assert [outcome.cluster for outcome in outcomes] == sorted(
        decision.cycle.fleet.names
    )
    assert all(
        [reason.is_deciding for reason in outcome.reasons].index(True) == 0
        for outcome in outcomes
    )
    assert all(
        sum(reason.is_deciding for reason in outcome.reasons) == 1
        for outcome in outcomes
    )
    ranks = [
        int(outcome.reasons[0].facts.get("rank") or 0)
        if outcome.outcome is not Outcome.PICKED
        else 0
        for outcome in outcomes
    ]
    assert all(
        outcome.reasons[0].facts.get("rank")
        in (None, outcome.reasons[0].facts.get("pick"))
        for outcome in outcomes
        if outcome.outcome is Outcome.PICKED
    )
    assert Outcomes(decision).summary() == list(
        zip((outcome.outcome for outcome in outcomes), ranks, strict=True)
    )
    by_outcome = {
        outcome: {
            cluster_outcome.cluster
            for cluster_outcome in outcomes
            if cluster_outcome.outcome is outcome
        }
        for outcome in Outcome
    }
    assert by_outcome[Outcome.PICKED] == set(decision.picked_names)
    assert by_outcome[Outcome.KEPT] == set(decision.kept)
    assert by_outcome[Outcome.UNSCHEDULED] == set(decision.unscheduled) & set(
        decision.cycle.fleet.names
    )
