"""Files to the inputs of one cycle: the member clusters, one placement, its bindings."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from placements.items import LARGEST_FLEET_FILE, Read, items_in, kind_of, read_each, refuse_twice
from placements.manifests import MEBIBYTE
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
from placements.scheduling.door.ocm_placement import is_ocm_placement
from placements.scheduling.faults import Caveat, Fault, Faults
from placements.scheduling.fleet import Cluster, EligibilityKind, Fleet
from placements.scheduling.fleet_caveats import property_caveats
from placements.scheduling.member import MemberCluster, newest_heartbeat_of, parse_member
from placements.scheduling.spec import parse_placement
from placements.simulation.wish import Wish, wish_of_placement

LARGEST_PLACEMENT_FILE = 8 * MEBIBYTE
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


def read_fleet(source: bytes, *, now: datetime | None = None, strict_health: bool = False) -> FleetFile:
    """Read MemberCluster objects, a List of them, or plain cases. Raises Faults.

    `now` is the moment to judge heartbeats by; None means that the newest heartbeat in the file is now.
    """
    reads = read_each(items_in(source, LARGEST_FLEET_FILE), _fleet_entry)
    if not reads:
        raise _fault("", "required", "holds no member cluster", "MemberCluster objects, their List, or cases")
    refuse_twice(reads, _cluster_name, "metadata.name", "is the name of another cluster above")
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
    if kind_of(data) in _OF_OTHER_FILES - {MEMBER_KIND} or is_ocm_placement(data):
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
    wishes = [read.value for read in read_each(items_in(source, LARGEST_PLACEMENT_FILE), _wish)]
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
    if kind_of(data) in _OF_OTHER_FILES - {PLACEMENT_KIND}:
        return None
    return wish_of_placement(parse_placement(data))


def read_bindings(source: bytes, *, placement: str | None, snapshot: str | None = None) -> BindingsFile:
    """Read the bindings of a placement: plain cases or ClusterResourceBinding objects. Raises Faults.

    Current are those of `snapshot`, or else of the newest policy snapshot that they name. `placement` None
    takes those of every placement.
    """
    items = items_in(source, LARGEST_FLEET_FILE)
    if any("kind" in item.data for item in items if isinstance(item.data, dict)):
        return _hub_bindings(read_each(items, _hub_binding), placement, snapshot)
    if snapshot is not None:
        raise _fault("", "conflict", "--snapshot goes with ClusterResourceBinding objects", "no --snapshot")
    reads = read_each(items, _plain_bindings)
    refuse_twice(reads, lambda bindings: [one.cluster for one in bindings], "cluster", "has a binding above")
    return BindingsFile(tuple(one for read in reads for one in read.value))


def _hub_binding(data: Any) -> BindingDocument | None:
    if kind_of(data) in _OF_OTHER_FILES - {BINDING_KIND}:
        return None
    return parse_binding(data)


def _hub_bindings(
    reads: list[Read[BindingDocument]], placement: str | None, snapshot: str | None
) -> BindingsFile:
    if not reads:
        raise _fault("", "required", f"holds no {BINDING_KIND}", f"{BINDING_KIND} objects or plain cases")
    ours = [read for read in reads if placement is None or read.value.placement in (None, placement)]
    documents = [read.value for read in ours]
    current = newest_snapshot(documents) if snapshot is None else snapshot
    live = [read for read in ours if not read.value.is_deleting]
    refuse_twice(live, lambda one: [one.spec.target_cluster], "spec.targetCluster", "has a binding above")
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


def _fault(path: str, code: str, message: str, allowed: str = "") -> Faults:
    return Faults([Fault(path, code, message, allowed)])
