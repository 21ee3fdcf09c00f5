"""Diagnosis of a decision: blocking domains, exceeded limits, outdated placements.

Also the bounded search for a larger valid set than the greedy one, and the number of clusters that a policy
can select at most.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from clusters.columns import ABSENT
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.round import ConstraintScore, Round
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import (
    GroupStrategy,
    MissingKeyPolicy,
    imbalance,
    is_hard,
    is_limit,
)
from placements.manifests.policy import PlacementType, TopologySpreadConstraint

_MOST_CELLS = 400  # the search goes one call deeper per cell


@dataclass(frozen=True, slots=True)
class LargerSet:
    """Result of the search.

    `clusters` is a set to pick that is larger than the run's and breaks no hard limit, None when none was
    found; `is_settled` means that the search was complete, so that None means impossible.
    """

    clusters: tuple[str, ...] | None
    is_settled: bool


def find_larger_set(decision: Decision, *, most_steps: int) -> LargerSet:
    """Return the largest set of candidates, from the wanted size down, whose skews stay within the limits."""
    search = _Search(decision, most_steps)
    if len(search.cells) > _MOST_CELLS:
        return LargerSet(None, is_settled=False)
    found = len(decision.chosen)
    wanted = (decision.cycle.policy.number_of_clusters or 0) - len(decision.kept)
    for size in range(min(wanted, search.available), found, -1):
        taken = search.find(size)
        if taken is not None:
            return LargerSet(search.names(taken), is_settled=True)
        if search.steps_left <= 0:
            return LargerSet(None, is_settled=False)
    return LargerSet(None, is_settled=True)


class _Search:
    """Depth first over cells of equal clusters: how many to take of each."""

    def __init__(self, decision: Decision, most_steps: int) -> None:
        candidates = decision.candidates
        assert candidates is not None  # noqa: S101 -- only called for a decision with rounds
        self.steps_left = most_steps
        self.fleet_names = decision.cycle.fleet.names
        hard = [index for index, one in enumerate(candidates.constraints) if is_hard(one)]
        self.strategy = candidates.strategy
        self.judged = [(candidates.constraints[index], candidates.groups[index]) for index in hard]
        starts = candidates.starting_counts()
        self.counts = [starts[index] for index in hard]
        columns = [candidates.groups[index].codes.tolist() for index in hard]

        # Leave out the clusters without a key, where a hard constraint takes none of them.
        found = candidates.passes.copy()
        for constraint, groups in self.judged:
            if self.strategy.missing_key(constraint) is MissingKeyPolicy.EXCLUDED:
                found &= groups.codes != ABSENT
        positions = np.nonzero(found)[0].tolist()

        keyed = sorted((tuple(column[position] for column in columns), position) for position in positions)
        by_cell = groupby(keyed, key=lambda pair: pair[0])
        self.cells = [(key, [position for _, position in members]) for key, members in by_cell]
        self.available = len(positions)

    def find(self, size: int) -> list[int] | None:
        """Return how many clusters to take of each cell, or None."""
        return self._take(0, size, self.available)

    def names(self, taken: list[int]) -> tuple[str, ...]:
        """Return the clusters of a solution, of each cell those whose names rank highest."""
        chosen = (members[-count:] for (_, members), count in zip(self.cells, taken, strict=True) if count)
        return tuple(sorted(self.fleet_names[position] for members in chosen for position in members))

    def _take(self, cell: int, size: int, available: int) -> list[int] | None:
        if self.steps_left <= 0 or size > available:
            return None
        self.steps_left -= 1
        if cell == len(self.cells):
            is_within_limits = all(
                imbalance(counts, self.strategy.outlook(constraint, groups, counts)) <= constraint.max_skew
                for counts, (constraint, groups) in zip(self.counts, self.judged, strict=True)
            )
            return [] if is_within_limits else None
        key, members = self.cells[cell]
        for count in range(min(len(members), size), -1, -1):
            self._count(key, count)
            rest = self._take(cell + 1, size - count, available - len(members))
            self._count(key, -count)
            if rest is not None:
                return [count, *rest]
        return None

    def _count(self, key: tuple[int, ...], by: int) -> None:
        for counts, group in zip(self.counts, key, strict=True):
            if group != ABSENT:
                counts[group] += by


@dataclass(frozen=True, slots=True)
class PinnedDomain:
    """A domain that cannot grow holds the minimum down, so a hard constraint blocks the others.

    `has_candidates` tells a domain whose clusters are all used up from one that never had any.
    """

    topology_key: str
    group: str
    count: int
    has_candidates: bool


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The skew was above the limit of a constraint before the first pick.

    `lacks_domains` is minDomains where there are fewer domains, so that the smallest counts as 0.
    """

    topology_key: str
    skew: int
    max_skew: int
    lacks_domains: int | None = None


