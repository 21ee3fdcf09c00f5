"""The interface of drivers: calls, results, errors.

A driver connects to one member cluster. Every call is bounded by its `timeout` in seconds and raises one of
two errors: DriverUnavailable without a response, so that the effect is unknown and a retry is right;
DriverRejected when the cluster rejected the call. All calls are idempotent.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from clusters.drivers.readiness import Readiness, overall_readiness
from fleetui.apimachinery.words import full_name
from fleetui.errors import FleetError

SIMULATED = "simulated"
KUBERNETES = "kubernetes"
REPORTED = "reported"
"""No driver of ours: the cluster's own agent reports over REST."""

USUAL_TIMEOUT = 10.0
"""Seconds after which a call gives up, unless its caller says otherwise."""


@dataclass(frozen=True, slots=True, order=True)
class ObjectRef:
    """The identity of an object in its cluster, independent of the API version."""

    group: str
    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> "ObjectRef":
        metadata = manifest["metadata"]
        group = manifest["apiVersion"].rpartition("/")[0]
        return cls(
            group, manifest["kind"], metadata.get("namespace") or "", metadata["name"]
        )

    def __str__(self) -> str:
        return f"{self.kind} {full_name(self.namespace, self.name)}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a cluster did not take an object; `code` and `message` as in `rules/lifecycle.md#apply`."""

    object: ObjectRef
    code: str
    message: str


APPLY_FAILED = "ManifestApplyFailed"
FAILED_TO_TAKE_OVER = "FailedToTakeOver"


def owned_by_placement(ref: ObjectRef, placement: str) -> Refusal:
    return Refusal(
        ref, FAILED_TO_TAKE_OVER, f"belongs to placement {placement} of this hub"
    )


@dataclass(frozen=True, slots=True)
class FieldDiff:
    """One difference: the JSON pointer of a field, and its values as compact JSON ("": a side has none)."""

    path: str
    in_member: str
    in_hub: str


@dataclass(frozen=True, slots=True)
class ObjectDiff:
    """The differences between an object and its manifest.

    `version`: of the API of the manifest, such as `v1`. `member_generation` is None where the object is
    missing. `is_degraded`: all fields were compared, since the dry run was refused. `is_truncated`: there are
    more differences than `fields` lists.
    """

    object: ObjectRef
    version: str
    member_generation: int | None = None
    fields: tuple[FieldDiff, ...] = ()
    is_degraded: bool = False
    is_truncated: bool = False


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """Who writes to a cluster: the installation, and the member under which it is joined.

    `member` is the stable ID of the member with its name. `cluster_uid` is the UID of the namespace
    `kube-system` as last seen ("": not known yet). `shared_with` names another member with the same one:
    then nothing is removed. `inherited` are the members of the same cluster that left while this one stayed.
    """

    hub_id: str
    member: str
    cluster_uid: str = ""
    shared_with: str = ""
    inherited: tuple[str, ...] = ()

    @property
    def own_members(self) -> tuple[str, ...]:
        """Return the members whose records are this member's: "" where one is from before there were any."""
        return ("", self.member, *self.inherited)

    @property
    def proves_older_records(self) -> bool:
        """Return whether records from before members had an identity can only be those of this member."""
        return bool(self.cluster_uid) and not self.shared_with


@dataclass(frozen=True, slots=True)
class ObjectWarnings:
    """What an API server warned of when an object was written or tried; no messages where it did not."""

    object: ObjectRef
    messages: tuple[str, ...] = ()


class DriverError(FleetError):
    """A call to a cluster failed; `warnings` are about the objects that it wrote before."""

    warnings: tuple[ObjectWarnings, ...] = ()


class DriverUnavailable(DriverError):
    """The cluster did not answer in time, or cannot be reached; a later call may succeed.

    `code` as in `rules/kubernetes-driver.md#errors` ("" for drivers without codes); `retry_after`: seconds
    during which no call should be made, None where the cluster named none.
    """

    problem_type = "unavailable"

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after


class DriverPending(DriverUnavailable):
    """Nothing is wrong, and more time is needed: `done` of `total` objects are finished."""

    def __init__(
        self,
        message: str,
        *,
        done: int = 0,
        total: int = 0,
        remaining: tuple[ObjectRef, ...] = (),
    ) -> None:
        super().__init__(message, code="pending")
        self.done = done
        self.total = total
        self.remaining = remaining


