"""The objects of a placement on one cluster: their states, differences and hints, and why calls fail."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from clusters.drivers.kubernetes.targets import wave_of
from clusters.drivers.readiness import Readiness
from fleetui.apimachinery.grouping import grouped
from placements.engine.rollout.state import EMPTY, ObjectFault, Phase

_UNAVAILABLE = {
    "dns": "Name not resolved",
    "refused": "Connection refused",
    "broken": "Connection closed",
    "timeout": "No answer in time",
    "tls": "TLS handshake failed",
    "proxy": "Proxy failed",
    "address": "Address not allowed",
    "tls-insecure-not-allowed": "Insecure TLS not allowed",
    "credentials": "Credentials rejected",
    "credentials-unreadable": "Credentials cannot be decrypted",
    "not-kubernetes": "Not a Kubernetes API server",
    "no-such-path": "Path not served",
    "too-large": "Answer too large",
    "pending": "More time needed",
    "http-408": "Request timeout (HTTP 408)",
    "http-429": "Too many requests (HTTP 429)",
    "http-503": "Service unavailable (HTTP 503)",
}


def unavailable_words(code: str) -> str:
    """Return why the last call to a cluster got no answer, from the code of the driver; "" without one."""
    if code.startswith("http-"):
        return _UNAVAILABLE.get(
            code, f"Server error (HTTP {code.removeprefix('http-')})"
        )
    return _UNAVAILABLE.get(code, code.replace("-", " ").capitalize())


def with_reason(code: str, message: str) -> str:
    """Return the message of a cluster, after the reason why the last call got no answer."""
    return ": ".join(filter(None, (unavailable_words(code), message)))


_TAKE_OVER = (
    "Remove the object on the cluster, or allow the takeover in the apply strategy."
)
_DRIFTED = "whenToApply is IfNotDrifted: undo the change on the cluster, or set whenToApply to Always."
_HINTS = {
    "KindNotServed": "Install the CustomResourceDefinition, or select it in the placement.",
    "FoundGenerateName": "Set metadata.name instead of metadata.generateName.",
    "Duplicated": "Select the object only once.",
    "NotTakenOver": f"whenToTakeOver is Never. {_TAKE_OVER}",
    "FailedToTakeOver": f"Remove it from one of the two placements where another one owns it. {_TAKE_OVER}",
    "FoundDrifts": _DRIFTED,
    "FoundDriftsInDegradedMode": _DRIFTED,
}


_FORBIDDEN = "Add the permission to the account. Test connection, on the page of the cluster, shows what is missing."


class ObjectState(StrEnum):
    """The state of one object of a placement on a cluster, as last observed."""

    PENDING = "Pending"
    APPLYING = "Applying"
    APPLIED = "Applied"
    NOT_AVAILABLE = "NotAvailable"
    AVAILABLE = "Available"
    MISSING = "Missing"
    """It was applied, and is not on the cluster any more."""
    COMPARED = "Compared"
    """Differences are reported, and nothing is applied (ReportDiff)."""
    FAILED = "Failed"
    REMOVING = "Removing"
    UNKNOWN = "Unknown"
    """It is not part of the version, or the cluster reports more failed objects than the hub stores."""

    @property
    def words(self) -> str:
        return "Not available" if self is ObjectState.NOT_AVAILABLE else self.value


class DifferenceType(StrEnum):
    """What a difference was found by."""

    DRIFT = "Drift"
    """An applied object was changed on the cluster."""
    DIFF = "Diff"
    """Before a takeover, or reported by ReportDiff."""


class FieldValues(NamedTuple):
    """One field that differs; an empty value: the field is missing on that side."""

    path: str
    in_member: str
    in_hub: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of one object between its cluster and the hub."""

    cluster: str
    type: DifferenceType
    group: str
    version: str
    kind: str
    namespace: str
    name: str
    member_generation: int | None
    since: datetime
    observed_at: datetime
    fields: tuple[FieldValues, ...]
    is_degraded: bool
    is_truncated: bool

    @classmethod
    def of(
        cls, cluster: str, found_by: DifferenceType, row: Mapping[str, Any]
    ) -> "Difference":
        return cls(
            cluster,
            found_by,
            row["group"],
            row["version"],
            row["kind"],
            row["namespace"],
            row["name"],
            row["generation"],
            datetime.fromisoformat(row["since"]),
            datetime.fromisoformat(row["observed"]),
            tuple(FieldValues(*field) for field in row["fields"]),
            row["isDegraded"],
            row["isTruncated"],
        )

    @property
    def is_missing(self) -> bool:
        return self.member_generation is None

    def concerns(self, path: str) -> bool:
        """Return whether the field at this JSON pointer differs, or one below or above it."""
        return any(
            field.path in ("/", path)
            or field.path.startswith(f"{path}/")
            or path.startswith(f"{field.path}/")
            for field in self.fields
        )


