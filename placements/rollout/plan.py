"""The waves of a rolling update before it starts, as if all took equally long and nothing failed."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from placements.rollout.answer import Action, Answer, Remove, StartUpdate
from placements.rollout.budget import Budgets, Cost, budgets_of
from placements.rollout.rolling import choose, lanes_of, next_actions
from placements.rollout.state import ClusterFacts, Hold, Phase, RolloutState
from placements.rollout.work import Step, work_of


@dataclass(frozen=True, slots=True)
class Wave:
    """One planned batch: what starts together, in its order, and the budgets after that."""

    number: int
    actions: tuple[Action, ...]
    budgets: Budgets


@dataclass(frozen=True, slots=True)
class Plan:
    """The waves, and the answer when none is left: finished, or who would still wait and for what."""

    waves: tuple[Wave, ...]
    rest: Answer

    @property
    def wave_of(self) -> dict[str, int]:
        """Give the number of the wave of every cluster that is in one."""
        return {action.cluster: wave.number for wave in self.waves for action in wave.actions}


def plan(state: RolloutState) -> Plan:
    """Plan the waves from where the clusters are; a pause, a stop and waits for a retry are overlooked.

    For a draft, plan `state.wanting(...)`.
    """
    clear = replace(state, hold=Hold.NONE, clusters=tuple(map(_at_once, state.clusters)))
    batches = list(_batches(clear))
    waves = [
        Wave(number, tuple(step.action for step in started), budgets)
        for number, (started, budgets) in enumerate(batches, 1)
    ]
    everything = [step for started, _ in batches for step in started]
    return Plan(tuple(waves), next_actions(completed(clear, [step.action for step in everything])))


def _at_once(cluster: ClusterFacts) -> ClusterFacts:
    return cluster if cluster.retry_at is None else replace(cluster, retry_at=None)


def _batches(state: RolloutState) -> Iterator[tuple[list[Step], Budgets]]:
    """Give what starts together, batch after batch, and the budgets after each."""
    if state.deletion and state.deletion.abandons:
        return
    started, budgets = choose(lanes_of(work_of(state).steps), budgets_of(state))
    if started:
        yield started, budgets
    # From here on nothing is in flight and no step is free, so that numbers are all there is to follow.
    state = completed(state, [step.action for step in started])
    lanes, before = lanes_of(work_of(state).steps), budgets_of(state)
    while True:
        started, budgets = choose(lanes, before)
        if not started:
            return
        yield started, budgets
        before = _completed_budgets(before, started)


def completed(state: RolloutState, actions: Iterable[Action]) -> RolloutState:
    """Give the state once these actions, and all that was in flight before, have come to a good end."""
    by_cluster = {action.cluster: action for action in actions}
    return replace(state, clusters=tuple(_completed(each, by_cluster) for each in state.clusters))


def _completed(cluster: ClusterFacts, actions: Mapping[str, Action]) -> ClusterFacts:
    action = actions.get(cluster.name)
    if isinstance(action, StartUpdate):
        return cluster.being(Phase.AVAILABLE, running=action.version)
    if isinstance(action, Remove):
        return cluster.being(Phase.REMOVED, running=None)
    if not cluster.is_reachable:
        return cluster
    if cluster.phase is Phase.REMOVING:
        return cluster.being(Phase.REMOVED, running=None)
    if cluster.phase in (Phase.APPLYING, Phase.SETTLING):
        return cluster.being(Phase.AVAILABLE, running=cluster.running)
    return cluster


def _completed_budgets(budgets: Budgets, started: list[Step]) -> Budgets:
    """Count anew once a batch has come to a good end."""
    removed = [step for step in started if isinstance(step.action, Remove)]
    added = sum(step.cost is Cost.ADDITION for step in started)
    ready = budgets.updates.ready + added - sum(step.facts.phase is Phase.AVAILABLE for step in removed)
    holding = budgets.additions.holding + added - len(removed)
    deletion = replace(budgets.deletion, running=0, started=0) if budgets.deletion else None
    return Budgets(
        replace(budgets.updates, ready=ready, at_risk=0),
        replace(budgets.removals, ready=ready, at_risk=0),
        replace(budgets.additions, holding=holding, added=0),
        deletion,
    )
