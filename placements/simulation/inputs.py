"""Files to the inputs of one cycle: the member clusters, one placement, its bindings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from placements.manifests import Document, attach_lines, items_of, load_documents
from placements.scheduling.bindings import Binding
from placements.scheduling.door.binding_documents import (
    BINDING_KIND,
    BindingDocument,
    newest_snapshot,
    parse_binding,
    parse_case_bindings,
)
from placements.scheduling.door.case_clusters import parse_case_cluster, parse_clusters
from placements.scheduling.door.kinds import MEMBER_KIND, PLACEMENT_KIND
from placements.scheduling.faults import Caveat, Fault, Faults
from placements.scheduling.fleet import Cluster, DuplicateClusterError, Fleet
from placements.scheduling.member import MemberCluster, newest_heartbeat_of, parse_member
from placements.scheduling.spec import ClusterResourcePlacement, parse_placement

Value = TypeVar("Value")
LARGEST_PLACEMENT_FILE = 8 * 1024 * 1024
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_OF_OTHER_FILES = frozenset({MEMBER_KIND, PLACEMENT_KIND, BINDING_KIND})


@dataclass(frozen=True)
class FleetFile:
    """The fleet of a file, and what was assumed in reading it."""

    fleet: Fleet
    caveats: tuple[Caveat, ...]


@dataclass(frozen=True)
class BindingsFile:
    """The bindings of one placement in a file, and what was left out."""

    bindings: tuple[Binding, ...]
    caveats: tuple[Caveat, ...] = ()


def read_fleet(source: bytes, *, now: datetime | None = None, strict_health: bool = False) -> FleetFile:
    """Read MemberCluster objects, a List of them, or plain cases. Raises Faults.

    `now` is the moment to judge heartbeats by; None means that the newest heartbeat in the file is now.
    """
    entries = _each(_items(source), _fleet_entry)
    members = [one for entry in entries for one in entry if isinstance(one, MemberCluster)]
    moment = now or newest_heartbeat_of(members) or _LONG_AGO
    clusters = [
        one.cluster(now=moment, strict_health=strict_health) if isinstance(one, MemberCluster) else one
        for entry in entries
        for one in entry
    ]
    if not entries:
        raise _fault("", "required", "holds no member cluster", "MemberCluster objects, their List, or cases")
    return FleetFile(_fleet(clusters), _without_status(members, strict_health=strict_health))


def _fleet(clusters: list[Cluster]) -> Fleet:
    try:
        return Fleet(clusters)
    except DuplicateClusterError as error:
        raise _fault("metadata.name", "duplicate", str(error), "each name once") from error


def _fleet_entry(data: Any) -> list[MemberCluster | Cluster] | None:
    """Read what one document holds of a fleet, None for a document that belongs to another file."""
    if isinstance(data, list):
        return list(parse_clusters(data, path=""))
    if isinstance(data, dict) and "kind" not in data:
        if "clusters" in data:
            return list(parse_clusters(data["clusters"]))
        return [parse_case_cluster(data)]
    if _kind(data) in _OF_OTHER_FILES - {MEMBER_KIND}:
        return None
    return [parse_member(data)]


def _without_status(members: list[MemberCluster], *, strict_health: bool) -> tuple[Caveat, ...]:
    names = [member.metadata.name for member in members if member.status is None]
    if not names or strict_health:
        return ()
    message = f"{len(names)} without a status, counted as eligible: {', '.join(names[:5])}"
    return (Caveat("no-status", "status", message + (", …" if len(names) > 5 else "")),)


def read_placement(source: bytes, *, name: str | None = None) -> ClusterResourcePlacement:
    """Read the only placement of a file, or the one of that name. Raises Faults."""
    placements = _each(_items(source, limit=LARGEST_PLACEMENT_FILE), _placement_entry)
    found = [one for one in placements if name in (None, one.metadata.name)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(one.metadata.name for one in placements) or "none"
    if name is not None:
        problem = "is there more than once" if found else "is not in this file"
        raise _fault("metadata.name", "unknown-placement", f"{name} {problem}", f"one of: {listed}")
    if not placements:
        raise _fault("", "required", f"holds no {PLACEMENT_KIND}", f"one {PLACEMENT_KIND}")
    raise _fault("metadata.name", "too-many", f"{len(found)} placements: say which with --name", listed)


def _placement_entry(data: Any) -> ClusterResourcePlacement | None:
    return None if _kind(data) in _OF_OTHER_FILES - {PLACEMENT_KIND} else parse_placement(data)


def read_bindings(source: bytes, *, placement: str | None, snapshot: str | None = None) -> BindingsFile:
    """Read the bindings of a placement: plain cases or ClusterResourceBinding objects. Raises Faults.

    Current are those of `snapshot`, or else of the newest policy snapshot that they name.
    """
    items = _items(source)
    documents = [item.data for item in items if _kind(item.data) == BINDING_KIND]
    if documents:
        return _hub_bindings(_each(items, _binding_entry), placement, snapshot)
    plain = [one for item in items for one in _plain_bindings(item.data)]
    return BindingsFile(parse_case_bindings(plain))


def _binding_entry(data: Any) -> BindingDocument | None:
    if _kind(data) in _OF_OTHER_FILES - {BINDING_KIND}:
        return None
    return parse_binding(data)


def _hub_bindings(
    documents: list[BindingDocument], placement: str | None, snapshot: str | None
) -> BindingsFile:
    ours = [one for one in documents if placement is None or one.placement in (None, placement)]
    names = {one.snapshot for one in ours}
    if snapshot is not None and snapshot not in names:
        listed, path = ", ".join(sorted(names)) or "none", "spec.schedulingPolicySnapshotName"
        raise _fault(path, "unknown-snapshot", f"no binding names {snapshot}", listed)
    current = newest_snapshot(ours) if snapshot is None else snapshot
    others = len(documents) - len(ours)
    message = f"{others} bindings of other placements were left out"
    caveats = (Caveat("other-bindings", "metadata.labels", message),) if others else ()
    bindings = tuple(one.binding(current) for one in ours)
    _refuse_two_on_one_cluster(bindings)
    return BindingsFile(bindings, caveats)


def _refuse_two_on_one_cluster(bindings: tuple[Binding, ...]) -> None:
    seen: set[str] = set()
    for binding in bindings:
        if binding.cluster in seen and not binding.is_deleting:
            message = f"{binding.cluster} has two bindings"
            raise _fault("spec.targetCluster", "duplicate", message, "one binding for each cluster")
        if not binding.is_deleting:
            seen.add(binding.cluster)


def _plain_bindings(data: Any) -> list[Any]:
    if isinstance(data, dict) and "bindings" in data:
        data = data["bindings"]
    return data if isinstance(data, list) else [data]


def _items(source: bytes, *, limit: int | None = None) -> list[Document]:
    documents = load_documents(source) if limit is None else load_documents(source, max_bytes=limit)
    return [item for document in documents for item in items_of(document) if item.data is not None]


def _each(items: list[Document], read: Callable[[Any], Value | None]) -> list[Value]:
    """Read every item; raise the faults of all of them together, with their lines."""
    values: list[Value] = []
    faults: list[Fault] = []
    for item in items:
        try:
            value = read(item.data)
        except Faults as found:
            faults += _placed(found, item, is_only=len(items) == 1)
            continue
        if value is not None:
            values.append(value)
    if faults:
        raise Faults(faults)
    return values


def _placed(found: Faults, item: Document, *, is_only: bool) -> Iterator[Fault]:
    for fault in attach_lines(found, item).faults:
        yield fault if is_only else replace(fault, message=f"{_called(item)}: {fault.message}")


def _called(item: Document) -> str:
    data = item.data if isinstance(item.data, dict) else {}
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else data.get("name")
    return name[:63] if isinstance(name, str) else f"document {item.number}"


def _kind(data: Any) -> str | None:
    kind = data.get("kind") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else None


def _fault(path: str, code: str, message: str, allowed: str = "") -> Faults:
    return Faults([Fault(path, code, message, allowed)])
