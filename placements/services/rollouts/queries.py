"""Queries for rollouts: lists, one rollout, its clusters, its progress."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cache, partial
from typing import Any

from django.db.models import Case, Count, OuterRef, Q, QuerySet, Subquery, When
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from fleetui.errors import UnknownObject
from fleetui.models import Event
from placements.engine.rollout.actions import BlockReason, RollingUpdateResult
from placements.engine.rollout.state import EMPTY, IN_FLIGHT, Phase
from placements.explain.cluster_objects import with_reason
from placements.explain.rollouts import (
    Progress,
    result_from_document,
    version_name,
    waiting_sentence,
    wanted_name,
)
from placements.manifests.binding import BindingState
from placements.manifests.strategy import StrategyType
from placements.models import Binding, ClusterUpdate, Placement, Rollout, StagedRun
from placements.services.rollouts.staged_queries import result_in, sentences_of


class UnknownRolloutError(UnknownObject):
    problem_type = "unknown-run"

    def __init__(self, placement: str, number: int) -> None:
        super().__init__(f"rollout {number} of placement {placement[:63]!r} not found")


def runs_matching(
    *, placement: str = "", state: str = "", text: str = ""
) -> QuerySet[Rollout]:
    """Return rollouts that match, without their large columns; unordered. `text` is part of a placement."""
    rows = Rollout.objects.defer("sync_result").filter(
        placement_name__contains=text.lower()
    )
    rows = rows.filter(placement_name=placement) if placement else rows
    return rows.filter(state=state) if state else rows


_FAILED = (Phase.FAILED.value, Phase.REMOVE_FAILED.value)


def with_failed(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return rollouts or staged runs with `failed`: on how many clusters they failed, until they end."""
    failed = Binding.objects.filter(
        placement=OuterRef("placement"), phase__in=_FAILED
    ).order_by()
    count = Coalesce(Subquery(failed.values("placement").values(count=Count("pk"))), 0)
    return rows.annotate(failed=Case(When(ended_at=None, then=count), default=0))


def runs_to_show(
    *, placement: str = "", state: str = "", text: str = ""
) -> QuerySet[Rollout]:
    """Return the same with the values of a list: `ready` of `of` clusters; unordered."""
    rows = runs_matching(placement=placement, state=state, text=text).select_related(
        "placement"
    )
    return (
        with_failed(rows)
        .defer("sync_result", "waves", "placement__document")
        .annotate(
            ready=KT("sync_result__budgets__updates__ready"),
            of=KT("sync_result__budgets__updates__number"),
        )
    )


def events_of(run: Rollout) -> QuerySet[Event]:
    """Return the events of a rollout, and those of its placement meanwhile; unordered."""
    meanwhile = Q(kind="placement", name=run.placement_name, at__gte=run.started_at)
    meanwhile &= Q(at__lte=run.ended_at) if run.ended_at else Q()
    return Event.objects.filter(
        Q(kind="rollout", name=f"{run.placement_name}/{run.number}") | meanwhile
    )


def running_count() -> int:
    staged = StagedRun.objects.filter(ended_at=None, started_at__isnull=False)
    rolling = Rollout.objects.filter(state=Rollout.State.RUNNING)
    return rolling.values_list("pk").union(staged.values_list("pk"), all=True).count()


def run_named(placement: str, number: int) -> Rollout:
    """Return a rollout; of two placements that had one name, the later. Raise UnknownRolloutError."""
    rows = Rollout.objects.filter(
        placement_name=placement, number=number
    ).select_related("placement")
    run = with_failed(rows).order_by("-pk").first()
    if run is None:
        raise UnknownRolloutError(placement, number)
    return run


def latest_run(placement: Placement) -> Rollout | None:
    run = (
        with_failed(Rollout.objects.filter(placement=placement))
        .order_by("-number")
        .first()
    )
    if run is not None:
        run.placement = placement
    return run


def updates_of(run: Rollout) -> QuerySet[ClusterUpdate]:
    return ClusterUpdate.objects.filter(rollout=run)


