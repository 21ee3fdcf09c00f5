"""Each row of the availability rules (`rules/kubernetes-driver.md#readiness`)."""

from typing import Any

import pytest

from clusters.drivers.readiness import (
    Readiness,
    hint_of,
    overall_readiness,
    readiness_of,
)

YES, NOT_YET, UNKNOWN = Readiness.AVAILABLE, Readiness.NOT_YET, Readiness.NOT_TRACKABLE


def live(
    version: str,
    kind: str,
    status: dict[str, Any] | None = None,
    *,
    generation: int = 3,
    **spec: Any,
) -> dict[str, Any]:
    """Make a live object whose status is of its own generation, unless it says otherwise."""
    status = {"observedGeneration": 3, **(status or {})}
    metadata = {"name": "web", "generation": generation}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def deployment(
    available: int, updated: int, unavailable: int = 0, **more: Any
) -> dict[str, Any]:
    """Make a Deployment."""
    status = {
        "availableReplicas": available,
        "updatedReplicas": updated,
        "unavailableReplicas": unavailable,
    }
    return live("apps/v1", "Deployment", status, **more)


def stateful_set(
    available: int,
    current: int,
    updated: int,
    *,
    old: str = "a",
    new: str = "a",
    **more: Any,
) -> dict[str, Any]:
    """Make a StatefulSet."""
    status = {
        "availableReplicas": available,
        "currentReplicas": current,
        "updatedReplicas": updated,
        "currentRevision": old,
        "updateRevision": new,
    }
    return live("apps/v1", "StatefulSet", status, **more)


def daemon_set(
    available: int, wanted: int, current: int, updated: int, **more: Any
) -> dict[str, Any]:
    """Make a DaemonSet."""
    status = {
        "numberAvailable": available,
        "desiredNumberScheduled": wanted,
        "currentNumberScheduled": current,
        "updatedNumberScheduled": updated,
    }
    return live("apps/v1", "DaemonSet", status, **more)


def container(
    name: str, *, waiting: str = "", exit_code: int | None = None
) -> dict[str, Any]:
    """Make the status of a container that waits or has ended."""
    if exit_code is not None:
        return {"name": name, "state": {"terminated": {"exitCode": exit_code}}}
    return {"name": name, "state": {"waiting": {"reason": waiting}}}


def service(ingress: list[dict[str, str]] | None = None, **spec: Any) -> dict[str, Any]:
    """Make a Service."""
    return live("v1", "Service", {"loadBalancer": {"ingress": ingress}}, **spec)


def definition(**conditions: str) -> dict[str, Any]:
    """Make a CustomResourceDefinition."""
    stored = [{"type": name, "status": status} for name, status in conditions.items()]
    return live(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", {"conditions": stored}
    )


