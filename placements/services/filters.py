"""Rows and filters of the lists of placements, decisions, resources and events."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from django.db.models import (
    Count,
    Exists,
    F,
    Max,
    Model,
    OuterRef,
    Q,
    QuerySet,
    TextField,
    Value,
)
from django.db.models.functions import Cast, Concat, Length, Replace

from clusters.drivers.base import SIMULATED
from clusters.drivers.registry import DRIVERS
from clusters.manifest import parse_member
from clusters.models import Hub, MemberCluster
from fleetui.bulk import number_of
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.models import AuditEventType, Event
from fleetui.prepared import PreparedQuery
from placements.engine.envelopes import applied_identities
from placements.engine.rollout.staged_run import RunStatus
from placements.manifests.binding import BindingState
from placements.models import (
    UNFULFILLED,
    Binding,
    Decision,
    Placement,
    ProblemBook,
    Resource,
    ResourceSnapshot,
    StalePick,
)
from placements.services.health import (
    AWAITS_APPROVAL,
    IS_DEGRADED,
    IS_HEALTHY,
    IS_SUSPENDED,
)
from placements.services.loss.evaluation import impact_of
from placements.services.loss.queries import loss_advice
from placements.services.rollouts.queries import (
    IS_PAUSED,
    runs_under_way,
    waiting_runs,
)

Row = TypeVar("Row", bound=Model)


class PlacementFilterState(StrEnum):
    """Filter values of placements; `DEGRADED` are failed, degraded or unknown by their status."""

    HEALTHY = "healthy"
    FULFILLED = "fulfilled"
    UNFULFILLED = "unfulfilled"
    PENDING = "pending"
    ROLLING = "rolling"
    WAITING = "waiting"
    OUTDATED = "outdated"
    INVALID = "invalid"
    BROKEN = "assertion-broken"
    DEGRADED = "degraded"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class PlacementFilter:
    """The filter of a list of placements; `cluster` is a cluster with a binding."""

    text: str = ""
    state: PlacementFilterState | None = None
    placement_type: str = ""
    semantics: str = ""
    cluster: str = ""
    namespace: str = ""
    survives: str = ""
    """A level of the resilience report, such as `region`, whose losses the placement survives."""


def placement_filter(params: Mapping[str, str]) -> PlacementFilter:
    """Return the filter of parameters that were checked (`LIST_FILTERS`)."""
    state = params.get("state")
    return PlacementFilter(
        params["q"],
        PlacementFilterState(state) if state else None,
        params.get("type", ""),
        params.get("semantics", ""),
        params["cluster"],
        params["namespace"],
        params["survives"],
    )


LIST_FILTERS: dict[str, tuple[str, ...]] = {
    "clusters": ("label", "state", "verdict"),
    "placements": (
        "state",
        "cluster",
        "namespace",
        "type",
        "semantics",
        "survives",
    ),
    "resources": ("kind", "namespace"),
    "overrides": ("placement",),
    "evictions": ("placement", "outcome"),
    "events": ("type", "kind", "reason", "name", "cluster", "by", "request"),
    "checks": ("rule", "severity", "placement"),
    "access-log": ("verb", "by", "address"),
}
"""The filters of each list by its name in REST; page, download and REST have the same, and `q`."""
EVENT_KINDS = (
    "cluster",
    "cluster set",
    "placement",
    "rollout",
    "resource",
    "override",
    "cluster-override",
    "budget",
    "eviction",
    "staged-run",
    "staged-strategy",
    "approval-request",
    "hub",
    "channel",
    "notification-rule",
    "checks file",
    "Decision",
    "User",
)
"""What an event can be about."""
MOST_NAMESPACES = 200
_VERBS_AT_A_CLUSTER = (
    "evicted",
    "force-removed",
    "orphan kept",
    "orphan removed",
    "removal confirmed",
    "removal waits",
    "retried",
)
PLACEMENT_ORDERS = tuple(
    f"{sign}{column}"
    for column in ("name", "updated_at", "created_at", "placed_count")
    for sign in ("", "-")
)
RESOURCE_ORDERS = ("kind", "-kind", "name", "-name", "updated_at", "-updated_at")


def placements_matching(wanted: PlacementFilter) -> QuerySet[Placement]:
    rows = _filtered(
        Placement.objects.all(),
        full_name__contains=wanted.text.lower(),
        namespace=wanted.namespace,
        placement_type=wanted.placement_type,
        semantics=wanted.semantics,
    )
    if wanted.cluster:
        placed = Binding.objects.filter(cluster_name=wanted.cluster)
        rows = rows.filter(
            pk__in=placed.exclude(state=BindingState.UNSCHEDULED).values("placement_id")
        )
    if wanted.survives:
        rows = rows.filter(resilience__survives__contains=f"|{wanted.survives}|")
    return rows.filter(_states()[wanted.state]) if wanted.state else rows


def _filtered(rows: QuerySet[Row], **lookups: str) -> QuerySet[Row]:
    return rows.filter(**{lookup: value for lookup, value in lookups.items() if value})


def _having(runs: Iterable[QuerySet[Any]]) -> Q:
    rolling, staged = (run.values("placement") for run in runs)
    return Q(pk__in=rolling) | Q(pk__in=staged)


def _states() -> dict[PlacementFilterState, Q]:
    undecided = Q(is_fulfilled=None, deleting_since=None) & ~Q(
        hub=LOCAL_HUB
    )  # the hub says of which
    return {
        PlacementFilterState.HEALTHY: IS_HEALTHY,
        PlacementFilterState.FULFILLED: Q(is_fulfilled=True),
        PlacementFilterState.UNFULFILLED: UNFULFILLED,
        PlacementFilterState.PENDING: Q(observed_generation__lt=F("generation"))
        | undecided,
        PlacementFilterState.ROLLING: _having(runs_under_way()),
        PlacementFilterState.WAITING: _having(waiting_runs()),
        PlacementFilterState.OUTDATED: Q(
            pk__in=StalePick.objects.values("staleness_check__placement")
        ),
        PlacementFilterState.BROKEN: Q(
            has_assertions=True, assertion_check__broken__gt=0
        ),
        PlacementFilterState.INVALID: ~Q(selection_faults=[]),
        PlacementFilterState.DEGRADED: IS_DEGRADED,
        PlacementFilterState.DELETING: Q(deleting_since__isnull=False),
    }


@dataclass(frozen=True, slots=True)
class PlacementTotals:
    """How many placements there are, in all and by filter value; a placement can match several.

    Beside them how many runs wait for a user and how many of these are paused, how many placements wait for
    an approval or are suspended, the key of the resilience report, and the first namespaces.
    """

    in_all: int
    by_state: dict[PlacementFilterState, int]
    report: int | None
    waiting: int
    paused: int
    awaiting_approval: int
    suspended: int
    namespaces: list[str]


def counts_in_all(stored: Mapping[str, Any] | None = None) -> PlacementTotals:
    """Return the counts as the last comparison of the hub in scope stored them: these, or by one query."""
    if not stored:
        books = ProblemBook.objects.filter(hub=current_hub_id())
        stored = books.values_list("totals", flat=True).first() or count_in_all()
    counts = dict(stored)
    in_all, report, waiting = (
        counts.pop(name) for name in ("in_all", "report", "waiting_runs")
    )
    # A comparison of an older release has not all of these.
    by_state = {state: counts.get(state, 0) for state in PlacementFilterState}
    approval, suspended = (counts.get(name, 0) for name in _OTHER_STATES)
    return PlacementTotals(
        in_all,
        by_state,
        report,
        waiting,
        counts.get("paused_runs", 0),
        approval,
        suspended,
        counts.get("namespaces", []),
    )


_OTHER_STATES = {"awaiting_approval": AWAITS_APPROVAL, "suspended": IS_SUSPENDED}


def count_in_all() -> dict[str, Any]:
    """Count placements, runs and clusters, to be stored: the subqueries are too slow for each page.

    One query; without placements two, and with a resilience report those of its advice.
    """
    for totals in _totals.rows():
        del totals["one"]
        return totals | {"resilience": loss_advice() if totals["report"] else None}
    of_empty_hub = Hub.objects.filter(pk=current_hub_id()).values(**_other_counts())
    counts = dict.fromkeys(_placement_counts(), 0)
    return {"report": None, "resilience": None, **counts, **of_empty_hub.get()}


_totals = PreparedQuery(
    lambda: (
        Placement.objects.order_by()
        .annotate(one=Value(1))
        .values("one")
        .annotate(
            report=Max("resilience__report"), **_placement_counts(), **_other_counts()
        )
    )
)


def _placement_counts() -> dict[str, Count]:
    conditions = {state.value: condition for state, condition in _states().items()}
    return {
        "in_all": Count("pk"),
        "demo_placements": Count("pk", filter=Q(is_demo=True)),
        **{
            name: Count("pk", filter=condition)
            for name, condition in (conditions | _OTHER_STATES).items()
        },
    }


def _other_counts() -> dict[str, Any]:
    waiting, staged_waiting = waiting_runs()
    rolling, staged = runs_under_way()
    members = MemberCluster.objects.all()
    return {
        "waiting_runs": number_of(waiting) + number_of(staged_waiting),
        "paused_runs": number_of(waiting.filter(IS_PAUSED))
        + number_of(staged_waiting.filter(IS_PAUSED | Q(status=RunStatus.STOPPED))),
        "runs_under_way": number_of(rolling) + number_of(staged),
        "clusters": number_of(members),
        "simulated": number_of(members.filter(driver=SIMULATED)),
        "demo_clusters": number_of(members.filter(is_demo=True)),
    }


def placements_on(names: Iterable[str]) -> dict[str, int]:
    rows = Binding.objects.filter(cluster_name__in=list(names)).exclude(
        state=BindingState.UNSCHEDULED
    )
    return dict(rows.values_list("cluster_name").annotate(count=Count("pk")).order_by())


def bindings_on(cluster: str) -> QuerySet[Binding]:
    """Return the bindings of one cluster by placement, whose name is `owner`."""
    rows = Binding.objects.filter(cluster_name=cluster).exclude(
        state=BindingState.UNSCHEDULED
    )
    return (
        _with_related(rows).annotate(owner=F("placement__full_name")).order_by("owner")
    )


def kinds_on(cluster: str) -> list[tuple[str, str]]:
    """Return apiVersion and kind of the resources that placements have on a cluster, or are going to."""
    bindings = Binding.objects.filter(cluster_name=cluster)
    placed = Q(
        pk__in=bindings.exclude(resource_snapshot=None).values("resource_snapshot")
    )
    placements = bindings.exclude(state=BindingState.UNSCHEDULED).values("placement")
    return _kinds_in(
        ResourceSnapshot.objects.filter(
            placed | Q(placement__in=placements, is_latest=True)
        )
    )


def kinds_for(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the same of the placements that would select a cluster with this manifest once it joins.

    Raise InvalidManifest.
    """
    name = document["metadata"]["name"]
    impact = impact_of([parse_member(dict(document)).cluster(now=datetime.now(UTC))])
    names = [row.placement for row in impact.rows if name in row.joins]
    return _kinds_in(
        ResourceSnapshot.objects.filter(placement__full_name__in=names, is_latest=True)
    )


