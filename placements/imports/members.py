"""`read_members`: the one door for files of clusters, whichever of the three formats they have."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from placements.imports.entries import Entry
from placements.imports.plain import is_plain, member_document, plain_place, unknown_fields
from placements.imports.table import looks_like_table, read_table
from placements.items import LARGEST_FLEET_FILE, entries_of, items_in, written_name
from placements.manifests import MOST_DOCUMENTS, Document, decoded, lines_of
from placements.scheduling.door.json_text import load_json
from placements.scheduling.faults import Fault, Faults, split_path
from placements.scheduling.member import MemberCluster, parse_member

_JSON_LINES = (".jsonl", ".ndjson")
_OBJECT = ("{", "[")


@dataclass(frozen=True, slots=True)
class MemberRead:
    """One cluster of a file: its document as written, what it says, and the line on which it begins.

    From a table or a plain object the document is made, with an identity for the agent.
    """

    document: dict[str, Any]
    member: MemberCluster
    line: int | None


def read_members(source: bytes, *, name: str) -> list[MemberRead]:
    """Read the clusters of a file: MemberCluster documents, plain objects, or a table.

    The content tells the format; where it does not, the ending of the file's name does. Raises Faults with
    everything that is wrong, each with its line; then nothing was read.
    """
    entries = _entries(decoded(source, LARGEST_FLEET_FILE), name.lower())
    if not entries:
        allowed = "MemberCluster objects, plain {name, labels, …}, or a table with a column `name`"
        raise Faults([Fault("", "required", "holds no member cluster", allowed)])
    return _Reading(entries).members()


def _entries(text: str, name: str) -> list[Entry]:
    """Take a text apart into clusters. Raises Faults where that cannot be done."""
    if _has_objects_by_line(text, name):
        return list(_json_lines(text))
    is_object = text.lstrip()[:1] in _OBJECT
    if not is_object and (looks_like_table(text) or (name.endswith(".csv") and not _looks_like_yaml(text))):
        return read_table(text)
    items = (one for item in items_in(text, LARGEST_FLEET_FILE) for one in _flat(item))
    return [Entry(item.data, item=item) for item in items]


def _flat(item: Document) -> list[Document]:
    return entries_of(item) if isinstance(item.data, list) else [item]


def _looks_like_yaml(text: str) -> bool:
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return first.startswith(("---", "- ", "apiVersion:", "kind:", "items:", "metadata:"))


def _has_objects_by_line(text: str, name: str) -> bool:
    """Tell JSON lines from one JSON text: their first line is complete, and another object follows."""
    first, _, rest = text.strip().partition("\n")
    if not first.startswith("{"):
        return False
    if name.endswith(_JSON_LINES):
        return True
    with suppress(ValueError, RecursionError):
        return rest.lstrip().startswith("{") and isinstance(json.loads(first), dict)
    return False


def _json_lines(text: str) -> Iterator[Entry]:
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if len(lines) > MOST_DOCUMENTS:
        raise Faults([Fault("", "too-many", f"has more than {MOST_DOCUMENTS} lines")])
    for number, line in lines:
        try:
            yield Entry(load_json(line), number)
        except Faults as found:
            faults = (replace(fault, line=number) for fault in found.faults)
            yield Entry(None, number, faults=tuple(faults))


class _Reading:
    """Reads entry after entry, and gathers what is wrong with any of them."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries
        self.read: list[tuple[Entry, dict[str, Any], MemberCluster]] = []
        self.faults: list[tuple[Entry, Fault]] = []
        self.seen: set[str] = set()
        for entry in entries:
            self._take(entry)

    def members(self) -> list[MemberRead]:
        """Give all clusters with their lines, or raise Faults."""
        if self.faults:
            lines = _lines((entry, fault.path) for entry, fault in self.faults)
            placed = zip(self.faults, lines, strict=True)
            raise Faults(fault if fault.line else replace(fault, line=line) for (_, fault), line in placed)
        lines = _lines((entry, "") for entry, _, _ in self.read)
        return [
            MemberRead(document, member, line)
            for (_, document, member), line in zip(self.read, lines, strict=True)
        ]

    def _take(self, entry: Entry) -> None:
        self._refuse(entry, entry.faults)
        if entry.data is None and entry.faults:
            return
        document = entry.data
        if is_plain(entry.data):
            self._refuse(entry, unknown_fields(entry.data))
            document = member_document(entry.data)
        try:
            member = parse_member(document)
        except Faults as found:
            self._refuse(entry, _told(entry, found.faults))
        else:
            self.read.append((entry, document, member))
        self._refuse(entry, self._taken_above(entry))

    def _taken_above(self, entry: Entry) -> Iterator[Fault]:
        name = written_name(entry.data)
        if name and name in self.seen:
            path = "name" if is_plain(entry.data) else "metadata.name"
            yield Fault(path, "duplicate", f"{name} is the name of another cluster above", "each name once")
        if name:
            self.seen.add(name)

    def _refuse(self, entry: Entry, faults: Iterable[Fault]) -> None:
        called = (written_name(entry.data) or "")[:63]
        prefix = f"{called}: " if called and len(self.entries) > 1 else ""
        self.faults += ((entry, replace(fault, message=prefix + fault.message)) for fault in faults)


def _told(entry: Entry, faults: Iterable[Fault]) -> Iterator[Fault]:
    """Give the faults of a cluster with the paths that its source has for them."""
    if not is_plain(entry.data):
        yield from faults
        return
    for fault in faults:
        keys = plain_place(split_path(fault.path))
        yield replace(fault, path=entry.place_of(keys) if keys else "")


def _lines(paths: Iterable[tuple[Entry, str]]) -> list[int | None]:
    """Find the lines of paths in entries: known ones, or those of YAML and JSON texts, in one reading."""
    asked = list(paths)
    found = iter(lines_of([(entry.item, path) for entry, path in asked if entry.item is not None]))
    return [entry.line if entry.item is None else next(found) for entry, _ in asked]
