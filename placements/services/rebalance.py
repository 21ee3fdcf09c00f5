"""Rebalance plans of placements: computed, started, and applied batch by batch.

A plan moves a placement to the best set of clusters that few moves reach
(`rules/foresight.md#rebalance-plans`). Its state is in the database, so any worker can continue it, also
after a crash: the bindings of a batch and the progress of the plan are written in one transaction.
"""

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from clusters.operations.change_log import lock_fleet
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.words import first_names
from fleetui.audit import AuditEvent, actor_name, record
from fleetui.errors import UnknownObject
from fleetui.permissions import check_change
from placements.engine.disruption import EvictionReason, Executed, judge_eviction
from placements.engine.exact.rebalance import (
    MovePlan,
    NoPlanReason,
    RebalanceStep,
    batches_of,
    hard_excess,
    hub_difference,
    plan_rebalance,
)
from placements.engine.exact.record import REQUEST_OPTIONS
from placements.engine.rollout.state import Phase
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import Batch
from placements.explain.rebalance import NO_PLAN, hub_sentence, repair_sentence
from placements.explain.staged_updates import eviction_sentence
from placements.manifests.placement import parse_placement
from placements.manifests.strategy import RollingUpdate
from placements.models import Binding, Placement, PolicySnapshot, RebalancePlan
from placements.services.disruption.impact import is_held
from placements.services.disruption.queries import budget_for
from placements.services.resources.snapshots import PlacementChanged
from placements.services.results import PLACEMENT, UnknownPlacementError, get_placement
from placements.services.rollout_state import eviction_context, load_rollout_context
from placements.services.rollouts.operations import ActionNotAllowed
from placements.services.scheduling import FleetChanged, decide, write_decision
from placements.services.snapshots import CycleInputs, load_cycle_inputs
from placements.services.teams import check_placement_as_is, labels_in

MOST_MOVES = 100_000
RESYNC = timedelta(seconds=2)
"""How often a plan is continued, also after its worker was killed."""
BATCH = 20
ACTIVE = (RebalancePlan.State.RUNNING, RebalancePlan.State.PAUSED)


class UnknownPlanError(UnknownObject):
    problem_type = "unknown-rebalance-plan"

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name} has no rebalance plan {number}")


@dataclass(frozen=True)
class RebalancePreview:
    """The plan of a placement as of now, or why there is none, and why it cannot be started."""

    plan: MovePlan | None
    refusal: str
    batches: tuple[tuple[RebalanceStep, ...], ...] = ()
    hub: str = ""
    """Of a live hub, whether its own decisions would follow the plan, as they do the `batches`."""
    basis: tuple[int, int | None, str] | None = None
    """What the plan holds for: the policy, the number of clusters, and a digest of the selected ones."""

    @property
    def can_start(self) -> bool:
        return self.plan is not None and bool(self.plan.steps) and not self.refusal


def preview_rebalance(placement: Placement, *, moves: int | None = None) -> RebalancePreview:
    """Compute the curve and steps for `moves` moves; None: the fewest that repair. Raise InvalidManifest."""
    if moves is not None and not 0 <= moves <= MOST_MOVES:
        raise InvalidManifest.of("moves", "out-of-range", "is out of range", f"0 to {MOST_MOVES}")
    if not PolicySnapshot.objects.filter(placement=placement, is_latest=True).exists():
        return RebalancePreview(None, "Nothing was decided for this placement yet.")
    inputs = load_cycle_inputs(placement, current_fleet())
    manifest, wanted = parse_placement(placement.document), placement.number_of_clusters or 0
    rolling = manifest.spec.strategy.rolling_update or RollingUpdate()
    unavailable, surge = rolling.max_unavailable.of(wanted), rolling.max_surge.of(wanted)
    plan = plan_rebalance(
        inputs.cycle, moves=moves, max_unavailable=unavailable, max_surge=surge, options=REQUEST_OPTIONS
    )
    if isinstance(plan, NoPlanReason):
        return RebalancePreview(None, NO_PLAN[plan])
    refusal = ""
    if placement.deleting_since is not None:
        refusal = "The placement is being deleted."
    elif placement.is_due:
        refusal = "A scheduling cycle is due; compute the plan again after it."
    elif placement.is_staged:
        refusal = "Changes of this placement wait for staged update runs, so a plan cannot be started."
    elif not plan.is_safe:
        refusal = "A step would break a limit on the way. Choose another number of moves."
    elif not plan.steps:
        refusal = repair_sentence(plan)
    batches = tuple(batches_of(plan.steps, max(1, unavailable or surge)))
    is_hub = placement.is_mirrored and bool(batches)
    difference = hub_difference(inputs.cycle, batches) if is_hub else None
    hub = hub_sentence(difference) if is_hub else ""
    batches = batches[: difference[0] - 1] if difference else batches
    return RebalancePreview(plan, refusal, batches, hub, _basis(inputs))


