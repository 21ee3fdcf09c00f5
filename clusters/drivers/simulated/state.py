"""A simulated cluster: its delays and faults, its state and call log, and who owns the objects there.

{"applyMilliseconds": 50, "readySeconds": 2,
     "faults": [{"kind": "unreachable", "until": "2026-11-20T12:05:00Z"}, {"kind": "refuse", "image": "2.1"}]}

`{"fault": "silent"}` is the short form of one fault without further fields.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias

from clusters.drivers.base import (
    FAILED_TO_TAKE_OVER,
    DriverFenced,
    ObjectRef,
    Refusal,
    Version,
    owned_by_placement,
)
from fleetui.apimachinery.errors import ErrorDetail
from fleetui.apimachinery.fields import Flag, Moment, Text, integer, list_of, one_of
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    Raw,
    items_at,
    mapping_at,
    parse_manifest,
)
from fleetui.apimachinery.secrets import canonical_json

_DAEMONS = 3
_MOST_IMAGES = 20


@dataclass(frozen=True, slots=True)
class HeldObject:
    """An object on a simulated cluster: no more of it than its readiness depends on."""

    api_version: str
    kind: str
    namespace: str
    name: str
    digest: str
    ready_at: datetime
    replicas: int = 1
    service_type: str = ""
    images: tuple[str, ...] = ()

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(
            self.api_version.rpartition("/")[0], self.kind, self.namespace, self.name
        )

    def to_plain(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in self.__slots__},
            "ready_at": self.ready_at.isoformat(),
            "images": list(self.images),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "HeldObject":
        read = {
            "ready_at": datetime.fromisoformat(plain["ready_at"]),
            "images": tuple(plain["images"]),
        }
        return cls(**{**plain, **read})


def stored_object(manifest: Mapping[str, Any], *, ready_at: datetime) -> HeldObject:
    ref, spec = ObjectRef.of(manifest), mapping_at(manifest, "spec")
    replicas = spec.get("replicas")
    return HeldObject(
        manifest["apiVersion"],
        ref.kind,
        ref.namespace,
        ref.name,
        sha256(canonical_json(manifest)).hexdigest()[:16],
        ready_at,
        replicas if isinstance(replicas, int) else 1,
        str(spec.get("type") or "") if ref.kind == "Service" else "",
        images_in(manifest),
    )


def images_in(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    pod = mapping_at(manifest, "spec", "template", "spec")
    containers = [*items_at(pod, "initContainers"), *items_at(pod, "containers")]
    return tuple(
        str(container["image"]) for container in containers if container.get("image")
    )[:_MOST_IMAGES]


def live_object(
    record: HeldObject, *, is_ready: bool, has_fault: bool = False
) -> dict[str, Any]:
    """Return the object as on a real cluster, with the status fields that readiness reads."""
    return {
        "apiVersion": record.api_version,
        "kind": record.kind,
        "metadata": {
            "name": record.name,
            "namespace": record.namespace,
            "generation": 1,
        },
        "spec": {
            "replicas": record.replicas,
            "type": record.service_type,
            "clusterIPs": ["10.96.0.1"] if is_ready else [],
        },
        "status": {
            "observedGeneration": 1,
            **_status(record, is_ready=is_ready, has_fault=has_fault),
        },
    }


def _status(record: HeldObject, *, is_ready: bool, has_fault: bool) -> dict[str, Any]:
    there = record.replicas * is_ready
    replicas = {
        "availableReplicas": there,
        "unavailableReplicas": record.replicas - there,
        "updatedReplicas": record.replicas,
        "currentReplicas": record.replicas,
    }
    statuses: dict[str, dict[str, Any]] = {
        "Deployment": replicas,
        "StatefulSet": replicas,
        "DaemonSet": {
            "desiredNumberScheduled": _DAEMONS,
            "numberAvailable": _DAEMONS * is_ready,
        },
        "Job": {"active": 1, "ready": int(is_ready)},
        "Service": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}] * is_ready}},
    }
    if record.kind in statuses:
        return statuses[record.kind]
    types = ("Established", "NamesAccepted") if is_ready else ()
    conditions = [{"type": name, "status": "True"} for name in types]
    if has_fault:  # of a kind that is not known, such as a custom resource
        conditions.append(
            {"type": "Ready", "status": "False", "reason": "SimulatedFault"}
        )
    return {
        "conditions": [
            *conditions,
            {"type": "DisruptionAllowed", "status": str(not is_ready)},
        ]
    }


LONGEST_LOG = 20
MOST_COUNTS = 20
"""Every call reads and writes all of them."""
MOST_OBJECTS = 5_000
"""A simulated cluster rejects further objects of a placement, so that a state stays small."""


class Stored(NamedTuple):
    """A state as JSON, and its revision: 0 when nothing was ever saved."""

    revision: int
    content: Mapping[str, Any]


OWNERS = ""
"""The name of the state, no placement's, that says which placements own each object of the cluster."""


