"""The schemas of manifests: those of the models that parse them, and of the status that is read."""

import json
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.json_schema import models_json_schema

from clusters.drivers.simulated.state import SimulatedFault
from clusters.manifest import MemberSpec
from fleetui.apimachinery.kinds import (
    ALPHA_VERSION,
    APPROVAL_KIND,
    BUDGET_KIND,
    CLUSTER_OVERRIDE_KIND,
    MEMBER_KIND,
    MEMBER_VERSIONS,
    NAMESPACED_APPROVAL_KIND,
    NAMESPACED_PLACEMENT_KIND,
    NAMESPACED_RUN_KIND,
    NAMESPACED_STRATEGY_KIND,
    OVERRIDE_KIND,
    PLACEMENT_KIND,
    PLACEMENT_VERSIONS,
    STAGED_RUN_KIND,
    STAGED_STRATEGY_KIND,
)
from fleetui.apimachinery.model import IntOrPercent, ManifestModel
from placements.engine.status import HealthLevel
from placements.manifests.disruption import DisruptionBudgetSpec
from placements.manifests.ocm import OCM_KIND, OCM_VERSIONS, OcmSpec
from placements.manifests.override import ClusterOverrideSpec, OverrideSpec
from placements.manifests.placement import PlacementSpec
from placements.manifests.policy import PlacementPolicy
from placements.manifests.staged_update import (
    ApprovalSpec,
    ApprovalStatus,
    StagedRunSpec,
    StagedStrategySpec,
)

Plain = dict[str, Any]
_COMPONENT = "#/components/schemas/"
_ALPHA_TOO = (*PLACEMENT_VERSIONS, ALPHA_VERSION)


class ReadModel(BaseModel):
    """Part of a manifest as it is read; a hub may write more into it."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="allow", validate_by_name=True
    )


class Metadata(ReadModel):
    """Metadata of an object; what only a hub sets is ignored in an edit."""

    name: str
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    finalizers: list[str] | None = None


class ObjectCondition(ReadModel):
    """A condition of an object."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str | None = None
    message: str | None = None
    observed_generation: int | None = None
    last_transition_time: datetime | None = None


class ResourceIdentity(ReadModel):
    """A resource, by group, version, kind and name."""

    group: str
    version: str
    kind: str
    name: str
    namespace: str | None = None


class Envelope(ReadModel):
    """The envelope on the hub that has a resource."""

    type: str
    name: str
    namespace: str | None = None


class FailedPlacement(ResourceIdentity):
    """A resource that keeps a condition of a cluster from being true."""

    envelope: Envelope | None = None
    condition: ObjectCondition


class ObservedField(ReadModel):
    """A field that differs between a cluster and the hub."""

    path: str
    value_in_member: str | None = None
    value_in_hub: str | None = None


class DriftedPlacement(ResourceIdentity):
    """A resource that was changed on a cluster after it was applied."""

    observation_time: datetime | None = None
    first_drifted_observed_time: datetime | None = None
    target_cluster_observed_generation: int | None = None
    observed_drifts: list[ObservedField] | None = None


class DiffedPlacement(ResourceIdentity):
    """A resource that differed before a takeover, or that is only reported."""

    observation_time: datetime | None = None
    first_diffed_observed_time: datetime | None = None
    target_cluster_observed_generation: int | None = None
    observed_diffs: list[ObservedField] | None = None


class NamespacedName(ReadModel):
    """A snapshot of an override in a namespace."""

    namespace: str
    name: str


class ClusterPlacementStatus(ReadModel):
    """A placement on one cluster; without a name, a cluster that is missing."""

    cluster_name: str | None = None
    observed_resource_index: str | None = None
    conditions: list[ObjectCondition] | None = None
    applicable_cluster_resource_overrides: list[str] | None = None
    applicable_resource_overrides: list[NamespacedName] | None = None
    failed_placements: list[FailedPlacement] | None = None
    drifted_placements: list[DriftedPlacement] | None = None
    diffed_placements: list[DiffedPlacement] | None = None


