"""The domains of a decision as lanes: who is placed, selected, a candidate, blocked."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from clusters.columns import ABSENT, Ints
from clusters.fleet import Fleet
from fleetui.apimachinery.words import counted
from placements.engine.advice.diagnosis import pinned_groups
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.spread.base import (
    Groups,
    SkewProjection,
    imbalance,
    is_hard,
    is_limit,
)
from placements.explain.vocabulary import (
    MEASURES,
    SORTS,
    max_skew_words,
)
from placements.manifests.policy import PlacementType, TopologySpreadConstraint

# Up to this number every cluster is named in its lane.
FEW_CLUSTERS = 12
MOST_LANES, _MOST_GROUPS, _NEAR_LIMITS = 60, 12, 12
MOST_SLOTS, _MOST_NAMED = 6, 5
# The width of a lane, of a letter beside it, and between both, in pixels.
_TRACK, _LETTER, _LEAST_WORDS = 360, 7, 26
# Of so many clusters the labels are looked through for one to group by.
_SAMPLE = 50


class Mark(StrEnum):
    """How a lane shows clusters; the words are in the legend."""

    PLACED = "placed"
    NEW = "new"
    GONE = "gone"
    CANDIDATE = "candidate"
    COSTLY = "costly"
    BLOCKED = "blocked"
    REST = "rest"
    OUT = "out"


MARK_WORDS = {
    Mark.PLACED: "placed",
    Mark.NEW: "this step",
    Mark.GONE: "deselected",
    Mark.CANDIDATE: "candidate",
    Mark.COSTLY: "over the soft limit",
    Mark.BLOCKED: "candidate, blocked",
    Mark.REST: "other candidate",
    Mark.OUT: "not a candidate",
}
# The marks that a lane names in a large fleet, too.
INSIDE = (Mark.PLACED, Mark.NEW, Mark.GONE)
# Arrays of these are compared as a whole, those of marks one by one.
_CODES = {mark: code for code, mark in enumerate(Mark)}
_INSIDE = [_CODES[mark] for mark in INSIDE]
BAND_WORDS = "within the limit"
BLOCKING_WORDS = "blocking domain"
NO_LIMIT = "no limit"


def legend_of(
    panels: Collection["LanePanel"], others: Iterable[Mark] = ()
) -> list[tuple[str, str]]:
    """Return each mark of the panels, and these others, with its words."""
    marks = {*others, *(mark for panel in panels for mark in panel.marks)}
    legend = [(str(mark), words) for mark, words in MARK_WORDS.items() if mark in marks]
    if any(panel.is_limited for panel in panels):
        legend.append(("band-key", BAND_WORDS))
    return legend


@dataclass(frozen=True, slots=True)
class LaneBlock:
    """One cluster of a lane, or several; `number` is the step that selected it, or 0."""

    mark: Mark
    words: str
    cluster: str = ""
    number: int = 0
    size: float = 1

    @property
    def mark_words(self) -> str:
        return MARK_WORDS[self.mark]


@dataclass(frozen=True, slots=True)
class Lane:
    """One topology domain; `value` None: clusters without the key.

    A bar may end from `low` to `high`.
    `placed` and the limit are of one moment, before the step that adds `added` clusters.
    """

    name: str
    value: str | None
    segments: tuple[LaneBlock, ...]
    others: str
    placed: int
    added: int
    size: int
    low: int
    high: int | None
    group: str
    was: int = 0

    @property
    def end(self) -> float:
        size = sum(segment.size for segment in self.segments)
        # The words of a domain that blocks are in its band, where it has room.
        if self.others == BLOCKING_WORDS:
            return size
        return max(size, self.high or 0)


@dataclass(frozen=True, slots=True)
class LanePanel:
    """One constraint; a lane is `slots` clusters wide, of which `text` are for words."""

    key: str
    sort: str
    max_skew: int
    is_limited: bool
    measure: str
    skew: int
    was: int
    note: str
    band: str
    slots: float
    columns: int
    lanes: tuple[Lane, ...]
    hidden: int

    @property
    def rows(self) -> int:
        return -(-len(self.lanes) // self.columns)

    @property
    def inside(self) -> int:
        # The clusters that a lane is wide on a phone, where those not placed are below.
        return max(
            1, *(max(lane.placed + lane.added, lane.high or 0) for lane in self.lanes)
        )

    @property
    def is_numbered(self) -> bool:
        return any(segment.number for lane in self.lanes for segment in lane.segments)

    @property
    def marks(self) -> set[Mark]:
        return {segment.mark for lane in self.lanes for segment in lane.segments}


def positions_of(fleet: Fleet, names: Iterable[str]) -> Ints:
    return np.array(
        sorted(fleet.positions[name] for name in names if name in fleet.positions),
        dtype=np.int64,
    )


class _Moment:
    """The clusters before a step, or at the end: the placed, the added, and all marks."""

    def __init__(
        self,
        decision: Decision,
        step: int | None,
        *,
        is_start: bool,
        before: Collection[str] | None = None,
        lost: Collection[str] = (),
        is_multiple: bool = False,
    ) -> None:
        fleet = decision.cycle.fleet
        self.decision = decision
        self.names = fleet.names
        self.is_small = len(fleet) <= FEW_CLUSTERS
        self.lost = np.array(
            [*map(fleet.positions.get, fleet.positions.keys() & lost)], dtype=np.int64
        )
        self.hidden = _CODES[Mark.OUT] if is_multiple else None
        self.candidates = decision.candidates or candidates_of(decision.cycle)
        self.before: Any = self.candidates.placed
        if before is not None:
            self.before = positions_of(fleet, before)
        self.number_of = dict(zip(decision.chosen.tolist(), count(1), strict=False))
        self.round = None if step is None else decision.round(step)
        if self.round is None or step is None:
            self.placed = positions_of(fleet, decision.placed_after)
            self.added = decision.chosen[:0]
            if decision.cycle.policy.placement_type is not PlacementType.PICK_N:
                self.number_of = {}
            return
        # Where every cycle chooses again, no cluster counts before the first step.
        again = profile_of(decision.cycle).chooses_again
        kept = self.candidates.placed[:0] if again else self.candidates.placed
        self.placed = np.concatenate([kept, self.round.earlier_picks]).astype(np.int64)
        self.added = (
            decision.chosen[:0] if is_start else decision.chosen[step - 1 : step]
        )

    @cached_property
    def blocking(self) -> list[tuple[str, str]]:
        """Key and value of what ended an unfulfilled decision, from its last step on."""
        if self.round and self.round.number < self.decision.number_of_rounds:
            return []
        return [
            (group.topology_key, group.group) for group in pinned_groups(self.decision)
        ]

    def marks(self, place: int) -> Ints:
        """Return the code of the mark of every cluster for the constraint at a place of the policy."""
        marks = np.full(len(self.names), _CODES[Mark.OUT])
        if self.round is None:
            marks[self.candidates.passes] = _CODES[Mark.REST]
        else:
            left = self.round.is_left
            marks[left] = _CODES[Mark.CANDIDATE]
            marks[left & self.round.constraint_scores[place].violates] = _CODES[
                Mark.COSTLY
            ]
            marks[left & self.round.is_forbidden] = _CODES[Mark.BLOCKED]
        marks[self.lost[marks[self.lost] == _CODES[Mark.OUT]]] = _CODES[Mark.GONE]
        marks[self.placed] = _CODES[Mark.PLACED]
        marks[self.added] = _CODES[Mark.NEW]
        if self.round is None and self.before.size:
            marks[np.setdiff1d(self.placed, self.before)] = _CODES[Mark.NEW]
            marks[np.setdiff1d(self.before, self.placed)] = _CODES[Mark.GONE]
        return marks

    def lane(
        self, marks: Ints, positions: Ints, *, is_named: bool
    ) -> tuple[LaneBlock, ...]:
        """Return the segments of a lane: the placed by step, then the others by mark.

        In a large fleet many with the same mark are counted, and the placed also where they are not named.
        """
        most = dict.fromkeys(_CODES, FEW_CLUSTERS if self.is_small else _MOST_NAMED)
        if not is_named:
            most[Mark.PLACED] = 0
        segments = []
        codes = marks[positions]
        for mark, code in _CODES.items():
            members = positions[codes == code].tolist()
            if len(members) > most[mark]:
                words = f"{len(members):,}"
                segments.append(LaneBlock(mark, words, size=len(members)))
                continue
            numbers = self.number_of if mark in (Mark.PLACED, Mark.NEW) else {}
            # The positions ascend, and the order of equal steps stays.
            members.sort(key=lambda at: self.number_of.get(at, 0))
            segments += [
                LaneBlock(mark, self.names[at], self.names[at], numbers.get(at, 0))
                for at in members
            ]
        kept = max(sum(segment.mark in INSIDE for segment in segments), MOST_SLOTS - 1)
        if len(segments) > MOST_SLOTS and (rest := segments[kept:]):
            segments[kept:] = [LaneBlock(rest[0].mark, f"+{len(rest)} more")]
        return tuple(segments)


def lane_panels(
    decision: Decision,
    step: int | None = None,
    *,
    every: bool = False,
    is_start: bool = False,
    before: Collection[str] | None = None,
    lost: Collection[str] = (),
    is_multiple: bool = False,
) -> tuple[LanePanel, ...]:
    """Return the domains of each constraint in a step, or as the decision leaves them.

    Of many domains those near the limits are returned, unless `every`; `is_start`:
    without what the step adds; `before` as in `placed_panels`; `lost`: placed until this
    decision; `is_multiple`: one of several pictures beside each other, without room for
    clusters that are no candidates. Raise IndexError.
    """
    if not _spreads(decision):
        return ()
    moment = _Moment(
        decision,
        step,
        is_start=is_start,
        before=before,
        lost=lost,
        is_multiple=is_multiple,
    )
    candidates = moment.candidates
    pairs = zip(candidates.constraints, candidates.groups, strict=True)
    return tuple(
        _panel(moment, place, *pair, every=every) for place, pair in enumerate(pairs)
    )


def _spreads(decision: Decision) -> bool:
    policy = decision.cycle.policy
    is_pick_n = policy.placement_type is PlacementType.PICK_N
    has_constraints = bool(policy.topology_spread_constraints)
    return is_pick_n and has_constraints and not decision.is_failed


def placed_panels(
    decision: Decision, before: Collection[str] | None = None
) -> tuple[LanePanel, ...]:
    """Return the domains as a decision leaves them; without a spread, by a label.

    `before`: the clusters that are placed now, where the decision does not keep these.
    """
    panels = lane_panels(decision, before=before)
    if panels or decision.is_failed:
        return tuple(
            replace(panel, note=f"{panel.measure} {panel.skew}" * panel.is_limited)
            for panel in panels
        )
    key = dividing_key(decision)
    if not key:
        return ()
    column = decision.cycle.fleet.label(key)
    constraint = TopologySpreadConstraint(topology_key=key)
    moment = _Moment(decision, None, is_start=False, before=before)
    groups = Groups(column.values, column.codes)
    return (_panel(moment, 0, constraint, groups, has_limit=False),)


def dividing_key(decision: Decision) -> str:
    """Return the region, else the first label with several values, some of them shared."""
    fleet = decision.cycle.fleet
    known = sorted(
        {key for cluster in fleet.clusters[:_SAMPLE] for key in cluster.labels}
    )
    known.sort(key=lambda key: key.rpartition("/")[2] != "region")
    for key in known:
        if 1 < len(fleet.label(key).values) <= _MOST_GROUPS:
            return key
    return next(iter(known), "")


def _panel(
    moment: _Moment,
    place: int,
    constraint: TopologySpreadConstraint,
    groups: Groups,
    *,
    every: bool = False,
    has_limit: bool = True,
) -> LanePanel:
    strategy = moment.candidates.strategy
    counts = groups.count(moment.placed)
    after = counts + groups.count(moment.added)
    was = groups.count(moment.before)
    projected = strategy.project(constraint, groups, counts)
    is_limited = (
        has_limit
        and is_limit(constraint, projected)
        and not groups.weights
        and bool(len(groups))
    )
    shown: Sequence[int] = range(len(groups))
    if len(groups) > MOST_LANES and not every:
        # The emptiest and the fullest, and those that the step adds to.
        order = np.argsort(after - projected.smallest, kind="stable").tolist()
        added = groups.codes[moment.added]
        shown = sorted(
            {*order[:_NEAR_LIMITS], *order[-_NEAR_LIMITS:], *added[added >= 0].tolist()}
        )

    marks = moment.marks(place)
    is_named = int(after.max(initial=0)) <= (
        MOST_SLOTS if moment.is_small else _MOST_NAMED
    )
    total = np.bincount(groups.codes[groups.codes != ABSENT], minlength=len(groups))
    is_drawn = np.isin(marks, _INSIDE)
    if moment.is_small and is_named:
        is_drawn |= marks != moment.hidden
    highs = projected.smallest + constraint.max_skew
    lows = projected.smallest
    if moment.round is None and not groups.siblings.any():
        # What is placed must be within the limit on both sides, not only what is added.
        fullest = int(counts.max(initial=0))
        lows = np.minimum(highs, max(0, fullest - constraint.max_skew))
    lanes = []
    for code in shown:
        is_member = groups.codes == code
        members = np.flatnonzero(is_member & is_drawn)
        lanes.append(
            Lane(
                groups.values[code],
                groups.values[code],
                moment.lane(marks, members, is_named=is_named),
                _others_words(
                    marks[is_member],
                    moment,
                    (constraint.topology_key, groups.values[code]),
                ),
                int(counts[code]),
                int(after[code] - counts[code]),
                int(total[code]),
                int(lows[code]),
                int(highs[code]) if is_limited else None,
                f"{constraint.topology_key}:{groups.values[code]}",
                int(was[code]),
            )
        )
    slots = max([1, *(lane.end for lane in lanes)])
    columns = 1 + (len(lanes) > 8) + (len(lanes) > 32)
    part = 0.78  # the words have the rest
    if columns == 1:
        longest = max((len(lane.others) for lane in lanes), default=0)
        part = 1 - (_LEAST_WORDS + longest * _LETTER) / _TRACK
    width = slots if moment.is_small else slots / part
    # Among many columns its clusters have the room of the words, too.
    room = slots if columns == 1 else width
    lanes += _keyless_lane(
        moment,
        marks,
        constraint.topology_key,
        groups,
        room,
        others=NO_LIMIT * (columns == 1),
    )

    note, band = ("", "")
    if is_limited:
        note, band = _band_words(constraint, counts, projected, int(lows.min()))
    return LanePanel(
        key=constraint.topology_key,
        sort=SORTS[is_hard(constraint)] if has_limit else NO_LIMIT,
        max_skew=constraint.max_skew,
        is_limited=is_limited,
        measure=MEASURES[projected.is_skew],
        skew=imbalance(after, strategy.project(constraint, groups, after)),
        was=imbalance(was, strategy.project(constraint, groups, was)),
        note=note,
        band=band,
        slots=width,
        columns=columns,
        lanes=tuple(lanes),
        hidden=len(groups) - len(shown),
    )


def _keyless_lane(
    moment: _Moment,
    marks: Ints,
    key: str,
    groups: Groups,
    room: float,
    *,
    others: str,
) -> list[Lane]:
    """Return the lanes of the placed clusters without the key: one, or many."""
    without = np.flatnonzero((groups.codes == ABSENT) & np.isin(marks, _INSIDE))
    if not len(without):
        return []
    fleet = moment.decision.cycle.fleet
    has_value = any(key in fleet.clusters[at].labels for at in without)
    blocks = moment.lane(marks, without, is_named=len(without) <= _MOST_NAMED)
    # In one of many columns there is room for one name.
    length = len(blocks) if others else 1
    lines = [blocks[at : at + length] for at in range(0, len(blocks), length)]
    return [
        Lane(
            "no domain" if has_value else f"no {key.rpartition('/')[2]}",
            None,
            tuple(
                replace(
                    block,
                    size=block.size
                    * min(1, room / sum(lane_block.size for lane_block in line)),
                )
                for block in line
            ),
            others,
            int(np.count_nonzero(groups.codes[moment.placed] == ABSENT)),
            int(np.count_nonzero(groups.codes[moment.added] == ABSENT)),
            int(np.count_nonzero(groups.codes == ABSENT)),
            0,
            None,
            f"{key}:",
        )
        for line in lines
    ]


def _others_words(marks: Ints, moment: _Moment, domain: tuple[str, str]) -> str:
    """Return how many candidates a domain has, and how many a limit costs or blocks.

    Nothing of a decision that evaluated none: its lanes would count others than its
    page.
    """
    if domain in moment.blocking:
        return BLOCKING_WORDS
    if moment.is_small:
        return ""
    by_code = np.bincount(marks, minlength=len(_CODES)).tolist()
    numbers = dict(zip(_CODES, by_code, strict=True))
    if moment.round is None:
        rest = numbers[Mark.REST] * (moment.decision.verdicts is not None)
        return counted(rest, "candidate") if rest else ""
    blocked = numbers[Mark.BLOCKED]
    # With the selected one, as the ranking counts.
    marks_of_candidates = (Mark.CANDIDATE, Mark.COSTLY, Mark.BLOCKED, Mark.NEW)
    candidates = sum(numbers[mark] for mark in marks_of_candidates)
    words = counted(candidates, "candidate")
    if blocked:
        first = f"{words}, " * (blocked < candidates)
        return f"{first}{blocked:,} blocked"
    return f"{candidates:,} over the soft limit" if numbers[Mark.COSTLY] else words


def _band_words(
    constraint: TopologySpreadConstraint,
    counts: Ints,
    projected: SkewProjection,
    least: int,
) -> tuple[str, str]:
    """Return where a bar may end: as a sum, and as the label of the band."""
    low, high = int(projected.smallest.min()), int(projected.smallest.max())
    if low != high:
        return f"emptiest sibling + max skew {constraint.max_skew}", "limit"
    most = low + constraint.max_skew
    emptiest = f"emptiest {low}"
    if low < int(counts.min()):
        emptiest = f"0, with fewer than {constraint.min_domains} domains,"
    labels = {0: f"at most {most}", most: f"allowed {most}"}
    return (
        f"{emptiest} + max skew {constraint.max_skew} = at most {most}",
        labels.get(least, f"allowed {least} to {most}"),
    )


@dataclass(frozen=True, slots=True)
class FinalSkew:
    key: str
    measure: str
    skew: int
    max_skew: int
    is_limited: bool
    is_hard: bool

    @property
    def words(self) -> str:
        return f"{self.key} {self.measure} {self.skew}"

    @property
    def limit(self) -> str:
        return max_skew_words(
            self.max_skew, hard=self.is_hard, is_limit=self.is_limited
        )

    @property
    def is_exceeded(self) -> bool:
        return self.is_hard and self.is_limited and self.skew > self.max_skew


def final_skews(decision: Decision) -> Iterator[FinalSkew]:
    if not _spreads(decision):
        return
    moment = _Moment(decision, None, is_start=False)
    for constraint, groups in zip(
        moment.candidates.constraints, moment.candidates.groups, strict=True
    ):
        counts = groups.count(moment.placed)
        projected = moment.candidates.strategy.project(constraint, groups, counts)
        yield FinalSkew(
            constraint.topology_key,
            MEASURES[projected.is_skew],
            imbalance(counts, projected),
            constraint.max_skew,
            is_limit(constraint, projected) and not groups.weights,
            is_hard(constraint),
        )
