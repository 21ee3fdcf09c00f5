"""Judging what a live hub decided: claims of what is due, the replay, and its result as rows (12.1, 12.3).

Level-triggered: a judgement reads the mirror as it is, and a repeated one finds the same. The row of a
DueJudgement is removed after the result is committed, so that a worker that is killed leaves it due.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any
from uuid import uuid4

from django.db import DataError, IntegrityError, transaction
from django.db.models import F, Q, QuerySet

from clusters.hub_queries import live_hubs
from clusters.hub_state import HubState
from clusters.models import BindingChange, Hub
from fleetui.audit import AuditEvent, record
from fleetui.bulk import batched, claim_batch
from fleetui.hub_scope import current_hub_id, in_hub
from placements.engine.scheduling.cycle import DuplicateBindingError
from placements.engine.scheduling.decision import (
    ENGINE_VERSION,
    CycleKind,
    fleet_digest,
)
from placements.explain.hub_status import HubStatus, Plain, hub_status
from placements.hubs.queries import state_of
from placements.hubs.replay.agreement import (
    StatusComparison,
    agreement_of,
    compare,
    is_part_of,
    with_causes,
)
from placements.hubs.replay.pick_replays import pick_replays
from placements.hubs.replay.queries import verdicts
from placements.hubs.replay.replay import (
    Bindings,
    Course,
    HubObservation,
    NotReplayable,
    ReplayResult,
    course_of,
    observe,
    one_per_cluster,
    steady_replay,
    stored_bindings,
)
from placements.hubs.watching.mirror import moment_of
from placements.manifests.policy import PlacementType
from placements.models import (
    Agreement,
    Binding,
    Decision,
    DueJudgement,
    HubDecision,
    Placement,
    ReplayInputs,
    ReplayKind,
)
from placements.services.decisions.records import decision_of, stored_decision
from placements.services.results import PLACEMENT, kept

log = logging.getLogger(__name__)

BATCH = 20
LEASE = timedelta(seconds=60)
FIRST_RECHECK, LAST_RECHECK = timedelta(seconds=30), timedelta(minutes=5)
BEHIND = timedelta(minutes=5)
"""How long a hub may take to decide."""
CONFIRMING = 3
"""Judgements with the same difference after which it counts."""
FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    DataError,
    IntegrityError,
)
"""What an unexpected object makes a judgement raise; the placement is tried again later."""
_LATER = timedelta(minutes=5)
_AGREEING = (Agreement.AGREES, Agreement.FORGOTTEN, Agreement.AGREES_ON_PICKS)
_NAMES_STORED = 5
_MOST_BASES = 10


def is_due(*, now: datetime) -> bool:
    """Return whether a judgement of the hub in scope is due; none while its mirror is out of date."""
    hub = _live_hub(now)
    return hub is not None and (_due(now).exists() or _to_recheck(now).exists())


def hubs_to_judge(*, now: datetime) -> list[int]:
    due = []
    for pk in live_hubs().values_list("pk", flat=True):
        with in_hub(pk):
            if is_due(now=now):
                due.append(pk)
    return due


def _live_hub(now: datetime) -> Hub | None:
    hub = live_hubs().filter(pk=current_hub_id()).first()
    return hub if hub and state_of(hub, now=now)[0] == HubState.LIVE else None


def _due(now: datetime) -> QuerySet[DueJudgement]:
    free = Q(lease_expires_at=None) | Q(lease_expires_at__lt=now)
    return DueJudgement.objects.filter(free, due_at__lte=now)


def _to_recheck(now: datetime) -> QuerySet[HubDecision]:
    return verdicts().filter(recheck_at__lte=now)


def judge_due(*, now: datetime) -> int:
    """Judge up to 20 placements of the hub in scope that are due; return how many."""
    hub = _live_hub(now)
    if hub is None:
        return 0
    again = list(
        _to_recheck(now)
        .order_by("recheck_at")
        .values_list("placement", flat=True)[:BATCH]
    )
    with kept(again) as there:
        rows = [
            DueJudgement(placement_id=pk, changed_at=now, due_at=now)
            for pk in again
            if pk in there
        ]
        DueJudgement.objects.bulk_create(rows, ignore_conflicts=True)
    lease = {"lease_expires_at": now + LEASE, "lease_token": uuid4().hex}
    claimed = claim_batch(_due(now), "due_at", size=BATCH, **lease)
    columns = ("pk", "placement", "due_at")
    for pk, placement, due_at in DueJudgement.objects.filter(
        pk__in=claimed
    ).values_list(*columns):
        mine = DueJudgement.objects.filter(pk=pk, lease_token=lease["lease_token"])
        try:
            judge_placement(placement, hub, now=now)
        except FAULTS as error:
            words = f"{type(error).__name__}: {error}"[:300]
            log.warning("decision not judged: placement=%s error=%s", placement, words)
            mine.update(due_at=now + _LATER)
        if not mine.filter(due_at=due_at).delete()[0]:  # something changed meanwhile
            mine.update(lease_expires_at=None, lease_token="", changed_at=now)
    return len(claimed)


@dataclass(frozen=True)
class Judgement:
    """The result of judging one observation, not written yet."""

    agreement: str
    replay: str = ""
    result: ReplayResult | None = None
    differences: Sequence[Plain] = ()
    count: int = 0
    note: str = ""
    milliseconds: float = 0.0


def judge_placement(
    placement_id: int, hub: Hub, *, now: datetime
) -> HubDecision | None:
    """Judge what the hub decided for a placement; return the row, or None where there is nothing to judge.

    Bindings are written afterwards: the projection locks them before their placement.
    """
    row = _judge(placement_id, hub, now=now)
    if row is not None and row.decision is not None and row.seen_at == row.judged_at:
        for part in batched(decision_of(row.decision).picked_names):
            bindings = Binding.objects.filter(
                placement=placement_id, cluster_name__in=part
            )
            bindings.update(decision=row.decision)
    return row


@transaction.atomic
def _judge(placement_id: int, hub: Hub, *, now: datetime) -> HubDecision | None:
    placement = (
        Placement.objects.select_for_update(no_key=True).filter(pk=placement_id).first()
    )
    if placement is None or placement.deleting_since:
        return None
    rows = (
        HubDecision.objects.filter(placement=placement)
        .order_by("-pk")
        .select_related("decision")
    )
    rows = rows.defer(
        "content", "differences"
    )  # read where they are needed, of one or two
    decided = list(rows.exclude(agreement=Agreement.PENDING)[:_MOST_BASES])
    pending = rows.filter(agreement=Agreement.PENDING).first()
    observed = observe(
        placement, hub, since=decided[0].binding_change if decided else 0
    )
    if observed is None:
        return None
    if observed.is_pending:
        row = _write_pending(pending, observed, now=now)
    else:
        row = _judge_decided(observed, decided, pending, hub, now=now)
    # Pages of the placement poll its changes.
    Placement.objects.filter(pk=placement.pk).update(hub_changes=F("hub_changes") + 1)
    return row


def _judge_decided(
    observed: HubObservation,
    decided: Sequence[HubDecision],
    pending: HubDecision | None,
    hub: Hub,
    *,
    now: datetime,
) -> HubDecision:
    """Judge what the hub wrote: the newest of what was judged before again, or a decision after it."""
    latest, placement = decided[0] if decided else None, observed.placement
    course = _course(observed, latest)
    digest = observed.digest(one_per_cluster(course.after.values()))
    is_known = latest is not None and latest.digest == digest
    if (
        latest is None
        or not is_known
        or not is_part_of(observed.words.decisions, latest.decisions)
    ):
        row = pending or HubDecision(
            placement=placement, placement_name=placement.full_name
        )
        row.digest, row.seen_at = digest, now
        judgement = _judgement(observed, settled(decided), latest, course, hub)
        return _save_judgement(
            row, observed, course.after, judgement, is_same=False, now=now
        )
    if pending:
        pending.delete()
    if latest.agreement in _AGREEING or latest.replay == ReplayKind.STEADY:
        judgement = _steady(observed, course.after, before=latest)
    else:
        if latest.inputs == ReplayInputs.OBSERVED:
            # They are still what was observed, even if the mirror was out of date later.
            observed = replace(
                observed, steady_since=moment_of(latest.unpacked["steady_since"])
            )
        judgement = _judgement(observed, settled(decided[1:]), latest, course, hub)
    return _save_judgement(
        latest, observed, course.after, judgement, is_same=True, now=now
    )


def _save_judgement(
    row: HubDecision,
    observed: HubObservation,
    after: Bindings,
    judgement: Judgement,
    *,
    is_same: bool,
    now: datetime,
) -> HubDecision:
    """Write a judgement; what was selected explains more than that nothing would change now."""
    if not row.pk or not row.is_latest:
        HubDecision.objects.filter(placement=observed.placement, is_latest=True).update(
            is_latest=False
        )
    _set_observed(row, observed, after, is_same=is_same)
    keeps = (
        is_same and judgement.replay == ReplayKind.STEADY and row.decision is not None
    )
    if keeps and row.agreement in _AGREEING and judgement.agreement in _AGREEING:
        row.agreement, row.judged_at = judgement.agreement, now
    else:
        _set_judgement(row, judgement, now=now)
    if judgement.result is not None and not keeps:
        row.decision = _written_decision(
            row, observed, judgement.result, judgement.milliseconds, now=now
        )
    row.save()
    return row


def settled(rows: Sequence[HubDecision]) -> HubDecision | None:
    """Return the newest of some decisions after which the hub had nothing more to select."""
    for row in rows:
        is_fulfilled = (row.condition or {}).get("status") == "True"
        if is_fulfilled or row.agreement in _AGREEING or row.judged_count > 1:
            return row
    return None


def _course(observed: HubObservation, base: HubDecision | None) -> Course:
    """Return what changed since a decision, or since the hub was connected."""
    if base is not None:
        return course_of(observed, stored_bindings(base))
    changed, since = {one.uid for one in observed.changes}, observed.steady_since
    start = {uid: one for uid, one in observed.documents.items() if uid not in changed}
    there = tuple(
        one for one in observed.changes if since is None or one.seen_at <= since
    )
    start = course_of(replace(observed, changes=there), start).after
    return course_of(replace(observed, changes=observed.changes[len(there) :]), start)


def _judgement(
    observed: HubObservation,
    base: HubDecision | None,
    latest: HubDecision | None,
    course: Course,
    hub: Hub,
) -> Judgement:
    """Replay the selections since a decision; where there were none, whether a cycle would select now."""
    if base is not latest:
        since = base.binding_change if base else 0
        changes = BindingChange.objects.filter(
            owner=observed.key, pk__gt=since
        ).order_by("pk")
        observed = replace(observed, changes=tuple(changes))
        course = _course(observed, base)
    first, started = course.first, perf_counter()
    if first is None:
        return _steady(observed, course.after, before=base)
    try:
        results = pick_replays(observed, observed.policy(), course, first, hub)
        statuses = map(_status_of, results)
        compared = [
            compare(observed.words, one, lists=[one.decisions]) for one in statuses
        ]
    except (NotReplayable, DuplicateBindingError) as reason:
        return Judgement(str(Agreement.NOT_REPLAYABLE), note=str(reason)[:300])
    chosen = next((number for number, one in enumerate(compared) if one.is_equal), 0)
    return _judgement_of(
        observed, ReplayKind.PICK, compared[chosen], results[chosen], started
    )


def _steady(
    observed: HubObservation, bindings: Bindings, *, before: HubDecision | None
) -> Judgement:
    """Judge whether a cycle would change anything now; what it lists may be from an earlier cycle."""
    started, since = perf_counter(), observed.steady_since
    is_observed = observed.is_new
    if before is not None:
        is_observed = since is not None and since <= before.seen_at
    try:
        policy = observed.policy()
        result = steady_replay(observed, policy, bindings, is_observed=is_observed)
        status = _status_of(result)
    except (NotReplayable, DuplicateBindingError) as reason:
        return Judgement(str(Agreement.NOT_REPLAYABLE), note=str(reason)[:300])
    is_idle = result.decision.kind in (CycleKind.NOTHING_TO_DO, CycleKind.SCALE_DOWN)
    lists = (
        [status.decisions]
        if (observed.is_new if before is None else not is_idle)
        else []
    )
    if before is not None:
        lists.append(tuple(before.decisions))
    is_any_unselected = (
        not result.decision.is_fulfilled
        if policy.placement_type is PlacementType.PICK_FIXED
        else len(observed.words.selected) < len(result.decision.cycle.fleet)
    )
    comparison = compare(
        observed.words, status, lists=lists, is_any_unselected=is_any_unselected
    )
    steady = _judgement_of(observed, ReplayKind.STEADY, comparison, result, started)
    if (
        before is not None
        and before.agreement == Agreement.AGREES_ON_PICKS
        and steady.agreement in _AGREEING
    ):
        return replace(
            steady, agreement=before.agreement
        )  # the scores of then are what differs
    return steady


def _status_of(result: ReplayResult) -> HubStatus:
    status = hub_status(result.decision)
    if status is None:
        raise NotReplayable("the policy names no cluster")
    return status


def _judgement_of(
    observed: HubObservation,
    replay: str,
    comparison: StatusComparison,
    result: ReplayResult,
    started: float,
) -> Judgement:
    differences = with_causes(comparison.differences, result.decision, observed.words)
    return Judgement(
        agreement_of(comparison, result.inputs),
        replay,
        result,
        differences,
        count=len(comparison.differences),
        milliseconds=(perf_counter() - started) * 1000,
    )


def _write_pending(
    pending: HubDecision | None, observed: HubObservation, *, now: datetime
) -> HubDecision:
    """Write that the hub has not decided yet; after five minutes it is behind."""
    placement = observed.placement
    row = pending
    if row is None:
        HubDecision.objects.filter(placement=placement, is_latest=True).update(
            is_latest=False
        )
        row = HubDecision(
            placement=placement, placement_name=placement.full_name, seen_at=now
        )
        row.agreement, row.recheck_at = Agreement.PENDING, now + BEHIND
        row.pack(decisions=[], bindings=[])
    row.judged_at = now
    row.policy_snapshot, row.observed_generation = (
        observed.name,
        observed.observed_generation,
    )
    if now >= row.seen_at + BEHIND:
        row.recheck_at = None
        if not row.hub_behind:
            row.hub_behind = True
            facts = {
                "reason": f"the hub has not decided on generation {observed.generation}"
            }
            name = placement.full_name
            event = AuditEvent(
                "not decided", PLACEMENT, name, after=facts, is_warning=True
            )
            record(event, by=None, now=now)
    row.save()
    return row


def _set_observed(
    row: HubDecision, observed: HubObservation, after: Bindings, *, is_same: bool
) -> None:
    """Set what the hub wrote; of one state the first complete list is kept, which the hub drops later."""
    words = observed.words
    first = row.decisions if is_same else list(words.decisions)
    current_list = (
        {} if first == list(words.decisions) else {"listed": list(words.decisions)}
    )
    since = observed.steady_since.isoformat() if observed.steady_since else ""
    bindings = [one.to_plain() for one in after.values()]
    row.pack(decisions=first, bindings=bindings, steady_since=since, **current_list)
    row.binding_change = observed.last_change
    row.is_latest, row.hub_behind = True, False
    row.policy_snapshot, row.observed_generation = (
        observed.name,
        observed.observed_generation,
    )
    row.policy_snapshot_uid = observed.snapshot.row.uid if observed.snapshot else ""
    row.condition, row.hub_at = words.condition, observed.written_at


def _set_judgement(row: HubDecision, judgement: Judgement, *, now: datetime) -> None:
    """Set the agreement; a difference counts once it was found three times, minutes apart."""
    was_different, was_confirmed = (
        row.agreement == Agreement.DIFFERS,
        row.confirmed_at is not None,
    )
    is_again = was_different and row.recheck_at is not None and row.recheck_at <= now
    row.agreement, row.replay, row.note = (
        judgement.agreement,
        judgement.replay,
        judgement.note,
    )
    row.differences, row.differences_count = (
        list(judgement.differences),
        judgement.count,
    )
    row.judged_at, row.engine = now, ENGINE_VERSION
    row.fleet_version = judgement.result.version if judgement.result else None
    row.inputs = judgement.result.inputs if judgement.result else ReplayInputs.NONE
    if row.agreement != Agreement.DIFFERS:
        row.judged_count, row.recheck_at, row.confirmed_at = 1, None, None
        if was_confirmed:
            facts = {"reason": f"snapshot {row.policy_snapshot}: {row.agreement}"}
            record(
                AuditEvent("agrees again", PLACEMENT, row.placement_name, after=facts),
                by=None,
                now=now,
            )
        return
    if not was_different:
        row.judged_count, row.recheck_at = 1, now + FIRST_RECHECK
    elif is_again:
        row.judged_count += 1
        row.recheck_at = now + LAST_RECHECK - FIRST_RECHECK
    if row.judged_count >= CONFIRMING and row.confirmed_at is None:
        row.confirmed_at, row.recheck_at = now, None
        count = row.differences_count
        words = f"{count} difference{'' if count == 1 else 's'} from the replay"
        facts = {"reason": f"snapshot {row.policy_snapshot}: {words}"}
        event = AuditEvent(
            "disagrees", PLACEMENT, row.placement_name, after=facts, is_warning=True
        )
        record(event, by=None, now=now)


def _written_decision(
    row: HubDecision,
    observed: HubObservation,
    result: ReplayResult,
    milliseconds: float,
    *,
    now: datetime,
) -> Decision:
    """Write the replay as a decision of the placement: a new one, or the one that it corrects."""
    value, version, placement = result.decision, result.version, observed.placement
    policy, before = (
        value.cycle.policy,
        {one.cluster for one in value.cycle.live_bindings if one.is_active},
    )
    joins = [name for name in value.picked_names if name not in before]
    decision = row.decision
    if decision is None:
        placement.decisions_made += 1
        Placement.objects.filter(pk=placement.pk).update(
            decisions_made=placement.decisions_made
        )
        decision = Decision(placement=placement, placement_name=placement.full_name)
        decision.number, decision.created_at = (
            placement.decisions_made,
            observed.written_at or now,
        )
        decision.trigger, decision.triggered_by = "Observed", "hub"
    columns: dict[str, Any] = {
        "record": stored_decision(value, version.fleet, now=now),
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
    for name, column_value in columns.items():
        setattr(decision, name, column_value)
    decision.save()
    return decision
