"""The status of placements, from their bindings and the clusters as they are now."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import chain, count, islice
from operator import or_
from types import SimpleNamespace
from typing import Any

from django.db import connection
from django.db.models import (
    Case,
    CharField,
    Count,
    DateTimeField,
    Exists,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce, RowNumber
from django.db.models.lookups import Exact

from clusters.drivers.registry import DRIVERS
from clusters.filters import label_of
from clusters.fleet import EligibilityKind
from clusters.models import MemberCluster
from clusters.observation import not_observed, silence_words, unhealthy
from fleetui.hub_scope import LOCAL_HUB
from fleetui.polling import ANY_TIME, PARAMETER, PreparedQuery, number_of, prepared_columns
from placements.engine.balance import ExceededLimit
from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.staged_run import RunStatus, WaitReason
from placements.engine.rollout.state import EMPTY, FailureKind, Phase
from placements.engine.status import (
    GATES,
    ClusterFacts,
    ClusterStatus,
    HealthCounts,
    HealthFacts,
    HealthLevel,
    MemberCondition,
    PlacementHealth,
    cluster_status,
    placement_health,
)
from placements.manifests.binding import BindingState
from placements.manifests.policy import PlacementType
from placements.manifests.strategy import StrategyType
from placements.models import (
    AWAITS_DECISION,
    UNFULFILLED,
    Binding,
    Decision,
    Placement,
    ResourceSnapshot,
    Rollout,
    StagedRun,
    StalenessCheck,
)

_TRUE = "True"
_IS_SUSPENDED = Q(paused_since__isnull=False) | Q(is_stopped=True)
_NEEDS_SYNC = Q(rollout_observed__lt=F("rollout_generation"))
_IS_MONITORED = Q(driver__in=DRIVERS) | ~Q(hub=LOCAL_HUB)  # the agents of a live hub report to it
_LOST = (EligibilityKind.STALE_HEARTBEAT, EligibilityKind.NO_AGENT)
_IS_UNREACHABLE = Q(verdict__in=_LOST) | Q(unanswered_since__isnull=False)  # whichever comes first
_IS_LEAVING = Q(verdict=EligibilityKind.LEAVING)


def _is_ready(now: datetime) -> Q:
    is_eligible = Q(verdict="", unanswered_since=None)
    return _IS_MONITORED & is_eligible & ~not_observed(now=now) & ~unhealthy(now=now)


def ready_clusters(*, now: datetime) -> QuerySet[MemberCluster]:
    return MemberCluster.objects.filter(_is_ready(now))


def health_of(placement: Placement, *, now: datetime) -> PlacementHealth:
    return healths_of([placement], now=now)[placement.pk]


def healths_named(names: Collection[str], *, now: datetime) -> dict[str, PlacementHealth]:
    """Return the status of each of these placements by name; two queries."""
    rows = list(with_rollouts(Placement.objects.filter(full_name__in=names)))
    healths = healths_of(rows, now=now) if rows else {}
    return {one.full_name: healths[one.pk] for one in rows}


def healths_of(placements: Collection[Placement], *, now: datetime) -> dict[int, PlacementHealth]:
    """Return the status of each of these placements; one query for those loaded `with_rollouts`, else two."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for group in _groups(placements, now=now):
        groups[group["placement_id"]].append(group)
    others = [one.pk for one in placements if not hasattr(one, "is_rolling")]
    rows = with_rollouts(Placement.objects.filter(pk__in=others)).only("pk") if others else ()
    rollouts: dict[int, Any] = dict.fromkeys(others, _NO_ROLLOUT)  # of those deleted since they were read
    rollouts |= {one.pk: one for one in rows}
    rollouts |= {one.pk: one for one in placements if one.pk not in rollouts}
    wanted = _wanted(placements)
    return {
        one.pk: placement_health(_facts(one, groups[one.pk], rollouts[one.pk], wanted, now=now))
        for one in placements
    }


_NO_ROLLOUT = SimpleNamespace(
    **dict.fromkeys(("is_rolling", "is_stalled", "awaits_run", "gate", "gate_stage", "exceeded"), ""),
    applied_older=0,
)


