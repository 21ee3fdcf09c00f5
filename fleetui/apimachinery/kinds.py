"""The kinds of Fleet manifests and of Kubernetes: which are supported, and which are namespaced."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from fleetui.apimachinery.errors import InvalidManifest

PLACEMENT_KIND = "ClusterResourcePlacement"
MEMBER_KIND = "MemberCluster"
PLACEMENT_VERSIONS = (
    "placement.kubernetes-fleet.io/v1",
    "placement.kubernetes-fleet.io/v1beta1",
)
MEMBER_VERSIONS = (
    "cluster.kubernetes-fleet.io/v1",
    "cluster.kubernetes-fleet.io/v1beta1",
)
ALPHA_VERSION = "placement.kubernetes-fleet.io/v1alpha1"
"""The first version of overrides, evictions and budgets; the fields are the same."""
CLUSTER_OVERRIDE_KIND = "ClusterResourceOverride"
OVERRIDE_KIND = "ResourceOverride"
EVICTION_KIND = "ClusterResourcePlacementEviction"
BUDGET_KIND = "ClusterResourcePlacementDisruptionBudget"
STAGED_STRATEGY_KIND = "ClusterStagedUpdateStrategy"
STAGED_RUN_KIND = "ClusterStagedUpdateRun"
APPROVAL_KIND = "ClusterApprovalRequest"
NAMESPACED_PLACEMENT_KIND = "ResourcePlacement"
NAMESPACED_STRATEGY_KIND = "StagedUpdateStrategy"
NAMESPACED_RUN_KIND = "StagedUpdateRun"
NAMESPACED_APPROVAL_KIND = "ApprovalRequest"
CLUSTER_ENVELOPE_KIND = "ClusterResourceEnvelope"
ENVELOPE_KIND = "ResourceEnvelope"
ENVELOPE_KINDS = (CLUSTER_ENVELOPE_KIND, ENVELOPE_KIND)
"""Resources on the hub whose content is placed instead of them."""
ENVELOPE_VERSION = PLACEMENT_VERSIONS[1]
ENVELOPES = frozenset(
    (ENVELOPE_VERSION.partition("/")[0], kind) for kind in ENVELOPE_KINDS
)

_FLEET_GROUPS = frozenset(
    version.partition("/")[0] for version in (*PLACEMENT_VERSIONS, *MEMBER_VERSIONS)
)

CLUSTER_SCOPED = "Forbidden: not allowed on this kind, which is cluster-scoped"
OCM_GROUP = "cluster.open-cluster-management.io"
_NOT_SUPPORTED = "objects of this kind are not supported"
_NOUNS = {
    PLACEMENT_KIND: "a placement",
    MEMBER_KIND: "a member cluster",
    CLUSTER_OVERRIDE_KIND: "an override",
    OVERRIDE_KIND: "an override",
    EVICTION_KIND: "an eviction",
    BUDGET_KIND: "a disruption budget",
    STAGED_STRATEGY_KIND: "a staged update strategy",
    STAGED_RUN_KIND: "a staged update run",
    APPROVAL_KIND: "an approval request",
    NAMESPACED_PLACEMENT_KIND: "a placement",
    NAMESPACED_STRATEGY_KIND: "a staged update strategy",
    NAMESPACED_RUN_KIND: "a staged update run",
    NAMESPACED_APPROVAL_KIND: "an approval request",
}
"""The supported kinds, in words."""
_REASONS = {
    "InternalMemberCluster": _NOT_SUPPORTED,
    "Work": _NOT_SUPPORTED,
    "Placement": f"must have an apiVersion of {OCM_GROUP}",
}
_NO_RESOURCES = _REASONS | {
    kind: f"{noun} is not a resource that can be placed"
    for kind, noun in _NOUNS.items()
}


def kind_in(namespace: str, kind: str) -> str:
    """Return the kind of an object in a namespace, by the kind that it has without one."""
    if namespace:
        return kind.removeprefix("Cluster")
    return kind


def is_envelope(version: object, kind: object) -> bool:
    return (
        isinstance(version, str)
        and isinstance(kind, str)
        and (version.rpartition("/")[0], kind) in ENVELOPES
    )


def api_version_of(group: str, version: str) -> str:
    """Return the `apiVersion` of objects: that of the core group has the version alone."""
    return f"{group}/{version}" if group else version


def api_path(api_version: str) -> str:
    """Return the path of an API server below which the resources of a version are."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def is_fleet_group(version: object) -> bool:
    return isinstance(version, str) and version.rpartition("/")[0] in _FLEET_GROUPS


