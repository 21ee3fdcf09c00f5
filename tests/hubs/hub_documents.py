"""Objects as the controllers of a KubeFleet hub write them, made by us; callers change what matters."""

from typing import Any

PREFIX = "kubernetes-fleet.io/"


def member(name: str, *, heartbeat: str = "2026-11-01T10:00:00Z", **labels: str) -> dict[str, Any]:
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": "2026-11-01T09:00:00Z"}
        for kind in ("Joined", "Healthy")
    ]
    agent = {"type": "MemberAgent", "conditions": conditions, "lastReceivedHeartbeat": heartbeat}
    usage = {
        "capacity": {"cpu": "8", "memory": "32Gi"},
        "allocatable": {"cpu": "7", "memory": "30Gi"},
        "available": {"cpu": "4", "memory": "10Gi"},
        "observationTime": heartbeat,
    }
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"identity": {"kind": "ServiceAccount", "name": f"sa-{name}", "namespace": "fleet-system"}},
        "status": {
            "agentStatus": [agent],
            "resourceUsage": usage,
            "properties": {"kubernetes-fleet.io/node-count": {"value": "3", "observationTime": heartbeat}},
        },
    }


def placement(name: str, *, clusters: int = 2, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    selector = {"group": "", "version": "v1", "kind": "Namespace", "name": name}
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
        "spec": {"policyHash": "aGFzaA==", "policy": {"placementType": "PickN", "numberOfClusters": 2}},
    }


def binding(owner: str, cluster: str, *, state: str = "Scheduled", policy: int = 0) -> dict[str, Any]:
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
        for kind in ("RolloutStarted", "Overridden", "WorkSynchronized", "Applied", "Available")
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
        f"f:{kind}": {".": {}, "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {}}
        for kind in ("conditions", "state", "targetCluster", "clusterDecision", "applyStrategy", "names")
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


def event(kind: str, name: str, number: int, namespace: str = "default") -> dict[str, Any]:
    return {
        "metadata": {"name": f"{name}.{number:016x}", "namespace": namespace},
        "involvedObject": {"kind": kind, "name": name},
        "reason": "PlacementRolloutCompleted",
        "message": "done",
        "type": "Normal",
    }
