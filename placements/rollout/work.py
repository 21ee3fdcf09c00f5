"""What is to be done on each cluster, what it costs, and what blocks it before any budget is asked."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from placements.rollout.answer import Action, Block, Remove, StartUpdate, UnderWay, Waiting, Why
from placements.rollout.budget import Cost
from placements.rollout.state import EMPTY, ClusterFacts, Hold, Phase, RolloutState

FORGETTABLE_AFTER = timedelta(minutes=15)
_IN_FLIGHT = frozenset({Phase.APPLYING, Phase.SETTLING, Phase.REMOVING})


@dataclass(frozen=True, slots=True)
class Step:
    """One start that a cluster needs, which budget it takes from, and from when on after a failure."""

    facts: ClusterFacts
    action: Action
    cost: Cost
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """All that is to be done, by cluster name: what only a budget may hold, what waits, what is under way."""

    steps: tuple[Step, ...]
    waiting: tuple[Waiting, ...]
    under_way: tuple[UnderWay, ...]
    unreachable: tuple[str, ...]
    may_still_hold: tuple[str, ...]


def work_of(state: RolloutState) -> Work:
    """Go through the clusters by name and sort out what each needs."""
    steps: list[Step] = []
    waiting: list[Waiting] = []
    under_way: list[UnderWay] = []
    clusters = sorted(state.clusters, key=lambda each: each.name)
    for cluster in clusters:
        step = step_of(cluster, state)
        block = _block_of(cluster, step, state)
        if block is not None:
            waiting.append(waiting_for(block, cluster, step, state))
        elif step is not None and cluster.is_reachable:
            steps.append(step)
        if cluster.is_reachable and cluster.phase in _IN_FLIGHT and not state.is_available(cluster):
            under_way.append(UnderWay(cluster.name, cluster.phase, state.settles_at(cluster)))
    away = [each for each in clusters if not each.is_reachable]
    return Work(
        tuple(steps),
        tuple(waiting),
        tuple(under_way),
        unreachable=tuple(each.name for each in away if each.wanted is not None),
        may_still_hold=tuple(each.name for each in away if each.has_resources),
    )


def needs_run(state: RolloutState) -> bool:
    """Tell whether anything is to be started anywhere, so that a run has to begin (lifecycle A.6)."""
    return any(step_of(cluster, state) for cluster in state.clusters if cluster.is_in_fleet)


def step_of(cluster: ClusterFacts, state: RolloutState) -> Step | None:
    """Give what is to start on a cluster, None where nothing is: it is as wanted, or on its way there."""
    if cluster.wanted is None:
        return _removal(cluster, state)
    if cluster.phase in EMPTY or cluster.phase is Phase.REMOVING:
        return Step(cluster, StartUpdate(cluster.name, cluster.wanted, Why.ADD), Cost.ADDITION)
    if cluster.running != cluster.wanted or cluster.phase is Phase.REMOVE_FAILED:
        is_available = state.is_available(cluster)
        why, cost = (Why.UPDATE, Cost.UPDATE) if is_available else (Why.NEWER, Cost.FREE)
        return Step(cluster, StartUpdate(cluster.name, cluster.wanted, why), cost)
    if cluster.phase is Phase.FAILED:
        retry = StartUpdate(cluster.name, cluster.wanted, Why.RETRY, cluster.attempts + 1)
        return Step(cluster, retry, Cost.FREE, cluster.retry_at)
    return None


def _removal(cluster: ClusterFacts, state: RolloutState) -> Step | None:
    if cluster.phase in EMPTY or cluster.phase is Phase.REMOVING:
        return None
    cost = Cost.REMOVAL if state.is_available(cluster) else Cost.FREE
    cost = Cost.DELETION if state.deletion else cost
    if cluster.phase is Phase.REMOVE_FAILED:
        return Step(cluster, Remove(cluster.name, cluster.attempts + 1), cost, cluster.retry_at)
    return Step(cluster, Remove(cluster.name), cost)


def _block_of(cluster: ClusterFacts, step: Step | None, state: RolloutState) -> Block | None:
    if not cluster.is_reachable:
        return None if state.is_done(cluster) else _out_of_reach(cluster)
    if step is None:
        return None
    if state.hold is Hold.PAUSED:
        return Block.PAUSED
    if state.hold is Hold.STOPPED and not state.deletion:
        return Block.STOPPED
    if cluster.phase is Phase.REMOVING:
        return Block.BEING_REMOVED
    is_later = step.due is not None and step.due > state.at
    return Block.RETRY_LATER if is_later else None


def _out_of_reach(cluster: ClusterFacts) -> Block | None:
    if cluster.is_in_fleet:
        return Block.UNREACHABLE
    return Block.NOT_IN_FLEET if cluster.wanted is not None else None


def waiting_for(block: Block, cluster: ClusterFacts, step: Step | None, state: RolloutState) -> Waiting:
    """Say of a cluster that it waits, and for what."""
    return Waiting(
        cluster.name,
        block,
        step.action if step else None,
        cluster.running if cluster.has_resources else None,
        cluster.wanted,
        until=cluster.retry_at if block is Block.RETRY_LATER else None,
        forgettable_from=_forgettable_from(cluster, state),
        since=cluster.unreachable_since if block is Block.UNREACHABLE else None,
    )


def _forgettable_from(cluster: ClusterFacts, state: RolloutState) -> datetime | None:
    if state.deletion is None or cluster.unreachable_since is None:
        return None
    return max(state.deletion.started_at, cluster.unreachable_since) + FORGETTABLE_AFTER
