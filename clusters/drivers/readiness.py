"""Whether a live object is available, by group, version and kind (`rules/kubernetes-driver.md#readiness`).

Jobs, pods and the conditions that say of any kind that it failed are judged here too: the rules that users
read are in `docs/reference/availability.md`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from fleetui.apimachinery.model import items_at, mapping_at

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
    """Judge a live object with its status; only the version of a kind that the table names is trackable.

    Of other kinds it is only known that they failed, by the conditions that say so.
    """
    api_version, kind = str(live.get("apiVersion") or ""), str(live.get("kind") or "")
    if _of(live, "metadata").get("deletionTimestamp"):
        return _not_yet("it is being deleted")
    if (api_version, kind) in _AT_ONCE:
        return AVAILABLE
    if judge := _JUDGES.get((api_version, kind)):
        newest = _number(_of(live, "metadata"), "generation")
        seen = _number(_of(live, "status"), "observedGeneration")
        if kind in _COUNTING_GENERATIONS and seen != newest:
            return _not_yet("its controller has not seen the newest generation")
        return judge(live)
    for name, bad in (("Failed", "True"), ("Stalled", "True"), ("Ready", "False")):
        condition = _condition_entry(live, name)
        if condition.get("status") == bad:
            return _not_yet(_reason_and_message(f"{name} is {bad}", condition))
    return _not_trackable(f"the availability of a {kind} is not known")


def is_trackable(api_version: str, kind: str) -> bool:
    return (api_version, kind) in _AT_ONCE or (api_version, kind) in _JUDGES


def hint_of(live: Live) -> str:
    """Return a fact that explains the state of an object beside its readiness; "" when there is none."""
    group, kind = (
        str(live.get("apiVersion") or "").rpartition("/")[0],
        str(live.get("kind") or ""),
    )
    if hint := _HINTS.get((group, kind)):
        return hint(live)
    if "." in group and not group.endswith(".k8s.io"):
        return custom_resource_hint(live)
    return ""


def overall_readiness(several: Iterable[Readiness]) -> Readiness:
    states = set(several)
    ranked = (Readiness.NOT_YET, Readiness.NOT_TRACKABLE)
    return next(
        (readiness for readiness in ranked if readiness in states), Readiness.AVAILABLE
    )


def _deployment(live: Live) -> ReadinessResult:
    status, wanted = _of(live, "status"), _replicas(live)
    available, updated = (
        _number(status, "availableReplicas"),
        _number(status, "updatedReplicas"),
    )
    unavailable = _number(status, "unavailableReplicas")
    if available == updated == wanted and not unavailable:
        return AVAILABLE
    failure = _condition_entry(live, "ReplicaFailure")
    if (
        failure.get("status") == "True"
    ):  # the pods are refused: a quota, Pod Security, a webhook
        return _not_yet(_reason_and_message("ReplicaFailure", failure))
    return _not_yet(
        f"{available} of {wanted} replicas available, {updated} updated, {unavailable} unavailable"
    )


def _stateful_set(live: Live) -> ReadinessResult:
    status, wanted = _of(live, "status"), _replicas(live)
    # Before about 1.22 there is no availableReplicas.
    key = "availableReplicas" if "availableReplicas" in status else "readyReplicas"
    available = _number(status, key)
    current, updated = (
        _number(status, "currentReplicas"),
        _number(status, "updatedReplicas"),
    )
    is_settled = status.get("currentRevision") == status.get("updateRevision")
    return _available(
        available == wanted and current == updated and is_settled,
        f"{available} of {wanted} replicas available, {updated} updated, {current} current",
    )


def _daemon_set(live: Live) -> ReadinessResult:
    status = _of(live, "status")
    available, wanted = (
        _number(status, "numberAvailable"),
        _number(status, "desiredNumberScheduled"),
    )
    current, updated = (
        _number(status, "currentNumberScheduled"),
        _number(status, "updatedNumberScheduled"),
    )
    return _available(
        available == wanted and current == updated,
        f"{available} of {wanted} pods available, {updated} of {current} updated",
    )


def _service(live: Live) -> ReadinessResult:
    spec = _of(live, "spec")
    kind = spec.get("type") or "ClusterIP"
    if kind in ("ClusterIP", "NodePort"):
        addresses = spec.get("clusterIPs")
        if addresses is None:
            addresses = [spec.get("clusterIP")]
        return _available(any(addresses[:1]), "no cluster address yet")
    if kind == "LoadBalancer":
        ingress = (_of(live, "status", "loadBalancer").get("ingress") or [{}])[0]
        is_there = ingress.get("ip") or ingress.get("hostname")
        return _available(is_there, "no address of the load balancer yet")
    return _not_trackable(f"the availability of a Service of type {kind} is not known")


def custom_resource_definition(live: Live) -> ReadinessResult:
    missing = [
        name
        for name in ("Established", "NamesAccepted")
        if _condition(live, name) != "True"
    ]
    return _available(not missing, f"not {' and not '.join(missing)}")


def _disruption_budget(live: Live) -> ReadinessResult:
    allowed = _number(_of(live, "status"), "disruptionsAllowed")
    is_current = _condition(live, "DisruptionAllowed") == str(allowed > 0)
    return _available(is_current, "its conditions are not up to date")


def _job(live: Live) -> ReadinessResult:
    status, spec = _of(live, "status"), _of(live, "spec")
    failed = _condition_entry(live, "Failed")
    if failed.get("status") == "True":
        return _not_yet(_reason_and_message("Failed", failed))
    has_pod = _number(status, "ready") > 0 or _number(status, "succeeded") > 0
    if has_pod or _condition(live, "Complete") == "True":
        return AVAILABLE
    if spec.get("suspend") or spec.get("parallelism") == 0:
        return _not_trackable("it is suspended: no pod is started")
    if _number(status, "active") and status.get("ready") is None:  # before about 1.24
        return _not_trackable("the cluster does not count its ready pods")
    reason = "no pod is ready or has succeeded"
    if failures := _number(status, "failed"):
        reason += f", {failures} failed"
    return _not_yet(reason)


def _pod(live: Live) -> ReadinessResult:
    status = _of(live, "status")
    phase = str(status.get("phase") or "Pending")
    ready = _condition_entry(live, "Ready")
    if phase == "Succeeded" or (phase == "Running" and ready.get("status") == "True"):
        return AVAILABLE
    if phase == "Failed" or not ready:
        return _not_yet(_reason_and_message(phase, status))
    return _not_yet(_reason_and_message(f"Ready is {ready.get('status')}", ready))


def _not_yet(reason: str) -> ReadinessResult:
    return ReadinessResult(Readiness.NOT_YET, reason)


def _not_trackable(reason: str) -> ReadinessResult:
    return ReadinessResult(Readiness.NOT_TRACKABLE, reason)


def _available(is_available: object, otherwise: str) -> ReadinessResult:
    return AVAILABLE if is_available else _not_yet(otherwise)


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
    return str(_condition_entry(live, name).get("status") or "")


def deployment_hint(live: Live) -> str:
    progressing = _condition_entry(live, "Progressing")
    if progressing.get("status") == "False":
        return _reason_and_message("Progressing is False", progressing)
    return ""


def stateful_set_hint(live: Live) -> str:
    strategy = _of(live, "spec", "updateStrategy")
    has_partition = _number(_of(strategy, "rollingUpdate"), "partition") > 0
    if strategy.get("type") == "OnDelete" or has_partition:
        return "never available while pods of two revisions run"
    return ""


def job_hint(live: Live) -> str:
    for name in ("Failed", "Complete"):
        condition = _condition_entry(live, name)
        if condition.get("status") == "True":
            return _reason_and_message(name, condition)
    return ""


def volume_claim_hint(live: Live) -> str:
    phase = _of(live, "status").get("phase") or "Pending"
    return "" if phase == "Bound" else f"not bound: its phase is {phase}"


def pod_hint(live: Live) -> str:
    """Return why containers do not run, for example "ImagePullBackOff: web" or "exit code 3: migrate"."""
    status = _of(live, "status")
    causes: dict[str, list[str]] = {}
    for container in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        waiting = str(_of(container, "state", "waiting").get("reason") or "")
        exit_code = _number(_of(container, "state", "terminated"), "exitCode")
        cause = "" if waiting in {"ContainerCreating", "PodInitializing"} else waiting
        if exit_code:
            cause = f"exit code {exit_code}"
        if cause:
            causes.setdefault(cause, []).append(str(container.get("name")))
    return "; ".join(f"{cause}: {', '.join(names)}" for cause, names in causes.items())


def ingress_hint(live: Live) -> str:
    return (
        "" if _of(live, "status", "loadBalancer").get("ingress") else "no address yet"
    )


def custom_resource_hint(live: Live) -> str:
    """Return the first of the usual conditions that is not as it should be."""
    for name, good in (
        ("Stalled", "False"),
        ("Ready", "True"),
        ("Available", "True"),
        ("Reconciling", "False"),
    ):
        condition = _condition_entry(live, name)
        if condition and condition.get("status") != good:
            return _reason_and_message(
                f"{name} is {condition.get('status')}", condition
            )
    return ""


def _condition_entry(live: Live, name: str) -> Live:
    conditions = map(mapping_at, items_at(live, "status", "conditions"))
    return next(
        (condition for condition in conditions if condition.get("type") == name), {}
    )


def _reason_and_message(what: str, condition: Live) -> str:
    parts = (
        what,
        str(condition.get("reason") or ""),
        str(condition.get("message") or ""),
    )
    return ": ".join(part for part in parts if part)


_RBAC, _NETWORKING, _STORAGE = (
    "rbac.authorization.k8s.io/v1",
    "networking.k8s.io/v1",
    "storage.k8s.io/v1",
)
_AT_ONCE = {
    ("v1", "Namespace"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    ("v1", "LimitRange"),
    ("v1", "ResourceQuota"),
    (_RBAC, "Role"),
    (_RBAC, "ClusterRole"),
    (_RBAC, "RoleBinding"),
    (_RBAC, "ClusterRoleBinding"),
    (_NETWORKING, "NetworkPolicy"),
    (_NETWORKING, "IngressClass"),
    (_STORAGE, "StorageClass"),
    (_STORAGE, "CSIDriver"),
    (_STORAGE, "CSINode"),
    (_STORAGE, "CSIStorageCapacity"),
    ("apps/v1", "ControllerRevision"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
}
_JUDGES: Mapping[tuple[str, str], Callable[[Live], ReadinessResult]] = {
    ("apps/v1", "Deployment"): _deployment,
    ("apps/v1", "StatefulSet"): _stateful_set,
    ("apps/v1", "DaemonSet"): _daemon_set,
    ("v1", "Service"): _service,
    ("v1", "Pod"): _pod,
    ("batch/v1", "Job"): _job,
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): custom_resource_definition,
    ("policy/v1", "PodDisruptionBudget"): _disruption_budget,
}
_COUNTING_GENERATIONS = {
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "PodDisruptionBudget",
}
"""Kinds whose status says which generation their controller has seen."""
_HINTS: Mapping[tuple[str, str], Callable[[Live], str]] = {
    ("apps", "Deployment"): deployment_hint,
    ("apps", "StatefulSet"): stateful_set_hint,
    ("batch", "Job"): job_hint,
    ("", "PersistentVolumeClaim"): volume_claim_hint,
    ("", "Pod"): pod_hint,
    ("networking.k8s.io", "Ingress"): ingress_hint,
}