class DriverRejected(DriverError):
    """The cluster answered and rejects the objects in `refusals`, or without any the whole call.

    What it does not reject of a version is applied (`rules/lifecycle.md#apply`). `drifts` and `diffs` are the
    differences for which objects were rejected. `code`: why the whole call was rejected, where there is one.
    """

    def __init__(
        self,
        message: str,
        refusals: tuple[Refusal, ...] = (),
        *,
        drifts: tuple[ObjectDiff, ...] = (),
        diffs: tuple[ObjectDiff, ...] = (),
        code: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.refusals = refusals
        self.drifts = drifts
        self.diffs = diffs


class DriverFenced(DriverError):
    """The cluster has seen a newer call for this placement: the caller was stopped and lost its lease.

    `fence` is that of the newer call.
    """

    def __init__(self, placement: str, fence: int) -> None:
        super().__init__(f"a newer call for {placement} was made meanwhile")
        self.fence = fence


class UnknownDriverError(Exception):
    """A connection names a driver that this console does not have."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{name!r} is no driver; there are: {', '.join(known)}")


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """The apply strategy of a placement (`rules/lifecycle.md#strategies`), with the defaults of KubeFleet."""

    type: Literal["ClientSideApply", "ServerSideApply", "ReportDiff"] = (
        "ClientSideApply"
    )
    comparison: Literal["PartialComparison", "FullComparison"] = "PartialComparison"
    when_to_apply: Literal["Always", "IfNotDrifted"] = "Always"
    when_to_take_over: Literal["Always", "IfNoDiff", "Never"] = "Always"
    allow_co_ownership: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Version:
    """The desired content of a placement on a cluster (`rules/lifecycle.md#terms`).

    `placement` is its full name: one that has a namespace needs it on the cluster. `id` is opaque; equal ids
    have equal manifests. The manifests are ready to apply. `fence` grows with every claim of a call for this
    placement and cluster: a cluster refuses calls with a lower one than it has seen. `kinds`: (apiVersion,
    kind) of all objects in the kept snapshots of the placement. `was_applied`: the hub knows of an earlier
    apply of the placement there, whole or in part. `known`: the versions that this console has
    started there (empty: not recorded). Where the cluster has another one, or the console `is_behind` the
    calls that the cluster has seen, nothing of it is removed before a person has confirmed that.
    """

    id: str
    placement: str
    manifests: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    fence: int = 0
    options: ApplyOptions = field(default_factory=ApplyOptions)
    kinds: tuple[tuple[str, str], ...] = ()
    was_applied: bool = False
    known: tuple[str, ...] = ()
    is_behind: bool = False
    is_removal_confirmed: bool = False

    @property
    def namespace(self) -> str:
        """Return the namespace of the placement; empty for one that is cluster-scoped."""
        return self.placement.rpartition("/")[0]

    def missing_namespace(self, name: str) -> str:
        hint = (
            "place it with a ClusterResourcePlacement"
            if self.namespace
            else "select it too"
        )
        return f"namespace {name} is missing; {hint}"


@dataclass(frozen=True, slots=True)
class DiffResult:
    """How the objects on a cluster differ from a version; `failures` could not be compared.

    Of a dry run: `diffs` would be changed or created, `failures` refused, and `removed` are objects of older
    versions that would go. `unchecked` cannot be tried before others of the version exist, such as their
    Namespace.
    """

    version: str
    diffs: tuple[ObjectDiff, ...] = ()
    failures: tuple[Refusal, ...] = ()
    removed: tuple[ObjectRef, ...] = ()
    unchecked: tuple[ObjectRef, ...] = ()
    warnings: tuple[ObjectWarnings, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    """An applied object that is not simply available, and why."""

    object: ObjectRef
    readiness: Readiness
    reason: str


@dataclass(frozen=True, slots=True)
class LiveObject:
    """One object of a placement as it is on the cluster.

    `readiness` is None where it is missing, or could not be read: then `reason` says why. `hint` is a fact
    that explains its state and decides nothing.
    """

    object: ObjectRef
    uid: str = ""
    readiness: Readiness | None = None
    reason: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PlacementSeen:
    """What a cluster has of a placement.

    `version` is the one last handed to it; while `refusals` is not empty it has that one only in part, and
    `whole_version` is the last it took on entirely ("" when there was none). `unready` lists the objects that
    are not available yet and those that cannot be tracked. `objects` are all in the order of applying, where
    the driver reads them one by one.
    """

    placement: str
    version: str
    whole_version: str
    refusals: tuple[Refusal, ...] = ()
    unready: tuple[ObjectSeen, ...] = ()
    missing: tuple[ObjectRef, ...] = ()
    drifted: tuple[ObjectDiff, ...] = ()
    notice: str = ""
    objects: tuple[LiveObject, ...] = ()

    @property
    def readiness(self) -> Readiness:
        """Return the readiness of the applied objects; meaningless while there are refusals."""
        return overall_readiness(seen.readiness for seen in self.unready)


@dataclass(frozen=True, slots=True)
class Applied:
    """The cluster has applied a whole version; `changed` is False when it had it already.

    `drifts`: what differed under FullComparison although it was applied. `placement`: what the cluster
    answered about the objects meanwhile, where that saves an observation.
    """

    version: str
    changed: bool
    drifts: tuple[ObjectDiff, ...] = ()
    placement: PlacementSeen | None = field(default=None, compare=False)
    warnings: tuple[ObjectWarnings, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Removed:
    """The cluster has nothing of a placement any more, or has released it; `existed`: it had something."""

    existed: bool
    warnings: tuple[ObjectWarnings, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class HeldObjects:
    """What a cluster holds of a placement: how many objects, and which of them take others along.

    `containers` are Namespaces and CustomResourceDefinitions: what others put in goes with them.
    """

    count: int
    containers: tuple[ObjectRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """Health of a cluster, its readings if any, and the requested placements.

    A result means that the agent reports and has joined; its health is the health condition.
    `placements` has those requested placements that are on the cluster. `fences`: those of all placements of
    this hub on the cluster; None where they were not requested. `held`: what a real cluster holds of these.
    `cluster_uid`: the UID of its namespace `kube-system`; None where it was not read. `health_message`: why
    it is not healthy.
    """

    is_healthy: bool
    properties: Mapping[str, str] | None = None
    usage: Mapping[str, Mapping[str, str]] | None = None
    placements: tuple[PlacementSeen, ...] = ()
    fences: Mapping[str, int] | None = None
    held: Mapping[str, HeldObjects] = field(default_factory=dict)
    cluster_uid: str | None = None
    health_message: str = ""

    def of(self, placement: str) -> PlacementSeen | None:
        """Return the state of a placement; None if the cluster has nothing of it."""
        return next(
            (seen for seen in self.placements if seen.placement == placement), None
        )


class Driver(Protocol):
    """Connects to one member cluster; all timeouts are in seconds."""

    def apply(self, version: Version, *, timeout: float = USUAL_TIMEOUT) -> Applied:
        """Apply a version of a placement, and remove the objects of its older versions.

        The same version changes nothing, but retries rejected objects. Raises DriverUnavailable,
        DriverRejected, DriverFenced.
        """

    def observe(
        self,
        *placements: str,
        inventory: bool = False,
        version_of: Callable[[str], Version | None] | None = None,
        timeout: float = USUAL_TIMEOUT,
    ) -> Observation:
        """Observe the cluster and these placements; without placements and inventory a cheap heartbeat.

        `inventory`: report which placements of this hub the cluster holds, too. `version_of` returns the
        version of a placement; it is called in the thread of the caller, and only where an object may have
        drifted. Without it such an object is reported as drifted, without fields.

        Raises DriverUnavailable, DriverRejected.
        """

    def remove(
        self,
        placement: str,
        *,
        fence: int = 0,
        timeout: float = USUAL_TIMEOUT,
    ) -> Removed:
        """Remove all objects of a placement.

        Raises DriverUnavailable, DriverRejected, DriverFenced.
        """

    def diff(
        self,
        version: Version,
        *,
        as_apply: bool = False,
        timeout: float = USUAL_TIMEOUT,
    ) -> DiffResult:
        """Compare the objects of a version with those on the cluster, without writing anything.

        `as_apply`: a dry run of an apply instead, with all its rules. A simulated cluster has none.

        Raises DriverUnavailable, DriverPending, DriverRejected.
        """

    def release(
        self,
        placement: str,
        *,
        fence: int = 0,
        timeout: float = USUAL_TIMEOUT,
    ) -> Removed:
        """Stop managing the objects of a placement and leave them there.

        Raises DriverUnavailable, DriverPending, DriverRejected, DriverFenced.
        """

    def serves(
        self, kinds: Collection[tuple[str, str]], *, timeout: float = USUAL_TIMEOUT
    ) -> bool:
        """Return whether objects of at least one of these kinds, (apiVersion, kind), can be applied now.

        Raises DriverUnavailable, DriverRejected.
        """

    def leave(self, *, timeout: float = USUAL_TIMEOUT) -> None:
        """Notify the cluster that it leaves; workloads stay. Raises DriverUnavailable, DriverRejected."""
