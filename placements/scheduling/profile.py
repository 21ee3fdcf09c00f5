"""The profile: which filters run, in which order, and what else depends on the semantics.

A new filter is one module and one line here, at its place in the order.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

from placements.scheduling.choices import Choice, ocm_choices
from placements.scheduling.cycle import NO_OPTIONS, Cycle
from placements.scheduling.door.ocm_options import Unsatisfiable, UnsetPolicy, refuse_weighted_limits
from placements.scheduling.filters.affinity import AffinityFilter
from placements.scheduling.filters.already_placed import AlreadyPlacedFilter
from placements.scheduling.filters.base import Filter
from placements.scheduling.filters.eligibility import EligibilityFilter
from placements.scheduling.filters.taints import TaintFilter
from placements.scheduling.filters.topology_keys import TopologyKeyFilter
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import PlacementPolicy, Semantics
from placements.scheduling.preference import Preference, TermPreference, WeighedPreference
from placements.scheduling.spread.base import SpreadStrategy
from placements.scheduling.spread.fleet import FleetSpread
from placements.scheduling.spread.kubefleet import KubeFleetSpread
from placements.scheduling.spread.kubernetes import KubernetesSpread
from placements.scheduling.spread.ocm import OcmSpread

_TERMS = TermPreference()
FITNESS: tuple[Filter, ...] = (AffinityFilter(), EligibilityFilter(), TaintFilter())
FILTERS: tuple[Filter, ...] = (*FITNESS, AlreadyPlacedFilter())


def _no_choice(_cycle: Cycle) -> Iterable[Choice]:
    return ()


def _refuse_nothing(_policy: PlacementPolicy) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Profile:
    """What the semantics of a placement decide, apart from its policy.

    `fails_on_malformed_property` says that a property value which is no quantity fails the whole cycle
    where it is needed, as it does on a released hub; else it counts as absent, with a warning.
    `chooses_anew` says that every cycle chooses among all clusters, placed or not; `reads_other_placements`
    that its scores want to be told what others have on each cluster. `refuse` raises Faults for a policy
    that no door would take beside these options. Under `options_without_failure` a cycle that would fail for
    want of candidates keeps what it had picked. `options_to_try` gives those that may lead to another choice.
    """

    strategy: SpreadStrategy
    filters: tuple[Filter, ...] = FILTERS
    preference: Preference = _TERMS
    fails_on_malformed_property: bool = False
    chooses_anew: bool = False
    reads_other_placements: bool = False
    refuse: Callable[[PlacementPolicy], None] = _refuse_nothing
    options_without_failure: Mapping[str, object] = field(default_factory=lambda: NO_OPTIONS)
    options_to_try: Callable[[Cycle], Iterable[Choice]] = _no_choice


def _ocm(cycle: Cycle) -> Profile:
    options = cycle.ocm_options
    excludes = options.unset_policy is UnsetPolicy.EXCLUDE
    filters = (*FITNESS, TopologyKeyFilter()) if excludes else FITNESS
    return Profile(
        OcmSpread(options),
        filters,
        WeighedPreference(options),
        chooses_anew=True,
        reads_other_placements=options.balance_weight != 0 and not options.balance,
        refuse=partial(refuse_weighted_limits, options=options),
        options_without_failure={"unsatisfiable": str(Unsatisfiable.FEWER)},
        options_to_try=ocm_choices,
    )


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


@cache
def chooses_anew(semantics: Semantics) -> bool:
    """Tell whether every cycle chooses among all clusters under these semantics, whatever the options."""
    return profile_of(Cycle(Fleet(), semantics=semantics)).chooses_anew


def without_failure(cycle: Cycle) -> Cycle:
    """Give the cycle as it would run if too few candidates did not make it fail as a whole."""
    return replace(cycle, options={**cycle.options, **profile_of(cycle).options_without_failure})
