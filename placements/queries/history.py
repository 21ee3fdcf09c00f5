"""The past of a placement: policies, resources and decisions in one list, newest first, a page at a time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any, TypeVar

from django.db.models import Q, QuerySet

from fleetui.paging import BadCursorError
from placements.models import Decision, Placement, PolicySnapshot, ResourceSnapshot

Row = PolicySnapshot | ResourceSnapshot | Decision
Kept = TypeVar("Kept", PolicySnapshot, ResourceSnapshot, Decision)


class EntryKind(StrEnum):
    """What a line of the history is about."""

    POLICY = "policy"
    RESOURCES = "resources"
    DECISION = "decision"


_RANKS = {EntryKind.POLICY: 1, EntryKind.RESOURCES: 2, EntryKind.DECISION: 3}
"""Of what came at the same moment, the decision stands above the policy that it followed from."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the history, and the row of the same kind before it, if that is still kept."""

    kind: EntryKind
    row: Row
    before: Row | None

    @property
    def key(self) -> str:
        """Give what it is called in an address: `p3`, `s3`, or the id of the decision."""
        if isinstance(self.row, Decision):
            return self.row.record.decision_id
        return f"{'p' if self.kind is EntryKind.POLICY else 's'}{self.row.number}"

    @property
    def cursor(self) -> str:
        """Give its place in the list."""
        return f"{self.row.created_at.isoformat()}~{_RANKS[self.kind]}~{self.row.number}"


@dataclass(frozen=True, slots=True)
class History:
    """One page, and the cursor of the next; None at the end."""

    entries: list[Entry]
    after: str | None


def history_of(placement: Placement, *, size: int, after: str | None = None) -> History:
    """Give one page of the past of a placement. Raises BadCursorError."""
    place = None if after is None else _read(after)
    found = sorted(_entries(placement, place, most=size + 2), key=_order, reverse=True)
    shown = found[:size]
    return History(shown, shown[-1].cursor if len(found) > size else None)


def cursor_above(placement: Placement, number: int) -> str | None:
    """Give the cursor of the page that begins with a policy; None where that is no longer kept."""
    row = PolicySnapshot.objects.filter(placement=placement, number=number).first()
    return f"{row.created_at.isoformat()}~{_RANKS[EntryKind.POLICY]}~{number + 1}" if row else None


def _entries(placement: Placement, place: "_Place | None", *, most: int) -> Iterator[Entry]:
    tables: tuple[tuple[EntryKind, QuerySet[Any]], ...] = (
        (EntryKind.POLICY, _rows(PolicySnapshot, placement)),
        (EntryKind.RESOURCES, _rows(ResourceSnapshot, placement)),
        (
            EntryKind.DECISION,
            _rows(Decision, placement).select_related("record").defer("record__content"),
        ),
    )
    for kind, rows in tables:
        yield from _with_the_one_before(
            kind, (rows if place is None else rows.filter(place.below(kind)))[:most]
        )


def _rows(model: type[Kept], placement: Placement) -> QuerySet[Kept]:
    return model._default_manager.filter(placement=placement).order_by("-created_at", "-number")


def _with_the_one_before(kind: EntryKind, rows: Iterable[Row]) -> Iterator[Entry]:
    return (Entry(kind, row, before) for row, before in pairwise([*rows, None]) if row is not None)


def _order(entry: Entry) -> tuple[datetime, int, int]:
    return entry.row.created_at, _RANKS[entry.kind], entry.row.number


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a page ended."""

    at: datetime
    rank: int
    number: int

    def below(self, kind: EntryKind) -> Q:
        """Give the condition on rows of a kind that come later in the list."""
        rank = _RANKS[kind]
        if rank > self.rank:
            return Q(created_at__lt=self.at)
        if rank < self.rank:
            return Q(created_at__lte=self.at)
        return Q(created_at__lt=self.at) | Q(created_at=self.at, number__lt=self.number)


def _read(cursor: str) -> _Place:
    at, _, rest = cursor.partition("~")
    rank, _, number = rest.partition("~")
    if not (rank.isdecimal() and number.isdecimal() and len(rest) < 12):
        raise BadCursorError
    try:
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise BadCursorError
        return _Place(moment.astimezone(UTC), int(rank), int(number))
    except (ValueError, OverflowError) as error:
        raise BadCursorError from error
