"""What holds of the outcomes of any decision, whichever rules made it."""

from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import Outcome, Outcomes


def check_partition(decision: Decision) -> None:
    """Hold that every cluster has one outcome, and each outcome one deciding reason, which comes first."""
    outcomes = list(Outcomes(decision))
    assert [one.cluster for one in outcomes] == sorted(decision.cycle.fleet.names)
    assert all(
        [reason.is_deciding for reason in one.reasons].index(True) == 0
        for one in outcomes
    )
    assert all(
        sum(reason.is_deciding for reason in one.reasons) == 1 for one in outcomes
    )
    ranks = [
        int(one.reasons[0].facts.get("rank") or 0)
        if one.outcome is not Outcome.PICKED
        else 0
        for one in outcomes
    ]
    assert all(
        one.reasons[0].facts.get("rank") in (None, one.reasons[0].facts.get("pick"))
        for one in outcomes
        if one.outcome is Outcome.PICKED
    )
    assert Outcomes(decision).summary() == list(
        zip((one.outcome for one in outcomes), ranks, strict=True)
    )
    by_outcome = {
        outcome: {one.cluster for one in outcomes if one.outcome is outcome}
        for outcome in Outcome
    }
    assert by_outcome[Outcome.PICKED] == set(decision.picked_names)
    assert by_outcome[Outcome.KEPT] == set(decision.kept)
    assert by_outcome[Outcome.UNSCHEDULED] == set(decision.unscheduled) & set(
        decision.cycle.fleet.names
    )
