"""Warnings about property values that are no quantities."""

from collections.abc import Iterable, Iterator

from clusters.fleet import Fleet
from fleetui.apimachinery.errors import ManifestWarning, format_path
from fleetui.apimachinery.fields import has_second_dash
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import names_and_more
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.filters.cluster_sets import ClusterSetFilter
from placements.engine.scheduling.filters.taint_toleration import tolerates
from placements.engine.scheduling.scores.ocm_prioritizers import (
    is_expired,
    reported_scores,
)

MISSING_OBJECT = "missing-object"
_MOST_NAMES = 5


def property_warnings(fleet: Fleet) -> tuple[ManifestWarning, ...]:
    """Return the properties that some cluster reports with a value that no policy can compare."""
    # The claims of Open Cluster Management are texts.
    reporting = (
        cluster
        for cluster in fleet
        if cluster.managed is None or not cluster.managed.document
    )
    names = sorted({name for cluster in reporting for name in cluster.properties})
    warnings = []
    for name in names:
        malformed = fleet.property(name).is_malformed.nonzero()[0].tolist()
        if malformed:
            message = f"no quantity on {_some(fleet.names[position] for position in malformed)}"
            warnings.append(
                ManifestWarning(
                    "not-a-quantity", format_path(("properties", name)), message
                )
            )
    return tuple(warnings)


def hub_warnings(cycle: Cycle) -> Iterator[ManifestWarning]:
    """Yield the objects of a hub that a placement under `ocm` reads and that are missing, by their names."""
    for rule in (missing_sets, missing_scores, missing_times):
        yield from rule(cycle)


def missing_sets(cycle: Cycle) -> Iterator[ManifestWarning]:
    path = "spec.clusterSets"
    names = cycle.ocm_options.cluster_sets
    if cycle.cluster_sets is None:
        if names:
            message = "no ManagedClusterSet is known: every cluster counts"
            yield ManifestWarning(MISSING_OBJECT, path, message)
        return
    missing = [name for name in names if name not in cycle.cluster_sets]
    if missing or not cycle.cluster_sets:
        which = ", ".join(missing) or "of any name"
        message = f"no ManagedClusterSet {which} is bound to the namespace"
        yield ManifestWarning(MISSING_OBJECT, path, message)
    outside = (~ClusterSetFilter().passes(cycle)).nonzero()[0].tolist()
    if outside:
        some = _some(cycle.fleet.names[position] for position in outside)
        message = f"in none of its bound cluster sets: {some}"
        yield ManifestWarning("not-a-member", path, message)


def missing_scores(cycle: Cycle) -> Iterator[ManifestWarning]:
    for add_on in cycle.ocm_options.add_ons:
        without = {*range(len(cycle.fleet))}
        for position, scores in reported_scores(add_on, cycle.fleet):
            if add_on.score_name in scores.values and not is_expired(
                scores, cycle.moment
            ):
                without.discard(position)
        if add_on.weight and without:
            some = _some(cycle.fleet.names[position] for position in sorted(without))
            score = (
                f"AddOnPlacementScore {add_on.resource_name} with {add_on.score_name}"
            )
            message = f"no {score} that is valid on {some}: it counts as 0"
            yield ManifestWarning("missing-score", "spec.prioritizerPolicy", message)


def missing_times(cycle: Cycle) -> Iterator[ManifestWarning]:
    for index, toleration in enumerate(cycle.policy.tolerations):
        if toleration.toleration_seconds is None:
            continue
        timeless = [
            cluster.name
            for cluster in cycle.fleet.of_hub.clusters
            for taint in cluster.taints
            if taint.time_added is None and tolerates(toleration, taint, None)
        ]
        if timeless:
            some = _some(dict.fromkeys(timeless))
            message = f"no timeAdded of the taint on {some}: it is not tolerated"
            path = f"spec.tolerations[{index}].tolerationSeconds"
            yield ManifestWarning(MISSING_OBJECT, path, message)


def decision_warnings(decision: Decision) -> tuple[ManifestWarning, ...]:
    """Return the property values that the cycle needed as numbers and that are none."""
    clusters = grouped(
        (malformed.property, malformed.cluster) for malformed in decision.malformed
    )
    is_fatal = decision.is_failed and not decision.is_unsatisfiable
    warnings = []
    for name, names in clusters.items():
        message = f"no quantity on {_some(names)}: it counts as absent"
        if is_fatal and has_second_dash(name):
            message = (
                "a resource name with a second dash cannot be read: the cycle fails"
            )
        elif is_fatal:
            message = f"no quantity on {_some(names)}: the cycle fails"
        warnings.append(
            ManifestWarning(
                "malformed-property", format_path(("properties", name)), message
            )
        )
    return tuple(warnings)


def _some(names: Iterable[str]) -> str:
    names = list(names)
    word = "cluster" if len(names) == 1 else "clusters"
    return f"{len(names):,} {word} ({names_and_more(names, _MOST_NAMES)})"