@dataclass(frozen=True, slots=True)
class SelectedClusters:
    """Selected clusters of a placement with one status and one value of a label; `name` of a single one."""

    domain: str | None
    status: ClusterStatus
    count: int
    name: str = ""


def health_by_domain(
    placement: Any, key: str, *, now: datetime
) -> tuple[PlacementHealth, list[SelectedClusters]]:
    """Return the status of a placement, loaded `with_rollouts`, and its clusters by a label; one query.

    Of many clusters those alike are counted, few have their names.
    """
    columns = ("domain", *(("cluster_name",) if placement.placed_count <= NAMED_UP_TO else ()))
    groups = _groups([placement], *columns, now=now, key=key)
    clusters = [
        SelectedClusters(one["domain"], _status_of(placement, one), one["count"], one.get("cluster_name", ""))
        for one in groups
        if one["state"] != BindingState.UNSCHEDULED
    ]
    return placement_health(_facts(placement, groups, placement, _wanted([placement]), now=now)), clusters


NAMED_UP_TO = 30
"""Up to this number of clusters the tree of a placement shows each, above it domains."""


_ALIKE = ("placement_id", "state", "phase", "started_status", "available_status", "failure")
_FIRST_KEY = 2_000_100_000
_NOW = ANY_TIME - timedelta(1)


def _groups(
    placements: Collection[Placement], *columns: str, now: datetime, key: str = ""
) -> list[dict[str, Any]]:
    """Return the bindings of placements, those with the same values counted, also of these columns.

    A cluster without a member is unreachable; `domain` is the value of the label `key`; `seen` is when the
    first of those that are not observed was observed last.
    """
    late = _by_lateness(placements, now=now)
    adapted = connection.ops.adapt_datetimefield_value
    values: dict[Any, Any] = dict(zip(count(_FIRST_KEY), chain.from_iterable(late.values()), strict=False))
    values |= {adapted(ANY_TIME + timedelta(number)): adapted(since) for number, since in enumerate(late)}
    values[adapted(_NOW)] = adapted(now)
    rows = _GROUPS.rows({**values, PARAMETER: key}, columns, *map(len, late.values())) if late else ()
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    seen_at: dict[tuple[Any, ...], datetime] = {}
    for *alike, member, in_all, number, text in rows:
        if member == MemberCondition.NOT_OBSERVED:
            seen = text
            if isinstance(text, str):  # as SQLite has it, in UTC
                seen = datetime.fromisoformat(text).replace(tzinfo=UTC)
            seen_at.update(dict.fromkeys([(*alike, member, True), (*alike, member, False)], seen))
        for is_late, several in ((True, number), (False, in_all - number)):
            counts[*alike, member, is_late] += several
            if member != MemberCondition.READY:
                counts[*alike, MemberCondition.READY, is_late] -= several
    names = (*_ALIKE, *columns, "member", "is_late", "count", "seen")
    return [
        dict(zip(names, (*one, several, seen_at.get(one)), strict=True))
        for one, several in counts.items()
        if several
    ]


def _write_groups(columns: tuple[str, ...], *lengths: int) -> QuerySet[Any, Any]:
    """Return the query of the groups, with as many placements late since one time as each length.

    It counts all, and those on clusters that are not ready again: most are ready, and none of these is
    looked up.
    """
    keys, alike = count(_FIRST_KEY), (*_ALIKE, *columns)
    late = {ANY_TIME + timedelta(number): list(islice(keys, length)) for number, length in enumerate(lengths)}
    labels = MemberCluster.objects.filter(name=OuterRef("cluster_name")).values(value=label_of(PARAMETER))
    domain = {"domain": Subquery(labels[:1])} if "domain" in columns else {}
    rows = Binding.objects.filter(placement__in=chain.from_iterable(late.values())).annotate(**domain)
    everywhere = rows.annotate(member=Value(MemberCondition.READY, CharField()))
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    elsewhere = rows.exclude(cluster_name__in=_members(_is_ready(_NOW))).annotate(
        member=_condition_of_member(_NOW), seen_at=Subquery(members.values("heartbeat_at")[:1])
    )
    never = Value(None, output_field=DateTimeField())
    both = [
        each.order_by()
        .values(*alike, "member")
        .annotate(count=Count("*"), late=Count("phase", filter=_is_late(late)), seen=seen)
        for each, seen in ((everywhere, never), (elsewhere, Min("seen_at")))
    ]
    return both[0].union(both[1], all=True).values_list(*alike, "member", "count", "late", "seen")


