"""Queries for runs, rolling and staged: one run, its clusters, its progress, its pending approvals."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial, reduce
from operator import or_
from typing import Any, TypeVar

from django.contrib.auth.models import User
from django.db.models import (
    Case,
    Count,
    Exists,
    Max,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, Concat

from fleetui.apimachinery.metadata import with_hub_metadata
from fleetui.apimachinery.words import counted, split_full_name
from fleetui.audit import SYSTEM, events_of_life
from fleetui.bulk import (
    filter_by,
    first_or_raise,
)
from fleetui.errors import UnknownObject
from fleetui.models import Event
from fleetui.permissions import Role, may_change
from placements.engine.rollout.actions import BlockReason, RollingUpdateResult, RunPhase
from placements.engine.rollout.staged_run import (
    ApprovalPoint,
    RunStatus,
    StagedRunPlan,
    StagedUpdateResult,
    StageReason,
)
from placements.engine.rollout.state import EMPTY, IN_FLIGHT, Phase
from placements.explain.cluster_objects import with_reason
from placements.explain.rollouts import (
    eta_document,
    result_from_document,
    version_name,
    waiting_sentence,
    wanted_name,
)
from placements.explain.run_pages import Part, part_of_step, verdict_words
from placements.explain.staged_updates import (
    NOT_INITIALIZED,
    hub_run_sentences,
    moment,
    progress_facts,
    reason_sentence,
    run_sentences,
    run_status,
    staged_result,
)
from placements.manifests.binding import BindingState
from placements.manifests.placement import parse_placement
from placements.models import (
    WAITS_FOR_APPROVAL,
    ApprovalRequest,
    Binding,
    ClusterUpdate,
    Placement,
    ResourceSnapshot,
    Rollout,
    Run,
    StagedRun,
)
from placements.models.rollouts import INITIALISING
from placements.services.teams import labels_of_run

AnyRun = TypeVar("AnyRun", bound=Run)


class UnknownRolloutError(UnknownObject):
    problem_type = "unknown-run"

    def __init__(self, placement: str, number: int) -> None:
        super().__init__(f"rollout {number} of placement {placement[:63]!r} not found")


IN_PROGRESS = Q(ended_at=None, started_at__isnull=False)
IS_PAUSED = Q(placement__paused_since__isnull=False)


class UnknownRunError(UnknownObject):
    problem_type = "unknown-run"

    def __init__(self, name: str) -> None:
        super().__init__(f"no staged run is named {name!r}")


class UnknownApprovalError(UnknownObject):
    problem_type = "unknown-approval"

    def __init__(self, name: str) -> None:
        super().__init__(f"no approval request is named {name!r}")


def runs_matching(
    model: type[AnyRun], *, placement: str = "", text: str = ""
) -> QuerySet[AnyRun]:
    """Return runs of a kind without their long columns; unordered. `text` is part of a placement."""
    rows = model.objects.defer(*model.LONG_COLUMNS)
    rows = rows.filter(placement_name__contains=text.lower())
    return filter_by(rows, placement_name=placement)


# A rollout of a later placement has the address of this one: the same name and number.
IS_REPLACED = Exists(
    Rollout._base_manager.filter(
        hub=OuterRef("hub"),
        placement_name=OuterRef("placement_name"),
        number=OuterRef("number"),
        pk__gt=OuterRef("pk"),
    )
)
_FAILED = (Phase.FAILED.value, Phase.REMOVE_FAILED.value)


def with_failed(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return rollouts or staged runs with `failed`: on how many clusters they failed, until they end."""
    failed = Binding.objects.filter(
        placement=OuterRef("placement"), phase__in=_FAILED
    ).order_by()
    count = Coalesce(Subquery(failed.values("placement").values(count=Count("pk"))), 0)
    return rows.annotate(failed=Case(When(ended_at=None, then=count), default=0))