class StateStore(Protocol):
    """Keeps the state of one simulated cluster: one of each placement, and OWNERS."""

    def load(self, *placements: str) -> Mapping[str, Stored]:
        """Return what was saved last for these names that have a state; without names for all placements."""

    def save(self, states: Mapping[str, Stored]) -> bool:
        """Save the next states, all or none; return whether the revisions given are still the last ones."""


@dataclass(frozen=True, slots=True)
class StoredPlacement:
    """What a simulated cluster has of one placement; `since` is when it last changed."""

    version: str
    whole_version: str
    since: datetime
    objects: tuple[HeldObject, ...] = ()
    refusals: tuple[Refusal, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "whole_version": self.whole_version,
            "since": self.since.isoformat(),
            "objects": [held_object.to_plain() for held_object in self.objects],
            "refusals": [asdict(refusal) for refusal in self.refusals],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "StoredPlacement":
        return cls(
            plain["version"],
            plain["whole_version"],
            datetime.fromisoformat(plain["since"]),
            tuple(HeldObject.from_plain(one) for one in plain["objects"]),
            tuple(
                Refusal(**{**refusal, "object": ObjectRef(**refusal["object"])})
                for refusal in plain["refusals"]
            ),
        )


class CallLogEntry(NamedTuple):
    """A call that reached the cluster: when, what it did, and for which version."""

    at: str
    what: str
    version: str


@dataclass(frozen=True)
class PlacementState:
    """The state of a placement on a simulated cluster, with its call log.

    `log` has the last calls, `changes` the number of changes to each version ("": removed); `lostState`
    deletes neither. `fence` is the highest that was seen, also after a removal.
    """

    placement: StoredPlacement | None = None
    fence: int = 0
    log: tuple[CallLogEntry, ...] = ()
    changes: Mapping[str, int] = field(default_factory=dict)

    @property
    def objects(self) -> tuple[HeldObject, ...]:
        return self.placement.objects if self.placement else ()

    def fenced(self, placement: str, fence: int) -> "PlacementState":
        """Return the state after a call with this fence. Raise DriverFenced if there was a newer call."""
        if fence < self.fence:
            raise DriverFenced(placement, self.fence)
        return replace(self, fence=fence)

    def without_lost(self, lost_at: datetime | None) -> "PlacementState":
        is_lost = (
            lost_at is not None
            and self.placement is not None
            and self.placement.since < lost_at
        )
        return replace(self, placement=None) if is_lost else self

    def with_entry(self, entry: CallLogEntry, *, is_change: bool) -> "PlacementState":
        """Return the state with a call in the log, which drops the oldest entries."""
        changes = dict(self.changes)
        if is_change:
            changes[entry.version] = changes.pop(entry.version, 0) + 1
        kept = dict(list(changes.items())[-MOST_COUNTS:])
        return replace(self, log=(*self.log, entry)[-LONGEST_LOG:], changes=kept)

    def to_plain(self) -> dict[str, Any]:
        return {
            "held": self.placement and self.placement.to_plain(),
            "fence": self.fence,
            "log": [list(entry) for entry in self.log],
            "changes": [list(item) for item in self.changes.items()],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "PlacementState":
        placement = plain.get("held")
        return cls(
            StoredPlacement.from_plain(placement) if placement else None,
            plain.get("fence", 0),
            tuple(CallLogEntry(*entry) for entry in plain.get("log", ())),
            dict(plain.get("changes", ())),
        )


@dataclass(frozen=True, slots=True)
class Ownership:
    """The placements that own an object, each with its consent to co-ownership.

    The object has the content that `writer`, one of them, sent last, with this digest. One that sends equal
    content afterwards changes nothing. Without a digest the content is what the writer has.
    """

    owners: Mapping[str, bool]
    writer: str
    digest: str = ""

    def without(self, placement: str) -> "Ownership | None":
        owners = {
            name: consent for name, consent in self.owners.items() if name != placement
        }
        if not owners:
            return None
        return (
            replace(self, owners=owners)
            if self.writer in owners
            else Ownership(owners, min(owners))
        )


Ownerships: TypeAlias = Mapping[ObjectRef, Ownership]


def refusal_of(
    version: Version,
    wanted: HeldObject,
    there: Ownership | None,
    digest: str,
) -> Refusal | None:
    """Return why a placement may not apply an object, in the order of a Kubernetes cluster.

    `digest` is that of the content that the object has.
    """
    if there is None or version.placement in there.owners:
        return None
    options, ref = version.options, wanted.ref
    if not (options.allow_co_ownership and all(there.owners.values())):
        return owned_by_placement(ref, min(there.owners))
    if options.when_to_take_over == "Never":
        return Refusal(ref, "NotTakenOver", "exists, and whenToTakeOver is Never")
    if options.when_to_take_over == "IfNoDiff" and digest != wanted.digest:
        message = "differs from its manifest, and whenToTakeOver is IfNoDiff"
        return Refusal(ref, FAILED_TO_TAKE_OVER, message)
    return None


def claimed(
    before: Ownerships,
    placement: str,
    held: Collection[HeldObject],
    written: Collection[ObjectRef],
    *,
    consent: bool,
) -> Ownerships:
    """Return the owners after a placement holds these objects and no others."""
    after = dict(before)
    refs = {held_object.ref: held_object.digest for held_object in held}
    for ref, ownership in before.items():
        if placement in ownership.owners and ref not in refs:
            left = ownership.without(placement)
            if left is None:
                del after[ref]
            else:
                after[ref] = left
    for ref, digest in refs.items():
        there = after.get(ref, Ownership({}, placement, digest))
        if ref in written and there.digest != digest:
            there = replace(there, writer=placement, digest=digest)
        owners = {**there.owners, placement: consent}
        # Of a single owner it is what that has: a new content of its own changes no owners.
        kept_digest = there.digest if len(owners) > 1 else ""
        after[ref] = replace(there, owners=owners, digest=kept_digest)
    return after


def confirmed(
    ownerships: Ownerships, states: Mapping[str, PlacementState]
) -> Ownerships:
    """Drop from ownerships those placements of `states` that have lost the object meanwhile."""
    held = {
        name: {held_object.ref for held_object in state.objects}
        for name, state in states.items()
    }
    after = {}
    for ref, ownership in ownerships.items():
        left: Ownership | None = ownership
        for name in ownership.owners:
            if left is not None and name in held and ref not in held[name]:
                left = left.without(name)
        if left is not None:
            after[ref] = left
    return after


def separated(
    states: Mapping[str, PlacementState],
) -> tuple[Ownerships, dict[str, PlacementState]]:
    """Return the owners of states from before there were any: who applied an object first.

    Also return the states of the other placements: these do not have the object, and say why.
    """
    ownerships: dict[ObjectRef, Ownership] = {}
    changed = {}
    held = [
        (name, state, state.placement)
        for name, state in states.items()
        if state.placement
    ]
    for name, state, placement in sorted(
        held, key=lambda item: (item[2].since, item[0])
    ):
        kept, refusals = [], list(placement.refusals)
        refused = {refusal.object for refusal in refusals}
        for record in placement.objects:
            there = ownerships.get(record.ref)
            if there is None:
                ownerships[record.ref] = Ownership({name: False}, name)
                kept.append(record)
            elif record.ref not in refused:
                refusals.append(owned_by_placement(record.ref, there.writer))
        if len(kept) < len(placement.objects):
            rest = replace(placement, objects=tuple(kept), refusals=tuple(refusals))
            changed[name] = replace(state, placement=rest)
    return ownerships, changed


def ownerships_to_plain(ownerships: Ownerships) -> dict[str, Any]:
    return {
        "owners": [
            [
                ref.group,
                ref.kind,
                ref.namespace,
                ref.name,
                dict(ownership.owners),
                ownership.writer,
                ownership.digest,
            ]
            for ref, ownership in ownerships.items()
        ]
    }


def ownerships_from_plain(plain: Mapping[str, Any]) -> dict[ObjectRef, Ownership]:
    return {
        ObjectRef(group, kind, namespace, name): Ownership(*ownership)
        for group, kind, namespace, name, *ownership in plain["owners"]
    }


MOST_FAULTS = 50
_LONGEST_WAIT = 600_000
_DAY = 86_400


class FaultKind(StrEnum):
    UNREACHABLE = "unreachable"
    SILENT = "silent"
    UNHEALTHY = "unhealthy"
    TIME_OUT = "timeOut"
    REFUSE = "refuse"
    NOT_READY = "notReady"
    FLAP = "flap"
    LOST_STATE = "lostState"


class DriverCall(StrEnum):
    APPLY = "apply"
    OBSERVE = "observe"
    REMOVE = "remove"
    LEAVE = "leave"


_ABOUT_OBJECTS = frozenset({FaultKind.REFUSE, FaultKind.NOT_READY, FaultKind.FLAP})
_FIELDS_OF: dict[str, frozenset[FaultKind]] = {
    "objectKind": _ABOUT_OBJECTS,
    "objectName": _ABOUT_OBJECTS,
    "image": _ABOUT_OBJECTS,
    "calls": frozenset({FaultKind.TIME_OUT}),
    "afterEffect": frozenset({FaultKind.TIME_OUT}),
    "periodSeconds": frozenset({FaultKind.FLAP}),
}


class SimulatedFault(ManifestModel):
    """One fault, from `since` (default: always) to just before `until` (default: forever).

    `refuse`, `notReady` and `flap` affect the objects that match all of `objectKind`, `objectName` and
    `image` (a whole image or its tag), by default all. `flap` starts unavailable and changes each
    `periodSeconds`. A `timeOut` affects `calls`, by default all; with `afterEffect` the call takes effect.
    `lostState` deletes at `since` what was applied before.
    """

    kind: Annotated[FaultKind, one_of(FaultKind)]
    since: Moment | None = None
    until: Moment | None = None
    object_kind: Text = ""
    object_name: Text = ""
    image: Text = ""
    calls: Annotated[
        tuple[Annotated[DriverCall, one_of(DriverCall)], ...],
        list_of(high=len(DriverCall)),
    ] = ()
    after_effect: Flag = False
    period_seconds: Annotated[int, integer(1, _DAY)] = 60

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[ErrorDetail]:
        kind = raw.get("kind")
        for name, kinds in _FIELDS_OF.items():
            if name in raw and kind in list(FaultKind) and kind not in kinds:
                yield ErrorDetail(
                    (name,),
                    "forbidden-for-type",
                    f"says nothing about a fault of kind {kind}",
                    f"with {', '.join(sorted(kinds))}",
                )
        if kind == FaultKind.LOST_STATE and "since" not in raw:
            yield ErrorDetail(
                ("since",), "required", "is missing: when the state was lost", "a time"
            )

    def is_on(self, now: datetime) -> bool:
        return (self.since is None or self.since <= now) and (
            self.until is None or now < self.until
        )

    def is_about(self, kind: str, name: str, images: tuple[str, ...]) -> bool:
        return (
            self.object_kind in ("", kind)
            and self.object_name in ("", name)
            and (
                not self.image
                or any(
                    image == self.image or image.endswith(f":{self.image}")
                    for image in images
                )
            )
        )

    def keeps_unready(self, now: datetime) -> bool:
        if self.kind is FaultKind.NOT_READY:
            return True
        if self.kind is not FaultKind.FLAP:
            return False
        since = self.since or datetime.min.replace(tzinfo=now.tzinfo)
        return (now - since) // timedelta(seconds=self.period_seconds) % 2 == 0


class Configuration(ManifestModel):
    """How long calls take, how long objects take to become available, and the faults."""

    apply_milliseconds: Annotated[int, integer(0, _LONGEST_WAIT)] = 50
    observe_milliseconds: Annotated[int, integer(0, _LONGEST_WAIT)] = 0
    ready_seconds: Annotated[int, integer(0, _DAY)] = 2
    fault: Annotated[FaultKind, one_of(FaultKind)] | None = None
    faults: Annotated[tuple[SimulatedFault, ...], list_of(high=MOST_FAULTS)] = ()

    @classmethod
    def complete(cls, raw: Raw) -> Raw:
        short = raw.get("fault")
        listed_ones = raw.get("faults") or ()
        if short not in list(FaultKind) or not isinstance(listed_ones, (list, tuple)):
            return raw
        return {**raw, "faults": [*listed_ones, {"kind": short}]}

    def faults_at(self, now: datetime) -> list[SimulatedFault]:
        return [fault for fault in self.faults if fault.is_on(now)]

    def refuses(self, manifest: Mapping[str, Any], now: datetime) -> bool:
        ref = ObjectRef.of(manifest)
        images = images_in(manifest)
        return any(
            fault.kind is FaultKind.REFUSE
            and fault.is_about(ref.kind, ref.name, images)
            for fault in self.faults_at(now)
        )


USUAL = Configuration()


def parse_configuration(
    connection: object, *, path: str = "connection"
) -> Configuration:
    """Parse the connection of a simulated cluster. Raises InvalidManifest with all errors."""
    if connection == {}:
        return USUAL
    return parse_manifest(
        Configuration, connection, semantics=DEFAULT_SEMANTICS, path=path
    )
