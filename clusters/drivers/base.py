"""What a driver can be asked, what it answers, and how it may fail.

A driver speaks to one member cluster. Every call is bounded by its `timeout` in seconds and raises one of
two things: DriverUnavailable when there was no answer, so that nobody knows whether the call took effect
and asking again is right; DriverRejected when the answer was no. A call may be repeated at will.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from clusters.drivers.readiness import Readiness, least_ready

USUAL_TIMEOUT = 10.0
"""Seconds after which a call gives up, unless its caller says otherwise."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """What tells an object from the others of its cluster; in another API version it is the same one."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "ObjectRef":
        """Read it off a manifest or a live object."""
        metadata = manifest["metadata"]
        group = manifest["apiVersion"].rpartition("/")[0]
        return cls(group, manifest["kind"], metadata.get("namespace") or "", metadata["name"])

    def __str__(self) -> str:
        """Write it as people call it, such as `Deployment shop/web`."""
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a cluster did not take an object; `code` as in `spec/lifecycle.md` B.6, `message` in its words."""

    object: ObjectRef
    code: str
    message: str


class DriverError(Exception):
    """A call to a cluster failed."""


class DriverUnavailable(DriverError):  # noqa: N818 -- the design's word for it
    """The cluster did not answer in time, or cannot be reached; asking again later may help."""


class DriverRejected(DriverError):  # noqa: N818 -- the design's word for it
    """The cluster answered, and refuses: the objects in `refusals`, or without any the whole call.

    What of a version it does not refuse it has taken on (`spec/lifecycle.md` B.6.2).
    """

    def __init__(self, message: str, refusals: tuple[Refusal, ...] = ()) -> None:
        super().__init__(message)
        self.refusals = refusals


class UnknownDriverError(Exception):
    """A connection names a driver that this console does not have."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{name!r} is no driver; there are: {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class Version:
    """What a placement is to be on a cluster (`spec/lifecycle.md` A.1).

    `id` is opaque and stands for the content: equal ids, equal manifests. Manifests are ready to apply.
    """

    id: str
    placement: str
    manifests: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Applied:
    """The cluster has taken on a whole version; `changed` is False when it had it already."""

    version: str
    changed: bool


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    """An applied object that is not simply available, and why."""

    object: ObjectRef
    readiness: Readiness
    reason: str


@dataclass(frozen=True, slots=True)
class PlacementSeen:
    """What a cluster has of a placement.

    `version` is the one last handed to it; while `refusals` is not empty it has that one only in part, and
    `whole_version` is the last it took on entirely ("" when there was none). `unready` lists the objects that
    are not available yet and those that cannot be tracked.
    """

    placement: str
    version: str
    whole_version: str
    refusals: tuple[Refusal, ...] = ()
    unready: tuple[ObjectSeen, ...] = ()

    @property
    def is_applied(self) -> bool:
        """Tell whether the cluster took every object of the version."""
        return not self.refusals

    @property
    def readiness(self) -> Readiness:
        """Sum up the objects that were taken; says nothing while `is_applied` is False."""
        return least_ready(one.readiness for one in self.unready)


@dataclass(frozen=True, slots=True)
class Observation:
    """What a driver saw of a cluster: its health, readings where it reports any, and what was asked for.

    A driver that answers means that the agent reports and has joined; its health is the health condition.
    `placements` holds those that were asked for and are on the cluster.
    """

    is_healthy: bool
    properties: Mapping[str, str] | None = None
    usage: Mapping[str, Mapping[str, str]] | None = None
    placements: tuple[PlacementSeen, ...] = ()

    def of(self, placement: str) -> PlacementSeen | None:
        """Give what was seen of a placement; None when the cluster has nothing of it."""
        return next((one for one in self.placements if one.placement == placement), None)


class Driver(Protocol):
    """Speaks to one member cluster; `timeout` is in seconds, everywhere."""

    def apply(self, version: Version, *, timeout: float = USUAL_TIMEOUT) -> Applied:
        """Make the cluster have exactly this of the placement: objects of an older version go.

        The same version again changes nothing, but retries what was refused. Raises DriverUnavailable,
        DriverRejected.
        """

    def observe(self, *placements: str, timeout: float = USUAL_TIMEOUT) -> Observation:
        """Look at the cluster and at these placements on it; without any this is cheap: a heartbeat.

        Raises DriverUnavailable, DriverRejected.
        """

    def remove(self, placement: str, *, timeout: float = USUAL_TIMEOUT) -> bool:
        """Take away all that a placement has there; tell whether there was anything.

        Raises DriverUnavailable, DriverRejected.
        """

    def leave(self, *, timeout: float = USUAL_TIMEOUT) -> None:
        """Tell the cluster that it leaves the fleet; what is placed there stays.

        Raises DriverUnavailable, DriverRejected.
        """
