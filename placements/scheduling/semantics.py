"""Whose spread rules apply to a placement, and which of them this project knows already."""

from enum import StrEnum

from placements.scheduling.faults import Problem, faults_of


class Semantics(StrEnum):
    """The four sets of rules of `spec/scheduler.md`; `fleet` is the default."""

    FLEET = "fleet"
    KUBEFLEET = "kubefleet"
    OCM = "ocm"
    KUBERNETES = "kubernetes"


SUPPORTED_SEMANTICS = tuple(Semantics)
DEFAULT_SEMANTICS = Semantics.FLEET
"""What holds where nobody says anything, and for documents that none of the sets of rules concerns."""


def parse_semantics(raw: object, *, path: str = "semantics") -> Semantics:
    """Read the name of the semantics, `fleet` when absent; raise Faults if unknown or not offered yet."""
    problem = semantics_problem(raw)
    if problem:
        raise faults_of([problem], raw, path=path)
    return DEFAULT_SEMANTICS if raw is None else Semantics(str(raw))


def semantics_problem(raw: object) -> Problem | None:
    """Say what is wrong with the name of the semantics, if anything is."""
    allowed = " or ".join(SUPPORTED_SEMANTICS)
    if raw is None or raw in SUPPORTED_SEMANTICS:
        return None
    if not isinstance(raw, str):
        return Problem((), "wrong-type", "is not the name of a set of rules", allowed)
    if raw in list(Semantics):
        return Problem((), "semantics-not-supported", f"{raw} semantics are not offered yet", allowed)
    return Problem((), "not-one-of", f"{raw[:40]!r} names no set of rules", allowed)
