"""The steps of a decision as its page shows them: the picks, and the skew after each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.replay import Replay, RoundSummary
from placements.engine.scheduling.spread.base import (
    imbalance,
    is_limit,
)
from placements.explain.decisions import blocked_words, deciding_words
from placements.explain.vocabulary import (
    NONE,
    max_skew_words,
    measure_word,
    signed_text,
)

# Up to this number each step of a small fleet has a picture of its own.
FEW_STEPS, MOST_COLUMNS = 4, 12
_BAR, _MOST_POINTS, _HIDDEN_NAMED = 26, 120, 8


@dataclass(frozen=True, slots=True)
class SkewBar:
    """The skew of one constraint before and after a step; the heights are those of the bar and its limit."""

    key: str
    measure: str
    words: str
    before: int
    after: int
    limit: int | None
    height: int
    limit_height: int


@dataclass(frozen=True, slots=True)
class StepChip:
    number: int
    cluster: str
    domains: tuple[str, ...]
    note: str
    skews: tuple[SkewBar, ...]
    decided_by: str
    rival: str
    decided: str
    is_current: bool
    is_later: bool

    @property
    def why(self) -> str:
        """What decided the step: "Selected over lion by affinity, 20 vs. 0"."""
        if self.rival:
            over = f"Selected over {self.rival} by {self.decided_by}"
            return f"{over}, {self.decided}" if self.decided else over
        return f"Selected: {self.decided_by} {self.decided}".rstrip()


@dataclass(frozen=True, slots=True)
class HiddenStep:
    number: int
    cluster: str
    domains: str
    skews: str


@dataclass(frozen=True, slots=True)
class Strip:
    """The steps that fit beside each other, and the skews before the first of all.

    `hidden` are the first of the steps before and after them, of which there are `earlier` and `later`;
    `kept` are the first of the clusters that the decision kept, with their domains.
    """

    start: tuple[SkewBar, ...]
    chips: tuple[StepChip, ...]
    hidden: tuple[HiddenStep, ...]
    earlier: int
    later: int
    kept: tuple[tuple[str, str], ...]

    @property
    def more(self) -> int:
        return self.earlier + self.later - len(self.hidden)


def strip_of(decision: Decision, current: int, *, most: int = MOST_COLUMNS) -> Strip:
    """Return at most so many steps around the current one."""
    replay, total = Replay(decision), decision.number_of_rounds
    first = max(1, min(current - most // 2, total - most + 1))
    last = min(total, first + most - 1)
    steps = [replay.step(number) for number in range(first, last + 1)]
    largest = [
        max(
            1,
            spread.max_skew,
            spread.skew_before,
            *(step.spreads[place].skew_after for step in steps),
        )
        for place, spread in enumerate(steps[0].spreads)
    ]
    before = {
        binding.cluster for binding in decision.cycle.live_bindings if binding.is_active
    }
    measure = measure_word(decision.cycle.semantics)
    chips = []
    for step in steps:
        note = ""
        if before and step.winner:
            note = "stays" if step.winner in before else "new"
        chips.append(
            StepChip(
                step.number,
                step.winner or "",
                domains_of(decision, step.winner) if step.winner else (),
                note,
                tuple(_skew_bars(step, largest, measure, is_start=False)),
                *deciding_words(replay, step),
                is_current=step.number == current,
                is_later=step.number > current,
            )
        )
    start: tuple[SkewBar, ...] = ()
    if first == 1:
        start = tuple(_skew_bars(steps[0], largest, measure, is_start=True))
    hidden = tuple(_hidden_steps(decision, first, last, measure))
    return Strip(
        start,
        tuple(chips),
        hidden,
        first - 1,
        total - last,
        tuple(
            (name, domain_words(decision, name))
            for name in decision.kept[:_HIDDEN_NAMED]
        ),
    )


def _hidden_steps(
    decision: Decision, first: int, last: int, measure: str
) -> Iterator[HiddenStep]:
    """Yield the first of the steps that are not from `first` to `last`."""
    names = decision.picked_names
    shown = [
        number for number in range(1, len(names) + 1) if not first <= number <= last
    ][:_HIDDEN_NAMED]
    for number, *skews in zip(shown, *_skews_after(decision, shown), strict=True):
        name = names[number - 1]
        after = f"{measure} {', '.join(map(str, skews))}"
        yield HiddenStep(number, name, domain_words(decision, name), after)


def _skews_after(decision: Decision, numbers: Sequence[int]) -> Iterator[list[int]]:
    """Yield the skews of each constraint after these steps, as its rules measure them."""
    candidates = decision.candidates
    if candidates is None:
        return
    project = candidates.strategy.project
    for constraint, groups, start in zip(
        candidates.constraints,
        candidates.groups,
        candidates.starting_counts(),
        strict=True,
    ):
        counts = [start + groups.count(decision.chosen[:number]) for number in numbers]
        yield [imbalance(count, project(constraint, groups, count)) for count in counts]


def _skew_bars(
    step: RoundSummary,
    largest: Sequence[int],
    measure: str,
    *,
    is_start: bool,
) -> Iterator[SkewBar]:
    for spread, most in zip(step.spreads, largest, strict=True):
        is_limited = spread.is_hard or spread.limits_skew
        value = spread.skew_before if is_start else spread.skew_after
        yield SkewBar(
            spread.topology_key,
            measure,
            max_skew_words(spread.max_skew, hard=spread.is_hard, is_limit=is_limited),
            spread.skew_before,
            value,
            spread.max_skew if is_limited else None,
            max(2, _BAR * value // most),
            _BAR * spread.max_skew // most,
        )


def domain_words(decision: Decision, cluster: str) -> str:
    """Return the domains of a cluster in a row: "west, prod"."""
    return ", ".join(domains_of(decision, cluster))


def domains_of(decision: Decision, cluster: str) -> tuple[str, ...]:
    """Return the domains of a cluster, one for each topology key."""
    fleet = decision.cycle.fleet
    position = fleet.positions[cluster]
    values = {
        constraint.topology_key: fleet.topology(
            constraint.topology_key, constraint.topology_key_type
        ).value_at(position)
        for constraint in decision.cycle.policy.topology_spread_constraints
    }
    return tuple(
        value or f"no {key.rpartition('/')[2]}" for key, value in values.items()
    )


@dataclass(frozen=True, slots=True)
class SkewCourse:
    """The skew of one constraint over all steps, as the points of a line 100 wide and 24 high."""

    key: str
    limit: int | None
    limit_at: float
    points: str
    final: int


def skew_courses(decision: Decision) -> Iterator[SkewCourse]:
    """Yield a line for each constraint; of many steps those at even distances."""
    candidates, total = decision.candidates, len(decision.chosen)
    if candidates is None or not total:
        return
    numbers = np.unique(
        np.linspace(1, total, min(total, _MOST_POINTS)).astype(np.int64)
    ).tolist()
    for constraint, groups, start, skews in zip(
        candidates.constraints,
        candidates.groups,
        candidates.starting_counts(),
        _skews_after(decision, numbers),
        strict=True,
    ):
        projected = candidates.strategy.project(constraint, groups, start)
        limit = constraint.max_skew if is_limit(constraint, projected) else None
        top = max(1, *skews, limit or 0)
        points = " ".join(
            f"{100 * (number - 1) / max(1, total - 1):.1f},{24 - 22 * skew / top:.1f}"
            for number, skew in zip(numbers, skews, strict=True)
        )
        limit_at = 24 - 22 * constraint.max_skew / top
        yield SkewCourse(constraint.topology_key, limit, limit_at, points, skews[-1])


@dataclass(frozen=True, slots=True)
class StepCell:
    number: int
    spread: str
    affinity: str
    words: str
    is_selected: bool
    is_current: bool


@dataclass(frozen=True, slots=True)
class ClusterSteps:
    """One cluster through the steps from the first to its selection, or those around one of many."""

    cluster: str
    domains: str
    cells: tuple[StepCell, ...]
    more: int


def cluster_steps(decision: Decision, cluster: str, current: int) -> ClusterSteps:
    """Return the line of a cluster through the steps. Raise KeyError."""
    replay, total = Replay(decision), decision.number_of_rounds
    first = max(1, min(current - MOST_COLUMNS // 2, total - MOST_COLUMNS + 1))
    position = decision.cycle.fleet.positions[cluster]
    out = "already placed" if cluster in decision.kept else "not a candidate"
    cells = []
    for number in range(first, min(total, first + MOST_COLUMNS - 1) + 1):
        one = replay.round(number)
        candidate = replay.candidate_in(one, cluster)
        is_left = bool(one.is_left[position])
        places = 1 if one.constraint_scores else len(decision.chosen)
        is_selected = candidate.rank is not None and candidate.rank <= places
        words = f"rank {candidate.rank:,}" if candidate.rank else out
        if is_selected:
            words = "selected"
        elif is_left and candidate.rank is None:
            checks = (
                constraint
                for constraint in candidate.constraints
                if constraint.is_forbidden
            )
            words = f"blocked: {'; '.join(map(blocked_words, checks))}"
        elif not is_left and cluster in decision.picked_names[: number - 1]:
            words = f"selected in step {decision.picked_names.index(cluster) + 1}"
        has_rank = candidate.rank is not None
        cells.append(
            StepCell(
                number,
                signed_text(candidate.topology_spread_score) if has_rank else NONE,
                signed_text(candidate.affinity_score) if is_left else NONE,
                words,
                is_selected,
                number == current,
            )
        )
    return ClusterSteps(
        cluster, domain_words(decision, cluster), tuple(cells), total - len(cells)
    )
