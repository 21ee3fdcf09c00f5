"""Text areas to plain data and back; what the data may be is decided by the doors of the core alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from placements.manifests import Document, attach_lines, items_of, load_documents
from placements.scheduling.door.kinds import STAGED_STRATEGY_KIND
from placements.scheduling.door.staged_documents import ClusterStagedUpdateStrategy, parse_staged_strategy
from placements.scheduling.faults import Fault, Faults, Keys, split_path

LABELS_PATH, TAINTS_PATH = "metadata.labels", "spec.taints"
_EFFECT = "NoSchedule"


@dataclass(frozen=True, slots=True)
class TypedCluster:
    """Labels and taints as they were typed; `faults` are of lines that say neither, `lines` tell the rest."""

    labels: dict[str, str]
    taints: list[dict[str, str]]
    faults: tuple[Fault, ...]
    lines: Mapping[Keys, int]

    def at_line(self, fault: Fault) -> Fault:
        """Give a fault of the manifest with the line on which its label or its taint was typed."""
        keys = split_path(fault.path)
        longest_first = (keys[:end] for end in range(len(keys), 0, -1))
        return replace(
            fault, line=next((self.lines[one] for one in longest_first if one in self.lines), None)
        )


def read_cluster(labels: str, taints: str) -> TypedCluster:
    """Read labels, `key=value` a line, and taints, `key=value:NoSchedule`, value and effect optional."""
    found: dict[str, str] = {}
    lines: dict[Keys, int] = {}
    listed, faults = [], []
    for number, line in _lines(labels):
        key, is_there, value = (part.strip() for part in line.partition("="))
        if not is_there or not key:
            faults.append(Fault(LABELS_PATH, "bad-format", f"{line!r} is no label", "key=value", number))
            continue
        if key in found:
            message = f"{key!r} stands above already"
            faults.append(Fault(LABELS_PATH, "duplicate", message, "each key once", number))
            continue
        found[key], lines[("metadata", "labels", key)] = value, number
    for place, (number, line) in enumerate(_lines(taints)):
        listed.append(_taint(line))
        lines[("spec", "taints", place)] = number
    return TypedCluster(found, listed, tuple(faults), lines)


def _taint(line: str) -> dict[str, str]:
    written, _, effect = line.partition(":")
    key, _, value = written.partition("=")
    named = {"value": value.strip()} if value.strip() else {}
    return {"key": key.strip(), **named, "effect": effect.strip() or _EFFECT}


def _lines(text: str) -> Iterable[tuple[int, str]]:
    numbered = enumerate(text.splitlines(), start=1)
    return ((number, line.strip()) for number, line in numbered if line.strip())


def write_labels(labels: Mapping[str, str]) -> str:
    """Write labels as `read_cluster` reads them."""
    return "\n".join(f"{key}={value}" for key, value in sorted(labels.items()))


def write_taints(taints: Sequence[Mapping[str, Any]]) -> str:
    """Write taints as `read_cluster` reads them."""
    return "\n".join(
        f"{one['key']}{'=' + one['value'] if one.get('value') else ''}:{one['effect']}" for one in taints
    )


def read_documents(text: str | bytes) -> list[Document]:
    """Read the documents of a text, the items of lists one by one. Raises Faults, also when there is none."""
    documents = [item for one in load_documents(text) for item in items_of(one)]
    if not documents:
        raise Faults([Fault("", "required", "there is no document in it", "one or more YAML documents")])
    return documents


@contextmanager
def lines_of(document: Document) -> Iterator[None]:
    """Raise faults of a document with the lines on which they stand."""
    try:
        yield
    except Faults as found:
        raise Faults(attach_lines((document, fault) for fault in found.faults)) from found


def read_strategy(text: str, *, name: str = "") -> tuple[Document, ClusterStagedUpdateStrategy]:
    """Read the one strategy of a text; `name` is what it has to be called. Raises Faults with lines."""
    documents = read_documents(text)
    if len(documents) > 1:
        message = f"there are {len(documents)} documents"
        raise Faults([Fault("", "too-many", message, f"one {STAGED_STRATEGY_KIND}")])
    with lines_of(documents[0]):
        draft = parse_staged_strategy(documents[0].data)
        if name and draft.metadata.name != name:
            message = f"the strategy is called {name}; a name cannot be changed"
            raise Faults([Fault("metadata.name", "immutable", message, name)])
    return documents[0], draft
