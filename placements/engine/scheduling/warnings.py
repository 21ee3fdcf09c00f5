"""Admission warnings that depend on the fleet."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from clusters.fleet import Fleet
from fleetui.apimachinery.errors import ManifestWarning, format_path
from fleetui.apimachinery.fields import has_second_dash
from fleetui.apimachinery.words import names_and_more
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.selectors import label_requirements, match_labels, property_requirements
from placements.engine.scheduling.spread.base import MissingKeyPolicy
from placements.manifests.affinity import ClusterSelectorTerm
from placements.manifests.policy import KeyType, TopologySpreadConstraint

_MOST_NAMES = 5
_AFFINITY = "affinity.clusterAffinity"


def fleet_warnings(cycle: Cycle) -> tuple[ManifestWarning, ...]:
    """Return mismatches of a policy and a fleet: unknown keys, one domain only, terms without a match."""
    policy, fleet, path = cycle.policy, cycle.fleet, "policy"
    if not len(fleet):
        return (ManifestWarning("empty-fleet", path, "the fleet has no cluster"),)
    warnings: list[ManifestWarning] = []
    for index, constraint in enumerate(policy.topology_spread_constraints):
        place = f"{path}.topologySpreadConstraints[{index}].topologyKey"
        warnings += _constraint(constraint, fleet, place, profile_of(cycle).strategy.missing_key(constraint))
    required = f"{path}.{_AFFINITY}.requiredDuringSchedulingIgnoredDuringExecution.clusterSelectorTerms"
    for index, term in enumerate(policy.required_terms):
        warnings += _unknown_names(term, fleet, f"{required}[{index}]")
    preferred = f"{path}.{_AFFINITY}.preferredDuringSchedulingIgnoredDuringExecution"
    if policy.preferred_terms and not profile_of(cycle).preference.reads_terms:
        message = "replaced by the affinity rows of the options"
        return (*warnings, ManifestWarning("not-read", preferred, message))
    for index, one in enumerate(policy.preferred_terms):
        place = f"{preferred}[{index}].preference"
        unknown = list(_unknown_names(one.preference, fleet, place))
        warnings += unknown
        if not unknown and not match_labels(one.preference.label_selector, fleet).any():
            message = "no cluster matches: the term has no effect"
            warnings.append(ManifestWarning("matches-nothing", f"{place}.labelSelector", message))
    return tuple(warnings)


def property_warnings(fleet: Fleet) -> tuple[ManifestWarning, ...]:
    """Return the properties that some cluster reports with a value that no policy can compare."""
    names = sorted({name for cluster in fleet for name in cluster.properties})
    warnings = []
    for name in names:
        malformed = fleet.property(name).is_malformed.nonzero()[0].tolist()
        if malformed:
            message = f"no quantity on {_some(fleet.names[position] for position in malformed)}"
            warnings.append(ManifestWarning("not-a-quantity", format_path(("properties", name)), message))
    return tuple(warnings)


def decision_warnings(decision: Decision) -> tuple[ManifestWarning, ...]:
    """Return the property values that the cycle needed as numbers and that are none."""
    clusters: dict[str, list[str]] = {}
    for one in decision.malformed:
        clusters.setdefault(one.property, []).append(one.cluster)
    is_fatal = decision.is_failed and not decision.is_unsatisfiable
    warnings = []
    for name, names in clusters.items():
        message = f"no quantity on {_some(names)}: it counts as absent"
        if is_fatal and has_second_dash(name):
            message = "a resource name with a second dash cannot be read: the cycle fails"
        elif is_fatal:
            message = f"no quantity on {_some(names)}: the cycle fails"
        warnings.append(ManifestWarning("malformed-property", format_path(("properties", name)), message))
    return tuple(warnings)


_WITHOUT_KEY = {
    MissingKeyPolicy.UNLIMITED: "no limit there, and often selected first",
    MissingKeyPolicy.EXCLUDED: "never selected",
    MissingKeyPolicy.LAST: "selected last",
    MissingKeyPolicy.OWN_GROUP: "together a domain of their own",
}
_NONE_WITH_KEY = {MissingKeyPolicy.EXCLUDED: "no cluster can be selected"}


def _constraint(
    constraint: TopologySpreadConstraint, fleet: Fleet, path: str, missing_key: MissingKeyPolicy
) -> Iterator[ManifestWarning]:
    sort = "claim" if constraint.topology_key_type is KeyType.CLAIM else "label"
    key_words = f"the {sort} {constraint.topology_key}"
    column = fleet.topology(constraint.topology_key, constraint.topology_key_type)
    if not column.values:
        effect = _NONE_WITH_KEY.get(missing_key, "the constraint has no effect")
        similar = "" if sort == "claim" else _similar(constraint.topology_key, fleet)
        yield ManifestWarning("unknown-key", path, f"no cluster has {key_words}: {effect}{similar}")
        return
    lacking = [fleet.names[position] for position in (~column.is_present).nonzero()[0].tolist()]
    if len(column.values) == 1 and not (lacking and missing_key is MissingKeyPolicy.OWN_GROUP):
        message = f"{key_words} has one value only, {column.values[0]!r}: one domain, so nothing is spread"
        yield ManifestWarning("single-group", path, message)
    if lacking:
        message = f"{_some(lacking)} without {key_words}: {_WITHOUT_KEY[missing_key]}"
        yield ManifestWarning("clusters-lack-key", path, message)


def _unknown_names(term: ClusterSelectorTerm, fleet: Fleet, path: str) -> Iterator[ManifestWarning]:
    for key in dict.fromkeys(one.key for one in label_requirements(term.label_selector)):
        if not fleet.label(key).values:
            yield ManifestWarning(
                "unknown-key",
                f"{path}.labelSelector",
                f"no cluster has the label {key}{_similar(key, fleet)}",
            )
    names = [one.name for one in property_requirements(term)]
    if term.property_sorter is not None:
        names.append(term.property_sorter.name)
    for name in dict.fromkeys(names):
        if all(text is None for text in fleet.property(name).texts):
            yield ManifestWarning("unknown-property", path, f"no cluster reports the property {name}")


def _similar(key: str, fleet: Fleet) -> str:
    """Return a suggestion of a similar label key; empty where there is none."""
    similar = get_close_matches(key, {one for cluster in fleet for one in cluster.labels}, n=1, cutoff=0.75)
    return f". Did you mean {similar[0]}?" if similar else ""


def _some(names: Iterable[str]) -> str:
    names = list(names)
    word = "cluster" if len(names) == 1 else "clusters"
    return f"{len(names):,} {word} ({names_and_more(names, _MOST_NAMES)})"
