"""The decisions of a live hub as it wrote them, recorded with the inputs of their replays, and replayed.

Level-triggered: recording reads the mirror as it is, and a repeated one finds the same. The row of a
DueJudgement is removed after the result is committed, so that a worker that is killed leaves it due.
See `rules/live-hub.md#replays`.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from time import perf_counter
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from clusters.hub_queries import live_hub_keys, live_hubs
from clusters.hub_state import HubState
from clusters.models import Hub
from fleetui.bulk import batched
from fleetui.hub_scope import current_hub_id, in_hub
from placements.engine.scheduling.cycle import DuplicateBindingError
from placements.engine.scheduling.decision import fleet_digest
from placements.engine.scheduling.record import UnreadableRecordError
from placements.engine.scheduling.scheduler import schedule
from placements.explain.hub_status import HubStatus, Plain, hub_status
from placements.hubs.explain.agreements import (
    INPUTS,
    Agreement,
    DifferenceRow,
    ShownAgreement,
    difference_rows,
    shown_agreement,
)
from placements.hubs.projection.rows import FAULTS
from placements.hubs.queries import state_of
from placements.hubs.replay.agreement import (
    compare,
    is_part_of,
    selected_in,
    with_causes,
)
from placements.hubs.replay.replay import (
    Course,
    HubObservation,
    NotReplayable,
    ReplayResult,
    course_of,
    observe,
    one_per_cluster,
    pick_replays,
    steady_replay,
    stored_bindings,
)
from placements.manifests.policy import PlacementType
from placements.models import (
    Binding,
    Decision,
    DueJudgement,
    HubDecision,
    Placement,
    ReplayInputs,
)
from placements.services.decisions.records import decision_of, stored_decisions

log = logging.getLogger(__name__)

BATCH = 20
_LATER = timedelta(minutes=5)
_NAMES_STORED = 5


def hubs_to_observe(*, now: datetime) -> list[int]:
    due = []
    for pk in live_hub_keys.rows():
        with in_hub(pk):
            if _live_hub(now) is not None and _due(now).exists():
                due.append(pk)
    return due


def _live_hub(now: datetime) -> Hub | None:
    """Return the hub in scope; None while its mirror is out of date."""
    hub = live_hubs().filter(pk=current_hub_id()).first()
    return hub if hub and state_of(hub, now=now)[0] == HubState.LIVE else None


def _due(now: datetime) -> QuerySet[DueJudgement]:
    return DueJudgement.objects.filter(due_at__lte=now)


def observe_due(*, now: datetime) -> int:
    """Record what the hub in scope decided for up to 20 placements; return for how many."""
    hub = _live_hub(now)
    if hub is None:
        return 0
    due = list(_due(now).order_by("due_at")[:BATCH])
    for row in due:
        try:
            observe_decision(row.placement_id, hub, now=now)
        except FAULTS as error:
            words = f"{type(error).__name__}: {error}"[:300]
            log.warning(
                "decision not recorded: placement=%s error=%s", row.placement_id, words
            )
            DueJudgement.objects.filter(pk=row.pk).update(due_at=now + _LATER)
        # A change meanwhile has set another time, which keeps the row.
        DueJudgement.objects.filter(pk=row.pk, due_at=row.due_at).delete()
    return len(due)


def observe_decision(placement_id: int, hub: Hub, *, now: datetime) -> None:
    """Record what the hub decided for a placement, if it is not recorded yet.

    Bindings are written afterwards: the projection locks them before their placement.
    """
    decision = _record(placement_id, hub, now=now)
    if decision is None:
        return
    for part in batched(decision_of(decision).picked_names):
        Binding.objects.filter(placement=placement_id, cluster_name__in=part).update(
            decision=decision
        )


@transaction.atomic
def _record(placement_id: int, hub: Hub, *, now: datetime) -> Decision | None:
    placements = Placement.objects.select_for_update(no_key=True)
    placement = placements.filter(pk=placement_id, deleting_since=None).first()
    if placement is None:
        return None
    latest = HubDecision.objects.filter(placement=placement, is_latest=True).first()
    observed = observe(placement, hub, since=latest.binding_change if latest else 0)
    if observed is None or observed.is_pending:
        return None

    words = observed.words
    course = _course(observed, latest)
    bindings = list(course.after.values())
    digest = observed.digest(one_per_cluster(bindings))
    # Of one state the first complete list is kept: the hub drops reasons from it later.
    decisions: Sequence[Any] = words.decisions
    if (
        latest is not None
        and latest.digest == digest
        and is_part_of(decisions, latest.decisions)
    ):
        row = latest
        decisions = latest.decisions
    else:
        HubDecision.objects.filter(placement=placement, is_latest=True).update(
            is_latest=False
        )
        row = HubDecision(
            placement=placement,
            placement_name=placement.full_name,
            digest=digest,
            hub_at=_decided_at(observed, course, latest, now=now),
            seen_at=now,
        )
    row.pack(decisions=decisions, bindings=[binding.to_plain() for binding in bindings])
    row.binding_change = observed.last_change
    row.policy_snapshot = observed.name
    row.observed_generation = observed.observed_generation
    row.condition = words.condition
    is_decided = row.decision_id is None
    if is_decided:
        _set_replay(row, observed, course, latest, hub, now=now)
        # Pages of the placement poll its changes.
        Placement.objects.filter(pk=placement.pk).update(
            hub_changes=F("hub_changes") + 1
        )
    row.save()
    return row.decision if is_decided else None


def _decided_at(
    observed: HubObservation,
    course: Course,
    latest: HubDecision | None,
    *,
    now: datetime,
) -> datetime:
    """Return when the hub decided: a condition that keeps its status has the time of an earlier decision."""
    written_at = observed.written_at
    before = latest.hub_at if latest else None
    if written_at and not (before and written_at <= before):
        return written_at
    return course.first.seen_at if course.first else now


def _course(observed: HubObservation, base: HubDecision | None) -> Course:
    """Return what changed since a decision, or since the hub was connected."""
    if base is not None:
        return course_of(observed, stored_bindings(base))
    changed = {change.uid for change in observed.changes}
    since = observed.steady_since
    start = {
        uid: facts for uid, facts in observed.documents.items() if uid not in changed
    }
    there = tuple(
        change
        for change in observed.changes
        if since is None or change.seen_at <= since
    )
    start = course_of(replace(observed, changes=there), start).after
    return course_of(replace(observed, changes=observed.changes[len(there) :]), start)


def _set_replay(
    row: HubDecision,
    observed: HubObservation,
    course: Course,
    before: HubDecision | None,
    hub: Hub,
    *,
    now: datetime,
) -> None:
    """Set the inputs of the replay, as a decision of the placement, or why there are none."""
    started = perf_counter()
    try:
        result = _replay(observed, course, before, hub)
    except (NotReplayable, DuplicateBindingError) as reason:
        row.note = str(reason)[:300]
        return
    milliseconds = (perf_counter() - started) * 1000
    row.note = ""
    row.inputs = result.inputs
    row.fleet_version = result.version
    row.decision = _written_decision(
        observed, result, milliseconds, decided_at=row.hub_at or now, now=now
    )


def _replay(
    observed: HubObservation,
    course: Course,
    before: HubDecision | None,
    hub: Hub,
) -> ReplayResult:
    """Replay the selections since a decision; where there were none, a cycle on everything as it is.

    Of several that the order of events leaves open, it is the one that decides as the hub did.
    """
    policy = observed.policy()
    since = observed.steady_since
    if course.first is None:
        is_observed = observed.is_new
        if before is not None:
            is_observed = since is not None and since <= before.seen_at
        return steady_replay(observed, policy, course.after, is_observed=is_observed)
    results = pick_replays(observed, policy, course, course.first, hub)
    for result in results:
        status = hub_status(result.decision)
        if status is None:
            continue
        found = compare(observed.words, status, lists=[status.decisions])
        if not found.differences:
            return result
    return results[0]


def _written_decision(
    observed: HubObservation,
    result: ReplayResult,
    milliseconds: float,
    *,
    decided_at: datetime,
    now: datetime,
) -> Decision:
    value = result.decision
    version = result.version
    placement = observed.placement
    policy = value.cycle.policy
    before = {
        binding.cluster for binding in value.cycle.live_bindings if binding.is_active
    }
    joins = [name for name in value.picked_names if name not in before]
    placement.decisions_made += 1
    Placement.objects.filter(pk=placement.pk).update(
        decisions_made=placement.decisions_made
    )
    columns: dict[str, Any] = {
        "number": placement.decisions_made,
        "created_at": decided_at,
        "trigger": "Observed",
        "triggered_by": "hub",
        "record": stored_decisions([value], version.fleet, now=now)[value.id],
        "policy_number": (observed.snapshot.row.number if observed.snapshot else None)
        or 0,
        "fleet_digest": fleet_digest(value.cycle),
        "wanted": policy.number_of_clusters
        if policy.placement_type is PlacementType.PICK_N
        else None,
        "kind": value.kind,
        "is_fulfilled": value.is_fulfilled,
        "picked_count": len(value.picked_names),
        "kept_count": len(value.kept),
        "unscheduled_count": len(value.unscheduled),
        "joins_count": len(joins),
        "joins": joins[:_NAMES_STORED],
        "leaves_count": len(value.unscheduled),
        "leaves": list(value.unscheduled[:_NAMES_STORED]),
        "milliseconds": milliseconds,
    }
    return Decision.objects.create(
        placement=placement, placement_name=placement.full_name, **columns
    )


@dataclass(frozen=True)
class HubSide:
    """What a live hub decided, beside the replay of it; `differences` are the first of them."""

    row: HubDecision
    agreement: ShownAgreement
    clusters_count: int = 0
    replay_condition: Plain | None = None
    differences: tuple[Plain, ...] = ()
    differences_count: int = 0

    @property
    def inputs(self) -> str:
        return INPUTS[self.row.inputs]

    @property
    def is_different(self) -> bool:
        return self.agreement.value == Agreement.DIFFERS

    @cached_property
    def rows(self) -> list[DifferenceRow]:
        return difference_rows(self.differences)

    @property
    def more(self) -> int:
        return self.differences_count - len(self.differences)


def hub_side_of(decision: Decision) -> HubSide | None:
    """Replay a decision that a live hub made; return None for others."""
    row = getattr(decision, "hub_decision", None)
    return replayed(row) if row else None


def replayed(row: HubDecision) -> HubSide:
    """Run the engine on the recorded inputs of a hub's decision, and compare what both decide."""
    if row.decision is None:
        return _not_replayable(row, row.note)
    try:
        cycle = decision_of(row.decision).cycle
    except UnreadableRecordError as error:
        return _not_replayable(row, str(error))
    decision = schedule(cycle)
    status = hub_status(decision)
    if status is None:
        return _not_replayable(row, "the replay failed as a whole")

    words = HubStatus(row.condition or {}, tuple(row.decisions))
    lists = [status.decisions]
    placed = {binding.cluster for binding in cycle.live_bindings if binding.is_active}
    if placed.issuperset(decision.picked_names):
        # It selects nothing new: the hub may list what an earlier cycle did not select.
        before = HubDecision.objects.filter(placement=row.placement_id, pk__lt=row.pk)
        earlier = before.exclude(placement=None).order_by("-pk").first()
        if earlier is not None:
            lists.append(tuple(earlier.decisions))
        elif row.inputs != ReplayInputs.OBSERVED:
            lists = []
    comparison = compare(
        words,
        status,
        lists=lists,
        is_any_unselected=len(selected_in(words)) < len(cycle.fleet),
    )
    return HubSide(
        row,
        shown_agreement(comparison.agreement(row.inputs)),
        len(cycle.fleet),
        status.condition,
        tuple(with_causes(comparison.differences, decision, words)),
        len(comparison.differences),
    )


def _not_replayable(row: HubDecision, note: str) -> HubSide:
    return HubSide(row, shown_agreement(Agreement.NOT_REPLAYABLE, note=note))


def agreement_of_placement(placement: Placement) -> ShownAgreement | None:
    """Replay the latest decision of a live hub about a placement; None where nothing is recorded yet."""
    # Not the content of the record, which the replay reads itself.
    row = (
        HubDecision.objects.filter(placement=placement, is_latest=True)
        .select_related("decision__record", "fleet_version")
        .defer("decision__record__content")
        .first()
    )
    hub = live_hubs().filter(pk=current_hub_id()).first()
    observed = observe(placement, hub) if hub else None
    if observed is not None and observed.is_pending:
        return shown_agreement(Agreement.PENDING)
    return replayed(row).agreement if row else None
