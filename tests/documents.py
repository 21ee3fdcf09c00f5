"""Documents for tests of the entry points: valid ones, what makes them invalid, and the errors of that."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from clusters.manifest import parse_member
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import DEFAULT_SEMANTICS, Semantics, parse_manifest
from placements.manifests.disruption import parse_disruption_budget, parse_eviction
from placements.manifests.override import parse_cluster_override, parse_override
from placements.manifests.placement import PlacementSpec
from placements.manifests.staged_update import (
    parse_approval_request,
    parse_staged_run,
    parse_staged_strategy,
)

Document = dict[str, Any]

OURS = Path(__file__).resolve().parent / "data" / "documents"
SHARED = Path(__file__).resolve().parents[2] / "shared"
CODES = frozenset(
    [
        "required",
        "unknown-field",
        "wrong-type",
        "not-one-of",
        "out-of-range",
        "too-few",
        "too-many",
        "too-long",
        "bad-format",
        "duplicate",
        "conflict",
        "misplaced",
        "namespaced-kind",
        "cluster-scoped-kind",
        "forbidden-for-type",
        "unsatisfiable-requirements",
        "reserved-namespace",
        "reserved-name",
        "too-many-errors",
        "kind-not-supported",
        "api-version-not-supported",
        "not-supported",
        "field-of-other-semantics",
        "bad-syntax",
        "not-text",
        "too-deep",
        "too-large",
        "unknown-tag",
        "unreadable",
        "unknown-placement",
        "unknown-cluster",
        "malformed-property",
        "unsatisfiable",
        "immutable",
        "being-deleted",
        "not-on-the-hub",
    ]
)
"""Every code that an error may have. Programs can rely on them."""
PARSERS: dict[str, Callable[[Any], Any]] = {
    "ApprovalRequest": parse_approval_request,
    "ClusterApprovalRequest": parse_approval_request,
    "ClusterResourceOverride": parse_cluster_override,
    "ClusterResourcePlacementDisruptionBudget": parse_disruption_budget,
    "ClusterResourcePlacementEviction": parse_eviction,
    "ClusterStagedUpdateRun": parse_staged_run,
    "ClusterStagedUpdateStrategy": parse_staged_strategy,
    "MemberCluster": parse_member,
    "ResourceOverride": parse_override,
    "StagedUpdateRun": parse_staged_run,
    "StagedUpdateStrategy": parse_staged_strategy,
}
"""The parser of each kind of document but placements."""
NAMESPACE = {"group": "", "version": "v1", "kind": "Namespace", "name": "work"}


def parse_placement_spec(
    raw: object, *, semantics: Semantics = DEFAULT_SEMANTICS, path: str = "spec"
) -> PlacementSpec:
    """Parse the `spec` of a placement. Raise InvalidManifest."""
    return parse_manifest(PlacementSpec, raw, semantics=semantics, path=path)


def placement(**spec: Any) -> Document:
    """Write a placement of one namespace; arguments are fields of its spec."""
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacement",
        "metadata": {"name": "crp"},
        "spec": {"resourceSelectors": [dict(NAMESPACE)], **spec},
    }


def annotated(**annotations: str) -> Document:
    """Write a placement with annotations of this console, named without their prefix."""
    document = placement()
    keys = {
        f"fleetui.io/{name.replace('_', '-')}": text
        for name, text in annotations.items()
    }
    return {**document, "metadata": {**document["metadata"], "annotations": keys}}


def member(
    *, status: Document | None = None, metadata: Document | None = None, **spec: Any
) -> Document:
    """Write a member cluster; further arguments are fields of its spec."""
    identity = {
        "kind": "ServiceAccount",
        "name": "agent",
        "namespace": "fleet-system",
        "apiGroup": "",
    }
    document: Document = {
        "apiVersion": "cluster.kubernetes-fleet.io/v1beta1",
        "kind": "MemberCluster",
        "metadata": {"name": "bravelion", **(metadata or {})},
        "spec": {"identity": identity, **spec},
    }
    return document if status is None else {**document, "status": status}


def changed(document: Document, *keys: str | int, to: Any) -> Document:
    """Return a copy of a document with one place changed."""
    copy = deepcopy(document)
    inner: Any = copy
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    return copy


def errors_in(
    parse: Callable[..., object], *arguments: Any, **options: Any
) -> list[tuple[str, str]]:
    """Return path and code of every fault that parsing finds."""
    with pytest.raises(InvalidManifest) as raised:
        parse(*arguments, **options)
    assert {error.code for error in raised.value.errors} <= CODES
    return [(error.path, error.code) for error in raised.value.errors]


def requiring(*terms: Any) -> Document:
    """Write a PickAll policy with these required terms."""
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "clusterSelectorTerms": list(terms)
        }
    }
    return {"placementType": "PickAll", "affinity": {"clusterAffinity": affinity}}


def preferring(*terms: Any) -> Document:
    """Write a PickN policy with these preferred terms."""
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": list(terms)}
    return pick_n(affinity={"clusterAffinity": affinity})


def pick_n(**fields: Any) -> Document:
    """Write a PickN policy of three; arguments are further fields."""
    return {"placementType": "PickN", "numberOfClusters": 3, **fields}


def spreading(*constraints: Any) -> Document:
    """Write a PickN policy with these spread constraints."""
    return pick_n(topologySpreadConstraints=list(constraints))


def tolerating(*tolerations: Any) -> Document:
    """Write a policy with these tolerations."""
    return {"tolerations": list(tolerations)}


def measuring(*requirements: tuple[str, str, str]) -> Document:
    """Write a policy with requirements (property, operator, quantity) in one term."""
    found = [
        {"name": name, "operator": operator, "values": [value]}
        for name, operator, value in requirements
    ]
    return requiring({"propertySelector": {"matchExpressions": found}})
