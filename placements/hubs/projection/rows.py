"""Rows that are made from objects of a hub: the table of a kind, and the loop that writes what differs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from clusters.models import HubRow, MirroredObject
from fleetui.bulk import BATCH_SIZE, batched
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP
from placements.hubs.projection.documents import HubDocument, HubMoment
from placements.hubs.projection.events import HubEvents

Row = TypeVar("Row", bound=HubRow)
Conditions: TypeAlias = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class WrittenRow(Generic[Row]):
    """A row that was written, and what it was before; None for a new one."""

    document: HubDocument
    before: Row | None
    row: Row


class RowKind(Generic[Row]):
    """How a batch of objects of some kinds becomes rows of a table.

    `where` are the columns that are the same for all rows, `columns` those that are compared, `bookkeeping`
    others that are written with them. The row of an object that is not understood any more is deleted,
    unless the kind `keeps` it. Rows that have a UID are replaced when another object has their name. Events
    are about the `noun`.
    """

    model: type[Row]
    mirrored: tuple[str, ...]
    noun: str
    columns: tuple[str, ...]
    bookkeeping: tuple[str, ...] = ()
    where: Mapping[str, Any] = {}
    group = PLACEMENT_GROUP
    is_namespaced = False
    has_uid = True
    keeps = False

    def __init__(self, documents: Sequence[HubDocument], moment: HubMoment) -> None:
        self.documents = documents
        self.moment = moment

    def fill(self, row: Any, document: HubDocument) -> bool:
        """Set the columns of a row; return False if nothing of the object can be shown."""
        raise NotImplementedError

    def change(self, before: Any, row: Any) -> None:
        """Set the bookkeeping of a row that is not as before."""

    def conditions(self, row: Any) -> Conditions:  # noqa: ARG002 -- of kinds that have some
        """Return the conditions of a row whose changes are events."""
        return ()

    def follow(self, written: Sequence[WrittenRow[Any]]) -> None:
        """Write what follows from rows that were written."""

    def delete(self, pks: Sequence[int]) -> None:
        for part in batched(pks):
            self.model._default_manager.filter(pk__in=part).delete()

    @classmethod
    def project(cls, documents: Sequence[HubDocument], moment: HubMoment) -> None:
        cls(documents, moment).write()

    def write(self) -> None:
        """Write the rows of the objects where they differ, and what follows from them."""
        names = [one.row.name for one in self.documents]
        there = {self._key(row): row for row in self._table.filter(name__in=names)}
        removed: list[int] = []
        pairs: list[tuple[HubDocument, Any, Any]] = []
        for one in self.documents:
            before = there.get((one.row.namespace, one.row.name))
            if before is not None and self.has_uid and before.uid != one.uid:
                removed.append(before.pk)
                before = None
            row = copy(before) if before is not None else self._new_row(one)
            row.revision = one.revision
            row.updated_at = self.moment.now
            if self.fill(row, one):
                pairs.append((one, before, row))
            elif before is not None and not self.keeps:
                removed.append(before.pk)
        self.delete(removed)

        written: list[WrittenRow[Any]] = write_rows(
            self.model,
            pairs,
            columns=self.columns,
            bookkeeping=self.bookkeeping,
            change=self.change,
        )
        events = HubEvents(self.moment)
        for each in written:
            if each.before is not None:
                manifests = (each.before.document, each.row.document)
                conditions = map(self.conditions, (each.before, each.row))
                events.changed(self.noun, each.document, *manifests)
                events.reported(self.noun, each.document, *conditions)
        events.record()
        self.follow(written)

    @property
    def _table(self) -> Any:
        return self.model._default_manager.filter(**self.where)

    def _key(self, row: Any) -> tuple[str, str]:
        return (row.namespace if self.is_namespaced else "", row.name)

    def _new_row(self, document: HubDocument) -> Any:
        place = {**self.where, "name": document.row.name}
        if self.has_uid:
            place["uid"] = document.uid
        if self.is_namespaced:
            place["namespace"] = document.row.namespace
        return self.model(**place)

    @classmethod
    def remove(cls, moment: HubMoment) -> int:
        """Delete the rows whose object the mirror has no more; return how many."""
        kind = cls((), moment)
        objects = MirroredObject.objects.filter(group=cls.group, kind__in=cls.mirrored)
        places = set(objects.values_list("namespace", "name"))
        columns = ("name", "namespace") if cls.is_namespaced else ("name",)
        gone = [
            row.pk for row in kind._table.only(*columns) if kind._key(row) not in places
        ]
        kind.delete(gone)
        return len(gone)


def write_rows(
    model: type[Row],
    rows: Iterable[tuple[HubDocument, Row | None, Row]],
    *,
    columns: Sequence[str],
    bookkeeping: Sequence[str] = (),
    change: Callable[[Any, Any], None] | None = None,
) -> list[WrittenRow[Row]]:
    """Write the rows that are new, or differ in these columns from before; return them."""
    written: list[WrittenRow[Row]] = []
    for document, before, row in rows:
        if before is not None:
            if all(getattr(before, name) == getattr(row, name) for name in columns):
                continue
            if change is not None:
                change(before, row)
        written.append(WrittenRow(document, before, row))
    table: Any = model._default_manager
    table.bulk_create(
        [one.row for one in written if one.before is None], batch_size=BATCH_SIZE
    )
    table.bulk_create(
        [one.row for one in written if one.before is not None],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=[name.removesuffix("_id") for name in (*columns, *bookkeeping)],
        batch_size=BATCH_SIZE,
    )
    return written
