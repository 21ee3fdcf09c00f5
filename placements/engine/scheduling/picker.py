"""The greedy loop for strategies that sum the scores of the constraints and rank by the sum first.

A cell holds the clusters that are in the same domain of every constraint. Only its best ranked cluster can
win, so a round compares one number per cell: the spread score above the rank of that cluster. A pick
changes it only in cells whose domain changed its score against most others: what changes all of them alike
is one number beside them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from clusters.columns import ABSENT, Bools, Codes, Ints
from fleetui.apimachinery.effort import check_picks, check_time
from placements.engine.scheduling.candidates import Candidates, Picks, preference_order
from placements.engine.scheduling.contended_picker import (
    PICKS_BETWEEN_CHECKS,
    Cells,
    pick_by_round,
)
from placements.engine.scheduling.cycle import NO_CLUSTERS
from placements.engine.scheduling.round import Round
from placements.engine.scheduling.spread.base import (
    DomainRules,
    GroupStrategy,
    LevelRules,
    RoundState,
    Scores,
    SkewAfterPick,
    SkewLevels,
    cells_by_group,
    cells_of,
    is_hard,
)
from placements.manifests.policy import TopologySpreadConstraint

_SCORE_UNIT = 1 << 32  # a spread score of 1; ranks, which are below it, break ties
_FORBIDDEN = -(
    1 << 55
)  # once per hard constraint that a pick would break; 60 of them fit
_EMPTY = -(1 << 61)  # a cell without a cluster left
_TOO_LOW = -(1 << 54)  # no allowed pick is as low as this
_FAR = 1 << 58  # with a base beyond this, totals may soon exceed 64 bits
_FEW = 8  # up to this number, changed domains are updated one by one
# Arrays over all cells, one a domain, are added in a quarter of the time that picking its cells takes.
_MOST_NUMBERS = 1 << 18
_MOST_CHANGES = 16  # of each domain, for which such arrays are kept


def pick(candidates: Candidates, wanted: int) -> Picks:
    """Pick up to `wanted` clusters: all at once without spread constraints, else one a round."""
    if not candidates.constraints:
        best = Round(candidates, 1, NO_CLUSTERS).ranked[:wanted].astype(np.int32)
        unspread = candidates.strategy.combine(
            RoundState((), (), (), candidates.passes), [], candidates.passes
        )
        return Picks(
            best, tuple(column[best] for column in unspread), ran_dry=len(best) < wanted
        )
    strategy = candidates.strategy
    if not isinstance(strategy, GroupStrategy):
        if isinstance(strategy, LevelRules) and strategy.sums_levels(
            candidates.groups, candidates.passes
        ):
            return pick_by_round(_CellsInLevels(candidates, strategy), wanted)
        return pick_by_round(Cells(candidates), wanted)
    if strategy.was_here_in_first_round_only and candidates.was_here.any():
        first = Round(candidates, 1, NO_CLUSTERS)
        if not len(first.ranked):
            return Picks(NO_CLUSTERS, (np.zeros(0, dtype=np.int64),), ran_dry=True)
        winner = first.ranked[:1].astype(np.int32)
        rest = _Greedy(candidates, strategy, candidates.was_here_in(2), winner).run(
            wanted - 1
        )
        scores = np.concatenate([first.spread[0][winner], rest.spread[0]])
        return replace(
            rest, positions=np.concatenate([winner, rest.positions]), spread=(scores,)
        )
    return _Greedy(candidates, strategy, candidates.was_here, NO_CLUSTERS).run(wanted)


def possible_picks(candidates: Candidates, picks: Picks, more: int) -> int:
    """Return how many of this number of additional clusters can be picked after the picks of a cycle."""
    if not candidates.constraints:
        return min(
            more, int(np.count_nonzero(candidates.passes)) - len(picks.positions)
        )
    if more == 1 and picks.has_next is not None:
        return int(picks.has_next)
    return len(pick(candidates, len(picks.positions) + more).positions) - len(
        picks.positions
    )


class _Greedy:
    """The state of a run: a total per cell, kept up to date by one track per constraint."""

    def __init__(
        self,
        candidates: Candidates,
        strategy: GroupStrategy,
        was_here: Ints,
        picks: Codes,
    ) -> None:
        self.order = preference_order(candidates, was_here, picks)
        self.members, firsts, ends, groups_of_cells = cells_of(
            [groups.codes[self.order] for groups in candidates.groups]
        )
        self.leaders = firsts.tolist()
        self.total = -self.members[firsts]
        # What the total of a cell changes by when the cluster at a place is picked.
        self.steps = -np.diff(self.members, append=0)
        self.steps[ends - 1] = _EMPTY
        starts = candidates.starting_counts()
        self.tracks = [
            _Track(
                partial(_shares, strategy, constraint, _SCORE_UNIT),
                counts=start + groups.count(picks),
                group_of_cell=codes,
                total=self.total,
                keyless=strategy.keyless_score(constraint),
            )
            for constraint, groups, start, codes in zip(
                candidates.constraints,
                candidates.groups,
                starts,
                groups_of_cells,
                strict=True,
            )
        ]

    def run(self, wanted: int) -> Picks:
        """Pick until there are enough or no candidate is left."""
        total = self.total
        adders = [(track.add, track.group_of_cell) for track in self.tracks]
        picks = min(wanted, len(self.order))
        check_picks(
            cells=len(total),
            picks=picks,
            constraints=len(self.tracks),
        )
        base = 0
        places: list[int] = []
        values: list[int] = []
        for number in range(picks):
            if not number % PICKS_BETWEEN_CHECKS:
                check_time()
            cell = int(total.argmax())
            value = total.item(cell)
            if value + base <= _TOO_LOW:
                break
            values.append(value + base)
            place = self.leaders[cell]
            places.append(place)
            self.leaders[cell] = place + 1
            total[cell] = value + self.steps.item(place)
            for add, group_of_cell in adders:
                base += add(group_of_cell[cell])
            if not -_FAR < base < _FAR:
                total += base
                base = 0
        ranks = self.members[places]
        scores = (np.array(values, dtype=np.int64) + ranks) // _SCORE_UNIT
        has_next = bool(len(total) and int(total.max()) + base > _TOO_LOW)
        return Picks(
            self.order[ranks].astype(np.int32),
            spread=(scores,),
            ran_dry=len(places) < wanted,
            has_next=has_next,
        )


class _CellsInLevels(Cells):
    """Cells whose numbers are kept up to date from pick to pick, by one track per level."""

    def __init__(self, candidates: Candidates, rules: LevelRules) -> None:
        super().__init__(candidates)
        self.rules = rules
        self.numbers = np.zeros(len(self.left), dtype=np.int64)
        levels = zip(candidates.constraints, self.groups, strict=True)
        self.tracks = [
            _Track(
                partial(_shares, rules, constraint, rules.unit**below),
                counts=np.zeros(len(groups), dtype=np.int64),
                group_of_cell=groups.codes,
                total=self.numbers,
                families=groups.family_places.tolist(),
            )
            for below, (constraint, groups) in enumerate(reversed([*levels]))
        ]

    def evaluate(self) -> tuple[Bools, tuple[Scores, ...]]:
        contends = self.numbers > _TOO_LOW
        return contends, (self.rules.stretch(self.numbers, contends),)

    def take(self, cell: int) -> None:
        for track in self.tracks:
            self.numbers += track.add(track.group_of_cell[cell])
        super().take(cell)
        if not self.left[cell]:
            self.numbers[cell] = _EMPTY


class _Family:
    """Domains of a constraint that are compared with each other, by count, and their levels."""

    def __init__(self) -> None:
        self.groups_at: defaultdict[int, set[int]] = defaultdict(set)
        self.smallest = 0
        self.largest = 0
        self.table: Mapping[int, int] = {}


class _Track:
    """One constraint during a run: its domains by count, and the share of each count in the totals."""

    def __init__(
        self,
        shares: Callable[[SkewLevels, list[int]], list[int]],
        counts: Ints,
        group_of_cell: Codes,
        total: Ints,
        keyless: int | None = 0,
        families: Sequence[int] = (),
    ) -> None:
        self.shares = shares
        self.total = total
        self.codes = group_of_cell
        self.group_of_cell = group_of_cell.tolist()
        self.keyless = {ABSENT}.intersection(self.group_of_cell)
        self.cells_of = cells_by_group(group_of_cell, len(counts))
        self.is_dense = len(total) * len(counts) <= _MOST_NUMBERS
        # By domain and change: the totals from its first cell to its last, what is added, and where to.
        self.additions: defaultdict[int, dict[int, tuple[Ints, Ints, Ints]]] = (
            defaultdict(dict)
        )
        self.count_of = counts.tolist()
        self.tables: dict[tuple[int, bool], _Table] = {}
        by_family: defaultdict[int, _Family] = defaultdict(_Family)
        self.family_of = [*map(by_family.__getitem__, families or [0] * len(counts))]
        # The base is added to all cells, and a pick changes nothing in those of other families.
        self.has_base = len(by_family) == 1
        for group, count in enumerate(self.count_of):
            self.family_of[group].groups_at[count].add(group)
        for family in by_family.values():
            family.smallest = min(family.groups_at)
            family.largest = max(family.groups_at)
            lowest = len(family.groups_at[family.smallest])
            family.table = self._table(family, family.largest, lone=lowest == 1)
        first_shares = [
            family.table[count - family.smallest]
            for family, count in zip(self.family_of, self.count_of, strict=True)
        ]
        without = _FORBIDDEN if keyless is None else keyless * _SCORE_UNIT
        total += np.array([*first_shares, without])[group_of_cell]

    def add(self, group: int) -> int:
        """Count one more cluster in a domain, and bring the totals of the cells up to date.

        Return what is to be added to all of them beside.
        """
        if group < 0:
            return 0
        family = self.family_of[group]
        smallest = family.smallest
        groups_at = family.groups_at
        count = self.count_of[group]
        after = count + 1
        self.count_of[group] = after
        others = groups_at[count]
        others.remove(group)
        if not others:
            del groups_at[count]
        change = -family.table[count - smallest]
        base = 0
        # The levels stay while two others have the smallest count.
        if after > family.largest or (count == smallest and len(others) < 2):
            base = self._move(family, after)
        change += family.table[after - family.smallest] - base
        if change:
            self._shift(group, change)
        groups_at[after].add(group)
        return base

    def _move(self, family: _Family, after: int) -> int:
        """Change the shares of all other domains to those of the levels with one more domain of a count.

        Return by how much most of them change, which is left to the base.
        """
        former = family.table
        origin = family.smallest
        groups_at = family.groups_at
        if origin in groups_at:
            lone = len(groups_at[origin]) == 1
        else:
            family.smallest = after
            lone = after not in groups_at
        family.largest = max(family.largest, after)
        table = self._table(family, after, lone=lone)
        family.table = table

        base = 0
        changes = [(self.keyless, 0)]
        for count, groups in groups_at.items():
            change = table[count - family.smallest] - former[count - origin]
            changes.append((groups, change))
            if self.has_base and 2 * len(groups) > len(self.count_of):
                base = change
        changed = [
            (group, change - base)
            for groups, change in changes
            if change != base
            for group in groups
        ]
        if len(changed) <= _FEW:
            for group, change in changed:
                self._shift(group, change)
        else:
            by_group = np.zeros(
                len(self.count_of) + 1,
                dtype=np.int64,
            )
            for group, change in changed:
                by_group[group] = change
            self.total += by_group[self.codes]
        return base

    def _shift(self, group: int, change: int) -> None:
        """Change the totals of the cells of one domain."""
        additions = self.additions[group]
        addition = additions.get(change)
        cells = self.cells_of[group]
        if addition is not None:
            np.add(*addition)
        elif len(cells) < 2:
            for cell in cells.tolist():
                self.total[cell] = self.total.item(cell) + change
        elif self.is_dense:
            if len(additions) >= _MOST_CHANGES:
                additions.clear()
            part = self.total[cells[0] : cells[-1] + 1]
            numbers = np.zeros_like(part)
            numbers[cells - cells[0]] = change
            additions[change] = part, numbers, part
            part += numbers
        else:
            self.total[cells] += change

    def _table(self, family: _Family, after: int, *, lone: bool) -> "_Table":
        """Return the shares under the present levels of a family, with those of its counts and one more."""
        key = (family.largest - family.smallest, lone)
        table = self.tables.get(key)
        if table is None:
            levels = SkewLevels(0, *key, groups=len(self.count_of))
            above = [count - family.smallest for count in (after, *family.groups_at)]
            table = _Table(partial(self.shares, levels), above)
            self.tables[key] = table
        return table


def _shares(
    rules: DomainRules,
    constraint: TopologySpreadConstraint,
    unit: int,
    levels: SkewLevels,
    counts: list[int],
) -> list[int]:
    after_pick = SkewAfterPick(np.array(counts, dtype=np.int64), levels)
    shares: Ints = rules.score(constraint, after_pick) * unit
    if is_hard(constraint):
        shares[rules.violates(constraint, after_pick)] = _FORBIDDEN
    return list(shares.tolist())


class _Table(dict[int, int]):
    """The share of each count above the smallest, under some levels.

    Computed for the counts that occur: the largest may be thousands above the smallest.
    """

    def __init__(
        self, shares: Callable[[list[int]], list[int]], counts: list[int]
    ) -> None:
        super().__init__(zip(counts, shares(counts), strict=True))
        self.shares = shares

    def __missing__(self, count: int) -> int:
        (self[count],) = self.shares([count])
        return self[count]
