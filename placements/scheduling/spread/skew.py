"""What the two readings of Fleet's spread rules have in common (`spec/scheduler.md` 4.3)."""

from collections.abc import Sequence

import numpy as np

from placements.scheduling.columns import Bools, Codes, Ints
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.spread.base import (
    SOFT_VIOLATION_SCORE,
    Groups,
    Keyless,
    Outlook,
    Prospect,
    Race,
    Scores,
    Setting,
    Verdict,
    at_entries,
    is_hard,
    levels_of,
)


class SkewRules:
    """Groups over the whole fleet, −change as score, constraints added, spread before affinity."""

    rank_names: tuple[str, ...] = ("topology", "affinity", "was-here")
    smaller_name_wins = False
    has_score_list = False
    hard_ones_score = True

    def groups(self, setting: Setting) -> tuple[Groups, ...]:
        """Make one group per value that the key has on any cluster, eligible or not."""
        columns = (setting.fleet.label(one.topology_key) for one in setting.constraints)
        return tuple(Groups(column.values, column.codes) for column in columns)

    def starting_counts(self, groups: Groups, placed: Codes) -> Ints:
        """Count the scheduled and bound bindings of the current policy."""
        return groups.count(placed)

    def heeds(self, _constraint: TopologySpreadConstraint) -> frozenset[str]:
        """A limit forbids, or costs a thousand."""
        return frozenset({"maxSkew"})

    def keyless_score(self, _constraint: TopologySpreadConstraint) -> int | None:
        """Let a cluster without the key be picked, with score 0."""
        return 0

    def keyless(self, constraint: TopologySpreadConstraint) -> Keyless:
        """Say in a word what `keyless_score` makes of such a cluster."""
        return Keyless.EXCLUDED if self.keyless_score(constraint) is None else Keyless.UNLIMITED

    def outlook(self, _constraint: TopologySpreadConstraint, _groups: Groups, counts: Ints) -> Outlook:
        """Compare with the smallest group; what is limited is the skew with one more."""
        levels = levels_of(counts)
        smallest = np.full(len(counts), levels.smallest, dtype=np.int64)
        return Outlook(smallest, self.after(Prospect(counts, levels)), is_skew=True)

    def after(self, prospect: Prospect) -> Ints:
        """Give the skew with one more in the group."""
        return prospect.after

    def verdicts(self, race: Race) -> list[Verdict]:
        """Judge each group by the skew that one more would make; a hard constraint forbids a violation."""
        return [
            self._verdict(constraint, groups, counts)
            for constraint, groups, counts in zip(race.constraints, race.groups, race.counts, strict=True)
        ]

    def _verdict(self, constraint: TopologySpreadConstraint, groups: Groups, counts: Ints) -> Verdict:
        by_group = self.violates(constraint, Prospect(counts, levels_of(counts)))
        violates = at_entries(by_group, groups, keyless=False)
        return Verdict(violates, violates & is_hard(constraint))

    def violates(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Bools:
        """Compare the skew that would result with maxSkew."""
        return np.greater(self.after(prospect), constraint.max_skew)

    def change(self, prospect: Prospect) -> Ints:
        """Give the change of the skew that the score is made of."""
        return prospect.change

    def scores(self, race: Race, _contends: Bools) -> list[Scores]:
        """Score each group, whoever else contends."""
        return [
            at_entries(self.score(constraint, Prospect(counts, levels_of(counts))), groups, keyless=0)
            for constraint, groups, counts in zip(race.constraints, race.groups, race.counts, strict=True)
        ]

    def score(self, constraint: TopologySpreadConstraint, prospect: Prospect) -> Ints:
        """Score −change, or −1000 when the limit is broken."""
        score: Ints = np.negative(self.change(prospect))
        score[self.violates(constraint, prospect)] = SOFT_VIOLATION_SCORE
        return score

    def combine(self, race: Race, scores: Sequence[Scores], _contends: Bools) -> tuple[Scores, ...]:
        """Add the scores up; hard constraints score too."""
        total: Scores = np.zeros(len(race.left), dtype=np.int64)
        for score in scores:
            total = total + score
        return (total,)

    def rank(self, *, spread: tuple[Scores, ...], preference: Scores, was_here: Ints) -> tuple[Scores, ...]:
        """Rank by topology spread, then affinity, then a binding of an older policy."""
        return *spread, preference, was_here

    def stops_without_candidate(self) -> bool:
        """Keep what was picked; the next change in the fleet tries again."""
        return True
