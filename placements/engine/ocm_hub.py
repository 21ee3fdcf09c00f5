"""The objects of a hub of Open Cluster Management as inputs of a cycle: clusters, sets, scores, decisions.

See `rules/other-schedulers.md#objects-of-a-hub`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any

from clusters.fleet import AddOnScores, Cluster
from clusters.hub_objects import (
    CLUSTER_KIND,
    OcmObject,
    is_hub_object,
    parse_hub_object,
)
from clusters.managed_cluster import parse_managed_cluster
from fleetui.apimachinery.errors import InvalidManifest, format_path
from fleetui.apimachinery.kinds import OCM_GROUP
from placements.engine.scheduling.cycle import Cycle
from placements.manifests.affinity import set_selector
from placements.manifests.binding import BindingState, PlacedBinding

PLACEMENT_LABEL = f"{OCM_GROUP}/placement"
_Raw = Mapping[str, Any]


class BlockedSetError(ValueError):
    """A set that a placement may use has a selector that a hub cannot read: nothing is decided there."""


@dataclass(frozen=True)
class OcmHub:
    """What a hub holds, read from its objects.

    `sets` are their selectors by name, `bindings` names of sets by namespace, `scores` by cluster and name,
    `decisions` pairs of metadata and cluster names.
    """

    clusters: tuple[Cluster, ...] = ()
    sets: Mapping[str, _Raw] = field(default_factory=dict)
    bindings: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    scores: Mapping[str, Mapping[str, AddOnScores]] = field(default_factory=dict)
    decisions: tuple[tuple[_Raw, tuple[str, ...]], ...] = ()

    def eligible_sets(self, namespace: str, names: Sequence[str]) -> list[str]:
        """Return the sets bound to a namespace that exist and that a placement names, if it names any."""
        return [
            bound_set
            for bound_set in self.bound_sets(namespace)
            if not names or bound_set in names
        ]

    def bound_sets(self, namespace: str) -> list[str]:
        return sorted(self.bindings.get(namespace, set()) & self.sets.keys())

    def own_decisions(self, namespace: str, name: str) -> list[str]:
        own = (names for raw, names in self.decisions if _is_own(raw, namespace, name))
        return list(dict.fromkeys(each for names in own for each in names))

    def balance(self, namespace: str, name: str) -> dict[str, int]:
        """Return how many decisions of other placements name each cluster, one of the hub or not."""
        counts = Counter({cluster.name: 0 for cluster in self.clusters})
        for raw, names in self.decisions:
            if not _is_own(raw, namespace, name):
                counts.update(names)
        return dict(counts)

    @property
    def has_sets(self) -> bool:
        return bool(self.sets or self.bindings)

    def with_sets(self, cycle: Cycle, namespace: str) -> Cycle:
        """Return the cycle of a placement in a namespace, with the sets that it may use.

        Raise BlockedSetError.
        """
        names = self.eligible_sets(namespace, cycle.ocm_options.cluster_sets)
        for name in names:
            try:
                set_selector(self.sets[name])
            except InvalidManifest as error:
                message = f"the selector of ManagedClusterSet {name} is invalid"
                raise BlockedSetError(message) from error
        return replace(cycle, cluster_sets={name: self.sets[name] for name in names})

    def cycle(self, cycle: Cycle, full_name: str) -> Cycle:
        """Return the cycle of a placement as this hub runs it, with the decisions of before as bindings.

        Sets are bound to namespaces: one that is cluster-scoped may use every cluster. Raise BlockedSetError.
        """
        namespace, separator, name = full_name.rpartition("/")
        bindings = cycle.bindings or tuple(
            PlacedBinding(decision, state=BindingState.BOUND)
            for decision in self.own_decisions(namespace, name)
        )
        placed = replace(cycle, bindings=bindings)
        balanced = placed.with_balance(self.balance(namespace, name))
        if not separator:
            return balanced
        return self.with_sets(balanced, namespace)


def _is_own(metadata: _Raw, namespace: str, name: str) -> bool:
    label = (metadata.get("labels") or {}).get(PLACEMENT_LABEL)
    return bool(metadata.get("namespace", "") == namespace and label == name)


def parse_hub(documents: Sequence[Any], *, path: str = "objects") -> OcmHub:
    """Return what these objects of a hub hold; other kinds are ignored. Raise InvalidManifest."""
    objects = []
    for index, document in enumerate(documents):
        place = format_path((path, index)) if path else ""
        if not isinstance(document, Mapping):
            message = "Invalid value: must be an object"
            raise InvalidManifest.of(place, "wrong-type", message, "an object")
        if is_hub_object(document):
            objects.append((place, parse_hub_object(document, place)))
    hub = hub_of(ocm_object for _, ocm_object in objects)
    clusters = []
    for place, one in objects:
        if one.kind != CLUSTER_KIND:
            continue
        try:
            scores = hub.scores.get(one.name, {})
            clusters.append(parse_managed_cluster(one.content, scores))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"Invalid value: no valid {CLUSTER_KIND}"
            raise InvalidManifest.of(place, "bad-format", message) from error
    return replace(hub, clusters=tuple(clusters))


def hub_of(objects: Iterable[OcmObject]) -> OcmHub:
    """Return the hub that has these objects, without its clusters."""
    sets = {}
    bindings: dict[str, set[str]] = defaultdict(set)
    scores: dict[str, dict[str, AddOnScores]] = defaultdict(dict)
    decisions = []
    for one in objects:
        match one.kind:
            case "ManagedClusterSet":
                sets[one.name] = one.content
            case "ManagedClusterSetBinding":
                bindings[one.namespace].add(one.name)
            case "AddOnPlacementScore":
                scores[one.namespace][one.name] = one.content
            case "PlacementDecision":
                decisions.append(one.content)
    return OcmHub((), sets, bindings, scores, tuple(decisions))
