"""What a preview shows of a decision: groups against their band, the first picks, clusters passed over."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from clusters.columns import ABSENT, Codes, Ints
from placements.engine.scheduling.candidates import Candidates, candidates_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind, Decision, Picked
from placements.engine.scheduling.outcome import Outcome
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.spread.base import (
    imbalance,
    is_hard,
    is_limit,
    levels_of,
)
from placements.explain.vocabulary import COLUMN_WORDS
from placements.manifests.binding import BindingState
from placements.manifests.policy import PlacementType

MOST_GROUPS = 24
MOST_PICKS = 20
_WIDTH = 100
_MOST_SEGMENTS = 40


@dataclass(frozen=True, slots=True)
class GroupBar:
    """One domain: how many of its clusters are placed; `filled` and `outline` are widths of 100."""

    name: str
    placed: int
    clusters: int
    filled: float
    outline: float
    is_in_band: bool


@dataclass(frozen=True, slots=True)
class SpreadBars:
    """One constraint with its domains; the band from `low` to `high` is where a count may lie.

    All bars have one scale, on which a cluster is a segment as wide as `segment`; 0 where there are too many.
    `limit` is the place of `high` on it.

    Without a band (`high` None) domains are compared in families or with unequal shares, have no limit, or
    are too far apart already. Of many domains the outermost are listed; `hidden` is the number of all others.
    """

    topology_key: str
    max_skew: int
    is_hard: bool
    skew: int
    was: int
    low: int
    high: int | None
    limit: float
    segment: float
    bars: tuple[GroupBar, ...]
    hidden: int
    placed_without_key: int
    limits_skew: bool = True
    has_shares: bool = False

    @property
    def dashes(self) -> str:
        """Draw a line as segments with gaps: the attribute of SVG."""
        return f"{self.segment - 0.6:.2f} 0.6" if self.segment else "none"

    @property
    def hollow(self) -> str:
        """Draw the inside of the segments, which leaves their outlines."""
        return f"{self.segment - 1.2:.2f} 1.2" if self.segment else "none"

    @property
    def skew_words(self) -> str:
        return f"{'skew' if self.limits_skew else 'gap'} {self.skew}"

    @property
    def is_within(self) -> bool:
        return not self.is_limited or self.skew <= self.max_skew

    @property
    def is_limited(self) -> bool:
        """Return whether maxSkew limits anything: not where a soft constraint scores counts, or shares."""
        return not self.has_shares and (self.is_hard or self.limits_skew)


@dataclass(frozen=True, slots=True)
class PickLine:
    """One pick: its scores, and what put it before the next best."""

    place: int
    picked: Picked
    decided_by: str


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start of a cycle: its mark and name, and the effect on the clusters that are placed."""

    mark: str
    name: str
    words: str


def beginning(cycle: Cycle, *, is_incremental: bool) -> Beginning:
    if profile_of(cycle).chooses_again:
        return Beginning(
            "healthy",
            "selects again",
            f"as every cycle under these rules{_worth(cycle)}",
        )
    if is_incremental:
        return Beginning("healthy", "incremental", "existing placements are kept")
    words = f"more than the number changed{_worth(cycle)}"
    return Beginning("attention", "reschedules", words)


def rescheduling_words(cycle: Cycle) -> str:
    if profile_of(cycle).chooses_again:
        always = "Under these rules every decision selects among all clusters; this starts one now"
        return f"{always}{_worth(cycle)}."
    ordinary = "An ordinary decision keeps existing placements, even where other clusters rank higher now"
    return f"{ordinary}. Rescheduling makes every cluster a candidate{_worth(cycle, ', and ')}."


def _worth(cycle: Cycle, joint: str = "; ") -> str:
    """Return a clause with the effect of being placed, where clusters are ranked."""
    is_ranked = cycle.policy.placement_type is PlacementType.PICK_N
    return f"{joint}{worth_of_placed(cycle)}" if is_ranked else ""


def worth_of_placed(cycle: Cycle) -> str:
    """Return the effect of being placed where all are candidates.

    See `rules/other-schedulers.md#questions-that-a-spread-strategy-answers`.
    """
    profile = profile_of(cycle)
    steady = cycle.ocm_options.steady_weight if profile.chooses_again else 0
    if steady:
        return f"Steady alone scores {'for' if steady > 0 else 'against'} existing placements"
    only_ties = "was-here" in profile.strategy.rank_names
    return f"existing placements {'only win ties' if only_ties else 'have no effect'}"


