"""Member clusters from a file; stands in until the reader of every format is merged."""

from dataclasses import dataclass
from typing import Any

from placements.manifests import items_of, lines_of, load_documents
from placements.scheduling.member import parse_member


@dataclass(frozen=True, slots=True)
class ReadMember:
    """A MemberCluster document, and the line it begins on."""

    document: dict[str, Any]
    line: int | None


def read_members(source: bytes, *, name: str) -> list[ReadMember]:  # noqa: ARG001 -- tells the format
    """Read MemberCluster documents from YAML or JSON. Raises Faults."""
    items = [item for one in load_documents(source) for item in items_of(one)]
    for item in items:
        parse_member(item.data)
    lines = lines_of([(item, "") for item in items])
    return [ReadMember(item.data, line) for item, line in zip(items, lines, strict=True)]
