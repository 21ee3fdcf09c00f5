"""What the overview tells: counts, what needs somebody, what was decided last."""

from dataclasses import dataclass
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Count,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    Value,
    When,
    Window,
)
from django.db.models.functions import Cast, Concat, RowNumber

from clusters import listing
from clusters.models import FleetState, MemberCluster, Membership
from fleetui.models import Event
from fleetui.prepared import Prepared
from placements.models import Decision, DecisionRecord, Freshness, Placement, Resource, Rollout, StagedRun
from placements.queries.lists import State, counts_in_all, decisions_of, latest_decisions
from placements.queries.records import traps_of

MOST = 5


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of the first sentence."""

    clusters: int
    placements: int
    unfulfilled: int
    invalid: int
    pending: int
    not_eligible: int
    leaving: int


@dataclass(frozen=True, slots=True)
class Short:
    """A placement that is not fulfilled, with the first reason in words and the decision that says more."""

    placement: Placement
    decision: Decision | None
    reason: str


def pulse() -> str:
    """Give what moves with everything that the overview tells, in one query; empty on an untouched hub.

    It begins with the version of the fleet. What somebody did, and a new verdict, is an event; what a worker
    finds moves the counters of a placement or the changes of a run; a run that has ended stays as it is.
    """
    found = _PULSE.first()
    return "-".join(str(one) for one in found) if found else ""


def _moving() -> QuerySet[Any, Any]:
    told = {
        "fleet": FleetState.objects.filter(id=1).values("version"),
        "decision": Decision.objects.order_by("-pk").values("pk")[:1],
        "fresh": Freshness.objects.order_by("-looked_at").values("looked_at")[:1],
        "placements": _summed(Placement.objects.all(), "asked", "answered", "resources_answered"),
        "run": Rollout.objects.order_by("-pk").values("pk")[:1],
        "running": _summed(Rollout.objects.filter(state=Rollout.State.RUNNING), "changes"),
        "staged": StagedRun.objects.order_by("-pk").values("pk")[:1],
        "staged_running": _summed(StagedRun.objects.filter(ended_at=None), "changes"),
    }
    rows = Event.objects.annotate(**{f"of_{name}": Subquery(one) for name, one in told.items()})
    return rows.order_by("-pk").values_list(*(f"of_{name}" for name in told), "pk")


def _summed(rows: QuerySet[Any], *columns: str) -> QuerySet[Any]:
    """Count rows and add up columns that only grow, as one text: a sum may stay when another row is gone."""
    total = sum((Sum(column, default=0) for column in columns[1:]), Sum(columns[0], default=0))
    parts = Concat(Cast(Count("pk"), CharField()), Value("."), Cast(total, CharField()))
    return rows.order_by().annotate(one=Value(1)).values("one").annotate(told=parts).values("told")


_PULSE = Prepared(_moving)


def is_untouched() -> bool:
    """Tell whether there is nothing yet, or nothing any more: no cluster, placement or resource."""
    return not any(model.objects.exists() for model in (MemberCluster, Placement, Resource))


def counts() -> Counts:
    """Count what there is and what is wrong with it."""
    (placements, by_state), of_clusters = counts_in_all(), listing.counts_by_state()
    return Counts(
        clusters=of_clusters[listing.State.ELIGIBLE] + of_clusters[listing.State.NOT_ELIGIBLE],
        placements=placements,
        unfulfilled=by_state[State.UNFULFILLED],
        invalid=by_state[State.INVALID],
        pending=by_state[State.PENDING],
        not_eligible=of_clusters[listing.State.NOT_ELIGIBLE] - of_clusters[listing.State.LEAVING],
        leaving=of_clusters[listing.State.LEAVING],
    )


def faulty_records() -> list[DecisionRecord]:
    """Give the first stored decisions that came out otherwise when they were decided again."""
    return list(
        DecisionRecord.objects.filter(fault__gt="").only("decision_id", "fault").order_by("pk")[:MOST]
    )


def short_placements() -> list[Short]:
    """Give the first placements that are not fulfilled, each with its reason."""
    rows = list(Placement.objects.filter(is_fulfilled=False, selection_faults=[]).order_by("name")[:MOST])
    latest = latest_decisions(rows)
    return [_short(row, latest.get(row.pk)) for row in rows]


def _short(placement: Placement, decision: Decision | None) -> Short:
    reasons = traps_of(decision) if decision else ()
    return Short(placement, decision, reasons[0] if reasons else "too few clusters pass its filters")


def invalid_placements() -> QuerySet[Placement]:
    """Give the first placements whose selectors are at fault."""
    return Placement.objects.exclude(selection_faults=[]).order_by("name")[:MOST]


def clusters_in_need() -> tuple[list[MemberCluster], list[MemberCluster]]:
    """Give the first clusters that may not be picked though they are to stay, and the first that leave."""
    is_leaving = Q(membership=Membership.LEAVING)
    rows = MemberCluster.objects.filter(is_leaving | ~Q(verdict=""))
    rows = rows.annotate(goes=Case(When(is_leaving, then=1), default=0))
    place = Window(RowNumber(), partition_by=F("goes"), order_by="name")
    rows = rows.annotate(place=place).filter(place__lte=MOST).order_by("goes", "name")
    found: list[Any] = list(rows.defer("document", "properties", "usage"))
    return [row for row in found if not row.goes], [row for row in found if row.goes]


def last_decisions(*, most: int = 10) -> QuerySet[Any]:
    """Give what was decided last, each with `before`, the id of the decision that it followed."""
    earlier = Decision.objects.filter(placement=OuterRef("placement"), number=OuterRef("number") - 1)
    before = Subquery(earlier.values("record__decision_id")[:1])
    return decisions_of().annotate(before=before).order_by("-id")[:most]