class HealthOfClusters(ReadModel):
    """How many clusters are wanted and meet each condition; the states, from `available` on, sum up."""

    wanted: int
    scheduled: int
    rollout_started: int
    applied: int
    available: int
    pending: int
    in_progress: int
    not_available: int
    unreachable: int
    not_observed: int
    not_monitored: int
    not_ready: int
    failed: int
    differs: int


class PlacementHealthStatus(ReadModel):
    """The status word of a placement, and what makes it so."""

    level: HealthLevel
    word: str
    message: str
    counts: HealthOfClusters


class PlacementStatus(ReadModel):
    """The status of a placement: conditions, selected resources, and its progress on each cluster."""

    conditions: list[ObjectCondition] | None = None
    observed_resource_index: str | None = None
    selected_resources: list[ResourceIdentity] | None = None
    number_of_selected_clusters: int | None = None
    health: PlacementHealthStatus | None = None
    placement_statuses: list[ClusterPlacementStatus] | None = None


class AgentReportStatus(ReadModel):
    """The last report of an agent of a cluster."""

    type: str
    conditions: list[ObjectCondition] | None = None
    last_received_heartbeat: datetime | None = None


class PropertyValue(ReadModel):
    """The value of a property of a cluster."""

    value: str
    observation_time: datetime | None = None


class ResourceUsageStatus(ReadModel):
    """Resources of a cluster by name."""

    capacity: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    available: dict[str, str] | None = None
    observation_time: datetime | None = None


class MemberClusterStatus(ReadModel):
    """The status of a member cluster; `simulated` marks one that exists only in this console."""

    conditions: list[ObjectCondition] | None = None
    agent_status: list[AgentReportStatus] | None = None
    properties: dict[str, PropertyValue] | None = None
    resource_usage: ResourceUsageStatus | None = None
    simulated: bool | None = None


class StageClusterStatus(ReadModel):
    """One cluster of a stage."""

    cluster_name: str
    conditions: list[ObjectCondition] | None = None


class StageStatus(ReadModel):
    """One stage of a staged update run."""

    stage_name: str
    start_time: datetime | None = None
    end_time: datetime | None = None
    clusters: list[StageClusterStatus] | None = None
    conditions: list[ObjectCondition] | None = None


class StagedUpdateRunStatus(ReadModel):
    """The status of a staged update run."""

    policy_snapshot_index_used: str | None = None
    resource_snapshot_index_used: str | None = None
    stages_status: list[StageStatus] | None = None
    deletion_stage_status: StageStatus | None = None
    conditions: list[ObjectCondition] | None = None


_MODELS: tuple[type[BaseModel], ...] = (
    Metadata,
    PlacementSpec,
    PlacementPolicy,
    OcmSpec,
    PlacementStatus,
    MemberSpec,
    MemberClusterStatus,
    ClusterOverrideSpec,
    OverrideSpec,
    DisruptionBudgetSpec,
    StagedStrategySpec,
    StagedRunSpec,
    StagedUpdateRunStatus,
    ApprovalSpec,
    ApprovalStatus,
    ResourceIdentity,
    SimulatedFault,
)


def _manifest(
    versions: tuple[str, ...],
    kinds: tuple[str, ...],
    spec: type[BaseModel],
    status: type[BaseModel] | None = None,
    *,
    description: str,
    has_spec: bool = True,
) -> Plain:
    properties: Plain = {
        "apiVersion": {"type": "string", "enum": list(versions)},
        "kind": {"type": "string", "enum": list(kinds)},
        "metadata": ref(Metadata),
        "spec": ref(spec),
        **({"status": ref(status)} if status else {}),
    }
    required = ["apiVersion", "kind", "metadata", *(("spec",) if has_spec else ())]
    return {
        "type": "object",
        "description": description,
        "required": required,
        "properties": properties,
    }


def _any_of_kinds(description: str, **kinds: str) -> Plain:
    mapping = {kind: f"{_COMPONENT}{name}" for kind, name in kinds.items()}
    return {
        "description": description,
        "oneOf": [{"$ref": one} for one in mapping.values()],
        "discriminator": {"propertyName": "kind", "mapping": mapping},
    }


def ref(model: type[BaseModel]) -> Plain:
    return component(_name(model))


def component(name: str) -> Plain:
    return {"$ref": f"{_COMPONENT}{name}"}


def _name(model: type[BaseModel]) -> str:
    return model.__name__.lstrip("_")


