"""Objects of a hub of Open Cluster Management beside its clusters: sets, bindings, scores, decisions.

What each is read as: `rules/other-schedulers.md#objects-of-a-hub`.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from clusters.managed_cluster import parse_scores
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.kinds import OCM_GROUP
from fleetui.apimachinery.model import items_at

CLUSTER_KIND = "ManagedCluster"
SET_KIND = "ManagedClusterSet"
SET_BINDING_KIND = "ManagedClusterSetBinding"
SCORE_KIND = "AddOnPlacementScore"
DECISION_KIND = "PlacementDecision"
SET_KINDS = (SET_KIND, SET_BINDING_KIND)
OTHER_KINDS = (*SET_KINDS, SCORE_KIND, DECISION_KIND)
HUB_KINDS = (CLUSTER_KIND, *OTHER_KINDS)
SET_LABEL = f"{OCM_GROUP}/clusterset"
_CONTENT: Mapping[str, Callable[[Any], Any]] = {
    CLUSTER_KIND: lambda one: one,
    SET_KIND: lambda one: dict((one.get("spec") or {}).get("clusterSelector") or {}),
    SET_BINDING_KIND: lambda _one: {},
    SCORE_KIND: lambda one: parse_scores(one.get("status") or {}),
    DECISION_KIND: lambda one: (
        one["metadata"],
        tuple(
            decision["clusterName"]
            for decision in items_at(one.get("status") or {}, "decisions")
        ),
    ),
}


class OcmObject(NamedTuple):
    """One object, reduced to what is read.

    `content` is the cluster itself, the `clusterSelector` of a set, {} for a binding, an `AddOnScores`, or
    the metadata and the clusters of a decision.
    """

    kind: str
    namespace: str
    name: str
    content: Any

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}".removeprefix("/")


def is_hub_object(document: object, kinds: Collection[str] = HUB_KINDS) -> bool:
    """Return whether a document is one of the kinds that `parse_hub_object` reads."""
    if not isinstance(document, Mapping):
        return False
    group = str(document.get("apiVersion", "")).partition("/")[0]
    return group == OCM_GROUP and document.get("kind") in kinds


def parse_hub_object(one: Mapping[str, Any], path: str = "") -> OcmObject:
    """Return what an object holds. Raise InvalidManifest."""
    kind = one["kind"]
    try:
        metadata = one["metadata"]
        content = _CONTENT[kind](one)
        return OcmObject(kind, metadata.get("namespace", ""), metadata["name"], content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidManifest.of(
            path, "bad-format", f"Invalid value: no valid {kind}"
        ) from error
