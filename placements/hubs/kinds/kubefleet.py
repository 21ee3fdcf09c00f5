"""KubeFleet and Azure Kubernetes Fleet Manager: streams, columns, quiet fields.

See `rules/live-hub.md#mirror`.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name
from placements.hubs.kinds.base import (
    Columns,
    Form,
    HubApi,
    Manifest,
    StreamKind,
    text_of,
)

PLACEMENT_GROUP = "placement.kubernetes-fleet.io"
CLUSTER_GROUP = "cluster.kubernetes-fleet.io"
NEWER_GROUPS = ("placement.kubefleet.dev", "rollout.kubefleet.dev")
PREFIX = "kubernetes-fleet.io/"
REQUESTED_BY = "fleetui.io/requested-by"
"""Annotation of what the console made in the name of a person."""
PARENT = f"{PREFIX}parent-CRP"
IS_LATEST = f"{PREFIX}is-latest-snapshot"
IS_LATEST_APPROVAL = f"{PREFIX}isLatestUpdateRunApproval"
POLICY_INDEX, RESOURCE_INDEX = f"{PREFIX}policy-index", f"{PREFIX}resource-index"
MEMBER_AGENT = "MemberAgent"
_LAST_NUMBER = re.compile(r"-(\d{1,9})(?:-snapshot)?$")


def _placement_kind(
    kind: str,
    *,
    namespaced: bool,
    form: Form = Form.FULL,
    required: bool = False,
) -> StreamKind:
    plural = re.sub("y$", "ie", kind.lower()) + "s"
    return StreamKind(PLACEMENT_GROUP, plural, kind, namespaced, form, required)


STREAMS = (
    StreamKind(CLUSTER_GROUP, "memberclusters", "MemberCluster", is_required=True),
    _placement_kind("ClusterResourcePlacement", namespaced=False, required=True),
    _placement_kind("ClusterSchedulingPolicySnapshot", namespaced=False, required=True),
    _placement_kind("ClusterResourceBinding", namespaced=False, required=True),
    _placement_kind("ResourcePlacement", namespaced=True),
    _placement_kind("SchedulingPolicySnapshot", namespaced=True),
    _placement_kind("ResourceBinding", namespaced=True),
    _placement_kind("ClusterResourceSnapshot", namespaced=False, form=Form.METADATA),
    _placement_kind("ResourceSnapshot", namespaced=True, form=Form.METADATA),
    _placement_kind("ClusterResourceOverride", namespaced=False),
    _placement_kind("ResourceOverride", namespaced=True),
    _placement_kind("ClusterResourceOverrideSnapshot", namespaced=False),
    _placement_kind("ResourceOverrideSnapshot", namespaced=True),
    _placement_kind("ClusterStagedUpdateStrategy", namespaced=False),
    _placement_kind("StagedUpdateStrategy", namespaced=True),
    _placement_kind("ClusterStagedUpdateRun", namespaced=False),
    _placement_kind("StagedUpdateRun", namespaced=True),
    _placement_kind("ClusterApprovalRequest", namespaced=False),
    _placement_kind("ApprovalRequest", namespaced=True),
    _placement_kind("ClusterResourcePlacementEviction", namespaced=False),
    _placement_kind("ClusterResourcePlacementDisruptionBudget", namespaced=False),
    StreamKind("", "namespaces", "Namespace", form=Form.METADATA),
)
_NAMED_BY_SPEC = {
    "ClusterStagedUpdateRun": ("spec", "placementName"),
    "StagedUpdateRun": ("spec", "placementName"),
    "ClusterResourcePlacementEviction": ("spec", "placementName"),
    "ClusterResourceOverride": ("spec", "placement", "name"),
    "ResourceOverride": ("spec", "placement", "name"),
    "ClusterResourceOverrideSnapshot": ("spec", "overrideSpec", "placement", "name"),
    "ResourceOverrideSnapshot": ("spec", "overrideSpec", "placement", "name"),
}
_NAMED_AS_THEIR_PLACEMENT = frozenset(
    {
        "ClusterResourcePlacement",
        "ResourcePlacement",
        "ClusterResourcePlacementDisruptionBudget",
    }
)
_BINDINGS = frozenset({"ClusterResourceBinding", "ResourceBinding"})


def columns_of(stream: StreamKind, manifest: Manifest) -> Columns:
    """Return what queries need of an object, whatever it looks like."""
    if stream.group not in (PLACEMENT_GROUP, CLUSTER_GROUP):
        return Columns()
    metadata, spec = mapping_at(manifest, "metadata"), mapping_at(manifest, "spec")
    labels = mapping_at(metadata, "labels")
    if stream.kind == "MemberCluster":
        return Columns(
            cluster=text_of(metadata.get("name")), heartbeat=heartbeat_of(manifest)
        )
    if stream.kind in _NAMED_AS_THEIR_PLACEMENT:
        owner = metadata.get("name")
    elif keys := _NAMED_BY_SPEC.get(stream.kind):
        owner = mapping_at(manifest, *keys[:-1]).get(keys[-1])
    else:
        owner = labels.get(PARENT)
    owner = text_of(owner, longest=63)
    namespace = text_of(metadata.get("namespace"), longest=63)
    columns = Columns(
        owner=owner and full_name(namespace, owner),
        cluster=text_of(spec.get("clusterName")),
        number=_number(stream, metadata, labels),
        is_latest="true" in (labels.get(IS_LATEST), labels.get(IS_LATEST_APPROVAL)),
    )
    if stream.kind not in _BINDINGS:
        return columns
    return replace(
        columns,
        cluster=text_of(spec.get("targetCluster")),
        state=text_of(spec.get("state"), longest=30),
        policy_snapshot=text_of(spec.get("schedulingPolicySnapshotName")),
    )


def _number(
    stream: StreamKind, metadata: Mapping[str, Any], labels: Mapping[str, Any]
) -> int | None:
    """Return the index of a snapshot: from its label, else from its name."""
    if not stream.kind.endswith("Snapshot"):
        return None
    text = labels.get(POLICY_INDEX if "Policy" in stream.kind else RESOURCE_INDEX)
    if not isinstance(text, str) or not text.isdecimal():
        match = _LAST_NUMBER.search(text_of(metadata.get("name")))
        text = match[1] if match else ""
    return int(text) if text and len(text) < 11 and int(text) < 2**31 else None


def heartbeat_of(manifest: Manifest) -> str:
    """Return the time of the last heartbeat of the member agent, as the hub wrote it."""
    for agent in items_at(manifest, "status", "agentStatus"):
        if mapping_at(agent).get("type") == MEMBER_AGENT:
            return text_of(agent.get("lastReceivedHeartbeat"), longest=40)
    return ""


def without_quiet(stream: StreamKind, manifest: Manifest) -> Manifest | None:
    """Return a MemberCluster without what changes with each heartbeat; None for any other kind."""
    if stream.kind != "MemberCluster" or stream.group != CLUSTER_GROUP:
        return None
    dropped = ("resourceVersion", "managedFields", "generation")
    metadata = {
        key: value
        for key, value in mapping_at(manifest, "metadata").items()
        if key not in dropped
    }
    # The generation counts changes of the spec, which stays; a change of the status alone does not raise it.
    return {
        **manifest,
        "metadata": metadata,
        "status": _quiet_value(mapping_at(manifest, "status")),
    }


_QUIET_FIELDS = frozenset(
    {"lastReceivedHeartbeat", "observationTime", "lastTransitionTime"}
)


def _quiet_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _quiet_value(one)
            for key, one in value.items()
            if key not in _QUIET_FIELDS
        }
    return [_quiet_value(one) for one in value] if isinstance(value, list) else value


KUBEFLEET = HubApi(
    name="kubefleet",
    title="KubeFleet",
    groups=(PLACEMENT_GROUP, CLUSTER_GROUP),
    streams=STREAMS,
    versions=("v1beta1", "v1"),
    columns=columns_of,
    without_quiet=without_quiet,
    binding_kinds=_BINDINGS,
    optional_groups=NEWER_GROUPS,
)
