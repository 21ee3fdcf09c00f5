"""Assertions of placements: checked after every decision and change of the fleet, and before a save."""

from collections.abc import (
    Collection,
    Iterable,
)
from datetime import datetime, timedelta
from functools import lru_cache, reduce
from operator import or_
from typing import Any

from django.contrib.auth.models import User
from django.db.models import F, Q, QuerySet, Subquery, Sum

from clusters.models import FleetState
from clusters.queries import current_fleet, load_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest, ManifestWarning
from fleetui.apimachinery.words import barred
from fleetui.audit import (
    record_event,
)
from fleetui.bulk import batched
from fleetui.concurrency import check_revision, retry_on_conflict
from fleetui.permissions import check_change
from fleetui.prepared import PreparedQuery
from placements.engine.checks.asserted import BROKEN, broken_finding
from placements.engine.checks.file import NAME, parse_checks_file
from placements.engine.checks.predicates import (
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
from placements.manifests.assertions import Assertion, AssertionEntry
from placements.manifests.binding import BindingState
from placements.manifests.placement import ClusterResourcePlacement
from placements.models import (
    AssertionCheck,
    Binding,
    Decision,
    FindingsCheck,
    Placement,
    PlacementResilience,
    StoredChecksFile,
)
from placements.services.results import PLACEMENT, kept
from placements.services.snapshots import cycles_of, draft_cycle

CHECKS_FILE = "checks file"
WEEK = timedelta(days=7)
BATCH = 20
_NAMED = ("together", "apart")


def check_due(*, now: datetime) -> int:
    """Check up to 20 placements whose decision, manifest, fleet or neighbours changed; return how many."""
    rows = _first_due.rows(aged=now - RECHECK)
    if rows:
        entries = stored_entries()
        for placement, cycle in cycles_of(rows, current_fleet().fleet):
            _check(placement, cycle, entries, now=now)
    return len(rows)


def is_due(*, now: datetime) -> bool:
    return bool(_first_due.rows(aged=now - RECHECK))


@PreparedQuery
def _first_due(*, aged: datetime) -> QuerySet[Placement]:
    """Return placements with assertions whose check is not about what is there now, or aged by the clock."""
    asserting = Placement.objects.filter(
        has_assertions=True, deleting_since=None, decisions_made__gt=0
    )
    check = "assertion_check__"
    is_same = Q(
        **{
            f"{check}decisions_made": F("decisions_made"),
            f"{check}revision": F("revision") + F("hub_changes"),
            f"{check}fleet_version": Subquery(FleetState.objects.values("version")[:1]),
        }
    )
    outdated = AssertionCheck.objects.filter(
        others__contains=CLOCK, checked_at__lt=aged
    )
    due = asserting.exclude(is_same & ~Q(pk__in=outdated.values("placement")))
    return due.order_by("pk")[:BATCH]


REPORT, CLOCK = "*report", "*clock"
"""The names of the resilience report and of the time among the names that assertions read."""
_READ, RECHECK = {"survives": REPORT, "churn": CLOCK}, timedelta(hours=1)


def recheck(names: Iterable[str]) -> None:
    """Have the assertions that read one of these placements, or the resilience report, checked again."""
    reads = [Q(others__contains=f"|{name}|") for name in names]
    if reads:
        AssertionCheck.objects.filter(reduce(or_, reads)).update(decisions_made=0)


def stored_file() -> StoredChecksFile:
    """Return the `.fleetui.yaml` of the hub, an empty one of revision 0 where it has none."""
    return StoredChecksFile.objects.first() or StoredChecksFile(revision=0)


@lru_cache(maxsize=8)
def _entries_in(text: str) -> tuple[AssertionEntry, ...]:
    return parse_checks_file(text.encode()).assertions


def stored_entries() -> tuple[AssertionEntry, ...]:
    return _entries_in(stored_file().text)


def _about(
    placement: Placement, entries: Iterable[AssertionEntry]
) -> tuple[Assertion, ...]:
    metadata = placement.document["metadata"]
    labels, annotations = (metadata.get(one) or {} for one in ("labels", "annotations"))
    return assertions_about(placement.full_name, labels, annotations, entries)


def written_assertions(manifest: ClusterResourcePlacement) -> tuple[Assertion, ...]:
    """Return the assertions of a manifest, with those that the file of the hub has about it."""
    metadata = manifest.metadata
    return assertions_about(
        manifest.full_name, metadata.labels, metadata.annotations, stored_entries()
    )


@retry_on_conflict
def save_checks_file(
    text: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> StoredChecksFile:
    """Save the `.fleetui.yaml` of the hub; its placements are checked soon.

    Raise InvalidManifest, RevisionConflict.
    """
    check_change(by, what=f"{NAME} of the hub")
    entries = parse_checks_file(text.encode()).assertions
    row = StoredChecksFile.objects.select_for_update().first() or StoredChecksFile(
        revision=0
    )
    check_revision(CHECKS_FILE, NAME, expected=expected, revision=row.revision)
    if row.text == text:
        return row
    before = row.text
    row.text = text
    row.revision += 1
    row.updated_at = now
    row.save()
    record_event(
        "changed",
        CHECKS_FILE,
        NAME,
        row.revision,
        before={"text": before},
        after={"text": text},
        by=by,
        now=now,
    )
    _have_checked(entries)
    return row


def _have_checked(entries: Collection[AssertionEntry]) -> None:
    AssertionCheck.objects.update(decisions_made=0)
    pks_by_state = dict[bool, list[int]]()
    for placement in Placement.objects.only(
        "full_name", "document", "has_assertions"
    ).iterator():
        is_asserting = bool(_about(placement, entries))
        if is_asserting is not placement.has_assertions:
            pks_by_state.setdefault(is_asserting, []).append(placement.pk)
    for is_asserting, pks in pks_by_state.items():
        for part in batched(pks):
            Placement.objects.filter(pk__in=part).update(has_assertions=is_asserting)


def _check(
    placement: Placement,
    cycle: Cycle,
    entries: Collection[AssertionEntry],
    *,
    now: datetime,
) -> None:
    """Evaluate the assertions of a placement, save the results and record what changed."""
    items = _about(placement, entries)
    results = evaluate_assertions(
        items, at_rest(cycle), _facts_for(placement, items, now=now)
    )
    others = {str(item.value) for item in items if item.predicate in _NAMED}
    others |= {_READ[item.predicate] for item in items if item.predicate in _READ}
    plain_results = [
        {
            "predicate": result.assertion.predicate,
            "value": result.assertion.value,
            "entry": result.assertion.entry,
            "refuses": result.assertion.refuses,
            "name": result.name,
            "state": str(result.state),
            "evidence": list(result.evidence),
            "reason": result.reason,
        }
        for result in results
    ]
    with kept([placement.pk]) as there:
        if not there:
            return
        former = (
            AssertionCheck.objects.select_for_update()
            .filter(placement=placement)
            .first()
        )
        before = {result.name: result for result in results_of(former)}
        AssertionCheck.objects.update_or_create(
            placement=placement,
            defaults={
                "decisions_made": placement.decisions_made,
                "revision": placement.changes,
                "fleet_version": current_fleet().version,
                "checked_at": now,
                "others": barred(sorted(others)),
                "results": plain_results,
                "broken": sum(result.is_broken for result in results),
                "unknown": sum(
                    result.state is AssertionState.UNKNOWN for result in results
                ),
            },
        )
        if before != {result.name: result for result in results}:
            FindingsCheck.objects.filter(placement=placement).update(revision=0)
        for result in results:
            was_broken = result.name in before and before[result.name].is_broken
            if was_broken is not result.is_broken:
                record_event(
                    "assertion holds again" if was_broken else "assertion broken",
                    PLACEMENT,
                    placement.full_name,
                    after={"assertion": result.sentence},
                    is_warning=not was_broken,
                    by=None,
                    now=now,
                )


def results_of(check: AssertionCheck | None) -> list[AssertionResult]:
    results = []
    for stored in check.results if check else ():
        assertion = Assertion(
            stored["predicate"],
            stored["value"],
            stored["entry"],
            stored["refuses"],
        )
        state = AssertionState(stored["state"])
        results.append(
            AssertionResult(
                assertion, state, tuple(stored["evidence"]), stored["reason"]
            )
        )
    return results


def stored_results() -> dict[str, list[AssertionResult]]:
    rows = AssertionCheck.objects.filter(placement__has_assertions=True)
    rows = rows.select_related("placement").defer("placement__document")
    return {check.placement.full_name: results_of(check) for check in rows}


def at_rest(cycle: Cycle) -> DecisionValue:
    """Return a decision that keeps the clusters of a placement, for evaluations on the fleet as it is."""
    return DecisionValue(
        cycle,
        CycleKind.NOTHING_TO_DO,
        kept=tuple(
            binding.cluster for binding in cycle.live_bindings if binding.is_active
        ),
    )


def _facts_for(
    placement: Placement | None, items: Collection[Assertion], *, now: datetime
) -> AssertionFacts:
    names = {str(item.value) for item in items if item.predicate in _NAMED}
    others: dict[str, Any] = dict.fromkeys(names)
    there = Placement.objects.filter(full_name__in=names).values_list(
        "full_name", flat=True
    )
    others |= {name: set() for name in there}
    rows = Binding.objects.filter(placement__full_name__in=names).exclude(
        state=BindingState.UNSCHEDULED
    )
    for name, cluster in rows.values_list("placement__full_name", "cluster_name"):
        others[name].add(cluster)
    if placement is None:
        return AssertionFacts(others, None, 0)
    kinds = {item.predicate for item in items}
    survived = None
    if "survives" in kinds:
        row = (
            PlacementResilience.objects.filter(placement=placement)
            .select_related("report")
            .first()
        )
        survived = (
            {level: level in row.levels for level in row.report.totals} if row else None
        )
    churn = 0
    if "churn" in kinds:
        latest = Decision.objects.filter(placement=placement, created_at__gt=now - WEEK)
        sums = latest.aggregate(
            joins=Sum("joins_count", default=0), leaves=Sum("leaves_count", default=0)
        )
        churn = sums["joins"] + sums["leaves"]
    return AssertionFacts(others, survived, churn)


def assertion_results(
    manifest: ClusterResourcePlacement,
    decision: DecisionValue,
    *,
    saved: Placement | None,
    now: datetime,
) -> list[AssertionResult]:
    """Evaluate the assertions of a manifest on the decision that saving it would lead to."""
    items = written_assertions(manifest)
    if not items:
        return []
    facts = _facts_for(saved, items, now=now)
    if saved is not None and facts.churn is not None:
        moved = decision.cycle.placed_before ^ decision.placed_after
        facts = AssertionFacts(facts.others, facts.survived, facts.churn + len(moved))
    return evaluate_assertions(items, decision, facts)


def assertion_warning(result: AssertionResult) -> ManifestWarning:
    finding = broken_finding(result)
    return ManifestWarning(BROKEN, finding.path, finding.message)


def check_assertions_before_save(
    manifest: ClusterResourcePlacement, *, saved: Placement | None, now: datetime
) -> tuple[ManifestWarning, ...]:
    """Return the warnings of broken assertions. Raise InvalidManifest where `onBreak` is `refuse`."""
    decision = schedule(draft_cycle(manifest, saved=saved, fleet=load_fleet()))
    results = assertion_results(manifest, decision, saved=saved, now=now)
    broken = [
        (result.assertion.refuses, assertion_warning(result))
        for result in results
        if result.is_broken
    ]
    allowed = "a placement that keeps its assertions, or onBreak: warn"
    refused = [
        FieldError(warning.path, warning.code, warning.message, allowed)
        for refuses, warning in broken
        if refuses
    ]
    if refused:
        raise InvalidManifest(refused)
    return tuple(warning for _, warning in broken)


def check_of(placement: Placement) -> AssertionCheck | None:
    return (
        getattr(placement, "assertion_check", None)
        if placement.has_assertions
        else None
    )
