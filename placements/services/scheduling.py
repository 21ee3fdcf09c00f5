"""Scheduling cycles: claiming what is due, running the cycle, writing what it decided."""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import compress
from threading import Lock
from time import monotonic, perf_counter
from typing import Any
from uuid import uuid4

from django.db import transaction
from django.db.models import F, OuterRef, Q, QuerySet, Subquery

from clusters.fleet import Fleet
from clusters.models import MemberCluster
from clusters.operations.change_log import share_fleet, share_fleet_at_end
from clusters.queries import current_fleet, load_fleet
from fleetui.audit import AuditEvent, record_all
from fleetui.bulk import batched, claim_batch, insert_alike, update_each
from fleetui.errors import FleetError
from fleetui.prepared import PreparedQuery
from fleetui.task_queue import enqueue
from placements import models
from placements.engine.rollout.state import EMPTY, Phase
from placements.engine.scheduling.decision import (
    ENGINE_VERSION,
    CycleKind,
    Decision,
    fleet_digest,
    next_moment,
)
from placements.engine.scheduling.fleet_change import changed_clusters, schedule_changed
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.explain.hub_status import condition_of
from placements.manifests.binding import BindingState
from placements.manifests.placement import ClusterResourcePlacement
from placements.models import Binding
from placements.services.assertions import recheck
from placements.services.decisions.records import fleet_record_of, stored_decisions
from placements.services.placements import (
    check_decision_keeps_clusters,
    reschedules_when_fulfilled,
    scheduled_columns,
)
from placements.services.resources.snapshots import PlacementChanged, refresh_resources
from placements.services.results import PLACEMENT
from placements.services.rollouts.controller import finish_deletion
from placements.services.snapshots import CycleInputs, inputs_of, load_cycle_inputs
from placements.services.workqueue import (
    RUN_CLUSTER_CALLS,
    enqueue_rollout,
    enqueue_scheduling,
)

LEASE = timedelta(seconds=10)
"""How long a killed worker delays others; a slow one does no harm, as only one decision is written."""
BATCH = 20
RERUNS = 1
_NAMES_STORED = 5
_CLUSTERS_HELD = 500_000
"""The number of verdicts and bindings of PickAll placements in the cache of a process, at most 100 MB."""
_lock = Lock()
_pick_all: OrderedDict[int, Decision] = OrderedDict()
_PICK_FIELDS = [
    "state",
    "policy_snapshot",
    "decision",
    "topology_spread_score",
    "affinity_score",
]
_NEW_COLUMNS = (
    "cluster_name",
    "placement_id",
    "policy_snapshot_id",
    "decision_id",
    "topology_spread_score",
    "affinity_score",
)


class FleetChanged(Exception):
    """The fleet changed while the cycle ran; the decision may be another one now."""


class FleetLocked(FleetChanged):
    """A change of the fleet is being written."""


class PreviewOutdatedError(FleetError):
    """What was confirmed is not what would be saved and decided now: another user acted meanwhile.

    `is_text`: the draft itself was changed; else the fleet, or what is placed, was.
    """

    problem_type = "stale-edit"

    def __init__(self, *, is_text: bool) -> None:
        super().__init__("the draft changed" if is_text else "the fleet changed")
        self.is_text = is_text


@dataclass(frozen=True)
class CycleResult:
    """A cycle that has run: what it read, what it decided, how long it took."""

    inputs: CycleInputs
    decision: Decision
    milliseconds: float

    def scheduled_columns(self, *, now: datetime) -> dict[str, Any]:
        placement = self.inputs.placement
        condition = condition_of(self.decision)
        status = condition["status"] if condition else "Unknown"
        return {
            "observed_generation": placement.generation,
            "decide_again_at": next_moment(self.inputs.cycle),
            "scheduled": status,
            "scheduled_since": placement.scheduled_since,
            **scheduled_columns(placement, status, now=now),
        }

    def is_repetition(self, latest: models.Decision | None) -> bool:
        """Return whether the cycle changes nothing and read the same as the latest one that was written."""
        decision, inputs = self.decision, self.inputs
        if decision.picked_names or decision.unscheduled:
            return False
        return latest is not None and (
            latest.record.engine,
            latest.fleet_digest,
            latest.policy_number,
            latest.wanted,
            latest.is_fulfilled,
            latest.picked_count + latest.kept_count,
        ) == (
            ENGINE_VERSION,
            fleet_digest(decision.cycle),
            inputs.snapshot.number,
            inputs.placement.number_of_clusters,
            decision.is_fulfilled,
            len(decision.kept),
        )


