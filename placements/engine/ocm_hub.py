"""The objects of a hub of Open Cluster Management as inputs of a cycle: clusters, sets, scores, decisions.

See `rules/other-schedulers.md#objects-of-a-hub`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any

from clusters.fleet import AddOnScores, Cluster, Fleet
from clusters.managed_cluster import parse_managed_cluster, parse_moment
from fleetui.apimachinery.errors import InvalidManifest, format_path
from fleetui.apimachinery.kinds import OCM_GROUP
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, items_at, parse_manifest
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.selectors import selects
from placements.manifests.affinity import LabelSelector
from placements.manifests.binding import BindingState, PlacedBinding

CLUSTER_KIND = "ManagedCluster"
HUB_KINDS = (
    CLUSTER_KIND,
    "ManagedClusterSet",
    "ManagedClusterSetBinding",
    "AddOnPlacementScore",
    "PlacementDecision",
)
SET_LABEL = f"{OCM_GROUP}/clusterset"
PLACEMENT_LABEL = f"{OCM_GROUP}/placement"
_Raw = Mapping[str, Any]


class BlockedSetError(ValueError):
    """A set that a placement may use has a selector that a hub cannot read: nothing is decided there."""


@dataclass(frozen=True)
class OcmHub:
    """What a hub holds, read from its objects. `decisions` are pairs of metadata and cluster names."""

    clusters: tuple[Cluster, ...] = ()
    sets: Mapping[str, _Raw] = field(default_factory=dict)
    bindings: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    decisions: tuple[tuple[_Raw, tuple[str, ...]], ...] = ()

    def eligible_sets(self, namespace: str, names: Sequence[str]) -> list[str]:
        """Return the sets bound to a namespace that exist and that a placement names, if it names any."""
        bound = self.bound_sets(namespace)
        return [one for one in bound if not names or one in names]

    def bound_sets(self, namespace: str) -> list[str]:
        bound = self.bindings.get(namespace, set())
        return sorted(bound & self.sets.keys())

    def members(self, sets: Iterable[str]) -> list[Cluster]:
        """Return the clusters in any of the sets that are not being deleted. Raise BlockedSetError."""
        tests = [self._membership(name) for name in sets]
        return [
            one
            for one in self.clusters
            if not self._is_leaving(one) and any(test(one.labels) for test in tests)
        ]

    def _membership(self, name: str) -> Callable[[Mapping[str, str]], bool]:
        """Return the test of a cluster's labels; a set without a selector is named by a label."""
        chosen = (self.sets[name].get("spec") or {}).get("clusterSelector") or {}
        if chosen.get("selectorType", "") != "LabelSelector":
            return lambda labels: labels.get(SET_LABEL) == name
        raw = chosen.get("labelSelector")
        if raw is None:
            return lambda _labels: False
        try:
            selector = parse_manifest(
                LabelSelector, raw, semantics=DEFAULT_SEMANTICS, path=""
            )
        except InvalidManifest as error:
            message = f"the selector of ManagedClusterSet {name} is invalid"
            raise BlockedSetError(message) from error
        return partial(selects, selector)

    @staticmethod
    def _is_leaving(cluster: Cluster) -> bool:
        if cluster.managed is None:
            return False
        metadata = cluster.managed.document["metadata"]
        return bool(metadata.get("deletionTimestamp"))

    def own_decisions(self, namespace: str, name: str) -> list[str]:
        """Return the clusters that a placement has, each once."""
        own = (names for raw, names in self.decisions if _is_own(raw, namespace, name))
        return list(dict.fromkeys(each for names in own for each in names))

    def balance(self, namespace: str, name: str) -> dict[str, int]:
        """Return how many decisions of other placements name each cluster, one of the hub or not."""
        counts = Counter({one.name: 0 for one in self.clusters})
        for raw, names in self.decisions:
            if not _is_own(raw, namespace, name):
                counts.update(names)
        return dict(counts)

    @property
    def has_sets(self) -> bool:
        return bool(self.sets or self.bindings)

    def cycle(self, cycle: Cycle, full_name: str) -> Cycle:
        """Return the cycle of a placement as this hub runs it. Raise BlockedSetError.

        Its clusters are the members of the sets that count, its bindings the decisions of before.
        """
        namespace, _, name = full_name.rpartition("/")
        members = self.members(
            self.eligible_sets(namespace, cycle.ocm_options.cluster_sets)
        )
        bindings = cycle.bindings or tuple(
            PlacedBinding(one, state=BindingState.BOUND)
            for one in self.own_decisions(namespace, name)
        )
        placed = replace(cycle, fleet=Fleet(members), bindings=bindings)
        return placed.with_balance(self.balance(namespace, name))


def _is_own(metadata: _Raw, namespace: str, name: str) -> bool:
    label = (metadata.get("labels") or {}).get(PLACEMENT_LABEL)
    return bool(metadata.get("namespace", "") == namespace and label == name)


def is_hub_object(document: object) -> bool:
    """Return whether a document is one of the kinds that `parse_hub` reads."""
    if not isinstance(document, Mapping):
        return False
    group = str(document.get("apiVersion", "")).partition("/")[0]
    return group == OCM_GROUP and document.get("kind") in HUB_KINDS


def _objects(documents: Sequence[Any], path: str) -> list[tuple[str, str, _Raw]]:
    """Return the objects that a hub reads, with kind and place, by kind. Raise InvalidManifest."""
    objects = []
    for index, one in enumerate(documents):
        place = format_path((path, index)) if path else ""
        if not isinstance(one, Mapping):
            message = "Invalid value: must be an object"
            raise InvalidManifest.of(place, "wrong-type", message, "an object")
        if is_hub_object(one):
            objects.append((one["kind"], place, one))
    # A cluster holds its scores, which come first.
    return sorted(objects, key=itemgetter(0))


def parse_hub(documents: Sequence[Any], *, path: str = "objects") -> OcmHub:
    """Return what these objects of a hub hold; other kinds are ignored. Raise InvalidManifest."""
    scores: dict[str, dict[str, AddOnScores]] = defaultdict(dict)
    bindings: dict[str, set[str]] = defaultdict(set)
    clusters = []
    sets = {}
    decisions = []
    for kind, place, one in _objects(documents, path):
        try:
            metadata = one["metadata"]
            name = metadata["name"]
            namespace = metadata.get("namespace", "")
            status = one.get("status") or {}
            match kind:
                case "AddOnPlacementScore":
                    scores[namespace][name] = _add_on_scores(status)
                case "ManagedCluster":
                    clusters.append(parse_managed_cluster(one, scores[name]))
                case "ManagedClusterSet":
                    sets[name] = one
                case "ManagedClusterSetBinding":
                    bindings[namespace].add(name)
                case "PlacementDecision":
                    entries = items_at(status, "decisions")
                    names = tuple(entry["clusterName"] for entry in entries)
                    decisions.append((metadata, names))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f"Invalid value: no valid {kind}"
            raise InvalidManifest.of(place, "bad-format", message) from error
    return OcmHub(tuple(clusters), sets, bindings, tuple(decisions))


def _add_on_scores(status: _Raw) -> AddOnScores:
    end = status.get("validUntil")
    values = {row["name"]: int(row["value"]) for row in status.get("scores") or []}
    return AddOnScores(values, parse_moment(end) if end else None)
