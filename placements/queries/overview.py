"""What the overview tells: counts, what needs somebody, what was decided last."""

from dataclasses import dataclass

from django.db.models import QuerySet

from clusters import listing
from clusters.models import MemberCluster, Membership
from placements.models import Decision, Placement
from placements.queries.lists import State, counts_by_state, decisions_of, latest_decisions
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


def counts() -> Counts:
    """Count what there is and what is wrong with it."""
    by_state, of_clusters = counts_by_state(), listing.counts_by_state()
    return Counts(
        clusters=of_clusters[listing.State.ELIGIBLE] + of_clusters[listing.State.NOT_ELIGIBLE],
        placements=Placement.objects.count(),
        unfulfilled=by_state[State.UNFULFILLED],
        invalid=by_state[State.INVALID],
        pending=by_state[State.PENDING],
        not_eligible=of_clusters[listing.State.NOT_ELIGIBLE] - of_clusters[listing.State.LEAVING],
        leaving=of_clusters[listing.State.LEAVING],
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


def ineligible_clusters() -> QuerySet[MemberCluster]:
    """Give the first clusters that may not be picked, though they are to stay."""
    rows = MemberCluster.objects.exclude(verdict="").exclude(membership=Membership.LEAVING)
    return rows.defer("document", "properties", "usage").order_by("name")[:MOST]


def leaving_clusters() -> QuerySet[MemberCluster]:
    """Give the first clusters that are on their way out."""
    rows = MemberCluster.objects.filter(membership=Membership.LEAVING)
    return rows.defer("document", "properties", "usage").order_by("name")[:MOST]


def last_decisions(*, most: int = 10) -> QuerySet[Decision]:
    """Give what was decided last."""
    return decisions_of().order_by("-id")[:most]