def _basis(inputs: CycleInputs) -> tuple[int, int | None, str]:
    placed = _digest(one.cluster for one in inputs.cycle.binding_classes.current)
    return inputs.snapshot.number, inputs.placement.number_of_clusters, placed


def start_plan(name: str, *, moves: int | None, by: User | None, now: datetime) -> RebalancePlan:
    """Start the plan of a placement as it is now.

    Raise UnknownPlacementError, InvalidManifest, and ActionNotAllowed where no plan can be started or
    another one is in progress. The search is ahead of the transaction, since it may take seconds.
    """
    placement = get_placement(name)
    check_placement_as_is(by, name, placement.document)
    if placement.rebalance_plans.filter(state__in=ACTIVE).exists():
        raise ActionNotAllowed(f"Another rebalance plan of {name} is in progress.")
    preview = preview_rebalance(placement, moves=moves)
    if preview.plan is None or preview.refusal:
        raise ActionNotAllowed(preview.refusal)
    with transaction.atomic():
        return _started(name, preview, preview.plan, by=by, now=now)


def _started(
    name: str, preview: RebalancePreview, plan: MovePlan, *, by: User | None, now: datetime
) -> RebalancePlan:
    """Store a plan, unless what it was computed for was changed meanwhile."""
    lock_fleet()
    placement = Placement.objects.select_for_update().filter(full_name=name).first()
    if placement is None:
        raise UnknownPlacementError(name)
    basis = _basis(load_cycle_inputs(placement, current_fleet()))
    if basis != preview.basis or placement.is_due or placement.deleting_since is not None:
        raise ActionNotAllowed(f"{name} was changed meanwhile. Compute the plan again.")
    if placement.rebalance_plans.filter(state__in=ACTIVE).exists():
        raise ActionNotAllowed(f"Another rebalance plan of {name} is in progress.")
    last = placement.rebalance_plans.aggregate(last=Max("number"))["last"] or 0
    row = RebalancePlan.objects.create(
        placement=placement,
        number=last + 1,
        moves=plan.chosen.limit,
        policy_number=basis[0],
        wanted=basis[1] or 0,
        batches=[[step.to_plain() for step in batch] for batch in preview.batches],
        placed_digest=basis[2],
        requeue_at=now,
        created_at=now,
        created_by=actor_name(by),
    )
    facts = {"plan": row.number, "moves": row.moves, "batches": len(row.batches)}
    record(AuditEvent("rebalance started", PLACEMENT, name, after=facts), by=by, now=now)
    return row


@transaction.atomic
def change_plan(name: str, number: int, action: str, *, by: User | None, now: datetime) -> RebalancePlan:
    """Pause, resume or stop a plan; `action` is one of `PLAN_ACTIONS`. Again it does nothing.

    A batch that was started is finished by the rollout in any case. Raise UnknownPlanError, ActionNotAllowed.
    """
    row = RebalancePlan.objects.select_for_update().filter(placement__full_name=name, number=number).first()
    if row is None:
        raise UnknownPlanError(name, number)
    before, after = PLAN_ACTIONS[action]
    if after == RebalancePlan.State.RUNNING:
        check_placement_as_is(by, name, row.placement.document)
    else:
        check_change(by, labels_in(row.placement.document), what=f"placement {name}")
    if row.state == after:
        return row
    if row.state not in before:
        raise ActionNotAllowed(f"Rebalance plan {number} of {name} is {row.state}; {action} is not possible.")
    if after == RebalancePlan.State.STOPPED:
        _end(row, after, f"Stopped by {actor_name(by)}.", by=by, now=now)
        return row
    row.state, row.requeue_at, row.waits_for = after, now, ""
    row.save(update_fields=["state", "requeue_at", "waits_for"])
    verb = "rebalance paused" if after == RebalancePlan.State.PAUSED else "rebalance resumed"
    record(AuditEvent(verb, PLACEMENT, name, after={"plan": number}), by=by, now=now)
    return row


