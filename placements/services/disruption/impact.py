"""Impact of a drain on each placement of a cluster: scheduled in memory, nothing is written."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from clusters.queries import current_fleet
from fleetui.apimachinery.words import first_names
from placements.engine.balance import ExceededLimit, exceeded_limits
from placements.engine.disruption import EvictionReason, Executed, KeptReason, judge_eviction
from placements.engine.resilience import cordoned, placed_after, why_stays, without
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Picked
from placements.engine.scheduling.scheduler import schedule
from placements.explain.staged_updates import STAYS_SENTENCES, eviction_sentence
from placements.explain.what_if import balance_sentence, stuck_words
from placements.manifests.binding import PlacedBinding as BindingValue
from placements.manifests.placement import parse_placement
from placements.manifests.policy import PlacementType
from placements.models import Binding, Placement, StagedRun
from placements.services.disruption.queries import budget_for
from placements.services.fleet.impact import MOST_EVALUATED
from placements.services.rollout_state import RolloutContext, eviction_context, load_rollout_context
from placements.services.snapshots import cycles_of

_MOST_NAMES = 5


class EvictionImpact(StrEnum):
    MOVES = "moves"
    """Evicted, with a replacement."""
    SHRINKS = "shrinks"
    """Evicted, and fulfilled without a replacement."""
    STUCK = "stuck"
    """Evicted, not fulfilled, without a replacement."""
    BLOCKED = "blocked"
    """Not evictable now: disruption budget, pause or staged update run."""
    STAYS = "stays"
    """Not evictable."""
    LEAVING = "leaving"
    """Being removed or deleted already."""


@dataclass(frozen=True, slots=True)
class DrainRow:
    """Impact on one placement; `message` is its message.

    `scores` are the replacement clusters with their scores; `exceeded_limits` the hard limits that what is
    placed after the eviction exceeds.
    """

    placement: str
    impact: EvictionImpact
    joins: tuple[str, ...]
    placed_before: int
    placed_after: int
    message: str
    scores: tuple[Picked, ...] = ()
    exceeded_limits: tuple[ExceededLimit, ...] = ()

    @property
    def gets_worse(self) -> bool:
        is_stuck = self.impact in (EvictionImpact.STUCK, EvictionImpact.BLOCKED, EvictionImpact.STAYS)
        return is_stuck or bool(self.exceeded_limits)


@dataclass(frozen=True, slots=True)
class DrainImpact:
    """Impact on the placements of a cluster, those that get worse first."""

    cluster: str
    rows: tuple[DrainRow, ...]
    not_evaluated: int = 0

    @property
    def needs_typed_name(self) -> bool:
        return any(row.impact in (EvictionImpact.STUCK, EvictionImpact.SHRINKS) for row in self.rows)

    @property
    def count(self) -> dict[str, int]:
        impacts = [row.impact for row in self.rows]
        return {str(impact): impacts.count(impact) for impact in EvictionImpact}


def drain_impact(cluster: str, *, now: datetime, beside: Collection[str] = ()) -> DrainImpact:
    """Return the impact of draining a cluster on at most 200 placements, by name.

    `beside`: clusters that are drained at the same time, which cannot be replacements.
    """
    here = Binding.objects.filter(cluster_name=cluster).values("placement_id")
    rows = Placement.objects.filter(pk__in=here)
    evaluated = list(rows.order_by("full_name")[:MOST_EVALUATED])
    fleet = cordoned(current_fleet().fleet, cluster, *beside)
    impacts = []
    for placement, cycle in cycles_of(evaluated, fleet):
        obstacle = _obstacle(placement, cluster, now=now)
        if isinstance(obstacle, RolloutContext):
            impacts.append(_evicted(obstacle, cycle, cluster))
        else:
            placed = _placed_count(cycle.live_bindings)
            impacts.append(DrainRow(placement.full_name, obstacle[0], (), placed, placed, obstacle[1]))
    impacts.sort(key=lambda row: (not row.gets_worse, row.placement))
    return DrainImpact(cluster, tuple(impacts), rows.count() - len(evaluated))


def why_placement_stays(placement: Placement) -> KeptReason | None:
    policy = parse_placement(placement.document).spec.policy
    return why_stays(policy, is_namespaced=bool(placement.namespace))


def is_held(placement: Placement) -> bool:
    return placement.paused_since is not None or placement.is_stopped


def has_started_run(placement: Placement) -> bool:
    """Return whether a staged update run is in progress; it fails if a cluster leaves.

    See `rules/lifecycle.md#staged-update-runs`.
    """
    started = StagedRun.objects.filter(placement=placement, ended_at=None, started_at__isnull=False)
    return started.exists()


def _obstacle(
    placement: Placement, cluster: str, *, now: datetime
) -> tuple[EvictionImpact, str] | RolloutContext:
    """Return why a placement would not be evicted now, or the context of its eviction."""
    if placement.deleting_since:
        return EvictionImpact.LEAVING, "Placement is being deleted."
    if stays := why_placement_stays(placement):
        return EvictionImpact.STAYS, STAYS_SENTENCES[stays]
    context = load_rollout_context(placement, now=now)
    verdict = judge_eviction(eviction_context(context), cluster, budget_for(placement.full_name))
    if verdict.why is EvictionReason.LEAVING:
        return EvictionImpact.LEAVING, "Removal in progress."
    if is_held(placement):
        return EvictionImpact.BLOCKED, STAYS_SENTENCES[KeptReason.HELD]
    if context.is_staged and has_started_run(placement):
        return EvictionImpact.BLOCKED, STAYS_SENTENCES[KeptReason.STAGED_RUN]
    if isinstance(verdict, Executed) or verdict.why is EvictionReason.PLANNED:
        return context
    return EvictionImpact.BLOCKED, eviction_sentence(verdict)


def _evicted(context: RolloutContext, cycle: Cycle, cluster: str) -> DrainRow:
    decision = schedule(without(cycle, cluster))
    before, after = _placed_count(cycle.live_bindings), _placed_count(decision.bindings_after)
    there = {one.cluster for one in cycle.live_bindings if one.is_active} | {cluster}
    joins = tuple(name for name in decision.picked_names if name not in there)
    staged = f" {STAYS_SENTENCES[KeptReason.NEXT_RUN]}" if context.is_staged else ""
    # A placement that was short of clusters before keeps as many with a replacement.
    is_replaced = bool(joins) and after >= before
    if decision.is_failed or not (decision.is_fulfilled or is_replaced):
        impact, message = EvictionImpact.STUCK, f"No replacement: {stuck_words(decision)}."
    elif joins:
        impact, message = EvictionImpact.MOVES, f"Replacement: {first_names(joins, _MOST_NAMES)}."
    else:
        is_all = decision.cycle.policy.placement_type is PlacementType.PICK_ALL
        impact, message = EvictionImpact.SHRINKS, f"No replacement needed{' (PickAll)' if is_all else ''}."
    exceeded = tuple(exceeded_limits(cycle, placed_after(decision)))
    sentences = [f"{message}{staged}", balance_sentence(exceeded)]
    return DrainRow(
        context.placement.full_name,
        impact,
        joins,
        before,
        after,
        " ".join(filter(None, sentences)),
        scores=tuple(one for one in decision.picked if one.cluster not in there),
        exceeded_limits=exceeded,
    )


def _placed_count(bindings: Iterable[BindingValue]) -> int:
    return sum(one.is_active for one in bindings)
