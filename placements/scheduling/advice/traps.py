"""Traps that an explanation has to show (`spec/scheduler.md` 6): named, with their facts."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from placements.scheduling.advice.larger_set import LargerSet, find_larger_set
from placements.scheduling.columns import ABSENT
from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.rounds import Bid, Round
from placements.scheduling.scheduler import schedule
from placements.scheduling.spread.base import GroupStrategy, is_hard, is_limit


@dataclass(frozen=True, slots=True)
class PinnedGroup:
    """A group that cannot grow holds the minimum down, so a hard constraint blocks the others.

    `has_candidates` tells a group whose clusters are all used up from one that never had any.
    """

    topology_key: str
    group: str
    count: int
    has_candidates: bool


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The skew was above the limit of a constraint before the first pick.

    `lacks_domains` is minDomains where there are fewer groups, so that the smallest counts as 0.
    """

    topology_key: str
    skew: int
    max_skew: int
    lacks_domains: int | None = None


def pinned_groups(decision: Decision) -> tuple[PinnedGroup, ...]:
    """List the groups that ended an unfulfilled run: at the minimum, with nobody left to pick."""
    if decision.is_fulfilled or not decision.number_of_rounds:
        return ()
    last = decision.round(decision.number_of_rounds)
    return tuple(pinned for bid in last.bids for pinned in _pinned(bid, last))


def _blocked_families(bid: Bid, last: Round) -> set[int]:
    """Give the families of groups in which somebody who is left cannot be picked."""
    codes = bid.groups.codes[bid.is_forbidden & last.is_left]
    return set(bid.groups.siblings[codes[codes != ABSENT]].tolist())


def _pinned(bid: Bid, last: Round) -> Iterator[PinnedGroup]:
    blocked = _blocked_families(bid, last)
    left = set(bid.groups.codes[last.is_left].tolist())
    ever = set(bid.groups.codes[last.candidates.passes].tolist())
    for group in np.nonzero(bid.counts == bid.outlook.smallest)[0].tolist():
        if group not in left and int(bid.groups.siblings[group]) in blocked:
            name = bid.groups.values[group]
            yield PinnedGroup(bid.constraint.topology_key, name, int(bid.counts[group]), group in ever)


def over_limits(decision: Decision) -> tuple[OverLimit, ...]:
    """List the constraints that the bindings break already, before any pick."""
    if not decision.number_of_rounds:
        return ()
    bids = decision.round(1).bids
    return tuple(
        OverLimit(bid.constraint.topology_key, bid.unevenness, bid.constraint.max_skew, bid.lacks_domains)
        for bid in bids
        if bid.unevenness > bid.constraint.max_skew and is_limit(bid.constraint, bid.outlook)
    )


def favoured_without_key(decision: Decision) -> dict[str, tuple[str, ...]]:
    """Give, by topology key, the picked clusters that lack it and so scored 0 where others score −1.

    Only under rules that judge every constraint by itself: under others lacking a key favours nobody.
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
    """List the clusters that stay placed although a run from scratch would not pick them today."""
    fresh = schedule(replace(decision.cycle, bindings=()))
    if decision.is_failed or fresh.is_failed or decision.kind is CycleKind.NO_NAMES:
        return ()
    picked = set(fresh.picked_names)
    return tuple(name for name in decision.kept if name not in picked)


def dead_end(decision: Decision, *, most_steps: int = 20_000) -> LargerSet | None:
    """Find a larger valid set where two or more hard constraints ended the run short, else None."""
    hard = [one for one in decision.cycle.policy.topology_spread_constraints if is_hard(one)]
    if decision.is_fulfilled or decision.candidates is None or len(hard) < 2:
        return None
    return find_larger_set(decision, most_steps=most_steps)
