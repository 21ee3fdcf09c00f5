"""Which properties a cycle needs as numbers but cannot read (`spec/scheduler.md` 4.4)."""

import numpy as np

from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.selectors import Malformed, malformed_values, match_any_term
from placements.manifests.policy import PlacementType


def malformed_properties(cycle: Cycle) -> tuple[Malformed, ...]:
    """Return the values that terms reach or sorters need and that are no quantities, each once, in order."""
    policy, fleet = cycle.policy, cycle.fleet
    is_strict = profile_of(cycle).fails_on_malformed_property
    found = [*match_any_term(policy.required_terms, fleet, splits_names=is_strict).malformed]
    if policy.placement_type is PlacementType.PICK_N:
        everywhere = np.ones(len(fleet), dtype=np.bool_)
        for term in policy.preferred_terms:
            # A released hub reads the range of every sorter, of weight 0 too.
            if term.preference.property_sorter is not None and (term.weight or is_strict):
                name = term.preference.property_sorter.name
                found += malformed_values(name, fleet, among=everywhere, splits_names=is_strict)
    return tuple(dict.fromkeys(found))
