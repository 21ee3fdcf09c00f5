"""The same inputs scheduled under the semantics of all four systems.

See `rules/other-schedulers.md#translation`.
"""

from dataclasses import dataclass, replace

from clusters.queries import current_fleet
from fleetui.apimachinery.errors import InvalidManifest, ManifestWarning
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.placement import ClusterResourcePlacement
from placements.models import Placement
from placements.services.results import name_on_hub
from placements.services.simulate.translate import (
    PlacementInput,
    placement_input,
    translate,
)
from placements.services.snapshots import draft_cycle


@dataclass(frozen=True)
class SideBySide:
    """The decisions, what had to be left out of each, and which semantics refuse the input."""

    comparison: SemanticsComparison
    warnings: dict[Semantics, tuple[ManifestWarning, ...]]
    refused: dict[Semantics, str]


def side_by_side(decision: Decision, *, name: str) -> SideBySide:
    """Repeat a decision under each semantics, on its fleet and with its bindings."""
    cycle = decision.cycle
    return _sides(
        decision,
        PlacementInput(name, cycle.policy, cycle.semantics, cycle.options, places={}),
    )


def side_by_side_of_draft(draft: ClusterResourcePlacement) -> SideBySide:
    """Decide an unsaved placement under each semantics, on the fleet and with the bindings of now.

    Raise InvalidManifest for options that its own semantics refuse.
    """
    own = replace(placement_input(draft), warnings=())
    saved = Placement.objects.filter(full_name=name_on_hub(draft)).first()
    return _sides(
        schedule(draft_cycle(draft, saved=saved, fleet=current_fleet().fleet)), own
    )


def _sides(decision: Decision, own: PlacementInput) -> SideBySide:
    decisions: dict[Semantics, Decision] = {}
    warnings: dict[Semantics, tuple[ManifestWarning, ...]] = {}
    errors: dict[Semantics, str] = {}
    cycle = decision.cycle
    for semantics in Semantics:
        try:
            other = translate(own, semantics)
        except InvalidManifest as invalid:
            errors[semantics] = str(invalid)
            continue
        is_own = other.semantics is cycle.semantics
        changed = replace(
            other.cycle(cycle.fleet, cycle.bindings), namespace=cycle.namespace
        )
        decisions[semantics] = decision if is_own else schedule(changed)
        warnings[semantics] = tuple(map(own.in_document, other.warnings))
    return SideBySide(
        SemanticsComparison(decisions, decision.cycle.semantics), warnings, errors
    )
