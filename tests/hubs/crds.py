"""The kinds of a KubeFleet hub in a table of our own: for the fake hub, and to define on a real server."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PLACEMENT, CLUSTER = "placement.kubernetes-fleet.io", "cluster.kubernetes-fleet.io"
BETA, STABLE, ALPHA = "v1beta1", "v1", "v1alpha1"


@dataclass(frozen=True)
class Resource:
    """A kind that the hub serves; the first version is stored."""

    group: str
    plural: str
    kind: str
    is_namespaced: bool = False
    versions: tuple[str, ...] = (BETA, STABLE)
    has_status: bool = True


def _placement(
    kind: str, plural: str, *, namespaced: bool = False, **options: Any
) -> Resource:
    return Resource(PLACEMENT, plural, kind, namespaced, **options)


RESOURCES = (
    Resource(CLUSTER, "memberclusters", "MemberCluster"),
    _placement("ClusterResourcePlacement", "clusterresourceplacements"),
    _placement("ResourcePlacement", "resourceplacements", namespaced=True),
    _placement("ClusterSchedulingPolicySnapshot", "clusterschedulingpolicysnapshots"),
    _placement(
        "SchedulingPolicySnapshot",
        "schedulingpolicysnapshots",
        namespaced=True,
        versions=(BETA,),
    ),
    _placement("ClusterResourceSnapshot", "clusterresourcesnapshots"),
    _placement(
        "ResourceSnapshot", "resourcesnapshots", namespaced=True, versions=(BETA,)
    ),
    _placement("ClusterResourceBinding", "clusterresourcebindings"),
    _placement(
        "ResourceBinding", "resourcebindings", namespaced=True, versions=(BETA,)
    ),
    _placement("Work", "works", namespaced=True),
    *(
        _placement(
            kind,
            kind.lower() + "s",
            namespaced=namespaced,
            versions=(BETA, STABLE, ALPHA),
            has_status=False,
        )
        for kind, namespaced in (
            ("ClusterResourceOverride", False),
            ("ResourceOverride", True),
            ("ClusterResourceOverrideSnapshot", False),
            ("ResourceOverrideSnapshot", True),
        )
    ),
    _placement(
        "ClusterStagedUpdateStrategy",
        "clusterstagedupdatestrategies",
        versions=(BETA, STABLE, ALPHA),
        has_status=False,
    ),
    _placement(
        "StagedUpdateStrategy",
        "stagedupdatestrategies",
        namespaced=True,
        has_status=False,
    ),
    _placement(
        "ClusterStagedUpdateRun",
        "clusterstagedupdateruns",
        versions=(BETA, STABLE, ALPHA),
    ),
    _placement("StagedUpdateRun", "stagedupdateruns", namespaced=True),
    _placement(
        "ClusterApprovalRequest",
        "clusterapprovalrequests",
        versions=(BETA, STABLE, ALPHA),
    ),
    _placement("ApprovalRequest", "approvalrequests", namespaced=True),
    _placement(
        "ClusterResourcePlacementEviction",
        "clusterresourceplacementevictions",
        versions=(BETA, ALPHA),
    ),
    _placement(
        "ClusterResourcePlacementDisruptionBudget",
        "clusterresourceplacementdisruptionbudgets",
        versions=(BETA, ALPHA),
        has_status=False,
    ),
)
BUILT_IN = (Resource("", "namespaces", "Namespace", versions=("v1",)),)

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer", "format": "int64"}


def _object(
    required: tuple[str, ...] = (), *, opened: bool = True, **properties: Any
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    if opened:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if properties:
        schema["properties"] = properties
    if required:
        schema["required"] = list(required)
    return schema


def _items(items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def _map_by_type(items: dict[str, Any]) -> dict[str, Any]:
    return _items(
        items,
        **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )


_CONDITIONS = _map_by_type(
    _object(("type",), type=_TEXT, status=_TEXT, observedGeneration=_NUMBER)
)
_STATUS = _object(conditions=_CONDITIONS)
# Without unknown fields, so that a typing error in a policy is refused as the hub refuses it.
_POLICY = _object(
    opened=False,
    placementType={
        "type": "string",
        "enum": ["PickAll", "PickN", "PickFixed"],
        "default": "PickAll",
    },
    numberOfClusters={"type": "integer", "format": "int32", "minimum": 0},
    clusterNames=_items(_TEXT),
    affinity=_object(),
    topologySpreadConstraints=_items(_object()),
    tolerations=_items(_object(operator={"type": "string", "default": "Equal"})),
)
_SELECTORS = _items(
    _object(
        ("group", "version", "kind"),
        group=_TEXT,
        version=_TEXT,
        kind=_TEXT,
        selectionScope={"type": "string", "default": "NamespaceWithResources"},
    ),
    **{"x-kubernetes-list-type": "atomic"},
)
_PLACEMENT_SPEC = _object(
    ("resourceSelectors",),
    resourceSelectors=_SELECTORS,
    policy=_POLICY,
    revisionHistoryLimit={"type": "integer", "format": "int32", "default": 10},
    statusReportingScope={"type": "string", "default": "ClusterScopeOnly"},
)
_SCORE = _object(affinityScore=_NUMBER, priorityScore=_NUMBER)
_DECISION = _object(
    ("clusterName", "selected"),
    clusterName=_TEXT,
    selected={"type": "boolean"},
    reason=_TEXT,
)
_DECISION["properties"]["clusterScore"] = _SCORE
_LISTED = _items(_object(), maxItems=100)
_PARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "MemberCluster": (
        _object(
            ("identity",),
            identity=_object(),
            taints=_items(
                _object(("key", "effect")), **{"x-kubernetes-list-type": "atomic"}
            ),
            heartbeatPeriodSeconds={
                "type": "integer",
                "format": "int32",
                "default": 60,
            },
            deleteOptions=_object(
                validationMode={"type": "string", "default": "Strict"}
            ),
        ),
        _object(
            conditions=_CONDITIONS,
            agentStatus=_map_by_type(
                _object(("type",), type=_TEXT, conditions=_CONDITIONS)
            ),
            namespaces={"type": "object", "additionalProperties": _TEXT},
        ),
    ),
    "Placement": (_PLACEMENT_SPEC, _STATUS),
    "SchedulingPolicySnapshot": (
        _object(("policyHash",), policyHash=_TEXT, policy=_POLICY),
        _object(
            observedCRPGeneration=_NUMBER,
            conditions=_CONDITIONS,
            targetClusters=_items(_DECISION, maxItems=1000),
        ),
    ),
    "ResourceSnapshot": (
        _object(("selectedResources",), selectedResources=_items(_object())),
        _STATUS,
    ),
    "Binding": (
        _object(
            (
                "state",
                "targetCluster",
                "clusterDecision",
                "resourceSnapshotName",
                "schedulingPolicySnapshotName",
            ),
            state={"type": "string", "enum": ["Scheduled", "Bound", "Unscheduled"]},
            targetCluster=_TEXT,
            clusterDecision=_DECISION,
            resourceSnapshotName=_TEXT,
            schedulingPolicySnapshotName=_TEXT,
        ),
        _object(
            conditions=_CONDITIONS,
            failedPlacements=_LISTED,
            driftedPlacements=_LISTED,
            diffedPlacements=_LISTED,
        ),
    ),
    "ClusterResourceOverride": (
        _object(("clusterResourceSelectors", "policy")),
        _object(),
    ),
    "ResourceOverride": (_object(("resourceSelectors", "policy")), _object()),
    "OverrideSnapshot": (
        _object(("overrideHash", "overrideSpec"), overrideSpec=_object()),
        _object(),
    ),
    "UpdateStrategy": (
        _object(
            ("stages",),
            stages=_items(
                _object(("name",), name=_TEXT), **{"x-kubernetes-list-type": "atomic"}
            ),
        ),
        _object(),
    ),
    "UpdateRun": (
        _object(
            ("placementName", "stagedRolloutStrategyName"),
            placementName=_TEXT,
            stagedRolloutStrategyName=_TEXT,
            state={
                "type": "string",
                "enum": ["Initialize", "Run", "Stop"],
                "default": "Initialize",
            },
        ),
        _object(
            conditions=_CONDITIONS,
            stagesStatus=_items(_object()),
            deletionStageStatus=_object(),
            resourceSnapshotIndexUsed=_TEXT,
        ),
    ),
    "ApprovalRequest": (
        _object(
            ("parentStageRollout", "targetStage"),
            parentStageRollout=_TEXT,
            targetStage=_TEXT,
        ),
        _STATUS,
    ),
    "Eviction": (
        _object(
            ("placementName", "clusterName"), placementName=_TEXT, clusterName=_TEXT
        ),
        _STATUS,
    ),
    "DisruptionBudget": (
        _object(
            minAvailable={"x-kubernetes-int-or-string": True},
            maxUnavailable={"x-kubernetes-int-or-string": True},
        ),
        _object(),
    ),
}


def schema_of(kind: str, version: str) -> dict[str, Any]:
    """Return the schema of a kind in a version: our own, with the fields that the tests need typed."""
    exact = _PARTS.get(kind)
    ending = next(
        (parts for end, parts in _PARTS.items() if kind.endswith(end)),
        (_object(), _object()),
    )
    spec, status = exact or ending
    if kind == "MemberCluster" and version == STABLE:
        # What the stable version of KubeFleet lacks, and what a PUT through it deletes.
        kept = {
            key: value
            for key, value in spec["properties"].items()
            if key != "deleteOptions"
        }
        spec = _object(("identity",), opened=False, **kept)
        status = _object(
            opened=False,
            conditions=_CONDITIONS,
            agentStatus=status["properties"]["agentStatus"],
        )
    return {"type": "object", "properties": {"spec": spec, "status": status}}


def definitions() -> Iterator[dict[str, Any]]:
    """Yield the CustomResourceDefinitions of the hub."""
    for resource in RESOURCES:
        versions = [
            {
                "name": version,
                "served": True,
                "storage": version == resource.versions[0],
                "schema": {"openAPIV3Schema": schema_of(resource.kind, version)},
                **({"subresources": {"status": {}}} if resource.has_status else {}),
            }
            for version in resource.versions
        ]
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{resource.plural}.{resource.group}"},
            "spec": {
                "group": resource.group,
                "names": {
                    "kind": resource.kind,
                    "listKind": f"{resource.kind}List",
                    "plural": resource.plural,
                    "singular": resource.kind.lower(),
                },
                "scope": "Namespaced" if resource.is_namespaced else "Cluster",
                "versions": versions,
            },
        }
