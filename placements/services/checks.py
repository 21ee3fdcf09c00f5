"""Examinations by the checks: of all placements of the hub, of a draft, and of manifests in files."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from time import monotonic
from types import MappingProxyType
from typing import Any

from django.conf import settings
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Count, F, Max, Q, QuerySet, Subquery, Sum

from clusters.drivers.readiness import is_trackable
from clusters.fleet import Fleet
from clusters.models import FleetState, MemberCluster
from clusters.queries import current_fleet
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.hub_scope import current_hub_id
from fleetui.models import Event
from placements.engine.checks.examination import (
    OF_WARNINGS,
    RULES,
    Examination,
    examine_fleet,
    examine_placement,
    rules_named,
)
from placements.engine.checks.findings import (
    Case,
    Finding,
    Fix,
    Needs,
    Severity,
    flat,
    put,
    worst_of,
)
from placements.engine.checks.predicates import AssertionResult
from placements.engine.overlaps import Overlap, all_overlaps
from placements.engine.overrides import Override as OverrideManifest
from placements.engine.scheduling.cycle import Cycle
from placements.manifests.override import OVERRIDE_PARSERS
from placements.manifests.placement import ClusterResourcePlacement, parse_placement
from placements.models import AssertionCheck, FindingsCheck, Override, Placement
from placements.services.assertions import (
    check_of,
    results_of,
    stored_file,
    stored_results,
)
from placements.services.results import PLACEMENT, kept
from placements.services.snapshots import applied_objects, cycles_of, placed_objects

MUTE_ANNOTATION = "fleetui.io/checks"
KEPT_SECONDS = 300
_LOG = logging.getLogger(__name__)
_INDEX = re.compile(r"\[\d+\]")
_MUTED = re.compile(r"-([A-Z][0-9]{2}|[a-z]+(?:-[a-z]+)+)")
if _UNKNOWN := sorted(rules_named(settings.CHECKS_MUTED) - RULES.keys()):
    raise ImproperlyConfigured(
        f"FLEETUI_CHECKS_MUTED: unknown rules: {', '.join(_UNKNOWN)} (allowed: {', '.join(RULES)})"
    )


@dataclass(frozen=True)
class FindingsReport:
    """What is found in the labels of the fleet, and by placement."""

    fleet: Examination
    placements: Mapping[str, Examination]
    fleet_version: int = 0

    @cached_property
    def findings(self) -> list[tuple[str, Finding]]:
        """Return all findings by cause, each with its placement; "" for those about the fleet.

        What the labels of the fleet cause in placements is below the finding about the labels.
        """
        caused: dict[tuple[str, str], list[Finding]] = {}
        own = []
        for name, examination in self.placements.items():
            for finding in examination.findings:
                if finding.rule[0] != "H":
                    own.append((name, finding))
                    continue
                below = (
                    replace(each, message=f"{name}: {each.message}")
                    for each in finding.caused
                )
                caused.setdefault((finding.rule, finding.path), []).extend(below)
        fleet = [
            (
                "",
                worst_of(
                    replace(
                        finding,
                        caused=(
                            *finding.caused,
                            *caused.get((finding.rule, finding.path), ()),
                        ),
                    )
                ),
            )
            for finding in self.fleet.findings
        ]
        return fleet + own

    def findings_of(
        self, placement: str, rule: str = "", severity: str = "", text: str = ""
    ) -> list[tuple[str, Finding]]:
        """Return the findings of one placement, those about labels that cause others too; "" for all.

        `rule` is an id or the code of a warning; a finding of it may be below another. `text` is part of the
        name of the placement or of the message.
        """
        findings = self.findings
        if placement:
            own = self.placements.get(placement)
            findings = [(placement, finding) for finding in own.findings] if own else []
        findings = [
            (name, finding)
            for name, finding in findings
            if severity in ("", str(finding.severity))
            and text.lower() in f"{name} {finding.message}".lower()
        ]
        rules = rules_named([rule])
        if not rule:
            return findings
        return [
            pair
            for pair in findings
            if not rules.isdisjoint(finding.rule for finding in flat([pair[1]]))
        ]


def muted_rules(annotations: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the rules that the settings mute, and those of an annotation such as `-S07,-N04`."""
    text = (annotations or {}).get(MUTE_ANNOTATION, "")
    return rules_named([*settings.CHECKS_MUTED, *_MUTED.findall(text)])