_GROUPS = PreparedQuery(_write_groups)


def _condition_of_member(now: datetime) -> Coalesce:
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    of_member = Case(
        When(_IS_LEAVING, then=Value(MemberCondition.LEAVING)),
        When(~_IS_MONITORED, then=Value(MemberCondition.NOT_MONITORED)),
        When(_IS_UNREACHABLE, then=Value(MemberCondition.UNREACHABLE)),
        When(not_observed(now=now), then=Value(MemberCondition.NOT_OBSERVED)),
        When(~Q(verdict="") | unhealthy(now=now), then=Value(MemberCondition.NOT_READY)),
        default=Value(MemberCondition.READY),
        output_field=CharField(),
    )
    condition = Subquery(members.annotate(condition=of_member).values("condition")[:1])
    return Coalesce(condition, Value(MemberCondition.UNREACHABLE), output_field=CharField())


def _by_lateness(placements: Collection[Placement], *, now: datetime) -> dict[datetime, list[int]]:
    """Return the keys of placements by the time since which their clusters have to be available.

    The time is a value for each period: SQLite computes with times in Python.
    """
    ids: dict[datetime, list[int]] = defaultdict(list)
    for one in placements:
        ids[now - one.unavailable_period].append(one.pk)
    return ids


def _is_late(ids: Mapping[datetime, Collection[int]]) -> Q:
    """Return the condition of bindings of placements, by that time, that are not available for longer."""
    late = [Q(phase_changed_at__lt=since, placement__in=several) for since, several in ids.items()]
    return Q(phase=Phase.APPLIED) & reduce(or_, late, Q(pk__in=()))


def _observed(
    rows: QuerySet[Binding], placements: Collection[Placement], *, now: datetime
) -> QuerySet[Any, Any]:
    """Return bindings of these placements with what the status of their clusters follows from."""
    is_late = Case(When(_is_late(_by_lateness(placements, now=now)), then=True), default=False)
    return rows.annotate(member=_condition_of_member(now), is_late=is_late)


def cluster_statuses(
    placement: Any, rows: QuerySet[Binding], *, now: datetime
) -> list[tuple[Any, ClusterStatus]]:
    return [(row, _status_of(placement, row.__dict__)) for row in _observed(rows, [placement], now=now)]


def statuses_on(rows: QuerySet[Binding], *, most: int, now: datetime) -> list[tuple[Any, ClusterStatus]]:
    """Return the first bindings, of several placements, each with the status of its cluster; two queries."""
    owners = with_rollouts(Placement.objects.filter(pk__in=rows.order_by().values("placement")))
    placements = {one.pk: one for one in owners.defer("document")}
    bindings = _observed(rows.filter(placement__in=placements), placements.values(), now=now)
    return [(row, _status_of(placements[row.placement_id], row.__dict__)) for row in bindings[:most]]


def _status_of(placement: Any, row: Mapping[str, Any]) -> ClusterStatus:
    """Return the status that follows from the columns of a binding and those of `_observed`."""
    suspension = "Paused" if placement.paused_since else "Stopped" if placement.is_stopped else ""
    if placement.is_staged and (not placement.is_rolling or placement.gate in GATES):
        suspension = suspension or ("Stopped" if placement.gate == WaitReason.RESUME else "Pending")
    is_selected = row["state"] != BindingState.UNSCHEDULED and placement.deleting_since is None
    has_resources = placement.selected_count != 0 or placement.pinned_snapshot is not None
    if is_selected and not has_resources:
        return ClusterStatus(HealthLevel.ATTENTION, "No resources")
    phase, started = Phase(row["phase"]), row["started_status"]
    return cluster_status(
        ClusterFacts(
            phase,
            MemberCondition(row["member"]),
            is_selected=is_selected,
            is_current=started == _TRUE or (not started and phase not in EMPTY),
            is_ready=row["available_status"] == _TRUE,
            is_late=row["is_late"] or not placement.is_rolling,
            failure=row["failure"],
            suspension=suspension,
            is_stalled=bool(placement.is_stalled) and not placement.needs_sync,
        )
    )


