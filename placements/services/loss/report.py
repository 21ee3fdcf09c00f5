"""Runs of the resilience report, in chunks of losses; a changed placement is evaluated alone."""

import zlib
from collections.abc import (
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from datetime import datetime, timedelta
from time import perf_counter
from typing import Any

import numpy as np
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet

from clusters.fleet import Fleet
from clusters.queries import counters, current_fleet
from fleetui.apimachinery.errors import (
    FieldError,
    raise_errors,
)
from fleetui.apimachinery.words import barred
from fleetui.audit import SYSTEM, actor_name
from fleetui.bulk import batched
from fleetui.task_queue import enqueue
from placements.engine.loss import (
    CLUSTER,
    MOST_PAIRED,
    EvaluatedPlacement,
    LossCounts,
    LossVariant,
    LostDomain,
    PlacementIndex,
    default_keys,
    domains_of,
    level_rank,
    pair_key,
    weakest_point,
)
from placements.models import (
    Placement,
    PlacementResilience,
    ResilienceLoss,
    ResilienceReport,
)
from placements.services.assertions import REPORT, recheck
from placements.services.decisions.records import fleet_of, fleet_record_of
from placements.services.loss.evaluation import facts_of, valid_placements
from placements.services.snapshots import cycles_of

TASK = "placements.tasks.evaluate_resilience"
LEASE = timedelta(seconds=60)
EVERY = timedelta(hours=1)
"""Minimum time between two runs that a change of a large fleet starts."""
CHANGED_EVERY = timedelta(minutes=1)  # also of a fleet with up to 500 losses
CHUNK = 50
PIECE = 2.0
AT_ONCE = 0.2
SMALL_FLEET = 500
MOST_CLUSTERS = 5_000
"""In a larger fleet, domains alone are evaluated."""
MOST_KEYS = 10
KEPT = 1_000
_FORMER = np.dtype(
    [
        ("placement", "<u8"),
        ("kept", "<u4"),
        ("moved", "<u4"),
        ("lost", "<u4"),
        ("flags", "u1"),
    ]
)
_CELL = np.dtype([*_FORMER.descr, ("skew", "<u4")])
_Rows = dict[tuple[str, str, str], dict[int, LossCounts]]


def _input_errors(
    fleet: Fleet, keys: Sequence[str], variants: Sequence[str]
) -> Iterator[FieldError]:
    allowed = list(map(str, LossVariant))
    for at, variant in enumerate(variants):
        if variant not in allowed:
            message = f"Unsupported value: {variant[:63]!r}"
            yield FieldError(
                f"variants[{at}]", "not-one-of", message, ", ".join(allowed)
            )
    for at, key in enumerate(keys):
        domains = len(fleet.label(pair_key(key) or key).values)
        if not domains:
            message = f"Invalid value: {key[:63]!r}: no cluster has this label"
            yield FieldError(f"keys[{at}]", "unsatisfiable", message)
        elif pair_key(key) and domains > MOST_PAIRED:
            message = f"Too many: {pair_key(key)[:63]!r} has {domains} domains"
            most = f"at most {MOST_PAIRED} for pairs"
            yield FieldError(f"keys[{at}]", "too-many", message, most)
    if len(keys) > MOST_KEYS:
        message = f"Too many: {len(keys)}"
        yield FieldError("keys", "too-many", message, f"at most {MOST_KEYS}")


def start_report(
    *,
    keys: Sequence[str] = (),
    variants: Sequence[str] = (),
    by: User | None,
    now: datetime,
) -> ResilienceReport:
    """Create a report and start it: immediately on a small fleet, otherwise in a worker.

    A report in progress for the same keys and variants is continued instead, for a moment here. Raise
    InvalidManifest.
    """
    fleet = current_fleet().fleet
    raise_errors(_input_errors(fleet, keys, variants))
    levels = sorted(set(keys), key=level_rank)
    if not keys:
        cycles = cycles_of(valid_placements(), fleet, where=Q(pk__in=()))
        levels = list(default_keys(fleet, [cycle.policy for _, cycle in cycles]))
    kinds = [one for one in map(str, LossVariant) if one in variants or not variants]
    open_reports = ResilienceReport.objects.filter(evaluate_at__isnull=False)
    row = next(
        (
            report
            for report in open_reports
            if (report.keys, report.variants) == (levels, kinds)
        ),
        None,
    )
    seconds = PIECE
    is_started = True
    if row is None:
        seconds = AT_ONCE
        is_started = len(fleet) <= SMALL_FLEET
        row = ResilienceReport.objects.create(
            keys=levels,
            variants=kinds,
            created_at=now,
            created_by=actor_name(by),
            evaluate_at=now,
        )
    if is_started and _claim(row, now=now):
        _evaluate(row, now=now, seconds=seconds)
    if row.evaluate_at is not None:
        enqueue(TASK)
    return row


def evaluate_due(*, now: datetime) -> int:
    """Continue the oldest due report, start one after a change, or evaluate changed placements."""
    row = (
        ResilienceReport.objects.filter(evaluate_at__lte=now)
        .order_by("evaluate_at", "pk")
        .first()
    )
    if row is not None:
        if _claim(row, now=now):
            _evaluate(row, now=now, seconds=PIECE)
            return 1
        return 0
    latest = latest_report()
    if _is_run_due(latest, now=now):
        start_report(by=None, now=now)
        return 1
    if latest is not None and _are_changes_due(latest, now=now):
        update_changed(latest, now=now)
    return 0


def is_due(*, now: datetime) -> bool:
    if ResilienceReport.objects.filter(evaluate_at__isnull=False).exists():
        return ResilienceReport.objects.filter(evaluate_at__lte=now).exists()
    latest = latest_report()
    return _is_run_due(latest, now=now) or (
        latest is not None and _are_changes_due(latest, now=now)
    )


def latest_report() -> ResilienceReport | None:
    return (
        ResilienceReport.objects.filter(completed_at__isnull=False)
        .order_by("-pk")
        .first()
    )


def changed_placements() -> QuerySet[Placement]:
    """Return the placements with a decision that the latest report does not know."""
    rows = valid_placements().filter(decisions_made__gt=0)
    return rows.exclude(resilience__decisions_made=F("decisions_made"))


def _is_run_due(latest: ResilienceReport | None, *, now: datetime) -> bool:
    if latest is None:
        return Placement.objects.filter(decisions_made__gt=0).exists()
    every = CHANGED_EVERY if latest.losses_count <= SMALL_FLEET else EVERY
    return latest.created_at <= now - every and latest.fleet_version != counters()[0]


def _are_changes_due(latest: ResilienceReport, *, now: datetime) -> bool:
    if latest.fleet_version != counters()[0]:
        return False
    was_now = latest.completed_at is None or latest.completed_at > now - CHANGED_EVERY
    return not was_now and changed_placements().exists()


def _claim(row: ResilienceReport, *, now: datetime) -> bool:
    due = ResilienceReport.objects.filter(pk=row.pk, evaluate_at__lte=now)
    return bool(due.update(evaluate_at=now + LEASE))


def _evaluate(row: ResilienceReport, *, now: datetime, seconds: float) -> None:
    """Evaluate chunks of losses until the time is over or all are done."""
    until = perf_counter() + seconds
    row.refresh_from_db()
    if row.fleet_id is None:
        view = current_fleet()
        row.losses.all().delete()
        row.fleet, row.fleet_version, row.done = fleet_record_of(view), view.version, 0
        row.has_clusters = len(view.fleet) <= MOST_CLUSTERS
        row.losses_count = len(
            domains_of(view.fleet, row.keys, has_clusters=row.has_clusters)
        )
        row.save(
            update_fields=[
                "fleet",
                "fleet_version",
                "done",
                "has_clusters",
                "losses_count",
            ]
        )
    fleet = fleet_of(row.fleet_id)
    losses = domains_of(fleet, row.keys, has_clusters=row.has_clusters)
    subjects, counts = _subjects(valid_placements(), fleet)
    placed = PlacementIndex(subjects)
    while row.done < len(losses):
        chunk = losses[row.done : row.done + CHUNK]
        by_loss = _cells(chunk, placed, fleet, row.variants)
        with transaction.atomic():
            mine = ResilienceReport.objects.filter(
                pk=row.pk, done=row.done, completed_at=None
            )
            if not mine.update(done=row.done + len(chunk), evaluate_at=now + LEASE):
                return  # another worker was quicker
            sizes = {
                (domain.level, domain.value): len(domain.clusters) for domain in chunk
            }
            rows = [
                _loss(row, *key, sizes[key[:2]], cells)
                for key, cells in by_loss.items()
            ]
            ResilienceLoss.objects.bulk_create(
                [loss for loss in rows if loss], batch_size=200
            )
        row.done += len(chunk)
        if perf_counter() > until:
            break
    if row.done < len(losses):
        row.evaluate_at = now
        row.save(update_fields=["evaluate_at"])
        return
    with transaction.atomic():
        row.placements_count, row.completed_at, row.evaluate_at, row.fleet = (
            len(counts),
            now,
            None,
            None,
        )
        row.totals = _totals(row)
        row.save()
        PlacementResilience.objects.all().delete()
        _write_placements(row, subjects, counts)
        recheck([REPORT])
        others = ResilienceReport.objects.exclude(pk=row.pk).filter(
            completed_at__isnull=False
        )
        ResilienceLoss.objects.filter(report__in=others).delete()
        newest = others.order_by("-pk").values_list("pk", flat=True)[:KEPT]
        others.exclude(pk__in=list(newest)).delete()
        # Of runs that a worker starts within an hour, the history keeps one.
        own = others.filter(created_by=SYSTEM).order_by("-pk")
        for kept in own.values_list("created_at", flat=True)[1:2]:
            own.filter(created_at__gt=kept, created_at__lt=kept + EVERY).delete()


def _subjects(
    rows: QuerySet[Placement], fleet: Fleet
) -> tuple[dict[int, EvaluatedPlacement], dict[int, int]]:
    """Return the placements to evaluate by key, and the number of decisions of each."""
    placements = list(
        rows.filter(decisions_made__gt=0).order_by("pk")
    )  # cycles read their documents
    subjects = {
        placement.pk: facts_of(placement, cycle)
        for placement, cycle in cycles_of(placements, fleet)
    }
    return subjects, {
        placement.pk: placement.decisions_made
        for placement in placements
        if placement.pk in subjects
    }


def _cells(
    losses: Iterable[LostDomain],
    placed: PlacementIndex,
    fleet: Fleet,
    variants: Sequence[str],
) -> _Rows:
    """Return the cells of each loss and variant; of single clusters those in which something is lost."""
    by_loss: _Rows = {}
    for loss in losses:
        for variant, cells in placed.counts(
            fleet, loss.clusters, map(LossVariant, variants)
        ):
            worse = {
                key: counts
                for key, counts in cells.items()
                if counts.lost or counts.is_bad
            }
            by_loss[loss.level, loss.value, variant] = (
                worse if loss.level == CLUSTER else cells
            )
    return by_loss


def _loss(
    report: ResilienceReport,
    level: str,
    value: str,
    variant: str,
    size: int,
    cells: Mapping[int, LossCounts],
) -> ResilienceLoss | None:
    if level == CLUSTER and not cells:
        return None
    flags = [(cell.is_unfulfilled + 2 * cell.is_empty) for cell in cells.values()]
    rows = [
        (key, counts.kept, counts.moved, counts.lost, flag, counts.skew)
        for (key, counts), flag in zip(cells.items(), flags, strict=True)
    ]
    return ResilienceLoss(
        report=report,
        level=level,
        value=value,
        variant=variant,
        clusters_count=size,
        placements_count=len(cells),
        lost=sum(cell.lost for cell in cells.values()),
        moved=sum(cell.moved for cell in cells.values()),
        unfulfilled=sum(cell.is_unfulfilled for cell in cells.values()),
        empty=sum(cell.is_empty for cell in cells.values()),
        cells=zlib.compress(np.array(rows, dtype=_CELL).tobytes()),
    )


def cells_of(row: ResilienceLoss) -> dict[int, LossCounts]:
    """Return the cells of a loss by the key of the placement; reports of older versions have no skew."""
    data = zlib.decompress(bytes(row.cells))
    is_former = len(data) == row.placements_count * _FORMER.itemsize
    return {
        key: LossCounts(kept, moved, lost, bool(flags & 1), bool(flags & 2), *skew)
        for key, kept, moved, lost, flags, *skew in np.frombuffer(
            data, dtype=_FORMER if is_former else _CELL
        ).tolist()
    }


def _totals(row: ResilienceReport) -> dict[str, Any]:
    """Return by level and variant the worst counts, each with the domain that has it."""
    totals: dict[str, Any] = {
        level: {variant: {} for variant in row.variants} for level in levels_of(row)
    }
    columns = ("level", "value", "variant", "unfulfilled", "empty", "lost")
    for level, value, variant, *numbers in row.losses.order_by("pk").values_list(
        *columns
    ):
        worst = totals[level][variant]
        for name, number in zip(columns[3:], numbers, strict=True):
            if number > worst.get(name, {"count": 0})["count"]:
                worst[name] = {"count": number, "value": value}
    return totals


def levels_of(row: ResilienceReport) -> list[str]:
    """Return the levels of a report: cluster first, then the keys."""
    return sorted([*([CLUSTER] if row.has_clusters else []), *row.keys], key=level_rank)


def _write_placements(
    row: ResilienceReport,
    subjects: Mapping[int, EvaluatedPlacement],
    counts: Mapping[int, int],
) -> None:
    bad: dict[int, list[tuple[str, str, int]]] = {key: [] for key in counts}
    for loss in row.losses.order_by("pk").iterator(chunk_size=200):
        for key, cell in cells_of(loss).items():
            if cell.is_bad and key in bad:
                bad[key].append((loss.level, loss.value, cell.lost))
    rows = []
    for key, decisions_made in counts.items():
        levels = levels_of(row) if subjects[key].placed else []
        result = _resilience_of(levels, bad[key])
        rows.append(
            PlacementResilience(
                placement_id=key, report=row, decisions_made=decisions_made, **result
            )
        )
    there = set[int]()
    for part in batched(list(counts)):
        there |= set(Placement.objects.filter(pk__in=part).values_list("pk", flat=True))
    PlacementResilience.objects.bulk_create(
        [resilience for resilience in rows if resilience.placement_id in there],
        batch_size=500,
    )


def _resilience_of(
    levels: Iterable[str], bad: Collection[tuple[str, str, int]]
) -> dict[str, str]:
    fails = {level for level, _, _ in bad}
    columns = {"survives": barred(level for level in levels if level not in fails)}
    if weakest := weakest_point(bad):
        columns |= {"weakest_level": weakest.level, "weakest_value": weakest.value}
    return columns


def update_changed(row: ResilienceReport, *, now: datetime) -> int:
    """Evaluate the placements with a new decision alone, on the fleet of the report; return how many.

    A report on another fleet stays as it is.
    """
    view = current_fleet()
    if view.version != row.fleet_version:
        return 0
    subjects, counts = _subjects(changed_placements(), view.fleet)
    losses = domains_of(view.fleet, row.keys, has_clusters=row.has_clusters)
    sizes = {(loss.level, loss.value): len(loss.clusters) for loss in losses}
    by_loss = _cells(losses, PlacementIndex(subjects), view.fleet, row.variants)
    before = {(loss.level, loss.value, loss.variant): loss for loss in row.losses.all()}
    there = set(valid_placements().values_list("pk", flat=True)) - counts.keys()
    with transaction.atomic():
        for key, cells in by_loss.items():
            old = cells_of(before[key]) if key in before else {}
            kept = {one: cell for one, cell in old.items() if one in there}
            if (new := dict(sorted({**kept, **cells}.items()))) != old:
                if key in before:
                    before[key].delete()
                if changed := _loss(row, *key, sizes[key[:2]], new):
                    changed.save()
        row.totals, row.completed_at = _totals(row), now
        row.placements_count = valid_placements().filter(decisions_made__gt=0).count()
        row.save(update_fields=["totals", "completed_at", "placements_count"])
        PlacementResilience.objects.filter(placement__in=list(counts)).delete()
        _write_placements(row, subjects, counts)
        recheck([REPORT])
    return len(counts)
