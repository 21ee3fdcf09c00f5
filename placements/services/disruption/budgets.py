"""Saving and deleting disruption budgets (`rules/lifecycle.md#disruption-budgets`)."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.apimachinery.errors import (
    raise_errors,
)
from fleetui.concurrency import retry_on_conflict
from fleetui.errors import UnknownObject
from placements.manifests.disruption import budget_errors, parse_disruption_budget
from placements.manifests.policy import PlacementType
from placements.models import DisruptionBudget, Placement
from placements.services.results import SaveResult, delete_row, locked_row, save_row
from placements.services.teams import check_placement

BUDGET = "budget"


class UnknownBudgetError(UnknownObject):
    problem_type = "unknown-budget"

    def __init__(self, name: str) -> None:
        super().__init__(f"no disruption budget is named {name!r}")
        self.name = name


@retry_on_conflict
def save_budget(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> SaveResult[DisruptionBudget]:
    """Create a budget or change it; the same again changes nothing. Its placement may be created later.

    Raise InvalidManifest, also if it does not fit the placement's type, and RevisionConflict.
    """
    parsed = parse_disruption_budget(dict(document))
    name = parsed.metadata.name
    check_placement(by, name)
    current = locked_row(DisruptionBudget, BUDGET, expected, name=name)
    placement_type = (
        Placement.objects.filter(full_name=name)
        .values_list("placement_type", flat=True)
        .first()
    )
    errors = (
        budget_errors(parsed.spec, PlacementType(placement_type))
        if placement_type
        else []
    )
    raise_errors(errors)
    row = current or DisruptionBudget(name=name, created_at=now, revision=0)
    return save_row(row, BUDGET, document, by=by, now=now)


@transaction.atomic
def delete_budget(
    name: str, *, by: User | None, now: datetime, expected: int | None = None
) -> None:
    """Delete a budget. Raise UnknownBudgetError, RevisionConflict."""
    check_placement(by, name)
    current = locked_row(DisruptionBudget, BUDGET, expected, name=name)
    if current is None:
        raise UnknownBudgetError(name)
    delete_row(current, BUDGET, by=by, now=now)