PLAN_ACTIONS: dict[str, tuple[Sequence[str], str]] = {
    "pause": ((RebalancePlan.State.RUNNING,), RebalancePlan.State.PAUSED),
    "resume": ((RebalancePlan.State.PAUSED,), RebalancePlan.State.RUNNING),
    "stop": (ACTIVE, RebalancePlan.State.STOPPED),
}
"""The actions on a plan: the states in which each is possible, and the one that follows."""


def advance_plans(*, now: datetime) -> int:
    """Continue the due plans; return how many. Each is claimed by a conditional update."""
    due = RebalancePlan.objects.filter(state=RebalancePlan.State.RUNNING, requeue_at__lte=now)
    keys = list(due.order_by("requeue_at", "pk").values_list("pk", flat=True)[:BATCH])
    claimed = [key for key in keys if due.filter(pk=key).update(requeue_at=now + RESYNC)]
    with ExitStack() as stack:  # each is continued even if another one raises
        for key in reversed(claimed):
            stack.callback(_advance, key, now=now)
    return len(claimed)


@transaction.atomic
def _advance(key: int, *, now: datetime) -> None:
    """Advance one plan: compare it with the present state, finish a batch, and write the next one."""
    lock_fleet()
    row = RebalancePlan.objects.select_for_update().filter(pk=key, state=RebalancePlan.State.RUNNING).first()
    if row is None:
        return
    placement = Placement.objects.select_for_update().get(pk=row.placement_id)
    inputs = load_cycle_inputs(placement, current_fleet())
    if placement.deleting_since is not None:
        _end(row, RebalancePlan.State.ABANDONED, "The placement is being deleted.", now=now)
        return
    if (inputs.snapshot.number, placement.number_of_clusters) != (row.policy_number, row.wanted):
        _end(row, RebalancePlan.State.ABANDONED, "The policy of the placement was changed.", now=now)
        return
    if placement.is_due:
        _wait(row, "A scheduling cycle is due.")
        return
    placed = {one.cluster for one in inputs.cycle.binding_classes.current}
    if _digest(placed) != row.placed_digest and not _is_ahead(row, placed):
        reason = "A decision or an eviction changed the selected clusters."
        _end(row, RebalancePlan.State.STALE, reason, now=now)
        return
    if is_held(placement):
        _wait(row, "The rollout of the placement is paused or stopped.")
        return
    if row.is_moving and not _is_finished(row, now=now):
        return
    if row.done == len(row.batches):
        _end(row, RebalancePlan.State.COMPLETED, "All steps are completed.", now=now)
    elif _may_move(row, inputs, placed, now=now):
        _move(row, inputs, placed, now=now)


def _is_ahead(row: RebalancePlan, placed: set[str]) -> bool:
    """Return whether a cycle only selected clusters that the plan would add; they leave the plan.

    A placement with too few clusters gets cycles while its plan is in progress.
    """
    first_open = row.done + int(row.is_moving)
    rest = row.batches[first_open:]
    added = {
        step["join"] for batch in rest if not any(step["leave"] for step in batch) for step in batch
    } & placed
    if not added or _digest(placed - added) != row.placed_digest:
        return False
    left = [[step for step in batch if step["join"] not in added] for batch in rest]
    row.batches = row.batches[:first_open] + [batch for batch in left if batch]
    row.placed_digest = _digest(placed)
    row.save(update_fields=["batches", "placed_digest"])
    return True


