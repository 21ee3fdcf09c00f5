"""What is never placed: kinds of the machinery, objects that every cluster makes itself (lifecycle B.2)."""

from collections.abc import Container

from placements.scheduling.hub.objects import HubObject, ObjectKey

_NEVER_PLACED_GROUPS = frozenset(
    {
        "cluster.kubernetes-fleet.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "metrics.k8s.io",
        "placement.kubernetes-fleet.io",
    }
)
_NEVER_PLACED_KINDS = frozenset(
    {
        ("", "Event"),
        ("", "Node"),
        ("", "Pod"),
        ("networking.fleet.azure.com", "ServiceImport"),
        ("networking.fleet.azure.com", "TrafficManagerBackend"),
        ("networking.fleet.azure.com", "TrafficManagerProfile"),
    }
)
_MADE_EVERYWHERE = frozenset({("", "ConfigMap", "kube-root-ca.crt"), ("", "ServiceAccount", "default")})
_OWNED = frozenset({("apps", "ReplicaSet"), ("apps", "ControllerRevision")})
_TOKEN = "kubernetes.io/service-account-token"  # noqa: S105 -- a type of secrets, not one of them
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"


def is_ever_placed(group: str, kind: str) -> bool:
    """Tell whether objects of a kind can go to clusters at all (lifecycle B.2.1)."""
    return group not in _NEVER_PLACED_GROUPS and (group, kind) not in _NEVER_PLACED_KINDS


def why_left_out(each: HubObject, on_the_hub: Container[ObjectKey]) -> str | None:
    """Say why an object of a placeable kind stays on the hub all the same (end of lifecycle B.2.2)."""
    sort = (each.group, each.kind)
    if each.metadata.get("deletionTimestamp"):
        return "it is being deleted"
    if (*sort, each.name) in _MADE_EVERYWHERE:
        return "every cluster makes its own"
    if sort in _OWNED and each.metadata.get("ownerReferences"):
        return "its owner makes it"
    if sort == ("", "Secret") and each.content.get("type") == _TOKEN:
        return "it is the token of a service account of the hub"
    if sort == ("", "Endpoints") and ("", "Service", each.namespace, each.name) in on_the_hub:
        return "its service makes it"
    if sort == ("discovery.k8s.io", "EndpointSlice") and _MANAGED_BY in each.labels:
        return "its manager makes it"
    return None