def _mapping_of(values: Plain, description: str) -> Plain:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": values,
    }


_STATUS = "The status is written by this console, and ignored in an edit."


_MANIFESTS: dict[str, Plain] = {
    "ClusterManifest": _manifest(
        MEMBER_VERSIONS,
        (MEMBER_KIND,),
        MemberSpec,
        MemberClusterStatus,
        description=_STATUS,
    ),
    "ClusterResourcePlacementManifest": _manifest(
        PLACEMENT_VERSIONS,
        (PLACEMENT_KIND,),
        PlacementSpec,
        PlacementStatus,
        description=f"A cluster-scoped placement. {_STATUS}",
    ),
    "ResourcePlacementManifest": _manifest(
        PLACEMENT_VERSIONS,
        (NAMESPACED_PLACEMENT_KIND,),
        PlacementSpec,
        PlacementStatus,
        description=f"A placement in a namespace. {_STATUS}",
    ),
    "OcmPlacementManifest": _manifest(
        OCM_VERSIONS,
        (OCM_KIND,),
        OcmSpec,
        PlacementStatus,
        description=f"A Placement of Open Cluster Management. {_STATUS}",
        has_spec=False,
    ),
    "PlacementManifest": _any_of_kinds(
        f"A placement of one of the three kinds. {_STATUS}",
        **{
            PLACEMENT_KIND: "ClusterResourcePlacementManifest",
            NAMESPACED_PLACEMENT_KIND: "ResourcePlacementManifest",
            OCM_KIND: "OcmPlacementManifest",
        },
    ),
    "ClusterResourceOverrideManifest": _manifest(
        _ALPHA_TOO,
        (CLUSTER_OVERRIDE_KIND,),
        ClusterOverrideSpec,
        description="An override of cluster-scoped resources.",
    ),
    "ResourceOverrideManifest": _manifest(
        _ALPHA_TOO,
        (OVERRIDE_KIND,),
        OverrideSpec,
        description="An override of resources in a namespace.",
    ),
    "OverrideManifest": _any_of_kinds(
        "A ClusterResourceOverride or ResourceOverride.",
        **{
            CLUSTER_OVERRIDE_KIND: "ClusterResourceOverrideManifest",
            OVERRIDE_KIND: "ResourceOverrideManifest",
        },
    ),
    "BudgetManifest": _manifest(
        _ALPHA_TOO,
        (BUDGET_KIND,),
        DisruptionBudgetSpec,
        description="A disruption budget.",
    ),
    "StagedStrategyManifest": _manifest(
        PLACEMENT_VERSIONS,
        (STAGED_STRATEGY_KIND, NAMESPACED_STRATEGY_KIND),
        StagedStrategySpec,
        description="A ClusterStagedUpdateStrategy or StagedUpdateStrategy.",
    ),
    "StagedRunManifest": _manifest(
        PLACEMENT_VERSIONS,
        (STAGED_RUN_KIND, NAMESPACED_RUN_KIND),
        StagedRunSpec,
        StagedUpdateRunStatus,
        description=f"A ClusterStagedUpdateRun or StagedUpdateRun. {_STATUS}",
    ),
    "ApprovalManifest": _manifest(
        PLACEMENT_VERSIONS,
        (APPROVAL_KIND, NAMESPACED_APPROVAL_KIND),
        ApprovalSpec,
        ApprovalStatus,
        description="A ClusterApprovalRequest or ApprovalRequest.",
    ),
    "ResourceManifest": {
        "type": "object",
        "description": "Any Kubernetes object; all other fields are kept.",
        "required": ["apiVersion", "kind", "metadata"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": ref(Metadata),
        },
        "additionalProperties": {},
    },
    "ManifestList": {
        "type": "object",
        "description": "Manifests of any kinds.",
        "required": ["kind", "items"],
        "properties": {
            "apiVersion": {"type": "string", "enum": ["v1"]},
            "kind": {"type": "string", "enum": ["List"]},
            "items": {"type": "array", "items": component("ResourceManifest")},
        },
    },
    "Labels": _mapping_of({"type": "string"}, "Label keys and values."),
    "LabelPatch": _mapping_of(
        {"type": "string", "nullable": True}, "Labels to set; null removes one."
    ),
    "AnyObject": _mapping_of({}, "An object of any structure."),
}


