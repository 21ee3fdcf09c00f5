"""The profile: which filters run, in which order, and what else depends on the semantics.

A new filter is one module and one line here, at its place in the order.
"""

from collections.abc import Callable
from dataclasses import dataclass

from placements.scheduling.cycle import Cycle
from placements.scheduling.door.ocm_options import OcmOptions, UnsetPolicy
from placements.scheduling.filters.affinity import AffinityFilter
from placements.scheduling.filters.already_placed import AlreadyPlacedFilter
from placements.scheduling.filters.base import Filter
from placements.scheduling.filters.eligibility import EligibilityFilter
from placements.scheduling.filters.taints import TaintFilter
from placements.scheduling.filters.topology_keys import TopologyKeyFilter
from placements.scheduling.policy import Semantics
from placements.scheduling.spread.base import SpreadStrategy
from placements.scheduling.spread.fleet import FleetSpread
from placements.scheduling.spread.kubefleet import KubeFleetSpread
from placements.scheduling.spread.kubernetes import KubernetesSpread
from placements.scheduling.spread.ocm import OcmSpread

FITNESS: tuple[Filter, ...] = (AffinityFilter(), EligibilityFilter(), TaintFilter())
FILTERS: tuple[Filter, ...] = (*FITNESS, AlreadyPlacedFilter())


@dataclass(frozen=True, slots=True)
class Profile:
    """What the semantics of a placement decide, apart from its policy.

    `fails_on_malformed_property` says that a property value which is no quantity fails the whole cycle
    where it is needed, as it does on a released hub; else it counts as absent, with a warning.
    `chooses_anew` says that every cycle chooses among all clusters, placed or not; `ocm` are the options
    of the scores that only such a choice has.
    """

    strategy: SpreadStrategy
    filters: tuple[Filter, ...] = FILTERS
    fails_on_malformed_property: bool = False
    chooses_anew: bool = False
    ocm: OcmOptions | None = None


def _ocm(cycle: Cycle) -> Profile:
    options = cycle.ocm_options
    excludes = options.unset_policy is UnsetPolicy.EXCLUDE
    filters = (*FITNESS, TopologyKeyFilter()) if excludes else FITNESS
    return Profile(OcmSpread(options), filters, chooses_anew=True, ocm=options)


_FLEET = Profile(FleetSpread())
_KUBEFLEET = Profile(KubeFleetSpread(), fails_on_malformed_property=True)
_KUBERNETES = Profile(KubernetesSpread())
_PROFILES: dict[Semantics, Callable[[Cycle], Profile]] = {
    Semantics.FLEET: lambda _: _FLEET,
    Semantics.KUBEFLEET: lambda _: _KUBEFLEET,
    Semantics.KUBERNETES: lambda _: _KUBERNETES,
    Semantics.OCM: _ocm,
}


def profile_of(cycle: Cycle) -> Profile:
    """Give the profile that a cycle runs under. Raises Faults for options that no door would take."""
    return _PROFILES[cycle.semantics](cycle)
