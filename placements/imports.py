"""Member clusters from a text, as documents with their lines."""

from dataclasses import dataclass
from typing import Any

from placements.manifests import attach_lines, items_of, load_documents
from placements.scheduling.faults import Faults
from placements.scheduling.member import parse_member


@dataclass(frozen=True, slots=True)
class ReadMember:
    """One cluster that was read: its manifest, and the line on which it begins."""

    document: dict[str, Any]
    line: int


def read_members(source: str | bytes, *, name: str) -> list[ReadMember]:  # noqa: ARG001 -- says the format
    """Read the MemberCluster documents of a text. Raises Faults with the lines of all of them."""
    documents = [item for one in load_documents(source) for item in items_of(one)]
    faults = []
    for one in documents:
        try:
            parse_member(one.data)
        except Faults as found:
            faults += [(one, fault) for fault in found.faults]
    if faults:
        raise Faults(attach_lines(faults))
    return [ReadMember(one.data, 0) for one in documents]