_UNKNOWN_MEMBERS = [MemberCondition(one) for one in ("unreachable", "not observed", "not monitored")]
_MOST_NAMES = 3
_LEVELS = list(HealthLevel)


@dataclass(frozen=True, slots=True)
class ClusterProblem:
    """Clusters of a placement with one status that needs attention: the first names, and the first reason."""

    status: ClusterStatus
    names: tuple[str, ...]
    count: int
    since: datetime | None
    reason: str


def cluster_problems(placement: Any, *, now: datetime) -> list[ClusterProblem]:
    """Return what is wrong with clusters of a placement, the worst first; one query.

    Only the first clusters of those alike are read.
    """
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    is_waiting = Q(phase=Phase.APPLIED)
    if placement.is_rolling:  # what was applied a moment ago becomes available in time
        is_waiting &= Q(phase_changed_at__lt=now - placement.unavailable_period)
    is_ready = Q(cluster_name__in=_members(_is_ready(now)))
    has_failed = (
        Q(phase__in=(Phase.FAILED, Phase.REMOVE_FAILED)) | Q(failure=FailureKind.DIFFERS) | is_waiting
    )
    rows = Binding.objects.filter(placement=placement)
    rows = _observed(
        rows.filter(has_failed | ~is_ready & ~Q(state=BindingState.UNSCHEDULED)), [placement], now=now
    )
    alike = ("state", "phase", "failure", "member", "is_late", "started_status", "available_status")
    rows = rows.annotate(
        place=Window(RowNumber(), partition_by=alike, order_by="cluster_name"),
        count=Window(Count("pk"), partition_by=alike),
        member_since=Subquery(
            members.values(
                since=Case(
                    When(not_observed(now=now), then=F("heartbeat_at")),
                    When(unhealthy(now=now), then=F("healthy_since")),
                    default=Coalesce("unanswered_since", "verdict_since"),
                )
            )[:1]
        ),
        member_reason=Subquery(
            members.values(
                reason=Case(
                    When(unhealthy(now=now), then=Value("the cluster reports itself unhealthy")),
                    default=F("verdict_reason"),
                )
            )[:1]
        ),
    )
    groups: dict[ClusterStatus, list[Any]] = defaultdict(list)
    for row in rows.filter(place__lte=_MOST_NAMES).order_by("cluster_name"):
        status = _status_of(placement, row.__dict__)
        if status.level in (HealthLevel.FAILED, HealthLevel.ATTENTION, HealthLevel.UNKNOWN):
            groups[status].append(row)
    problems = []
    for status, several in groups.items():
        first = several[0]
        is_member = status.level is HealthLevel.UNKNOWN or first.member == MemberCondition.NOT_READY
        problems.append(
            ClusterProblem(
                status,
                tuple(row.cluster_name for row in several[:_MOST_NAMES]),
                sum(row.count for row in several if row.place == 1),
                first.member_since if is_member else first.phase_changed_at,
                first.member_reason or "" if is_member else first.message,
            )
        )
    return sorted(problems, key=lambda one: (_LEVELS.index(one.status.level), -one.count))


@prepared_columns
def with_rollouts() -> dict[str, Any]:
    """Return placements with what their status needs of their rollouts."""
    waiting = _at_gate().order_by("-pk")
    return {
        "is_rolling": _is_rolling("pk"),
        "is_stalled": _is_stalled(),
        "awaits_run": _awaits_run(),
        "applied_older": Case(
            When(strategy_type=StrategyType.EXTERNAL, hub=LOCAL_HUB, then=number_of(_applied_older())),
            default=0,
        ),
        "exceeded": Subquery(_exceeded("pk").values("exceeded")[:1]),
        "gate": Subquery(waiting.values(gate=KT("sync_result__waits__0__reason"))[:1]),
        "gate_stage": Subquery(waiting.values(stage=KT("sync_result__waits__0__stage"))[:1]),
    }


