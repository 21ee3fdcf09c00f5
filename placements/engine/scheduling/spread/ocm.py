"""Spread strategy of the semantics `ocm`, as proposed upstream (`rules/other-schedulers.md#ocm`)."""

from collections.abc import Sequence
from math import inf, nextafter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clusters.columns import ABSENT, Bools, Codes, Floats, Ints, LabelColumn
from fleetui.apimachinery.grouping import grouped
from placements.engine.scheduling.spread.base import (
    DIGITS,
    ConstraintVerdict,
    Groups,
    MissingKeyPolicy,
    RoundState,
    Scores,
    SkewAfterPick,
    SkewProjection,
    SpreadInput,
    SpreadStrategy,
    at_entries,
    is_hard,
)
from placements.manifests.ocm_options import (
    OcmOptions,
    PrioritizerMode,
    Unsatisfiable,
    UnsetPolicy,
)
from placements.manifests.policy import TopologySpreadConstraint

UNSET = "(unset)"
_TOP_LEVEL = 63
_EXACT_LEVELS = 8  # that a float represents, six bits each
_KEYLESS = {
    UnsetPolicy.BUCKET: MissingKeyPolicy.OWN_GROUP,
    UnsetPolicy.EXCLUDE: MissingKeyPolicy.EXCLUDED,
    UnsetPolicy.FREE: MissingKeyPolicy.UNLIMITED,
}
_FULL = 100.0