def schedule_due(*, now: datetime) -> int:
    """Run up to 20 of the cycles that are due and that no other worker has; return how many.

    What they decide is written together, as far as possible. The others are run one after another, each even
    if another one raises; the error is raised at the end, and the placement it belongs to is tried again when
    its lease is over. The leases are renewed between the cycles, and a cycle whose lease another worker took
    meanwhile is left to that one.
    """
    token, started = uuid4().hex, monotonic()
    if ended := _ended.rows(now=now):
        models.Placement.objects.filter(pk__in=ended).update(decide_again_at=None)
        enqueue_scheduling(ended, trigger="a score or a toleration ended")
    claimed = claim_due(now=now, token=token)
    alone = claimed
    if len(claimed) > 1:
        alone = _schedule_together(claimed, now=now)
    renewed_at = now

    def schedule_next(place: int) -> None:
        nonlocal renewed_at
        passed = now + timedelta(seconds=monotonic() - started)
        if passed - renewed_at >= LEASE / 4:
            renewed_at = passed
            rows = models.Placement.objects.filter(
                pk__in=alone[place:], lease_token=token
            )
            rows.update(lease_expires_at=passed + LEASE)
            if not rows.filter(pk=alone[place]).exists():
                return
        schedule_placement(alone[place], now=now)

    with ExitStack() as stack:
        for place in reversed(range(len(alone))):
            stack.callback(schedule_next, place)
    return len(claimed)


def _schedule_together(claimed: Sequence[int], *, now: datetime) -> list[int]:
    """Run the cycles that need a decision, and write them in one transaction; return the others.

    Among the others are those that fail here or that a change meanwhile makes outdated: alone each fails or
    ends for itself. Rules that read the counts of other placements have to see what was decided before. To
    select resources and to decide may take a quarter of the lease each.
    """
    part = LEASE.total_seconds() / 4
    until = monotonic() + part
    rows = models.Placement.objects.filter(pk__in=claimed, deleting_since=None)
    written: Collection[int] = ()
    with suppress(Exception):
        ready = [
            row
            for row in rows.filter(selection_faults=[])
            if row.is_due
            and not row.is_decided
            and monotonic() < until
            and refresh_resources(row, now=now)
        ]
        for run in range(1 + RERUNS) if ready else ():
            loaded = [*inputs_of(ready, current_fleet(), now=now)]
            until = monotonic() + part
            results = [
                decide(inputs)
                for inputs in loaded
                if not profile_of(inputs.cycle).reads_other_placements
                and monotonic() < until
            ]
            if run < RERUNS and _outdated(results, load_fleet()):
                continue
            with suppress(FleetChanged):
                if results:
                    written = write_decisions(
                        results, now=now, accept_old_fleet=run == RERUNS
                    )
                break
    return [pk for pk in claimed if pk not in written]


def claim_due(*, now: datetime, token: str = "") -> list[int]:
    """Claim up to 20 due placements that no other worker has, by a conditional update."""
    lease = {"lease_expires_at": now + LEASE, "lease_token": token or uuid4().hex}
    return claim_batch(_due(now), "pk", size=BATCH, **lease)


def is_due(*, now: datetime) -> bool:
    """Return whether a scheduling cycle is due that no worker has claimed."""
    return bool(_first_due.rows(now=now) or _ended.rows(now=now))


@PreparedQuery
def _ended(now: datetime) -> QuerySet[models.Placement, int]:
    """Return the placements that read a score that expired, or a toleration that ended."""
    return models.Placement.objects.filter(decide_again_at__lte=now).values_list(
        "pk", flat=True
    )


def _due(now: datetime) -> QuerySet[models.Placement]:
    free = Q(lease_expires_at=None) | Q(lease_expires_at__lt=now)
    return models.Placement.objects.filter(
        free, observed_generation__lt=F("generation")
    )