@cache
def manifest_components() -> dict[str, Plain]:
    _, schema = models_json_schema(
        [(model, "validation") for model in _MODELS],
        ref_template=f"{_COMPONENT}{{model}}",
    )
    known = _known(ManifestModel)
    open_ones = {_name(one) for one in known if one.allow_unknown or one.ignored_fields}
    parts = {
        name.lstrip("_"): _as_openapi(schema, is_open=name in open_ones)
        for name, schema in schema["$defs"].items()
    }
    return parts | _MANIFESTS


def _known(base: type[ManifestModel]) -> Iterator[type[ManifestModel]]:
    for one in base.__subclasses__():
        yield one
        yield from _known(one)


def _as_openapi(schema: Any, *, is_open: bool = False) -> Any:
    """Return a JSON schema of pydantic in the form of OpenAPI 3.0."""
    if isinstance(schema, list):
        return [_as_openapi(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    openapi = {
        key: value
        for key, value in schema.items()
        if key not in ("title", "default", "properties")
    }
    if "const" in openapi:
        openapi["enum"] = [openapi.pop("const")]
    openapi = {key: _as_openapi(value) for key, value in openapi.items()}
    if "properties" in schema:
        required = schema.get("required", ())
        openapi["properties"] = {
            key: _property(value, is_required=key in required)
            for key, value in schema["properties"].items()
        }
    if is_open:
        openapi.pop("additionalProperties", None)
    return (
        _nullable(openapi) if {"type": "null"} in openapi.get("anyOf", ()) else openapi
    )


def _property(schema: Plain, *, is_required: bool) -> Plain:
    """Return the schema of a field; one that may be absent may also be null, as in Kubernetes."""
    openapi: Plain = _as_openapi(schema)
    if is_required:
        return openapi
    default = schema.get("default")
    if isinstance(default, str | int | IntOrPercent) and default != "":
        written = str(default).lower() if isinstance(default, bool) else str(default)
        openapi = {"allOf": [openapi]} if "$ref" in openapi else openapi
        openapi["description"] = " ".join(
            [openapi.get("description", ""), f"Default: {written}."]
        ).strip()
    return _nullable(openapi)


def _nullable(schema: Plain) -> Plain:
    options = [
        schema_ for schema_ in schema.get("anyOf", ()) if schema_ != {"type": "null"}
    ]
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    if not options:
        return (
            {"allOf": [schema], "nullable": True}
            if "$ref" in schema
            else {**schema, "nullable": True}
        )
    if len(options) > 1:
        return {**rest, "anyOf": options, "nullable": True}
    one = options[0]
    return {**rest, **({"allOf": [one]} if "$ref" in one else one), "nullable": True}


EXAMPLES = Path(__file__).parent / "examples.json"
"""Real requests and responses of every operation, by `tests/api/write_examples.py`."""


def complete_schema(result: Plain, **_: Any) -> Plain:
    """Add the schemas of manifests, which the serializers only name, and the examples."""
    schemas = result["components"]["schemas"]
    if both := schemas.keys() & (manifest_components().keys() - _MANIFESTS.keys()):
        raise ValueError(
            f"serializers and models of manifests have the same names: {sorted(both)}"
        )
    schemas.update(manifest_components())
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    examples: Plain = json.loads(EXAMPLES.read_text())
    for operations in result["paths"].values():
        for operation in operations.values():
            example = examples.get(operation["operationId"], {})
            if "request" in example:
                for content in (
                    operation.get("requestBody", {}).get("content", {}).values()
                ):
                    content["example"] = example["request"]
            for code, response in operation["responses"].items():
                if code == example.get("status"):
                    for media_type, content in response.get("content", {}).items():
                        if (media_type == "text/csv") == isinstance(
                            example.get("response"), str
                        ):
                            content["example"] = example["response"]
    return result


def apply_body() -> Plain:
    """Return the schema of the body of `apply`: one manifest, or a List.

    An array is accepted, too; a generated Python client could not send any body if it were described.
    """
    return {"anyOf": [component("ResourceManifest"), component("ManifestList")]}