class OcmSpread(SpreadStrategy):
    """Even spread by the gap to the emptiest sibling; strictly level by level, or weighed by u."""

    name = "ocm"
    unit = _TOP_LEVEL + 1

    def __init__(self, options: OcmOptions) -> None:
        self.options = options
        self.is_strict = options.mode is PrioritizerMode.STRICT
        self.has_score_list = self.is_strict
        self.combines_scores = self.is_strict

    @property
    def rank_names(self) -> tuple[str, ...]:
        return (
            ("topology", "preference")
            if self.is_strict
            else ("final", "topology", "preference")
        )

    def groups(self, spread_input: SpreadInput) -> tuple[Groups, ...]:
        """Form a domain per value among the candidates; nested, per value within the domain above."""
        passes = spread_input.all_pass
        family_of, families = np.zeros(len(passes), dtype=np.int64), [""]
        levels = []
        for constraint in spread_input.constraints:
            column = spread_input.fleet.topology(
                constraint.topology_key, constraint.topology_key_type
            )
            weights = self.options.domain_weights.get(constraint.topology_key, {})
            levels.append(self._level(column, family_of, families, passes, weights))
            if self.options.nested:
                # The domains of this level are the families of the next.
                owners, codes, family_of = _pairs(family_of, column, column.codes)
                families = [
                    f"{name}/" for name in _domains(owners, families, column, codes)
                ]
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
        owners, values, inverse = _pairs(
            family_of[counted], column, column.codes[counted]
        )
        codes = np.full(len(passes), ABSENT, dtype=np.int32)
        codes[counted] = inverse
        return Groups(
            _domains(owners, families, column, values),
            codes,
            families=np.array(owners, dtype=np.int64),
            family_of=family_of,
            # By code, since a label may be called "(unset)" and have a weight.
            weights=tuple(
                1 if code == ABSENT else weights.get(column.values[code], 1)
                for code in values
                if weights
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

    def project(
        self, _constraint: TopologySpreadConstraint, groups: Groups, counts: Ints
    ) -> SkewProjection:
        smallest = groups.of_siblings(np.minimum, counts)
        return SkewProjection(smallest, counts + 1 - smallest, is_skew=False)

    def verdicts(self, state: RoundState) -> list[ConstraintVerdict]:
        """Forbid what would be more than maxSkew above the emptiest sibling."""
        nothing = np.zeros(len(state.left), dtype=np.bool_)
        verdicts = []
        for (constraint, groups, counts), smallest in zip(
            state.parts, state.smallest_siblings, strict=True
        ):
            forbids = nothing
            if is_hard(constraint):
                too_many = np.greater(counts - smallest, constraint.max_skew - 1)
                forbids = at_entries(too_many, groups, missing_key=False)
            verdicts.append(ConstraintVerdict(forbids, forbids))
        return verdicts

    def scores(self, state: RoundState, contends: Bools) -> list[Scores]:
        """Return each level's gap: how far a domain is above its emptiest sibling, negative."""
        pairs = zip(_gaps(state, contends), state.groups, strict=True)
        return [at_entries(gaps, groups, missing_key=0) for gaps, groups in pairs]

    def combine(
        self, state: RoundState, scores: Sequence[Scores], contends: Bools
    ) -> tuple[Scores, ...]:
        """Strict: the gaps level by level. Weighted: one number, −100 to 100, from the levels' scores."""
        if self.is_strict:
            return tuple(scores)
        if not state.groups:
            return (np.zeros(len(state.left), dtype=np.int64),)
        exact = np.float64 if len(state.groups) <= _EXACT_LEVELS else object
        total = np.zeros(len(state.left), dtype=exact)
        unit = 1
        for groups, gaps in reversed(
            list(zip(state.groups, _gaps(state, contends), strict=True))
        ):
            total += _level_scores(groups, gaps, np.array(unit, dtype=exact))
            unit *= self.unit

        even = self.stretch(total, contends)
        return (even if exact is np.float64 else _made_distinct(even, total, contends),)

    def stretch(self, numbers: NDArray[Any], contends: Bools) -> Floats:
        """Stretch the numbers of the contenders to −100 to 100; all equal, or a single one, is 0."""
        counted = numbers
        if not contends.all():
            counted = numbers[contends]
        if not len(counted) or counted.min() == counted.max():
            return np.zeros(len(numbers), dtype=np.float64)
        low, high = counted.min(), counted.max()
        even: Floats = 2 * _FULL * (numbers - low) / (high - low) - _FULL
        return even.astype(np.float64, copy=False)

    def sums_levels(self, groups: Sequence[Groups], candidates: Bools) -> bool:
        """Return whether it is weighted, with a domain without a weight for every candidate on few levels."""
        if self.is_strict or len(groups) > _EXACT_LEVELS:
            return False
        weighed = any(group.weights for group in groups)
        return not weighed and all(
            group.is_present[candidates].all() for group in groups
        )

    def violates(
        self, constraint: TopologySpreadConstraint, after_pick: SkewAfterPick
    ) -> Bools:
        above = after_pick.counts - after_pick.levels.smallest
        return np.greater_equal(above, constraint.max_skew)

    def score(
        self, _constraint: TopologySpreadConstraint, after_pick: SkewAfterPick
    ) -> Ints:
        """Score a domain among its siblings, as `_level_scores` does."""
        below = after_pick.levels.largest - after_pick.counts
        return _TOP_LEVEL * below // max(after_pick.levels.skew, 1)

    def rank(
        self, *, spread: tuple[Scores, ...], preference: Scores, **_was_here: Ints
    ) -> tuple[Scores, ...]:
        """Strict: gaps, then preference. Weighted: u times spread plus preference, then each of the two."""
        if self.is_strict:
            return (*spread, preference)
        final = (self.options.u * spread[0] + preference).round(DIGITS)
        return final, spread[0], preference

    def stops_without_candidate(self) -> bool:
        """Return whether fewer clusters are published; otherwise the cycle fails."""
        return self.options.unsatisfiable is Unsatisfiable.FEWER


def _domains(
    owners: list[int], families: list[str], column: LabelColumn, codes: list[int]
) -> tuple[str, ...]:
    pairs = zip(owners, codes, strict=True)
    named = (
        (owner, UNSET if code == ABSENT else column.values[code])
        for owner, code in pairs
    )
    return tuple(f"{families[owner]}{name}" for owner, name in named)


def _pairs(
    family_of: Ints, column: LabelColumn, codes: Codes
) -> tuple[list[int], list[int], Ints]:
    """Return the pairs of family and code that occur, by family and code, and each entry's pair."""
    width = len(column.values) + 1
    distinct, inverse = np.unique(family_of * width + (codes + 1), return_inverse=True)
    return (distinct // width).tolist(), (distinct % width - 1).tolist(), inverse


def _gaps(state: RoundState, contends: Bools) -> list[Ints]:
    """Return, by level, the gap of each domain: 0 for the emptiest sibling, else below."""
    return [
        _weighed_gaps(groups, counts, contends) if groups.weights else smallest - counts
        for groups, counts, smallest in zip(
            state.groups, state.counts, state.smallest_siblings, strict=True
        )
    ]


def _weighed_gaps(groups: Groups, counts: Ints, contends: Bools) -> Ints:
    ranks = np.zeros(len(groups), dtype=np.int64)
    siblings = groups.siblings.tolist()
    reached = groups.reached(contends).tolist()
    for members in grouped((siblings[one], one) for one in reached).values():
        quotient = {
            member: (
                -groups.weights[member] / (2 * int(counts[member]) + 1),
                int(counts[member]),
            )
            for member in members
        }
        places = {
            value: place for place, value in enumerate(sorted(set(quotient.values())))
        }
        for member in members:
            ranks[member] = places[quotient[member]]
    return np.negative(ranks)


def _level_scores(groups: Groups, gaps: Ints, unit: NDArray[Any]) -> NDArray[Any]:
    """Scale gaps to 0 (fullest) to 63 units (emptiest, gap 0) among siblings; all equal is 0.

    An entry in no domain has gap 0 and is scaled with the family that it would be in.
    """
    lowest = groups.of_siblings(np.minimum, gaps)
    # Exact below 2^53 divided by 63, and faster than a division of integers.
    by_group = (_TOP_LEVEL * (lowest - gaps) / np.minimum(lowest, -1)).astype(np.int64)
    scores = at_entries(by_group * unit, groups, missing_key=0)
    if groups.family_of is not None and not groups.is_complete:
        is_uneven = np.zeros(int(groups.family_of.max()) + 1, dtype=np.bool_)
        is_uneven[groups.siblings[lowest < 0]] = True
        scores[~groups.is_present & is_uneven[groups.family_of]] = _TOP_LEVEL * unit
    return scores


def _made_distinct(even: Floats, total: NDArray[Any], contends: Bools) -> Floats:
    """Separate contenders whose numbers differ by less than a double represents: the better is larger."""
    exact = dict(zip(total[contends].tolist(), even[contends].tolist(), strict=True))
    above = inf
    for number in sorted(exact, reverse=True):
        above = exact[number] = min(exact[number], nextafter(above, -inf))
    return np.array(
        [
            exact.get(number, value)
            for number, value in zip(total.tolist(), even, strict=True)
        ]
    )