_first_due = PreparedQuery(lambda now: _due(now).values_list("pk")[:1])


def schedule_placement(placement_id: int, *, now: datetime) -> models.Decision | None:
    """Run one cycle for a placement and write what it decided; None when there was nothing to write.

    When what it read of the fleet changes meanwhile, or the placement does, the cycle runs again, once.
    """
    for run in range(1 + RERUNS):
        placement = models.Placement.objects.filter(pk=placement_id).first()
        if placement is None or not placement.is_due:
            return None
        with suppress(FleetChanged, PlacementChanged):
            if placement.deleting_since:
                with transaction.atomic():
                    if not finish_deletion(placement, now=now):
                        _observe_generation(placement, {})
                return None
            is_decided = placement.is_decided
            if not refresh_resources(placement, now=now):
                # It stays as it is until its selectors or the resources change.
                _observe_generation(
                    placement, scheduled_columns(placement, "False", now=now)
                )
                return None
            if is_decided:
                _observe_generation(placement, {})
                return None
            return write_decision(
                run_cycle(placement, now=now),
                now=now,
                accept_old_fleet=run == RERUNS,
            )
    models.Placement.objects.filter(pk=placement_id).update(
        lease_expires_at=None, lease_token=""
    )
    return None


def schedule_confirmed(
    placement: models.Placement,
    decision_id: str,
    *,
    now: datetime,
    manifest: ClusterResourcePlacement | None = None,
    must_keep_clusters: bool = False,
) -> None:
    """Run the cycle that a change requires, in its transaction, with the steps of a worker.

    `manifest` is that of the placement, where it is parsed already. Raise PreviewOutdatedError when the
    decision is not the one that was previewed, and UnschedulesEverything.
    """
    placement.refresh_from_db()
    if not refresh_resources(placement, now=now, manifest=manifest):
        return
    result = run_cycle(placement, now=now)
    if must_keep_clusters:
        check_decision_keeps_clusters(placement.full_name, result.decision)
    if result.decision.id != decision_id:
        raise PreviewOutdatedError(is_text=False)
    try:
        write_decision(result, now=now)
    except FleetChanged as error:
        raise PreviewOutdatedError(is_text=False) from error


def run_cycle(
    placement: models.Placement, *, now: datetime | None = None
) -> CycleResult:
    return decide(load_cycle_inputs(placement, current_fleet(), now=now))


def decide(inputs: CycleInputs) -> CycleResult:
    started = perf_counter()
    return CycleResult(inputs, _decision_of(inputs), (perf_counter() - started) * 1000)


def _decision_of(inputs: CycleInputs) -> Decision:
    """Decide; a PickAll placement from the clusters that changed since this process last decided it."""
    key, cycle, decision = inputs.placement.pk, inputs.cycle, None
    former = _pick_all.get(key)
    if former is not None:
        changed = changed_clusters(former.cycle.fleet, cycle.fleet)
        decision = schedule_changed(former, cycle, changed)
    if decision is None:
        decision = schedule(cycle)
    if decision.kind is CycleKind.PICK_ALL:
        with _lock:
            _pick_all[key] = decision
            _pick_all.move_to_end(key)
            while (
                len(_pick_all) * len(cycle.fleet) > _CLUSTERS_HELD
                and len(_pick_all) > 1
            ):
                _pick_all.popitem(last=False)
    return decision


def write_decision(
    result: CycleResult, *, now: datetime, accept_old_fleet: bool = False
) -> models.Decision | None:
    """Write a decision and the bindings that it changes; None if it leaves no row.

    Raise FleetChanged, PlacementChanged.
    """
    try:
        written = write_decisions([result], now=now, accept_old_fleet=accept_old_fleet)
    except FleetLocked:
        if not accept_old_fleet:
            raise
        # Changes of the fleet follow one another: now they wait until the rows are written.
        written = write_decisions(
            [result], now=now, accept_old_fleet=True, locks_first=True
        )
    if not written:
        raise PlacementChanged
    return written[result.inputs.placement.pk]