def _exceeded(placement: str) -> QuerySet[StalenessCheck]:
    """Return the check of the current decision of a placement, if hard limits are exceeded by it."""
    rows = StalenessCheck.objects.filter(placement=OuterRef(placement))
    return rows.filter(decisions_made=OuterRef("decisions_made")).exclude(exceeded=[])


def _running(placement: str) -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    rolling = Rollout.objects.filter(placement=OuterRef(placement), state=Rollout.State.RUNNING)
    staged = StagedRun.objects.filter(placement=OuterRef(placement), ended_at=None, started_at__isnull=False)
    return rolling, staged


def _at_gate() -> QuerySet[StagedRun]:
    """Return the runs of a placement that wait for an approval or a timer, or are stopped."""
    is_idle = Q(status__in=(RunStatus.WAITING, RunStatus.STOPPED))
    return _running("pk")[1].filter(is_idle, sync_result__waits__0__reason__in=[*GATES])


def _is_rolling(placement: str) -> Q:
    rolling, staged = _running(placement)
    return Q(Exists(rolling)) | Q(Exists(staged))


def _is_stalled() -> Q:
    rolling, staged = _running("pk")
    is_halted = Exists(rolling.filter(verdict=RunPhase.HALTED))
    return Q(is_halted) | Q(Exists(staged.filter(status=RunStatus.STUCK)))


def _awaits_run() -> Q:
    """Return the condition of staged placements with what only their next run applies or removes."""
    older = ResourceSnapshot.objects.filter(placement=OuterRef("pk"), is_latest=False)
    is_older = Exists(older.filter(bindings__state__in=(BindingState.SCHEDULED, BindingState.BOUND)))
    left = Binding.objects.filter(placement=OuterRef("pk"), state=BindingState.UNSCHEDULED)
    is_left = Exists(left.exclude(phase__in=(*EMPTY, Phase.REMOVING)))
    is_outdated = Q(has_newer_resources=True) | is_older | is_left
    return Q(strategy_type=StrategyType.EXTERNAL, hub=LOCAL_HUB) & is_outdated


def _applied_older() -> QuerySet[Binding]:
    """Return where a staged placement has another revision than its run in progress, else than the newest."""
    runs = StagedRun.objects.filter(placement=OuterRef("placement"), ended_at=None)
    runs = runs.filter(started_at__isnull=False, resource_snapshot__isnull=False)
    is_newest = Q(resource_snapshot__is_latest=True, placement__has_newer_resources=False)
    is_wanted = Exists(runs.filter(resource_snapshot=OuterRef("resource_snapshot"))) | (
        is_newest & ~Exists(runs)
    )
    rows = Binding.objects.filter(placement=OuterRef("pk"), phase__in=(Phase.APPLIED, Phase.AVAILABLE))
    return rows.exclude(_is_deselected()).exclude(failure=FailureKind.DIFFERS).exclude(is_wanted)


def is_pending() -> Q:
    """Return the condition of placements that are not decided as they are now; a live hub says of which."""
    undecided = Q(is_fulfilled=None, deleting_since=None) & ~Q(hub=LOCAL_HUB)
    return Q(observed_generation__lt=F("generation")) | undecided