def current_report() -> FindingsReport:
    """Return the examination of all placements; computed once for each state of the fleet and placements."""
    view = current_fleet()
    counters = (Sum("revision"), Sum("hub_changes"), Sum("decisions_made"))
    facts = Placement.objects.aggregate(Count("pk"), Max("pk"), *counters)
    of_overrides = Override.objects.aggregate(Count("pk"), Max("pk"), Sum("revision"))
    sums = (Sum("broken"), Sum("unknown"))
    of_assertions = AssertionCheck.objects.aggregate(
        Count("pk"), Max("checked_at"), *sums
    )
    numbers = (
        current_hub_id(),
        view.version,
        *facts.values(),
        *of_overrides.values(),
        *of_assertions.values(),
        stored_file().revision,
    )
    key = "-".join(("checks", *(str(number).replace(" ", "_") for number in numbers)))
    report: FindingsReport | None = caches["process"].get(key)
    if report is None:
        rows = Placement.objects.filter(deleting_since=None).order_by("full_name")
        several = []
        for row, cycle in cycles_of(list(rows), view.fleet):
            with suppress(
                InvalidManifest
            ):  # a live hub may have a placement of a newer API
                several.append((row.full_name, parse_placement(row.document), cycle))
        overrides = []
        for written in Override.objects.order_by("kind", "namespace", "name"):
            with suppress(InvalidManifest):
                overrides.append(OVERRIDE_PARSERS[written.kind](written.document))
        overlaps = all_overlaps(placed_objects(applied_objects()))
        examined = examine(
            view.fleet, several, overrides, overlaps=overlaps, asserted=stored_results()
        )
        report = replace(examined, fleet_version=view.version)
        caches["process"].set(key, report, KEPT_SECONDS)
    return report


EVERY = timedelta(minutes=10)
"""Minimum time between two checks of a placement that changes of a large fleet cause."""
SOON = timedelta(minutes=1)
_SMALL = 500
BATCH = 20
_WORST = 3


def check_due(*, now: datetime) -> int:
    """Check up to 20 placements that changed, or whose fleet did, and save the counts; return how many."""
    rows = list(
        due_checks(now=now).select_related("assertion_check").order_by("pk")[:BATCH]
    )
    if not rows:
        return 0
    view = current_fleet()
    key = f"checks-fleet-{current_hub_id()}-{view.version}"
    make = partial(fleet_examination, view.fleet)
    hygiene: Examination | None = caches["process"].get_or_set(key, make, KEPT_SECONDS)
    overlaps = all_overlaps(placed_objects(applied_objects()))
    examinations = dict.fromkeys(rows, Examination(()))
    for row, cycle in cycles_of(rows, view.fleet):
        with suppress(InvalidManifest):
            examinations[row] = examine_one(
                parse_placement(row.document),
                cycle,
                hygiene.findings if hygiene else (),
                overlaps=overlaps.get(row.full_name, ()),
                asserted=results_of(check_of(row)),
            )
    order = list(Severity)
    for row, examination in examinations.items():
        several = sorted(
            examination.findings, key=lambda one: order.index(one.severity)
        )
        counts = Counter(finding.severity for finding in several)
        with kept([row.pk]) as there:
            if not there:
                continue
            FindingsCheck.objects.update_or_create(
                placement=row,
                defaults={
                    "revision": row.changes,
                    "fleet_version": view.version,
                    "checked_at": now,
                    "errors": counts[Severity.ERROR],
                    "warnings": counts[Severity.WARNING],
                    "infos": counts[Severity.INFO],
                    "muted": examination.muted,
                    "worst": [
                        {
                            "rule": finding.rule,
                            "severity": str(finding.severity),
                            "message": finding.message,
                            "path": finding.path,
                        }
                        for finding in several[:_WORST]
                    ],
                },
            )
    return len(rows)


def is_due(*, now: datetime) -> bool:
    return due_checks(now=now).exists()


def due_checks(*, now: datetime) -> QuerySet[Placement]:
    """Return the placements with another manifest than at their check, or a while after it another fleet.

    A warning may be about the objects of a placement that was deleted since.
    """
    version = Subquery(FleetState.objects.values("version")[:1])
    size = max(MemberCluster.objects.count(), Placement.objects.count())
    every = SOON if size <= _SMALL else EVERY
    is_fresh = Q(findings_check__fleet_version=version) | Q(
        findings_check__checked_at__gt=now - every
    )
    deletions = Event.objects.filter(kind=PLACEMENT, verb="deleted")
    if deleted := deletions.order_by("-id").values_list("at", flat=True).first():
        is_fresh &= Q(findings_check__warnings=0) | Q(
            findings_check__checked_at__gte=deleted
        )
    return Placement.objects.filter(deleting_since=None, decisions_made__gt=0).exclude(
        Q(findings_check__revision=F("revision") + F("hub_changes")) & is_fresh
    )


