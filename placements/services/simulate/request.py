"""One simulation: texts of files in; out comes a decision with warnings, or the errors of all files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from clusters.case_manifest import parse_case_cluster, parse_clusters
from clusters.fleet import (
    ELIGIBLE,
    Cluster,
    EligibilityKind,
    Fleet,
    ManagedObject,
)
from clusters.hub_objects import CLUSTER_KIND, is_hub_object
from clusters.importing import ImportNote, entry_members, parse_entry, read_members
from clusters.manifest import MemberClusterManifest, newest_heartbeat_of
from clusters.tables import ImportEntry, looks_like_table
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    ManifestWarning,
    format_path,
)
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.kinds import (
    MEMBER_KIND,
    NAMESPACED_PLACEMENT_KIND,
    PLACEMENT_KIND,
)
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import first_lines
from fleetui.apimachinery.yaml import (
    LARGEST_UPLOAD,
    Read,
    decoded,
    items_in,
    kind_of,
    read_each,
    refuse_twice,
)
from fleetui.errors import FleetError
from placements.engine.checks.examination import fleet_warnings
from placements.engine.ocm_hub import BlockedSetError, OcmHub, parse_hub
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.engine.scheduling.decision import Decision, at_moment
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.warnings import decision_warnings, property_warnings
from placements.manifests.binding import (
    BINDING_KIND,
    BINDING_KINDS,
    BindingDocument,
    PlacedBinding,
    newest_snapshot,
    parse_binding,
    parse_case_bindings,
)
from placements.manifests.placement import is_ocm_placement, parse_placement
from placements.services.simulate.translate import (
    PlacementInput,
    placement_input,
    translate,
)

Value = TypeVar("Value")
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_PLACEMENT_KINDS = (PLACEMENT_KIND, NAMESPACED_PLACEMENT_KIND)
_OF_OTHER_FILES = frozenset({MEMBER_KIND, *_PLACEMENT_KINDS, *BINDING_KINDS})


@dataclass(frozen=True)
class FleetFile:
    """The fleet of a file, what was assumed in reading it, and the moment that heartbeats were judged at."""

    fleet: Fleet
    warnings: tuple[ManifestWarning, ...]
    judged_at: datetime | None = None
    hub: OcmHub | None = None
    """What the file holds of a hub of Open Cluster Management, if anything."""


@dataclass(frozen=True)
class BindingsFile:
    """The bindings of one placement in a file, and warnings about ignored ones."""

    bindings: tuple[PlacedBinding, ...]
    warnings: tuple[ManifestWarning, ...] = ()


def read_fleet(
    source: bytes, *, now: datetime | None = None, strict_health: bool = False
) -> FleetFile:
    """Read what an import reads, objects of an OCM hub, or plain cases. Raise InvalidManifest.

    `now` is the moment to judge heartbeats by; None means that the newest heartbeat in the file is now.
    """
    text = decoded(source, LARGEST_UPLOAD)
    if looks_like_table(text):
        table = read_members(source, name="")
        fleet = Fleet(_ready(member.member) for member in table.members)
        return FleetFile(fleet, _warnings(table.notes))
    notes: dict[ManifestWarning, list[str]] = {}
    foreign: set[str] = set()
    items = items_in(text)
    objects = [item.data for item in items if is_hub_object(item.data)]
    hub = parse_hub(objects, path="") if objects else None
    managed = {} if hub is None else {cluster.name: cluster for cluster in hub.clusters}
    scores = {} if hub is None else hub.scores
    parse = partial(_fleet_entry, managed=managed, notes=notes, foreign=foreign)
    reads = read_each(items, parse)
    if not reads:
        raise InvalidManifest.of(
            "",
            "required",
            "No member cluster found",
            "MemberCluster objects, their List, or cases",
        )
    refuse_twice(
        reads,
        lambda entries: [
            entry.name if isinstance(entry, Cluster) else entry.metadata.name
            for entry in entries
        ],
        "metadata.name",
    )
    entries = [one for read in reads for one in read.value]
    members = [entry for entry in entries if isinstance(entry, MemberClusterManifest)]
    moment = now or newest_heartbeat_of(members) or _LONG_AGO
    fleet = Fleet(
        entry
        if isinstance(entry, Cluster)
        else entry.cluster(now=moment, strict_health=strict_health)
        for entry in entries
    )
    fleet = fleet.with_clusters(
        cluster.with_changes(managed=ManagedObject({}, scores[cluster.name]))
        for cluster in fleet
        if cluster.managed is None and cluster.name in scores
    )
    warnings: list[ManifestWarning] = []
    without_status = [member.metadata for member in members if member.status is None]
    names = [member.name for member in without_status if not member.deletion_timestamp]
    if names and not strict_health:
        more = ", …" if len(names) > 5 else ""
        message = f"{len(names)} without a status, counted as Ready: {', '.join(names[:5])}{more}"
        warnings.append(ManifestWarning("no-status", "status", message))
    judged_at = moment if any(member.newest_heartbeat for member in members) else None
    if judged_at:
        warnings += _heartbeat_warnings(fleet, members, moment)
    warnings += _warnings(
        ImportNote(note, tuple(names)) for note, names in notes.items()
    )
    # Claims of other systems are texts: a policy need not compare them as quantities.
    reporting = fleet
    if foreign:
        reporting = Fleet(cluster for cluster in fleet if cluster.name not in foreign)
    return FleetFile(fleet, (*warnings, *property_warnings(reporting)), judged_at, hub)


def _ready(member: MemberClusterManifest) -> Cluster:
    """Return a cluster of another system, or of a table: nothing there says whether it is ready."""
    return member.cluster(now=_LONG_AGO).with_changes(eligibility=ELIGIBLE)


def _warnings(notes: Iterable[ImportNote]) -> tuple[ManifestWarning, ...]:
    return tuple(replace(note.warning, message=note.message) for note in notes)


def _fleet_entry(
    data: Any,
    *,
    managed: Mapping[str, Cluster],
    notes: dict[ManifestWarning, list[str]],
    foreign: set[str],
) -> list[MemberClusterManifest | Cluster] | None:
    """Read what one document holds of a fleet, None for a document that belongs to another file."""
    if is_hub_object(data) and data["kind"] != CLUSTER_KIND:
        return None
    if isinstance(data, list):
        return list(parse_clusters(data, path=""))
    if isinstance(data, dict) and "kind" not in data:
        if "clusters" in data:
            return list(parse_clusters(data["clusters"]))
        return [parse_case_cluster(data)]
    if kind_of(data) in _OF_OTHER_FILES - {MEMBER_KIND} or is_ocm_placement(data):
        return None
    entries: list[MemberClusterManifest | Cluster] = []
    for entry in entry_members(ImportEntry(data)):
        parsed = parse_entry(entry)
        for note in parsed.notes:
            notes.setdefault(note, []).append(parsed.name)
        if parsed.source == MEMBER_KIND:
            entries.append(parsed.member)
            continue
        foreign.add(parsed.name)
        entries.append(managed.get(parsed.name) or _ready(parsed.member))
    return entries


def _heartbeat_warnings(
    fleet: Fleet, members: list[MemberClusterManifest], moment: datetime
) -> Iterator[ManifestWarning]:
    # One odd clock, or an odd --now, may make the whole fleet stale.
    stale = sum(
        cluster.eligibility.kind is EligibilityKind.STALE_HEARTBEAT for cluster in fleet
    )
    if 2 * stale > len(fleet):
        message = f"{stale} of {len(fleet)} heartbeats are outdated as of {moment.isoformat()}: check --now"
        yield ManifestWarning("mostly-stale", "status.agentStatus", message)

    later = sum(
        member.newest_heartbeat is not None and member.newest_heartbeat > moment
        for member in members
    )
    if later:
        message = f"{later} of {len(members)} heartbeats are after {moment.isoformat()}: they count as recent"
        yield ManifestWarning("future-heartbeat", "status.agentStatus", message)


def _of_kinds(
    kinds: Iterable[str], parse: Callable[[Any], Value]
) -> Callable[[Any], Value | None]:
    """Return a parser that skips, with None, the kinds of the other files."""
    others = _OF_OTHER_FILES.difference(kinds)
    return lambda data: None if kind_of(data) in others else parse(data)


def read_placement(source: bytes, *, name: str | None = None) -> PlacementInput:
    """Read the only placement of a file, or the one of that full name. Raise InvalidManifest."""
    parse = _of_kinds(
        _PLACEMENT_KINDS, lambda data: placement_input(parse_placement(data))
    )
    inputs = [read.value for read in read_each(items_in(source), parse)]
    matches = [input_ for input_ in inputs if name in (None, input_.name)]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(input_.name for input_ in inputs) or "none"
    if name is not None:
        problem = "found more than once" if matches else "not found in this file"
        raise InvalidManifest.of(
            "metadata.name",
            "unknown-placement",
            f"{name} {problem}",
            f"one of: {names}",
        )
    if not inputs:
        allowed = f"one {PLACEMENT_KIND} or {NAMESPACED_PLACEMENT_KIND}, or a Placement of OCM"
        raise InvalidManifest.of("", "required", f"No {PLACEMENT_KIND} found", allowed)
    raise InvalidManifest.of(
        "metadata.name",
        "too-many",
        f"{len(matches)} placements found: select one with --name",
        names,
    )


def read_bindings(
    source: bytes, *, placement: str | None, snapshot: str | None = None
) -> BindingsFile:
    """Read the bindings of a placement: plain cases or objects of a hub. Raise InvalidManifest.

    Current are those of `snapshot`, or else of the newest policy snapshot that they name. `placement` None
    takes those of every placement.
    """
    items = items_in(source)
    if any("kind" in item.data for item in items if isinstance(item.data, dict)):
        return _hub_bindings(
            read_each(items, _of_kinds(BINDING_KINDS, parse_binding)),
            placement,
            snapshot,
        )
    if snapshot is not None:
        raise InvalidManifest.of(
            "",
            "conflict",
            "Forbidden: --snapshot is only allowed with bindings of KubeFleet",
            "no --snapshot",
        )
    reads = read_each(items, _plain_bindings)
    refuse_twice(
        reads, lambda bindings: [binding.cluster for binding in bindings], "cluster"
    )
    return BindingsFile(tuple(binding for read in reads for binding in read.value))


def read_all_bindings(
    source: bytes, *, is_snapshot: bool = False
) -> dict[str, tuple[PlacedBinding, ...]]:
    """Read bindings by the full name of their placement: objects of a hub, or those of a fleet snapshot.

    With `is_snapshot` the file may be another one of clusters, which has none. Raise InvalidManifest.
    """
    items = items_in(source)
    data = items[0].data if len(items) == 1 and isinstance(items[0].data, dict) else {}
    if "kind" not in data and isinstance(data.get("bindings"), dict):
        return {
            name: parse_case_bindings(raw, path=format_path(("bindings", name)))
            for name, raw in data["bindings"].items()
        }
    if is_snapshot:
        return {}
    reads = read_each(items, _of_kinds(BINDING_KINDS, parse_binding))
    by_name = grouped((read.value.placement or "", read) for read in reads)
    if "" in by_name or not reads:
        raise InvalidManifest.of(
            "",
            "required",
            "No binding with the name of its placement found",
            f"{' or '.join(BINDING_KINDS)} objects, or a fleet snapshot",
        )
    return {
        name: _hub_bindings(several, name, None).bindings
        for name, several in by_name.items()
    }


def _hub_bindings(
    reads: list[Read[BindingDocument]], placement: str | None, snapshot: str | None
) -> BindingsFile:
    if not reads:
        raise InvalidManifest.of(
            "",
            "required",
            f"No {BINDING_KIND} found",
            f"{' or '.join(BINDING_KINDS)} objects, or plain cases",
        )
    ours = [
        read
        for read in reads
        if placement is None or read.value.placement in (None, placement)
    ]
    documents = [read.value for read in ours]
    current = newest_snapshot(documents) if snapshot is None else snapshot
    live = [read for read in ours if not read.value.is_deleting]
    refuse_twice(live, lambda one: [one.spec.target_cluster], "spec.targetCluster")
    warnings = []
    if count := len(reads) - len(ours):
        message = f"ignored: {count} {'binding' if count == 1 else 'bindings'} of other placements"
        warnings.append(ManifestWarning("other-bindings", "metadata.labels", message))
    if snapshot is not None and snapshot not in {
        document.snapshot for document in documents
    }:
        message = f"no binding was decided under {snapshot}: all of them are obsolete"
        warnings.append(
            ManifestWarning(
                "unknown-snapshot", "spec.schedulingPolicySnapshotName", message
            )
        )
    return BindingsFile(
        tuple(document.binding(current) for document in documents), tuple(warnings)
    )


def _plain_bindings(data: Any) -> tuple[PlacedBinding, ...]:
    if isinstance(data, dict) and "bindings" in data:
        return parse_case_bindings(data["bindings"])
    prefix = "bindings" if isinstance(data, list) else "bindings[0]"
    try:
        return parse_case_bindings(data if isinstance(data, list) else [data])
    except InvalidManifest as invalid:
        raise InvalidManifest(
            replace(error, path=error.path.removeprefix(prefix).removeprefix("."))
            for error in invalid.errors
        ) from invalid


_MOST_LINES = 200


@dataclass(frozen=True, slots=True)
class RequestSource:
    """The bytes of a file, or why there are none, and the name to call it by."""

    name: str
    content: bytes | OSError


@dataclass(frozen=True, slots=True)
class Request:
    """What to simulate; `now` None means the newest heartbeat of the clusters file."""

    clusters: RequestSource
    placement: RequestSource
    bindings: RequestSource | None = None
    name: str | None = None
    snapshot: str | None = None
    semantics: Semantics | None = None
    now: datetime | None = None
    strict_health: bool = False


@dataclass(frozen=True, slots=True)
class Simulation:
    """The decision for one placement, its warnings, and when the heartbeats were judged."""

    placement: str
    decision: Decision
    warnings: tuple[ManifestWarning, ...]
    asked_for: Semantics
    judged_at: datetime | None = None


class BadInputError(FleetError, ValueError):
    """At least one file could not be used; `errors` pairs the name of a file with one of its errors."""

    status = HTTPStatus.UNPROCESSABLE_ENTITY
    problem_type = "invalid-document"

    def __init__(self, errors: list[tuple[str, FieldError]]) -> None:
        lines = (f"{name}: {error}" if name else str(error) for name, error in errors)
        super().__init__("\n".join(first_lines(lines, _MOST_LINES)))
        self.errors = tuple(errors)

    @classmethod
    def of_text(cls, text: str) -> "BadInputError":
        lines = text.splitlines()
        return cls([("", FieldError("", "unreadable", line)) for line in lines])


def simulate(request: Request) -> Simulation:
    """Read all files, then run one scheduling cycle. Raise BadInputError with the errors of all files."""
    inputs = _read_inputs(request)
    semantics = request.semantics or inputs.placement_input.semantics
    return _run(_translated(inputs.placement_input, semantics, request), inputs)


def simulate_all(request: Request) -> dict[Semantics, Simulation]:
    """Read all files, then run the same placement under every semantics. Raise BadInputError."""
    inputs = _read_inputs(request)
    return {
        semantics: _run(_translated(inputs.placement_input, semantics, request), inputs)
        for semantics in Semantics
    }


def compared(simulations: Mapping[Semantics, Simulation]) -> SemanticsComparison:
    """Return simulations of one placement side by side, compared with the semantics of its manifest."""
    own = next(iter(simulations.values())).asked_for
    return SemanticsComparison(
        {
            semantics: simulation.decision
            for semantics, simulation in simulations.items()
        },
        own,
    )


def _translated(
    placement_input: PlacementInput, semantics: Semantics, request: Request
) -> PlacementInput:
    try:
        return translate(placement_input, semantics)
    except InvalidManifest as invalid:
        raise BadInputError(
            [(request.placement.name, error) for error in invalid.errors]
        ) from invalid


@dataclass(frozen=True, slots=True)
class _Inputs:
    fleet: Fleet
    placement_input: PlacementInput
    bindings: tuple[PlacedBinding, ...]
    warnings: tuple[ManifestWarning, ...]
    judged_at: datetime | None
    hub: OcmHub | None = None
    now: datetime | None = None
    clusters: str = ""


def _read_inputs(request: Request) -> _Inputs:
    errors: list[tuple[str, FieldError]] = []

    def read(
        source: RequestSource, parse: Callable[..., Value], **options: Any
    ) -> Value | None:
        if isinstance(source.content, OSError):
            reason = source.content.strerror or str(source.content)
            errors.append(
                (
                    source.name,
                    FieldError("", "unreadable", f"Cannot read the file: {reason}"),
                )
            )
            return None
        try:
            return parse(source.content, **options)
        except InvalidManifest as invalid:
            errors.extend((source.name, error) for error in invalid.errors)
            return None

    fleet = read(
        request.clusters,
        read_fleet,
        now=request.now,
        strict_health=request.strict_health,
    )
    placement_input = read(request.placement, read_placement, name=request.name)
    bindings: BindingsFile | None = BindingsFile(())
    if request.bindings is not None:
        owner = request.name if placement_input is None else placement_input.name
        bindings = read(
            request.bindings, read_bindings, placement=owner, snapshot=request.snapshot
        )
    if fleet is None or placement_input is None or bindings is None:
        raise BadInputError(errors)
    return _Inputs(
        fleet.fleet,
        placement_input,
        bindings.bindings,
        (*fleet.warnings, *bindings.warnings),
        fleet.judged_at,
        fleet.hub,
        request.now,
        request.clusters.name,
    )


def _run(placement_input: PlacementInput, inputs: _Inputs) -> Simulation:
    cycle = placement_input.cycle(inputs.fleet, inputs.bindings)
    if inputs.hub is not None and profile_of(cycle).has_hub_objects:
        if inputs.now is not None:
            cycle = at_moment(cycle, inputs.now)
        if inputs.hub.has_sets:
            try:
                cycle = inputs.hub.cycle(cycle, placement_input.name)
            except BlockedSetError as blocked:
                error = FieldError(
                    "spec.clusterSelector",
                    "bad-format",
                    f"Invalid value: {blocked}: a hub would decide nothing",
                )
                raise BadInputError([(inputs.clusters, error)]) from blocked
    decision = schedule(cycle)
    of_cycle = (*fleet_warnings(cycle), *decision_warnings(decision))
    all_warnings = (*inputs.warnings, *placement_input.warnings, *of_cycle)
    return Simulation(
        placement_input.name,
        decision,
        tuple(map(placement_input.in_document, all_warnings)),
        inputs.placement_input.semantics,
        inputs.judged_at,
    )
