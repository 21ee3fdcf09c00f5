"""What a door warns of once it knows the fleet: accepted, but perhaps not what was meant."""

from collections.abc import Iterable, Iterator

from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import Decision
from placements.scheduling.faults import Caveat, format_path
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import ClusterSelectorTerm, KeyType, TopologySpreadConstraint
from placements.scheduling.profile import profile_of
from placements.scheduling.selectors import label_requirements, match_labels, property_requirements
from placements.scheduling.spread.base import Keyless

_LISTED = 5
_AFFINITY = "affinity.clusterAffinity"


def fleet_caveats(cycle: Cycle) -> tuple[Caveat, ...]:
    """List where a policy and a fleet do not fit: unknown keys, one group only, terms without a match."""
    policy, fleet, path = cycle.policy, cycle.fleet, "policy"
    if not len(fleet):
        return (Caveat("empty-fleet", path, "the fleet has no cluster"),)
    found: list[Caveat] = []
    for index, constraint in enumerate(policy.topology_spread_constraints):
        place = f"{path}.topologySpreadConstraints[{index}].topologyKey"
        found += _constraint(constraint, fleet, place, profile_of(cycle).strategy.keyless(constraint))
    required = f"{path}.{_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.clusterSelectorTerms"
    for index, term in enumerate(policy.required_terms):
        found += _unknown_names(term, fleet, f"{required}[{index}]")
    preferred = f"{path}.{_AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution"
    if policy.preferred_terms and not profile_of(cycle).preference.reads_terms:
        found.append(Caveat("not-read", preferred, "the affinity rows of the options stand in their place"))
        return tuple(found)
    for index, wish in enumerate(policy.preferred_terms):
        found += _preference(wish.preference, fleet, f"{preferred}[{index}].preference")
    return tuple(found)


def property_caveats(fleet: Fleet) -> tuple[Caveat, ...]:
    """List the properties that some cluster reports with a value that no policy can compare."""
    names = sorted({name for cluster in fleet for name in cluster.properties})
    found = ((name, fleet.property(name).is_malformed.nonzero()[0].tolist()) for name in names)
    return tuple(
        Caveat("not-a-quantity", format_path(("properties", name)), f"no quantity on {_some_at(fleet, odd)}")
        for name, odd in found
        if odd
    )


def _some_at(fleet: Fleet, positions: list[int]) -> str:
    return _some(map(fleet.names.__getitem__, positions))


def decision_caveats(decision: Decision) -> tuple[Caveat, ...]:
    """List the property values that the cycle needed as numbers and that are none."""
    clusters: dict[str, list[str]] = {}
    for one in decision.malformed:
        clusters.setdefault(one.property, []).append(one.cluster)
    is_fatal = decision.is_failed and not decision.is_unsatisfiable
    effect = "the cycle fails" if is_fatal else "it counts as absent"
    return tuple(
        Caveat(
            "malformed-property",
            format_path(("properties", name)),
            f"no quantity on {_some(names)}: {effect}",
        )
        for name, names in clusters.items()
    )


_WITHOUT_KEY = {
    Keyless.UNLIMITED: "no limit there, and often the first pick",
    Keyless.EXCLUDED: "never picked",
    Keyless.LAST: "picked last",
    Keyless.OWN_GROUP: "together a group of their own",
}
_NOBODY_WITH_KEY = {Keyless.EXCLUDED: "nobody can be picked"}


def _constraint(
    constraint: TopologySpreadConstraint, fleet: Fleet, path: str, keyless: Keyless
) -> Iterator[Caveat]:
    sort = "claim" if constraint.topology_key_type is KeyType.CLAIM else "label"
    named = f"the {sort} {constraint.topology_key}"
    column = fleet.topology(constraint.topology_key, constraint.topology_key_type)
    if not column.values:
        effect = _NOBODY_WITH_KEY.get(keyless, "the constraint does nothing")
        yield Caveat("unknown-key", path, f"no cluster carries {named}: {effect}")
        return
    lacking = [fleet.names[position] for position in (~column.is_present).nonzero()[0].tolist()]
    if len(column.values) == 1 and not (lacking and keyless is Keyless.OWN_GROUP):
        message = f"{named} has one value only, {column.values[0]!r}: one group, so nothing is spread"
        yield Caveat("single-group", path, message)
    if lacking:
        yield Caveat("clusters-lack-key", path, f"{_some(lacking)} without {named}: {_WITHOUT_KEY[keyless]}")


def _unknown_names(term: ClusterSelectorTerm, fleet: Fleet, path: str) -> Iterator[Caveat]:
    for key in dict.fromkeys(one.key for one in label_requirements(term.label_selector)):
        if not fleet.label(key).values:
            yield Caveat("unknown-key", f"{path}.labelSelector", f"no cluster carries the label {key}")
    names = [one.name for one in property_requirements(term)]
    if term.property_sorter is not None:
        names.append(term.property_sorter.name)
    for name in dict.fromkeys(names):
        if all(text is None for text in fleet.property(name).texts):
            yield Caveat("unknown-property", path, f"no cluster reports the property {name}")


def _preference(term: ClusterSelectorTerm, fleet: Fleet, path: str) -> Iterator[Caveat]:
    unknown = list(_unknown_names(term, fleet, path))
    yield from unknown
    if not unknown and not match_labels(term.label_selector, fleet).any():
        yield Caveat(
            "matches-nothing", f"{path}.labelSelector", "no cluster matches: the term changes nothing"
        )


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    word = "cluster" if len(listed) == 1 else "clusters"
    return f"{len(listed)} {word} ({', '.join(listed[:_LISTED])}{more})"