def spread_bars(decision: Decision, *, most: int = MOST_GROUPS) -> list[SpreadBars]:
    """Return the domains of every constraint after the decision, at most `most` of each."""
    cycle = decision.cycle
    is_pick_n = cycle.policy.placement_type is PlacementType.PICK_N
    if (
        decision.is_failed
        or not is_pick_n
        or not cycle.policy.topology_spread_constraints
    ):
        return []
    candidates = decision.candidates or candidates_of(cycle)
    after = _positions(
        decision, [one.cluster for one in decision.bindings_after if one.is_active]
    )
    live = cycle.live_bindings
    before = _positions(
        decision,
        [one.cluster for one in live if one.state is not BindingState.UNSCHEDULED],
    )
    return [
        _bars(candidates, place, before, after, most)
        for place in range(len(candidates.constraints))
    ]


def _positions(decision: Decision, names: list[str]) -> Codes:
    positions = decision.cycle.fleet.positions
    return np.array(
        [positions[name] for name in names if name in positions], dtype=np.int32
    )


def _bars(
    candidates: Candidates, place: int, before: Codes, after: Codes, most: int
) -> SpreadBars:
    constraint, groups = candidates.constraints[place], candidates.groups[place]
    counts, was = groups.count(after), groups.count(before)
    levels, projected = (
        levels_of(counts),
        candidates.strategy.project(constraint, groups, counts),
    )
    low = max(0, levels.largest - constraint.max_skew)
    high = int(projected.smallest.max(initial=0)) + constraint.max_skew
    is_apart = bool(groups.siblings.any() or groups.weights)
    has_band = is_limit(constraint, projected) and not is_apart and low <= high
    distances = np.abs(counts - counts.mean()) if len(counts) else counts
    chosen = np.argsort(-distances, kind="stable")[:most]
    bar_groups = sorted(chosen.tolist(), key=lambda group: (-int(counts[group]), group))
    sizes = np.bincount(groups.codes[groups.codes != ABSENT], minlength=len(groups))
    # Of large domains the scale shows what may be placed, not all that is there.
    allowed = max(1, levels.largest, high if has_band else 0)
    scale = max(allowed, min(_MOST_SEGMENTS, int(sizes.max(initial=0))))
    unit = round(_WIDTH / scale, 3)
    return SpreadBars(
        topology_key=constraint.topology_key,
        max_skew=constraint.max_skew,
        is_hard=is_hard(constraint),
        skew=imbalance(counts, projected),
        was=imbalance(was, candidates.strategy.project(constraint, groups, was)),
        low=low,
        high=high if has_band else None,
        limit=min(high * unit, _WIDTH - 0.5),
        segment=unit if scale <= _MOST_SEGMENTS else 0,
        bars=tuple(
            GroupBar(
                groups.values[group],
                int(counts[group]),
                int(sizes[group]),
                round(int(counts[group]) * unit, 2),
                round(min(int(sizes[group]), scale) * unit, 2),
                not has_band or low <= counts[group] <= high,
            )
            for group in bar_groups
        ),
        hidden=len(groups) - len(bar_groups),
        placed_without_key=int(np.count_nonzero(groups.codes[after] == ABSENT)),
        limits_skew=projected.is_skew,
        has_shares=bool(groups.weights),
    )


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
        by = COLUMN_WORDS[decided_by]
        if decided_by == "name":
            tied = one.contends.copy()
            for column in one.rank_columns:
                tied &= column == column[first]
            by = f"name (tie of {int(np.count_nonzero(tied))})"
        yield PickLine(place, picked, by)


def passed_over(decision: Decision) -> list[tuple[Outcome, int]]:
    """Return how many clusters are not placed afterwards, by outcome, without a loop over clusters."""
    total = len(decision.cycle.fleet)
    active = {one.cluster for one in decision.bindings_after if one.is_active}
    placed = _positions(decision, [*active])
    ended = np.setdiff1d(_positions(decision, list(decision.unscheduled)), placed)
    rest = np.ones(total, dtype=np.bool_)
    rest[placed] = False
    rest[ended] = False
    counts = {
        Outcome.UNSCHEDULED: len(ended),
        **_reasons(decision, np.nonzero(rest)[0]),
    }
    return [(outcome, count) for outcome, count in counts.items() if count]


def _reasons(decision: Decision, rest: Ints) -> dict[Outcome, int]:
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
        if decision.number_of_rounds:
            last = decision.round(decision.number_of_rounds)
            filtered += int(np.count_nonzero(last.is_forbidden[passing]))
        outranked = len(rest) - ineligible - filtered
        return {
            Outcome.OUTRANKED: outranked,
            Outcome.FILTERED: filtered,
            Outcome.NOT_ELIGIBLE: ineligible,
        }
    return {Outcome.NOT_REACHED: len(rest)}
