"""What lists of placements, decisions, resources and events show; the database answers all filters."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from django.db.models import Count, F, Q, QuerySet

from fleetui.models import Event
from placements.models import Binding, Decision, Placement, Resource, StalePick
from placements.queries.rollout_needs import runs_under_way, waiting_runs
from placements.scheduling.bindings import BindingState


class State(StrEnum):
    """What to filter placements by."""

    FULFILLED = "fulfilled"
    UNFULFILLED = "unfulfilled"
    PENDING = "pending"
    ROLLING = "rolling"
    WAITING = "waiting"
    STALE = "stale"
    INVALID = "invalid"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class PlacementFilter:
    """What a list of placements is narrowed down to; `cluster` has to be one they are placed on."""

    text: str = ""
    state: State | None = None
    placement_type: str = ""
    semantics: str = ""
    cluster: str = ""


PLACEMENT_ORDERS = (
    "name",
    "-name",
    "updated_at",
    "-updated_at",
    "created_at",
    "-created_at",
    "placed_count",
    "-placed_count",
)


def placements_matching(wanted: PlacementFilter) -> QuerySet[Placement]:
    """Give the placements that match; unordered."""
    rows = Placement.objects.all()
    if wanted.text:
        rows = rows.filter(name__contains=wanted.text.lower())
    if wanted.placement_type:
        rows = rows.filter(placement_type=wanted.placement_type)
    if wanted.semantics:
        rows = rows.filter(semantics=wanted.semantics)
    if wanted.cluster:
        placed = Binding.objects.filter(cluster_name=wanted.cluster)
        rows = rows.filter(pk__in=placed.exclude(state=BindingState.UNSCHEDULED).values("placement_id"))
    return rows.filter(_STATES[wanted.state]()) if wanted.state else rows


def _having(runs: Iterable[QuerySet[Any]]) -> Q:
    """Match the placements of these runs."""
    rolling, staged = (each.values("placement") for each in runs)
    return Q(pk__in=rolling) | Q(pk__in=staged)


_STATES: dict[State, Callable[[], Q]] = {
    State.FULFILLED: lambda: Q(is_fulfilled=True),
    State.UNFULFILLED: lambda: Q(is_fulfilled=False),
    State.PENDING: lambda: Q(answered__lt=F("asked")),
    State.ROLLING: lambda: _having(runs_under_way()),
    State.WAITING: lambda: _having(waiting_runs()),
    State.STALE: lambda: Q(pk__in=StalePick.objects.values("freshness__placement")),
    State.INVALID: lambda: ~Q(selection_faults=[]),
    State.DELETING: lambda: Q(deleting_since__isnull=False),
}


def counts_by_state() -> dict[State, int]:
    """Count the placements in each state; one can count in several."""
    return counts_in_all()[1]


def counts_in_all() -> tuple[int, dict[State, int]]:
    """Count the placements, and those in each state; one query."""
    counted = {state.value: Count("pk", filter=condition()) for state, condition in _STATES.items()}
    found = Placement.objects.aggregate(in_all=Count("pk"), **counted)
    return found["in_all"], {state: found[state.value] for state in State}


def placements_on(names: Iterable[str]) -> dict[str, int]:
    """Count for each of these clusters the placements that it has."""
    rows = Binding.objects.filter(cluster_name__in=list(names)).exclude(state=BindingState.UNSCHEDULED)
    counted = rows.values_list("cluster_name").annotate(count=Count("pk")).order_by()
    return dict(counted)


def bindings_on(cluster: str) -> QuerySet[Binding]:
    """Give what one cluster has, by placement; `owner` is its name."""
    rows = Binding.objects.filter(cluster_name=cluster).exclude(state=BindingState.UNSCHEDULED)
    return _cited(rows).annotate(owner=F("placement__name")).order_by("owner")


def bindings_of(placement: Placement) -> QuerySet[Binding]:
    """Give every binding of a placement, the unscheduled among them; unordered."""
    return _cited(Binding.objects.filter(placement=placement))


def _cited(rows: QuerySet[Binding]) -> QuerySet[Binding]:
    """Bring along what a binding cites, without what is large in it."""
    cited = rows.select_related("placement", "decision__record", "policy_snapshot", "resource_snapshot")
    return cited.defer(
        "placement__document",
        "decision__record__content",
        "policy_snapshot__policy",
        "resource_snapshot__identities",
    )


def decisions_of(*, placement: str = "") -> QuerySet[Decision]:
    """Give decisions with the ids of their records, of one placement or all; unordered."""
    rows = Decision.objects.select_related("record").defer("record__content")
    return rows.filter(placement_name=placement) if placement else rows


def latest_decisions(placements: Collection[Placement]) -> dict[int, Decision]:
    """Give the last decision of each of these placements, in one query."""
    ids = [placement.pk for placement in placements]
    latest = decisions_of().filter(placement__in=ids, number=F("placement__decisions_made"))
    return {row.placement_id: row for row in latest if row.placement_id}


def resources_matching(*, kind: str = "", namespace: str = "", text: str = "") -> QuerySet[Resource]:
    """Give the resources on the hub that match; unordered."""
    rows = Resource.objects.all()
    rows = rows.filter(kind=kind) if kind else rows
    rows = rows.filter(namespace=namespace) if namespace else rows
    return rows.filter(name__contains=text) if text else rows


def events_matching(*, kind: str = "", name: str = "", part: str = "", by: str = "") -> QuerySet[Event]:
    """Give events that match: a whole name, or a part of one in any case, and of who did it; unordered."""
    rows = Event.objects.all()
    rows = rows.filter(kind=kind) if kind else rows
    rows = rows.filter(name=name) if name else rows
    rows = rows.filter(name__icontains=part) if part else rows
    return rows.filter(actor_name__icontains=by) if by else rows
