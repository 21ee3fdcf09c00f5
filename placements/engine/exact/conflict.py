"""Why the wanted number is impossible, and what would make it possible: corrections and clusters to add."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import prod

import numpy as np

from clusters.columns import ABSENT, Codes, Ints
from placements.engine.advice.changes import with_policy
from placements.engine.exact.model import ExactModel, ModelProgram, build_model
from placements.engine.exact.solver import SearchLimits
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import NO_CLUSTERS
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.filters.already_placed import AlreadyPlacedFilter
from placements.engine.scheduling.picker import pick
from placements.engine.scheduling.profile import profile_of
from placements.manifests.policy import PlacementPolicy

_LARGEST_CORRECTION = 3
_MOST_TUPLES = 20_000
_FILTER_NAMES = {"affinity": "required-affinity"}
FILTER_WORDS = {
    "required-affinity": "the required affinity",
    "eligibility": "clusters that are not ready",
    "taints": "taints",
    "namespace": "the namespace",
}


@dataclass(frozen=True, order=True, slots=True)
class Element:
    """A filter that rules clusters out, or a hard constraint: what a conflict consists of.

    `index` is the bit of the filter or the place of the constraint in the policy.
    """

    kind: str
    name: str
    index: int

    @property
    def is_constraint(self) -> bool:
        return self.kind == "constraint"

    def to_plain(self) -> dict[str, object]:
        if self.is_constraint:
            return {
                "kind": self.kind,
                "topologyKey": self.name,
                "constraint": self.index,
            }
        return {"kind": self.kind, "filter": self.name}

    def words(self, policy: PlacementPolicy) -> str:
        if not self.is_constraint:
            return FILTER_WORDS.get(self.name, self.name)
        return f"{self.name} spread (maxSkew {policy.topology_spread_constraints[self.index].max_skew})"


@dataclass(frozen=True, slots=True)
class Correction:
    """Changes with which the number is possible: elements dropped (None) or a larger maxSkew.

    `greedy_reaches`: the scheduler reaches the number with them.
    """

    changes: tuple[tuple[Element, int | None], ...]
    greedy_reaches: bool

    def to_plain(self) -> dict[str, object]:
        changes = [
            {"element": element.to_plain(), "to": to} for element, to in self.changes
        ]
        return {"changes": changes, "greedyReaches": self.greedy_reaches}


@dataclass(frozen=True, slots=True)
class ShoppingItem:
    """A number of clusters to add, with these labels, which pass the filters."""

    count: int
    domains: dict[str, str]

    def to_plain(self) -> dict[str, object]:
        return {"count": self.count, "domains": self.domains}

    @property
    def words(self) -> str:
        domains = ", ".join(f"{key}={value}" for key, value in self.domains.items())
        return f"{self.count:,} in {domains or 'any domain'}"


class ConflictAnalysis:
    """The analysis of a decision whose wanted number is impossible."""

    def __init__(self, decision: Decision, needed: int, limits: SearchLimits) -> None:
        candidates = decision.candidates
        if candidates is None:
            raise ValueError("this cycle selected nothing")
        self.decision, self.candidates, self.needed, self.limits = (
            decision,
            candidates,
            needed,
            limits,
        )
        self.elements = tuple(self._elements())

    def _elements(self) -> Iterator[Element]:
        failed = self.candidates.failed
        yield from (
            Element("filter", _FILTER_NAMES.get(rule.name, rule.name), bit)
            for bit, rule in enumerate(profile_of(self.decision.cycle).filters)
            if not isinstance(rule, AlreadyPlacedFilter) and (failed & (1 << bit)).any()
        )
        yield from (
            Element("constraint", constraint.key, constraint.index)
            for constraint in self._model(()).constraints
            if constraint.is_hard
        )

    def _model(self, without: Iterable[Element]) -> ExactModel:
        soft = frozenset(element.index for element in without if element.is_constraint)
        ignored = sum(
            1 << element.index for element in without if not element.is_constraint
        )
        passes = (self.candidates.failed & ~np.uint8(ignored)) == 0
        model = build_model(
            self.candidates, self.needed, NO_CLUSTERS, passes=passes, soft=soft
        )
        return model.cells[0]

    def _reaches(self, without: Iterable[Element]) -> bool:
        model = self._model(without)
        if int(model.sizes.sum()) < self.needed:
            return False
        picks, _, _ = ModelProgram.of(model, model.greedy).stage("n", self.limits)
        return int(picks.sum()) == self.needed

    def correction_sets(self) -> list[frozenset[Element]]:
        """Return the minimal sets of up to three elements without which the number is reached."""
        corrections: list[frozenset[Element]] = []
        for size in range(1, _LARGEST_CORRECTION + 1):
            for chosen in map(frozenset, combinations(self.elements, size)):
                if not any(
                    correction <= chosen for correction in corrections
                ) and self._reaches(chosen):
                    corrections.append(chosen)
        return corrections

    def smallest_conflicts(
        self, correction_sets: list[frozenset[Element]]
    ) -> list[tuple[Element, ...]]:
        """Return the minimal hitting sets of the minimal correction sets."""
        hitting: list[frozenset[Element]] = [frozenset()]
        for correction in correction_sets:
            extended = {
                one if one & correction else one | {element}
                for one in hitting
                for element in correction
            }
            hitting = [
                one for one in extended if not any(other < one for other in extended)
            ]
        conflicts = [tuple(sorted(one)) for one in hitting if one]
        return sorted(conflicts, key=lambda one: (len(one), one))

    def corrections(
        self, correction_sets: list[frozenset[Element]]
    ) -> list[Correction]:
        """Return the alternatives, constraints with the exact smallest maxSkew that suffices.

        Where no single constraint suffices, all hard ones together are relaxed as little as possible.
        """
        hard = frozenset(element for element in self.elements if element.is_constraint)
        sets = list(correction_sets)
        if (
            len(hard) > 1
            and not any(len(one) == 1 and one <= hard for one in sets)
            and self._reaches(hard)
        ):
            sets = [one for one in sets if not one <= hard] + [hard]
        return [
            self._correction(one)
            for one in sorted(sets, key=lambda one: (len(one), sorted(one)))
        ]

    def _correction(self, elements: frozenset[Element]) -> Correction:
        model = self._model(elements)
        # Only the constraints of this correction count: soft ones of the policy are none of its elements.
        relaxed = {element.index for element in elements if element.is_constraint}
        kept = [
            at
            for at, constraint in enumerate(model.constraints)
            if constraint.is_hard or constraint.index in relaxed
        ]
        model = replace(
            model,
            constraints=tuple(model.constraints[at] for at in kept),
            codes=model.codes[kept],
        )
        program = ModelProgram.of(model, model.greedy)
        program.stage("n", self.limits)
        picks, _, _ = program.stage("excess", self.limits)
        changes: list[tuple[Element, int | None]] = []
        for element in sorted(elements):
            to = None
            if element.is_constraint:
                at = next(
                    at
                    for at, constraint in enumerate(model.constraints)
                    if constraint.index == element.index
                )
                counts = model.constraints[at].counts(picks, model.codes[at])
                to = int(counts.max() - counts.min())
                if to <= model.constraints[at].max_skew:
                    continue
            changes.append((element, to))
        return Correction(tuple(changes), self._greedy_reaches(changes))

    def _greedy_reaches(self, changes: list[tuple[Element, int | None]]) -> bool:
        """Run the scheduler as if the correction were saved; a filter that is dropped lets all pass."""
        cycle = self.decision.cycle
        dropped = [element for element, _ in changes if not element.is_constraint]
        policy = relaxed_policy(cycle.policy, changes)
        if any(element.name != "eligibility" for element in dropped):
            cycle = replace(cycle.rescheduled(), policy=policy)
        else:
            cycle = with_policy(cycle, policy)
        ignored = sum(1 << element.index for element in dropped)
        candidates = candidates_of(cycle)
        failed = candidates.failed & ~np.uint8(ignored)
        preference = profile_of(cycle).preference
        affinity = preference.affinity(cycle, failed == 0)
        ranking = preference.ranking(cycle, failed == 0, affinity)
        candidates = replace(
            candidates, failed=failed, affinity=affinity, preference=ranking
        )
        wanted = (policy.number_of_clusters or 0) - len(cycle.binding_classes.current)
        return not pick(candidates, wanted).ran_dry

    def shopping(self) -> list[ShoppingItem]:
        """Return the fewest clusters whose addition makes the number possible."""
        model = self._model(())
        kept = [
            at for at, constraint in enumerate(model.constraints) if constraint.is_hard
        ]
        constraints = tuple(model.constraints[at] for at in kept)
        model = replace(model, constraints=constraints, codes=model.codes[kept])
        added = _tuples(
            model,
            [
                self.candidates.groups[constraint.index].codes
                for constraint in constraints
            ],
        )
        program = ModelProgram.of(model, model.greedy, added=added)
        program.stage("n", self.limits)
        program.stage("added", self.limits)
        values = program.program.values
        if int(values[program.picks].sum()) < self.needed:
            return []
        counts = values[len(model.sizes) : program.first]
        return [
            ShoppingItem(
                int(counts[at]),
                {
                    constraint.key: constraint.values[added[row, at]]
                    for row, constraint in enumerate(constraints)
                },
            )
            for at in np.nonzero(counts)[0].tolist()
        ]


def _tuples(model: ExactModel, codes: list[Codes]) -> Ints:
    """Return all tuples of domains, or those of the fleet where there are too many."""
    domains = [range(len(constraint.values)) for constraint in model.constraints]
    if prod(map(len, domains)) <= _MOST_TUPLES:
        tuples = np.array(list(product(*domains)), dtype=np.int64).T
        return (
            tuples.reshape(len(domains), -1)
            if domains
            else np.zeros((0, 1), dtype=np.int64)
        )
    of_fleet = np.stack(codes).astype(np.int64)
    return np.unique(of_fleet[:, (of_fleet != ABSENT).all(axis=0)], axis=1)


def relaxed_policy(
    policy: PlacementPolicy, changes: Iterable[tuple[Element, int | None]]
) -> PlacementPolicy:
    """Return the policy with the larger maxSkews of a correction."""
    constraints = list(policy.topology_spread_constraints)
    for element, to in changes:
        if element.is_constraint and to is not None:
            constraints[element.index] = constraints[element.index].model_copy(
                update={"max_skew": to}
            )
    return policy.model_copy(update={"topology_spread_constraints": tuple(constraints)})
