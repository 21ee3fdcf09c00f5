"""Replicas that an autoscaler sets: they are applied once and then left to it.

The source is the documentation of server-side apply, "Transferring ownership": the configuration names the
replicas until the autoscaler owns the field, and leaves them out from then on.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from clusters.drivers.base import ObjectRef

Manifest: TypeAlias = Mapping[str, Any]

CONTROLLER_OF_AUTOSCALERS = "kube-controller-manager"
"""The field manager of the autoscaling controller, which also acts for the ScaledObjects of KEDA."""


def scaled_object(manifest: Manifest) -> ObjectRef | None:
    """Return what a HorizontalPodAutoscaler or a ScaledObject of KEDA scales; None for other kinds."""
    group = str(manifest.get("apiVersion") or "").rpartition("/")[0]
    if (group, manifest.get("kind")) not in (
        ("autoscaling", "HorizontalPodAutoscaler"),
        ("keda.sh", "ScaledObject"),
    ):
        return None
    scaled = (manifest.get("spec") or {}).get("scaleTargetRef") or {}
    version = str(scaled.get("apiVersion") or "apps/v1")
    namespace = str((manifest.get("metadata") or {}).get("namespace") or "default")
    kind = str(scaled.get("kind") or "Deployment")
    return ObjectRef(
        version.rpartition("/")[0], kind, namespace, str(scaled.get("name"))
    )


def replicas_managers(live: Manifest) -> set[str]:
    """Return the field managers that own `spec.replicas` of a live object."""
    entries = (live.get("metadata") or {}).get("managedFields") or ()
    return {
        str(entry.get("manager"))
        for entry in entries
        if "f:replicas" in ((entry.get("fieldsV1") or {}).get("f:spec") or {})
    }


def manifest_over(
    manifest: Manifest, live: Manifest, *, is_autoscaled: bool
) -> Manifest:
    """Return the manifest as it is compared with a live object, with the replicas of the autoscaler."""
    spec = manifest.get("spec")
    is_found = is_autoscaled or CONTROLLER_OF_AUTOSCALERS in replicas_managers(live)
    if not is_found or not isinstance(spec, Mapping) or "replicas" not in spec:
        return manifest
    replicas = (live.get("spec") or {}).get("replicas")
    if replicas is None:
        return manifest
    return {**manifest, "spec": {**spec, "replicas": replicas}}


def sent_over(
    manifest: Manifest, live: Manifest, *, is_autoscaled: bool, field_manager: str
) -> Manifest:
    """Return the manifest as it is applied over a live object.

    The replicas are left out once another manager owns them: until then, leaving them out would remove them.
    """
    compared = manifest_over(manifest, live, is_autoscaled=is_autoscaled)
    if compared is manifest or replicas_managers(live) <= {field_manager}:
        return compared
    spec = {key: value for key, value in compared["spec"].items() if key != "replicas"}
    return {**compared, "spec": spec}
