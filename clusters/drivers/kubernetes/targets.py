"""The manifests of a version as they are sent: checks, apply waves, ownership metadata.

See `rules/kubernetes-driver.md#ownership-and-inventory`.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

from clusters.drivers.base import ObjectRef, Refusal, Version
from clusters.drivers.kubernetes.access import FIELD_MANAGER, MemberAccess
from clusters.drivers.kubernetes.autoscaling import scaled_object, sent_over
from clusters.drivers.kubernetes.discovery import RefusedError
from clusters.drivers.kubernetes.parallel import run_each

INVENTORY_NAMESPACE = "fleetui-system"
PART_OF = "applyset.kubernetes.io/part-of"
OWNER = "fleetui.io/owner"
MEMBER = "fleetui.io/member"
TAKEN_OVER = "fleetui.io/taken-over"
MANIFEST_HASH = "fleetui.io/manifest-hash"
RECREATE = "fleetui.io/recreate"
LAST_WAVE = 6
CUSTOM_RESOURCE_DEFINITION = ("apiextensions.k8s.io", "CustomResourceDefinition")

RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_WAVES: tuple[Mapping[str, str], ...] = (
    {"": "Namespace", "scheduling.k8s.io": "PriorityClass"},
    {
        "": "ResourceQuota LimitRange ServiceAccount Secret ConfigMap PersistentVolume PersistentVolumeClaim",
        "networking.k8s.io": "NetworkPolicy IngressClass",
        "policy": "PodDisruptionBudget",
        "storage.k8s.io": "StorageClass",
        "apiextensions.k8s.io": "CustomResourceDefinition",
    },
    {RBAC: "ClusterRole Role"},
    {RBAC: "ClusterRoleBinding RoleBinding"},
    {
        "": "Service Pod ReplicationController",
        "apps": "DaemonSet ReplicaSet Deployment StatefulSet",
        "autoscaling": "HorizontalPodAutoscaler",
        "batch": "Job CronJob",
        "networking.k8s.io": "Ingress",
    },
    {
        "apiregistration.k8s.io": "APIService",
        _ADMISSION: "ValidatingWebhookConfiguration MutatingWebhookConfiguration",
    },
)
_WAVE_OF = {
    (group, kind): place
    for place, groups in enumerate(_WAVES)
    for group, kinds in groups.items()
    for kind in kinds.split()
}
_NOT_SENT = frozenset(
    (
        "managedFields",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "ownerReferences",
        "selfLink",
    )
)


def wave_of(group: str, kind: str) -> int:
    """Return the apply wave of a kind; custom resources and unknown kinds come last."""
    return _WAVE_OF.get((group, kind), LAST_WAVE)


@dataclass(frozen=True)
class Target:
    """One object of a version: `manifest` is sent, with ownership metadata added.

    The namespace of `ref` is resolved. `is_custom`: a CustomResourceDefinition of the same version serves it.
    `is_autoscaled`: an autoscaler of the same version sets its replicas.
    """

    ref: ObjectRef
    api_version: str
    manifest: Mapping[str, Any]
    is_custom: bool = False
    is_autoscaled: bool = False

    @cached_property
    def hash(self) -> str:
        return manifest_hash(self.manifest)

    @property
    def wave(self) -> int:
        return wave_of(self.ref.group, self.ref.kind)


def defined_group(definition: Target) -> str:
    return str((definition.manifest.get("spec") or {}).get("group"))


def manifest_hash(manifest: Mapping[str, Any]) -> str:
    text = json.dumps(
        manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return sha256(text.encode()).hexdigest()[:32]


def sent_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    sent = {
        key: value
        for key, value in manifest.items()
        if key not in ("status", "metadata")
    }
    metadata = {
        key: value
        for key, value in manifest["metadata"].items()
        if key not in _NOT_SENT
    }
    return {**sent, "metadata": metadata}


def owner_value(hub_id: str, placement: str) -> str:
    return f"{hub_id}/{placement}"


def inventory_name(hub_id: str, placement: str) -> str:
    """Return the name of the ConfigMap for a placement, which is named with its namespace if it has one.

    What distinguishes two placements of one name follows a `~`, which no name of Kubernetes has.
    """
    named, _, mark = placement.partition("~")
    namespace, _, name = named.rpartition("/")
    own = (
        f".{namespace}.{name}" if namespace else f"-{name}"
    )  # no name starts with a dot or a dash
    prefix = f"fleetui-{hub_id[:8]}--{mark}" if mark else f"fleetui-{hub_id[:8]}"
    return f"{prefix}{own}"


def applyset_id(name: str) -> str:
    digest = sha256(f"{name}.{INVENTORY_NAMESPACE}.ConfigMap.".encode()).digest()
    return f"applyset-{base64.urlsafe_b64encode(digest).decode().rstrip('=')}-v1"


def with_ownership(
    target: Target,
    live: Mapping[str, Any] | None,
    *,
    part_of: str,
    owner: str,
    member: str,
    is_taken_over: bool,
    resource_version: str = "",
) -> dict[str, Any]:
    """Return the manifest as it is applied; `resource_version` makes the server refuse a changed object."""
    metadata = target.manifest["metadata"]
    ours = {OWNER: owner, MEMBER: member, MANIFEST_HASH: target.hash}
    if is_taken_over:
        ours[TAKEN_OVER] = "true"
    changed: dict[str, Any] = {
        "labels": {**(metadata.get("labels") or {}), PART_OF: part_of},
        "annotations": {**(metadata.get("annotations") or {}), **ours},
    }
    if resource_version:
        changed["resourceVersion"] = resource_version
    manifest = target.manifest
    if live is not None:
        manifest = sent_over(
            manifest,
            live,
            is_autoscaled=target.is_autoscaled,
            field_manager=FIELD_MANAGER,
        )
    return {**manifest, "metadata": {**metadata, **changed}}


def prepare_targets(
    access: MemberAccess, version: Version, *, deadline: float
) -> tuple[list[Target], list[Refusal]]:
    """Return the objects of a version in the order of apply waves, and those that no request is made for.

    Raise DriverUnavailable.
    """
    custom = scopes_of_definitions(version)
    kinds = {
        (str(one.get("apiVersion")), str(one.get("kind"))) for one in version.manifests
    }
    # Group versions that the version itself defines are not served before its definitions are applied.
    foreign = sorted(
        {
            api_version
            for api_version, kind in kinds
            if (api_version, kind) not in custom
        }
    )
    left = access.until(deadline)
    run_each(
        lambda each: access.discovery.load(each, deadline=deadline),
        foreign,
        time_left=left,
    )

    targets: dict[ObjectRef, Target] = {}
    refusals = []
    for manifest in version.manifests:
        try:
            target = parse_target(access, manifest, custom, deadline=deadline)
            if target.ref in targets:
                raise RefusedError(
                    "Duplicated", f"{target.ref} is in the version more than once"
                )
            targets[target.ref] = target
        except RefusedError as error:
            refusals.append(Refusal(_written_ref(manifest), error.code, error.message))
    refusals.sort(key=lambda one: wave_of(one.object.group, one.object.kind))
    for scaled in {scaled_object(manifest) for manifest in version.manifests}:
        if scaled in targets:
            targets[scaled] = replace(targets[scaled], is_autoscaled=True)
    return sorted(targets.values(), key=lambda one: one.wave), refusals


def _written_ref(manifest: Mapping[str, Any]) -> ObjectRef:
    metadata = manifest.get("metadata") or {}
    group = str(manifest.get("apiVersion") or "").rpartition("/")[0]
    name = metadata.get("name") or metadata.get("generateName") or ""
    return ObjectRef(
        group, str(manifest.get("kind") or ""), metadata.get("namespace") or "", name
    )


def scopes_of_definitions(version: Version) -> dict[tuple[str, str], bool]:
    """Return by (apiVersion, kind) whether what the definitions of a version will serve is namespaced."""
    scopes = {}
    for manifest in version.manifests:
        ref = _written_ref(manifest)
        spec = manifest.get("spec") or {}
        if (ref.group, ref.kind) == CUSTOM_RESOURCE_DEFINITION:
            kind = (spec.get("names") or {}).get("kind")
            for version_spec in spec.get("versions") or (
                {"name": spec.get("version")},
            ):
                if version_spec.get("served", True):
                    api_version = f"{spec.get('group')}/{version_spec.get('name')}"
                    scopes[api_version, str(kind)] = spec.get("scope") != "Cluster"
    return scopes


def parse_target(
    access: MemberAccess,
    manifest: Mapping[str, Any],
    custom: Mapping[tuple[str, str], bool],
    *,
    deadline: float,
) -> Target:
    written = _written_ref(manifest)
    metadata = manifest.get("metadata") or {}
    if written.kind.endswith("List") and "items" in manifest:
        raise RefusedError(
            "DecodingErred",
            "a list is not one object: write each object as its own manifest",
        )
    if not metadata.get("name"):
        if metadata.get("generateName"):
            raise RefusedError(
                "FoundGenerateName",
                "metadata.generateName is not supported: set metadata.name",
            )
        raise RefusedError("DecodingErred", "metadata.name is missing")
    if not manifest.get("apiVersion") or not written.kind:
        raise RefusedError("DecodingErred", "apiVersion or kind is missing")
    api_version = str(manifest["apiVersion"])
    is_custom = (api_version, written.kind) in custom
    if is_custom:
        is_namespaced = custom[api_version, written.kind]
    else:
        resource = access.discovery.resource(
            api_version, written.kind, deadline=deadline
        )
        is_namespaced = resource.is_namespaced
    if written.namespace and not is_namespaced:
        message = f"metadata.namespace must be absent: {written.kind} is cluster-scoped"
        raise RefusedError("DecodingErred", message)
    namespace = (written.namespace or "default") if is_namespaced else ""
    ref = ObjectRef(written.group, written.kind, namespace, written.name)
    return Target(ref, api_version, sent_manifest(manifest), is_custom)
