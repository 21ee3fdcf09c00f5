"""Objects as the controllers of a KubeFleet hub write them, made by us; callers change what matters."""

from typing import Any

PREFIX = "kubernetes-fleet.io/"


def member(
    name: str, *, heartbeat: str = "2026-11-01T10:00:00Z", **labels: str
) -> dict[str, Any]:
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "lastTransitionTime": "2026-11-01T09:00:00Z",
        }
        for kind in ("Joined", "Healthy")
    ]
    agent = {
        "type": "MemberAgent",
        "conditions": conditions,
        "lastReceivedHeartbeat": heartbeat,
    }
    usage = {
        "capacity": {"cpu": "8", "memory": "32Gi"},
        "allocatable": {"cpu": "7", "memory": "30Gi"},
        "available": {"cpu": "4", "memory": "10Gi"},
        "observationTime": heartbeat,
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "identity": {
                "kind": "ServiceAccount",
                "name": f"sa-{name}",
                "namespace": "fleet-system",
            }
        },
        "status": {
            "agentStatus": [agent],
            "resourceUsage": usage,
            "properties": {
                "kubernetes-fleet.io/node-count": {
                    "value": "3",
                    "observationTime": heartbeat,
                }
            },
        },
    }


def placement(name: str, *, clusters: int = 2, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    kind = "ConfigMap" if namespace else "Namespace"
    selector = {"group": "", "version": "v1", "kind": kind, "name": name}
    return {
        "metadata": metadata,
        "spec": {
            "resourceSelectors": [selector],
            "policy": {"placementType": "PickN", "numberOfClusters": clusters},
        },
    }


def snapshot(owner: str, number: int = 0, *, is_latest: bool = True) -> dict[str, Any]:
    labels = {
        f"{PREFIX}parent-CRP": owner,
        f"{PREFIX}policy-index": str(number),
        f"{PREFIX}is-latest-snapshot": str(is_latest).lower(),
    }
    return {
        "metadata": {"name": f"{owner}-{number}", "labels": labels},
        "spec": {
            "policyHash": "aGFzaA==",
            "policy": {"placementType": "PickN", "numberOfClusters": 2},
        },
    }


def binding(
    owner: str, cluster: str, *, state: str = "Scheduled", policy: int = 0
) -> dict[str, Any]:
    """Return a binding of usual size, with managed fields as controllers leave them."""
    conditions = [
        {
            "type": kind,
            "status": "True",
            "observedGeneration": 3,
            "reason": f"{kind}Succeeded",
            "message": f"The work of the placement is {kind.lower()} on the cluster",
            "lastTransitionTime": "2026-11-01T09:30:00Z",
        }
        for kind in (
            "RolloutStarted",
            "Overridden",
            "WorkSynchronized",
            "Applied",
            "Available",
        )
    ]
    return {
        "metadata": {
            "name": f"{owner[:26]}-{cluster[:27]}-0a1b2c3d",
            "labels": {f"{PREFIX}parent-CRP": owner},
            "finalizers": [f"{PREFIX}scheduler-crb-cleanup", f"{PREFIX}work-cleanup"],
            "managedFields": [_manager("spec"), _manager("status")],
        },
        "spec": {
            "state": state,
            "targetCluster": cluster,
            "resourceSnapshotName": f"{owner}-0-snapshot",
            "schedulingPolicySnapshotName": f"{owner}-{policy}",
            "clusterDecision": {
                "clusterName": cluster,
                "selected": True,
                "clusterScore": {"affinityScore": 0, "priorityScore": 10},
                "reason": f"Successfully scheduled resources for placement in {cluster}",
            },
            "applyStrategy": {
                "type": "ClientSideApply",
                "comparisonOption": "PartialComparison",
                "whenToApply": "Always",
                "whenToTakeOver": "Always",
            },
        },
        "status": {"conditions": conditions},
    }


def _manager(part: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        f"f:{kind}": {
            ".": {},
            "f:message": {},
            "f:reason": {},
            "f:status": {},
            "f:type": {},
        }
        for kind in (
            "conditions",
            "state",
            "targetCluster",
            "clusterDecision",
            "applyStrategy",
            "names",
        )
    }
    return {
        "manager": "hubagent",
        "operation": "Update",
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "time": "2026-11-01T09:30:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {f"f:{part}": {".": {}, **fields}},
        **({"subresource": "status"} if part == "status" else {}),
    }


def condition(
    kind: str, status: str = "True", *, reason: str = "", at: str = "09:30", **more: Any
) -> Any:
    return {
        "type": kind,
        "status": status,
        "observedGeneration": 1,
        "reason": reason or kind,
        "message": f"{kind} is {status}",
        "lastTransitionTime": f"2026-11-01T{at}:00Z",
        **more,
    }


def written_by(manager: str, *parts: str, at: str = "09:30") -> list[dict[str, Any]]:
    """Return managed fields that say who wrote these parts."""
    return [
        {
            "manager": manager,
            "operation": "Update",
            "time": f"2026-11-01T{at}:00Z",
            "fieldsV1": {f"f:{part}": {} for part in parts},
            **({"subresource": "status"} if "status" in parts else {}),
        }
    ]


def metadata(name: str, namespace: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, **({"namespace": namespace} if namespace else {}), **more}


def strategy(name: str, *stages: str, namespace: str = "") -> dict[str, Any]:
    return {
        "metadata": metadata(name, namespace),
        "spec": {"stages": [stage(one) for one in stages]},
    }


def stage(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "labelSelector": {"matchLabels": {"env": name}}, **more}


def staged_run(
    name: str, owner: str = "web", *, state: str = "Run", namespace: str = ""
) -> dict[str, Any]:
    return {
        "metadata": metadata(
            name, namespace, managedFields=written_by("kubectl", "spec")
        ),
        "spec": {
            "placementName": owner,
            "stagedRolloutStrategyName": "canary-first",
            "state": state,
        },
    }


def run_status(*conditions: Any, stages: Any = (), **more: Any) -> dict[str, Any]:
    """Return the status of an initialized run with the stages canary (an approval, then a wait) and prod."""
    tasks = [{"type": "Approval"}, {"type": "TimedWait", "waitTime": "10m"}]
    return {
        "policySnapshotIndexUsed": "0",
        "resourceSnapshotIndexUsed": "0",
        "stagedUpdateStrategySnapshot": {
            "stages": [stage("canary", afterStageTasks=tasks), stage("prod")]
        },
        "stagesStatus": list(stages),
        "conditions": [condition("Initialized"), *conditions],
        **more,
    }


def approval(
    run: str,
    stage_name: str,
    *conditions: Any,
    side: str = "after",
    namespace: str = "",
) -> Any:
    labels = {
        f"{PREFIX}targetUpdateRun": run,
        f"{PREFIX}targetUpdatingStage": stage_name,
        f"{PREFIX}taskType": f"{side}Stage",
        f"{PREFIX}isLatestUpdateRunApproval": "true",
    }
    return {
        "metadata": metadata(f"{run}-{side}-{stage_name}", namespace, labels=labels),
        "spec": {"parentStageRollout": run, "targetStage": stage_name},
        "status": {"conditions": list(conditions)},
    }


def override(
    name: str, *, value: str = "1", namespace: str = "", owner: str = "web"
) -> dict[str, Any]:
    """Return an override of a ClusterRole, or in a namespace of a ConfigMap."""
    group, kind = (
        ("", "ConfigMap") if namespace else ("rbac.authorization.k8s.io", "ClusterRole")
    )
    patch = {"op": "add", "path": "/metadata/labels/tier", "value": value}
    selectors = "resourceSelectors" if namespace else "clusterResourceSelectors"
    return {
        "metadata": metadata(name, namespace),
        "spec": {
            "placement": {"name": owner},
            selectors: [
                {"group": group, "version": "v1", "kind": kind, "name": "reader"}
            ],
            "policy": {
                "overrideRules": [
                    {"clusterSelector": {}, "jsonPatchOverrides": [patch]}
                ]
            },
        },
    }


def override_snapshot(
    name: str, number: int, *, is_latest: bool = True, namespace: str = ""
) -> dict[str, Any]:
    labels = {f"{PREFIX}is-latest-snapshot": str(is_latest).lower()}
    spec = override(name, value=str(number), namespace=namespace)["spec"]
    return {
        "metadata": metadata(f"{name}-{number}", namespace, labels=labels),
        "spec": {"overrideHash": f"hash-{number}", "overrideSpec": spec},
    }


def budget(owner: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": metadata(owner), "spec": spec}


def eviction(name: str, owner: str, cluster: str, *conditions: Any) -> dict[str, Any]:
    return {
        "metadata": metadata(name),
        "spec": {"placementName": owner, "clusterName": cluster},
        "status": {"conditions": list(conditions)},
    }