def is_degraded(*, now: datetime) -> Q:
    """Return the condition of placements whose status is failed, degraded or unknown (`placement_health`)."""
    bindings = Binding.objects.exclude(_is_deselected())
    not_monitored = bindings.filter(cluster_name__in=_members(~_IS_MONITORED))
    others = bindings.exclude(cluster_name__in=_members(~_IS_MONITORED))
    is_unready = ~Q(cluster_name__in=_members(_is_ready(now) | ~_IS_MONITORED))  # also without a member
    is_applied = Q(phase=Phase.APPLIED) & ~Q(available_status=_TRUE)
    is_late = Q(phase_changed_at__lt=Value(now) - F("placement__unavailable_period"))
    differs = Q(phase__in=(Phase.APPLIED, Phase.AVAILABLE), failure=FailureKind.DIFFERS)
    is_failing = Q(phase=Phase.FAILED) | differs | (is_applied & (is_late | ~_is_rolling("placement")))
    not_removed = Binding.objects.filter(phase=Phase.REMOVE_FAILED)
    has_others = Q(Exists(_members(~_IS_MONITORED)))  # none in most fleets: no look at their bindings
    is_partly_monitored = has_others & _among(not_monitored) & _among(others)
    is_applied_nowhere = has_others & _among(not_monitored) & ~_among(others)
    is_scaled_to_zero = Q(placement_type=PlacementType.PICK_N, number_of_clusters=0)
    is_empty = Q(Exact(Coalesce("number_of_clusters", "named_count", Value(0)), 0)) & ~_among(bindings)
    is_empty &= ~is_scaled_to_zero
    return _among(not_removed) | Q(deleting_since=None) & (
        ~Q(selection_faults=[])
        | Q(selected_count=0, pinned_snapshot=None)
        | UNFULFILLED
        | Q(is_fulfilled=True) & ~AWAITS_DECISION & is_empty
        | _among(bindings.filter(is_unready | (is_failing & ~Q(cluster_name__in=_members(~_IS_MONITORED)))))
        | is_partly_monitored
        | Q(Exists(_exceeded("pk"))) & ~AWAITS_DECISION & ~is_applied_nowhere & _among(bindings)
        | _is_stalled() & ~(is_applied_nowhere & ~AWAITS_DECISION) & ~_IS_SUSPENDED & ~_NEEDS_SYNC
    )


def is_healthy(*, now: datetime) -> Q:
    """Return the condition of placements whose status is healthy (`placement_health`)."""
    selected = Binding.objects.exclude(_is_deselected())
    is_available = Q(phase=Phase.AVAILABLE) | Q(phase=Phase.APPLIED, available_status=_TRUE)
    is_started = Q(started_status__in=("", _TRUE))
    is_not_monitored = Q(cluster_name__in=_members(~_IS_MONITORED))
    outstanding = selected.filter(is_not_monitored | ~is_available | ~is_started)
    removed = Q(state=BindingState.UNSCHEDULED, phase__in=EMPTY)
    removing = Binding.objects.filter(_is_deselected()).exclude(removed)
    is_settled = Q(deleting_since=None, is_fulfilled=True, observed_generation__gte=F("generation"))
    is_starting = _NEEDS_SYNC & ~_IS_SUSPENDED & ~Q(strategy_type=StrategyType.EXTERNAL)
    is_complete = ~_among(outstanding) & ~_among(removing) & ~(_awaits_run() & ~_is_rolling("pk"))
    return is_settled & ~is_starting & ~is_degraded(now=now) & is_complete & ~Q(Exists(_at_gate()))


def _is_deselected() -> Q:
    return Q(state=BindingState.UNSCHEDULED) | Q(cluster_name__in=_members(_IS_LEAVING))


def _members(*conditions: Q, **lookups: str) -> QuerySet[Any, Any]:
    return MemberCluster.objects.filter(*conditions, **lookups).values("name")


def _among(bindings: QuerySet[Binding]) -> Q:
    # PostgreSQL evaluates this once, but an `Exists` for each placement: 0.03 and 4 s at 5,000 clusters.
    return Q(pk__in=bindings.values("placement"))


def _wanted(placements: Collection[Placement]) -> dict[int, int | None]:
    """Return how many clusters each is to have; of the latest decision while the next one is due."""
    numbers = {one.pk: one.number_of_clusters for one in placements}
    due = [one.pk for one in placements if one.is_due and one.decisions_made]
    rows = Decision.objects.filter(placement__in=due, number=F("placement__decisions_made"))
    return numbers | dict(rows.values_list("placement_id", "wanted")) if due else numbers


