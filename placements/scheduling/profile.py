"""The profile: which filters run, in which order, and what else depends on the semantics.

A new filter is one module and one line here, at its place in the order.
"""

from dataclasses import dataclass

from placements.scheduling.filters.affinity import AffinityFilter
from placements.scheduling.filters.already_placed import AlreadyPlacedFilter
from placements.scheduling.filters.base import Filter
from placements.scheduling.filters.eligibility import EligibilityFilter
from placements.scheduling.filters.taints import TaintFilter
from placements.scheduling.policy import Semantics
from placements.scheduling.spread import STRATEGIES
from placements.scheduling.spread.base import SpreadStrategy

FILTERS: tuple[Filter, ...] = (AffinityFilter(), EligibilityFilter(), TaintFilter(), AlreadyPlacedFilter())


@dataclass(frozen=True, slots=True)
class Profile:
    """What the semantics of a placement decide, apart from its policy.

    `fails_on_malformed_property` says that a property value which is no quantity fails the whole cycle
    where it is needed, as it does on a released hub; else it counts as absent, with a warning.
    """

    strategy: SpreadStrategy
    filters: tuple[Filter, ...] = FILTERS
    fails_on_malformed_property: bool = False


PROFILES: dict[Semantics, Profile] = {
    Semantics.FLEET: Profile(STRATEGIES[Semantics.FLEET]),
    Semantics.KUBEFLEET: Profile(STRATEGIES[Semantics.KUBEFLEET], fails_on_malformed_property=True),
}
