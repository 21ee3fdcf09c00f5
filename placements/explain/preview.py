"""What a preview shows of a decision: groups against their band, the first picks, clusters passed over."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from clusters.columns import Ints
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind, Decision, Picked
from placements.engine.scheduling.outcome import BLOCKED, Outcome, Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.replay import equal_before
from placements.explain.lanes import positions_of
from placements.explain.vocabulary import decided_words, outcome_sentences
from placements.manifests.policy import PlacementType

MOST_PICKS = 20
MOST_REMOVALS = 3


@dataclass(frozen=True, slots=True)
class PickLine:
    place: int
    picked: Picked
    decided_by: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start of a cycle: its mark and name, and the effect on the clusters that are placed."""

    mark: str
    name: str
    words: str


def beginning(
    cycle: Cycle, *, is_incremental: bool, is_scale_down: bool = False
) -> Beginning:
    if is_scale_down:
        return Beginning(
            "healthy",
            "scale down",
            "only removes, the lowest stored scores first, outdated or not",
        )
    if profile_of(cycle).chooses_again:
        return Beginning(
            "healthy",
            "selects again",
            f"as every cycle under these rules{_worth(cycle)}",
        )
    if is_incremental:
        return Beginning("healthy", "incremental", "existing placements are kept")
    return Beginning(
        "attention", "reschedules", f"more than the number changed{_worth(cycle)}"
    )


def rescheduling_words(cycle: Cycle) -> str:
    if profile_of(cycle).chooses_again:
        always = "Under these rules every decision selects among all clusters; this starts one now"
        return f"{always}{_worth(cycle)}."
    ordinary = "An ordinary decision keeps existing placements, even where other clusters rank higher now"
    return f"{ordinary}. Rescheduling makes every cluster a candidate{_worth(cycle, ', and ')}."


def _worth(cycle: Cycle, joint: str = "; ") -> str:
    """Return a clause with the effect of being placed where all are candidates, if clusters are ranked.

    See `rules/other-schedulers.md#questions-that-a-spread-strategy-answers`.
    """
    if cycle.policy.placement_type is not PlacementType.PICK_N:
        return ""
    profile = profile_of(cycle)
    steady = cycle.ocm_options.steady_weight if profile.chooses_again else 0
    if steady:
        return f"{joint}Steady alone scores {'for' if steady > 0 else 'against'} existing placements"
    only_ties = "was-here" in profile.strategy.rank_names
    return f"{joint}existing placements {'only win ties' if only_ties else 'have no effect'}"


def removal_sentences(decision: Decision, names: Sequence[str]) -> list[str]:
    """Return why the first of these clusters are removed by a decision; empty where others are selected."""
    if decision.kind is not CycleKind.SCALE_DOWN:
        return []
    outcomes = map(Outcomes(decision).of, names[:MOST_REMOVALS])
    return [
        f"{outcome.cluster}: {outcome_sentences(outcome)[0]}" for outcome in outcomes
    ]


def pick_lines(decision: Decision) -> Iterator[PickLine]:
    is_one_round = decision.number_of_rounds == 1 and len(decision.picked) != 1
    for place, picked in enumerate(islice(decision.picked, MOST_PICKS), start=1):
        if not decision.number_of_rounds or is_one_round:
            yield PickLine(place, picked, "")
            continue
        one = decision.round(place)
        first = one.best()
        second = None if first is None else one.best(besides=first)
        decided_by = (
            None if first is None or second is None else one.decided_by(first, second)
        )
        by = decided_words(decided_by, equal_before(decision.cycle, decided_by))
        if decided_by == "name":
            tied = one.contends.copy()
            for column in one.rank_columns:
                tied &= column == column[first]
            by = f"{by[:-1]} for {int(np.count_nonzero(tied))} clusters)"
        yield PickLine(place, picked, by)


def passed_over(decision: Decision) -> list[tuple[str, int]]:
    """Return how many clusters are not placed afterwards, by state, without a loop over clusters."""
    placed = positions_of(decision.cycle.fleet, decision.placed_after)
    ended = np.setdiff1d(
        positions_of(decision.cycle.fleet, decision.unscheduled), placed
    )
    rest = np.ones(len(decision.cycle.fleet), dtype=np.bool_)
    rest[placed] = False
    rest[ended] = False
    counts: dict[str, int] = {
        Outcome.UNSCHEDULED: len(ended),
        **_reasons(decision, np.nonzero(rest)[0]),
    }
    return [(outcome, count) for outcome, count in counts.items() if count]


def _reasons(decision: Decision, rest: Ints) -> dict[str, int]:
    if decision.kind is CycleKind.PICK_FIXED:
        named = set(decision.cycle.policy.cluster_names)
        count = sum(
            decision.cycle.fleet.names[place] in named for place in rest.tolist()
        )
        return {Outcome.NOT_ELIGIBLE: count, Outcome.NOT_NAMED: len(rest) - count}
    if (
        decision.kind in (CycleKind.PICK, CycleKind.PICK_ALL)
        and decision.verdicts is not None
    ):
        names = [rule.name for rule in profile_of(decision.cycle).filters]
        bits = np.asarray(decision.verdicts)[rest].astype(np.int64)
        if "already placed" in names:
            bits &= ~(1 << names.index("already placed"))
        first = bits & -bits
        ineligible = int(np.count_nonzero(first == 1 << names.index("eligibility")))
        filtered = int(np.count_nonzero(first)) - ineligible
        passing = rest[first == 0]
        blocked = 0
        if decision.number_of_rounds:
            last = decision.round(decision.number_of_rounds)
            blocked = int(np.count_nonzero(last.is_forbidden[passing]))
        return {
            Outcome.OUTRANKED: len(passing) - blocked,
            BLOCKED: blocked,
            Outcome.FILTERED: filtered,
            Outcome.NOT_ELIGIBLE: ineligible,
        }
    return {Outcome.NOT_REACHED: len(rest)}
