"""Data of the overview: totals, recent decisions, placements with their rollouts and skews."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.core.cache import caches
from django.db.models import Case, F, OuterRef, Subquery, When

from clusters.filters import ClusterFilterState, counts_by_state, in_all
from clusters.models import FleetState, MemberCluster
from fleetui.hub_scope import current_hub_id
from placements.engine.status import HealthLevel, PlacementHealth
from placements.models import (
    Decision,
    Placement,
    Resource,
    Rollout,
    Run,
    StagedRun,
)
from placements.services.filters import (
    PlacementFilterState,
    PlacementTotals,
    counts_in_all,
)
from placements.services.fleet.queries import Skew, skews_of
from placements.services.health import stored_healths
from placements.services.rollouts.queries import with_gate

MANY_CLUSTERS, _KEPT_SECONDS = 200, 10
WITH_PLACEMENTS = 20
"""Up to this number of clusters the map has the placements of each."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The totals; each cluster is in one state (`ClusterFilterState`), so that these sum to `clusters`."""

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
    joining: int
    leaving: int
    broken: int
    """Placements with a broken assertion."""
    rolling: int
    """Placements with a rollout or staged run in progress."""
    of_placements: PlacementTotals


def fleet_mark(counts: Counts, decisions: Sequence[Decision]) -> str:
    """Return what changes with what the map of the fleet shows, at the latest each minute.

    A small one has the placements of its clusters.
    """
    version = FleetState.objects.values_list("version", flat=True).first() or 0
    states = [
        counts.late,
        counts.not_observed,
        counts.unhealthy,
        counts.workloads_failing,
        counts.cordoned,
    ]
    if counts.clusters <= WITH_PLACEMENTS:
        states += [decision.pk for decision in decisions[:1]]
    return "-".join(map(str, (version, *states, f"{datetime.now(UTC):%M}")))


def is_untouched() -> bool:
    return not any(
        model.objects.exists() for model in (MemberCluster, Placement, Resource)
    )


def counts(
    stored: Mapping[str, Any] | None = None, *, version: int | None = None
) -> Counts:
    """Return the totals, those of placements as they were stored: two queries, or one if they are known.

    With the `version` of what was compared, this process keeps the states of many clusters for seconds.
    """
    of_placements = counts_in_all(stored)
    if version is None or not stored or stored["clusters"] <= MANY_CLUSTERS:
        of_clusters = counts_by_state()
    else:
        key = f"cluster-states/{current_hub_id()}/{version}"
        of_clusters = (
            caches["process"].get_or_set(key, counts_by_state, _KEPT_SECONDS) or {}
        )
    by_state = of_placements.by_state
    return Counts(
        clusters=in_all(of_clusters),
        ready=of_clusters[ClusterFilterState.READY],
        cordoned=of_clusters[ClusterFilterState.CORDONED],
        placements=of_placements.in_all,
        unfulfilled=by_state[PlacementFilterState.UNFULFILLED],
        degraded=by_state[PlacementFilterState.DEGRADED],
        invalid=by_state[PlacementFilterState.INVALID],
        pending=by_state[PlacementFilterState.PENDING],
        not_eligible=of_clusters[ClusterFilterState.NOT_ELIGIBLE],
        late=of_clusters[ClusterFilterState.HEARTBEAT_LATE],
        not_observed=of_clusters[ClusterFilterState.NOT_OBSERVED],
        unhealthy=of_clusters[ClusterFilterState.UNHEALTHY],
        workloads_failing=of_clusters[ClusterFilterState.WORKLOADS_FAILING],
        not_monitored=of_clusters[ClusterFilterState.NOT_MONITORED],
        joining=of_clusters[ClusterFilterState.JOINING],
        leaving=of_clusters[ClusterFilterState.LEAVING],
        broken=by_state[PlacementFilterState.BROKEN],
        rolling=by_state[PlacementFilterState.ROLLING],
        of_placements=of_placements,
    )


def last_rollout_end() -> datetime | None:
    """Return when the newest rolling update or the last staged run ended; None without one that did."""
    ends = [
        runs.objects.filter(ended_at__isnull=False)
        .order_by(last)
        .values_list("ended_at", flat=True)
        .first()
        for runs, last in ((Rollout, "-id"), (StagedRun, "-ended_at"))
    ]
    return max(filter(None, ends), default=None)


@dataclass(frozen=True, slots=True)
class PlacementHeadroom:
    """A placement with its status, its skews and its latest rollout or staged update run."""

    placement: Placement
    health: PlacementHealth
    skews: list[Skew]
    run: Run | None


def worst_placements(most: int) -> list[PlacementHeadroom]:
    """Return the placements with their status, the worst first, then by name."""
    ranks = [
        When(health_level=level, then=rank) for rank, level in enumerate(HealthLevel)
    ]
    rows = Placement.objects.select_related("staleness_check").defer("document")
    rows = rows.order_by(Case(*ranks, default=len(HealthLevel)), "full_name")
    return headroom_of(list(rows[:most]))


def headroom_of(placements: Collection[Placement]) -> list[PlacementHeadroom]:
    """Return the stored status, skews and rollouts of placements, loaded with `staleness_check`.

    A query; a second one for placements with staged update runs.
    """
    runs: dict[int | None, Run] = {}
    staged_ids = [placement.pk for placement in placements if placement.is_staged]
    if staged_ids:
        same = StagedRun.objects.filter(placement=OuterRef("placement")).order_by("-pk")
        latest = StagedRun.objects.filter(
            placement__in=staged_ids, pk=Subquery(same.values("pk")[:1])
        ).only("placement_id", "full_name", "status", "ended_at")
        runs = {row.placement_id: row for row in with_gate(latest)}
    others = [placement for placement in placements if placement.pk not in runs]
    rows = Rollout.objects.filter(
        placement__in=others, number=F("placement__runs_made")
    ).only(
        "placement_id",
        "placement_name",
        "number",
        "state",
        "ended_reason",
        "verdict",
        "ended_at",
    )
    runs |= {row.placement_id: row for row in rows}
    healths = stored_healths(placements, now=datetime.now(UTC))
    headrooms = []
    for placement in placements:
        health, run = healths[placement.pk], runs.get(placement.pk)
        if run:
            run.placement = placement
            counts = health.counts
            run.failed = counts.failed + counts.removal_failed if run.is_running else 0
        headrooms.append(PlacementHeadroom(placement, health, skews_of(placement), run))
    return headrooms
