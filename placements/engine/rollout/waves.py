"""The preview of a rolling update in waves, and the progress of a run as counts and limits."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from fleetui.apimachinery.model import IntOrPercent
from placements.engine.rollout.actions import (
    Action,
    BlockReason,
    InProgressCluster,
    Remove,
    RollingUpdateResult,
    StartUpdate,
)
from placements.engine.rollout.budget import (
    BudgetKind,
    Budgets,
    budgets_of,
    limited,
)
from placements.engine.rollout.rolling_update import (
    PendingUpdate,
    PendingWork,
    choose,
    next_actions,
    only_released,
    plan_work,
    queue_by_budget,
    starts_within,
)
from placements.engine.rollout.staged_run import StagedUpdateResult
from placements.engine.rollout.state import (
    ClusterState,
    Deletion,
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
class WaveInput:
    """What the waves follow from: the updates by name, and the budgets before the first wave.

    `later` are additions that wait for a removal in progress. `settled` are the budgets once everything has
    succeeded that is in progress or needs no budget.
    """

    updates: tuple[PendingUpdate, ...]
    later: tuple[PendingUpdate, ...]
    budgets: Budgets
    settled: Budgets

    @classmethod
    def of(cls, state: RolloutState, work: PendingWork) -> "WaveInput":
        if state.deletion and state.deletion.abandons:
            state = only_released(state)
            work = plan_work(state)
        free = (
            update.action for update in work.updates if update.budget is BudgetKind.FREE
        )
        later = tuple(
            PendingUpdate(
                ClusterState(cluster.cluster, cluster.wanted),
                cluster.action,
                BudgetKind.ADDITION,
            )
            for cluster in work.blocked
            if cluster.reason is BlockReason.BEING_REMOVED and cluster.action
        )
        settled = budgets_of(completed(state, free))
        return cls(work.updates, later, budgets_of(state), settled)


@dataclass(frozen=True, slots=True)
class WavePlan:
    """The waves, and the result when none is left: finished, or which clusters are blocked and by what.

    `state` is what was planned, from `wave_input`, and `in_progress` what was started already and is in no
    wave.
    """

    state: RolloutState = field(compare=False)
    wave_input: WaveInput = field(compare=False)
    waves: tuple[Wave, ...]
    rest: RollingUpdateResult
    in_progress: tuple[InProgressCluster, ...] = ()


def plan_waves(state: RolloutState) -> WavePlan:
    """Plan the waves from the current state, as if all took equally long and nothing failed.

    A pause, a stop, waits for a retry and what is late are ignored. For a draft, plan
    `state.with_wanted(...)`.
    """
    clusters = tuple(
        cluster._replace(retry_at=None, phase_changed_at=None, unanswered_since=None)
        if cluster.retry_at or cluster.unanswered_since or state.late_at(cluster)
        else cluster
        for cluster in state.clusters
    )
    clear = replace(state, suspension=Suspension.NONE, clusters=clusters)
    work = plan_work(clear)
    wave_input = WaveInput.of(clear, work)
    waves = tuple(
        Wave(number, tuple(update.action for update in started), budgets)
        for number, (started, budgets) in enumerate(_batches(wave_input), 1)
    )
    everything = (action for wave in waves for action in wave.actions)
    rest = next_actions(completed(clear, everything))
    return WavePlan(state, wave_input, waves, rest, work.in_progress)


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
        waves = _waves_within(plan.wave_input, limit, state.deletion)
        compared.append(ComparedLimit(limit, at_once, max(0, number - at_once), waves))
    return compared


def _batches(
    wave_input: WaveInput,
) -> Iterator[tuple[list[PendingUpdate], Budgets]]:
    """Yield what starts together, batch after batch, and the budgets after each."""
    queues = queue_by_budget(wave_input.updates)
    started, budgets = choose(queues, wave_input.budgets)
    if started:
        yield started, budgets
    # From here on nothing is in flight and no update is free, so that numbers are all there is to follow.
    additions = [*queues[BudgetKind.ADDITION], *wave_input.later]
    queues[BudgetKind.ADDITION] = deque(
        sorted(additions, key=lambda update: update.cluster.name)
    )
    before = wave_input.settled
    while True:
        removed = [
            pending_update
            for pending_update in started
            if pending_update.budget in _REMOVALS
        ]
        before = _completed_budgets(
            before,
            added=sum(
                pending_update.budget is BudgetKind.ADDITION
                for pending_update in started
            ),
            removed=len(removed),
            no_longer_ready=sum(
                pending_update.cluster.phase in _ENDS_READY
                for pending_update in removed
            ),
        )
        started, budgets = choose(queues, before)
        if not started:
            return
        yield started, budgets


_REMOVALS = (BudgetKind.REMOVAL, BudgetKind.DELETION)
_ENDS_READY = (Phase.AVAILABLE, Phase.APPLYING, Phase.APPLIED)
"""The phases of clusters that are available once what is in progress has succeeded."""


def _waves_within(
    wave_input: WaveInput, limit: IntOrPercent, deletion: Deletion | None
) -> int:
    """Return how many waves there would be with another `maxUnavailable`."""
    waiting = Counter(update.budget for update in wave_input.updates)
    starts, _ = starts_within(waiting, limited(wave_input.budgets, limit, deletion))
    waves = int(any(starts.values()))
    waiting[BudgetKind.ADDITION] += len(wave_input.later)
    before = limited(wave_input.settled, limit, deletion)
    while True:
        waiting.subtract(starts)
        removed = sum(starts[kind] for kind in _REMOVALS)
        before = _completed_budgets(
            before,
            added=starts[BudgetKind.ADDITION],
            removed=removed,
            no_longer_ready=removed,
        )
        starts, _ = starts_within(waiting, before)
        if not any(starts.values()):
            return waves
        waves += 1


def completed(state: RolloutState, actions: Iterable[Action]) -> RolloutState:
    """Return the state once these actions, and all that was in flight before, have succeeded."""
    by_cluster = {action.cluster: action for action in actions}
    return replace(
        state,
        clusters=tuple(_completed(cluster, by_cluster) for cluster in state.clusters),
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


def _completed_budgets(
    budgets: Budgets, *, added: int, removed: int, no_longer_ready: int
) -> Budgets:
    """Return the budgets once a wave has succeeded; `no_longer_ready` of the removed ones were available."""
    ready = budgets.updates.ready + added - no_longer_ready
    holding = budgets.additions.holding + added - removed
    deletion = (
        replace(budgets.deletion, running=0, started=0) if budgets.deletion else None
    )
    updates, removals = (
        replace(available, ready=ready, at_risk=0)
        for available in (budgets.updates, budgets.removals)
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
