"""What of a cluster a policy reads: clusters that agree on all of it differ in nothing but their name."""

from collections.abc import Iterator

from placements.scheduling.policy import ClusterSelectorTerm, PlacementPolicy
from placements.scheduling.selectors import label_requirements, property_requirements


def labels_read(policy: PlacementPolicy) -> tuple[str, ...]:
    """Give the label keys that a policy mentions, sorted."""
    keys = {constraint.topology_key for constraint in policy.topology_spread_constraints}
    for term in _terms(policy):
        keys.update(requirement.key for requirement in label_requirements(term.label_selector))
    return tuple(sorted(keys))


def properties_read(policy: PlacementPolicy) -> tuple[str, ...]:
    """Give the property names that a policy mentions, sorted."""
    names: set[str] = set()
    for term in _terms(policy):
        names.update(requirement.name for requirement in property_requirements(term))
        if term.property_sorter is not None:
            names.add(term.property_sorter.name)
    return tuple(sorted(names))


def _terms(policy: PlacementPolicy) -> Iterator[ClusterSelectorTerm]:
    yield from policy.required_terms
    yield from (term.preference for term in policy.preferred_terms)