def version_names(
    run: Rollout, applied: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Return the names of the versions on the clusters of a rollout, by their resource snapshots: `r4`.

    With overrides a cluster may need another version. `applied` are the `applied_names`, if they are known.
    """
    names = applied_names(run.placement_id) if applied is None else applied
    if run.resource_number is None:
        return names
    versions = [
        one["wanted"]
        for one in (run.sync_result or {}).get("waiting", ())
        if one["wanted"]
    ]
    return {
        **dict.fromkeys([*versions, run.version], f"r{run.resource_number}"),
        **names,
    }


def applied_names(placement: int | None, **clusters: Collection[str]) -> dict[str, str]:
    rows = Binding.objects.filter(
        placement=placement, resource_snapshot__isnull=False, **clusters
    )
    pairs = rows.values_list("applied_version", "resource_snapshot__number").distinct()
    return {
        version: f"r{number}"
        for version, number in pairs.order_by("resource_snapshot__number")
    }


@dataclass(frozen=True)
class RolloutReport:
    """The last sync result of a rollout in progress, and the names of the versions in it."""

    result: RollingUpdateResult | None
    names: Mapping[str, str]

    def waiting(self, rows: Iterable[Binding]) -> dict[int, tuple[BlockReason, str]]:
        """Return why clusters wait and what unblocks them, by the key of the binding.

        The document lists the first blocked clusters; others wait as those with the same version do.
        """
        if self.result is None:
            return {}
        listed = {one.cluster: one for one in self.result.blocked}
        alike = {one.running: one for one in listed.values() if one.reason in _BUDGETS}
        sentence, waiting = cache(partial(waiting_sentence, result=self.result)), {}
        for row in rows:
            blocked = listed.get(row.cluster_name)
            if blocked is None and row.state != BindingState.UNSCHEDULED:
                if row.phase == Phase.AVAILABLE:
                    blocked = alike.get(version_name(row.applied_version, self.names))
                elif row.phase in EMPTY:
                    blocked = alike.get(None)
            if blocked:
                waiting[row.pk] = (blocked.reason, sentence(blocked))
        return waiting


_BUDGETS = (BlockReason.UPDATE_FLOOR, BlockReason.CEILING)


def report_of(run: Rollout, applied: Mapping[str, str] | None = None) -> RolloutReport:
    """Return the last sync result of a rollout; none once it has ended."""
    names = version_names(run, applied)
    if run.state != Rollout.State.RUNNING or not run.sync_result:
        return RolloutReport(None, names)
    return RolloutReport(result_from_document(run.sync_result, names), names)


def waiting_words(bindings: Collection[Binding]) -> dict[int, str]:
    """Return why nothing starts on these clusters, and what unblocks them, by the key of the binding."""
    running = Rollout.objects.filter(state=Rollout.State.RUNNING)
    runs = (
        list(running.filter(placement__in={row.placement_id for row in bindings}))
        if bindings
        else []
    )
    applied: dict[int | None, dict[str, str]] = {run.placement_id: {} for run in runs}
    versions = Binding.objects.filter(
        placement__in=applied, resource_snapshot__isnull=False
    )
    columns = versions.values_list(
        "placement", "applied_version", "resource_snapshot__number"
    ).distinct()
    for placement, version, number in (
        columns.order_by("resource_snapshot__number") if runs else ()
    ):
        applied[placement][version] = f"r{number}"
    words: dict[int, str] = {}
    for run in runs:
        rows = (row for row in bindings if row.placement_id == run.placement_id)
        words |= {
            pk: why
            for pk, (_, why) in report_of(run, applied[run.placement_id])
            .waiting(rows)
            .items()
        }
    if pending := [
        row for row in bindings if row.phase in EMPTY and row.pk not in words
    ]:
        ids = {row.placement_id for row in pending}
        staged = Placement.objects.filter(
            pk__in=ids, strategy_type=StrategyType.EXTERNAL
        )
        waits: dict[int | None, str] = {
            one.pk: "Waiting for a staged update run." for one in staged.only("pk")
        }
        in_progress = StagedRun.objects.filter(
            placement__in=waits, ended_at=None, started_at__isnull=False
        )
        for one in in_progress.select_related("placement") if waits else ():
            waits[one.placement_id] = next(iter(sentences_of(one, result_in(one))), "")
        words |= {
            row.pk: waits[row.placement_id]
            for row in pending
            if row.placement_id in waits
        }
    return words


NOT_STARTED = "not-started"
REMOVE, RELEASE = "remove", "release"
_RELEASE_PHASES: Mapping[str, str] = {
    Phase.REMOVING: "releasing",
    Phase.REMOVED: "released",
    Phase.APPLYING: "releasing",
}
"""What a removal is called where the resources stay; without an outcome it is still in progress."""


@dataclass(frozen=True, slots=True)
class ClusterInRun:
    """One cluster in a rollout: `wave` as planned, `phase` its progress or its outcome.

    `began_at` and `ended_at` are those of the last start on it; without an end it is in progress.
    """

    cluster: str
    wave: int | None
    phase: str
    since: datetime | None = None
    running: str | None = None
    wanted: str | None = None
    attempts: int = 0
    retry_at: datetime | None = None
    message: str = ""
    block: str = ""
    why: str = ""
    began_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def has_failed(self) -> bool:  # it can be retried
        return self.phase in _FAILED


def names_in(run: Rollout, bound: Collection[str] | None = None) -> list[str]:
    """Return every cluster of a rollout: those of its waves in their order, then the others by name.

    `bound` are the clusters with a binding, where they are known.
    """
    planned = [name for wave in run.waves for name in wave]
    others = set(
        ClusterUpdate.objects.filter(rollout=run).values_list("cluster_name", flat=True)
    )
    if run.state == Rollout.State.RUNNING and bound is None:
        rows = Binding.objects.filter(placement=run.placement_id)
        bound = set(rows.values_list("cluster_name", flat=True))
    others |= set(bound or ())
    return [*dict.fromkeys(planned), *sorted(others.difference(planned))]


class Part(StrEnum):
    """How far a cluster has come with a rollout, in the order of the bar."""

    UPDATED = "updated"
    REMOVED = "removed"
    UPDATING = "updating"
    FAILED = "failed"
    NOT_AVAILABLE = "not available"
    PENDING = "pending"


def parts_of(run: Rollout) -> dict[str, Part]:
    """Return how far each cluster of a rollout has come; of an ended one how it was left."""
    if run.state != Rollout.State.RUNNING or run.placement_id is None:
        updates = ClusterUpdate.objects.filter(rollout=run).order_by("pk")
        left = dict(updates.values_list("cluster_name", "outcome"))
        ends = {
            Phase.AVAILABLE.value: Part.UPDATED,
            **dict.fromkeys((Phase.REMOVED.value, RELEASE, "released"), Part.REMOVED),
            **dict.fromkeys(_FAILED, Part.FAILED),
        }
        planned = dict.fromkeys(name for wave in run.waves for name in wave)
        names = [*planned, *sorted(left.keys() - planned)]
        return {name: ends.get(left.get(name, ""), Part.PENDING) for name in names}
    rows = _with_is_wanted(Binding.objects.filter(placement=run.placement_id), run)
    columns = ("cluster_name", "phase", "is_wanted", "state")
    parts = {name: _part(run, *facts) for name, *facts in rows.values_list(*columns)}
    if run.is_deletion:
        return parts
    # What has no binding is not selected any more.
    waves = (name for wave in run.waves for name in wave)
    return dict.fromkeys(waves, Part.REMOVED) | parts


def part_counts(run: Rollout) -> Counter[Part]:
    """Return how many clusters with a binding have come how far with a rollout in progress."""
    rows = _with_is_wanted(
        Binding.objects.filter(placement=run.placement_id), run
    ).order_by()
    counts: Counter[Part] = Counter()
    for *facts, count in rows.values_list("phase", "is_wanted", "state").annotate(
        count=Count("pk")
    ):
        counts[_part(run, *facts)] += count
    return counts


def _part(run: Rollout, phase: str, is_wanted: bool, state: str) -> Part:
    is_removed = run.is_deletion or state == BindingState.UNSCHEDULED
    is_done = phase in EMPTY if is_removed else phase == Phase.AVAILABLE and is_wanted
    if is_done:
        return Part.REMOVED if is_removed else Part.UPDATED
    if phase in _FAILED:
        return Part.FAILED
    is_current = is_removed or is_wanted
    return Part.UPDATING if phase in IN_FLIGHT and is_current else Part.PENDING


def _is_wanted(run: Rollout) -> Q:
    """Return the condition of bindings with what a rollout wants there: overrides change the version."""
    if (
        run.is_mirrored
    ):  # the hub compares snapshots by number, whatever overrides a cluster has
        return Q(resource_snapshot__number=run.resource_number)
    return Q(applied_version=run.version) | Q(started_status="True")


def _with_is_wanted(rows: QuerySet[Any], run: Rollout) -> QuerySet[Any]:
    return rows.annotate(
        is_wanted=Case(When(_is_wanted(run), then=True), default=False)
    )


def clusters_in(
    run: Rollout, names: Sequence[str], report: RolloutReport
) -> list[ClusterInRun]:
    """Return the rows of these clusters, as they are while it is in progress, later as it left them."""
    waves = {name: number for number, wave in enumerate(run.waves, 1) for name in wave}
    bindings = {}
    if run.state == Rollout.State.RUNNING:
        rows = Binding.objects.filter(
            placement=run.placement_id, cluster_name__in=names
        )
        bindings = {row.cluster_name: row for row in _with_is_wanted(rows, run)}
    updates = ClusterUpdate.objects.filter(
        rollout=run, cluster_name__in=names
    ).order_by("pk")
    latest = {row.cluster_name: row for row in updates}
    waiting, clusters = report.waiting(bindings.values()), []
    for name in names:
        update = latest.get(name)
        if name in bindings:
            row = bindings[name]
            is_selected = row.state != BindingState.UNSCHEDULED and not run.is_deletion
            running = row.applied_version if row.phase not in EMPTY else None
            # What runs there is a version of its own where the cluster has overrides.
            wanted = running if running and row.is_wanted else run.version
            block, why = waiting.get(row.pk, ("", ""))
            one = ClusterInRun(
                name,
                waves.get(name),
                row.phase,
                row.phase_changed_at,
                version_name(running, report.names),
                wanted_name(wanted, running, report.names) if is_selected else None,
                row.attempts,
                row.retry_at,
                with_reason(row.unavailable_code, row.message),
                str(block),
                why,
            )
        elif update is None:
            one = ClusterInRun(name, waves.get(name), NOT_STARTED)
        else:
            one = ClusterInRun(
                name,
                waves.get(name),
                update.outcome or Phase.APPLYING,
                update.ended_at or update.started_at,
                None
                if update.what in (REMOVE, RELEASE)
                else version_name(run.version, report.names),
                attempts=update.attempt,
                message=update.message,
            )
        if update and update.what == RELEASE:
            one = replace(one, phase=_RELEASE_PHASES.get(one.phase, one.phase))
        if update:
            one = replace(one, began_at=update.started_at, ended_at=update.ended_at)
        clusters.append(one)
    return clusters


def progress_of(run: Rollout, *, now: datetime) -> Progress | None:
    """Return the progress of a rollout; None once its placement is deleted or rolls out something else."""
    if run.placement is None or run.state != Rollout.State.RUNNING:
        return None
    rows = Binding.objects.filter(placement=run.placement_id)
    if run.is_deletion:
        number = max(run.placement.deletion_number, rows.count())
        return Progress(
            number - rows.exclude(phase__in=EMPTY).count(), number, is_deletion=True
        )
    available_since = now - run.placement.unavailable_period
    is_untrackable = Q(phase=Phase.APPLIED, untrackable_since__lte=available_since)
    selected = rows.exclude(state=BindingState.UNSCHEDULED)
    is_updated = (Q(phase=Phase.AVAILABLE) | is_untrackable) & _is_wanted(run)
    counts = selected.aggregate(done=Count("pk", filter=is_updated), number=Count("pk"))
    return Progress(counts["done"], counts["number"])
