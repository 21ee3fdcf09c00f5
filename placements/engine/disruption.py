"""Validation of evictions, and what a disruption budget allows (`rules/lifecycle.md#evictions`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from placements.manifests.disruption import DisruptionBudgetSpec, budget_errors
from placements.manifests.policy import PlacementType


class ClusterAvailability(StrEnum):
    """The availability of a placement on one cluster that it has a binding for."""

    PLANNED = "planned"
    """Nothing was started there yet."""
    WORKING = "working"
    AVAILABLE = "available"
    FAILED = "failed"
    """Applied or Overridden is False; merely not ready is not failed (`rules/lifecycle.md#terms`)."""
    LEAVING = "leaving"
    """The removal was started."""


@dataclass(frozen=True, slots=True)
class EvictionContext:
    """What an eviction has to know of its placement; beside its `clusters` others may be only counted."""

    placement_type: PlacementType
    clusters: Mapping[str, ClusterAvailability]
    number_of_clusters: int | None = None
    is_being_deleted: bool = False
    is_namespaced: bool = False
    is_held: bool = False
    """Paused or stopped: no replacement could start."""
    others_available: int = 0
    others: int = 0


class EvictionReason(StrEnum):
    """Why an eviction was executed or not."""

    NO_PLACEMENT = "no-placement"
    BEING_DELETED = "being-deleted"
    NAMESPACED = "namespaced"
    PICK_FIXED = "pick-fixed"
    NOT_THERE = "not-there"
    LEAVING = "leaving"
    PLANNED = "planned"
    HELD = "held"
    FAILED = "failed"
    NO_BUDGET = "no-budget"
    WITHIN_BUDGET = "within-budget"
    MISCONFIGURED = "misconfigured"
    OVER_BUDGET = "over-budget"


class KeptReason(StrEnum):
    """Why a drain does not remove a placement, besides the reasons of its eviction."""

    NAMESPACED = "namespaced"
    PICK_FIXED = "pick-fixed"
    TOLERATES = "tolerates-cordon"
    NEXT_RUN = "next-run"
    HELD = "held"
    STAGED_RUN = "staged-run"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The arithmetic of a budget: `allowed` evictions are left, the one in question included."""

    available: int
    total: int
    wanted: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one eviction, with the numbers if a budget decided."""

    why: EvictionReason
    numbers: Numbers | None = None


class Executed(Verdict):
    """The placement leaves the cluster; unless it was leaving already, the binding is to be removed now."""


class NotExecuted(Verdict):
    """The eviction is possible and was not executed; it is not tried again."""


class Invalid(Verdict):
    """The request fits no placement on this cluster; it can never be executed."""


def judge_eviction(
    placement: EvictionContext | None, cluster: str, budget: DisruptionBudgetSpec | None
) -> Verdict:
    """Return whether an eviction of a placement from a cluster is executed.

    Evictions of one placement are judged one after the other, each after the former was written down. One
    that is in progress counts as not available (departing from the released system, where two in a row
    could both count it).
    """
    if placement is None:
        return Invalid(EvictionReason.NO_PLACEMENT)
    if placement.is_being_deleted:
        return Invalid(EvictionReason.BEING_DELETED)
    if placement.is_namespaced:
        return Invalid(EvictionReason.NAMESPACED)
    if placement.placement_type is PlacementType.PICK_FIXED:
        return Invalid(EvictionReason.PICK_FIXED)
    verdict = _WITHOUT_BUDGET.get(placement.clusters.get(cluster))
    if placement.is_held and (verdict is None or verdict.why is EvictionReason.FAILED):
        return NotExecuted(EvictionReason.HELD)  # a drain waits in the same case
    if verdict is not None:
        return verdict
    if budget is None:
        return Executed(EvictionReason.NO_BUDGET)
    if budget_errors(budget, placement.placement_type):
        return NotExecuted(EvictionReason.MISCONFIGURED)
    numbers = budget_numbers(placement, budget)
    if numbers.allowed > 0:
        return Executed(EvictionReason.WITHIN_BUDGET, numbers)
    return NotExecuted(EvictionReason.OVER_BUDGET, numbers)


_WITHOUT_BUDGET: dict[ClusterAvailability | None, Verdict] = {
    None: Invalid(EvictionReason.NOT_THERE),
    ClusterAvailability.LEAVING: Executed(EvictionReason.LEAVING),
    ClusterAvailability.PLANNED: NotExecuted(EvictionReason.PLANNED),
    ClusterAvailability.FAILED: Executed(EvictionReason.FAILED),
}
"""The verdicts that no budget influences."""


def budget_numbers(placement: EvictionContext, budget: DisruptionBudgetSpec) -> Numbers:
    """Return what a budget allows; percentages are of the number of clusters wanted, and round up."""
    availabilities = list(placement.clusters.values())
    available = (
        availabilities.count(ClusterAvailability.AVAILABLE) + placement.others_available
    )
    total = len(availabilities) + placement.others
    wanted = placement.number_of_clusters or 0
    if budget.max_unavailable is not None:
        allowed = budget.max_unavailable.of(wanted) - (total - available)
    elif budget.min_available is not None:
        allowed = available - budget.min_available.of(wanted)
    else:
        allowed = 0
    return Numbers(available, total, wanted, allowed)
