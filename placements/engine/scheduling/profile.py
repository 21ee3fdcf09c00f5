"""The profile of each semantics: its filters in order, its scores, and its options that advice can vary.

A new filter is one module and one line here, at its place in the order. Its reason code has to be known to
other modules: `docs/contributing/add-plugin.md` lists them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import NamedTuple

from clusters.fleet import Fleet
from fleetui.apimachinery.model import Semantics
from placements.engine.scheduling.cycle import NO_OPTIONS, Cycle
from placements.engine.scheduling.filters.affinity import AffinityFilter
from placements.engine.scheduling.filters.already_placed import AlreadyPlacedFilter
from placements.engine.scheduling.filters.base import Filter
from placements.engine.scheduling.filters.cluster_sets import ClusterSetFilter
from placements.engine.scheduling.filters.eligibility import EligibilityFilter
from placements.engine.scheduling.filters.namespace_affinity import NamespaceFilter
from placements.engine.scheduling.filters.taint_toleration import (
    HubTaintFilter,
    TaintFilter,
)
from placements.engine.scheduling.filters.topology_keys import TopologyKeyFilter
from placements.engine.scheduling.scoring import AffinityScore, WeightedScore
from placements.engine.scheduling.spread.base import SpreadStrategy
from placements.engine.scheduling.spread.fleet import FleetSpread, KubeFleetSpread
from placements.engine.scheduling.spread.kubernetes import KubernetesSpread
from placements.engine.scheduling.spread.ocm import OcmSpread
from placements.manifests.ocm_options import (
    PrioritizerMode,
    Unsatisfiable,
    UnsetPolicy,
    refuse_weighted_limits,
)
from placements.manifests.policy import PlacementPolicy

_LADDER = (0, 0.1, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)


class Choice(NamedTuple):
    """An option, what it is today, and other values of it, the nearest first."""

    option: str
    today: object
    values: tuple[object, ...]


def ocm_choices(cycle: Cycle) -> Iterator[Choice]:
    """Yield the options that matter for a cycle: none without a spread; no values of `u` in strict mode."""
    options, constraints = cycle.ocm_options, cycle.policy.topology_spread_constraints
    if not constraints:
        return

    columns = (
        cycle.fleet.topology(constraint.topology_key, constraint.topology_key_type)
        for constraint in constraints
    )
    if any(not column.is_present.all() for column in columns):
        today = options.unset_policy
        yield Choice(
            "unsetPolicy",
            str(today),
            tuple(str(policy) for policy in UnsetPolicy if policy is not today),
        )

    if len(constraints) > 1:
        yield Choice("nested", options.nested, (not options.nested,))
    other = (
        PrioritizerMode.WEIGHTED
        if options.mode is PrioritizerMode.STRICT
        else PrioritizerMode.STRICT
    )
    yield Choice("mode", str(options.mode), (str(other),))
    if options.mode is PrioritizerMode.WEIGHTED:
        yield Choice("u", options.u, tuple(one for one in _LADDER if one > options.u))
        yield Choice(
            "u", options.u, tuple(one for one in reversed(_LADDER) if one < options.u)
        )


_TERMS = AffinityScore()
COMMON_FILTERS: tuple[Filter, ...] = (
    AffinityFilter(),
    EligibilityFilter(),
    TaintFilter(),
)
"""The filters of all semantics."""
FILTERS: tuple[Filter, ...] = (*COMMON_FILTERS, AlreadyPlacedFilter())
"""The filters of all semantics except `ocm`."""
NAMESPACED_FILTERS: tuple[Filter, ...] = (*FILTERS[:2], NamespaceFilter(), *FILTERS[2:])
"""Those of a placement with a namespace; other placements keep their places in stored decisions."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What the semantics of a placement decide, apart from its policy.

    `fails_on_malformed_property`: a property value that is no quantity fails the whole cycle where it is
    needed, as on a released hub, and so does a resource name with a second dash; else such a value counts as
    absent, with a warning. `chooses_again`: every cycle
    chooses among all clusters, placed or not; `reads_other_placements`: its scores depend on what others have
    on each cluster. `has_hub_objects`: sets, scores and decisions of a hub of Open Cluster Management count.
    `domains_depend_on_filters`: which clusters count in a domain depends on more than
    labels. `has_exact_search`: a set is judged by its final skews, so that exact search applies;
    `has_new_terms`: every document of a placement can express another term;
    `is_blocked_over_limit`: a skew above its limit forbids every pick that leaves it there. `refuse` raises
    InvalidManifest for a policy that is invalid with these options. Under `options_without_failure` a cycle
    that would fail without enough candidates keeps what it had picked. `options_to_try` are those that may
    lead to another choice.
    """

    strategy: SpreadStrategy
    filters: tuple[Filter, ...] = FILTERS
    preference: AffinityScore = _TERMS
    fails_on_malformed_property: bool = False
    chooses_again: bool = False
    reads_other_placements: bool = False
    has_hub_objects: bool = False
    domains_depend_on_filters: bool = False
    has_exact_search: bool = False
    is_blocked_over_limit: bool = False
    has_new_terms: bool = True
    refuse: Callable[[PlacementPolicy], None] = lambda _policy: None
    options_without_failure: Mapping[str, object] = field(
        default_factory=lambda: NO_OPTIONS
    )
    options_to_try: Callable[[Cycle], Iterable[Choice]] = lambda _cycle: ()


def _ocm(cycle: Cycle) -> Profile:
    options = cycle.ocm_options
    excludes = options.unset_policy is UnsetPolicy.EXCLUDE
    filters: tuple[Filter, ...] = (*COMMON_FILTERS[:2], HubTaintFilter())
    if cycle.cluster_sets is not None:
        filters = (ClusterSetFilter(), *filters)
    if excludes:
        filters = (*filters, TopologyKeyFilter())
    return Profile(
        OcmSpread(options),
        filters,
        WeightedScore(options),
        chooses_again=True,
        has_new_terms=False,
        has_hub_objects=True,
        reads_other_placements=options.balance_weight != 0 and not options.balance,
        refuse=partial(refuse_weighted_limits, options=options),
        options_without_failure={"unsatisfiable": str(Unsatisfiable.FEWER)},
        options_to_try=ocm_choices,
    )


_PROFILES = {
    Semantics.FLEET: Profile(FleetSpread(), has_exact_search=True),
    Semantics.KUBEFLEET: Profile(
        KubeFleetSpread(),
        fails_on_malformed_property=True,
        has_exact_search=True,
        is_blocked_over_limit=True,
    ),
    Semantics.KUBERNETES: Profile(KubernetesSpread(), domains_depend_on_filters=True),
}
_NAMESPACED = {
    semantics: replace(profile, filters=NAMESPACED_FILTERS)
    for semantics, profile in _PROFILES.items()
}


def profile_of(cycle: Cycle) -> Profile:
    """Return the profile that a cycle runs under. Raise InvalidManifest for invalid options."""
    if cycle.semantics is Semantics.OCM:
        return _ocm(cycle)
    return (_NAMESPACED if cycle.namespace else _PROFILES)[cycle.semantics]


@cache
def chooses_again(semantics: Semantics) -> bool:
    """Return whether every cycle chooses among all clusters under these semantics, whatever the options."""
    return profile_of(Cycle(Fleet(), semantics=semantics)).chooses_again


def without_failure(cycle: Cycle) -> Cycle:
    """Return the cycle that would run if too few candidates did not make it fail as a whole."""
    return replace(
        cycle, options={**cycle.options, **profile_of(cycle).options_without_failure}
    )
