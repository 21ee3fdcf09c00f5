"""Rescheduling of a placement: all at once, or with few moves.

All at once, its present clusters no longer count, unless the semantics count them. With few moves, it gets
the best set of clusters that so many moves reach (`rules/foresight.md#few-moves`). Either is one decision,
which is rolled out as any other.
"""

from dataclasses import dataclass, replace
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from clusters.operations.change_log import lock_fleet
from clusters.queries import current_fleet, load_fleet
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.words import counted
from fleetui.audit import (
    AuditEvent,
    actor_name,
    record,
)
from placements.engine.exact.moves import (
    MovePlan,
    NoPlanReason,
    hub_difference,
    plan_moves,
)
from placements.engine.exact.record import REQUEST_OPTIONS
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.explain.moves import NO_PLAN, hub_sentence, repair_sentence
from placements.manifests.policy import PlacementType
from placements.models import Placement, PolicySnapshot
from placements.services.placements import check_decision_keeps_clusters
from placements.services.pruning import prune_policy_snapshots
from placements.services.resources.snapshots import PlacementChanged
from placements.services.results import PLACEMENT, get_placement
from placements.services.rollouts.operations import ActionNotAllowed, check_possible
from placements.services.scheduling import (
    FleetChanged,
    PreviewOutdatedError,
    decide,
    schedule_confirmed,
    write_decision,
)
from placements.services.snapshots import cycles_of, inputs_of, load_cycle_inputs
from placements.services.teams import check_placement_as_is, locked_placement
from placements.services.workqueue import enqueue_scheduling

FEWEST = "fewest"
"""What every entry point accepts in place of a number of moves: the fewest that repair all hard limits."""
MOST_MOVES = 100_000


@dataclass(frozen=True)
class FewMoves:
    """What few moves reach, and the decision that makes the chosen ones.

    `refusal` says why that decision is not possible now. Of a live hub, `followed` is the number of evictions
    after which its own decisions are still those of the plan, and `hub` a sentence about that.
    """

    plan: MovePlan
    decision: Decision
    refusal: str
    hub: str = ""
    followed: int = 0


def moves_from(text: str) -> int | None:
    """Return a number of moves, None for the fewest. Raise InvalidManifest."""
    if text == FEWEST:
        return None
    number = (
        int(text)
        if text.isdecimal() and len(text) <= len(str(MOST_MOVES))
        else MOST_MOVES + 1
    )
    if number > MOST_MOVES:
        raise InvalidManifest.of(
            "moves",
            "out-of-range",
            f"Invalid value: {text[:20]!r}",
            f"0 to {MOST_MOVES}, or {FEWEST}",
        )
    return number


def plan_few_moves(placement: Placement, moves: int | None) -> FewMoves:
    """Plan the best set within so many moves; None: the fewest that repair. Raise ActionNotAllowed."""
    inputs = next(inputs_of([placement], current_fleet()), None)
    if inputs is None:
        raise ActionNotAllowed("Nothing was decided for this placement yet.")
    plan = plan_moves(inputs.cycle, moves=moves, options=REQUEST_OPTIONS)
    if isinstance(plan, NoPlanReason):
        raise ActionNotAllowed(NO_PLAN[plan])
    refusal = reschedule_refusal(placement)
    if not refusal and placement.is_due:
        refusal = "A scheduling cycle is due; compute the moves again after it."
    elif not refusal and not plan.joins and not plan.leaves:
        refusal = repair_sentence(plan)
    decision = schedule(replace(inputs.cycle, batch=plan.batch))
    if not placement.is_mirrored or not plan.leaves:
        return FewMoves(plan, decision, refusal)
    difference = hub_difference(inputs.cycle, plan)
    followed = difference[0] - 1 if difference is not None else len(plan.leaves)
    return FewMoves(plan, decision, refusal, hub_sentence(plan, difference), followed)


