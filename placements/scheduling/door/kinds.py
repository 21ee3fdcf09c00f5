"""The kinds of Fleet documents: which are taken, and why the others are not (`spec/lifecycle.md` A.17)."""

from placements.scheduling.faults import Fault, Faults, Problem

PLACEMENT_KIND = "ClusterResourcePlacement"
MEMBER_KIND = "MemberCluster"
PLACEMENT_VERSIONS = ("placement.kubernetes-fleet.io/v1", "placement.kubernetes-fleet.io/v1beta1")
MEMBER_VERSIONS = ("cluster.kubernetes-fleet.io/v1", "cluster.kubernetes-fleet.io/v1beta1")
ALPHA_VERSION = "placement.kubernetes-fleet.io/v1alpha1"
"""What overrides, evictions and budgets were first written in; they have the same fields there."""
CLUSTER_OVERRIDE_KIND = "ClusterResourceOverride"
OVERRIDE_KIND = "ResourceOverride"
EVICTION_KIND = "ClusterResourcePlacementEviction"
BUDGET_KIND = "ClusterResourcePlacementDisruptionBudget"
STAGED_STRATEGY_KIND = "ClusterStagedUpdateStrategy"
STAGED_RUN_KIND = "ClusterStagedUpdateRun"
APPROVAL_KIND = "ClusterApprovalRequest"

_FLEET_GROUPS = frozenset(version.partition("/")[0] for version in (*PLACEMENT_VERSIONS, *MEMBER_VERSIONS))

OCM_GROUP = "cluster.open-cluster-management.io"
_PLACEMENT = "is a placement, not a resource to be placed"
_LATER = "placements inside a namespace come later"
_NOT_HERE = "resource envelopes are not part of this project"
_NO_DOOR = "documents of this kind are not read by this project"
_NOUNS = {
    PLACEMENT_KIND: "a placement",
    MEMBER_KIND: "a member cluster",
    CLUSTER_OVERRIDE_KIND: "an override",
    OVERRIDE_KIND: "an override",
    EVICTION_KIND: "an eviction",
    BUDGET_KIND: "a disruption budget",
    STAGED_STRATEGY_KIND: "a strategy of staged updates",
    STAGED_RUN_KIND: "a staged update run",
    APPROVAL_KIND: "a request for approval",
}
"""The kinds that have a door, as people call them."""
_REASONS = {
    "ResourcePlacement": _LATER,
    "StagedUpdateStrategy": _LATER,
    "StagedUpdateRun": _LATER,
    "ApprovalRequest": _LATER,
    "ClusterResourceEnvelope": _NOT_HERE,
    "ResourceEnvelope": _NOT_HERE,
    "InternalMemberCluster": _NO_DOOR,
    "Work": _NO_DOOR,
    "Placement": f"is read with an apiVersion of {OCM_GROUP}",
}
_NO_RESOURCES = _REASONS | {kind: f"is {noun}, not a resource to be placed" for kind, noun in _NOUNS.items()}


def refuse_other_kinds(document: object, expected: str) -> None:
    """Raise Faults unless the document is of the expected kind: its other faults would only confuse."""
    kind = document.get("kind") if isinstance(document, dict) else expected
    problem = None if kind == expected else _kind_problem(kind, expected)
    if problem:
        raise Faults([Fault("kind", problem.code, problem.message, problem.allowed)])


def _kind_problem(kind: object, expected: str) -> Problem:
    if kind is None:
        return Problem((), "required", "is missing", expected)
    if not isinstance(kind, str):
        return Problem((), "wrong-type", "is not text", expected)
    reason = _REASONS.get(kind, "is not a kind that is read here")
    if kind in _NOUNS and expected in _NOUNS:
        reason = f"is {_NOUNS[kind]}; {_NOUNS[expected]} is expected here"
    return Problem((), "kind-not-supported", f"{_readable(kind)}: {reason}", expected)


def _readable(kind: str) -> str:
    return kind[:60].encode(errors="replace").decode()


def refuse_fleet_kinds(document: object) -> None:
    """Raise Faults if the document is a placement, or of a kind of Fleet: no resource on the hub."""
    raw = document if isinstance(document, dict) else {}
    version, kind = raw.get("apiVersion"), raw.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return
    if version.rpartition("/")[0] == OCM_GROUP and kind == "Placement":
        raise Faults([Fault("kind", "kind-not-supported", f"{kind}: {_PLACEMENT}", "resources")])
    if version.rpartition("/")[0] in _FLEET_GROUPS:
        reason = _NO_RESOURCES.get(kind, "belongs to Fleet itself")
        raise Faults([Fault("kind", "kind-not-supported", f"{_readable(kind)}: {reason}", "resources")])