def write_decisions(
    results: Sequence[CycleResult],
    *,
    now: datetime,
    accept_old_fleet: bool = False,
    locks_first: bool = False,
) -> dict[int, models.Decision | None]:
    """Write decisions on one fleet, and the bindings that they change, in one transaction.

    Return the rows by placement, None for a cycle that repeats the one before and changes nothing; a
    placement that changed meanwhile is left out. Raise FleetChanged.

    The fleet is locked at the end, so that changes of it do not wait until the rows are written; with
    `locks_first` from the beginning.
    """
    fleet_record = fleet_record_of(results[0].inputs.view)
    with transaction.atomic():
        if locks_first:
            share_fleet()
        results = _unchanged(results)
        latest = _latest_decisions(results)
        repeated: dict[int, dict[str, Any]] = {}
        decided: dict[int, dict[str, Any]] = {}
        new = []
        for result in results:
            placement, decision = result.inputs.placement, result.decision
            columns = result.scheduled_columns(now=now)
            if result.is_repetition(latest.get(placement.pk)):
                repeated[placement.pk] = columns
                continue
            decided[placement.pk] = {
                **columns,
                "decisions_made": placement.decisions_made + 1,
                "is_fulfilled": decision.is_fulfilled,
                "reschedules_on_fleet_change": not decision.is_fulfilled
                or reschedules_when_fulfilled(placement),
                "placed_count": len(decision.placed_after),
            }
            new.append(result)
        for columns_of in filter(None, (repeated, decided)):
            update_each(models.Placement.objects.all(), columns_of, **_NO_LEASE)

        rows = _create_decisions(new, latest, fleet_record, now=now)
        _write_bindings(new, rows, now=now)
        enqueue_rollout(decided)
        recheck(
            result.inputs.placement.full_name
            for result in new
            if result.decision.picked_names or result.decision.unscheduled
        )
        events = (
            AuditEvent(
                "decided",
                PLACEMENT,
                row.placement_name,
                after={
                    "decision": row.record.decision_id,
                    "picked": row.picked_count,
                    "kept": row.kept_count,
                    "unscheduled": row.unscheduled_count,
                    "evicted": row.leaves_count - row.unscheduled_count,
                    "fulfilled": row.is_fulfilled,
                },
            )
            for row in rows.values()
        )
        record_all(events, by=None, now=now)
        _check_fleet_unchanged(results, settle=accept_old_fleet)
    return dict.fromkeys(repeated) | rows


def _check_fleet_unchanged(results: Sequence[CycleResult], *, settle: bool) -> None:
    """Raise FleetChanged if what a cycle read of the fleet is another one now.

    With `settle` only if a picked cluster left the fleet or lost its eligibility; what was decided on the
    former fleet is decided again afterwards. The fleet stays as it is until the end of the transaction.
    """
    if not share_fleet_at_end():
        raise FleetLocked
    fleet = load_fleet()
    outdated = _outdated(results, fleet)
    picked = {name for result in outdated for name in result.decision.picked_names}
    eligible = compress(fleet.names, fleet.is_eligible)
    if outdated and not (settle and picked.issubset(eligible)):
        raise FleetChanged
    enqueue_scheduling(
        [result.inputs.placement.pk for result in outdated],
        trigger="the fleet changed during the decision",
    )


def _outdated(results: Sequence[CycleResult], fleet: Fleet) -> list[CycleResult]:
    """Return the cycles that have read of another fleet what is different in this one."""
    return [
        result
        for result in results
        if fleet is not result.inputs.view.fleet
        and fleet_digest(replace(result.decision.cycle, fleet=fleet))
        != fleet_digest(result.decision.cycle)
    ]


def _unchanged(results: Sequence[CycleResult]) -> list[CycleResult]:
    """Lock the placements; return the results of those that are unchanged and undecided since."""
    read = {result.inputs.placement.pk: result for result in results}
    rows = models.Placement.objects.select_for_update().filter(pk__in=list(read))
    columns = rows.order_by("pk").values_list("pk", "revision", "observed_generation")
    return [
        read[pk]
        for pk, revision, observed in columns
        if revision == read[pk].inputs.placement.revision
        and observed == read[pk].inputs.placement.observed_generation
    ]