class LiveState(NamedTuple):
    """One object as it was last read on a cluster; the fields are those of a stored row.

    `readiness` is that of the driver, "" where the object is missing or could not be read: then `reason` has
    why. `since`: how long it has been like this, as far as the hub knows.
    """

    group: str
    kind: str
    namespace: str
    name: str
    uid: str
    readiness: str
    reason: str
    hint: str
    since: str

    @property
    def is_present(self) -> bool:
        return bool(self.readiness)

    @property
    def is_missing(self) -> bool:
        return not self.readiness and not self.reason

    @property
    def state(self) -> ObjectState:
        if self.is_missing:
            return ObjectState.MISSING
        return (
            _BY_READINESS[Readiness(self.readiness)]
            if self.readiness
            else ObjectState.UNKNOWN
        )

    @property
    def since_time(self) -> datetime:
        return datetime.fromisoformat(self.since)


_BY_READINESS = {
    Readiness.AVAILABLE: ObjectState.AVAILABLE,
    Readiness.NOT_YET: ObjectState.NOT_AVAILABLE,
    Readiness.NOT_TRACKABLE: ObjectState.APPLIED,
}


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """One object of a placement on a cluster; `wave` is its place in the order of applying.

    `live` is None where no driver reads objects one by one, as on a simulated cluster. `envelope` is the kind
    and the name of the envelope on the hub that wraps it.
    """

    group: str
    version: str
    kind: str
    namespace: str
    name: str
    wave: int
    state: ObjectState
    reason: str = ""
    message: str = ""
    hint: str = ""
    differences: tuple[Difference, ...] = ()
    live: LiveState | None = None
    envelope: str = ""


_BY_PHASE = {
    Phase.APPLYING: ObjectState.APPLYING,
    Phase.APPLIED: ObjectState.APPLIED,
    Phase.AVAILABLE: ObjectState.AVAILABLE,
    Phase.FAILED: ObjectState.APPLIED,
    Phase.REMOVING: ObjectState.REMOVING,
    Phase.REMOVE_FAILED: ObjectState.REMOVING,
}


def cluster_objects(
    identities: Iterable[Sequence[str]],
    phase: str,
    failed: Sequence[ObjectFault],
    differences: Sequence[Difference],
    live: Iterable[LiveState] = (),
    *,
    is_report: bool = False,
    is_nothing_sent: bool = False,
    most_failed: int = 100,
) -> Iterator[ClusterObject]:
    """Yield the objects of a version on a cluster in the order of applying.

    An identity of one in an envelope also has kind and name of the envelope. Objects beyond the version are
    listed where they failed or differ.

    `is_nothing_sent`: the version was not sent at all, as an override failed or the call was rejected.
    """
    errors = {
        (fault.group, fault.kind, fault.namespace, fault.name): fault
        for fault in failed
    }
    by_object = grouped(
        (
            (difference.group, difference.kind, difference.namespace, difference.name),
            difference,
        )
        for difference in differences
    )
    usual = (
        ObjectState.PENDING
        if phase in EMPTY or is_nothing_sent
        else _BY_PHASE[Phase(phase)]
    )
    if is_report and usual in (ObjectState.APPLIED, ObjectState.AVAILABLE):
        usual = ObjectState.COMPARED
    elif len(failed) >= most_failed:
        usual = ObjectState.UNKNOWN
    versions = {
        **{key: several[0].version for key, several in by_object.items()},
        **{key: fault.version for key, fault in errors.items()},
    }
    states = {
        (
            live_state.group,
            live_state.kind,
            live_state.namespace,
            live_state.name,
        ): live_state
        for live_state in live
    }
    is_settled = usual in (
        ObjectState.APPLIED,
        ObjectState.AVAILABLE,
        ObjectState.UNKNOWN,
    )
    sent: dict[tuple[str, str, str, str], str] = {}
    for api_version, kind, namespace, name, *envelope in identities:
        group, _, version = api_version.rpartition("/")
        versions[group, kind, namespace, name] = version
        sent[group, kind, namespace, name] = " ".join(envelope)
    for key in sorted(versions, key=lambda one: (wave_of(one[0], one[1]), one)):
        error, (group, kind, namespace, name) = errors.get(key), key
        state = usual if key in sent else ObjectState.UNKNOWN
        now = states.get(key)
        reason, message = "", now.reason if now else ""
        if error:
            state = (
                ObjectState.NOT_AVAILABLE
                if error.code == "ManifestNotAvailableYet"
                else ObjectState.FAILED
            )
            reason, message = error.code, error.message
        elif now and is_settled:
            state = now.state
        yield ClusterObject(
            group,
            versions[key],
            kind,
            namespace,
            name,
            wave_of(group, kind),
            state,
            reason,
            message,
            hint=_HINTS.get(reason)
            or (_FORBIDDEN if " is forbidden: User " in message else "")
            or (now.hint if now and now.hint not in message else ""),
            differences=tuple(by_object.get(key, ())),
            live=now,
            envelope=sent.get(key, ""),
        )
