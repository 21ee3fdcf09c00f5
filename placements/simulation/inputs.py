"""Files to the inputs of one cycle: the member clusters, one placement, its bindings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from placements.manifests import MEBIBYTE, Document, attach_lines, items_of, load_documents
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
from placements.scheduling.door.ocm_placement import OCM_KIND, OCM_VERSIONS, parse_ocm_placement
from placements.scheduling.faults import Caveat, Fault, Faults
from placements.scheduling.fleet import Cluster, EligibilityKind, Fleet
from placements.scheduling.fleet_caveats import property_caveats
from placements.scheduling.member import MemberCluster, newest_heartbeat_of, parse_member
from placements.scheduling.spec import parse_placement
from placements.simulation.wish import Wish, wish_of_ocm, wish_of_placement

Value = TypeVar("Value")
LARGEST_PLACEMENT_FILE = 8 * MEBIBYTE
LARGEST_FLEET_FILE = 256 * MEBIBYTE
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_OF_OTHER_FILES = frozenset({MEMBER_KIND, PLACEMENT_KIND, BINDING_KIND})


@dataclass(frozen=True)
class FleetFile:
    """The fleet of a file, what was assumed in reading it, and the moment that heartbeats were judged at."""

    fleet: Fleet
    caveats: tuple[Caveat, ...]
    judged_at: datetime | None = None


@dataclass(frozen=True)
class BindingsFile:
    """The bindings of one placement in a file, and what was left out."""

    bindings: tuple[Binding, ...]
    caveats: tuple[Caveat, ...] = ()


@dataclass(frozen=True)
class _Read(Generic[Value]):
    """A value, and the document that it was read from."""

    item: Document
    value: Value


def read_fleet(source: bytes, *, now: datetime | None = None, strict_health: bool = False) -> FleetFile:
    """Read MemberCluster objects, a List of them, or plain cases. Raises Faults.

    `now` is the moment to judge heartbeats by; None means that the newest heartbeat in the file is now.
    """
    reads = _each(_items(source), _fleet_entry)
    if not reads:
        raise _fault("", "required", "holds no member cluster", "MemberCluster objects, their List, or cases")
    _refuse_twice(reads, _cluster_name, "metadata.name", "is the name of another cluster above")
    entries = [one for read in reads for one in read.value]
    members = [one for one in entries if isinstance(one, MemberCluster)]
    moment = now or newest_heartbeat_of(members) or _LONG_AGO
    fleet = Fleet(
        one.cluster(now=moment, strict_health=strict_health) if isinstance(one, MemberCluster) else one
        for one in entries
    )
    caveats = [] if strict_health else [*_without_status(members)]
    judged_at = moment if any(one.newest_heartbeat for one in members) else None
    if judged_at:
        caveats += [*_mostly_stale(fleet, moment), *_yet_to_come(members, moment)]
    return FleetFile(fleet, (*caveats, *property_caveats(fleet)), judged_at)


def _fleet_entry(data: Any) -> list[MemberCluster | Cluster] | None:
    """Read what one document holds of a fleet, None for a document that belongs to another file."""
    if isinstance(data, list):
        return list(parse_clusters(data, path=""))
    if isinstance(data, dict) and "kind" not in data:
        if "clusters" in data:
            return list(parse_clusters(data["clusters"]))
        return [parse_case_cluster(data)]
    if _kind(data) in _OF_OTHER_FILES - {MEMBER_KIND} or _is_ocm(data):
        return None
    return [parse_member(data)]


def _cluster_name(entries: list[MemberCluster | Cluster]) -> list[str]:
    return [one.metadata.name if isinstance(one, MemberCluster) else one.name for one in entries]


def _without_status(members: list[MemberCluster]) -> tuple[Caveat, ...]:
    names = [
        one.metadata.name for one in members if one.status is None and not one.metadata.deletion_timestamp
    ]
    if not names:
        return ()
    message = f"{len(names)} without a status, counted as eligible: {', '.join(names[:5])}"
    return (Caveat("no-status", "status", message + (", …" if len(names) > 5 else "")),)


def _mostly_stale(fleet: Fleet, moment: datetime) -> Iterator[Caveat]:
    """Warn where one odd clock, or an odd --now, may have silenced the fleet."""
    stale = sum(one.eligibility.kind is EligibilityKind.STALE_HEARTBEAT for one in fleet)
    if 2 * stale > len(fleet):
        message = (
            f"{stale} of {len(fleet)} heartbeats are stale as of {moment.isoformat()}: is that the moment?"
        )
        yield Caveat("mostly-stale", "status.agentStatus", message)


def _yet_to_come(members: list[MemberCluster], moment: datetime) -> Iterator[Caveat]:
    """Warn where clusters are judged at a moment that they have passed."""
    later = sum(one.newest_heartbeat is not None and one.newest_heartbeat > moment for one in members)
    if later:
        message = f"{later} of {len(members)} heartbeats are after {moment.isoformat()}: they count as recent"
        yield Caveat("future-heartbeat", "status.agentStatus", message)


def read_wish(source: bytes, *, name: str | None = None) -> Wish:
    """Read the only placement of a file, or the one of that name: Fleet's or OCM's. Raises Faults."""
    wishes = [read.value for read in _each(_items(source, limit=LARGEST_PLACEMENT_FILE), _wish)]
    found = [one for one in wishes if name in (None, one.name)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(one.name for one in wishes) or "none"
    if name is not None:
        problem = "is there more than once" if found else "is not in this file"
        raise _fault("metadata.name", "unknown-placement", f"{name} {problem}", f"one of: {listed}")
    if not wishes:
        raise _fault(
            "", "required", f"holds no {PLACEMENT_KIND}", f"one {PLACEMENT_KIND}, or a Placement of OCM"
        )
    raise _fault("metadata.name", "too-many", f"{len(found)} placements: say which with --name", listed)


def _wish(data: Any) -> Wish | None:
    if _kind(data) in _OF_OTHER_FILES - {PLACEMENT_KIND}:
        return None
    return (
        wish_of_ocm(parse_ocm_placement(data)) if _is_ocm(data) else wish_of_placement(parse_placement(data))
    )


def read_bindings(source: bytes, *, placement: str | None, snapshot: str | None = None) -> BindingsFile:
    """Read the bindings of a placement: plain cases or ClusterResourceBinding objects. Raises Faults.

    Current are those of `snapshot`, or else of the newest policy snapshot that they name. `placement` None
    takes those of every placement.
    """
    items = _items(source)
    if any("kind" in item.data for item in items if isinstance(item.data, dict)):
        return _hub_bindings(_each(items, _hub_binding), placement, snapshot)
    if snapshot is not None:
        raise _fault("", "conflict", "--snapshot goes with ClusterResourceBinding objects", "no --snapshot")
    reads = _each(items, _plain_bindings)
    _refuse_twice(reads, lambda bindings: [one.cluster for one in bindings], "cluster", "has a binding above")
    return BindingsFile(tuple(one for read in reads for one in read.value))


def _hub_binding(data: Any) -> BindingDocument | None:
    if _kind(data) in _OF_OTHER_FILES - {BINDING_KIND}:
        return None
    return parse_binding(data)


def _hub_bindings(
    reads: list[_Read[BindingDocument]], placement: str | None, snapshot: str | None
) -> BindingsFile:
    if not reads:
        raise _fault("", "required", f"holds no {BINDING_KIND}", f"{BINDING_KIND} objects or plain cases")
    ours = [read for read in reads if placement is None or read.value.placement in (None, placement)]
    documents = [read.value for read in ours]
    current = newest_snapshot(documents) if snapshot is None else snapshot
    live = [read for read in ours if not read.value.is_deleting]
    _refuse_twice(live, lambda one: [one.spec.target_cluster], "spec.targetCluster", "has a binding above")
    caveats = [*_of_others(len(reads) - len(ours)), *_unnamed_snapshot(snapshot, documents)]
    return BindingsFile(tuple(one.binding(current) for one in documents), tuple(caveats))


def _of_others(count: int) -> Iterator[Caveat]:
    if count:
        noun = "binding" if count == 1 else "bindings"
        message = f"left out: {count} {noun} of other placements"
        yield Caveat("other-bindings", "metadata.labels", message)


def _unnamed_snapshot(snapshot: str | None, documents: list[BindingDocument]) -> Iterator[Caveat]:
    if snapshot is not None and snapshot not in {one.snapshot for one in documents}:
        message = f"no binding was decided under {snapshot}: all of them are obsolete"
        yield Caveat("unknown-snapshot", "spec.schedulingPolicySnapshotName", message)


def _plain_bindings(data: Any) -> tuple[Binding, ...]:
    if isinstance(data, dict) and "bindings" in data:
        return parse_case_bindings(data["bindings"])
    try:
        return parse_case_bindings(data if isinstance(data, list) else [data])
    except Faults as found:
        prefix = "bindings" if isinstance(data, list) else "bindings[0]"
        raise Faults(
            replace(one, path=one.path.removeprefix(prefix).removeprefix(".")) for one in found.faults
        ) from found


def _items(source: bytes, *, limit: int = LARGEST_FLEET_FILE) -> list[Document]:
    documents = load_documents(source, max_bytes=limit)
    return [item for one in documents for item in _items_in(one) if item.data is not None]


def _items_in(document: Document) -> list[Document]:
    """Give the items of a List; so do the bare `.items` of one, which tell themselves by their kinds."""
    data = document.data
    if not isinstance(data, list) or not any(map(_kind, data)):
        return items_of(document)
    return [replace(document, data=item, within=(*document.within, at)) for at, item in enumerate(data)]


def _each(items: list[Document], read: Callable[[Any], Value | None]) -> list[_Read[Value]]:
    """Read every item; raise the faults of all of them together, with their lines."""
    reads: list[_Read[Value]] = []
    faults: list[tuple[Document, Fault]] = []
    for item in items:
        try:
            value = read(item.data)
        except Faults as found:
            faults += ((item, _of_item(fault, item, items)) for fault in found.faults)
            continue
        if value is not None:
            reads.append(_Read(item, value))
    if faults:
        raise Faults(attach_lines(faults))
    return reads


def _refuse_twice(
    reads: list[_Read[Value]], names_of: Callable[[Value], list[str]], path: str, words: str
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
    return fault if len(items) == 1 else replace(fault, message=f"{_called(item)}: {fault.message}")


def _called(item: Document) -> str:
    data = item.data if isinstance(item.data, dict) else {}
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else data.get("name")
    return name[:63] if isinstance(name, str) else f"document {item.number}"


def _kind(data: Any) -> str | None:
    kind = data.get("kind") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else None


def _is_ocm(data: Any) -> bool:
    return _kind(data) == OCM_KIND and str(data.get("apiVersion")).startswith(
        OCM_VERSIONS[0].partition("/")[0]
    )


def _fault(path: str, code: str, message: str, allowed: str = "") -> Faults:
    return Faults([Fault(path, code, message, allowed)])
