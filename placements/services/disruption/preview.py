"""The impact of a drain on placements: scheduled in memory, nothing is written."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db.models import Exists, OuterRef, Subquery

from clusters.queries import current_fleet
from placements.engine.disruption import (
    EvictionContext,
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
    why_placement_stays,
)
from placements.services.loss.evaluation import (
    MOST_EVALUATED,
    Impact,
    evaluable,
    first_of,
)
from placements.services.rollout_state import eviction_contexts


def drain_impact(*clusters: str, now: datetime) -> Impact:
    """Return the impact of draining clusters on at most 200 placements, by name."""
    started = StagedRun.objects.filter(
        placement=OuterRef("pk"), ended_at=None, started_at__isnull=False
    )
    budgets = DisruptionBudget.objects.filter(name=OuterRef("full_name"))
    here = Binding.objects.filter(cluster_name__in=clusters).values("placement")
    rows = Placement.objects.filter(pk__in=here).annotate(
        has_started_run=Exists(started),
        budget=Subquery(budgets.values("document")[:1]),
    )
    evaluated, not_evaluated = first_of(rows.order_by("full_name"), most=MOST_EVALUATED)
    contexts = eviction_contexts(
        evaluated,
        clusters,
        limited=[one for one in evaluated if one.budget is not None],
        now=now,
    )
    change = ChangedFleet(
        current_fleet().fleet, lost=frozenset(clusters), variant=LossVariant.CORDON
    )
    losses = [
        _obstructed(
            loss(facts, part),
            placement,
            contexts[placement.pk],
            [
                binding.cluster
                for binding in facts.cycle.bindings
                if binding.cluster in change.lost
            ],
        )
        for placement, facts, part in evaluable(evaluated, change)
    ]
    return Impact.of(losses, evaluated=len(evaluated), not_evaluated=not_evaluated)


def _obstructed(
    row: PlacementLoss,
    placement: Any,
    context: EvictionContext,
    clusters: Iterable[str],
) -> PlacementLoss:
    """Return a row with what prevents the eviction of its placement from the first of these clusters."""
    if placement.deleting_since:
        return _kept(row, PlacementImpact.LEAVING, "Placement is being deleted.")
    if stays := why_placement_stays(placement):
        return _kept(row, PlacementImpact.CANNOT, STAYS_SENTENCES[stays])
    for cluster in clusters:
        obstacle = _obstacle(placement, context, cluster)
        if obstacle is not None:
            return _kept(row, *obstacle)
    if placement.is_staged:
        return replace(
            row, message=f"{loss_message(row)} {STAYS_SENTENCES[KeptReason.NEXT_RUN]}"
        )
    return row


def _obstacle(
    placement: Any, context: EvictionContext, cluster: str
) -> tuple[PlacementImpact, str] | None:
    written = placement.budget
    budget = parse_disruption_budget(written).spec if written is not None else None
    verdict = judge_eviction(context, cluster, budget)
    if verdict.why is EvictionReason.LEAVING:
        return PlacementImpact.LEAVING, "Removal in progress."
    if placement.is_held:
        return PlacementImpact.BLOCKED, STAYS_SENTENCES[KeptReason.HELD]
    if placement.is_staged and placement.has_started_run:
        return PlacementImpact.BLOCKED, STAYS_SENTENCES[KeptReason.STAGED_RUN]
    if isinstance(verdict, Executed) or verdict.why is EvictionReason.PLANNED:
        return None
    return PlacementImpact.BLOCKED, eviction_sentence(verdict)


def _kept(row: PlacementLoss, obstacle: PlacementImpact, message: str) -> PlacementLoss:
    return replace(
        row, after=row.before, decisions=(), obstacle=obstacle, message=message
    )
