"""Saving and deleting of manifests: what every kind has in common, and the results."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Model

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import ManifestWarning
from fleetui.apimachinery.metadata import (
    next_generation,
    with_hub_metadata,
    without_hub_metadata,
)
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import without_secrets
from fleetui.audit import (
    record_event,
)
from fleetui.bulk import first_or_raise
from fleetui.concurrency import check_revision
from fleetui.errors import UnknownObject
from placements.manifests.ocm import OCM_KIND
from placements.manifests.placement import ClusterResourcePlacement
from placements.models import Placement

Row = TypeVar("Row", bound=Model)

CONFIRMATION = "unschedule-everything"
"""What every entry point sends to confirm that a placement may leave all of its clusters."""
PLACEMENT = "placement"


class UnknownPlacementError(UnknownObject):
    problem_type = "unknown-placement"

    def __init__(self, name: str) -> None:
        super().__init__(f"no placement is named {name!r}")
        self.name = name


def get_placement(name: str) -> Placement:
    """Return a placement by its full name. Raise UnknownPlacementError."""
    rows = Placement.objects.filter(full_name=name)
    return first_or_raise(rows, UnknownPlacementError(name))


BESIDE = "~ocm"
"""Ends the full name of an OCM Placement beside a placement of KubeFleet; no name of Kubernetes has a `~`."""


def name_on_hub(manifest: ClusterResourcePlacement) -> str:
    """Return the full name under which a placement is saved, or would be.

    An OCM Placement that was saved before namespaces were a part of its name keeps the name that it had: what
    it has on clusters is marked with it, and would be removed as that of another placement. One whose name is
    that of a placement of KubeFleet has a full name of its own, and keeps that as well.
    """
    name = manifest.full_name
    if manifest.kind != OCM_KIND:
        return name
    beside, earlier = f"{name}{BESIDE}", manifest.metadata.name
    rows = Placement.objects.filter(full_name__in=(name, beside, earlier))
    documents = dict(rows.values_list("full_name", "document"))
    metadata = mapping_at(documents.get(earlier), "metadata")
    if manifest.namespace and metadata.get("namespace") == manifest.namespace:
        return earlier
    is_taken = name in documents and documents[name]["kind"] != OCM_KIND
    if is_taken or beside in documents:
        return beside
    return name


class OperationResult(StrEnum):
    """What an operation did with a manifest."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"


@contextmanager
def kept(placements: Collection[int]) -> Iterator[set[int]]:
    """Keep placements from being deleted while rows about them are written; give the keys that are there."""
    with transaction.atomic():
        rows = (
            Placement.objects.select_for_update(no_key=True)
            .filter(pk__in=placements)
            .order_by("pk")
        )
        yield set(rows.values_list("pk", flat=True))


@dataclass(frozen=True, slots=True)
class SaveResult(Generic[Row]):
    """The object that was saved, and what was accepted with a warning."""

    object: Row
    result: OperationResult
    warnings: tuple[ManifestWarning, ...] = ()


def stored_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a manifest as it is stored: as written, without what the hub sets."""
    content = without_hub_metadata(document)
    return {key: deepcopy(value) for key, value in content.items() if key != "status"}


def read_manifest(
    row: Any, manifest: Mapping[str, Any], status: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the manifest of an object, with its status where it has one, as it is read."""
    return with_hub_metadata(
        manifest,
        status,
        uid=str(row.uid),
        revision=row.revision,
        generation=row.spec_generation,
        created_at=row.created_at,
    )


def locked_row(
    model: type[Row], kind: str, expected: int | None, /, *, label: str = "", **key: str
) -> Row | None:
    """Lock the row of a manifest. Raise RevisionConflict when its revision is not the expected one."""
    row: Any = model._default_manager.select_for_update().filter(**key).first()
    check_revision(
        kind, label or key["name"], expected=expected, revision=revision_of(row)
    )
    return row


def revision_of(row: Any) -> int:
    """Return the revision of an object on the hub; 0 if it is not there."""
    return row.revision if row else 0


def document_of(row: Any) -> dict[str, Any] | None:
    """Return the manifest of an object on the hub; None if it is not there."""
    return row.document if row else None


def save_row(
    row: Any,
    kind: str,
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    label: str = "",
) -> SaveResult[Any]:
    """Save a manifest into its row; the same manifest again changes nothing. A new row has revision 0."""
    content = stored_document(document)
    before, result = None, OperationResult.CREATED
    if row.revision:
        before, result = plain_manifest(row.document), OperationResult.CHANGED
        if before == content:
            return SaveResult(row, OperationResult.UNCHANGED)
        row.spec_generation = next_generation(row.spec_generation, before, content)
    row.document, row.updated_at, row.revision = content, now, row.revision + 1
    row.save()
    hidden = without_secrets(before), without_secrets(content, before=before)
    record_event(
        result,
        kind,
        label or row.name,
        row.revision,
        before=hidden[0],
        after=hidden[1],
        by=by,
        now=now,
    )
    return SaveResult(row, result)


def delete_row(
    row: Any, kind: str, *, by: User | None, now: datetime, label: str = ""
) -> None:
    before = row.document
    row.delete()
    record_event(
        "deleted",
        kind,
        label or row.name,
        row.revision + 1,
        before=before,
        by=by,
        now=now,
    )