def budget(condition: str | None, allowed: int, **more: Any) -> dict[str, Any]:
    """Make a PodDisruptionBudget."""
    stored = [{"type": "DisruptionAllowed", "status": condition}] if condition else []
    return live(
        "policy/v1",
        "PodDisruptionBudget",
        {"conditions": stored, "disruptionsAllowed": allowed},
        **more,
    )


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (deployment(2, 2, replicas=2), YES),
        (deployment(1, 1), YES),
        (deployment(0, 0, replicas=0), YES),
        (deployment(1, 2, replicas=2), NOT_YET),
        (deployment(2, 1, replicas=2), NOT_YET),
        (deployment(2, 2, 1, replicas=2), NOT_YET),
        (deployment(2, 2, replicas=2, generation=4), NOT_YET),
        (stateful_set(3, 3, 3, replicas=3), YES),
        (stateful_set(1, 1, 1), YES),
        (stateful_set(2, 3, 3, replicas=3), NOT_YET),
        (stateful_set(3, 2, 1, replicas=3), NOT_YET),
        (stateful_set(3, 3, 3, replicas=3, new="b"), NOT_YET),
        (stateful_set(3, 3, 3, replicas=3, generation=4), NOT_YET),
        (daemon_set(3, 3, 3, 3), YES),
        (daemon_set(0, 0, 0, 0), YES),
        (daemon_set(2, 3, 3, 3), NOT_YET),
        (daemon_set(3, 3, 3, 2), NOT_YET),
        (daemon_set(3, 3, 3, 3, generation=4), NOT_YET),
        (service(clusterIPs=["10.0.0.1"]), YES),
        (service(clusterIPs=["None"], type="ClusterIP"), YES),
        (service(clusterIPs=["10.0.0.1"], type="NodePort"), YES),
        (service(), NOT_YET),
        (service(clusterIPs=None), NOT_YET),
        (service(clusterIPs=None, clusterIP="10.0.0.1"), YES),
        (service(clusterIPs=[""], type="NodePort"), NOT_YET),
        (service([{"ip": "203.0.113.1"}], type="LoadBalancer"), YES),
        (service([{"hostname": "lb.example"}], type="LoadBalancer"), YES),
        (service(clusterIPs=["10.0.0.1"], type="LoadBalancer"), NOT_YET),
        (service([{}], type="LoadBalancer"), NOT_YET),
        (service(type="ExternalName"), UNKNOWN),
        (definition(Established="True", NamesAccepted="True"), YES),
        (definition(Established="True", NamesAccepted="False"), NOT_YET),
        (definition(NamesAccepted="True"), NOT_YET),
        (
            live(
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                {"conditions": None},
            ),
            NOT_YET,
        ),
        (service(clusterIP="10.0.0.1"), YES),
        (service(clusterIP="None", type=""), YES),
        (service(clusterIP="10.0.0.1", clusterIPs=[]), NOT_YET),
        (
            live(
                "apps/v1",
                "StatefulSet",
                {"readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2},
                replicas=2,
            ),
            YES,
        ),
        (
            live(
                "apps/v1",
                "StatefulSet",
                {"readyReplicas": 1, "currentReplicas": 2, "updatedReplicas": 2},
                replicas=2,
            ),
            NOT_YET,
        ),
        (stateful_set(1, 3, 3, replicas=3) | {"kind": "StatefulSet"}, NOT_YET),
        (budget("True", 1), YES),
        (budget("False", 0), YES),
        (budget("True", 0), NOT_YET),
        (budget("False", 1), NOT_YET),
        (budget(None, 0), NOT_YET),
        (budget("True", 1, generation=4), NOT_YET),
    ],
)
def test_what_is_tracked_is_judged_by_its_status(
    seen: dict[str, Any], expected: Readiness
) -> None:
    judged = readiness_of(seen)

    assert judged.readiness is expected
    assert bool(judged.reason) == (expected is not YES)


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("v1", "Namespace Secret ConfigMap ServiceAccount LimitRange ResourceQuota"),
        (
            "rbac.authorization.k8s.io/v1",
            "Role ClusterRole RoleBinding ClusterRoleBinding",
        ),
        ("networking.k8s.io/v1", "NetworkPolicy IngressClass"),
        ("storage.k8s.io/v1", "CSIDriver CSINode StorageClass CSIStorageCapacity"),
        ("apps/v1", "ControllerRevision"),
        ("scheduling.k8s.io/v1", "PriorityClass"),
    ],
)
def test_data_is_available_at_once(version: str, kinds: str) -> None:
    assert {
        readiness_of({"apiVersion": version, "kind": kind}).readiness
        for kind in kinds.split()
    } == {YES}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("batch/v1", "CronJob"),
        ("apps/v1", "ReplicaSet"),
        ("v1", "PersistentVolumeClaim"),
        ("networking.k8s.io/v1", "Ingress"),
        ("autoscaling/v2", "HorizontalPodAutoscaler"),
        ("example.com/v1", "Deployment"),
        ("serving.knative.dev/v1", "Service"),
        ("policy/v1beta1", "PodDisruptionBudget"),
        ("apps/v1beta1", "Deployment"),
        ("apps/v2", "StatefulSet"),
        ("extensions/v1beta1", "DaemonSet"),
        ("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition"),
        ("rbac.authorization.k8s.io/v1beta1", "Role"),
        ("networking.k8s.io/v1beta1", "IngressClass"),
        ("storage.k8s.io/v1beta1", "CSIStorageCapacity"),
        ("scheduling.k8s.io/v1alpha1", "PriorityClass"),
    ],
)
def test_everything_else_cannot_be_tracked(version: str, kind: str) -> None:
    assert readiness_of({"apiVersion": version, "kind": kind}).readiness is UNKNOWN


@pytest.mark.parametrize(
    ("version", "kind"),
    [("v1", "ConfigMap"), ("apps/v1", "Deployment"), ("batch/v1", "Job")],
)
def test_an_object_that_is_being_deleted_is_not_yet_available(
    version: str, kind: str
) -> None:
    metadata = {"name": "web", "deletionTimestamp": "2026-01-01T00:00:00Z"}

    assert (
        readiness_of(
            {"apiVersion": version, "kind": kind, "metadata": metadata}
        ).readiness
        is NOT_YET
    )


