"""Assertions of placements: checked after every decision and change of the fleet, and before a save."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet, Subquery, Sum

from clusters.models import FleetState
from clusters.queries import current_fleet, load_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest, ManifestWarning
from fleetui.apimachinery.kinds import ASSERTION_KIND
from fleetui.audit import AuditEvent, record
from fleetui.bulk import batched
from fleetui.concurrency import retry_on_conflict
from fleetui.errors import UnknownObject
from fleetui.permissions import check_change
from placements.engine.assertions import (
    AssertionFacts,
    AssertionResult,
    AssertionState,
    assertions_about,
    evaluate_assertions,
)
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import CycleKind
from placements.engine.scheduling.decision import Decision as DecisionValue
from placements.engine.scheduling.scheduler import schedule
from placements.explain.assertions import assertion_sentence, result_document
from placements.manifests.assertions import (
    ASSERTIONS_ANNOTATION,
    Assertion,
    Assertions,
    PlacementAssertion,
    parse_placement_assertion,
)
from placements.manifests.binding import BindingState
from placements.manifests.ocm import annotation_path
from placements.manifests.placement import ClusterResourcePlacement
from placements.models import (
    AssertionCheck,
    AssertionDocument,
    Binding,
    Decision,
    Placement,
    PlacementResilience,
)
from placements.services.results import (
    PLACEMENT,
    OperationResult,
    SaveResult,
    delete_row,
    kept,
    locked_row,
    save_row,
)
from placements.services.snapshots import cycles_of, draft_cycle

ASSERTION = "assertion"
WEEK = timedelta(days=7)
BATCH = 20
_NAMED = ("together", "apart")


class UnknownAssertionsError(UnknownObject):
    problem_type = "unknown-assertion"

    def __init__(self, name: str) -> None:
        super().__init__(f"no {ASSERTION_KIND} is named {name!r}")
        self.name = name


def check_due(*, now: datetime) -> int:
    """Check up to 20 placements whose decision, manifest, fleet or neighbours changed; return how many."""
    rows = list(due_checks(now=now).order_by("pk")[:BATCH])
    if rows:
        documents = assertion_documents()
        for placement, cycle in cycles_of(rows, current_fleet().fleet):
            _check(placement, cycle, documents, now=now)
    return len(rows)


def is_due(*, now: datetime) -> bool:
    return due_checks(now=now).exists()


def due_checks(*, now: datetime) -> QuerySet[Placement]:
    """Return the placements with assertions whose check is not about what is there now."""
    asserting = Placement.objects.filter(has_assertions=True, deleting_since=None, decisions_made__gt=0)
    check = "assertion_check__"
    is_same = Q(
        **{
            f"{check}decisions_made": F("decisions_made"),
            f"{check}revision": F("revision") + F("hub_changes"),
            f"{check}fleet_version": Subquery(FleetState.objects.values("version")[:1]),
        }
    )
    aged = AssertionCheck.objects.filter(others__contains=CLOCK, checked_at__lt=now - RECHECK)
    return asserting.exclude(is_same & ~Q(pk__in=aged.values("placement")))


REPORT, CLOCK = "*report", "*clock"
"""The names of the resilience report and of the time among the names that assertions read."""
_READ, RECHECK = {"survives": REPORT, "churn": CLOCK}, timedelta(hours=1)


def recheck(name: str) -> None:
    """Have the assertions that read a placement, or the resilience report, checked again."""
    AssertionCheck.objects.filter(others__contains=f"|{name}|").update(decisions_made=0)


def assertion_documents() -> list[PlacementAssertion]:
    return [parse_placement_assertion(one.document) for one in AssertionDocument.objects.order_by("name")]


def _about(placement: Placement, documents: Collection[PlacementAssertion]) -> list[tuple[str, Assertions]]:
    metadata = placement.document["metadata"]
    labels, annotations = (metadata.get(one) or {} for one in ("labels", "annotations"))
    return assertions_about(placement.full_name, labels, annotations, documents)


def written_assertions(manifest: ClusterResourcePlacement) -> list[tuple[str, Assertions]]:
    """Return the assertions of a manifest, by the document that has them."""
    metadata, documents = manifest.metadata, assertion_documents()
    return assertions_about(manifest.full_name, metadata.labels, metadata.annotations, documents)


@retry_on_conflict
def save_assertions(
    document: Mapping[str, Any], *, by: User | None, now: datetime, expected: int | None = None
) -> SaveResult[AssertionDocument]:
    """Create a PlacementAssertion or change it; its placements are checked soon. Raise InvalidManifest."""
    name = parse_placement_assertion(dict(document)).metadata.name
    check_change(by, what="assertions of several placements")
    current = locked_row(AssertionDocument, ASSERTION, expected, name=name)
    row = current or AssertionDocument(name=name, created_at=now, revision=0)
    saved = save_row(row, ASSERTION, document, by=by, now=now)
    if saved.result is not OperationResult.UNCHANGED:
        _have_checked(name)
    return saved


@transaction.atomic
def delete_assertions(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> None:
    """Delete a PlacementAssertion. Raise UnknownAssertionsError, RevisionConflict."""
    check_change(by, what="assertions of several placements")
    current = locked_row(AssertionDocument, ASSERTION, expected, name=name)
    if current is None:
        raise UnknownAssertionsError(name)
    delete_row(current, ASSERTION, by=by, now=now)
    _have_checked(name)


def _have_checked(changed: str) -> None:
    """Have the placements checked that a document is about, or was about."""
    documents, pks_by_state = assertion_documents(), dict[bool, list[int]]()
    before = AssertionCheck.objects.filter(documents__contains=f"|{changed}|")
    stale = set(before.values_list("placement", flat=True))
    for one in Placement.objects.filter(deleting_since=None).only("full_name", "document").iterator():
        about = _about(one, documents)
        if one.pk in stale or changed in dict(about):
            pks_by_state.setdefault(bool(about), []).append(one.pk)
    for is_asserting, several in pks_by_state.items():
        for part in batched(several):
            Placement.objects.filter(pk__in=part).update(has_assertions=is_asserting)
            AssertionCheck.objects.filter(placement__in=part).update(decisions_made=0)


def _check(
    placement: Placement, cycle: Cycle, documents: Collection[PlacementAssertion], *, now: datetime
) -> None:
    """Evaluate the assertions of a placement, save the results and record what changed."""
    about = _about(placement, documents)
    items = [one for _, assertions in about for one in assertions.items]
    results = evaluate_assertions(items, at_rest(cycle), _facts_for(placement, items, now=now))
    plain_results = [result_document(one) for one in results]
    others = {str(one.value) for one in items if one.predicate in _NAMED}
    others |= {_READ[one.predicate] for one in items if one.predicate in _READ}
    with kept([placement.pk]) as there:
        if not there:
            return
        former = AssertionCheck.objects.select_for_update().filter(placement=placement).first()
        before = {_identity(one): one["state"] for one in (former.results if former else [])}
        AssertionCheck.objects.update_or_create(
            placement=placement,
            defaults={
                "decisions_made": placement.decisions_made,
                "revision": placement.changes,
                "fleet_version": current_fleet().version,
                "checked_at": now,
                "others": f"|{'|'.join(sorted(others))}|" if others else "",
                "documents": "".join(f"|{name}|" for name, _ in about if name),
                "results": plain_results,
                "broken": sum(one.state is AssertionState.BROKEN for one in results),
                "unknown": sum(one.state is AssertionState.UNKNOWN for one in results),
            },
        )
        for one, document in zip(results, plain_results, strict=True):
            was_broken = before.get(_identity(document)) == AssertionState.BROKEN
            if was_broken is not (one.state is AssertionState.BROKEN):
                verb = "assertion holds again" if was_broken else "assertion broken"
                facts = {"assertion": assertion_sentence(one)}
                name = placement.full_name
                event = AuditEvent(verb, PLACEMENT, name, after=facts, is_warning=not was_broken)
                record(event, by=None, now=now)


def at_rest(cycle: Cycle) -> DecisionValue:
    """Return a decision that keeps the clusters of a placement, for evaluations on the fleet as it is."""
    return DecisionValue(
        cycle,
        CycleKind.NOTHING_TO_DO,
        kept=tuple(one.cluster for one in cycle.live_bindings if one.is_active),
    )


def _identity(document: dict[str, Any]) -> str:
    return f"{document['predicate']} {document['value']}"


def _facts_for(placement: Placement | None, items: Collection[Assertion], *, now: datetime) -> AssertionFacts:
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
        row = PlacementResilience.objects.filter(placement=placement).select_related("report").first()
        survived = {level: level in row.levels for level in row.report.totals} if row else None
    churn = 0
    if placement and "churn" in kinds:
        latest = Decision.objects.filter(placement=placement, created_at__gt=now - WEEK)
        sums = latest.aggregate(joins=Sum("joins_count", default=0), leaves=Sum("leaves_count", default=0))
        churn = sums["joins"] + sums["leaves"]
    return AssertionFacts(others, survived, churn)


@dataclass(frozen=True, slots=True)
class SourcedResult:
    """A result with the name of the document that asserts it, "" for the annotation of the placement."""

    document: str
    refuses: bool
    result: AssertionResult

    @property
    def is_broken(self) -> bool:
        return self.result.state is AssertionState.BROKEN

    @property
    def warning(self) -> ManifestWarning:
        sentence = assertion_sentence(self.result)
        if not self.document:
            path = annotation_path(ASSERTIONS_ANNOTATION)
            return ManifestWarning("assertion-broken", path, f"Assertion broken: {sentence}")
        message = f"Assertion of {ASSERTION_KIND} {self.document} broken: {sentence}"
        return ManifestWarning("assertion-broken", "metadata.name", message)


def assertion_results(
    manifest: ClusterResourcePlacement, decision: DecisionValue, *, saved: Placement | None, now: datetime
) -> list[SourcedResult]:
    """Evaluate the assertions of a manifest on the decision that saving it would lead to."""
    about = written_assertions(manifest)
    items = [one for _, assertions in about for one in assertions.items]
    if not items:
        return []
    facts = _facts_for(saved, items, now=now)
    if saved is not None and facts.churn is not None:
        before = {one.cluster for one in decision.cycle.live_bindings if one.is_active}
        after = {one.cluster for one in decision.bindings_after if one.is_active}
        facts = AssertionFacts(facts.others, facts.survived, facts.churn + len(before ^ after))
    sources = [(name, assertions.refuses) for name, assertions in about for _ in assertions.items]
    results = evaluate_assertions(items, decision, facts)
    return [SourcedResult(*source, one) for source, one in zip(sources, results, strict=True)]


def check_assertions_before_save(
    manifest: ClusterResourcePlacement, *, saved: Placement | None, now: datetime
) -> tuple[ManifestWarning, ...]:
    """Return the warnings of broken assertions. Raise InvalidManifest where `onBreak` is `refuse`."""
    if not written_assertions(manifest):
        return ()
    decision = schedule(draft_cycle(manifest, saved=saved, fleet=load_fleet()))
    results = assertion_results(manifest, decision, saved=saved, now=now)
    broken = [(one.refuses, one.warning) for one in results if one.is_broken]
    allowed = "a placement that keeps its assertions, or onBreak: warn"
    refused = [FieldError(one.path, one.code, one.message, allowed) for refuses, one in broken if refuses]
    if refused:
        raise InvalidManifest(refused)
    return tuple(one for _, one in broken)


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
    return getattr(placement, "assertion_check", None) if placement.has_assertions else None
