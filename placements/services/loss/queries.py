"""Reads of resilience reports: the worst losses, the weakest placements, and the trend."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet, Subquery

from clusters.models import FleetState, MemberCluster
from clusters.queries import counters, current_fleet
from fleetui.bulk import filter_by
from fleetui.errors import UnknownObject
from placements.engine.loss import (
    CLUSTER,
    LossCounts,
    Weakness,
    default_keys,
    domains_of,
    level_rank,
    pair_key,
)
from placements.engine.status import PlacementHealth
from placements.explain.loss import worst_by_level
from placements.models import (
    Placement,
    PlacementResilience,
    ResilienceLoss,
    ResilienceReport,
)
from placements.services.loss.report import cells_of, changed_placements, latest_report

TREND = 12
MOST_LEVELS = 4
MOST_ALONE = 40
"""Up to this number, each placement has a separate column."""


class NoReportError(UnknownObject):
    problem_type = "no-report"

    def __init__(self) -> None:
        super().__init__("no resilience report yet")


@dataclass(frozen=True, slots=True)
class ReportAge:
    """Whether a report is about the fleet and the placements as they are."""

    is_other_fleet: bool
    changed: int

    @property
    def is_outdated(self) -> bool:
        return self.is_other_fleet or bool(self.changed)


def age_of(report: ResilienceReport) -> ReportAge:
    return ReportAge(
        report.fleet_version != counters()[0], changed_placements().count()
    )


def loss_advice() -> dict[str, str] | None:
    """Return the worst loss of the latest report as advice, with what changed since then; None without one.

    None as well where no cluster of the report is left.
    """
    report = latest_report()
    if report is None:
        return None
    if not MemberCluster.objects.filter(joined_at__lte=report.completed_at).exists():
        return None
    levels = worst_by_level(report.totals, report.variants[-1])
    bad = [level for level in levels[:MOST_LEVELS] if level.is_bad]
    if not bad:
        return None
    worst, *others = bad
    age = age_of(report)
    details = " ".join(other.sentence for other in others)
    if age.is_other_fleet:
        details = "Computed for an earlier version of the fleet."
    elif age.changed:
        details = f"Newer decisions since then: {age.changed:,}."
    return {"title": worst.sentence.removesuffix("."), "details": details}


def report_in_progress() -> ResilienceReport | None:
    return (
        ResilienceReport.objects.filter(evaluate_at__isnull=False)
        .order_by("pk")
        .first()
    )


def trend(*, most: int = TREND) -> list[ResilienceReport]:
    """Return the latest completed reports, the newest first."""
    rows = ResilienceReport.objects.filter(completed_at__isnull=False).order_by("-pk")
    return list(rows[:most])


def worst_domain() -> Weakness | None:
    """Return the domain whose loss is the worst of the latest report; before it, one with many clusters."""
    report = latest_report()
    if report is not None:
        worst = worst_losses(report, report.variants[-1]).exclude(level=CLUSTER).first()
        if worst is not None and not pair_key(worst.level):
            return Weakness(worst.level, worst.value)
    fleet = current_fleet().fleet
    domains = domains_of(fleet, default_keys(fleet, ()), has_clusters=False)
    largest = max(domains, key=lambda domain: len(domain.clusters), default=None)
    return Weakness(largest.level, largest.value) if largest else None


def worst_losses(
    report: ResilienceReport, variant: str, level: str = ""
) -> QuerySet[ResilienceLoss]:
    """Return the losses of one variant, the worst first, without their cells."""
    rows = filter_by(report.losses.defer("cells"), variant=variant, level=level)
    return rows.order_by("-unfulfilled", "-empty", "-lost", "level", "value")


def _groups_of(
    placements: Collection[tuple[int, str, str, Mapping[str, str]]],
) -> tuple[str, dict[int, str]]:
    candidates = (
        ("team", {key: labels.get("team", "") for key, _, _, labels in placements}),
        ("namespace", {key: namespace for key, _, namespace, _ in placements}),
    )
    for word, groups in candidates:
        if len(set(groups.values())) > 1 and len(placements) > MOST_ALONE:
            return word, {key: group or f"no {word}" for key, group in groups.items()}
    return "placement", {key: name for key, name, _, _ in placements}


def survival_by_group(
    losses: Iterable[ResilienceLoss],
    placements: Collection[tuple[int, str, str, Mapping[str, str]]],
) -> tuple[str, list[dict[str, tuple[int, int]]]]:
    """Return what placements are grouped by, and for each loss the placements and the bad ones by group.

    Placements are (key, full name, namespace, labels). They are grouped by the label `team` or by namespace
    where that is more than one group; few placements, or those that have neither, are separate groups.
    """
    by, names = _groups_of(placements)
    counts_by_loss = []
    for loss in losses:
        counts: dict[str, tuple[int, int]] = {}
        for key, cell in cells_of(loss).items():
            if key in names:
                total, bad = counts.get(names[key], (0, 0))
                counts[names[key]] = (total + 1, bad + cell.is_bad)
        counts_by_loss.append(counts)
    return by, counts_by_loss


def weakest_placements(report: ResilienceReport) -> list[PlacementResilience]:
    """Return the placements with a weakest point, the smallest losses first."""
    rows = report.placements.exclude(weakest_level="").select_related("placement")
    rows = rows.defer("placement__document").order_by("placement__full_name")
    return sorted(rows, key=lambda one: level_rank(one.weakest_level))


@dataclass(frozen=True, slots=True)
class ReportedLoss:
    level: str
    value: str
    variant: str
    cell: LossCounts


def losses_for(report: ResilienceReport, placement: Placement) -> list[ReportedLoss]:
    """Return the losses that concern a placement, by level; of single clusters those that cost something."""
    losses = [
        ReportedLoss(row.level, row.value, row.variant, cells[placement.pk])
        for row in report.losses.order_by("value", "pk").iterator(chunk_size=200)
        if placement.pk in (cells := cells_of(row))
    ]
    return sorted(losses, key=lambda one: level_rank(one.level))


def resilience_of(placement: Placement) -> PlacementResilience | None:
    return (
        PlacementResilience.objects.filter(placement=placement)
        .select_related("report")
        .first()
    )


def resilience_in(placement: Placement) -> PlacementResilience | None:
    """Return the result of the latest report for a placement that was read with it."""
    return getattr(placement, "resilience", None)


def current_resilience(
    placement: Placement, health: PlacementHealth
) -> PlacementResilience | None:
    """Return the same; None while no cluster has the resources: nothing of it survives a loss."""
    if not health.counts.available:
        return None
    return resilience_in(placement)


def with_fleet_version(placements: QuerySet[Placement]) -> QuerySet[Placement]:
    return placements.annotate(
        fleet_version=Subquery(FleetState.objects.values("version")[:1])
    )


def is_outdated(placement: Any) -> bool:
    """Return whether fleet or decision changed since the report of a placement `with_fleet_version`."""
    row = placement.resilience
    is_other_fleet = row.report.fleet_version != placement.fleet_version
    return is_other_fleet or row.decisions_made != placement.decisions_made


def levels_in(placements: Iterable[Placement]) -> list[str]:
    """Return the levels of the report of these placements, which were read with it."""
    reports = (
        placement.report for placement in map(resilience_in, placements) if placement
    )
    return next((list(report.totals) for report in reports), [])
