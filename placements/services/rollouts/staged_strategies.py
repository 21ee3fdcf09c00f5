"""Staged update strategies: save and delete; runs keep the copy that they started with."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.concurrency import retry_on_conflict
from fleetui.errors import UnknownObject
from placements.manifests.staged_update import parse_staged_strategy
from placements.models import StagedStrategy
from placements.services.results import SaveResult, delete_row, locked_row, save_row
from placements.services.teams import check_documents

STAGED_STRATEGY = "staged-strategy"


class UnknownStrategyError(UnknownObject):
    problem_type = "unknown-strategy"

    def __init__(self, name: str) -> None:
        super().__init__(f"no staged update strategy is named {name!r}")


@retry_on_conflict
def save_strategy(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> SaveResult[StagedStrategy]:
    """Create a strategy or change it; the same again changes nothing.

    Raise InvalidManifest, RevisionConflict.
    """
    manifest = parse_staged_strategy(dict(document))
    label, key = (
        manifest.full_name,
        {"namespace": manifest.namespace, "name": manifest.metadata.name},
    )
    current = locked_row(StagedStrategy, STAGED_STRATEGY, expected, label=label, **key)
    check_documents(
        by, f"strategy {label}", current.document if current else None, dict(document)
    )
    row = current or StagedStrategy(**key, created_at=now, revision=0)
    return save_row(row, STAGED_STRATEGY, document, by=by, now=now, label=label)


@transaction.atomic
def delete_strategy(
    name: str, *, by: User | None, now: datetime, expected: int | None = None
) -> None:
    """Delete a strategy; runs keep their copy. Raise UnknownStrategyError, RevisionConflict."""
    row = locked_row(
        StagedStrategy, STAGED_STRATEGY, expected, label=name, full_name=name
    )
    if row is None:
        raise UnknownStrategyError(name)
    check_documents(by, f"strategy {name}", row.document)
    delete_row(row, STAGED_STRATEGY, by=by, now=now, label=name)