def conditions(*entries: tuple[str, str, str]) -> dict[str, Any]:
    return {
        "conditions": [
            {"type": name, "status": value, "reason": why}
            for name, value, why in entries
        ]
    }


@pytest.mark.parametrize(
    ("seen", "hint"),
    [
        (deployment(2, 2, replicas=2), ""),
        (
            live(
                "apps/v1",
                "Deployment",
                conditions(("Progressing", "False", "ProgressDeadlineExceeded")),
            ),
            "Progressing is False: ProgressDeadlineExceeded",
        ),
        (stateful_set(1, 1, 1, updateStrategy={"type": "RollingUpdate"}), ""),
        (
            stateful_set(1, 1, 1, updateStrategy={"type": "OnDelete"}),
            "never available while pods of two revisions run",
        ),
        (
            stateful_set(1, 1, 1, updateStrategy={"rollingUpdate": {"partition": 1}}),
            "never available while pods of two revisions run",
        ),
        (live("batch/v1", "Job", {"conditions": None}), ""),
        (
            live(
                "batch/v1",
                "Job",
                conditions(("Failed", "True", "BackoffLimitExceeded")),
            ),
            "Failed: BackoffLimitExceeded",
        ),
        (live("batch/v1", "Job", conditions(("Complete", "True", ""))), "Complete"),
        (live("v1", "PersistentVolumeClaim", {"phase": "Bound"}), ""),
        (
            live("v1", "PersistentVolumeClaim", {"phase": "Pending"}),
            "not bound: its phase is Pending",
        ),
        (
            live(
                "v1",
                "Pod",
                {
                    "containerStatuses": [
                        {
                            "name": "a",
                            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        }
                    ]
                },
            ),
            "CrashLoopBackOff: a",
        ),
        (
            live(
                "v1",
                "Pod",
                {"containerStatuses": [container("a", waiting="ContainerCreating")]},
            ),
            "",
        ),
        (
            live(
                "v1",
                "Pod",
                {
                    "initContainerStatuses": [container("migrate", exit_code=3)],
                    "containerStatuses": [
                        container("a", waiting="ImagePullBackOff"),
                        container("b", waiting="ImagePullBackOff"),
                        container("c", exit_code=0),
                    ],
                },
            ),
            "exit code 3: migrate; ImagePullBackOff: a, b",
        ),
        (live("networking.k8s.io/v1", "Ingress"), "no address yet"),
        (
            live(
                "networking.k8s.io/v1",
                "Ingress",
                {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}},
            ),
            "",
        ),
        (
            live("example.com/v1", "Tab", conditions(("Ready", "False", "Down"))),
            "Ready is False: Down",
        ),
        (
            live("example.com/v1", "Tab", conditions(("Stalled", "True", "Stuck"))),
            "Stalled is True: Stuck",
        ),
        (
            live("example.com/v1", "Tab", conditions(("Reconciling", "True", ""))),
            "Reconciling is True",
        ),
        (live("example.com/v1", "Tab", {"conditions": "none"}), ""),
        (live("v1", "Node", conditions(("Ready", "False", "Down"))), ""),
    ],
)
def test_a_hint_explains_and_decides_nothing(seen: dict[str, Any], hint: str) -> None:
    assert hint_of(seen) == hint


def job(
    *entries: tuple[str, str, str], spec: dict[str, Any] | None = None, **status: int
) -> dict[str, Any]:
    return live("batch/v1", "Job", {**conditions(*entries), **status}, **(spec or {}))


def pod(phase: str, *entries: tuple[str, str, str], **status: str) -> dict[str, Any]:
    return live("v1", "Pod", {"phase": phase, **conditions(*entries), **status})


def custom(*entries: tuple[str, str, str]) -> dict[str, Any]:
    return live("example.com/v1", "Tab", conditions(*entries))


FAILED = ("Failed", "True", "BackoffLimitExceeded")


