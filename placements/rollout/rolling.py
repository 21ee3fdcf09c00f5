"""The rolling update: what may start now (lifecycle A.3 to A.5, A.11)."""

from collections import deque
from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

from placements.rollout.answer import Answer, Block, Remove, Verdict, Waiting
from placements.rollout.budget import Budgets, Cost, budgets_of
from placements.rollout.state import RolloutState
from placements.rollout.work import Step, Work, waiting_for, work_of

Lanes: TypeAlias = dict[Cost, deque[Step]]

_BLOCKED_BY = {
    Cost.UPDATE: Block.UPDATE_FLOOR,
    Cost.REMOVAL: Block.REMOVAL_FLOOR,
    Cost.ADDITION: Block.CEILING,
    Cost.DELETION: Block.DELETION_LIMIT,
}


def next_actions(state: RolloutState) -> Answer:
    """Answer which actions may start now, and for every other cluster what it waits for."""
    if state.deletion and state.deletion.abandons:
        return _abandoned(state)
    work = work_of(state)
    lanes = lanes_of(work.steps)
    started, budgets = choose(lanes, budgets_of(state))
    held = [
        waiting_for(_BLOCKED_BY[cost], step.facts, step, state)
        for cost, lane in lanes.items()
        for step in lane
    ]
    waiting = tuple(sorted((*work.waiting, *held), key=lambda each: each.cluster))
    until = _earliest(work, state.at)
    return Answer(
        _verdict(started, waiting, work, until),
        tuple(step.action for step in started),
        budgets,
        waiting,
        work.under_way,
        until,
        work.may_still_hold,
    )


def lanes_of(steps: Iterable[Step]) -> Lanes:
    """Queue the steps up by the budget that they ask; they come and stay in the order of the names."""
    lanes: Lanes = {cost: deque() for cost in Cost}
    for step in steps:
        lanes[step.cost].append(step)
    return lanes


def choose(lanes: Lanes, budgets: Budgets) -> tuple[list[Step], Budgets]:
    """Take from the lanes what may start, each with what those before it left of the budgets.

    Gives the steps in their order and the budgets afterwards; what may not start stays in its lane.
    """
    are_removals_last = budgets.updates.limit == 0
    order = (Cost.UPDATE, Cost.REMOVAL) if are_removals_last else (Cost.REMOVAL, Cost.UPDATE)
    started: list[Step] = []
    for cost in (Cost.FREE, *order, Cost.ADDITION, Cost.DELETION):
        lane = lanes[cost]
        while lane and budgets.allows(cost):
            started.append(lane.popleft())
            budgets = budgets.after(cost)
    return sorted(started, key=lambda step: _rank(step, are_removals_last=are_removals_last)), budgets


def _rank(step: Step, *, are_removals_last: bool) -> tuple[int, str]:
    """Give the place in the order of lifecycle A.4; a name compares as its bytes do."""
    name = step.facts.name
    if isinstance(step.action, Remove):
        return (3 if are_removals_last else 1), name
    return {Cost.FREE: 0, Cost.UPDATE: 2}.get(step.cost, 4), name


def _earliest(work: Work, now: datetime) -> datetime | None:
    moments = [each.until for each in work.waiting] + [each.until for each in work.under_way]
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def _verdict(
    started: list[Step], waiting: tuple[Waiting, ...], work: Work, until: datetime | None
) -> Verdict:
    if started:
        return Verdict.STARTS
    if work.under_way or until:
        return Verdict.WAITS
    return Verdict.HALTED if waiting else Verdict.FINISHED


def _abandoned(state: RolloutState) -> Answer:
    """Finish at once: the resources stay on the clusters (lifecycle A.11)."""
    holding = sorted(cluster.name for cluster in state.clusters if cluster.has_resources)
    return Answer(Verdict.FINISHED, (), budgets_of(state), may_still_hold=tuple(holding))