def _latest_decisions(results: Sequence[CycleResult]) -> dict[int, models.Decision]:
    placements = [result.inputs.placement.pk for result in results]
    rows = (
        models.Decision.objects.filter(
            placement__in=placements, number=F("placement__decisions_made")
        )
        .select_related("record")
        .defer("record__content")
    )
    return {row.placement_id: row for row in rows if row.placement_id is not None}


_NO_LEASE: Mapping[str, Any] = {"lease_expires_at": None, "lease_token": ""}


def _observe_generation(placement: models.Placement, columns: dict[str, Any]) -> None:
    """Write that the generation was acted on; raise PlacementChanged if another worker was quicker."""
    unchanged = models.Placement.objects.filter(
        pk=placement.pk,
        revision=placement.revision,
        observed_generation=placement.observed_generation,
    )
    if not unchanged.update(
        observed_generation=placement.generation, **_NO_LEASE, **columns
    ):
        raise PlacementChanged


def _create_decisions(
    results: Sequence[CycleResult],
    latest: Mapping[int, models.Decision],
    fleet_record: models.FleetRecord,
    *,
    now: datetime,
) -> dict[int, models.Decision]:
    """Create the rows of decisions and of their records; return them by placement."""
    decisions = [result.decision for result in results]
    records = stored_decisions(decisions, fleet_record, now=now)
    evicted = _evicted_since(latest)
    rows = []
    for result in results:
        inputs, decision = result.inputs, result.decision
        placement = inputs.placement
        was_placed = {
            row.cluster_name
            for row in inputs.bindings
            if row.state != BindingState.UNSCHEDULED
        }
        joins = [name for name in decision.picked_names if name not in was_placed]
        leaves = [
            *decision.unscheduled,
            *(name for name in evicted.get(placement.pk, ()) if name not in joins),
        ]
        rows.append(
            models.Decision(
                placement=placement,
                placement_name=placement.full_name,
                number=placement.decisions_made + 1,
                record=records[decision.id],
                policy_number=inputs.snapshot.number,
                fleet_digest=fleet_digest(decision.cycle),
                wanted=placement.number_of_clusters,
                kind=decision.kind,
                is_fulfilled=decision.is_fulfilled,
                picked_count=len(decision.picked_names),
                kept_count=len(decision.kept),
                unscheduled_count=len(decision.unscheduled),
                joins_count=len(joins),
                joins=joins[:_NAMES_STORED],
                leaves_count=len(leaves),
                leaves=leaves[:_NAMES_STORED],
                milliseconds=result.milliseconds,
                trigger=placement.trigger,
                triggered_by=placement.triggered_by,
                created_at=now,
            )
        )
    models.Decision.objects.bulk_create(rows)
    pks = [result.inputs.placement.pk for result in results]
    return dict(zip(pks, rows, strict=True))


def _evicted_since(latest: Mapping[int, models.Decision]) -> dict[int, list[str]]:
    """Return the clusters evicted since these decisions, by placement, without those that these removed.

    An eviction ends the binding, so that the cycle after it unschedules nothing.
    """
    evicted: dict[int, list[str]] = {}
    if not latest:
        return evicted
    rows = models.Eviction.objects.filter(
        placement__in=list(latest),
        outcome=models.Eviction.Outcome.EXECUTED,
        at__gte=min(row.created_at for row in latest.values()),
    )
    columns = ("placement_id", "cluster_name", "at")
    for placement, name, at in rows.order_by("cluster_name").values_list(*columns):
        former, names = latest[placement], evicted.setdefault(placement, [])
        if at >= former.created_at and name not in (*former.leaves, *names):
            names.append(name)
    return evicted


