"""Spread strategy of the semantics `ocm`, as proposed upstream (`spec/other-schedulers.md` 2 and 6.6)."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from clusters.columns import ABSENT, Bools, Codes, Floats, Ints, LabelColumn
from placements.engine.scheduling.spread.base import (
    DIGITS,
    ConstraintVerdict,
    Groups,
    IncrementalRanker,
    MissingKeyPolicy,
    RankerInput,
    RoundState,
    Scores,
    SkewProjection,
    SpreadInput,
    SpreadStrategy,
    at_entries,
    is_hard,
    is_reached,
)
from placements.engine.scheduling.spread.ocm_incremental import (
    EXACT_LEVELS,
    TOP_LEVEL,
    GapRanker,
    WeightedRanker,
    level_scores,
    stretched,
)
from placements.manifests.ocm_options import OcmOptions, PrioritizerMode, Unsatisfiable, UnsetPolicy
from placements.manifests.policy import TopologySpreadConstraint

UNSET = "(unset)"
_LEVELS_IN_64_BITS = 10  # six bits a level
_KEYLESS = {
    UnsetPolicy.BUCKET: MissingKeyPolicy.OWN_GROUP,
    UnsetPolicy.EXCLUDE: MissingKeyPolicy.EXCLUDED,
    UnsetPolicy.FREE: MissingKeyPolicy.UNLIMITED,
}
_LOWEST = -(1 << 62)


class OcmSpread(SpreadStrategy):
    """Even spread by the gap to the emptiest sibling; strictly level by level, or weighed by u."""

    name = "ocm"

    def __init__(self, options: OcmOptions) -> None:
        self.options = options
        self.is_strict = options.mode is PrioritizerMode.STRICT
        self.has_score_list = self.is_strict

    @property
    def rank_names(self) -> tuple[str, ...]:
        return ("topology", "preference") if self.is_strict else ("final", "topology", "preference")

    def groups(self, spread_input: SpreadInput) -> tuple[Groups, ...]:
        """Form a domain per value among the candidates; nested, per value within the domain above."""
        passes = spread_input.all_pass
        family_of, families = np.zeros(len(passes), dtype=np.int64), [""]
        levels = []
        for constraint in spread_input.constraints:
            column = spread_input.fleet.topology(constraint.topology_key, constraint.topology_key_type)
            weights = self.options.domain_weights.get(constraint.topology_key, {})
            levels.append(self._level(column, family_of, families, passes, weights))
            if self.options.nested:
                # The domains of this level are the families of the next.
                owners, codes, family_of = _pairs(family_of, column, column.codes)
                families = [f"{name}/" for name in _domains(owners, families, column, codes)]
        return tuple(levels)

    def _level(
        self,
        column: LabelColumn,
        family_of: Ints,
        families: list[str],
        passes: Bools,
        weights: dict[str, int],
    ) -> Groups:
        has_bucket = self.options.unset_policy is UnsetPolicy.BUCKET
        counted = passes if has_bucket else passes & column.is_present
        owners, values, inverse = _pairs(family_of[counted], column, column.codes[counted])
        codes = np.full(len(passes), ABSENT, dtype=np.int32)
        codes[counted] = inverse
        return Groups(
            _domains(owners, families, column, values),
            codes,
            families=np.array(owners, dtype=np.int64),
            family_of=family_of,
            # By code, since a label may be called "(unset)" and have a weight.
            weights=tuple(
                1 if code == ABSENT else weights.get(column.values[code], 1) for code in values if weights
            ),
        )

    def starting_counts(self, groups: Groups, _placed: Codes) -> Ints:
        """Start from 0: every cycle chooses among all clusters, and Steady protects what was chosen."""
        return np.zeros(len(groups), dtype=np.int64)

    def relevant_fields(self, constraint: TopologySpreadConstraint) -> frozenset[str]:
        """A hard one has a limit; a soft one is as even as possible."""
        return frozenset({"maxSkew"} if is_hard(constraint) else ())

    def missing_key(self, _constraint: TopologySpreadConstraint) -> MissingKeyPolicy:
        return _KEYLESS[self.options.unset_policy]

    def project(self, _constraint: TopologySpreadConstraint, groups: Groups, counts: Ints) -> SkewProjection:
        smallest = _smallest_sibling(counts, groups)
        return SkewProjection(smallest, counts + 1 - smallest, is_skew=False)

    def verdicts(self, state: RoundState) -> list[ConstraintVerdict]:
        """Forbid what would be more than maxSkew above the emptiest sibling."""
        verdicts = []
        for constraint, groups, counts in state.parts:
            too_many = np.greater(self.project(constraint, groups, counts).after, constraint.max_skew)
            forbids = at_entries(too_many & is_hard(constraint), groups, missing_key=False)
            verdicts.append(ConstraintVerdict(forbids, forbids))
        return verdicts

    def scores(self, state: RoundState, contends: Bools) -> list[Scores]:
        """Return each level's gap: how far a domain is above its emptiest sibling, negative."""
        gaps = [(_gaps(groups, counts, contends), groups) for _, groups, counts in state.parts]
        return [at_entries(gap, groups, missing_key=0) for gap, groups in gaps]

    def combine(self, state: RoundState, scores: Sequence[Scores], contends: Bools) -> tuple[Scores, ...]:
        """Strict: the gaps level by level. Weighted: one number, −100 to 100, from the levels' scores."""
        if self.is_strict:
            return tuple(scores)
        if not scores:
            return (np.zeros(len(state.left), dtype=np.int64),)
        width = np.int64 if len(scores) <= _LEVELS_IN_64_BITS else object
        total: Ints = np.zeros(len(state.left), dtype=width)
        for groups, counts in zip(state.groups, state.counts, strict=True):
            # Scale one level's gaps to 0 (fullest) to 63 (emptiest) among siblings; all equal is 0. An
            # entry in no domain has gap 0 and is scaled with the family that it would be in.
            gaps = _gaps(groups, counts, contends)
            size = int(groups.family_of.max(initial=0)) + 1 if groups.family_of is not None else 1
            lowest, highest = np.zeros(size, dtype=np.int64), np.full(size, _LOWEST)
            np.minimum.at(lowest, groups.siblings, gaps)
            np.maximum.at(highest, groups.siblings, gaps)
            family = groups.siblings if groups.family_of is None else groups.family_of
            own = at_entries(gaps, groups, missing_key=0)
            total = total * (TOP_LEVEL + 1) + level_scores(own, lowest[family], highest[family])

        # Stretch the numbers of the contenders to −100 to 100; all equal, or a single one, is 0.
        counted = total[contends]
        low, high = (int(counted.min()), int(counted.max())) if len(counted) else (0, 0)
        even = stretched(total, low, high)

        return (even if len(scores) <= EXACT_LEVELS else _made_distinct(even, total, contends),)

    def rank(
        self, *, spread: tuple[Scores, ...], preference: Scores, **_was_here: Ints
    ) -> tuple[Scores, ...]:
        """Strict: gaps, then preference. Weighted: u times spread plus preference, then each of the two."""
        if self.is_strict:
            return (*spread, preference)
        final = np.round(self.options.u * spread[0] + preference, DIGITS)
        return final, spread[0], preference

    def stops_without_candidate(self) -> bool:
        """Return whether fewer clusters are published; otherwise the cycle fails."""
        return self.options.unsatisfiable is Unsatisfiable.FEWER

    def ranker(self, field: RankerInput) -> IncrementalRanker | None:
        """Return a ranker; None with domain weights, whose gaps depend on the contenders, or many levels."""
        if any(groups.weights for groups in field.groups):
            return None
        if self.is_strict:
            return GapRanker(field)
        return WeightedRanker(field, self) if WeightedRanker.holds(field) else None