@pytest.mark.parametrize(
    ("seen", "expected", "reason"),
    [
        (job(ready=1, active=1), YES, ""),
        (job(succeeded=1, ready=0), YES, ""),
        (job(("Complete", "True", "")), YES, ""),
        (job(("Complete", "False", "")), NOT_YET, "no pod is ready or has succeeded"),
        (
            job(active=1, ready=0, failed=2),
            NOT_YET,
            "no pod is ready or has succeeded, 2 failed",
        ),
        (job(FAILED, failed=4), NOT_YET, "Failed: BackoffLimitExceeded"),
        (job(FAILED, succeeded=1, ready=1), NOT_YET, "Failed: BackoffLimitExceeded"),
        (job(("Failed", "False", ""), ready=1), YES, ""),
        (job(spec={"suspend": True}), UNKNOWN, "it is suspended: no pod is started"),
        (job(spec={"parallelism": 0}), UNKNOWN, "it is suspended: no pod is started"),
        (job(FAILED, spec={"suspend": True}), NOT_YET, "Failed: BackoffLimitExceeded"),
        (job(active=1), UNKNOWN, "the cluster does not count its ready pods"),
        (pod("Running", ("Ready", "True", "")), YES, ""),
        (pod("Succeeded", ("Ready", "False", "PodCompleted")), YES, ""),
        (
            pod("Running", ("Ready", "False", "ContainersNotReady")),
            NOT_YET,
            "Ready is False: ContainersNotReady",
        ),
        (
            pod("Failed", ("Ready", "False", "PodFailed"), reason="Evicted"),
            NOT_YET,
            "Failed: Evicted",
        ),
        (pod("Failed", ("Ready", "True", "")), NOT_YET, "Failed"),
        (
            pod("Unknown", ("Ready", "Unknown", "NodeLost")),
            NOT_YET,
            "Ready is Unknown: NodeLost",
        ),
        (pod("Pending"), NOT_YET, "Pending"),
        (live("v1", "Pod"), NOT_YET, "Pending"),
        (custom(("Ready", "False", "Down")), NOT_YET, "Ready is False: Down"),
        (custom(("Failed", "True", "Down")), NOT_YET, "Failed is True: Down"),
        (custom(("Stalled", "True", "Down")), NOT_YET, "Stalled is True: Down"),
        (
            custom(("Ready", "True", ""), ("Failed", "True", "Late")),
            NOT_YET,
            "Failed is True: Late",
        ),
        (
            custom(("Ready", "True", "")),
            UNKNOWN,
            "the availability of a Tab is not known",
        ),
        (
            custom(("Ready", "Unknown", "")),
            UNKNOWN,
            "the availability of a Tab is not known",
        ),
        (
            custom(("Failed", "False", "")),
            UNKNOWN,
            "the availability of a Tab is not known",
        ),
        (live("example.com/v1", "Tab", {"conditions": "none"}), UNKNOWN, None),
        (live("example.com/v1", "Tab", {"conditions": None}), UNKNOWN, None),
        (
            live(
                "gateway.networking.k8s.io/v1",
                "Gateway",
                conditions(("Ready", "False", "Down")),
            ),
            NOT_YET,
            None,
        ),
    ],
)
def test_what_failed_is_not_available(
    seen: dict[str, Any], expected: Readiness, reason: str | None
) -> None:
    judged = readiness_of(seen)

    assert judged.readiness is expected
    assert judged.reason == reason or reason is None


def test_the_reason_has_the_message_of_the_object() -> None:
    failed = job(FAILED)
    failed["status"]["conditions"][0]["message"] = (
        "Job has reached the specified backoff limit"
    )

    reason = "Failed: BackoffLimitExceeded: Job has reached the specified backoff limit"
    assert readiness_of(failed).reason == reason


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_an_object_without_a_status_is_not_yet_available(kind: str) -> None:
    bare = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": "web", "generation": 1},
    }

    assert readiness_of(bare).readiness is NOT_YET


@pytest.mark.parametrize(
    ("several", "expected"),
    [
        ([], YES),
        ([YES, YES], YES),
        ([YES, UNKNOWN], UNKNOWN),
        ([UNKNOWN, NOT_YET, YES], NOT_YET),
    ],
)
def test_the_least_ready_object_counts(
    several: list[Readiness], expected: Readiness
) -> None:
    assert overall_readiness(several) is expected


def test_pods_that_are_refused_are_the_reason_in_the_words_of_the_cluster() -> None:
    refused = deployment(0, 0, 1)
    refused["status"]["conditions"] = [
        {
            "type": "ReplicaFailure",
            "status": "True",
            "reason": "FailedCreate",
            "message": 'pods "web" is forbidden: violates PodSecurity "restricted:latest"',
        },
        {
            "type": "Progressing",
            "status": "False",
            "reason": "ProgressDeadlineExceeded",
        },
    ]

    result = readiness_of(refused)

    assert result.readiness is NOT_YET
    assert result.reason == (
        'ReplicaFailure: FailedCreate: pods "web" is forbidden: violates PodSecurity "restricted:latest"'
    )