def events_of(run: Rollout) -> QuerySet[Event]:
    """Return the events of a rollout, and those of its placement meanwhile; unordered."""
    meanwhile = Q(kind="placement", name=run.placement_name, at__gte=run.started_at)
    if run.ended_at:
        meanwhile &= Q(at__lte=run.ended_at)
    own = Q(kind="rollout", name=f"{run.placement_name}/{run.number}")
    rows = Event.objects.filter(own | meanwhile)
    if run.placement_id is not None:
        life = events_of_life("placement", run.placement_name).order_by("pk")
        rows = rows.filter(pk__gte=Coalesce(Subquery(life.values("pk")[:1]), 0))
    return rows


def run_named(placement: str, number: int) -> Rollout:
    """Return a rollout; of two placements that had one name, the later. Raise UnknownRolloutError."""
    rows = Rollout.objects.filter(
        placement_name=placement, number=number
    ).select_related("placement")
    return first_or_raise(
        with_failed(rows).order_by("-pk"), UnknownRolloutError(placement, number)
    )


def staged_run_named(name: str) -> StagedRun:
    """Return a staged run with its approvals. Raise UnknownRunError."""
    rows = StagedRun.objects.select_related("placement").prefetch_related("approvals")
    return first_or_raise(
        with_status(rows).filter(full_name=name), UnknownRunError(name)
    )


def latest_run(placement: Placement) -> Rollout | None:
    if not placement.runs_made:
        return None
    run = (
        with_failed(Rollout.objects.filter(placement=placement))
        .order_by("-number")
        .first()
    )
    if run is not None:
        run.placement = placement
    return run


