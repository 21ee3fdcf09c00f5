"""Rows that are created from one object each: written where they differ, deleted with their object."""

from collections.abc import Callable, Collection, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from clusters.models import HubRow, MirroredObject
from fleetui.bulk import BATCH_SIZE, batched
from placements.hubs.projection.documents import HubDocument, HubMoment

Row = TypeVar("Row", bound=HubRow)


@dataclass(frozen=True, slots=True)
class WrittenRow(Generic[Row]):
    """A row that was written, and what it was before; None for a new one."""

    document: HubDocument
    before: Row | None
    row: Row


@dataclass(frozen=True, slots=True)
class RowKind(Generic[Row]):
    """How the objects of one kind become rows of a table.

    `fill` sets the `columns` of a row, or returns False if nothing of the object can be shown. Rows with a
    `uid` are deleted when another object has their name; `where` are the columns that are the same for all.
    `counter` is what pages poll.
    """

    model: type[Row]
    fill: Callable[[Any, HubDocument], bool]
    columns: tuple[str, ...]
    where: tuple[tuple[str, str], ...] = ()
    is_namespaced: bool = False
    counter: str = ""

    def key(self, row: Any) -> tuple[str, str]:
        return (row.namespace if self.is_namespaced else "", row.name)

    def has(self, column: str) -> bool:
        return any(field.name == column for field in self.model._meta.concrete_fields)


def write_rows(
    kind: RowKind[Row], documents: Sequence[HubDocument], *, now: datetime
) -> list[WrittenRow[Row]]:
    """Write the rows of these objects where they differ; return those that were written."""
    where, names = dict(kind.where), [one.row.name for one in documents]
    table: Any = kind.model._default_manager
    rows = table.filter(**where, name__in=names)
    there = {kind.key(row): row for row in rows}
    replaced: list[int] = []
    written_rows: list[WrittenRow[Row]] = []
    for one in documents:
        before: Any = there.get((one.row.namespace, one.row.name))
        if before is not None and kind.has("uid") and before.uid != one.uid:
            replaced.append(before.pk)
            before = None
        row: Any = copy(before) if before is not None else _new_row(kind, one)
        row.revision = one.revision
        if not kind.fill(row, one):
            replaced += [before.pk] if before is not None else []
            continue
        if before is not None:
            columns = (
                (*kind.columns, "revision") if kind.has("revision") else kind.columns
            )
            if all(getattr(before, name) == getattr(row, name) for name in columns):
                continue
            if kind.counter:
                setattr(row, kind.counter, getattr(row, kind.counter) + 1)
        if kind.has("updated_at"):
            row.updated_at = now
        written_rows.append(WrittenRow(one, before, row))
    table.filter(pk__in=replaced).delete()
    table.bulk_create(
        [one.row for one in written_rows if one.before is None], batch_size=BATCH_SIZE
    )
    bookkeeping = [
        name
        for name in ("revision", "updated_at", kind.counter)
        if name and kind.has(name)
    ]
    table.bulk_create(
        [one.row for one in written_rows if one.before is not None],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=[
            name.removesuffix("_id") for name in (*kind.columns, *bookkeeping)
        ],
        batch_size=BATCH_SIZE,
    )
    return written_rows


def _new_row(kind: RowKind[Row], document: HubDocument) -> Row:
    place: dict[str, Any] = {**dict(kind.where), "name": document.row.name}
    if kind.is_namespaced:
        place["namespace"] = document.row.namespace
    if kind.has("uid"):
        place["uid"] = document.uid
    return kind.model(**place)


def remove_rows(
    kind: RowKind[Any], _moment: HubMoment, *, group: str, mirrored: Collection[str]
) -> int:
    """Delete the rows whose object the mirror has no more; return how many."""
    objects = MirroredObject.objects.filter(group=group, kind__in=mirrored)
    places = set(objects.values_list("namespace", "name"))
    columns = ("pk", "namespace", "name") if kind.is_namespaced else ("pk", "name")
    rows = kind.model._default_manager.filter(**dict(kind.where)).values_list(*columns)
    gone = [
        pk
        for pk, *place in rows
        if (tuple(place) if kind.is_namespaced else ("", *place)) not in places
    ]
    for part in batched(gone):
        kind.model._default_manager.filter(pk__in=part).delete()
    return len(gone)
