"""Whether an eviction is carried out, and what a disruption budget says to it (lifecycle A.14, B.8.1)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from placements.scheduling.door.disruption_documents import DisruptionBudgetSpec, budget_faults
from placements.scheduling.policy import PlacementType


class Standing(StrEnum):
    """Where a placement stands on one cluster that it has a binding for."""

    PLANNED = "planned"
    """Nothing was started there yet."""
    WORKING = "working"
    AVAILABLE = "available"
    FAILED = "failed"
    """Applied or Overridden is False; merely not ready is not failed (lifecycle A.1)."""
    LEAVING = "leaving"
    """The removal was started."""


@dataclass(frozen=True, slots=True)
class PlacementStanding:
    """What an eviction has to know of the placement that it names."""

    placement_type: PlacementType
    clusters: Mapping[str, Standing]
    number_of_clusters: int | None = None
    is_being_deleted: bool = False


class Why(StrEnum):
    """Why an eviction was carried out or not."""

    NO_PLACEMENT = "no-placement"
    BEING_DELETED = "being-deleted"
    PICK_FIXED = "pick-fixed"
    NOT_THERE = "not-there"
    LEAVING = "leaving"
    PLANNED = "planned"
    FAILED = "failed"
    NO_BUDGET = "no-budget"
    WITHIN_BUDGET = "within-budget"
    MISCONFIGURED = "misconfigured"
    OVER_BUDGET = "over-budget"


class WhyStays(StrEnum):
    """Why a drain does not take a placement off, beside what is said to its eviction."""

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
class Executed:
    """The placement leaves the cluster; unless it was leaving already, the binding is to be removed now."""

    why: Why
    numbers: Numbers | None = None


@dataclass(frozen=True, slots=True)
class NotExecuted:
    """The eviction is possible and was not carried out; it is not tried again."""

    why: Why
    numbers: Numbers | None = None


@dataclass(frozen=True, slots=True)
class Invalid:
    """The eviction asks for what cannot be."""

    why: Why


Verdict = Executed | NotExecuted | Invalid


def judge_eviction(
    placement: PlacementStanding | None, cluster: str, budget: DisruptionBudgetSpec | None
) -> Verdict:
    """Say what becomes of an eviction of a placement from a cluster.

    Evictions of one placement are judged one after the other, each after the former was written down. One
    that is on its way out counts as not available (departing from the released system, where two in a row
    could both count it).
    """
    if placement is None:
        return Invalid(Why.NO_PLACEMENT)
    if placement.is_being_deleted:
        return Invalid(Why.BEING_DELETED)
    if placement.placement_type is PlacementType.PICK_FIXED:
        return Invalid(Why.PICK_FIXED)
    match placement.clusters.get(cluster):
        case None:
            return Invalid(Why.NOT_THERE)
        case Standing.LEAVING:
            return Executed(Why.LEAVING)
        case Standing.PLANNED:
            return NotExecuted(Why.PLANNED)
        case Standing.FAILED:
            return Executed(Why.FAILED)
    return Executed(Why.NO_BUDGET) if budget is None else _by_budget(placement, budget)


def _by_budget(placement: PlacementStanding, budget: DisruptionBudgetSpec) -> Verdict:
    if budget_faults(budget, placement.placement_type):
        return NotExecuted(Why.MISCONFIGURED)
    numbers = budget_numbers(placement, budget)
    if numbers.allowed > 0:
        return Executed(Why.WITHIN_BUDGET, numbers)
    return NotExecuted(Why.OVER_BUDGET, numbers)


def budget_numbers(placement: PlacementStanding, budget: DisruptionBudgetSpec) -> Numbers:
    """Count what a budget allows; percentages are of the number of clusters wished for, and round up."""
    standings = list(placement.clusters.values())
    available, total = standings.count(Standing.AVAILABLE), len(standings)
    wanted = placement.number_of_clusters or 0
    if budget.max_unavailable is not None:
        allowed = budget.max_unavailable.of(wanted) - (total - available)
    elif budget.min_available is not None:
        allowed = available - budget.min_available.of(wanted)
    else:
        allowed = 0
    return Numbers(available, total, wanted, allowed)
