"""Whether a change of the fleet can change the picks of a placement, evaluated on the changed clusters only.

The answer "no" is exact, "yes" means that a cycle has to run (`spec/foresight.md` 8.3).
"""

from collections.abc import Collection

from placements.engine.scheduling.candidates import verdicts
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scores.preferred_affinity import malformed_sorter_values
from placements.engine.scheduling.selectors import match_any_term
from placements.engine.scheduling.spread.base import is_hard
from placements.manifests.policy import PlacementType


def can_change_picks(
    cycle: Cycle, *, label_keys: Collection[str], is_membership_changed: bool, has_failed: bool = False
) -> bool:
    """Return whether a cycle on the whole fleet could decide anything else than the one before.

    The fleet of `cycle` holds the changed clusters as they are now, and its bindings are those on them. The
    former cycle left a PickAll placement, or a PickN one with too few clusters. `label_keys` are the labels
    that changed anywhere; `is_membership_changed` says that a cluster joined or left; `has_failed`, that the
    former cycle ended at a property that is no quantity.
    """
    policy = cycle.policy
    profile = profile_of(cycle)
    if profile.chooses_anew or profile.domains_depend_on_filters:
        return True
    if policy.placement_type is PlacementType.PICK_FIXED:
        return True
    # Domains and their counts include clusters that pass no filter.
    hard_keys = {one.topology_key for one in policy.topology_spread_constraints if is_hard(one)}
    if hard_keys and (is_membership_changed or not hard_keys.isdisjoint(label_keys)):
        return True
    is_malformed = match_any_term(policy.required_terms, cycle.fleet).malformed
    if policy.placement_type is PlacementType.PICK_N:
        is_malformed = is_malformed or malformed_sorter_values(cycle)
    return has_failed or bool(is_malformed) or bool((verdicts(cycle) == 0).any())
