"""A draft scheduled on the fleet as it is, without saving anything."""

from dataclasses import dataclass

from clusters.queries import fleet_now
from placements.models import Placement
from placements.queries.hub import selection_of
from placements.scheduling.bindings import BindingState
from placements.scheduling.decision import Decision
from placements.scheduling.faults import Caveat
from placements.scheduling.fleet_caveats import decision_caveats, fleet_caveats
from placements.scheduling.hub.selection import Selection
from placements.scheduling.scheduler import schedule
from placements.scheduling.spec import ClusterResourcePlacement, placement_caveats
from placements.snapshots import content_hash, draft_cycle


@dataclass(frozen=True)
class Preview:
    """What saving a draft would decide, against what is placed now.

    `is_incremental`: the policy snapshot stays, so what is placed is kept and only the number may change.
    """

    decision: Decision
    selection: Selection
    caveats: tuple[Caveat, ...]
    saved: Placement | None
    is_incremental: bool

    @property
    def joins(self) -> tuple[str, ...]:
        """Give the clusters that would come, in the order of picking."""
        placed = self._placed_now
        return tuple(name for name in self.decision.picked_names if name not in placed)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Give the clusters that would go, by name."""
        return tuple(sorted(set(self.decision.unscheduled) & self._placed_now))

    @property
    def stays(self) -> tuple[str, ...]:
        """Give the clusters that are placed and would stay, by name."""
        after = {binding.cluster for binding in self.decision.bindings_after if binding.is_active}
        return tuple(sorted(after & self._placed_now))

    @property
    def _placed_now(self) -> set[str]:
        live = self.decision.cycle.live_bindings
        return {binding.cluster for binding in live if binding.state is not BindingState.UNSCHEDULED}


def preview(draft: ClusterResourcePlacement) -> Preview:
    """Schedule a draft as saving it would. Raises Faults when its selectors are at fault."""
    saved = Placement.objects.filter(name=draft.metadata.name).first()
    return preview_over(draft, saved=saved, selection=selection_of(draft))


def preview_over(
    draft: ClusterResourcePlacement, *, saved: Placement | None, selection: Selection
) -> Preview:
    """Schedule a draft that selects these resources as saving it over a placement, or as a new one, would."""
    cycle = draft_cycle(draft, saved=saved, fleet=fleet_now().fleet)
    is_incremental = _is_incremental(draft, saved)
    return previewed(draft, schedule(cycle), saved=saved, selection=selection, is_incremental=is_incremental)


def previewed(
    draft: ClusterResourcePlacement,
    decision: Decision,
    *,
    saved: Placement | None,
    selection: Selection,
    is_incremental: bool,
) -> Preview:
    """Give a decision as a preview, with what there is to warn of."""
    caveats = (
        *placement_caveats(draft),
        *selection.caveats,
        *map(draft.in_document, (*fleet_caveats(decision.cycle), *decision_caveats(decision))),
    )
    return Preview(decision, selection, caveats, saved, is_incremental)


def _is_incremental(draft: ClusterResourcePlacement, saved: Placement | None) -> bool:
    if saved is None:
        return False
    return saved.policy_snapshots.filter(is_latest=True, content_hash=content_hash(draft)).exists()
