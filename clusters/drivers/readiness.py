"""Whether a live object is available, by kind (`spec/lifecycle.md` B.6.6)."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

Live: TypeAlias = Mapping[str, Any]


class Readiness(StrEnum):
    """How far an applied object is; what cannot be tracked counts as available, after a pause."""

    AVAILABLE = "available"
    NOT_YET = "notYet"
    NOT_TRACKABLE = "notTrackable"


@dataclass(frozen=True, slots=True)
class ReadinessResult:
    """A verdict, and the facts it rests on where the object is not simply available."""

    readiness: Readiness
    reason: str = ""


AVAILABLE = ReadinessResult(Readiness.AVAILABLE)


def readiness_of(live: Live) -> ReadinessResult:
    """Judge an object as the cluster gives it, with its status. The API version's group counts."""
    group = str(live.get("apiVersion") or "").rpartition("/")[0]
    sort = (group, str(live.get("kind") or ""))
    if sort in _AT_ONCE:
        return AVAILABLE
    judge = _JUDGES.get(sort)
    return judge(live) if judge else _not_trackable(f"nothing tells when a {sort[1]} is available")


def overall_readiness(several: Iterable[Readiness]) -> Readiness:
    found = set(several)
    ranked = (Readiness.NOT_YET, Readiness.NOT_TRACKABLE)
    return next((one for one in ranked if one in found), Readiness.AVAILABLE)


def _deployment(live: Live) -> ReadinessResult:
    status, wanted = _of(live, "status"), _replicas(live)
    available, updated = _number(status, "availableReplicas"), _number(status, "updatedReplicas")
    unavailable = _number(status, "unavailableReplicas")
    if _is_unseen(live):
        return _UNSEEN
    if available == updated == wanted and not unavailable:
        return AVAILABLE
    return _not_yet(
        f"{available} of {wanted} replicas available, {updated} updated, {unavailable} unavailable"
    )


def _stateful_set(live: Live) -> ReadinessResult:
    status, wanted = _of(live, "status"), _replicas(live)
    available = _number(status, "availableReplicas")
    current, updated = _number(status, "currentReplicas"), _number(status, "updatedReplicas")
    is_settled = status.get("currentRevision") == status.get("updateRevision")
    if _is_unseen(live):
        return _UNSEEN
    if available == wanted and current == updated and is_settled:
        return AVAILABLE
    return _not_yet(f"{available} of {wanted} replicas available, {updated} updated, {current} current")


def _daemon_set(live: Live) -> ReadinessResult:
    status = _of(live, "status")
    available, wanted = _number(status, "numberAvailable"), _number(status, "desiredNumberScheduled")
    current, updated = _number(status, "currentNumberScheduled"), _number(status, "updatedNumberScheduled")
    if _is_unseen(live):
        return _UNSEEN
    if available == wanted and current == updated:
        return AVAILABLE
    return _not_yet(f"{available} of {wanted} pods available, {updated} of {current} updated")


def _service(live: Live) -> ReadinessResult:
    spec = _of(live, "spec")
    kind = spec.get("type") or "ClusterIP"
    if kind in ("ClusterIP", "NodePort"):
        addresses = spec.get("clusterIPs") or [""]
        return AVAILABLE if addresses[0] else _not_yet("no cluster address yet")
    if kind == "LoadBalancer":
        ingress = (_of(live, "status", "loadBalancer").get("ingress") or [{}])[0]
        is_there = ingress.get("ip") or ingress.get("hostname")
        return AVAILABLE if is_there else _not_yet("no address of the load balancer yet")
    return _not_trackable(f"nothing tells when a Service of type {kind} is available")


def custom_resource_definition(live: Live) -> ReadinessResult:
    missing = [name for name in ("Established", "NamesAccepted") if _condition(live, name) != "True"]
    return _not_yet(f"not {' and not '.join(missing)}") if missing else AVAILABLE


def _disruption_budget(live: Live) -> ReadinessResult:
    allowed = _number(_of(live, "status"), "disruptionsAllowed")
    if _is_unseen(live):
        return _UNSEEN
    if _condition(live, "DisruptionAllowed") == ("True" if allowed > 0 else "False"):
        return AVAILABLE
    return _not_yet("its conditions are not up to date")


def _not_yet(reason: str) -> ReadinessResult:
    return ReadinessResult(Readiness.NOT_YET, reason)


def _not_trackable(reason: str) -> ReadinessResult:
    return ReadinessResult(Readiness.NOT_TRACKABLE, reason)


_UNSEEN = _not_yet("its controller has not seen the newest generation")


def _is_unseen(live: Live) -> bool:
    return _number(_of(live, "metadata"), "generation") != _number(_of(live, "status"), "observedGeneration")


def _of(live: Live, *keys: str) -> Live:
    for key in keys:
        live = live.get(key) or {}
    return live


def _number(facts: Live, key: str) -> int:
    return int(facts.get(key) or 0)


def _replicas(live: Live) -> int:
    wanted = _of(live, "spec").get("replicas")
    return 1 if wanted is None else int(wanted)


def _condition(live: Live, name: str) -> str:
    conditions = _of(live, "status").get("conditions") or ()
    return next((str(one.get("status")) for one in conditions if one.get("type") == name), "")


_AT_ONCE = {
    ("", "Namespace"),
    ("", "Secret"),
    ("", "ConfigMap"),
    ("", "ServiceAccount"),
    ("", "LimitRange"),
    ("", "ResourceQuota"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("networking.k8s.io", "IngressClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "CSIStorageCapacity"),
    ("apps", "ControllerRevision"),
    ("scheduling.k8s.io", "PriorityClass"),
}
_JUDGES: Mapping[tuple[str, str], Callable[[Live], ReadinessResult]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("", "Service"): _service,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): custom_resource_definition,
    ("policy", "PodDisruptionBudget"): _disruption_budget,
}
