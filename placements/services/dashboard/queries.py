"""Data of the overview: totals, recent decisions, rollouts, headroom, and numbers of the navigation."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db.models import Case, F, OuterRef, QuerySet, Subquery, When

from clusters.filters import ClusterFilterState, counts_by_state
from clusters.models import FleetState, MemberCluster
from placements.engine.rollout.staged_run import RunStatus
from placements.engine.status import PlacementHealth
from placements.models import (
    CHANGES_CLUSTERS,
    UNFULFILLED,
    Decision,
    Placement,
    Resource,
    Rollout,
    StagedRun,
)
from placements.services.filters import PlacementFilterState, PlacementTotals, counts_in_all, decisions_of
from placements.services.fleet.queries import Skew, skews_of
from placements.services.health import stored_healths
from placements.services.rollouts.approvals import with_gate
from placements.services.rollouts.queries import with_failed
from placements.services.rollouts.under_way import runs_under_way

_MOST_ROWS = 10

MOST = 5


@dataclass(frozen=True, slots=True)
class Counts:
    """The totals; `ready` clusters have the state of that name (`ClusterFilterState`)."""

    clusters: int
    ready: int
    cordoned: int
    placements: int
    unfulfilled: int
    degraded: int
    invalid: int
    pending: int
    not_eligible: int
    late: int
    not_observed: int
    unhealthy: int
    workloads_failing: int
    not_monitored: int
    leaving: int
    broken: int
    """Placements with a broken assertion."""
    rolling: int
    """Placements with a rollout or staged run in progress."""
    of_placements: PlacementTotals


def fleet_mark(counts: Counts) -> str:
    """Return what changes with what the map of the fleet shows, at the latest each minute."""
    version = FleetState.objects.values_list("version", flat=True).first() or 0
    states = (counts.late, counts.not_observed, counts.unhealthy, counts.workloads_failing)
    return "-".join(map(str, (version, *states, f"{datetime.now(UTC):%M}")))


def is_untouched() -> bool:
    return not any(model.objects.exists() for model in (MemberCluster, Placement, Resource))


def counts() -> Counts:
    """Return the totals; two queries."""
    of_placements, of_clusters = counts_in_all(), counts_by_state()
    by_state = of_placements.by_state
    not_eligible = of_clusters[ClusterFilterState.NOT_ELIGIBLE]
    leaving = of_clusters[ClusterFilterState.LEAVING]
    return Counts(
        clusters=of_clusters[ClusterFilterState.ELIGIBLE] + not_eligible,
        ready=of_clusters[ClusterFilterState.READY],
        cordoned=of_clusters[ClusterFilterState.CORDONED],
        placements=of_placements.in_all,
        unfulfilled=by_state[PlacementFilterState.UNFULFILLED],
        degraded=by_state[PlacementFilterState.DEGRADED],
        invalid=by_state[PlacementFilterState.INVALID],
        pending=by_state[PlacementFilterState.PENDING],
        not_eligible=not_eligible - leaving,
        late=of_clusters[ClusterFilterState.HEARTBEAT_LATE],
        not_observed=of_clusters[ClusterFilterState.NOT_OBSERVED],
        unhealthy=of_clusters[ClusterFilterState.UNHEALTHY],
        workloads_failing=of_clusters[ClusterFilterState.WORKLOADS_FAILING],
        not_monitored=of_clusters[ClusterFilterState.NOT_MONITORED],
        leaving=leaving,
        broken=by_state[PlacementFilterState.BROKEN],
        rolling=by_state[PlacementFilterState.ROLLING],
        of_placements=of_placements,
    )


def failing_count() -> int:
    """Return how many rollouts and staged runs have the status of failed clusters in lists."""
    rolling, staged = (with_failed(one.filter(placement__paused_since=None)) for one in runs_under_way())
    at_work = staged.filter(status__in=(RunStatus.PROGRESSING, RunStatus.STUCK))
    both = [one.filter(failed__gt=0).order_by().values("pk") for one in (rolling, at_work)]
    return both[0].union(both[1], all=True).count()


def last_decisions() -> QuerySet[Decision]:
    """Return the latest decisions that changed clusters."""
    return decisions_of().filter(CHANGES_CLUSTERS).order_by("-id")[:_MOST_ROWS]


MANY_CLUSTERS = 200
"""Above this number the overview shows counts of clusters instead of names."""


@dataclass(frozen=True, slots=True)
class PlacementHeadroom:
    """A placement with its status, its skews and its latest rollout or staged update run."""

    placement: Placement
    health: PlacementHealth
    skews: list[Skew]
    run: Rollout | None
    staged: StagedRun | None = None


def least_headroom() -> list[PlacementHeadroom]:
    """Return the placements with most missing clusters first, then those nearest to a limit."""
    missing = F("number_of_clusters") - F("placed_count")
    is_short = Case(When(UNFULFILLED, then=0), default=1)
    rows = Placement.objects.select_related("staleness_check").annotate(is_short=is_short)
    headroom = F("staleness_check__headroom").asc(nulls_last=True)
    rows = rows.order_by("is_short", missing.desc(nulls_last=True), headroom, "full_name")
    return headroom_of(list(rows[:_MOST_ROWS]))


def headroom_of(placements: Collection[Placement]) -> list[PlacementHeadroom]:
    """Return the stored status, skews and rollouts of placements, loaded with `staleness_check`.

    A query; a second one for placements with staged update runs.
    """
    staged: dict[int | None, StagedRun] = {}
    staged_ids = [one.pk for one in placements if one.is_staged]
    if staged_ids:
        same = StagedRun.objects.filter(placement=OuterRef("placement")).order_by("-pk")
        latest = StagedRun.objects.filter(placement__in=staged_ids, pk=Subquery(same.values("pk")[:1]))
        latest = with_gate(latest).only("placement_id", "full_name", "status", "ended_at")
        staged = {row.placement_id: row for row in latest}
    others = [one for one in placements if one.pk not in staged]
    rows = Rollout.objects.filter(placement__in=others, number=F("placement__runs_made"))
    rows = rows.only("placement_id", "number", "state", "ended_reason", "verdict", "ended_at")
    runs = {row.placement_id: row for row in rows}
    healths = stored_healths(placements, now=datetime.now(UTC))
    for one in placements:
        counts = healths[one.pk].counts
        run: Any
        for run in (runs.get(one.pk), staged.get(one.pk)):
            if run:
                run.placement = one
                run.failed = 0 if run.ended_at else counts.failed + counts.removal_failed
    return [
        PlacementHeadroom(one, healths[one.pk], skews_of(one), runs.get(one.pk), staged.get(one.pk))
        for one in placements
    ]
