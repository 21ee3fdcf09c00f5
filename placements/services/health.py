"""The status of placements, from their bindings and the clusters as they are now."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import reduce
from itertools import chain
from operator import or_
from types import SimpleNamespace
from typing import Any

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
)
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from clusters.drivers.base import FAILED_TO_TAKE_OVER
from clusters.drivers.registry import DRIVERS
from clusters.fleet import EligibilityKind
from clusters.models import MemberCluster
from clusters.observation import not_observed, unhealthy
from fleetui.bulk import batched, number_of
from fleetui.hub_scope import LOCAL_HUB
from fleetui.prepared import PreparedQuery
from placements.engine.limits import ExceededLimit
from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.staged_run import RunStatus, WaitReason
from placements.engine.rollout.state import EMPTY, FailureKind, Phase
from placements.engine.status import (
    GATES,
    TROUBLED,
    WAITS_FOR_APPROVAL,
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
from placements.explain.vocabulary import silence_words
from placements.manifests.binding import BindingState
from placements.manifests.strategy import StrategyType
from placements.models import (
    Binding,
    Decision,
    Placement,
    ResourceSnapshot,
    Rollout,
    StagedRun,
    StalenessCheck,
)

_TRUE = "True"
_IS_MONITORED = Q(driver__in=DRIVERS) | ~Q(
    hub=LOCAL_HUB
)  # the agents of a live hub report to it
_LOST = (EligibilityKind.STALE_HEARTBEAT, EligibilityKind.NO_AGENT)
_IS_UNREACHABLE = Q(verdict__in=_LOST) | Q(
    unanswered_since__isnull=False
)  # whichever comes first
_IS_LEAVING = Q(verdict=EligibilityKind.LEAVING)


def ready_clusters(*, now: datetime) -> QuerySet[MemberCluster]:
    is_eligible = Q(verdict="", unanswered_since=None)
    rows = MemberCluster.objects.filter(_IS_MONITORED & is_eligible)
    return rows.filter(~not_observed(now=now) & ~unhealthy(now=now))


def health_of(placement: Placement, *, now: datetime) -> PlacementHealth:
    return healths_of([placement], now=now)[placement.pk]


def stored_healths(
    placements: Collection[Placement], *, now: datetime
) -> dict[int, PlacementHealth]:
    """Return the status of each placement as it was stored last; a new one has none, and is read."""
    new = [placement for placement in placements if placement.health is None]
    healths = healths_of(new, now=now) if new else {}
    return healths | {
        placement.pk: PlacementHealth.read(placement.health)
        for placement in placements
        if placement.health is not None
    }


def healths_named(
    names: Collection[str], *, now: datetime
) -> dict[str, PlacementHealth]:
    placements = list(
        Placement.objects.filter(full_name__in=names).only("full_name", "health")
    )
    healths = stored_healths(placements, now=now)
    return {placement.full_name: healths[placement.pk] for placement in placements}


def all_healths(*, now: datetime) -> Iterator[tuple[Any, PlacementHealth]]:
    """Yield each placement of the hub in scope with the status that it has now."""
    placements = with_rollouts(Placement.objects.defer(*_LARGE)).order_by("full_name")
    for part in batched(placements):
        healths = healths_of(part, now=now)
        yield from ((placement, healths[placement.pk]) for placement in part)


_LARGE = ("label_keys_read", "property_names_read", "conditions", "hub_conditions")


def healths_of(
    placements: Collection[Placement], *, now: datetime
) -> dict[int, PlacementHealth]:
    """Return the status that placements have now; one query for those loaded `with_rollouts`, else two."""
    groups: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for group in _groups(placements, now=now):
        groups[group["placement_id"]].append(group)
    others = [
        placement.pk for placement in placements if not hasattr(placement, "is_rolling")
    ]
    rows = (
        with_rollouts(Placement.objects.filter(pk__in=others)).only("pk")
        if others
        else ()
    )
    rollouts: dict[int, Any] = dict.fromkeys(
        others, _NO_ROLLOUT
    )  # of those deleted since they were read
    rollouts |= {row.pk: row for row in rows}
    rollouts |= {
        placement.pk: placement
        for placement in placements
        if placement.pk not in rollouts
    }
    wanted = _wanted(placements)
    return {
        placement.pk: placement_health(
            _facts(
                placement, groups[placement.pk], rollouts[placement.pk], wanted, now=now
            )
        )
        for placement in placements
    }


_NO_ROLLOUT = SimpleNamespace(
    **dict.fromkeys(
        ("is_rolling", "is_stalled", "awaits_run", "gate", "gate_stage", "exceeded"), ""
    ),
    applied_older=0,
)


_ALIKE = (
    "placement_id",
    "state",
    "phase",
    "started_status",
    "available_status",
    "failure",
)


def _groups(
    placements: Collection[Placement], *, now: datetime
) -> list[dict[str, Any]]:
    """Return the bindings of placements, those with the same values counted.

    A cluster without a member is unreachable; `seen` is when the first of those that are not observed was
    observed last. The query counts all, and those on clusters that are not ready again: most are ready, and
    none of these is looked up.
    """
    if len(placements) == 1:
        [only] = placements
        alike = _alike_of_one.rows(
            placement=only.pk, late=now - only.unavailable_period, now=now
        )
    else:
        alike = list(_alike(_late_before(placements, now=now), now=now))
    counts: dict[tuple[Any, ...], int] = defaultdict(int)
    seen_at: dict[tuple[Any, ...], datetime] = {}
    for *values, member, in_all, number, seen in alike:
        if member == MemberCondition.NOT_OBSERVED:
            seen_at.update(
                dict.fromkeys([(*values, member, True), (*values, member, False)], seen)
            )
        for has_passed, several in ((True, number), (False, in_all - number)):
            counts[*values, member, has_passed] += several
            if member != MemberCondition.READY:
                counts[*values, MemberCondition.READY, has_passed] -= several
    names = (*_ALIKE, "member", "is_late", "count", "seen")
    return [
        dict(zip(names, (*one, several, seen_at.get(one)), strict=True))
        for one, several in counts.items()
        if several
    ]


def _alike(
    late_before: Mapping[datetime, Sequence[int]], *, now: datetime
) -> QuerySet[Any, Any]:
    """Return the bindings of these placements, counted, and again those on clusters that are not ready."""
    rows = Binding.objects.filter(placement__in=chain(*late_before.values()))
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    everywhere = rows.annotate(member=Value(MemberCondition.READY, CharField()))
    elsewhere = rows.exclude(cluster_name__in=ready_clusters(now=now).values("name"))
    elsewhere = elsewhere.annotate(
        member=_condition_of_member(now),
        seen_at=Subquery(members.values("heartbeat_at")[:1]),
    )
    is_late = _is_late(late_before)
    never = Value(None, output_field=DateTimeField())
    both = [
        query_set.order_by()
        .values(*_ALIKE, "member")
        .annotate(count=Count("*"), late=Count("phase", filter=is_late), seen=seen)
        for query_set, seen in ((everywhere, never), (elsewhere, Min("seen_at")))
    ]
    return (
        both[0]
        .union(both[1], all=True)
        .values_list(*_ALIKE, "member", "count", "late", "seen")
    )


_alike_of_one = PreparedQuery(
    lambda *, placement, late, now: _alike({late: [placement]}, now=now)
)


def _condition_of_member(now: datetime) -> Coalesce:
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    of_member = Case(
        When(_IS_LEAVING, then=Value(MemberCondition.LEAVING)),
        When(~_IS_MONITORED, then=Value(MemberCondition.NOT_MONITORED)),
        When(_IS_UNREACHABLE, then=Value(MemberCondition.UNREACHABLE)),
        When(not_observed(now=now), then=Value(MemberCondition.NOT_OBSERVED)),
        When(
            ~Q(verdict="") | unhealthy(now=now), then=Value(MemberCondition.NOT_READY)
        ),
        default=Value(MemberCondition.READY),
        output_field=CharField(),
    )
    condition = Subquery(members.annotate(condition=of_member).values("condition")[:1])
    return Coalesce(
        condition, Value(MemberCondition.UNREACHABLE), output_field=CharField()
    )


def _late_before(
    placements: Collection[Placement], *, now: datetime
) -> dict[datetime, list[int]]:
    """Return before which moment what is not available there became so too long ago, with the placements.

    A moment for each period: SQLite computes with times in Python.
    """
    return {
        now - period: [
            placement.pk
            for placement in placements
            if placement.unavailable_period == period
        ]
        for period in {placement.unavailable_period for placement in placements}
    }


def _is_late(late_before: Mapping[datetime, Sequence[int]]) -> Q:
    """Return the condition of bindings that are not available for longer than allowed."""
    late = (
        Q(phase_changed_at__lt=moment, placement__in=several)
        for moment, several in late_before.items()
    )
    return Q(phase=Phase.APPLIED) & reduce(or_, late, Q(pk__in=()))


def _observed(
    rows: QuerySet[Binding],
    late_before: Mapping[datetime, Sequence[int]],
    *,
    now: datetime,
) -> QuerySet[Any, Any]:
    """Return bindings of these placements with what the status of their clusters follows from."""
    is_late = Case(When(_is_late(late_before), then=True), default=False)
    return rows.annotate(member=_condition_of_member(now), is_late=is_late)


def cluster_statuses(
    placement: Any, rows: QuerySet[Binding], *, now: datetime
) -> list[tuple[Any, ClusterStatus]]:
    return [
        (row, _status_of(placement, row.__dict__))
        for row in _observed(rows, _late_before([placement], now=now), now=now)
    ]


def statuses_on(
    rows: QuerySet[Binding], *, most: int, now: datetime
) -> list[tuple[Any, ClusterStatus]]:
    """Return the first bindings, of several placements, each with the status of its cluster; two queries."""
    owners = with_rollouts(
        Placement.objects.filter(pk__in=rows.order_by().values("placement"))
    )
    placements = {one.pk: one for one in owners.defer("document")}
    bindings = _observed(
        rows.filter(placement__in=placements),
        _late_before(placements.values(), now=now),
        now=now,
    )
    statuses = []
    for row in bindings[:most]:
        row.placement = placements[row.placement_id]
        statuses.append((row, _status_of(row.placement, row.__dict__)))
    return statuses


def _status_of(placement: Any, row: Mapping[str, Any]) -> ClusterStatus:
    """Return the status that follows from the columns of a binding and those of `_observed`."""
    suspension = (
        "Paused"
        if placement.paused_since
        else "Stopped"
        if placement.is_stopped
        else ""
    )
    if placement.is_staged and (not placement.is_rolling or placement.gate in GATES):
        suspension = suspension or (
            "Paused" if placement.gate == WaitReason.RESUME else "Pending"
        )
    is_selected = (
        row["state"] != BindingState.UNSCHEDULED and placement.deleting_since is None
    )
    has_resources = (
        placement.selected_count != 0 or placement.pinned_snapshot is not None
    )
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


_UNKNOWN_MEMBERS = [
    MemberCondition(one) for one in ("unreachable", "not observed", "not monitored")
]
_MOST_NAMES = 3
_LEVELS = list(HealthLevel)
_PROBLEMS = (HealthLevel.FAILED, HealthLevel.ATTENTION, HealthLevel.UNKNOWN)


class Remedy(StrEnum):
    CLUSTER = "cluster"
    OVERRIDES = "overrides"
    OWNERSHIP = "ownership"  # of an object: the selectors, or the apply strategy
    OBJECTS = "objects"


@dataclass(frozen=True, slots=True)
class ClusterProblem:
    """Clusters of a placement with one status that needs attention: the first names, and the first reason."""

    status: ClusterStatus
    names: tuple[str, ...]
    count: int
    since: datetime | None
    reason: str
    remedy: Remedy


_OF_STATUS = (
    "state",
    "phase",
    "failure",
    "member",
    "is_late",
    "started_status",
    "available_status",
)


@PreparedQuery
def _problem_rows(
    is_rolling: bool, *, placement: int, late: datetime, now: datetime
) -> QuerySet[Any, Any]:
    """Return the names and the values of the bindings that may have a problem; unordered."""
    is_waiting = Q(phase=Phase.APPLIED)
    if is_rolling:  # what was applied a moment ago becomes available in time
        is_waiting &= Q(phase_changed_at__lt=late)
    is_ready = Q(cluster_name__in=ready_clusters(now=now).values("name"))
    has_failed = (
        Q(phase__in=(Phase.FAILED, Phase.REMOVE_FAILED))
        | Q(failure=FailureKind.DIFFERS)
        | is_waiting
    )
    rows = Binding.objects.filter(
        has_failed | ~is_ready & ~Q(state=BindingState.UNSCHEDULED),
        placement=placement,
    )
    rows = _observed(rows.order_by(), {late: [placement]}, now=now)
    return rows.values_list("cluster_name", *_OF_STATUS)


def cluster_problems(placement: Any, *, now: datetime) -> list[ClusterProblem]:
    """Return what is wrong with clusters of a placement, the worst first; two queries.

    There may be thousands: of those with one status, only the first binding is read whole.
    """
    rows = _problem_rows.rows(
        bool(placement.is_rolling),
        placement=placement.pk,
        late=now - placement.unavailable_period,
        now=now,
    )
    statuses = {
        values: _status_of(placement, dict(zip(_OF_STATUS, values, strict=True)))
        for values in {row[1:] for row in rows}
    }
    groups: dict[ClusterStatus, list[Any]] = defaultdict(list)
    for row in sorted(rows):
        groups[statuses[row[1:]]].append(row)
    members = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    firsts = Binding.objects.annotate(
        member=_condition_of_member(now),
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
                    When(
                        unhealthy(now=now),
                        then=Value("the cluster reports itself unhealthy"),
                    ),
                    default=F("verdict_reason"),
                )
            )[:1]
        ),
    ).filter(
        placement=placement,
        cluster_name__in=[
            several[0][0]
            for status, several in groups.items()
            if status.level in _PROBLEMS
        ],
    )
    status_of = {row[0]: statuses[row[1:]] for row in rows}
    problems = []
    for first in firsts:
        status = status_of[first.cluster_name]
        several = groups[status]
        is_member = (
            status.word in ("Unreachable", "Not observed")
            or first.member == MemberCondition.NOT_READY
        )
        problems.append(
            ClusterProblem(
                status,
                tuple(name for name, *_ in several[:_MOST_NAMES]),
                len(several),
                first.member_since if is_member else first.phase_changed_at,
                first.member_reason or "" if is_member else first.message,
                Remedy.CLUSTER if is_member else _remedy_of(first),
            )
        )
    return sorted(
        problems, key=lambda one: (_LEVELS.index(one.status.level), -one.count)
    )


def _remedy_of(binding: Binding) -> Remedy:
    if FAILED_TO_TAKE_OVER in {
        failed_object["code"] for failed_object in binding.failed_objects
    }:
        return Remedy.OWNERSHIP
    remedies: dict[str, Remedy] = {
        FailureKind.OVERRIDE: Remedy.OVERRIDES,
        FailureKind.REFUSED: Remedy.OBJECTS,
    }
    return remedies.get(binding.failure, Remedy.CLUSTER)


def exceeded_of(placement: Any) -> list[ExceededLimit]:
    """Return the hard limits that the clusters of a placement, loaded `with_rollouts`, exceed."""
    rows = placement.exceeded or ()
    return [ExceededLimit(*row) for row in rows if not placement.awaits_decision]


def with_rollouts(placements: QuerySet[Placement]) -> QuerySet[Any]:
    rolling = Rollout.objects.filter(
        placement=OuterRef("pk"), state=Rollout.State.RUNNING
    )
    staged = StagedRun.objects.filter(
        placement=OuterRef("pk"), ended_at=None, started_at__isnull=False
    )
    is_idle = Q(status__in=(RunStatus.WAITING, RunStatus.STOPPED))
    waiting = staged.filter(
        is_idle, sync_result__waits__0__reason__in=[*GATES]
    ).order_by("-pk")
    exceeded = StalenessCheck.objects.filter(
        placement=OuterRef("pk"), decisions_made=OuterRef("decisions_made")
    )
    return placements.annotate(
        is_rolling=Q(Exists(rolling)) | Q(Exists(staged)),
        is_stalled=Q(Exists(rolling.filter(verdict=RunPhase.HALTED)))
        | Q(Exists(staged.filter(status=RunStatus.STUCK))),
        awaits_run=_awaits_run(),
        applied_older=Case(
            When(
                strategy_type=StrategyType.EXTERNAL,
                hub=LOCAL_HUB,
                then=number_of(_applied_older()),
            ),
            default=0,
        ),
        exceeded=Subquery(exceeded.values("exceeded")[:1]),
        gate=Subquery(waiting.values(gate=KT("sync_result__waits__0__reason"))[:1]),
        gate_stage=Subquery(
            waiting.values(stage=KT("sync_result__waits__0__stage"))[:1]
        ),
    )


def _awaits_run() -> Q:
    """Return the condition of staged placements with what only their next run applies or removes."""
    older = ResourceSnapshot.objects.filter(placement=OuterRef("pk"), is_latest=False)
    is_older = Exists(
        older.filter(bindings__state__in=(BindingState.SCHEDULED, BindingState.BOUND))
    )
    left = Binding.objects.filter(
        placement=OuterRef("pk"), state=BindingState.UNSCHEDULED
    )
    is_left = Exists(left.exclude(phase__in=(*EMPTY, Phase.REMOVING)))
    is_outdated = Q(has_newer_resources=True) | is_older | is_left
    return Q(strategy_type=StrategyType.EXTERNAL, hub=LOCAL_HUB) & is_outdated


def _applied_older() -> QuerySet[Binding]:
    """Return where a staged placement has another revision than its run in progress, else than the newest."""
    runs = StagedRun.objects.filter(placement=OuterRef("placement"), ended_at=None)
    runs = runs.filter(started_at__isnull=False, resource_snapshot__isnull=False)
    is_newest = Q(
        resource_snapshot__is_latest=True, placement__has_newer_resources=False
    )
    is_wanted = Exists(runs.filter(resource_snapshot=OuterRef("resource_snapshot"))) | (
        is_newest & ~Exists(runs)
    )
    rows = Binding.objects.filter(
        placement=OuterRef("pk"), phase__in=(Phase.APPLIED, Phase.AVAILABLE)
    )
    leaving = MemberCluster.objects.filter(_IS_LEAVING).values("name")
    rows = rows.exclude(Q(state=BindingState.UNSCHEDULED) | Q(cluster_name__in=leaving))
    return rows.exclude(failure=FailureKind.DIFFERS).exclude(is_wanted)


AWAITS_APPROVAL = Q(health__word=WAITS_FOR_APPROVAL)
IS_SUSPENDED = Q(health_level=HealthLevel.SUSPENDED)
IS_DEGRADED = Q(health_level__in=TROUBLED) & ~AWAITS_APPROVAL
"""The condition of placements whose stored status `is_degraded`."""
IS_HEALTHY = Q(health_level=HealthLevel.HEALTHY)


def _wanted(placements: Collection[Placement]) -> dict[int, int | None]:
    """Return how many clusters each is to have; of the latest decision while the next one is due."""
    numbers = {placement.pk: placement.number_of_clusters for placement in placements}
    due = [
        placement.pk
        for placement in placements
        if placement.is_due and placement.decisions_made
    ]
    rows = Decision.objects.filter(
        placement__in=due, number=F("placement__decisions_made")
    )
    return (
        numbers | dict(rows.values_list("placement_id", "wanted")) if due else numbers
    )


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
    counts = _counts(
        groups,
        is_rolling=is_rolling,
        has_resources=resources != 0,
        older=rollout.applied_older,
    )
    numbers = (wanted[placement.pk], placement.named_count, counts["scheduled"])
    number = next(one for one in numbers if one is not None)
    seen = min((group["seen"] for group in groups if group["seen"]), default=None)
    return HealthFacts(
        HealthCounts(wanted=number, **counts),
        placement.placement_type,
        placement.is_fulfilled,
        awaits_decision=placement.awaits_decision,
        is_pending=placement.is_due
        or (placement.is_mirrored and placement.is_fulfilled is None),
        has_invalid_selectors=bool(placement.selection_faults),
        resources=resources,
        is_deleting=placement.deleting_since is not None,
        is_paused=placement.paused_since is not None,
        is_stopped=placement.is_stopped,
        is_staged=placement.is_staged,
        awaits_run=bool(rollout.awaits_run) and not is_rolling,
        is_starting=placement.is_starting,
        is_rolling=is_rolling,
        is_stalled=bool(rollout.is_stalled)
        and not is_suspended
        and not placement.needs_sync,
        gate=rollout.gate or "",
        gate_stage=rollout.gate_stage or "",
        silence=silence_words(now - seen) if seen else "",
        exceeded=tuple(ExceededLimit(*one) for one in rollout.exceeded or ()),
    )


def _counts(
    groups: Collection[dict[str, Any]],
    *,
    is_rolling: bool,
    has_resources: bool,
    older: int,
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
        if (
            phase in (Phase.APPLIED, Phase.AVAILABLE)
            and is_current
            and has_resources
            and not is_report
        ):
            counts["applied"] += number
        counts[
            _state_of(group, is_rolling=is_rolling, has_resources=has_resources)
        ] += number
    counts["applied"] -= min(older, counts["applied"])
    return counts


def _state_of(
    group: Mapping[str, Any], *, is_rolling: bool, has_resources: bool
) -> str:
    """Return the one state of `HealthCounts` that selected clusters are in."""
    phase, member = Phase(group["phase"]), group["member"]
    is_applied = phase in (Phase.APPLIED, Phase.AVAILABLE)
    is_ready = phase is Phase.AVAILABLE or (
        is_applied and group["available_status"] == _TRUE
    )
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
