"""The kinds of Fleet documents: which are taken, and why the others are not (`spec/lifecycle.md` A.17)."""

from placements.scheduling.faults import Fault, Faults, Problem

PLACEMENT_KIND = "ClusterResourcePlacement"
MEMBER_KIND = "MemberCluster"
PLACEMENT_VERSIONS = ("placement.kubernetes-fleet.io/v1", "placement.kubernetes-fleet.io/v1beta1")
MEMBER_VERSIONS = ("cluster.kubernetes-fleet.io/v1", "cluster.kubernetes-fleet.io/v1beta1")

_LATER = "placements inside a namespace come later"
_NOT_HERE = "resource envelopes are not part of this project"
_NO_DOOR = "documents of this kind are not read by this project"
_REASONS = {
    "ResourcePlacement": _LATER,
    "ClusterResourceEnvelope": _NOT_HERE,
    "ResourceEnvelope": _NOT_HERE,
    "ClusterResourceOverride": _NO_DOOR,
    "ResourceOverride": _NO_DOOR,
    "ClusterResourcePlacementEviction": _NO_DOOR,
    "ClusterResourcePlacementDisruptionBudget": _NO_DOOR,
    "ClusterStagedUpdateStrategy": _NO_DOOR,
    "ClusterStagedUpdateRun": _NO_DOOR,
    "StagedUpdateStrategy": _NO_DOOR,
    "StagedUpdateRun": _NO_DOOR,
    "ClusterApprovalRequest": _NO_DOOR,
    "ApprovalRequest": _NO_DOOR,
    "InternalMemberCluster": _NO_DOOR,
    "Work": _NO_DOOR,
    PLACEMENT_KIND: "is a placement; a member cluster is expected here",
    MEMBER_KIND: "is a member cluster; a placement is expected here",
}


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
    readable = kind[:60].encode(errors="replace").decode()
    return Problem((), "kind-not-supported", f"{readable}: {reason}", expected)
