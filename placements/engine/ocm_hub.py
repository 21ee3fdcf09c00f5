"""The objects of a hub of Open Cluster Management as inputs of a cycle: clusters, sets, scores, decisions.

See `rules/other-schedulers.md#objects-of-a-hub`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusters.fleet import AddOnScores, Cluster, Fleet
from clusters.managed_cluster import parse_managed_cluster, parse_moment
from fleetui.apimachinery.errors import FieldError, InvalidManifest, format_path
from fleetui.apimachinery.kinds import OCM_GROUP
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, parse_manifest
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

    def __init__(self, name: str) -> None:
        super().__init__(f"the selector of ManagedClusterSet {name} is invalid")
        self.name = name


@dataclass(frozen=True)
class OcmHub:
    """What a hub holds, read from its objects. `decisions` are pairs of metadata and cluster names."""

    clusters: tuple[Cluster, ...] = ()
    sets: Mapping[str, _Raw] = field(default_factory=dict)
    bindings: Mapping[str, frozenset[str]] = field(default_factory=dict)
    decisions: tuple[tuple[_Raw, tuple[str, ...]], ...] = ()

    def eligible_sets(self, namespace: str, names: Sequence[str]) -> list[str]:
        """Return the sets bound to a namespace that exist and that a placement names, if it names any."""
        bound = self.bound_sets(namespace)
        return [one for one in bound if not names or one in names]

    def bound_sets(self, namespace: str) -> list[str]:
        bound = self.bindings.get(namespace, frozenset())
        return sorted(bound & self.sets.keys())

    def members(self, sets: Iterable[str]) -> list[Cluster]:
        """Return the clusters in any of the sets that are not being deleted. Raise BlockedSetError."""
        tests = [(name, *self._membership(name)) for name in sets]
        return [
            one
            for one in self.clusters
            if not self._is_leaving(one)
            and any(
                one.labels.get(SET_LABEL) == name
                if is_exclusive
                else selector is not None and selects(selector, one.labels)
                for name, is_exclusive, selector in tests
            )
        ]

    def _membership(self, name: str) -> tuple[bool, LabelSelector | None]:
        """Return whether the label names the set, else the selector of its members; None selects nothing."""
        chosen = (self.sets[name].get("spec") or {}).get("clusterSelector") or {}
        if chosen.get("selectorType", "") != "LabelSelector":
            return True, None
        raw = chosen.get("labelSelector")
        if raw is None:
            return False, None
        try:
            return False, parse_manifest(
                LabelSelector, raw, semantics=DEFAULT_SEMANTICS, path=""
            )
        except InvalidManifest as error:
            raise BlockedSetError(name) from error

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


def parse_hub(documents: Sequence[Any], *, path: str = "objects") -> OcmHub:
    """Return what these objects of a hub hold; other kinds are ignored. Raise InvalidManifest."""
    by_kind: dict[str, list[tuple[str, _Raw]]] = defaultdict(list)
    errors = []
    for index, one in enumerate(documents):
        place = format_path((path, index)) if path else ""
        if is_hub_object(one) and isinstance(one.get("metadata"), Mapping):
            by_kind[one["kind"]].append((place, one))
        elif not isinstance(one, Mapping):
            message = "Invalid value: must be an object"
            errors.append(FieldError(place, "wrong-type", message, "an object"))
    if errors:
        raise InvalidManifest(errors)

    scores: dict[str, dict[str, AddOnScores]] = defaultdict(dict)
    for place, one in by_kind["AddOnPlacementScore"]:
        metadata = one["metadata"]
        status = one.get("status") or {}
        end = status.get("validUntil")
        try:
            scores[metadata.get("namespace", "")][metadata["name"]] = AddOnScores(
                {row["name"]: int(row["value"]) for row in status.get("scores") or []},
                parse_moment(end) if end else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            message = "Invalid value: must be an AddOnPlacementScore"
            raise InvalidManifest.of(place, "bad-format", message) from error
    bindings: dict[str, set[str]] = defaultdict(set)
    for _, one in by_kind["ManagedClusterSetBinding"]:
        bindings[one["metadata"].get("namespace", "")].add(one["metadata"]["name"])
    decisions = [
        (one["metadata"], (one.get("status") or {}).get("decisions") or [])
        for _, one in by_kind["PlacementDecision"]
    ]
    return OcmHub(
        tuple(
            parse_managed_cluster(
                one, scores.get(one["metadata"].get("name")), path=place
            )
            for place, one in by_kind[CLUSTER_KIND]
        ),
        {one["metadata"]["name"]: one for _, one in by_kind["ManagedClusterSet"]},
        {namespace: frozenset(names) for namespace, names in bindings.items()},
        tuple(
            (metadata, tuple(each["clusterName"] for each in entries))
            for metadata, entries in decisions
        ),
    )
