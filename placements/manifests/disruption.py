"""Evictions and the budgets that hold them back (`rules/lifecycle.md#disruption-budgets`)."""

from collections.abc import Iterator
from functools import partial

from fleetui.apimachinery.errors import ErrorDetail, FieldError
from fleetui.apimachinery.fields import (
    FleetDocument,
    Name,
    WithAlpha,
    immutable_errors,
    parse_document,
)
from fleetui.apimachinery.model import ManifestModel, Raw, conflict
from placements.manifests.policy import PlacementType
from placements.manifests.strategy import Amount

_FIELDS = ("maxUnavailable", "minAvailable")


class DisruptionBudgetSpec(ManifestModel):
    """How many clusters evictions may remove, or have to leave: exactly one of the two is set."""

    max_unavailable: Amount | None = None
    min_available: Amount | None = None

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        """Exactly one of the two: with neither, nothing could ever be evicted, without any message."""
        allowed = "maxUnavailable or minAvailable"
        if all(field in raw for field in _FIELDS):
            yield conflict(
                "minAvailable", "not allowed together with maxUnavailable", allowed
            )
        if not any(field in raw for field in _FIELDS):
            yield ErrorDetail(
                (),
                "required",
                "Required value: maxUnavailable or minAvailable",
                allowed,
            )


class ClusterResourcePlacementDisruptionBudget(FleetDocument):
    """A budget for the placement of the same name."""

    api_version: WithAlpha
    spec: DisruptionBudgetSpec


class EvictionSpec(ManifestModel):
    placement_name: Name
    cluster_name: Name


class ClusterResourcePlacementEviction(FleetDocument):
    """A request to remove a placement from a cluster."""

    api_version: WithAlpha
    spec: EvictionSpec


parse_disruption_budget = partial(
    parse_document, ClusterResourcePlacementDisruptionBudget
)
parse_eviction = partial(parse_document, ClusterResourcePlacementEviction)


def eviction_change_errors(
    before: ClusterResourcePlacementEviction, after: ClusterResourcePlacementEviction
) -> list[FieldError]:
    """Return an error for every forbidden change of an eviction: its whole spec is immutable."""
    return list(
        immutable_errors(
            before, after, ("spec", "placementName"), ("spec", "clusterName")
        )
    )


def budget_errors(
    budget: DisruptionBudgetSpec, placement_type: PlacementType
) -> list[FieldError]:
    """Return the errors of a budget for a placement of this type: PickAll has no number to measure by."""
    if placement_type is not PlacementType.PICK_ALL:
        return []
    allowed = "minAvailable as an integer"
    errors = []
    if budget.max_unavailable is not None:
        message = "Forbidden: not allowed for placementType PickAll"
        errors.append(
            FieldError("spec.maxUnavailable", "forbidden-for-type", message, allowed)
        )
    if budget.min_available is not None and budget.min_available.is_percent:
        message = "Invalid value: must be an integer for placementType PickAll"
        errors.append(
            FieldError("spec.minAvailable", "forbidden-for-type", message, allowed)
        )
    return errors
