"""The order in which selected objects stand in a snapshot: what others need comes first (lifecycle B.2.3)."""

from collections.abc import Iterable

from placements.scheduling.hub.objects import HubObject

_FIRST_TO_LAST = """\
PriorityClass Namespace NetworkPolicy ResourceQuota LimitRange PodDisruptionBudget ServiceAccount Secret
ConfigMap StorageClass PersistentVolume PersistentVolumeClaim CustomResourceDefinition ClusterRole
ClusterRoleBinding Role RoleBinding Service DaemonSet Pod ReplicationController ReplicaSet Deployment
HorizontalPodAutoscaler StatefulSet Job CronJob IngressClass Ingress APIService
MutatingWebhookConfiguration ValidatingWebhookConfiguration
"""
_RANKS = {kind: rank for rank, kind in enumerate(_FIRST_TO_LAST.split())}


def ordered(objects: Iterable[HubObject]) -> tuple[HubObject, ...]:
    """Sort objects by the ranking of their kind, unknown kinds last, then by version and name."""
    return tuple(sorted(objects, key=_place))


def _place(each: HubObject) -> tuple[int, str, str]:
    """Give the sort key; group and version, and namespace and name, are compared as one text each."""
    rank = _RANKS.get(each.kind)
    name = f"{each.namespace}/{each.name}"
    if rank is None:
        return len(_RANKS), f"{each.group}/{each.version}, Kind={each.kind}", name
    return rank, each.api_version, name
