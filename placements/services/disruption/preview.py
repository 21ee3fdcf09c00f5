"""The impact of a drain on placements: scheduled in memory, nothing is written."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Q, Subquery

from clusters.queries import current_fleet
from fleetui.bulk import batched
from placements.engine.disruption import (
    EvictionReason,
    Executed,
    KeptReason,
    judge_eviction,
)
from placements.engine.loss import (
    ChangedFleet,
    LossVariant,
    PlacementImpact,
    PlacementLoss,
    loss,
)
from placements.explain.loss import loss_message
from placements.explain.staged_updates import STAYS_SENTENCES, eviction_sentence
from placements.manifests.disruption import parse_disruption_budget
from placements.models import Binding, DisruptionBudget, Placement, StagedRun
from placements.services.disruption.queries import (
    is_held,
    why_placement_stays,
)
from placements.services.loss.evaluation import MOST_EVALUATED, Impact, facts_of
from placements.services.rollout_state import (
    RolloutContext,
    eviction_context,
    load_rollout_contexts,
)
from placements.services.snapshots import cycles_of


def drain_impact(*clusters: str, now: datetime) -> Impact:
    """Return the impact of draining clusters on at most 200 placements, by name."""
    here = Binding.objects.filter(cluster_name__in=clusters).values_list(
        "placement_id", "cluster_name"
    )
    on: dict[int, list[str]] = {}
    for placement_id, cluster in here:
        on.setdefault(placement_id, []).append(cluster)
    started = StagedRun.objects.filter(
        placement=OuterRef("pk"), ended_at=None, started_at__isnull=False
    )
    budgets = DisruptionBudget.objects.filter(name=OuterRef("full_name"))
    rows = Placement.objects.filter(pk__in=list(on)).annotate(
        has_started_run=Exists(started),
        budget=Subquery(budgets.values("document")[:1]),
    )
    evaluated: list[Any] = list(rows.order_by("full_name")[:MOST_EVALUATED])
    # Of a placement with a budget all its clusters count.
    where = Q(cluster_name__in=clusters) | Q(
        placement__in=[one.pk for one in evaluated if one.budget is not None]
    )
    change = ChangedFleet(
        current_fleet().fleet, lost=frozenset(clusters), variant=LossVariant.CORDON
    )
    losses = []
    for part in batched(cycles_of(evaluated, change.before), _AT_ONCE):
        contexts = load_rollout_contexts(
            [one for one, _ in part],
            now=now,
            where=where,
        )
        for placement, cycle in part:
            row = loss(facts_of(placement, cycle), change)
            context = contexts[placement.pk]
            losses.append(_obstructed(row, context, on[placement.pk]))
    return Impact.of(
        losses, evaluated=len(evaluated), not_evaluated=len(on) - len(evaluated)
    )


_AT_ONCE = 25
"""Placements whose rollouts are loaded together: each may have thousands of bindings."""


def _obstructed(
    row: PlacementLoss, context: RolloutContext, clusters: Sequence[str]
) -> PlacementLoss:
    """Return a row with what prevents the eviction of its placement from the first of these clusters."""
    if context.placement.deleting_since:
        return _kept(row, PlacementImpact.LEAVING, "Placement is being deleted.")
    if stays := why_placement_stays(context.placement):
        return _kept(row, PlacementImpact.CANNOT, STAYS_SENTENCES[stays])
    for cluster in clusters:
        obstacle = _obstacle(context, cluster)
        if obstacle is not None:
            return _kept(row, *obstacle)
    if context.is_staged:
        return replace(
            row, message=f"{loss_message(row)} {STAYS_SENTENCES[KeptReason.NEXT_RUN]}"
        )
    return row


def _obstacle(
    context: RolloutContext, cluster: str
) -> tuple[PlacementImpact, str] | None:
    placement: Any = context.placement
    budget = None
    if placement.budget is not None:
        budget = parse_disruption_budget(placement.budget).spec
    verdict = judge_eviction(eviction_context(context), cluster, budget)
    if verdict.why is EvictionReason.LEAVING:
        return PlacementImpact.LEAVING, "Removal in progress."
    if is_held(placement):
        return PlacementImpact.BLOCKED, STAYS_SENTENCES[KeptReason.HELD]
    if context.is_staged and placement.has_started_run:
        return PlacementImpact.BLOCKED, STAYS_SENTENCES[KeptReason.STAGED_RUN]
    if isinstance(verdict, Executed) or verdict.why is EvictionReason.PLANNED:
        return None
    return PlacementImpact.BLOCKED, eviction_sentence(verdict)


def _kept(row: PlacementLoss, obstacle: PlacementImpact, message: str) -> PlacementLoss:
    return replace(
        row, after=row.before, decisions=(), obstacle=obstacle, message=message
    )