def _kinds_in(snapshots: QuerySet[ResourceSnapshot]) -> list[tuple[str, str]]:
    pairs = snapshots.values_list("identities", "wrapped_identities")
    return sorted(
        {
            (identity[0], identity[1])
            for pair in pairs
            for identity in applied_identities(*pair)
        }
    )


def bindings_of(placement: Placement) -> QuerySet[Binding]:
    """Return all bindings of a placement, also unscheduled ones; unordered."""
    return _with_related(Binding.objects.filter(placement=placement))


def has_driver() -> Exists:
    """Return the expression of whether what is scheduled by a binding is applied."""
    is_applied = Q(driver__in=DRIVERS) | ~Q(hub=LOCAL_HUB)
    return Exists(
        MemberCluster.objects.filter(is_applied, name=OuterRef("cluster_name"))
    )


def _with_related(rows: QuerySet[Binding]) -> QuerySet[Binding]:
    rows = rows.select_related(
        "placement", "decision__record", "policy_snapshot", "resource_snapshot"
    )
    return rows.defer(
        "placement__document",
        "decision__record__content",
        "policy_snapshot__policy",
        "resource_snapshot__identities",
        "resource_snapshot__wrapped_identities",
    )


def decisions_of(*, placement: str = "") -> QuerySet[Decision]:
    """Return decisions with the ids of their records, of one placement or all; unordered."""
    rows = Decision.objects.select_related("record").defer("record__content")
    return _filtered(rows, placement_name=placement)


