"""State, call log and stored objects of a simulated cluster."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from clusters.drivers.base import DriverFenced, ObjectRef, Refusal
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
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {
            **plain,
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
    ref, spec = ObjectRef.of(manifest), manifest.get("spec") or {}
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
    template = (manifest.get("spec") or {}).get("template") or {}
    pod = template.get("spec") or {} if isinstance(template, Mapping) else {}
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    return tuple(str(one["image"]) for one in containers if one.get("image"))[
        :_MOST_IMAGES
    ]


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
    there = record.replicas if is_ready else 0
    match record.kind:
        case "Deployment" | "StatefulSet":
            return {
                "availableReplicas": there,
                "unavailableReplicas": record.replicas - there,
                "updatedReplicas": record.replicas,
                "currentReplicas": record.replicas,
            }
        case "DaemonSet":
            return {
                "desiredNumberScheduled": _DAEMONS,
                "numberAvailable": _DAEMONS if is_ready else 0,
            }
        case "Job":
            return {"active": 1, "ready": 1 if is_ready else 0}
        case "Service":
            return (
                {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}
                if is_ready
                else {}
            )
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
            "objects": [one.to_plain() for one in self.objects],
            "refusals": [asdict(one) for one in self.refusals],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "StoredPlacement":
        return cls(
            plain["version"],
            plain["whole_version"],
            datetime.fromisoformat(plain["since"]),
            tuple(HeldObject.from_plain(one) for one in plain["objects"]),
            tuple(
                Refusal(**{**one, "object": ObjectRef(**one["object"])})
                for one in plain["refusals"]
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
            "held": self.placement.to_plain() if self.placement else None,
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