def refuse_other_kinds(document: object, expected: str, *others: str) -> None:
    """Raise InvalidManifest for a manifest of another kind: its other errors would only confuse."""
    if not isinstance(document, dict):
        return
    kind = document.get("kind")
    if kind in (expected, *others):
        return
    allowed = " or ".join((expected, *others))
    if kind is None:
        raise InvalidManifest.of("kind", "required", "Required value", allowed)
    if not isinstance(kind, str):
        raise InvalidManifest.of(
            "kind", "wrong-type", "Invalid value: must be a string", allowed
        )
    message = f"Unsupported kind {_readable(kind)}"
    if kind in _NOUNS and expected in _NOUNS:
        message += f": must be {_NOUNS[expected]}, not {_NOUNS[kind]}"
    elif kind in _REASONS:
        message += f": {_REASONS[kind]}"
    raise InvalidManifest.of("kind", "kind-not-supported", message, allowed)


def _readable(kind: str) -> str:
    return kind[:60].encode(errors="replace").decode()


def refuse_fleet_kinds(document: object) -> None:
    """Raise InvalidManifest if the document is a placement, or of a kind of Fleet: no resource on the hub."""
    raw = document if isinstance(document, dict) else {}
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if (
        not isinstance(version, str)
        or not isinstance(kind, str)
        or is_envelope(version, kind)
    ):
        return
    if version.rpartition("/")[0] == OCM_GROUP and kind == "Placement":
        message = (
            f"Unsupported kind {kind}: a placement is not a resource that can be placed"
        )
        raise InvalidManifest.of("kind", "kind-not-supported", message, "resources")
    if is_fleet_group(version):
        reason = _NO_RESOURCES.get(kind, "it belongs to Fleet itself")
        message = f"Unsupported kind {_readable(kind)}: {reason}"
        raise InvalidManifest.of("kind", "kind-not-supported", message, "resources")


_OTHER_SYSTEMS = {
    "karmada.io": "Karmada",
    "open-cluster-management.io": "Open Cluster Management",
    "kubefleet.dev": "another API group of KubeFleet",
    "fleet.azure.com": "a former API group of KubeFleet",
    "kubefed.io": "KubeFed",
    "fleet.cattle.io": "Rancher Fleet",
    "clusternet.io": "Clusternet",
    "kubeadmiral.io": "KubeAdmiral",
    "kubestellar.io": "KubeStellar",
    "scheduling.kcp.io": "kcp",
}
"""API groups, with their subgroups, of systems that also choose clusters."""
_SIG_MULTICLUSTER = ("multicluster.x-k8s.io", "SIG Multicluster")
"""Only its clusters and decisions: a ServiceExport is a resource for member clusters."""
_SIG_MULTICLUSTER_KINDS = (
    "ClusterInventory",
    "ClusterProfile",
    "ClusterSet",
    "PlacementDecision",
)
_OTHER_CLUSTERS = (
    "Cluster",
    "ManagedCluster",
    "ClusterProfile",
    "KubeFedCluster",
    MEMBER_KIND,
)


def no_effect_reason(document: Mapping[str, Any]) -> str:
    """Return why a resource has no effect although its author may expect one; empty for any other.

    That is a policy or cluster of another multi-cluster system, such as Karmada.
    """
    group, kind = (
        str(document.get("apiVersion")).rpartition("/")[0],
        str(document.get("kind")),
    )
    system = next(
        (
            name
            for end, name in _OTHER_SYSTEMS.items()
            if f".{group}".endswith(f".{end}")
        ),
        "",
    )
    if group == _SIG_MULTICLUSTER[0] and kind in _SIG_MULTICLUSTER_KINDS:
        system = _SIG_MULTICLUSTER[1]
    if not system or (group == OCM_GROUP and kind == "Placement"):
        return ""
    is_placement = kind.endswith(
        ("Policy", "PlacementRule", "Placement", "Subscription")
    )
    hint = ""
    if kind in _OTHER_CLUSTERS:
        hint = f"; a cluster of this fleet is a {MEMBER_KIND} ({MEMBER_VERSIONS[0]})"
    elif is_placement:
        hint = f"; a placement of this fleet is a {PLACEMENT_KIND} ({PLACEMENT_VERSIONS[0]})"
    return f"{_readable(kind)} of {system} has no effect here: it is only stored as a resource{hint}"


class KindScope(StrEnum):
    NAMESPACED = "Namespaced"
    CLUSTER = "Cluster"