def _write_bindings(
    results: Sequence[CycleResult],
    decisions: Mapping[int, models.Decision],
    *,
    now: datetime,
) -> None:
    """Write what changed, in bulk; a binding that was removed meanwhile and is picked is created."""
    current = _locked_bindings(results)
    ended = {
        row.pk for row in current.values() if row.state == BindingState.UNSCHEDULED
    }
    _end_bindings(results, current)

    joining: list[tuple[Any, ...]] = []
    again: list[models.Binding] = []
    for result in results:
        pk = result.inputs.placement.pk
        snapshot = result.inputs.snapshot
        for picked in result.decision.picked:
            binding = current.get((pk, picked.cluster))
            if binding is None:
                row = (
                    picked.cluster,
                    pk,
                    snapshot.pk,
                    decisions[pk].pk,
                    picked.topology_spread_score,
                    picked.affinity_score,
                )
                joining.append(row)
                continue
            if binding.state == BindingState.UNSCHEDULED:
                binding.state = binding.previous_state
            binding.policy_snapshot = snapshot
            binding.decision = decisions[pk]
            binding.topology_spread_score = picked.topology_spread_score
            binding.affinity_score = picked.affinity_score
            again.append(binding)
    members = members_named({row[0] for row in joining})
    started = models.Binding(state=BindingState.SCHEDULED, picked_at=now)
    for part in batched(joining):
        given: dict[str, Sequence[Any]] = dict(
            zip(_NEW_COLUMNS, zip(*part, strict=True), strict=True)
        )
        given["member_id"] = [members.get(name) for name in given["cluster_name"]]
        insert_alike(started, given)
    for some in batched(again):
        columns = {
            row.pk: {name: getattr(row, name) for name in _PICK_FIELDS} for row in some
        }
        update_each(models.Binding.objects.all(), columns)
    recheck_rejoined([binding for binding in again if binding.pk in ended], now=now)


def _locked_bindings(
    results: Sequence[CycleResult],
) -> dict[tuple[int, str], models.Binding]:
    """Return the bindings that decisions change, locked, by placement and cluster.

    They are read again: a rollout may have changed them since the cycles loaded their inputs.
    """
    concerned = []
    for result in results:
        names = {*result.decision.unscheduled, *result.decision.picked_names}
        rows = result.inputs.bindings
        concerned += [row.pk for row in rows if row.cluster_name in names]
    current: dict[tuple[int, str], models.Binding] = {}
    for part in batched(concerned):
        locked = models.Binding.objects.select_for_update().filter(pk__in=part)
        for row in locked.order_by("pk"):
            current[row.placement_id, row.cluster_name] = row
    return current


def _end_bindings(
    results: Sequence[CycleResult],
    current: Mapping[tuple[int, str], models.Binding],
) -> None:
    """Unschedule; where nothing is, nothing is to be removed: no rollout would ever end such a binding."""
    empty, bound = [], []
    for result in results:
        for name in result.decision.unscheduled:
            binding = current.get((result.inputs.placement.pk, name))
            if binding is None:
                continue
            if binding.state == BindingState.SCHEDULED or binding.phase in EMPTY:
                empty.append(binding.pk)
            elif binding.state == BindingState.BOUND:
                bound.append(binding.pk)
    for part in batched(empty):
        models.Binding.objects.filter(pk__in=part).delete()
    for part in batched(bound):
        models.Binding.objects.filter(pk__in=part).update(
            state=BindingState.UNSCHEDULED, previous_state=BindingState.BOUND
        )


def members_named(names: Collection[str]) -> dict[str, int]:
    members: dict[str, int] = {}
    for part in batched(names):
        rows = MemberCluster.objects.filter(name__in=part)
        members |= dict(rows.values_list("name", "pk"))
    return members


def set_members(bindings: QuerySet[Binding]) -> None:
    """Record of which member clusters these bindings are; a cluster that rejoins is another one."""
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name")).values("pk")
    bindings.update(member_id=Subquery(members[:1]))


def recheck_rejoined(bindings: Collection[Binding], *, now: datetime) -> None:
    """Observe selected clusters again that rejoined since they were last selected.

    They may have been cleared meanwhile; until the next observation they count as not ready.
    """
    members = members_named({binding.cluster_name for binding in bindings})
    rejoined = [
        binding
        for binding in bindings
        if members.get(binding.cluster_name) not in (None, binding.member_id)
    ]
    if not rejoined:
        return
    rows = Binding.objects.filter(pk__in=[binding.pk for binding in rejoined])
    set_members(rows)
    if any(binding.phase == Phase.AVAILABLE for binding in rejoined):
        columns = {
            "phase": Phase.APPLIED,
            "phase_changed_at": now,
            "untrackable_since": None,
            "next_call_at": now,
        }
        rows.filter(phase=Phase.AVAILABLE).update(**columns)
        enqueue(RUN_CLUSTER_CALLS)
