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
References: TypeAlias = Callable[
    [Sequence[HubDocument], HubMoment], Callable[[Any, HubDocument], None]
]


@dataclass(frozen=True, slots=True)
class WrittenRow(Generic[Row]):
    """A row that was written, and what it was before; None for a new one."""

    document: HubDocument
    before: Row | None
    row: Row


def nothing_follows(_written: Sequence[WrittenRow[Any]], _moment: HubMoment) -> None:
    pass


@dataclass(frozen=True, slots=True)
class RowKind(Generic[Row]):
    """How the objects of some kinds become rows of a table; None is for what a kind does not have.

    `fill` sets the `columns` of a row, or returns False if nothing of the object can be shown: its row is
    deleted then, unless the kind `keeps` it. `references` reads once what the rows of a batch refer to, and
    returns what sets their columns about it, after `fill`. `change` sets the `bookkeeping` of a row from what
    it was before. Rows with a `uid` are replaced when another object has their name; `where` are the columns
    that are the same for all. Events are about the `noun`: the manifest, and the `conditions` of a row.
    `follow` is called with what was written.
    """

    model: type[Row]
    mirrored: tuple[str, ...]
    fill: Callable[[Any, HubDocument], bool]
    columns: tuple[str, ...]
    noun: str
    group: str = PLACEMENT_GROUP
    where: tuple[tuple[str, Any], ...] = ()
    is_namespaced: bool = False
    keeps: bool = False
    references: References | None = None
    change: Callable[[Any, Any], None] | None = None
    bookkeeping: tuple[str, ...] = ()
    conditions: Callable[[Any], Conditions] | None = None
    follow: Callable[[Sequence[WrittenRow[Any]], HubMoment], None] = nothing_follows
    delete: Callable[[Sequence[int], HubMoment], None] | None = None

    def key(self, row: Any) -> tuple[str, str]:
        return (row.namespace if self.is_namespaced else "", row.name)

    def has(self, column: str) -> bool:
        return any(field.name == column for field in self.model._meta.concrete_fields)

    def delete_rows(self, pks: Sequence[int], moment: HubMoment) -> None:
        if self.delete is not None:
            self.delete(pks, moment)
            return
        for part in batched(pks):
            self.model._default_manager.filter(pk__in=part).delete()


def project_rows(
    kind: RowKind[Row], documents: Sequence[HubDocument], moment: HubMoment
) -> None:
    """Write the rows of these objects where they differ, and what follows from them."""
    table: Any = kind.model._default_manager
    names = [one.row.name for one in documents]
    rows = table.filter(**dict(kind.where), name__in=names)
    there: dict[tuple[str, str], Any] = {kind.key(row): row for row in rows}
    refer = kind.references(documents, moment) if kind.references else None
    removed: list[int] = []
    pairs: list[tuple[HubDocument, Any, Any]] = []
    for one in documents:
        before = there.get((one.row.namespace, one.row.name))
        if before is not None and kind.has("uid") and before.uid != one.uid:
            removed.append(before.pk)
            before = None
        row: Any = copy(before) if before is not None else _new_row(kind, one)
        row.revision = one.revision
        row.updated_at = moment.now
        if kind.fill(row, one):
            if refer is not None:
                refer(row, one)
            pairs.append((one, before, row))
        elif before is not None and not kind.keeps:
            removed.append(before.pk)
    kind.delete_rows(removed, moment)

    own = tuple(filter(kind.has, ("revision", "updated_at")))
    written: list[WrittenRow[Any]] = write_rows(
        kind.model,
        pairs,
        columns=(*kind.columns, *own[:1]),
        bookkeeping=(*own[1:], *kind.bookkeeping),
        change=kind.change,
    )
    events = HubEvents(moment)
    for each in written:
        if each.before is None:
            continue
        manifests = (each.before.document, each.row.document)
        events.changed(kind.noun, each.document, *manifests)
        if kind.conditions is not None:
            conditions = map(kind.conditions, (each.before, each.row))
            events.reported(kind.noun, each.document, *conditions)
    events.record()
    kind.follow(written, moment)


def _new_row(kind: RowKind[Row], document: HubDocument) -> Row:
    place: dict[str, Any] = {**dict(kind.where), "name": document.row.name}
    if kind.is_namespaced:
        place["namespace"] = document.row.namespace
    if kind.has("uid"):
        place["uid"] = document.uid
    return kind.model(**place)


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


def remove_rows(kind: RowKind[Any], moment: HubMoment) -> int:
    """Delete the rows whose object the mirror has no more; return how many."""
    objects = MirroredObject.objects.filter(
        group=kind.group, kind__in=kind.mirrored
    ).values_list("namespace", "name")
    places = set(objects)
    rows = kind.model._default_manager.filter(**dict(kind.where))
    columns = ("pk", "namespace", "name") if kind.is_namespaced else ("pk", "name")
    gone = []
    for pk, *place in rows.values_list(*columns):
        key = tuple(place) if kind.is_namespaced else ("", *place)
        if key not in places:
            gone.append(pk)
    kind.delete_rows(gone, moment)
    return len(gone)
