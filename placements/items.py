"""The items of a file, one by one: each is read, and the faults of all of them come out together."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from placements.manifests import MEBIBYTE, Document, attach_lines, items_of, load_documents
from placements.scheduling.faults import Fault, Faults

Value = TypeVar("Value")
LARGEST_FLEET_FILE = 256 * MEBIBYTE


@dataclass(frozen=True)
class Read(Generic[Value]):
    """A value, and the document that it was read from."""

    item: Document
    value: Value


def items_in(source: bytes | str, largest: int) -> list[Document]:
    """Read the documents of a file, or the items of the Lists in it, without empty ones. Raises Faults."""
    documents = load_documents(source, max_bytes=largest)
    return [item for one in documents for item in _items_in(one) if item.data is not None]


def _items_in(document: Document) -> list[Document]:
    """Give the items of a List; so do the bare `.items` of one, which tell themselves by their kinds."""
    data = document.data
    if not isinstance(data, list) or not any(map(kind_of, data)):
        return items_of(document)
    return entries_of(document)


def entries_of(document: Document) -> list[Document]:
    """Give the entries of a bare list as documents of their own."""
    entries = enumerate(document.data)
    return [replace(document, data=entry, within=(*document.within, at)) for at, entry in entries]


def read_each(items: list[Document], read: Callable[[Any], Value | None]) -> list[Read[Value]]:
    """Read every item, leaving out None; raise the faults of all of them together, with their lines."""
    reads: list[Read[Value]] = []
    faults: list[tuple[Document, Fault]] = []
    for item in items:
        try:
            value = read(item.data)
        except Faults as found:
            faults += ((item, _of_item(fault, item, items)) for fault in found.faults)
            continue
        if value is not None:
            reads.append(Read(item, value))
    if faults:
        raise Faults(attach_lines(faults))
    return reads


def refuse_twice(
    reads: list[Read[Value]], names_of: Callable[[Value], list[str]], path: str, words: str
) -> None:
    """Raise a fault for every name that stands in an item above already, with its line."""
    seen: set[str] = set()
    faults: list[tuple[Document, Fault]] = []
    for read in reads:
        for name in names_of(read.value):
            if name in seen:
                faults.append((read.item, Fault(path, "duplicate", f"{name} {words}", "each name once")))
            seen.add(name)
    if faults:
        raise Faults(attach_lines(faults))


def _of_item(fault: Fault, item: Document, items: list[Document]) -> Fault:
    """Say which item a fault is of, where there are several."""
    if len(items) == 1:
        return fault
    called = (written_name(item.data) or f"document {item.number}")[:63]
    return replace(fault, message=f"{called}: {fault.message}")


def written_name(data: Any) -> str | None:
    """Give the name in a document or plain object that may still be malformed."""
    outer = data if isinstance(data, dict) else {}
    metadata = outer.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else outer.get("name")
    return name if isinstance(name, str) else None


def kind_of(data: Any) -> str | None:
    """Give the kind that a document says it is of."""
    kind = data.get("kind") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else None