def reschedule_with_few_moves(
    name: str,
    *,
    moves: int | None,
    by: User | None,
    now: datetime,
    expected: int | None = None,
    decision_id: str = "",
) -> Placement:
    """Move a placement to the best set within so many moves, as previewed or not at all.

    Raise UnknownPlacementError, RevisionConflict, ActionNotAllowed, and PreviewOutdatedError where the
    decision is another one than `decision_id`, or, without it, than planned at the start of this: the search
    is ahead of the transaction, since it may take seconds.
    """
    placement = get_placement(name)
    check_placement_as_is(by, name, placement.document)
    few = plan_few_moves(placement, moves)
    check_possible(few.refusal)
    with transaction.atomic():
        lock_fleet()
        placement = locked_placement(name, by=by, expected=expected)
        placement.trigger = (
            f"rescheduled with at most {counted(few.plan.chosen.limit, 'move')}"
        )
        placement.triggered_by = actor_name(by)
        inputs = load_cycle_inputs(placement, current_fleet())
        result = decide(
            replace(inputs, cycle=replace(inputs.cycle, batch=few.plan.batch))
        )
        if placement.is_due or result.decision.id != (decision_id or few.decision.id):
            raise PreviewOutdatedError(is_text=False)
        try:
            write_decision(result, now=now)
        except (FleetChanged, PlacementChanged) as error:
            raise PreviewOutdatedError(is_text=False) from error
        event = AuditEvent(
            "rescheduled",
            PLACEMENT,
            name,
            revision=placement.revision,
            after={"moves": few.plan.chosen.limit},
        )
        record(event, by=by, now=now)
    return placement


@transaction.atomic
def reschedule(
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
    confirmed: bool = False,
) -> Placement:
    """Reschedule a placement under the same policy; `disruption/restore.py` previews that.

    It gets a new policy snapshot with the content of the last, so that every binding becomes obsolete, as
    after a change of its policy: that is the one way a hub knows. The rollout moves it within its budgets.
    Raise UnknownPlacementError, RevisionConflict, ActionNotAllowed where there is nothing to reschedule, and
    UnschedulesEverything when no cluster would be picked and that is not confirmed.
    """
    placement = locked_placement(name, by=by, expected=expected)
    check_possible(reschedule_refusal(placement))
    if not confirmed and placement.bindings.exists():
        [(_, cycle)] = cycles_of([placement], load_fleet())
        check_decision_keeps_clusters(name, schedule(cycle.rescheduled()))

    latest = PolicySnapshot.objects.get(placement=placement, is_latest=True)
    PolicySnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
    latest.pk, latest.number = None, latest.number + 1
    latest.created_at, latest.created_by = now, actor_name(by)
    latest.save(force_insert=True)
    prune_policy_snapshots(placement)
    placement.revision += 1
    placement.save(update_fields=["revision"])
    event = AuditEvent("rescheduled", PLACEMENT, name, revision=placement.revision)
    record(event, by=by, now=now)
    enqueue_scheduling([placement.pk], trigger="rescheduled", by=actor_name(by))
    return placement


@transaction.atomic
def confirm_reschedule(
    name: str,
    *,
    decision_id: str,
    by: User | None,
    now: datetime,
    expected: int,
    confirmed: bool = False,
) -> Placement:
    """Reschedule a placement as previewed or not at all. Raise as `reschedule`, and PreviewOutdatedError."""
    placement = reschedule(name, by=by, now=now, expected=expected, confirmed=True)
    schedule_confirmed(
        placement, decision_id, now=now, must_keep_clusters=not confirmed
    )
    return placement


def reschedule_refusal(placement: Placement) -> str:
    if placement.deleting_since is not None:
        return f"{placement.full_name} is being deleted; nothing to reschedule."
    if placement.placement_type == PlacementType.PICK_FIXED:
        return f"{placement.full_name} names its clusters; nothing to reschedule."
    return ""
