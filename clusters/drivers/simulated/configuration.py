"""The connection of a simulated cluster: its delays and faults.

    {"applyMilliseconds": 50, "readySeconds": 2,
     "faults": [{"kind": "unreachable", "until": "2026-11-20T12:05:00Z"}, {"kind": "refuse", "image": "2.1"}]}

`{"fault": "silent"}` is the short form of one fault without further fields.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from fleetui.apimachinery.errors import ErrorDetail
from fleetui.apimachinery.fields import Flag, Moment, Text, integer, list_of, one_of
from fleetui.apimachinery.model import (
    DEFAULT_SEMANTICS,
    ManifestModel,
    Raw,
    parse_manifest,
)

MOST_FAULTS = 50
_LONGEST_WAIT = 600_000
_DAY = 86_400


class FaultKind(StrEnum):
    """What can be wrong with a simulated cluster."""

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
                message = f"says nothing about a fault of kind {kind}"
                yield ErrorDetail(
                    (name,),
                    "forbidden-for-type",
                    message,
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
                    one == self.image or one.endswith(f":{self.image}")
                    for one in images
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
        if not isinstance(short, str) or not isinstance(listed_ones, (list, tuple)):
            return raw
        return (
            {**raw, "faults": [*listed_ones, {"kind": short}]}
            if short in list(FaultKind)
            else raw
        )

    def faults_at(self, now: datetime) -> list[SimulatedFault]:
        return [fault for fault in self.faults if fault.is_on(now)]


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
