"""The preview of a rolling update in waves, and the progress of a run as counts and limits."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleetui.apimachinery.model import IntOrPercent
from placements.engine.rollout.actions import (
    Action,
    InProgressCluster,
    Remove,
    RollingUpdateResult,
    StartUpdate,
)
from placements.engine.rollout.budget import BudgetKind, Budgets, budgets_of
from placements.engine.rollout.rolling_update import (
    PendingUpdate,
    PendingWork,
    choose,
    next_actions,
    only_released,
    plan_work,
    queue_by_budget,
)
from placements.engine.rollout.staged_run import StagedUpdateResult
from placements.engine.rollout.state import (
    ClusterState,
    Phase,
    RolloutState,
    Suspension,
)


@dataclass(frozen=True, slots=True)
class Wave:
    """One planned batch: what starts together, in its order, and the budgets after that."""

    number: int
    actions: tuple[Action, ...]
    budgets: Budgets


@dataclass(frozen=True, slots=True)
class WavePlan:
    """The waves, and the result when none is left: finished, or which clusters are blocked and by what.

    `state` is what was planned, and `in_progress` what was started already and is in no wave.
    """

    state: RolloutState = field(compare=False)
    waves: tuple[Wave, ...]
    rest: RollingUpdateResult
    in_progress: tuple[InProgressCluster, ...] = ()


def plan_waves(state: RolloutState) -> WavePlan:
    """Plan the waves from the current state, as if all took equally long and nothing failed.

    A pause, a stop, waits for a retry and what is late are ignored. For a draft, plan
    `state.with_wanted(...)`.
    """
    clusters = tuple(
        replace(one, retry_at=None, phase_changed_at=None, unanswered_since=None)
        if one.retry_at or one.unanswered_since or state.late_at(one)
        else one
        for one in state.clusters
    )
    clear = replace(state, suspension=Suspension.NONE, clusters=clusters)
    work = plan_work(clear)
    batches = list(_batches(clear, work))
    waves = [
        Wave(number, tuple(update.action for update in started), budgets)
        for number, (started, budgets) in enumerate(batches, 1)
    ]
    everything = [update.action for started, _ in batches for update in started]
    rest = next_actions(completed(clear, everything))
    return WavePlan(state, tuple(waves), rest, work.in_progress)


class ComparedLimit(NamedTuple):
    """A limit of clusters that may be unavailable, and what the rest of the update would be with it."""

    max_unavailable: IntOrPercent
    at_once: int
    min_available: int
    waves: int


_COMPARED = tuple(IntOrPercent(percent, is_percent=True) for percent in (5, 10, 20, 25))


def compare_limits(plan: WavePlan) -> list[ComparedLimit]:
    """Return a plan with the limit that its strategy has and with others, the smallest first.

    Limits that allow as many clusters at once are one, under the name that the strategy gives it.
    """
    state = plan.state
    number = state.number_selected
    own = state.strategy.max_unavailable
    by_size = {limit.of(number): limit for limit in (*_COMPARED, own)}
    compared = []
    for at_once, limit in sorted(by_size.items()):
        strategy = state.strategy.model_copy(update={"max_unavailable": limit})
        waves = plan_waves(replace(state, strategy=strategy)).waves
        compared.append(
            ComparedLimit(limit, at_once, max(0, number - at_once), len(waves))
        )
    return compared


def _batches(
    state: RolloutState, work: PendingWork
) -> Iterator[tuple[list[PendingUpdate], Budgets]]:
    """Yield what starts together, batch after batch, and the budgets after each."""
    if state.deletion and state.deletion.abandons:
        state = only_released(state)
        work = plan_work(state)
    started, budgets = choose(queue_by_budget(work.updates), budgets_of(state))
    if started:
        yield started, budgets
    # From here on nothing is in flight and no update is free, so that numbers are all there is to follow.
    state = completed(state, [update.action for update in started])
    queues, before = queue_by_budget(plan_work(state).updates), budgets_of(state)
    while True:
        started, budgets = choose(queues, before)
        if not started:
            return
        yield started, budgets
        before = _completed_budgets(before, started)


def completed(state: RolloutState, actions: Iterable[Action]) -> RolloutState:
    """Return the state once these actions, and all that was in flight before, have succeeded."""
    by_cluster = {action.cluster: action for action in actions}
    return replace(
        state, clusters=tuple(_completed(each, by_cluster) for each in state.clusters)
    )


def _completed(cluster: ClusterState, actions: Mapping[str, Action]) -> ClusterState:
    action = actions.get(cluster.name)
    if isinstance(action, StartUpdate):
        return cluster.completed(Phase.AVAILABLE, running=action.version)
    if isinstance(action, Remove):
        return cluster.completed(Phase.REMOVED, running=None)
    if not cluster.is_reachable:
        return cluster
    if cluster.phase is Phase.REMOVING:
        return cluster.completed(Phase.REMOVED, running=None)
    if cluster.phase in (Phase.APPLYING, Phase.APPLIED):
        return cluster.completed(Phase.AVAILABLE, running=cluster.running)
    return cluster


def _completed_budgets(budgets: Budgets, started: list[PendingUpdate]) -> Budgets:
    removed = [update for update in started if isinstance(update.action, Remove)]
    added = sum(update.budget is BudgetKind.ADDITION for update in started)
    ready = (
        budgets.updates.ready
        + added
        - sum(each.cluster.phase is Phase.AVAILABLE for each in removed)
    )
    holding = budgets.additions.holding + added - len(removed)
    deletion = (
        replace(budgets.deletion, running=0, started=0) if budgets.deletion else None
    )
    updates, removals = (
        replace(one, ready=ready, at_risk=0)
        for one in (budgets.updates, budgets.removals)
    )
    return Budgets(
        updates,
        removals,
        replace(budgets.additions, holding=holding, added=0),
        deletion,
    )


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """Clusters that hold resources, or are about to, each in one of four counts, and the limits.

    `old` and `new` are available, on another version than wanted or on the one wanted; `unavailable` are
    worked on, not available yet, failed or unreachable; `removing` are being removed. `number` is N,
    `min_available` N − maxUnavailable and `max_total` N + maxSurge.
    """

    old: int
    new: int
    unavailable: int
    removing: int
    number: int
    min_available: int
    max_total: int

    @property
    def available(
        self,
    ) -> int:  # on whichever version: what the minimum is measured against
        return self.old + self.new

    @property
    def placed(
        self,
    ) -> int:  # those that hold resources: what the maximum is measured against
        return self.old + self.new + self.unavailable + self.removing


def rollout_progress(
    state: RolloutState, result: RollingUpdateResult
) -> RolloutProgress:
    """Count the clusters as they are once the actions of the result have started."""
    updates, additions = result.budgets.updates, result.budgets.additions
    return RolloutProgress(
        **_counts(state, result.actions),
        number=updates.number,
        min_available=updates.minimum,
        max_total=additions.maximum,
    )


def staged_progress(state: RolloutState, result: StagedUpdateResult) -> RolloutProgress:
    """Count the clusters of a staged run in the same way; its minimum is that of a stage."""
    steps = [step for stage in result.run.stages for step in stage.steps]
    wanted = state.with_wanted({step.name: step.version for step in steps})
    counts = _counts(wanted, result.actions)
    number = len(steps)
    return RolloutProgress(**counts, number=number, min_available=0, max_total=number)


def _counts(state: RolloutState, started: Iterable[Action]) -> dict[str, int]:
    actions = {action.cluster: action for action in started}
    counts = dict.fromkeys(("old", "new", "unavailable", "removing"), 0)
    for cluster in state.clusters:
        action = actions.get(cluster.name)
        if not cluster.has_resources and action is None:
            continue
        if isinstance(action, Remove) or cluster.phase in (
            Phase.REMOVING,
            Phase.REMOVE_FAILED,
        ):
            counts["removing"] += 1
        elif action is not None or not state.is_available(cluster):
            counts["unavailable"] += 1
        else:
            counts["new" if cluster.running == cluster.wanted else "old"] += 1
    return counts