def counts_of(placement: Placement) -> FindingsCheck | None:
    return getattr(placement, "findings_check", None)


def has_older_findings(placement: Any) -> bool:
    # The placement is loaded `with_fleet_version`.
    check = counts_of(placement)
    return check is not None and (
        check.revision != placement.changes
        or check.fleet_version != placement.fleet_version
    )


def fleet_examination(
    fleet: Fleet, overrides: Sequence[OverrideManifest] = ()
) -> Examination:
    return _log_errors(examine_fleet(fleet, overrides, muted=muted_rules()))


def _log_errors(examination: Examination) -> Examination:
    for error in examination.errors:
        _LOG.error("A rule of the checks failed", exc_info=error)
    return examination


def examine(
    fleet: Fleet,
    placements: Iterable[tuple[str, ClusterResourcePlacement, Cycle]],
    overrides: Sequence[OverrideManifest] = (),
    *,
    clock: Callable[[], float] = monotonic,
    overlaps: Mapping[str, Collection[Overlap]] = MappingProxyType({}),
    asserted: Mapping[str, Collection[AssertionResult]] = MappingProxyType({}),
) -> FindingsReport:
    """Return the examination of a fleet with its overrides, and of placements, each with its cycle.

    Bindings do not count. `overlaps` and `asserted`, the results of assertions, are by placement.
    """
    labels = fleet_examination(fleet, overrides)
    examinations = {
        name: examine_one(
            manifest,
            cycle,
            labels.findings,
            clock=clock,
            overlaps=overlaps.get(name, ()),
            asserted=asserted.get(name, ()),
        )
        for name, manifest, cycle in placements
    }
    return FindingsReport(labels, examinations)


def has_timed_objects(manifest: ClusterResourcePlacement) -> bool:
    """Return whether a selector names a kind whose readiness cannot be observed."""
    return any(
        not is_trackable(
            f"{selector.group}/{selector.version}"
            if selector.group
            else selector.version,
            selector.kind,
        )
        for selector in manifest.spec.resource_selectors
    )


def examine_one(
    manifest: ClusterResourcePlacement,
    cycle: Cycle,
    hygiene: Iterable[Finding] = (),
    *,
    clock: Callable[[], float] = monotonic,
    kept: Collection[int] = (),
    overlaps: Collection[Overlap] = (),
    asserted: Collection[AssertionResult] = (),
) -> Examination:
    """Return the examination of one placement; `hygiene` are the findings about the fleet."""
    case = Case(
        replace(cycle, bindings=()),
        manifest.spec.strategy.rolling_update,
        clock,
        kept,
        len(cycle.placed),
        overlaps,
        is_timed=has_timed_objects(manifest),
        asserted=asserted,
    )
    return _log_errors(
        examine_placement(
            case, hygiene, muted=muted_rules(manifest.metadata.annotations)
        )
    )


def introduced(
    before: Iterable[Finding], after: Iterable[Finding]
) -> tuple[Finding, ...]:
    """Return the findings that are new, with those below them; their places in lists may differ."""
    known = {_identity(finding) for finding in flat(before)}
    return tuple(
        replace(finding, caused=())
        for finding in flat(after)
        if _identity(finding) not in known
    )


def _identity(one: Finding) -> tuple[Any, ...]:
    evidence = tuple(pair for pair in one.evidence if not pair[1].isdigit())
    return one.rule, _INDEX.sub("", one.path), evidence


WARNED = frozenset({*OF_WARNINGS, "N05", "R01", "P01"})
"""Rules whose findings are warnings of the editor already."""


def quick_findings(
    manifest: ClusterResourcePlacement,
    cycle: Cycle,
    asserted: Collection[AssertionResult] = (),
) -> tuple[Finding, ...]:
    """Return what is found without a further run of the scheduler, apart from warnings of the editor."""
    strategy = manifest.spec.strategy.rolling_update
    kept = cycle.placed.tolist()
    case = Case(replace(cycle, bindings=()), strategy, kept=kept, asserted=asserted)
    muted = muted_rules(manifest.metadata.annotations) | WARNED
    return _log_errors(
        examine_placement(
            case, muted=muted, needs=(Needs.POLICY, Needs.FLEET, Needs.ASSERTIONS)
        )
    ).findings


def fixed_document(document: Mapping[str, Any], fix: Fix) -> dict[str, Any]:
    changed = deepcopy(dict(document))
    for path, value in fix.edits:
        put(changed["spec"], path, value)
    return changed
