"""How a simulated cluster behaves, and what is wrong with it: the connection, read and checked.

    {"applyMilliseconds": 50, "readySeconds": 2,
     "faults": [{"kind": "unreachable", "until": "2026-11-20T12:05:00Z"}, {"kind": "refuse", "image": "2.1"}]}

`{"fault": "silent"}` is short for one fault without further fields.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, ClassVar

from placements.scheduling.door.fields import Flag, Moment, Text, listed, one_of, whole
from placements.scheduling.door.parsing import Parsed, Raw, parse_model
from placements.scheduling.faults import Problem
from placements.scheduling.semantics import DEFAULT_SEMANTICS

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


class Call(StrEnum):
    """The calls of a driver."""

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


class SimulatedFault(Parsed):
    """One thing that is wrong, from `since` (always) until just before `until` (for ever).

    `refuse`, `notReady` and `flap` are about the objects that match all of `objectKind`, `objectName` and
    `image` (a whole image or its tag), by default all. `flap` starts unavailable and changes each
    `periodSeconds`. A `timeOut` answers none of `calls` in time, by default none at all; with `afterEffect`
    the call took effect all the same. `lostState` forgets at `since` what was there before.
    """

    noun: ClassVar[str] = "simulated fault"

    kind: Annotated[FaultKind, one_of(FaultKind)]
    since: Moment | None = None
    until: Moment | None = None
    object_kind: Text = ""
    object_name: Text = ""
    image: Text = ""
    calls: Annotated[tuple[Annotated[Call, one_of(Call)], ...], listed(high=len(Call))] = ()
    after_effect: Flag = False
    period_seconds: Annotated[int, whole(1, _DAY)] = 60

    @classmethod
    def rules(cls, raw: Raw) -> Iterator[Problem]:
        """A field belongs to some kinds only."""
        kind = raw.get("kind")
        for name, kinds in _FIELDS_OF.items():
            if name in raw and kind in list(FaultKind) and kind not in kinds:
                message = f"says nothing about a fault of kind {kind}"
                yield Problem((name,), "forbidden-for-type", message, f"with {', '.join(sorted(kinds))}")
        if kind == FaultKind.LOST_STATE and "since" not in raw:
            yield Problem(("since",), "required", "is missing: when the state was lost", "a time")

    def is_on(self, now: datetime) -> bool:
        """Tell whether the fault holds at a moment."""
        return (self.since is None or self.since <= now) and (self.until is None or now < self.until)

    def is_about(self, kind: str, name: str, images: tuple[str, ...]) -> bool:
        """Tell whether an object of this kind and name, with these images, is concerned."""
        return (
            self.object_kind in ("", kind)
            and self.object_name in ("", name)
            and (not self.image or any(self._is_image(one) for one in images))
        )

    def keeps_unready(self, now: datetime) -> bool:
        """Tell whether objects that it is about are unavailable at a moment."""
        if self.kind is FaultKind.NOT_READY:
            return True
        if self.kind is not FaultKind.FLAP:
            return False
        since = self.since or datetime.min.replace(tzinfo=now.tzinfo)
        return (now - since) // timedelta(seconds=self.period_seconds) % 2 == 0

    def _is_image(self, image: str) -> bool:
        return image == self.image or image.endswith(f":{self.image}")


class Configuration(Parsed):
    """How long calls take, how long objects take to become available, and the faults."""

    noun: ClassVar[str] = "simulated cluster's connection"

    apply_milliseconds: Annotated[int, whole(0, _LONGEST_WAIT)] = 50
    observe_milliseconds: Annotated[int, whole(0, _LONGEST_WAIT)] = 0
    ready_seconds: Annotated[int, whole(0, _DAY)] = 2
    fault: Annotated[FaultKind, one_of(FaultKind)] | None = None
    faults: Annotated[tuple[SimulatedFault, ...], listed(high=MOST_FAULTS)] = ()

    @classmethod
    def complete(cls, raw: Raw) -> Raw:
        """Write the short form out."""
        short = raw.get("fault")
        listed_ones = raw.get("faults") or ()
        if not isinstance(short, str) or not isinstance(listed_ones, (list, tuple)):
            return raw
        return {**raw, "faults": [*listed_ones, {"kind": short}]} if short in list(FaultKind) else raw

    def faults_at(self, now: datetime) -> list[SimulatedFault]:
        """Give the faults that hold at a moment."""
        return [fault for fault in self.faults if fault.is_on(now)]


USUAL = Configuration()


def parse_configuration(connection: object, *, path: str = "connection") -> Configuration:
    """Read the connection of a simulated cluster; raise Faults with all that is wrong."""
    if connection == {}:
        return USUAL
    return parse_model(Configuration, connection, semantics=DEFAULT_SEMANTICS, path=path)