def _domains(
    owners: list[int], families: list[str], column: LabelColumn, codes: list[int]
) -> tuple[str, ...]:
    pairs = zip(owners, codes, strict=True)
    named = ((owner, UNSET if code == ABSENT else column.values[code]) for owner, code in pairs)
    return tuple(f"{families[owner]}{name}" for owner, name in named)


def _pairs(family_of: Ints, column: LabelColumn, codes: Codes) -> tuple[list[int], list[int], Ints]:
    """Return the pairs of family and code that occur, by family and code, and each entry's pair."""
    width = len(column.values) + 1
    distinct, inverse = np.unique(family_of * width + (codes + 1), return_inverse=True)
    return (distinct // width).tolist(), (distinct % width - 1).tolist(), inverse


def _smallest_sibling(counts: Ints, groups: Groups) -> Ints:
    """Return for each domain the smallest count of its family."""
    siblings = groups.siblings
    families = int(siblings.max(initial=-1)) + 1
    if families == 1:
        return np.full(len(counts), counts.min(), dtype=np.int64)
    smallest = np.full(families, counts.max(initial=0))
    np.minimum.at(smallest, siblings, counts)
    return smallest[siblings]


def _gaps(groups: Groups, counts: Ints, contends: Bools) -> Ints:
    if not groups.weights:
        return _smallest_sibling(counts, groups) - counts

    ranks = np.zeros(len(groups), dtype=np.int64)
    for members in _families(groups, contends):
        quotient = {
            one: (-groups.weights[one] / (2 * int(counts[one]) + 1), int(counts[one])) for one in members
        }
        places = {value: place for place, value in enumerate(sorted(set(quotient.values())))}
        for one in members:
            ranks[one] = places[quotient[one]]
    return np.negative(ranks)


def _families(groups: Groups, contends: Bools) -> Iterable[list[int]]:
    siblings = groups.siblings.tolist()
    families: dict[int, list[int]] = {}
    for one in np.flatnonzero(is_reached(groups.codes[contends], len(groups))).tolist():
        families.setdefault(siblings[one], []).append(one)
    return families.values()


def _made_distinct(even: Floats, total: Ints, contends: Bools) -> Floats:
    """Separate contenders whose numbers differ by less than a double represents: the better is larger."""
    exact = dict(zip(total[contends].tolist(), even[contends].tolist(), strict=True))
    above = math.inf
    for number in sorted(exact, reverse=True):
        above = exact[number] = min(exact[number], math.nextafter(above, -math.inf))
    return np.array([exact.get(number, value) for number, value in zip(total.tolist(), even, strict=True)])
