"""What-if analyses of cluster loss: saved, then evaluated in parts, without effect on placements."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from time import perf_counter

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from clusters.hub_queries import across_hubs
from clusters.operations.change_log import lock_fleet
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.audit import actor_name
from fleetui.errors import FleetError
from fleetui.task_queue import enqueue
from placements.engine.scheduling.decision import fleet_digest
from placements.explain.what_if import choice_words
from placements.models import (
    Decision,
    DecisionRecord,
    FleetRecord,
    Placement,
    PolicySnapshot,
    Scenario,
    ScenarioDecision,
)
from placements.services.decisions.records import fleet_of, fleet_record_of, stored_decision, stored_fleet
from placements.services.snapshots import cycles_of
from placements.services.what_if.queries import (
    RANKS,
    ScenarioResult,
    Variant,
    chosen_clusters,
    evaluate,
    fleet_under,
    note_on,
    valid_placements,
)

WHAT_IF = "placements.tasks.evaluate_scenarios"
LEASE = timedelta(seconds=30)
"""The scenario of a killed worker is due again after this time."""
AT_ONCE = 0.2
"""Seconds that a request may take; a worker continues what takes longer."""
SMALL_FLEET = 500
PIECE = 1.0
KEPT = 100
"""Number of scenarios to keep; older ones without a name are deleted with the records that only they cite."""
LONGEST_NAME, MOST_SAVED = 63, 100
_BATCH = 10
_NAMES_STORED = 20


class TooManyAnalysesError(FleetError):
    """A user has as many analyses in the queue as may wait there."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    problem_type = "throttled"
    title = "Too many requests"

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} of your analyses are not completed yet; wait for one of them.")
        self.wait = 10.0


def create_scenario(
    *, names: Sequence[str], labels: Sequence[str], by: User | None, now: datetime, chosen_by: str = ""
) -> Scenario:
    """Create an analysis and start it: immediately on a small fleet, otherwise in a worker.

    `chosen_by` describes the clusters instead of names and labels.
    Raise InvalidManifest, TooManyAnalysesError.
    """
    waiting = (
        Scenario.objects.filter(evaluate_at__isnull=False, created_by=actor_name(by)).count() if by else 0
    )
    if waiting >= settings.MOST_WAITING_ANALYSES:
        raise TooManyAnalysesError(waiting)
    clusters = chosen_clusters(names, labels)
    row = Scenario.objects.create(
        clusters=list(clusters),
        chosen_by=chosen_by or choice_words(sorted(set(names)), labels, len(clusters)),
        created_at=now,
        created_by=actor_name(by),
        placements_count=valid_placements().count(),
        evaluate_at=now,
    )
    _prune()
    if len(current_fleet().fleet) <= SMALL_FLEET and _claim(row, now=now):
        _evaluate(row, now=now, seconds=AT_ONCE)
    if not row.is_answered:
        enqueue(WHAT_IF)
    return row


def evaluate_due(*, now: datetime) -> int:
    """Continue the oldest due scenario that no other worker has claimed; return 0 or 1."""
    row = Scenario.objects.filter(evaluate_at__lte=now).order_by("evaluate_at", "pk").first()
    if row is None or not _claim(row, now=now):
        return 0
    _evaluate(row, now=now, seconds=PIECE)
    return 1


def cancel_scenario(row: Scenario) -> bool:
    """End an analysis that is queued or running; what is evaluated already stays. Return whether it was."""
    return bool(_unfinished(row).update(evaluate_at=None, is_canceled=True))


def save_scenario(row: Scenario, name: str) -> None:
    """Set the name of an analysis; without one it is deleted with age. Raise InvalidManifest."""
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidManifest.of(
            "name", "invalid", "Invalid value", f"up to {LONGEST_NAME} printable characters"
        )
    if name and Scenario.objects.exclude(name="").exclude(pk=row.pk).count() >= MOST_SAVED:
        raise InvalidManifest.of("name", "too-many", f"{MOST_SAVED} analyses are saved; remove a name first")
    row.name = name
    row.save(update_fields=["name"])


def _unfinished(row: Scenario) -> QuerySet[Scenario]:
    return Scenario.objects.filter(pk=row.pk, evaluate_at__isnull=False)


def is_due(*, now: datetime) -> bool:
    return Scenario.objects.filter(evaluate_at__lte=now).exists()


def _claim(row: Scenario, *, now: datetime) -> bool:
    """Claim a scenario by a conditional update; return whether this worker won."""
    due = Scenario.objects.filter(pk=row.pk, evaluate_at__lte=now)
    return bool(due.update(evaluate_at=now + LEASE))


