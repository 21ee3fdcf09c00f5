"""The rolling update: the updates needed, and those to start (`rules/lifecycle.md#starts`)."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from placements.engine.rollout.actions import (
    Action,
    BlockedCluster,
    BlockReason,
    InProgressCluster,
    Remove,
    RollingUpdateResult,
    RunPhase,
    StartUpdate,
    UpdateReason,
)
from placements.engine.rollout.budget import BudgetKind, Budgets, budgets_of
from placements.engine.rollout.state import (
    EMPTY,
    IN_FLIGHT,
    ClusterState,
    Phase,
    RolloutState,
    Suspension,
)

ABANDONABLE_AFTER = timedelta(minutes=15)
MOST_FAILURES = 2
"""After more failures in a row the next retry is not expected to succeed."""


@dataclass(frozen=True, slots=True)
class PendingUpdate:
    """One start that a cluster needs, which budget it uses, and from when on after a failure."""

    cluster: ClusterState
    action: Action
    budget: BudgetKind
    due: datetime | None = None


@dataclass(frozen=True, slots=True)
class PendingWork:
    """All that is to be done, by cluster name: what only a budget may block, what is blocked, in progress."""

    updates: tuple[PendingUpdate, ...]
    blocked: tuple[BlockedCluster, ...]
    in_progress: tuple[InProgressCluster, ...]
    unreachable: tuple[str, ...]
    may_still_hold: tuple[str, ...]


Queues: TypeAlias = dict[BudgetKind, deque[PendingUpdate]]

_BLOCKED_BY = {
    BudgetKind.UPDATE: BlockReason.UPDATE_FLOOR,
    BudgetKind.REMOVAL: BlockReason.REMOVAL_FLOOR,
    BudgetKind.ADDITION: BlockReason.CEILING,
    BudgetKind.DELETION: BlockReason.DELETION_LIMIT,
}


def next_actions(state: RolloutState) -> RollingUpdateResult:
    """Return which actions may start now, and for every other cluster what it waits for."""
    left: tuple[str, ...] = ()
    if (
        state.deletion and state.deletion.abandons
    ):  # the resources stay (`rules/lifecycle.md#deletion`)
        holding = (
            cluster
            for cluster in state.clusters
            if cluster.has_resources and not cluster.is_releasable
        )
        left = tuple(sorted(cluster.name for cluster in holding))
        state = only_released(state)
    work = plan_work(state)
    queues = queue_by_budget(work.updates)
    started, budgets = choose(queues, budgets_of(state))
    over_budget = [
        blocked_cluster(_BLOCKED_BY[kind], update.cluster, update, state)
        for kind, queue in queues.items()
        for update in queue
    ]
    blocked = tuple(
        sorted((*work.blocked, *over_budget), key=lambda each: each.cluster)
    )
    retries = [cluster for cluster in work.blocked if cluster.retry_at]
    late = filter(None, map(state.late_at, state.clusters))
    times = [
        *(retry.retry_at for retry in retries),
        *(cluster.available_at for cluster in work.in_progress),
        *(at for at in late if at > state.at),
    ]
    hopeless = [
        retry
        for retry in retries
        if retry.action and retry.action.attempt > MOST_FAILURES + 1
    ]
    requeue_at = min((at for at in times if at is not None), default=None)
    if started:
        phase = RunPhase.STARTS
    elif work.in_progress or (requeue_at and len(times) > len(hopeless)):
        phase = RunPhase.WAITS
    else:
        phase = RunPhase.HALTED if blocked else RunPhase.FINISHED
    return RollingUpdateResult(
        phase,
        budgets,
        blocked,
        work.in_progress,
        work.unreachable,
        tuple(sorted((*work.may_still_hold, *left))),
        actions=tuple(update.action for update in started),
        requeue_at=requeue_at,
    )


def only_released(state: RolloutState) -> RolloutState:
    """Return the state with those clusters only that a deletion with Abandon still calls."""
    return replace(
        state,
        clusters=tuple(cluster for cluster in state.clusters if cluster.is_releasable),
    )


def plan_work(state: RolloutState) -> PendingWork:
    updates: list[PendingUpdate] = []
    blocked: list[BlockedCluster] = []
    in_progress: list[InProgressCluster] = []
    clusters = sorted(state.clusters, key=lambda each: each.name)
    for cluster in clusters:
        if cluster.is_reachable and state.is_done(cluster):
            continue  # most of a large placement, at rest or at the end of a plan
        update = next_step(cluster, state)
        reason = _block_reason(cluster, update, state)
        if reason is not None:
            blocked.append(blocked_cluster(reason, cluster, update, state))
        elif update is not None and cluster.is_reachable:
            updates.append(update)
        is_in_flight = (
            cluster.phase in IN_FLIGHT
            and cluster.is_reachable
            and not state.is_available(cluster)
        )
        if is_in_flight and reason not in (
            BlockReason.NOT_AVAILABLE,
            BlockReason.UNREACHABLE,
        ):
            in_progress.append(
                InProgressCluster(
                    cluster.name, cluster.phase, state.available_at(cluster)
                )
            )
    away = [cluster for cluster in clusters if not cluster.is_reachable]
    return PendingWork(
        tuple(updates),
        tuple(blocked),
        tuple(in_progress),
        unreachable=tuple(
            cluster_state.name
            for cluster_state in away
            if cluster_state.wanted is not None
        ),
        may_still_hold=tuple(
            cluster_state.name for cluster_state in away if cluster_state.has_resources
        ),
    )


def needs_run(state: RolloutState) -> bool:
    """Return whether anything is to be started anywhere, so that a rollout has to start.

    See `rules/lifecycle.md#triggers`.
    """
    return any(
        next_step(cluster, state) for cluster in state.clusters if cluster.is_in_fleet
    )


def next_step(cluster: ClusterState, state: RolloutState) -> PendingUpdate | None:
    """Return what is to start on a cluster, None where nothing is: it is up to date, or in progress."""
    if cluster.wanted is None:
        return _next_removal(cluster, state)
    if cluster.phase in EMPTY or cluster.phase is Phase.REMOVING:
        action = StartUpdate(cluster.name, cluster.wanted, UpdateReason.ADD)
        return PendingUpdate(cluster, action, BudgetKind.ADDITION)
    if cluster.running != cluster.wanted or cluster.phase is Phase.REMOVE_FAILED:
        reason, kind = UpdateReason.NEWER, BudgetKind.FREE
        if state.is_available(cluster):
            reason, kind = UpdateReason.UPDATE, BudgetKind.UPDATE
        return PendingUpdate(
            cluster, StartUpdate(cluster.name, cluster.wanted, reason), kind
        )
    if cluster.phase is Phase.FAILED:
        retry = StartUpdate(
            cluster.name, cluster.wanted, UpdateReason.RETRY, cluster.attempts + 1
        )
        return PendingUpdate(cluster, retry, BudgetKind.FREE, cluster.retry_at)
    return None


def _next_removal(cluster: ClusterState, state: RolloutState) -> PendingUpdate | None:
    if cluster.phase in EMPTY or cluster.phase is Phase.REMOVING:
        return None
    kind = BudgetKind.REMOVAL if state.is_available(cluster) else BudgetKind.FREE
    if state.deletion:  # nothing becomes unavailable where the resources stay
        kind = BudgetKind.FREE if state.deletion.abandons else BudgetKind.DELETION
    if cluster.phase is Phase.REMOVE_FAILED:
        return PendingUpdate(
            cluster, Remove(cluster.name, cluster.attempts + 1), kind, cluster.retry_at
        )
    return PendingUpdate(cluster, Remove(cluster.name), kind)


def _block_reason(
    cluster: ClusterState, update: PendingUpdate | None, state: RolloutState
) -> BlockReason | None:
    if not cluster.is_reachable:
        if state.is_done(cluster):
            return None
        if cluster.is_in_fleet:
            return (
                BlockReason.UNREACHABLE
                if cluster.has_driver
                else BlockReason.NOT_MONITORED
            )
        return BlockReason.NOT_IN_FLEET if cluster.wanted is not None else None
    if update is None:
        if (
            cluster.unanswered_since
            and cluster.phase in IN_FLIGHT
            and not state.is_done(cluster)
        ):
            return BlockReason.UNREACHABLE
        late_at = state.late_at(cluster)
        return BlockReason.NOT_AVAILABLE if late_at and late_at <= state.at else None
    if state.suspension is Suspension.PAUSED:
        return BlockReason.PAUSED
    if state.suspension is Suspension.STOPPED and not state.deletion:
        return BlockReason.STOPPED
    if cluster.phase is Phase.REMOVING:
        return BlockReason.BEING_REMOVED
    is_later = update.due is not None and update.due > state.at
    return BlockReason.RETRY_LATER if is_later else None


def blocked_cluster(
    reason: BlockReason,
    cluster: ClusterState,
    update: PendingUpdate | None,
    state: RolloutState,
) -> BlockedCluster:
    abandonable_from, since = None, None
    if reason is BlockReason.UNREACHABLE:
        since = cluster.unanswered_since or cluster.unreachable_since
    elif reason is BlockReason.NOT_AVAILABLE:
        since = cluster.phase_changed_at
    if state.deletion is not None and cluster.unreachable_since is not None:
        abandonable_from = (
            max(state.deletion.started_at, cluster.unreachable_since)
            + ABANDONABLE_AFTER
        )
    return BlockedCluster(
        cluster.name,
        reason,
        update.action if update else None,
        cluster.running if cluster.has_resources else None,
        cluster.wanted,
        retry_at=cluster.retry_at if reason is BlockReason.RETRY_LATER else None,
        abandonable_from=abandonable_from,
        since=since,
    )


def queue_by_budget(updates: Iterable[PendingUpdate]) -> Queues:
    """Return the updates by the budget that they use; they keep the order of the names."""
    queues: Queues = {kind: deque() for kind in BudgetKind}
    for update in updates:
        queues[update.budget].append(update)
    return queues


def choose(queues: Queues, budgets: Budgets) -> tuple[list[PendingUpdate], Budgets]:
    """Return the starts of the queues, each within what the starts before it left of the budgets.

    Return the updates in their order and the budgets afterwards; what may not start stays in its queue.
    """
    are_removals_last = budgets.updates.limit == 0
    waiting = {kind: len(queue) for kind, queue in queues.items()}
    counts, budgets = starts_within(waiting, budgets)
    started = [
        queues[kind].popleft() for kind, count in counts.items() for _ in range(count)
    ]

    def rank(
        update: PendingUpdate,
    ) -> tuple[int, str]:  # the order of `rules/lifecycle.md#order`
        if isinstance(update.action, Remove):
            return (3 if are_removals_last else 1), update.cluster.name
        return {BudgetKind.FREE: 0, BudgetKind.UPDATE: 2}.get(
            update.budget, 4
        ), update.cluster.name

    return sorted(started, key=rank), budgets


def starts_within(
    waiting: Mapping[BudgetKind, int], budgets: Budgets
) -> tuple[dict[BudgetKind, int], Budgets]:
    """Return how many of the waiting updates may start, by their budget, and the budgets afterwards."""
    order = [BudgetKind.REMOVAL, BudgetKind.UPDATE]
    if budgets.updates.limit == 0:
        order.reverse()
    counts: dict[BudgetKind, int] = {}
    for kind in (BudgetKind.FREE, *order, BudgetKind.ADDITION, BudgetKind.DELETION):
        room = budgets.room(kind)
        counts[kind] = waiting[kind] if room is None else min(room, waiting[kind])
        budgets = budgets.after(kind, counts[kind])
    return counts, budgets
