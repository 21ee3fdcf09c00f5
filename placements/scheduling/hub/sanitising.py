"""What of an object belongs to the hub alone and goes before it is stored (`spec/lifecycle.md` B.2.3)."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

from placements.scheduling.hub.objects import Content, HubObject

_SERVER_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
_SERVER_ANNOTATIONS = (
    "deployment.kubernetes.io/revision",
    "kubectl.kubernetes.io/last-applied-configuration",
)
_CONTROLLER_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")
_HEADLESS = "None"


def sanitised(each: HubObject) -> HubObject:
    """Give the object as it is stored in a snapshot and sent to clusters."""
    return replace(each, content=sanitise(each.content))


def sanitise(content: Content) -> dict[str, Any]:
    """Give a copy of a document without what its hub manages; labels and finalizers stay."""
    found = dict(deepcopy(content))
    found.pop("status", None)
    metadata = _object_at(found, "metadata")
    _drop(metadata, *_SERVER_METADATA)
    _drop(_object_at(metadata, "annotations"), *_SERVER_ANNOTATIONS)
    if not metadata.get("annotations"):
        metadata.pop("annotations", None)
    match found.get("apiVersion"), found.get("kind"):
        case "v1", "Service":
            _sanitise_service(_object_at(found, "spec"))
        case "batch/v1", "Job":
            _sanitise_job(_object_at(found, "spec"))
    return found


def _sanitise_service(spec: dict[str, Any]) -> None:
    """Take away the addresses and ports that this hub has given out."""
    if _HEADLESS not in (spec.get("clusterIP"), *_items_at(spec, "clusterIPs")):
        _drop(spec, "clusterIP", "clusterIPs")
    _drop(spec, "healthCheckNodePort")
    for port in _items_at(spec, "ports"):
        if isinstance(port, dict):
            _drop(port, "nodePort")


def _sanitise_job(spec: dict[str, Any]) -> None:
    """Take away what ties a job to its pods on this hub, unless the author has chosen that himself."""
    if spec.get("manualSelector") is True:
        return
    _drop(_object_at(spec, "selector", "matchLabels"), *_CONTROLLER_LABELS)
    _drop(_object_at(spec, "template", "metadata"), "creationTimestamp")
    _drop(_object_at(spec, "template", "metadata", "labels"), *_CONTROLLER_LABELS)


def _drop(fields: dict[str, Any], *names: str) -> None:
    for name in names:
        fields.pop(name, None)


def _object_at(raw: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Give the object at these keys to be changed, or an empty one that belongs to nothing."""
    found: Any = raw
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _items_at(raw: dict[str, Any], key: str) -> list[Any]:
    found = raw.get(key)
    return found if isinstance(found, list) else []
