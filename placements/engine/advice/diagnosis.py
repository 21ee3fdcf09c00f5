"""Diagnosis of a decision: blocking domains, exceeded limits, outdated placements.

Also the number of clusters that a policy can select at most, where no search is needed to find it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from clusters.columns import ABSENT
from placements.engine.balance import exceeded_limits
from placements.engine.loss import without
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.round import ConstraintScore, Round
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import GroupStrategy, is_hard, is_limit
from placements.manifests.policy import PlacementType


@dataclass(frozen=True, slots=True)
class PinnedDomain:
    """A domain that cannot grow holds the minimum down, so a hard constraint blocks the others.

    `has_candidates` distinguishes a domain whose clusters are all used up from one that never had any.
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
    return tuple(
        pinned for score in last.constraint_scores for pinned in _pinned(score, last)
    )


def _pinned(score: ConstraintScore, last: Round) -> Iterator[PinnedDomain]:
    codes = score.groups.codes[score.is_forbidden & last.is_left]
    blocked = set(score.groups.siblings[codes[codes != ABSENT]].tolist())
    left = set(score.groups.codes[last.is_left].tolist())
    ever = set(score.groups.codes[last.candidates.passes].tolist())
    for group in np.nonzero(score.counts == score.projected.smallest)[0].tolist():
        if group not in left and int(score.groups.siblings[group]) in blocked:
            yield PinnedDomain(
                score.constraint.topology_key,
                score.groups.values[group],
                int(score.counts[group]),
                group in ever,
            )


def over_limits(decision: Decision) -> tuple[OverLimit, ...]:
    """Return the constraints that the bindings break already, before any pick."""
    if not decision.number_of_rounds:
        return ()
    return tuple(
        OverLimit(
            score.constraint.topology_key,
            score.imbalance,
            score.constraint.max_skew,
            score.lacks_domains,
        )
        for score in decision.round(1).constraint_scores
        if score.imbalance > score.constraint.max_skew
        and is_limit(score.constraint, score.projected)
    )


def favoured_without_key(decision: Decision) -> dict[str, tuple[str, ...]]:
    """Return, by topology key, the picked clusters that lack it and so scored 0 where others score −1.

    Only under rules that judge every constraint separately: elsewhere lacking a key favours no cluster.
    """
    if decision.candidates is None or not isinstance(
        decision.candidates.strategy, GroupStrategy
    ):
        return {}
    by_key = {}
    for constraint, groups in zip(
        decision.candidates.constraints, decision.candidates.groups, strict=True
    ):
        lacking = decision.chosen[groups.codes[decision.chosen] == ABSENT].tolist()
        if lacking:
            by_key[constraint.topology_key] = tuple(
                map(decision.cycle.fleet.names.__getitem__, lacking)
            )
    return by_key


def stale_picks(decision: Decision) -> tuple[str, ...]:
    """Return the clusters that stay placed although rescheduling would not select them."""
    if not decision.kept or decision.is_failed or decision.kind is CycleKind.NO_NAMES:
        return ()
    return outdated(
        decision.cycle, schedule(decision.cycle.rescheduled()), decision.kept
    )


def outdated(cycle: Cycle, fresh: Decision, placed: Iterable[str]) -> tuple[str, ...]:
    """Return the placed clusters that rescheduling, decided as `fresh`, would not select.

    While a hard limit is exceeded, rules that allow what does not make it worse select other clusters than
    rescheduling does: one that the scheduler would select again in its own place is not outdated.
    """
    names = not_selected(fresh, placed)
    if names and exceeded_limits(cycle, cycle.placed_before):
        return tuple(
            name
            for name in names
            if name not in schedule(without(cycle, name)).picked_names
        )
    return names


def not_selected(fresh: Decision, placed: Iterable[str]) -> tuple[str, ...]:
    """Return those of the placed clusters that a decision on the rescheduled cycle would not keep.

    None where nothing can be rescheduled: clusters that are named, or a cycle that fails.
    """
    if fresh.is_failed or fresh.cycle.policy.placement_type is PlacementType.PICK_FIXED:
        return ()
    after = {binding.cluster for binding in fresh.bindings_after if binding.is_active}
    return tuple(name for name in placed if name not in after)


def feasibility_bound(cycle: Cycle) -> int | None:
    """Return how many clusters a PickN placement can reach on this fleet, if that is plain.

    That is so with at most one hard constraint: what a run for the whole fleet places. None with several, for
    other placement types and for failed runs.
    """
    if cycle.policy.placement_type is not PlacementType.PICK_N:
        return None
    constraints = cycle.policy.topology_spread_constraints
    if isinstance(profile_of(cycle).strategy, GroupStrategy):
        constraints = tuple(
            constraint for constraint in constraints if is_hard(constraint)
        )
    if len(constraints) > 1:
        return None
    update = {
        "topology_spread_constraints": constraints,
        "number_of_clusters": len(cycle.fleet),
    }
    decision = schedule(
        replace(cycle, policy=cycle.policy.model_copy(update=update), batch=None)
    )
    return (
        None if decision.is_failed else len(decision.picked_names) + len(decision.kept)
    )
