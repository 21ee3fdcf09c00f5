"""Assertions of placements: checked after every decision and change of the fleet, and before a save."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet, Subquery, Sum

from clusters.fleet import Fleet
from clusters.models import FleetState
from clusters.queries import current_fleet, load_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest, ManifestWarning
from fleetui.audit import AuditEvent, record
from placements.engine.assertions import AssertionResult, AssertionState, Known, evaluate_assertions
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind
from placements.engine.scheduling.decision import Decision as DecisionValue
from placements.engine.scheduling.scheduler import schedule
from placements.explain.assertions import assertion_sentence, result_document
from placements.manifests.assertions import ASSERTIONS_ANNOTATION, Assertion, parse_assertions
from placements.manifests.binding import BindingState
from placements.manifests.ocm import annotation_path
from placements.manifests.placement import ClusterResourcePlacement
from placements.models import AssertionCheck, Binding, Decision, Placement, PlacementResilience
from placements.services.results import PLACEMENT
from placements.services.snapshots import cycles_of, draft_cycle

WEEK = timedelta(days=7)
BATCH = 20
_NAMED = ("together", "apart")


def check_due(*, now: datetime) -> int:
    """Check up to 20 placements whose decision, manifest, fleet or neighbours changed; return how many."""
    rows = list(due_checks().order_by("pk")[:BATCH])
    if rows:
        for placement, cycle in cycles_of(rows, current_fleet().fleet):
            _check(placement, cycle, now=now)
    return len(rows)


def is_due(*, now: datetime) -> bool:
    del now
    return due_checks().exists()


def due_checks() -> QuerySet[Placement]:
    """Return the placements with assertions whose check is not about what is there now."""
    asserting = Placement.objects.filter(has_assertions=True, deleting_since=None, decisions_made__gt=0)
    check = "assertion_check__"
    is_same = Q(
        **{
            f"{check}decisions_made": F("decisions_made"),
            f"{check}revision": F("revision"),
            f"{check}fleet_version": Subquery(FleetState.objects.values("version")[:1]),
        }
    )
    return asserting.exclude(is_same)


REPORT = "*report"
"""Stands for the resilience report among the names that assertions read."""


def recheck(name: str) -> None:
    """Have the assertions that read a placement, or the resilience report, checked again."""
    AssertionCheck.objects.filter(others__contains=f"|{name}|").update(decisions_made=0)


def _check(placement: Placement, cycle: Cycle, *, now: datetime) -> None:
    """Evaluate the assertions of a placement, save the results and record what changed."""
    items = parse_assertions(placement.document["metadata"].get("annotations") or {}).items
    results = evaluate_assertions(items, at_rest(cycle), _known(placement, items, now=now))
    documents = [result_document(one) for one in results]
    others = {str(one.value) for one in items if one.predicate in _NAMED}
    others |= {REPORT for one in items if one.predicate == "survives"}
    with transaction.atomic():
        former = AssertionCheck.objects.select_for_update().filter(placement=placement).first()
        before = {_identity(one): one["state"] for one in (former.results if former else [])}
        AssertionCheck.objects.update_or_create(
            placement=placement,
            defaults={
                "decisions_made": placement.decisions_made,
                "revision": placement.revision,
                "fleet_version": current_fleet().version,
                "checked_at": now,
                "others": f"|{'|'.join(sorted(others))}|" if others else "",
                "results": documents,
                "broken": sum(one.state is AssertionState.BROKEN for one in results),
                "unknown": sum(one.state is AssertionState.UNKNOWN for one in results),
            },
        )
        for one, document in zip(results, documents, strict=True):
            was_broken = before.get(_identity(document)) == AssertionState.BROKEN
            if was_broken is not (one.state is AssertionState.BROKEN):
                verb = "assertion holds again" if was_broken else "assertion broken"
                facts = {"assertion": assertion_sentence(one)}
                record(AuditEvent(verb, PLACEMENT, placement.full_name, after=facts), by=None, now=now)


def at_rest(cycle: Cycle) -> DecisionValue:
    """Return a decision that keeps the clusters of a placement, for evaluations on the fleet as it is."""
    return DecisionValue(
        cycle,
        CycleKind.NOTHING_TO_DO,
        kept=tuple(one.cluster for one in cycle.live_bindings if one.is_active),
    )


def _identity(document: dict[str, Any]) -> str:
    return f"{document['predicate']} {document['value']}"


def _known(placement: Placement | None, items: Collection[Assertion], *, now: datetime) -> Known:
    """Read what the assertions compare with."""
    names = {str(one.value) for one in items if one.predicate in _NAMED}
    others: dict[str, Any] = dict.fromkeys(names)
    there = Placement.objects.filter(full_name__in=names).values_list("full_name", flat=True)
    others |= {name: set() for name in there}
    rows = Binding.objects.filter(placement__full_name__in=names).exclude(state=BindingState.UNSCHEDULED)
    for name, cluster in rows.values_list("placement__full_name", "cluster_name"):
        others[name].add(cluster)
    kinds = {one.predicate for one in items}
    survived = None
    if placement and "survives" in kinds:
        found = PlacementResilience.objects.filter(placement=placement).select_related("report").first()
        survived = {level: level in found.levels for level in found.report.totals} if found else None
    churn = 0
    if placement and "churn" in kinds:
        latest = Decision.objects.filter(placement=placement, created_at__gt=now - WEEK)
        sums = latest.aggregate(joins=Sum("joins_count", default=0), leaves=Sum("leaves_count", default=0))
        churn = sums["joins"] + sums["leaves"]
    return Known(others, survived, churn)


def assertion_results(
    manifest: ClusterResourcePlacement, decision: DecisionValue, *, saved: Placement | None, now: datetime
) -> list[AssertionResult]:
    """Evaluate the assertions of a manifest on the decision that saving it would lead to."""
    items = parse_assertions(manifest.metadata.annotations).items
    if not items:
        return []
    known = _known(saved, items, now=now)
    if saved is not None and known.churn is not None:
        before = {one.cluster for one in decision.cycle.live_bindings if one.is_active}
        after = {one.cluster for one in decision.bindings_after if one.is_active}
        known = Known(known.others, known.survived, known.churn + len(before ^ after))
    return evaluate_assertions(items, decision, known)


def assertion_warnings(
    manifest: ClusterResourcePlacement, decision: DecisionValue, *, saved: Placement | None, now: datetime
) -> tuple[ManifestWarning, ...]:
    """Return a warning for each assertion that a decision breaks."""
    path = annotation_path(ASSERTIONS_ANNOTATION)
    return tuple(
        ManifestWarning("assertion-broken", path, f"Assertion broken: {assertion_sentence(one)}")
        for one in assertion_results(manifest, decision, saved=saved, now=now)
        if one.state is AssertionState.BROKEN
    )


def check_assertions_before_save(
    manifest: ClusterResourcePlacement, *, saved: Placement | None, now: datetime
) -> tuple[ManifestWarning, ...]:
    """Return the warnings of broken assertions. Raise InvalidManifest where `onBreak` is `refuse`."""
    given = parse_assertions(manifest.metadata.annotations)
    if not given.items:
        return ()
    fleet: Fleet = load_fleet()
    decision = schedule(draft_cycle(manifest, saved=saved, fleet=fleet))
    found = assertion_warnings(manifest, decision, saved=saved, now=now)
    if given.refuses and found:
        allowed = "a placement that keeps its assertions, or onBreak: warn"
        raise InvalidManifest(FieldError(one.path, one.code, one.message, allowed) for one in found)
    return found


def checks(state: str = "") -> QuerySet[AssertionCheck]:
    """Return the results of placements with assertions; with a state those with such an assertion."""
    rows = AssertionCheck.objects.filter(placement__has_assertions=True)
    if state == AssertionState.BROKEN:
        rows = rows.filter(broken__gt=0)
    elif state == AssertionState.UNKNOWN:
        rows = rows.filter(unknown__gt=0)
    elif state:
        rows = rows.filter(broken=0, unknown=0)
    rows = rows.select_related("placement").defer("placement__document")
    return rows.order_by("placement__full_name")


def check_of(placement: Placement) -> AssertionCheck | None:
    """Return the results of the assertions of a placement, None where there are none."""
    return getattr(placement, "assertion_check", None) if placement.has_assertions else None