def _is_finished(row: RebalancePlan, *, now: datetime) -> bool:
    """Return whether the rollout has finished the batch; end the plan where it failed."""
    batch = _batch(row)
    names = [*batch.leaves, *batch.joins]
    rows = Binding.objects.filter(placement_id=row.placement_id, cluster_name__in=names)
    phases = dict(rows.values_list("cluster_name", "phase"))
    failed = [name for name in names if phases.get(name) in (Phase.FAILED, Phase.REMOVE_FAILED)]
    if failed:
        _end(row, RebalancePlan.State.STOPPED, f"The rollout failed on {first_names(failed)}.", now=now)
        return False
    left = [name for name in batch.leaves if name in phases]
    left += [name for name in batch.joins if phases.get(name) != Phase.AVAILABLE]
    if left:
        _wait(row, f"Waiting for the rollout on {first_names(left)}.")
        return False
    row.done, row.is_moving, row.waits_for = row.done + 1, False, ""
    row.save(update_fields=["done", "is_moving", "waits_for"])
    return True


def _may_move(row: RebalancePlan, inputs: CycleInputs, placed: set[str], *, now: datetime) -> bool:
    """Return whether the next batch still does what was planned, and whether the budget allows it."""
    batch, cycle = _batch(row), inputs.cycle
    stays = replace(cycle, bindings=tuple(one for one in cycle.bindings if one.cluster not in batch.leaves))
    names = np.array(cycle.fleet.names)[candidates_of(stays).passes]
    lost = sorted({*batch.joins} - {*names.tolist()})
    if lost:
        _end(row, RebalancePlan.State.STALE, f"No longer selectable: {first_names(lost)}.", now=now)
        return False
    after = hard_excess(cycle, (placed - {*batch.leaves}) | {*batch.joins})
    is_worse = any(then > today for today, then in zip(hard_excess(cycle, placed), after, strict=True))
    if is_worse or sum(after) > row.batches[row.done][-1]["hardExcess"]:
        _end(row, RebalancePlan.State.STALE, "The fleet changed: the next step has another effect.", now=now)
        return False
    budget = budget_for(inputs.placement.full_name)
    context = eviction_context(load_rollout_context(inputs.placement, now=now))
    counted = 0
    for name in batch.leaves:
        verdict = judge_eviction(context, name, budget)
        counted += verdict.numbers is not None
        is_over = verdict.numbers is not None and verdict.numbers.allowed < counted
        if is_over or not (isinstance(verdict, Executed) or verdict.why is EvictionReason.PLANNED):
            _wait(row, eviction_sentence(verdict) if not is_over else "The disruption budget allows fewer.")
            return False
    return True


def _move(row: RebalancePlan, inputs: CycleInputs, placed: set[str], *, now: datetime) -> None:
    """Write the bindings of the next batch, all at once, and that the plan waits for its rollout."""
    batch, placement = _batch(row), inputs.placement
    placement.trigger = f"rebalance plan {row.number}, batch {row.done + 1} of {len(row.batches)}"
    placement.triggered_by = row.created_by
    try:
        write_decision(decide(replace(inputs, cycle=replace(inputs.cycle, batch=batch))), now=now)
    except (FleetChanged, PlacementChanged):
        return  # another worker was quicker: the plan is compared with the result at the next time
    row.placed_digest = _digest((placed - {*batch.leaves}) | {*batch.joins})
    row.is_moving, row.waits_for = True, f"Waiting for the rollout on {first_names(batch.joins)}."
    row.save(update_fields=["placed_digest", "is_moving", "waits_for"])


def _batch(row: RebalancePlan) -> Batch:
    steps = row.batches[row.done]
    leaves = tuple(step["leave"] for step in steps if step["leave"])
    return Batch(leaves, tuple(step["join"] for step in steps if step["join"]))


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def _wait(row: RebalancePlan, reason: str) -> None:
    if row.waits_for != reason:
        row.waits_for = reason
        row.save(update_fields=["waits_for"])


def _end(row: RebalancePlan, state: str, reason: str, *, now: datetime, by: User | None = None) -> None:
    row.state, row.ended_at, row.ended_reason, row.waits_for = state, now, reason, ""
    row.save(update_fields=["state", "ended_at", "ended_reason", "waits_for"])
    facts = {"plan": row.number, "state": str(state), "reason": reason, "batches": row.done}
    record(AuditEvent("rebalance ended", PLACEMENT, row.placement.full_name, after=facts), by=by, now=now)