def latest_decisions(placements: Collection[Placement]) -> dict[int, Decision]:
    ids = [placement.pk for placement in placements]
    latest = decisions_of().filter(
        placement__in=ids, number=F("placement__decisions_made")
    )
    return {row.placement_id: row for row in latest if row.placement_id}


def resources_matching(
    *, kind: str = "", namespace: str = "", text: str = ""
) -> QuerySet[Resource]:
    return _filtered(
        Resource.objects.all(), kind=kind, namespace=namespace, name__contains=text
    )


def with_sizes(rows: QuerySet[Resource]) -> QuerySet[Resource]:
    """Return the resources without their content, each with its `size` as stored, in bytes: it is ASCII."""
    return rows.defer("content").annotate(size=Length(Cast("content", TextField())))


def events_matching(
    *,
    kind: str = "",
    name: str = "",
    part: str = "",
    by: str = "",
    request: str = "",
    reason: str = "",
    event_type: str = "",
    cluster: str = "",
) -> QuerySet[Event]:
    """Return the matching events, unordered; `part` of the name and `by` ignore case.

    `request` is the id that the events of one change of many clusters share; `reason` is a verb or, as in the
    list, kind and verb: `ClusterChanged`. Evictions and retries of placements are events of the cluster too.
    """
    rows = Event.objects.all()
    if event_type:
        rows = rows.filter(is_warning=event_type == AuditEventType.WARNING)
    if reason[:1].isupper():
        joined = Replace(
            Replace(Concat("kind", "verb"), Value("-"), Value("")),
            Value(" "),
            Value(""),
        )
        rows = rows.annotate(reason=joined).filter(reason__iexact=reason)
    if cluster:
        there = Q(
            kind__in=("placement", "staged-run"),
            verb__in=_VERBS_AT_A_CLUSTER,
            after__cluster=cluster,
        )
        rows = rows.filter(Q(kind="cluster", name=cluster) | there)
    return _filtered(
        rows,
        kind=kind,
        verb="" if reason[:1].isupper() else reason,
        name=name,
        name__icontains=part,
        actor_name__icontains=by,
        request_id=request,
    )
