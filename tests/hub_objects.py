"""Objects on the hub for tests, written with no more than matters."""

from typing import Any

from fleetui.apimachinery.secrets import HubObject
from placements.engine.resource_manifest import parse_hub_object

__all__ = ["HubObject", "hub_object", "manifest"]

Document = dict[str, Any]


def manifest(
    kind: str, name: str, namespace: str = "", *, version: str = "", **fields: Any
) -> Document:
    """Write a document; labels, annotations and other metadata go to where they belong.

    The API version is the usual one of the kind unless it is given.
    """
    metadata: Document = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
    }
    for key in ("labels", "annotations", "ownerReferences", "deletionTimestamp"):
        if key in fields:
            metadata[key] = fields.pop(key)
    found = version or USUAL_VERSIONS.get(kind, "v1")
    return {"apiVersion": found, "kind": kind, "metadata": metadata, **fields}


def hub_object(
    kind: str, name: str, namespace: str = "", *, version: str = "", **fields: Any
) -> HubObject:
    """Return an object on the hub, through its parser."""
    return parse_hub_object(manifest(kind, name, namespace, version=version, **fields))


USUAL_VERSIONS = {
    "ClusterRole": "rbac.authorization.k8s.io/v1",
    "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
    "ControllerRevision": "apps/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "Deployment": "apps/v1",
    "EndpointSlice": "discovery.k8s.io/v1",
    "Ingress": "networking.k8s.io/v1",
    "Job": "batch/v1",
    "Lease": "coordination.k8s.io/v1",
    "Role": "rbac.authorization.k8s.io/v1",
    "ReplicaSet": "apps/v1",
    "StorageClass": "storage.k8s.io/v1",
    "Widget": "example.com/v1",
}