_NAMESPACED = {
    "": (
        "Binding ConfigMap Endpoints Event LimitRange PersistentVolumeClaim Pod PodTemplate "
        "ReplicationController ResourceQuota Secret Service ServiceAccount"
    ),
    "apps": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "autoscaling": "HorizontalPodAutoscaler",
    "batch": "CronJob Job",
    "coordination.k8s.io": "Lease LeaseCandidate",
    "discovery.k8s.io": "EndpointSlice",
    "events.k8s.io": "Event",
    "metrics.k8s.io": "PodMetrics",
    "networking.k8s.io": "Ingress NetworkPolicy",
    "placement.kubernetes-fleet.io": ENVELOPE_KIND,
    "policy": "PodDisruptionBudget",
    "rbac.authorization.k8s.io": "Role RoleBinding",
    "resource.k8s.io": "ResourceClaim ResourceClaimTemplate",
    "storage.k8s.io": "CSIStorageCapacity",
}
_CLUSTER_SCOPED = {
    "": "ComponentStatus Namespace Node PersistentVolume",
    "admissionregistration.k8s.io": (
        "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration "
        "ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration"
    ),
    "apiextensions.k8s.io": "CustomResourceDefinition",
    "apiregistration.k8s.io": "APIService",
    "certificates.k8s.io": "CertificateSigningRequest ClusterTrustBundle",
    "flowcontrol.apiserver.k8s.io": "FlowSchema PriorityLevelConfiguration",
    "internal.apiserver.k8s.io": "StorageVersion",
    "metrics.k8s.io": "NodeMetrics",
    "networking.k8s.io": "IngressClass IPAddress ServiceCIDR",
    "node.k8s.io": "RuntimeClass",
    "placement.kubernetes-fleet.io": CLUSTER_ENVELOPE_KIND,
    "rbac.authorization.k8s.io": "ClusterRole ClusterRoleBinding",
    "resource.k8s.io": "DeviceClass ResourceSlice",
    "scheduling.k8s.io": "PriorityClass",
    "storage.k8s.io": "CSIDriver CSINode StorageClass VolumeAttachment VolumeAttributesClass",
    "storagemigration.k8s.io": "StorageVersionMigration",
}
_SCOPES = {
    (group, kind): scope
    for scope, table in (
        (KindScope.NAMESPACED, _NAMESPACED),
        (KindScope.CLUSTER, _CLUSTER_SCOPED),
    )
    for group, kinds in table.items()
    for kind in kinds.split()
}


def scope_of(group: str, kind: str) -> KindScope | None:
    """Return the scope of a kind, or None if Kubernetes itself does not have the kind."""
    return _SCOPES.get((group, kind))


_CURRENT_VERSIONS = {
    "admissionregistration.k8s.io/v1": (
        "admissionregistration.k8s.io/v1beta1",
        "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
    ),
    "apiextensions.k8s.io/v1": (
        "apiextensions.k8s.io/v1beta1",
        "CustomResourceDefinition",
    ),
    "apiregistration.k8s.io/v1": ("apiregistration.k8s.io/v1beta1", "APIService"),
    "apps/v1": (
        "apps/v1beta1 apps/v1beta2 extensions/v1beta1",
        "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    ),
    "autoscaling/v2": (
        "autoscaling/v2beta1 autoscaling/v2beta2",
        "HorizontalPodAutoscaler",
    ),
    "batch/v1": ("batch/v1beta1 batch/v2alpha1", "CronJob"),
    "coordination.k8s.io/v1": ("coordination.k8s.io/v1beta1", "Lease"),
    "discovery.k8s.io/v1": ("discovery.k8s.io/v1beta1", "EndpointSlice"),
    "events.k8s.io/v1": ("events.k8s.io/v1beta1", "Event"),
    "networking.k8s.io/v1": (
        "extensions/v1beta1 networking.k8s.io/v1beta1",
        "Ingress IngressClass NetworkPolicy",
    ),
    "policy/v1": ("policy/v1beta1", "PodDisruptionBudget"),
    "rbac.authorization.k8s.io/v1": (
        "rbac.authorization.k8s.io/v1alpha1 rbac.authorization.k8s.io/v1beta1",
        "ClusterRole ClusterRoleBinding Role RoleBinding",
    ),
    "scheduling.k8s.io/v1": (
        "scheduling.k8s.io/v1alpha1 scheduling.k8s.io/v1beta1",
        "PriorityClass",
    ),
    "storage.k8s.io/v1": (
        "storage.k8s.io/v1beta1",
        "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment",
    ),
}
"""The versions that replaced others, those others, and the kinds in them (Kubernetes 1.16 to 1.27)."""
_REPLACED = {
    (old, kind): current
    for current, (versions, kinds) in _CURRENT_VERSIONS.items()
    for old in versions.split()
    for kind in kinds.split()
}


def current_version(api_version: str, kind: str) -> str:
    """Return the version that replaced one which Kubernetes removed; empty for any other."""
    return _REPLACED.get((api_version, kind), "")
