"""Saving and deleting disruption budgets (`spec/lifecycle.md` A.14, B.1.9)."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.events import Happening, record
from fleetui.revisions import once_more_when_beaten, refuse_stale
from placements.models import DisruptionBudget, Placement
from placements.operations.placements import Did
from placements.scheduling.door.disruption_documents import (
    DisruptionBudgetSpec,
    budget_faults,
    parse_disruption_budget,
)
from placements.scheduling.faults import Faults
from placements.scheduling.policy import PlacementType

BUDGET = "budget"


class UnknownBudgetError(LookupError):
    """No disruption budget has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no disruption budget is named {name!r}")
        self.name = name


@dataclass(frozen=True, slots=True)
class SavedBudget:
    """What the operation did."""

    budget: DisruptionBudget
    did: Did


@once_more_when_beaten
def save_budget(
    document: Mapping[str, Any], *, by: User | None, now: datetime, expected: int | None = None
) -> SavedBudget:
    """Create a budget or change it; the same again changes nothing. Its placement may come later.

    Raises Faults, also where it does not go with the placement's type, and StaleEditError.
    """
    parsed = parse_disruption_budget(dict(document))
    name = parsed.metadata.name
    written = {key: deepcopy(value) for key, value in document.items() if key != "status"}
    current = DisruptionBudget.objects.select_for_update().filter(name=name).first()
    refuse_stale(BUDGET, name, expected=expected, revision=current.revision if current else 0)
    _refuse_other_type(name, parsed.spec)
    if current is None:
        created = DisruptionBudget.objects.create(name=name, document=written, created_at=now, updated_at=now)
        record(Happening("created", BUDGET, name, revision=1, after=written), by=by, now=now)
        return SavedBudget(created, Did.CREATED)
    if current.document == written:
        return SavedBudget(current, Did.UNCHANGED)
    before, current.document = current.document, written
    current.updated_at, current.revision = now, current.revision + 1
    current.save(update_fields=["document", "updated_at", "revision"])
    happening = Happening("changed", BUDGET, name, revision=current.revision, before=before, after=written)
    record(happening, by=by, now=now)
    return SavedBudget(current, Did.CHANGED)


def _refuse_other_type(name: str, spec: DisruptionBudgetSpec) -> None:
    found = Placement.objects.filter(name=name).values_list("placement_type", flat=True).first()
    faults = budget_faults(spec, PlacementType(found)) if found else []
    if faults:
        raise Faults(faults)


@transaction.atomic
def delete_budget(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> None:
    """Delete a budget: nothing holds evictions back any more. Raises UnknownBudgetError, StaleEditError."""
    current = DisruptionBudget.objects.select_for_update().filter(name=name).first()
    if current is None:
        raise UnknownBudgetError(name)
    refuse_stale(BUDGET, name, expected=expected, revision=current.revision)
    current.delete()
    happening = Happening("deleted", BUDGET, name, revision=current.revision + 1, before=current.document)
    record(happening, by=by, now=now)
