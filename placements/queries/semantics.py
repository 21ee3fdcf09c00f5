"""The same inputs under the rules of all four systems, side by side (`spec/other-schedulers.md` 6.4)."""

from dataclasses import dataclass, replace

from clusters.queries import fleet_now
from placements.models import Placement
from placements.scheduling.comparison import Comparison
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.faults import Caveat, Faults
from placements.scheduling.scheduler import schedule
from placements.scheduling.semantics import Semantics
from placements.scheduling.spec import ClusterResourcePlacement
from placements.simulation.wish import Wish, carried_over, wish_of_placement
from placements.snapshots import draft_cycle


@dataclass(frozen=True)
class SideBySide:
    """The decisions, what had to be left out of each, and where the wish cannot be carried over at all."""

    comparison: Comparison
    warnings: dict[Semantics, tuple[Caveat, ...]]
    refused: dict[Semantics, str]


def side_by_side(decision: Decision, *, name: str) -> SideBySide:
    """Decide what a decision decided once more under each semantics, on its fleet and with its bindings."""
    cycle = decision.cycle
    return _sides(decision, Wish(name, cycle.policy, cycle.semantics, cycle.options, places={}))


def side_by_side_of_draft(draft: ClusterResourcePlacement) -> SideBySide:
    """Decide an unsaved placement under each semantics, on the fleet and with the bindings of now.

    Raises Faults for options that its own semantics refuse.
    """
    wish = replace(wish_of_placement(draft), caveats=())
    saved = Placement.objects.filter(name=draft.metadata.name).first()
    return _sides(schedule(draft_cycle(draft, saved=saved, fleet=fleet_now().fleet)), wish)


def _sides(decision: Decision, wish: Wish) -> SideBySide:
    decisions: dict[Semantics, Decision] = {}
    warnings: dict[Semantics, tuple[Caveat, ...]] = {}
    refused: dict[Semantics, str] = {}
    for semantics in Semantics:
        try:
            other = carried_over(wish, semantics)
        except Faults as faults:
            refused[semantics] = str(faults)
            continue
        decisions[semantics] = _decided(decision, other)
        warnings[semantics] = tuple(map(wish.in_document, other.caveats))
    return SideBySide(Comparison(decisions, decision.cycle.semantics), warnings, refused)


def _decided(decision: Decision, wish: Wish) -> Decision:
    cycle: Cycle = decision.cycle
    if wish.semantics is cycle.semantics:
        return decision
    return schedule(wish.cycle(cycle.fleet, cycle.bindings))