def pinned_groups(decision: Decision) -> tuple[PinnedDomain, ...]:
    """Return the domains that ended an unfulfilled run: at the minimum, without a candidate."""
    if decision.is_fulfilled or not decision.number_of_rounds:
        return ()
    last = decision.round(decision.number_of_rounds)
    return tuple(pinned for bid in last.bids for pinned in _pinned(bid, last))


def _pinned(bid: ConstraintScore, last: Round) -> Iterator[PinnedDomain]:
    codes = bid.groups.codes[bid.is_forbidden & last.is_left]
    blocked = set(bid.groups.siblings[codes[codes != ABSENT]].tolist())
    left = set(bid.groups.codes[last.is_left].tolist())
    ever = set(bid.groups.codes[last.candidates.passes].tolist())
    for group in np.nonzero(bid.counts == bid.outlook.smallest)[0].tolist():
        if group not in left and int(bid.groups.siblings[group]) in blocked:
            name = bid.groups.values[group]
            yield PinnedDomain(bid.constraint.topology_key, name, int(bid.counts[group]), group in ever)


def over_limits(decision: Decision) -> tuple[OverLimit, ...]:
    """Return the constraints that the bindings break already, before any pick."""
    if not decision.number_of_rounds:
        return ()
    return tuple(
        OverLimit(bid.constraint.topology_key, bid.imbalance, bid.constraint.max_skew, bid.lacks_domains)
        for bid in decision.round(1).bids
        if bid.imbalance > bid.constraint.max_skew and is_limit(bid.constraint, bid.outlook)
    )


def favoured_without_key(decision: Decision) -> dict[str, tuple[str, ...]]:
    """Return, by topology key, the picked clusters that lack it and so scored 0 where others score −1.

    Only under rules that judge every constraint by itself: elsewhere lacking a key favours no cluster.
    """
    if decision.candidates is None or not isinstance(decision.candidates.strategy, GroupStrategy):
        return {}
    found = {}
    for constraint, groups in zip(decision.candidates.constraints, decision.candidates.groups, strict=True):
        lacking = decision.chosen[groups.codes[decision.chosen] == ABSENT].tolist()
        if lacking:
            found[constraint.topology_key] = tuple(map(decision.cycle.fleet.names.__getitem__, lacking))
    return found


def stale_picks(decision: Decision) -> tuple[str, ...]:
    """Return the clusters that stay placed although rescheduling would not select them."""
    if decision.is_failed or decision.kind is CycleKind.NO_NAMES:
        return ()
    return not_selected(schedule(decision.cycle.rescheduled()), decision.kept)


def not_selected(fresh: Decision, placed: Iterable[str]) -> tuple[str, ...]:
    """Return those of the placed clusters that a decision on the rescheduled cycle would not keep.

    None where nothing can be rescheduled: clusters that are named, or a cycle that fails.
    """
    if fresh.is_failed or fresh.cycle.policy.placement_type is PlacementType.PICK_FIXED:
        return ()
    after = {one.cluster for one in fresh.bindings_after if one.is_active}
    return tuple(name for name in placed if name not in after)


def is_dead_end(decision: Decision, *, most_steps: int = 20_000) -> LargerSet | None:
    """Return a larger valid set where two or more hard constraints ended the run short, else None."""
    hard = [one for one in decision.cycle.policy.topology_spread_constraints if is_hard(one)]
    if decision.is_fulfilled or decision.candidates is None or len(hard) < 2:
        return None
    return find_larger_set(decision, most_steps=most_steps)


@dataclass(frozen=True, slots=True)
class Bound:
    """No number above `most` can be reached; `is_exact` means that `most` itself can."""

    most: int
    is_exact: bool


def feasibility_bound(cycle: Cycle) -> Bound | None:
    """Return the bound for a PickN placement on this fleet; None for other types or failed runs."""
    if cycle.policy.placement_type is not PlacementType.PICK_N:
        return None
    constraints = cycle.policy.topology_spread_constraints
    if not isinstance(profile_of(cycle).strategy, GroupStrategy):
        is_exact = len(constraints) <= 1
        most = _reached(cycle, constraints if is_exact else ())
        return None if most is None else Bound(most, is_exact)
    hard = [one for one in constraints if is_hard(one)]
    reached = [_reached(cycle, (one,)) for one in hard] or [_reached(cycle, ())]
    if None in reached:
        return None
    return Bound(min(one for one in reached if one is not None), is_exact=len(hard) <= 1)


def _reached(cycle: Cycle, constraints: tuple[TopologySpreadConstraint, ...]) -> int | None:
    """Count what a run for the whole fleet places, None when it fails."""
    update = {"topology_spread_constraints": constraints, "number_of_clusters": len(cycle.fleet)}
    decision = schedule(replace(cycle, policy=cycle.policy.model_copy(update=update)))
    return None if decision.is_failed else len(decision.picked_names) + len(decision.kept)
