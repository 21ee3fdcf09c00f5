"""Saving and deleting the strategies of staged updates; runs keep the copy that they began with."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.events import Happening, record
from fleetui.revisions import once_more_when_beaten, refuse_stale
from placements.models import StagedStrategy
from placements.operations.did import Did
from placements.scheduling.door.staged_documents import parse_staged_strategy

STAGED_STRATEGY = "staged-strategy"


class UnknownStrategyError(LookupError):
    """No strategy of staged updates has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no strategy of staged updates is named {name!r}")


@dataclass(frozen=True, slots=True)
class SavedStrategy:
    """What the operation did."""

    strategy: StagedStrategy
    did: Did


@once_more_when_beaten
def save_strategy(
    document: Mapping[str, Any], *, by: User | None, now: datetime, expected: int | None = None
) -> SavedStrategy:
    """Create a strategy or change it; the same again changes nothing. Raises Faults, StaleEditError."""
    name = parse_staged_strategy(dict(document)).metadata.name
    written = {key: deepcopy(value) for key, value in document.items() if key != "status"}
    current = StagedStrategy.objects.select_for_update().filter(name=name).first()
    refuse_stale(STAGED_STRATEGY, name, expected=expected, revision=current.revision if current else 0)
    if current and current.document == written:
        return SavedStrategy(current, Did.UNCHANGED)
    did, before = (Did.CHANGED, current.document) if current else (Did.CREATED, None)
    row = current or StagedStrategy(name=name, created_at=now, revision=0)
    row.document, row.updated_at, row.revision = written, now, row.revision + 1
    row.save()
    happening = Happening(did, STAGED_STRATEGY, name, revision=row.revision, before=before, after=written)
    record(happening, by=by, now=now)
    return SavedStrategy(row, did)


@transaction.atomic
def delete_strategy(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> None:
    """Delete a strategy; runs that began with it go on. Raises UnknownStrategyError, StaleEditError."""
    row = StagedStrategy.objects.select_for_update().filter(name=name).first()
    if row is None:
        raise UnknownStrategyError(name)
    refuse_stale(STAGED_STRATEGY, name, expected=expected, revision=row.revision)
    row.delete()
    happening = Happening("deleted", STAGED_STRATEGY, name, revision=row.revision + 1, before=row.document)
    record(happening, by=by, now=now)