def _evaluate(row: Scenario, *, now: datetime, seconds: float) -> None:
    """Evaluate placements until the time is over or all are done; the first call stores the two fleets."""
    until = perf_counter() + seconds
    row.refresh_from_db()
    if row.without is None or row.cordoned is None:
        view = current_fleet()
        with transaction.atomic():
            row.without = stored_fleet(fleet_under(view.fleet, row.clusters, Variant.LEAVE))
            row.cordoned = stored_fleet(fleet_under(view.fleet, row.clusters, Variant.CORDON))
            row.fleet_version = view.version
            row.save(update_fields=["without", "cordoned", "fleet_version"])
    fleets = {Variant.LEAVE: row.without, Variant.CORDON: row.cordoned}
    while left := _next(row):
        without, cordoned = fleet_of(row.without.pk), fleet_of(row.cordoned.pk)
        latest = PolicySnapshot.objects.filter(placement__in=list(left), is_latest=True)
        numbers = dict(latest.values_list("placement_id", "number"))
        for placement, cycle in cycles_of(left, without):
            started = perf_counter()
            is_namespaced = bool(placement.namespace)
            judge = partial(evaluate, was_fulfilled=placement.is_fulfilled, is_namespaced=is_namespaced)
            other = replace(cycle, fleet=cordoned)
            leave = judge(cycle, row.clusters, Variant.LEAVE)
            cordon = judge(other, row.clusters, Variant.CORDON)
            shared = {
                "placement": placement,
                "policy_number": numbers[placement.pk],
                "milliseconds": (perf_counter() - started) * 1000 / len(Variant),
                "wanted": placement.number_of_clusters,
                "note": note_on(leave, cordon, row.clusters),
            }
            with transaction.atomic():
                for variant, result in ((Variant.LEAVE, leave), (Variant.CORDON, cordon)):
                    ScenarioDecision.objects.update_or_create(
                        scenario=row,
                        variant=variant,
                        placement_name=placement.full_name,
                        defaults={**shared, **_columns(result, fleets[variant], now=now)},
                    )
        if perf_counter() > until:
            break
    row.evaluate_at = now if left and _next(row) else None
    row.left_out = Placement.objects.count() - valid_placements().count()
    _unfinished(row).update(evaluate_at=row.evaluate_at, left_out=row.left_out)  # unless it was canceled


def _next(row: Scenario) -> list[Placement]:
    done = ScenarioDecision.objects.filter(scenario=row, variant=Variant.CORDON)
    rows = valid_placements().exclude(full_name__in=done.values("placement_name"))
    return list(rows.order_by("name")[:_BATCH])


def _columns(result: ScenarioResult, fleet: FleetRecord, *, now: datetime) -> dict[str, object]:
    """Return the columns of one variant; stores the record of its decision."""
    cycle = result.decision.cycle
    joins = result.joins[:_NAMES_STORED]
    return {
        "record": stored_decision(result.decision, fleet, now=now),
        "fleet_digest": fleet_digest(cycle),
        "impact": result.impact,
        "rank": RANKS[result.impact],
        "is_fulfilled": result.decision.is_fulfilled,
        "placed_before": result.placed_before,
        "placed_after": result.placed_after,
        "joins_count": len(result.joins),
        "leaves_count": len(result.leaves),
        "joins": [one.cluster for one in joins],
        "scores": [[one.topology_spread_score, one.affinity_score] for one in joins],
        "leaves": list(result.leaves[:_NAMES_STORED]),
        "why": result.why,
    }


def _prune() -> None:
    """Delete the oldest scenarios, with the records and fleets that nothing else cites.

    The record of the current fleet stays: a cycle in progress keeps its key before a decision cites it.
    """
    newest = Scenario.objects.order_by("-pk").values_list("pk", flat=True)[:KEPT]
    surplus = Scenario.objects.filter(name="").exclude(pk__in=list(newest))
    if not surplus.exists():
        return
    with transaction.atomic():
        lock_fleet()
        oldest = list(surplus)
        outcomes = ScenarioDecision.objects.filter(scenario__in=oldest)
        records = set(outcomes.values_list("record_id", flat=True))
        fleets = {pk for one in oldest for pk in (one.without_id, one.cordoned_id) if pk is not None}
        fleets.discard(fleet_record_of(current_fleet()).pk)
        surplus.delete()
        with across_hubs():  # which share the records
            decisions = Decision.objects.filter(record__in=records)
            hypothetical = ScenarioDecision.objects.filter(record__in=records)
            scenarios = Scenario.objects.filter(Q(without__in=fleets) | Q(cordoned__in=fleets))
        kept = set(decisions.values_list("record_id", flat=True))
        kept |= set(hypothetical.values_list("record_id", flat=True))
        DecisionRecord.objects.filter(pk__in=records - kept).delete()
        cited = set(DecisionRecord.objects.filter(fleet__in=fleets).values_list("fleet_id", flat=True))
        for one in scenarios:
            cited |= {pk for pk in (one.without_id, one.cordoned_id) if pk is not None}
        FleetRecord.objects.filter(pk__in=fleets - cited).delete()
