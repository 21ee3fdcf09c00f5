"""The labels and properties of clusters that a cycle reads."""

from collections.abc import Iterator

from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.selectors import label_requirements, property_requirements
from placements.manifests.affinity import ClusterSelectorTerm
from placements.manifests.policy import KeyType, PlacementPolicy


def labels_read(cycle: Cycle) -> tuple[str, ...]:
    """Return the label keys that a policy and its options mention, sorted."""
    keys = _topology_keys(cycle, KeyType.LABEL)
    for term in _terms(cycle.policy):
        keys.update(requirement.key for requirement in label_requirements(term.label_selector))
    return tuple(sorted(keys))


def properties_read(cycle: Cycle) -> tuple[str, ...]:
    """Return the property names that a policy and its options mention, claims among them, sorted."""
    names = _topology_keys(cycle, KeyType.CLAIM)
    for term in _terms(cycle.policy):
        names.update(requirement.name for requirement in property_requirements(term))
        names.update(requirement.key for requirement in label_requirements(term.claim_selector))
        if term.property_sorter is not None:
            names.add(term.property_sorter.name)
    return tuple(sorted(names | profile_of(cycle).preference.properties_read()))


def _topology_keys(cycle: Cycle, kind: KeyType) -> set[str]:
    spread = {
        one.topology_key
        for one in cycle.policy.topology_spread_constraints
        if (one.topology_key_type or KeyType.LABEL) is kind
    }
    return spread | profile_of(cycle).preference.keys_read(kind)


def _terms(policy: PlacementPolicy) -> Iterator[ClusterSelectorTerm]:
    yield from policy.required_terms
    yield from (term.preference for term in policy.preferred_terms)
