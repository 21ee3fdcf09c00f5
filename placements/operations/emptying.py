"""The one rule for changes that would unschedule everything: they wait until somebody confirms (A.5)."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from clusters.queries import fleet_unkept
from placements.explain.wording import counted, joined
from placements.models import Placement
from placements.scheduling.bindings import Binding as BindingValue
from placements.scheduling.cycle import Cycle
from placements.scheduling.scheduler import schedule
from placements.scheduling.spec import ClusterResourcePlacement
from placements.snapshots import content_hash, cycles_of, draft_cycle

CONFIRMATION = "unschedule-everything"
"""What every door sends to confirm."""
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Emptied:
    """A placement that a change would take off every cluster that it is on."""

    placement: str
    clusters: tuple[str, ...]

    def __str__(self) -> str:
        """Say which, and from where."""
        shown = joined(self.clusters[:_NAMED])
        if len(self.clusters) > _NAMED:
            shown = f"{', '.join(self.clusters[:_NAMED])} and {len(self.clusters) - _NAMED} more"
        count = len(self.clusters)
        all_of_them = "its only cluster" if count == 1 else f"all {counted(count, 'cluster')}"
        return f"{self.placement} would leave {all_of_them}: {shown}"


class EmptiesPlacementError(Exception):
    """A change would unschedule everything and nobody confirmed that; nothing has changed."""

    def __init__(self, emptied: Iterable[Emptied]) -> None:
        self.emptied = tuple(emptied)
        said = "; ".join(map(str, self.emptied))
        super().__init__(f"This would unschedule everything: {said}. Nothing has changed; confirm it first.")


def refuse_emptying_edit(current: Placement, manifest: ClusterResourcePlacement) -> None:
    """Raise EmptiesPlacementError when saving a manifest over a placement would unschedule everything.

    A change that the scheduler does not see is none of that.
    """
    latest = current.policy_snapshots.filter(is_latest=True).values_list("content_hash", flat=True).first()
    number = manifest.spec.policy.number_of_clusters
    if latest != content_hash(manifest) or number != current.number_of_clusters:
        _refuse(current, lambda cycle: draft_cycle(manifest, saved=current, fleet=cycle.fleet))


def refuse_emptying(placement: Placement, changed: Callable[[Cycle], Cycle]) -> None:
    """Raise EmptiesPlacementError when the changed cycle of a placement would unschedule everything."""
    _refuse(placement, changed)


def _refuse(placement: Placement, changed: Callable[[Cycle], Cycle]) -> None:
    if not placement.bindings.exists():
        return
    [(_, cycle)] = cycles_of([placement], fleet_unkept())
    before = _active(cycle.live_bindings)
    decision = schedule(changed(cycle))
    if before and not decision.is_failed and not _active(decision.bindings_after):
        raise EmptiesPlacementError([Emptied(placement.name, before)])


def _active(bindings: Iterable[BindingValue]) -> tuple[str, ...]:
    return tuple(sorted(one.cluster for one in bindings if one.is_active))