def _facts(
    placement: Placement,
    groups: Collection[dict[str, Any]],
    rollout: Any,
    wanted: Mapping[int, int | None],
    *,
    now: datetime,
) -> HealthFacts:
    is_rolling = bool(rollout.is_rolling)
    is_suspended = placement.paused_since is not None or placement.is_stopped
    resources = placement.selected_count if placement.pinned_snapshot is None else None
    counts = _counts(groups, is_rolling=is_rolling, has_resources=resources != 0, older=rollout.applied_older)
    numbers = (wanted[placement.pk], placement.named_count, counts["scheduled"])
    number = next(one for one in numbers if one is not None)
    seen = min((group["seen"] for group in groups if group["seen"]), default=None)
    return HealthFacts(
        HealthCounts(wanted=number, **counts),
        placement.placement_type,
        placement.is_fulfilled,
        awaits_decision=placement.awaits_decision,
        is_pending=placement.is_due or (placement.is_mirrored and placement.is_fulfilled is None),
        has_invalid_selectors=bool(placement.selection_faults),
        resources=resources,
        is_deleting=placement.deleting_since is not None,
        is_paused=placement.paused_since is not None,
        is_stopped=placement.is_stopped,
        is_staged=placement.is_staged,
        awaits_run=bool(rollout.awaits_run) and not is_rolling,
        is_starting=placement.is_starting,
        is_rolling=is_rolling,
        is_stalled=bool(rollout.is_stalled) and not is_suspended and not placement.needs_sync,
        gate=rollout.gate or "",
        gate_stage=rollout.gate_stage or "",
        silence=silence_words(now - seen) if seen else "",
        exceeded=tuple(ExceededLimit(*one) for one in rollout.exceeded or ()),
    )


def _counts(
    groups: Collection[dict[str, Any]], *, is_rolling: bool, has_resources: bool, older: int
) -> dict[str, int]:
    """Count the clusters, `older` of them with an older revision; nothing is available without resources."""
    counts: dict[str, int] = defaultdict(int)
    for group in groups:
        phase, number = Phase(group["phase"]), group["count"]
        if phase is Phase.REMOVE_FAILED:
            counts["removal_failed"] += number
        is_selected = group["state"] != BindingState.UNSCHEDULED
        if not is_selected or group["member"] == MemberCondition.LEAVING:
            counts["removing"] += number if is_selected or phase not in EMPTY else 0
            continue
        counts["scheduled"] += number
        started = group["started_status"]
        is_there = phase not in EMPTY and phase is not Phase.REMOVING
        is_current = started == _TRUE or (not started and is_there)
        counts["started"] += number if is_current else 0
        is_report = group["failure"] == FailureKind.DIFFERS  # nothing was applied
        if phase in (Phase.APPLIED, Phase.AVAILABLE) and is_current and has_resources and not is_report:
            counts["applied"] += number
        counts[_state_of(group, is_rolling=is_rolling, has_resources=has_resources)] += number
    counts["applied"] -= min(older, counts["applied"])
    return counts


def _state_of(group: Mapping[str, Any], *, is_rolling: bool, has_resources: bool) -> str:
    """Return the one state of `HealthCounts` that selected clusters are in."""
    phase, member = Phase(group["phase"]), group["member"]
    is_applied = phase in (Phase.APPLIED, Phase.AVAILABLE)
    is_ready = phase is Phase.AVAILABLE or (is_applied and group["available_status"] == _TRUE)
    is_late = is_applied and not is_ready and (group["is_late"] or not is_rolling)
    states = (
        (member in _UNKNOWN_MEMBERS, member.replace(" ", "_")),
        (phase is Phase.FAILED, "failed"),
        (is_applied and group["failure"] == FailureKind.DIFFERS, "differs"),
        (is_late, "not_available"),
        (member == MemberCondition.NOT_READY, "not_ready"),
        (is_ready and has_resources, "available"),
        (phase in EMPTY or is_ready, "pending"),
    )
    return next((state for is_in, state in states if is_in), "in_flight")
