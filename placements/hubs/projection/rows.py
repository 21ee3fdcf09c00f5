"""Objects of a live hub, read leniently, and the rows and events that are made from them."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import NAMESPACE_OID, UUID, uuid5

from django.db import DataError, IntegrityError

from clusters.hub_state import HubState
from clusters.models import Hub, HubRow, MirroredObject
from fleetui.apimachinery.errors import InvalidManifest, split_path
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.apimachinery.words import full_name
from fleetui.audit import AuditEvent, record_of_others
from fleetui.bulk import BATCH_SIZE, batched
from placements.hubs.kinds.base import Manifest, moment_of, text_of
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP
from placements.hubs.queries import state_of
from placements.hubs.trimming import unpack

FAULTS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    DataError,
    IntegrityError,
)
"""What an unexpected object makes a projection raise; the object is marked, and others continue."""
MOST_PATHS = 20
"""Paths that are recorded for one object; the first ones are enough to see what is wrong."""


@dataclass(frozen=True, slots=True)
class HubMoment:
    """A moment on our clock and on that of the hub; while the hub is not live, eligibility is frozen.

    Without `has_events` nothing has changed on the hub: rows are made again from the same objects.
    """

    now: datetime
    hub_now: datetime
    is_live: bool
    has_events: bool = True

    @classmethod
    def of(
        cls,
        hub: Hub,
        *,
        now: datetime,
        has_events: bool = True,
    ) -> "HubMoment":
        state, _, _ = state_of(hub, now=now)
        offset = timedelta(seconds=hub.clock_offset_seconds or 0.0)
        return cls(now, now + offset, state == HubState.LIVE, has_events)


@dataclass(slots=True)
class HubDocument:
    """A mirrored object and its content; `not_understood` gathers the paths of what is left out.

    `error` is the reason why no row is created from it.
    """

    row: MirroredObject
    content: Manifest
    not_understood: list[str] = field(default_factory=list)
    error: str = ""

    @classmethod
    def of(cls, row: MirroredObject) -> "HubDocument":
        return cls(row, unpack(bytes(row.manifest)))

    @property
    def uid(self) -> UUID:
        try:
            return UUID(self.row.uid)
        except ValueError:
            return uuid5(NAMESPACE_OID, self.row.uid)

    @property
    def revision(self) -> int:
        """Return the generation, which the API server gives every object whose definition has a schema."""
        return self.row.generation or 1

    @property
    def full_name(self) -> str:
        return full_name(self.row.namespace, self.row.name)

    @property
    def spec(self) -> Manifest:
        return mapping_at(self.content, "spec")

    @property
    def created_at(self) -> datetime:
        return self.moment("metadata", "creationTimestamp") or self.row.seen_at

    @property
    def deleting_since(self) -> datetime | None:
        if not self.row.is_deleting:
            return None
        return self.moment("metadata", "deletionTimestamp") or self.row.seen_at

    def reject(self, path: str) -> None:
        if path not in self.not_understood and len(self.not_understood) < MOST_PATHS:
            self.not_understood.append(path)

    def moment(self, *keys: str) -> datetime | None:
        return self.moment_in(
            mapping_at(self.content, *keys[:-1]), keys[-1], path=".".join(keys)
        )

    def moment_in(
        self,
        values: Manifest,
        key: str,
        *,
        path: str,
    ) -> datetime | None:
        value = values.get(key)
        moment = moment_of(value)
        if value is not None and moment is None:
            self.reject(path)
        return moment

    def texts(self, *keys: str) -> dict[str, str]:
        path = ".".join(keys)
        texts = {}
        for name, value in mapping_at(self.content, *keys).items():
            if isinstance(value, str):
                texts[name] = value
            else:
                self.reject(f"{path}.{name}")
        return texts

    def conditions(self, *keys: str) -> dict[str, Mapping[str, Any]]:
        return self.conditions_in(
            mapping_at(self.content, *keys[:-1]), keys[-1], path=".".join(keys)
        )

    def conditions_in(
        self,
        values: Manifest,
        key: str,
        *,
        path: str,
    ) -> dict[str, Mapping[str, Any]]:
        conditions = {}
        for index, item in enumerate(items_at(values, key)):
            condition = mapping_at(item)
            kind = condition.get("type")
            status = condition.get("status")
            if isinstance(kind, str) and isinstance(status, str):
                conditions[kind] = condition
            else:
                self.reject(f"{path}[{index}]")
        return conditions

    def transition(
        self,
        values: Manifest,
        kind: str,
        *,
        path: str,
        status: str = "True",
    ) -> datetime | None:
        """Return since when a condition of these values has a status; None if it has another one."""
        condition = self.conditions_in(
            values, "conditions", path=f"{path}.conditions"
        ).get(kind, {})
        if condition.get("status") != status:
            return None
        at = self.moment_in(
            condition, "lastTransitionTime", path=f"{path}.conditions.{kind}"
        )
        return at or self.created_at

    def manager(self, part: str, *, without: Collection[str] = ()) -> str:
        """Return who wrote `metadata`, `spec` or `status` last; "" if managed fields do not have it."""
        entries = [
            managed_field
            for managed_field in map(
                mapping_at, items_at(self.content, "metadata", "managedFields")
            )
            if part in items_at(managed_field, "paths")
            and managed_field.get("manager") not in (None, *without)
        ]
        newest = max(entries, key=lambda one: str(one.get("time") or ""), default={})
        return text_of(newest.get("manager"), longest=128)

    def manifest(self, spec: Manifest) -> dict[str, Any]:
        """Return the manifest as its author could have written it, with this spec."""
        metadata: dict[str, Any] = {"name": self.row.name}
        if self.row.namespace:
            metadata["namespace"] = self.row.namespace
        for key in ("labels", "annotations"):
            texts = self.texts("metadata", key)
            if texts:
                metadata[key] = texts
        return {
            "apiVersion": self.content["apiVersion"],
            "kind": self.row.kind,
            "metadata": metadata,
            "spec": dict(spec),
        }


def save_marks(documents: Iterable[HubDocument]) -> None:
    """Write what is not understood of these objects, and why they have no row, where that changed."""
    marked = []
    for document in documents:
        row = document.row
        if (row.not_understood, row.projection_error) != (
            document.not_understood,
            document.error,
        ):
            row.not_understood = document.not_understood
            row.projection_error = document.error
            row.is_unresolved = bool(document.not_understood or document.error)
            marked.append(row)
    MirroredObject.objects.bulk_update(
        marked, ["not_understood", "projection_error", "is_unresolved"]
    )


CHANGED = "changed on the hub"
REPORTED = "reported"
APPROVED = "approved"
HUB = "hub"
"""Who changed something on a hub whose managed fields do not have it."""
_LONGEST_MESSAGE = 4096
Conditions: TypeAlias = Iterable[Mapping[str, Any]]


class HubEvents:
    """The events of one batch, each by the manager that wrote the part; all are recorded at once."""

    def __init__(self, moment: HubMoment) -> None:
        self._moment = moment
        self._events: list[tuple[AuditEvent, str]] = []

    def changed(
        self,
        kind: str,
        document: HubDocument,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
    ) -> None:
        if before == after:
            return
        part = "spec" if before.get("spec") != after.get("spec") else "metadata"
        event = AuditEvent(
            CHANGED,
            kind,
            document.full_name,
            document.revision,
            before=before,
            after=after,
        )
        self._events.append((event, document.manager(part)))

    def reported(
        self,
        kind: str,
        document: HubDocument,
        before: Conditions,
        after: Conditions,
    ) -> None:
        """Add an event with the conditions whose status, reason or message differ."""
        old = _by_type(before, kind=document.row.kind)
        new = _by_type(after, kind=document.row.kind)
        names = [one for one in {**old, **new} if old.get(one) != new.get(one)]
        if names:
            values = [
                {name: facts.get(name, {}) for name in names} for facts in (old, new)
            ]
            event = AuditEvent(
                REPORTED, kind, document.full_name, before=values[0], after=values[1]
            )
            self._events.append((event, document.manager("status")))

    def add(self, event: AuditEvent, *, by: str) -> None:
        self._events.append((event, by))

    def record(self) -> None:
        """Write the events, unless rows are only made again."""
        if self._moment.has_events:
            named = [(event, manager or HUB) for event, manager in self._events]
            record_of_others(named, now=self._moment.now)


def _by_type(conditions: Conditions, *, kind: str) -> dict[str, dict[str, str]]:
    """Return the conditions for an event by type without the kind of the object."""
    keys = ("status", "reason", "message")
    return {
        str(condition.get("type")).removeprefix(kind): {
            key: str(condition.get(key) or "")[:_LONGEST_MESSAGE] for key in keys
        }
        for condition in conditions
    }


Row = TypeVar("Row", bound=HubRow)


@dataclass(frozen=True, slots=True)
class WrittenRow(Generic[Row]):
    """A row that was written, and what it was before; None for a new one."""

    document: HubDocument
    before: Row | None
    row: Row


class RowKind(Generic[Row]):
    """How a batch of objects of some kinds becomes rows of a table.

    `where` are the columns that are the same for all rows, `columns` those that are compared, `bookkeeping`
    others that are written with them. `parse` reads the manifest of an object. The row of one that is not
    understood any more is deleted, unless the kind `keeps` it. Rows that have a UID are replaced when another
    object has their name. Events are about the `noun`.
    """

    model: type[Row]
    mirrored: tuple[str, ...]
    noun: str
    columns: tuple[str, ...]
    bookkeeping: tuple[str, ...] = ()
    where: Mapping[str, Any] = {}
    parse: Callable[[object], Any]
    group = PLACEMENT_GROUP
    is_namespaced = False
    has_uid = True
    keeps = False

    def __init__(self, documents: Sequence[HubDocument], moment: HubMoment) -> None:
        self.documents = documents
        self.moment = moment

    def fill(self, row: Any, document: HubDocument) -> bool:
        """Set the columns of a row; return False if nothing of the object can be shown."""
        pair = understood(document, self.parse)
        if pair is None:
            return False
        parsed, row.document = pair
        row.created_at = document.created_at
        self.set_columns(row, document, parsed)
        return True

    def set_columns(self, row: Any, document: HubDocument, parsed: Any) -> None:
        """Set the columns of a row beside its manifest, and when its object was created."""

    def change(self, before: Any, row: Any) -> None:
        """Set the bookkeeping of a row that is not as before."""

    def conditions(self, row: Any) -> Conditions:
        """Return the conditions of a row whose changes are events: those that it has from the hub."""
        conditions: Conditions = getattr(row, "hub_conditions", ())
        return conditions

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
        names = [document.row.name for document in self.documents]
        there = {self._key(row): row for row in self._table.filter(name__in=names)}
        removed: list[int] = []
        pairs: list[tuple[HubDocument, Any, Any]] = []
        for document in self.documents:
            before = there.get((document.row.namespace, document.row.name))
            if before is not None and self.has_uid and before.uid != document.uid:
                removed.append(before.pk)
                before = None
            row = copy(before) if before is not None else self._new_row(document)
            row.revision = document.revision
            row.updated_at = self.moment.now
            if self.fill(row, document):
                pairs.append((document, before, row))
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
        self._record_events(written)
        self.follow(written)

    def _record_events(self, written: Sequence[WrittenRow[Any]]) -> None:
        events = HubEvents(self.moment)
        for row in written:
            if row.before is not None:
                manifests = (row.before.document, row.row.document)
                conditions = map(self.conditions, (row.before, row.row))
                events.changed(self.noun, row.document, *manifests)
                events.reported(self.noun, row.document, *conditions)
        events.record()

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
        [row.row for row in written if row.before is None], batch_size=BATCH_SIZE
    )
    table.bulk_create(
        [row.row for row in written if row.before is not None],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=[name.removesuffix("_id") for name in (*columns, *bookkeeping)],
        batch_size=BATCH_SIZE,
    )
    return written


_ROUNDS = 8
Parsed = TypeVar("Parsed")


def understood(
    document: HubDocument,
    parse: Callable[[object], Parsed],
    stored: dict[str, Any] | None = None,
) -> tuple[Parsed, dict[str, Any]] | None:
    """Return what is understood of a manifest, parsed and as it is stored; of the object itself by default.

    The hub accepted it, so it is not refused here: what a newer API allows is left out, path by path. None if
    what is left is no manifest; the object is marked then.
    """
    stored = deepcopy(stored or document.manifest(document.spec))
    for _ in range(_ROUNDS):
        try:
            return parse(stored), stored
        except InvalidManifest as invalid:
            paths = sorted({error.path for error in invalid.errors}, reverse=True)
        for path in paths:
            document.reject(path)
        # Each list is cut from its end, so that the places before keep their numbers.
        keys = sorted(
            map(split_path, paths),
            key=lambda one: [(isinstance(key, str), key) for key in one],
        )
        cuts = [_leave_out(stored, key) for key in reversed(keys)]
        if not any(cuts):
            break
    document.error = "the manifest is not understood"
    return None


def _leave_out(stored: dict[str, Any], keys: Sequence[str | int]) -> bool:
    """Remove the value at this place, or the item of a list without it; return whether there was one."""
    if keys[:1] != ("spec",) and keys[:2] != ("metadata", "annotations"):
        return False
    around: list[Any] = [stored]
    for key in keys[:-1]:
        if not _has(around[-1], key):
            break
        around.append(around[-1][key])
    for depth in range(len(around) - 1, 0, -1):
        if _has(around[depth], keys[depth]):
            del around[depth][keys[depth]]
            return True
        if isinstance(around[depth - 1], list):
            del around[depth - 1][keys[depth - 1]]
            return True
    return False


def _has(values: Any, key: str | int) -> bool:
    if isinstance(values, list):
        return isinstance(key, int) and key < len(values)
    return isinstance(values, dict) and key in values