def version_names(
    run: Rollout, applied: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Return the names of the versions on the clusters of a rollout, by their revisions: "revision 4".

    With overrides a cluster may need another version. `applied` are the `applied_names`, if they are known.
    """
    if applied is None:
        applied = applied_names(run.placement_id)
    if run.revision_number is None:
        return applied
    versions = [
        one["wanted"]
        for one in (run.sync_result or {}).get("waiting", ())
        if one["wanted"]
    ]
    return {
        **dict.fromkeys([*versions, run.version], f"revision {run.revision_number}"),
        **applied,
    }


def applied_names(placement: int | None, **clusters: Collection[str]) -> dict[str, str]:
    rows = Binding.objects.filter(
        placement=placement,
        resource_snapshot__revision_number__isnull=False,
        **clusters,
    )
    pairs = rows.values_list("applied_version", _REVISION).distinct()
    return {
        version: f"revision {number}" for version, number in pairs.order_by(_REVISION)
    }


_REVISION = "resource_snapshot__revision_number"


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
        listed = {cluster.cluster: cluster for cluster in self.result.blocked}
        alike = {
            cluster.running: cluster
            for cluster in listed.values()
            if cluster.reason in _BUDGETS
        }
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
    """Return why nothing starts on these clusters, and what unblocks them, by the key of the binding.

    The bindings have their placements loaded. At most three queries.
    """
    words = _rollout_words(bindings)
    pending = [
        row
        for row in bindings
        if row.placement.is_staged and row.phase in EMPTY and row.pk not in words
    ]
    placements: set[int | None] = {row.placement_id for row in pending}
    waits = dict.fromkeys(placements, "Waiting for a staged update run.")
    runs = StagedRun.objects.filter(IN_PROGRESS, placement__in=placements)
    for run in runs.select_related("placement"):
        waits[run.placement_id] = next(iter(sentences_of(run, result_in(run))), "")
    return words | {row.pk: waits[row.placement_id] for row in pending}


def _rollout_words(bindings: Collection[Binding]) -> dict[int, str]:
    running = Rollout.objects.filter(state=Rollout.State.RUNNING)
    rolled_out = {row.placement_id for row in bindings if row.placement.runs_made}
    runs = list(running.filter(placement__in=rolled_out))
    applied: dict[int | None, dict[str, str]] = {run.placement_id: {} for run in runs}
    versions = Binding.objects.filter(
        placement__in=applied, resource_snapshot__revision_number__isnull=False
    )
    columns = versions.values_list("placement", "applied_version", _REVISION).distinct()
    for placement, version, number in columns.order_by(_REVISION):
        applied[placement][version] = f"revision {number}"
    words: dict[int, str] = {}
    for run in runs:
        rows = (row for row in bindings if row.placement_id == run.placement_id)
        waiting = report_of(run, applied[run.placement_id]).waiting(rows)
        words |= {pk: why for pk, (_, why) in waiting.items()}
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

    def left_by(self, update: ClusterUpdate, version: str | None) -> "ClusterInRun":
        """Return the cluster as the last start on it left it; `version` is what was started."""
        if update.what in (REMOVE, RELEASE):
            version = None
        return replace(
            self,
            phase=update.outcome or Phase.APPLYING,
            since=update.ended_at or update.started_at,
            running=version,
            attempts=update.attempt,
            message=update.message,
            began_at=update.started_at,
            ended_at=update.ended_at,
        )

    def bound(self, row: Any, run: Rollout, report: RolloutReport) -> "ClusterInRun":
        """Return the cluster as its binding is, with `is_wanted`, while the rollout is in progress."""
        running = row.applied_version if row.phase not in EMPTY else None
        version, wanted = run.version, None
        if running and row.is_wanted:
            # A version of its own where the cluster has overrides.
            version = running
        if row.state != BindingState.UNSCHEDULED and not run.is_deletion:
            wanted = wanted_name(version, running, report.names)
        return replace(
            self,
            phase=row.phase,
            since=row.phase_changed_at,
            running=version_name(running, report.names),
            wanted=wanted,
            attempts=row.attempts,
            retry_at=row.retry_at,
            message=with_reason(row.unavailable_code, row.message),
        )


def names_in(run: Rollout) -> list[str]:
    """Return every cluster of a rollout: those of its waves in their order, then the others by name."""
    planned = run.wave_numbers
    others = set(
        ClusterUpdate.objects.filter(rollout=run).values_list("cluster_name", flat=True)
    )
    if run.state == Rollout.State.RUNNING:
        rows = Binding.objects.filter(placement=run.placement_id)
        others.update(rows.values_list("cluster_name", flat=True))
    return [*planned, *sorted(others.difference(planned))]


def parts_of(run: Rollout) -> dict[str, Part]:
    """Return how far each cluster of a rolling update has come; of an ended one how it was left."""
    if run.state != Rollout.State.RUNNING or run.placement_id is None:
        updates = ClusterUpdate.objects.filter(rollout=run).order_by("pk")
        left = dict(updates.values_list("cluster_name", "outcome"))
        ends = {
            Phase.AVAILABLE.value: Part.UPDATED,
            **dict.fromkeys((Phase.REMOVED.value, RELEASE, "released"), Part.REMOVED),
            **dict.fromkeys(_FAILED, Part.FAILED),
        }
        planned = run.wave_numbers
        names = [*planned, *sorted(left.keys() - planned)]
        return {name: ends.get(left.get(name, ""), Part.PENDING) for name in names}
    rows = _with_is_wanted(Binding.objects.filter(placement=run.placement_id), run)
    columns = ("cluster_name", "phase", "is_wanted", "state")
    parts = {name: _part(run, *facts) for name, *facts in rows.values_list(*columns)}
    if run.is_deletion:
        return parts
    # What has no binding is not selected any more.
    return dict.fromkeys(run.wave_numbers, Part.REMOVED) | parts


def parts_of_steps(
    run: StagedRun, plan: StagedRunPlan, *, now: datetime
) -> dict[str, Part]:
    """Return how far each cluster of a staged run has come, on whatever page.

    A step is done once; what is observed on its cluster since then counts while the run is in progress.
    """
    parts = {step.name: part_of_step(step) for step in plan.steps}
    removed = {step.name for step in plan.deletions.steps if step.done_at}
    parts |= dict.fromkeys(removed, Part.REMOVED)
    if run.placement is None or not run.is_running:
        return parts
    late_since = now - run.placement.unavailable_period
    has_revision = Q(
        ~Q(state=BindingState.UNSCHEDULED),
        phase=Phase.AVAILABLE,
        resource_snapshot=run.resource_snapshot_id,
    )
    is_open = Q(phase=Phase.APPLIED, untrackable_since=None)
    rows = Binding.objects.filter(
        has_revision | is_open | Q(phase=Phase.FAILED), placement=run.placement_id
    ).annotate(is_late=Q(phase_changed_at__lt=late_since))
    for name, phase, is_late in rows.values_list("cluster_name", "phase", "is_late"):
        if name in parts:
            parts[name] = _observed_part(parts[name], phase, is_late=is_late)
    return parts


def available_since(run: StagedRun) -> datetime | None:
    """Return since when all clusters are available that are so with the revision of a staged run."""
    rows = Binding.objects.filter(
        placement=run.placement_id,
        resource_snapshot=run.resource_snapshot_id,
        phase=Phase.AVAILABLE,
    )
    latest: datetime | None = rows.aggregate(at=Max("phase_changed_at"))["at"]
    return latest


def _observed_part(planned: Part, phase: str, *, is_late: bool) -> Part:
    """Return how far a cluster has come by what is observed there since its step."""
    if phase == Phase.AVAILABLE and planned is Part.PENDING:
        return Part.UPDATED  # nothing is started there in its turn
    if phase == Phase.FAILED and planned is Part.UPDATED:
        return Part.FAILED
    is_over = planned is Part.UPDATED or (is_late and planned is Part.UPDATING)
    if phase == Phase.APPLIED and is_over:
        return Part.NOT_AVAILABLE
    return planned


def part_counts(
    runs: Collection[Rollout], *, named: Collection[int] = ()
) -> dict[int | None, Counter[tuple[str, Part]]]:
    """Return how many clusters with a binding have come how far with rollouts in progress, by placement.

    One query. Each count has the name of its cluster for the placements in `named`, else an empty text.
    """
    by_placement = {run.placement_id: run for run in runs}
    counts: dict[int | None, Counter[tuple[str, Part]]]
    counts = {pk: Counter() for pk in by_placement}
    wanted = [Q(_is_wanted(run), placement=pk) for pk, run in by_placement.items()]
    rows = Binding.objects.filter(placement__in=by_placement).annotate(
        name=Case(When(placement__in=named, then="cluster_name"), default=Value("")),
        is_wanted=Case(
            When(reduce(or_, wanted, Q(pk__in=())), then=True), default=False
        ),
    )
    columns = ("placement", "name", "phase", "is_wanted", "state")
    counted = rows.order_by().values_list(*columns).annotate(count=Count("pk"))
    for pk, name, *facts, count in counted:
        counts[pk][name, _part(by_placement[pk], *facts)] += count
    return counts


def _part(
    run: Rollout,
    phase: str,
    is_wanted: bool,
    state: str,
) -> Part:
    is_removed = run.is_deletion or state == BindingState.UNSCHEDULED
    if is_removed and phase in EMPTY:
        return Part.REMOVED
    if is_wanted and not is_removed and phase == Phase.AVAILABLE:
        return Part.UPDATED
    if phase in _FAILED:
        return Part.FAILED
    if phase in IN_FLIGHT and (is_removed or is_wanted):
        return Part.UPDATING
    return Part.PENDING


def _with_is_wanted(rows: QuerySet[Any], run: Rollout) -> QuerySet[Any]:
    return rows.annotate(
        is_wanted=Case(When(_is_wanted(run), then=True), default=False)
    )


def _is_wanted(run: Rollout) -> Q:
    """Return whether a binding has what a rollout wants there: overrides change the version."""
    if run.is_mirrored:
        # The hub compares snapshots by number, whatever overrides a cluster has.
        return Q(resource_snapshot__number=run.resource_number)
    return Q(applied_version=run.version) | Q(started_status="True")


def clusters_in(
    run: Rollout, names: Sequence[str], report: RolloutReport
) -> list[ClusterInRun]:
    """Return the rows of these clusters, as they are while it is in progress, later as it left them."""
    waves, bindings = run.wave_numbers, {}
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
        one = ClusterInRun(name, waves.get(name), NOT_STARTED)
        if update := latest.get(name):
            one = one.left_by(update, version_name(run.version, report.names))
        if row := bindings.get(name):
            block, why = waiting.get(row.pk, ("", ""))
            one = replace(one.bound(row, run, report), block=str(block), why=why)
        if update and update.what == RELEASE:
            one = replace(one, phase=_RELEASE_PHASES.get(one.phase, one.phase))
        clusters.append(one)
    return clusters


def messages_of(run: Rollout, names: Sequence[str]) -> dict[str, str]:
    """Return what clusters of a rollout in progress last said, with the reason."""
    rows = Binding.objects.filter(placement=run.placement_id, cluster_name__in=names)
    columns = ("cluster_name", "unavailable_code", "message")
    return {
        name: with_reason(code, message)
        for name, code, message in rows.values_list(*columns)
    }


def progress_words(run: Rollout) -> str:
    """Return how far a rollout is; empty once its placement is deleted or rolls out something else."""
    if run.placement is None or run.state != Rollout.State.RUNNING:
        return ""
    counts: Counter[Part] = Counter()
    for (_, part), count in part_counts([run])[run.placement_id].items():
        counts[part] += count
    if run.is_deletion:
        number = max(run.placement.deletion_number, counts.total())
        left = counts.total() - counts[Part.REMOVED]
        return f"{number - left:,} of {counted(number, 'cluster')} removed"
    return verdict_words(counts)


_LONGEST = 63


def run_manifest(run: StagedRun) -> dict[str, Any]:
    if run.is_mirrored:
        return {**run.document, "status": run.hub_status or {}}
    if result := result_in(run):
        status = run_status(result, snapshot=run.resource_number)
        return {**run.document, "status": status}
    waiting = {
        "type": "Initialized",
        "status": "Unknown",
        "reason": "UpdateRunInitializing",
        "message": initialising_sentence(run),
    }
    return {**run.document, "status": {"conditions": [waiting]}}


def initialising_sentence(run: StagedRun) -> str:
    index = run.document["spec"].get("resourceSnapshotIndex")
    placement = run.placement
    if placement and placement.selection_faults:
        return reason_sentence(StageReason("invalid-selectors"))
    if (
        index
        and run.resource_snapshot_id is None
        and placement
        and not placement.is_due
    ):
        return reason_sentence(StageReason("no-snapshot", (index,)))
    if placement is None or placement.is_due:
        return reason_sentence(StageReason("not-decided"))
    if placement.paused_since:
        return "The run is not initialized while the placement is paused."
    return "A worker initializes the run in a moment."


def sentences_of(run: StagedRun, result: StagedUpdateResult | None) -> list[str]:
    """Return in a sentence each what a run is doing and waits for, first that its placement is paused.

    Of a run of a live hub, the status on the hub is first.
    """
    sentences = run_sentences(result) if result else []
    if run.is_mirrored:
        words = hub_run_sentences(run.hub_status or {})
        return [*words, *sentences] or [NOT_INITIALIZED]
    if result is None:
        sentences = [initialising_sentence(run)]
    placement = run.placement
    if placement and placement.paused_since and run.ended_at is None:
        by = placement.paused_by
        sentences.insert(
            0,
            f"{placement.full_name} is paused by {by}: no new updates start, and no stage continues.",
        )
    elif result and result.status is RunStatus.PROGRESSING and not result.waits:
        # After an action that no worker has processed.
        sentences.append("The run continues in a moment.")
    return sentences


def progress_document(run: StagedRun) -> dict[str, Any]:
    result, now = result_in(run), datetime.now(UTC)
    facts = progress_facts(result) if result else _NOT_STARTED
    return {
        "name": run.full_name,
        "placement": run.placement_name,
        "snapshot": run.resource_number,
        "startedBy": run.started_by,
        "approvals": [
            {
                "name": request.name_in(run),
                "stage": request.stage,
                "side": request.side,
                "askedAt": moment(request.requested_at),
                "approvedAt": moment(request.approved_at),
                "approvedBy": request.approved_by,
                "comment": request.comment,
            }
            for request in run.approvals.order_by("pk")
        ],
        **facts,
        # `rules/foresight.md#time-left`
        "eta": eta_document(
            run.forecast,
            started_at=run.started_at or now,
            ended_at=run.ended_at,
            now=now,
        ),
        "sentences": sentences_of(run, result),
    }


_NOT_STARTED: dict[str, Any] = {
    "status": INITIALISING,
    "stage": None,
    "waits": [],
    "stuck": [],
    "mayStillHold": [],
    "stages": [],
}


def result_in(run: StagedRun) -> StagedUpdateResult | None:
    """Return what a run does and waits for; None before it is initialised."""
    return staged_result(run.plan, run.sync_result) if run.plan else None


def failed_and_waiting(placement: Placement) -> tuple[list[str], int]:
    """Return the clusters on which a staged placement failed, and how many wait for its next run."""
    is_new = ~Q(state=BindingState.UNSCHEDULED) & ~Q(resource_snapshot__is_latest=True)
    is_left = Q(state=BindingState.UNSCHEDULED) & ~Q(phase__in=EMPTY)
    is_failed = Q(phase__in=_FAILED)
    rows = Binding.objects.filter(is_new | is_left | is_failed, placement=placement)
    rows = rows.annotate(
        name=Case(When(is_failed, then="cluster_name"), default=Value("")),
        waits=Case(When(is_new | is_left, then=True), default=False),
    )
    columns = rows.order_by("name").values_list("name", "waits")
    counts = list(columns.annotate(count=Count("pk")))
    failed = [name for name, _, _ in counts if name]
    return failed, sum(count for _, waits, count in counts if waits)


def waits_for_run(placement: Placement, count: int) -> str:
    """Return what of a staged placement waits for its next run, in words: clusters or resources."""
    if count == 1:
        return "1 cluster waits for a staged update run."
    if count:
        return f"{counted(count, 'cluster')} wait for a staged update run."
    if not placement.has_newer_resources:
        return ""
    latest = placement.resource_snapshots.get(is_latest=True)
    after = ""
    if latest.revision_number is not None:
        after = f" after revision {latest.revision_number}"
    return f"The resources changed{after}. The change waits for a staged update run."


def older_snapshot(run: StagedRun) -> ResourceSnapshot | None:
    if run.resource_number is None:
        return None
    rows = ResourceSnapshot.objects.filter(
        placement=run.placement_id, number__lt=run.resource_number
    )
    return rows.only("number", "revision_number").order_by("-number").first()


def is_rollback(run: StagedRun) -> bool:
    """Return whether a run rolls out older resources than were the latest when it was created."""
    return (
        run.resource_number is not None
        and "resourceSnapshotIndex" in run.document["spec"]
        and ResourceSnapshot.objects.filter(
            placement=run.placement_id,
            number__gt=run.resource_number,
            created_at__lte=run.created_at,
        ).exists()
    )


def free_name(placement: str) -> str:
    """Return a name for the next run of a placement: the first of web-1, web-2 … that is free beside it."""
    namespace, own = split_full_name(placement)
    runs = StagedRun.objects.filter(
        Q(placement_name=placement) | Q(name__startswith=own[: _LONGEST // 2]),
        namespace=namespace,
    )
    taken = dict(runs.values_list("name", "placement_name"))
    number = sum(one == placement for one in taken.values()) + 1
    while True:
        ending = f"-{number}"
        name = own[: _LONGEST - len(ending)].rstrip("-.") + ending
        if name not in taken:
            return name
        number += 1


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A pending request; `why_not` is why the reader may not approve it, empty if they may."""

    request: ApprovalRequest
    who: str
    why_not: str

    @property
    def run(self) -> StagedRun:
        return self.request.run

    @property
    def side(self) -> str:
        return (
            "before the stage"
            if self.request.side == ApprovalPoint.BEFORE
            else "after the stage"
        )


def approvals_waiting() -> QuerySet[ApprovalRequest]:
    """Return the requests that runs wait for, with run and placement; unordered. A paused one has none."""
    rows = ApprovalRequest.objects.filter(WAITS_FOR_APPROVAL)
    columns = [f"run__{name}" for name in StagedRun.LONG_COLUMNS]
    return rows.select_related("run__placement").defer(*columns)


def approvals_matching(*, name: str = "", run: str = "") -> QuerySet[Any]:
    """Return the approval requests of runs, each with its full name; "" for all of them."""
    full_name = Concat("run__full_name", Value("-"), "side", Value("-"), "stage")
    rows = ApprovalRequest.objects.select_related("run").annotate(full_name=full_name)
    return filter_by(rows, full_name=name, run__full_name=run)


def approval_manifest(name: str) -> dict[str, Any]:
    """Return the manifest of an approval request, with its status once it is approved.

    Raise UnknownApprovalError.
    """
    row = first_or_raise(approvals_matching(name=name), UnknownApprovalError(name))
    manifest = row.to_manifest()
    return with_hub_metadata(
        manifest,
        manifest.get("status"),
        uid=str(row.uid),
        revision=1,
        generation=1,
        created_at=row.requested_at,
    )


def with_status(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the runs with how many clusters they failed on, and what they wait for first."""
    return with_gate(with_failed(rows))


def with_gate(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.annotate(gate=KT("sync_result__waits__0__reason"))


def waiting_for(request: ApprovalRequest, user: User | None) -> PendingApproval:
    run = request.run
    who = "an approver"
    if run.started_by not in ("", SYSTEM) and _requires_another(run):
        who = f"an approver other than {run.started_by}, who started it"
    return PendingApproval(request, who, why_not_approve(run, user))


def why_not_approve(run: StagedRun, user: User | None) -> str:
    if user is None or not may_change(user, labels_of_run(run), role=Role.APPROVER):
        return f"only an approver may approve a stage; required role: {Role.APPROVER}"
    if _requires_another(run) and user.get_username() == run.started_by:
        demand = f"{run.placement_name} requires another approver than {run.started_by}"
        return f"{demand}, who started the run"
    return ""


def _requires_another(run: StagedRun) -> bool:
    return (
        run.placement is not None
        and parse_placement(run.placement.document).approver_differs
    )


def runs_under_way() -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    return Rollout.objects.filter(IN_PROGRESS), StagedRun.objects.filter(IN_PROGRESS)


def running_count() -> int:
    rolling, staged = (rows.values_list("pk") for rows in runs_under_way())
    return rolling.union(staged, all=True).count()


def waiting_runs() -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    """Return the runs in progress that stalled or wait for a user."""
    is_pending = Exists(
        ApprovalRequest.objects.filter(run=OuterRef("pk"), approved_at=None)
    )
    is_idle = Q(status__in=(RunStatus.STOPPED, RunStatus.STUCK))
    rolling, staged = runs_under_way()
    return rolling.filter(Q(verdict=RunPhase.HALTED) | IS_PAUSED), staged.filter(
        is_idle | IS_PAUSED | is_pending
    )
