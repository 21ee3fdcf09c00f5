"""Evictions and the budgets that hold them back (`spec/lifecycle.md` B.1.9)."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from placements.scheduling.door.fields import word_of
from placements.scheduling.door.fleet_documents import (
    FleetDocument,
    Name,
    WithAlpha,
    immutable_faults,
    parse_document,
)
from placements.scheduling.door.kinds import BUDGET_KIND, EVICTION_KIND
from placements.scheduling.door.parsing import Parsed, Raw
from placements.scheduling.door.strategy import Amount
from placements.scheduling.faults import Fault, Problem
from placements.scheduling.policy import PlacementType

_FIELDS = ("maxUnavailable", "minAvailable")


class DisruptionBudgetSpec(Parsed):
    """How many clusters evictions may take away, or have to leave: exactly one of the two is set."""

    noun: ClassVar[str] = "disruption budget"

    max_unavailable: Amount | None = None
    min_available: Amount | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """Exactly one of the two; with neither, nothing could ever be evicted and nobody would know why."""
        allowed = "maxUnavailable or minAvailable"
        if all(field in raw for field in _FIELDS):
            yield Problem(("minAvailable",), "conflict", "cannot stand beside maxUnavailable", allowed)
        if not any(field in raw for field in _FIELDS):
            yield Problem((), "required", "has neither maxUnavailable nor minAvailable", allowed)


class ClusterResourcePlacementDisruptionBudget(FleetDocument):
    """A budget for the placement of the same name."""

    noun: ClassVar[str] = BUDGET_KIND

    api_version: WithAlpha
    kind: Annotated[str, word_of(BUDGET_KIND)]
    spec: DisruptionBudgetSpec


class EvictionSpec(Parsed):
    """What is to leave which cluster."""

    noun: ClassVar[str] = "eviction"

    placement_name: Name
    cluster_name: Name


class ClusterResourcePlacementEviction(FleetDocument):
    """A wish that a placement leaves a cluster."""

    noun: ClassVar[str] = EVICTION_KIND

    api_version: WithAlpha
    kind: Annotated[str, word_of(EVICTION_KIND)]
    spec: EvictionSpec


def parse_disruption_budget(document: object) -> ClusterResourcePlacementDisruptionBudget:
    """Turn a document of this kind into a value. Raises Faults."""
    return parse_document(ClusterResourcePlacementDisruptionBudget, document)


def parse_eviction(document: object) -> ClusterResourcePlacementEviction:
    """Turn a document of this kind into a value. Raises Faults."""
    return parse_document(ClusterResourcePlacementEviction, document)


def eviction_change_faults(
    before: ClusterResourcePlacementEviction, after: ClusterResourcePlacementEviction
) -> list[Fault]:
    """List every forbidden change of an eviction: its whole spec stays."""
    return list(immutable_faults(before, after, ("spec", "placementName"), ("spec", "clusterName")))


def budget_faults(budget: DisruptionBudgetSpec, placement_type: PlacementType) -> list[Fault]:
    """List what a budget may not say of a placement of this type: PickAll knows no number to measure by."""
    if placement_type is not PlacementType.PICK_ALL:
        return []
    allowed = "minAvailable, a whole number"
    found = []
    if budget.max_unavailable is not None:
        message = "does not go with a placement that picks every cluster"
        found.append(Fault("spec.maxUnavailable", "forbidden-for-type", message, allowed))
    if budget.min_available is not None and budget.min_available.is_percent:
        message = "cannot be a percentage for a placement that picks every cluster"
        found.append(Fault("spec.minAvailable", "forbidden-for-type", message, allowed))
    return found
