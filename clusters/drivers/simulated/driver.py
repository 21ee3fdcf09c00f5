"""The driver of a simulated cluster."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from clusters.drivers.base import (
    USUAL_TIMEOUT,
    Applied,
    DriverRejected,
    DriverUnavailable,
    ObjectSeen,
    Observation,
    PlacementSeen,
    Version,
)
from clusters.drivers.readiness import AVAILABLE, readiness_of
from clusters.drivers.simulated.applying import lost_at, removed, taken_on
from clusters.drivers.simulated.configuration import (
    Call,
    FaultKind,
    SimulatedFault,
    parse_configuration,
)
from clusters.drivers.simulated.live import HeldObject, live_object
from clusters.drivers.simulated.state import Held, State, StateStore

_MOST_TRIES = 20
_DEAF = frozenset({FaultKind.UNREACHABLE, FaultKind.SILENT})


class SimulatedDriver:
    """Answers for a cluster whose state is in a store, at the moments that a clock tells."""

    def __init__(
        self,
        connection: Mapping[str, Any],
        store: StateStore,
        clock: Callable[[], datetime],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Raises Faults where the connection is malformed; `sleep` takes seconds."""
        self._configuration = parse_configuration(connection)
        self._store, self._clock, self._sleep = store, clock, sleep

    def apply(self, version: Version, *, timeout: float = USUAL_TIMEOUT) -> Applied:
        """Take on a version after `applyMilliseconds`; its objects are ready `readySeconds` later."""
        self._reach(Call.APPLY, timeout, self._configuration.apply_milliseconds)

        def step(state: State, now: datetime) -> State:
            return taken_on(state, version, self._configuration, now=now)

        before, after = self._change(step)
        self._lose_answer(Call.APPLY, timeout)
        held = after.of(version.placement)
        if refusals := held.refusals if held else ():
            raise DriverRejected(f"{len(refusals)} of {len(version.manifests)} objects refused", refusals)
        counts = [one.changes_to(version.placement, version.id) for one in (before, after)]
        return Applied(version.id, changed=counts[0] != counts[1])

    def observe(self, *placements: str, timeout: float = USUAL_TIMEOUT) -> Observation:
        """Report health; for placements, and only then, look into the state."""
        self._reach(Call.OBSERVE, timeout, self._configuration.observe_milliseconds)
        self._lose_answer(Call.OBSERVE, timeout)
        now = self._clock()
        faults = self._configuration.faults_at(now)
        state = self.state() if placements else State()
        held = {name: state.of(name) for name in placements}
        return Observation(
            is_healthy=all(fault.kind is not FaultKind.UNHEALTHY for fault in faults),
            placements=tuple(_seen(name, one, faults, now) for name, one in held.items() if one),
        )

    def remove(self, placement: str, *, timeout: float = USUAL_TIMEOUT) -> bool:
        """Take away what a placement has."""
        self._reach(Call.REMOVE, timeout, self._configuration.apply_milliseconds)
        before, _ = self._change(lambda state, now: removed(state, placement, now=now))
        self._lose_answer(Call.REMOVE, timeout)
        return placement in before.held

    def leave(self, *, timeout: float = USUAL_TIMEOUT) -> None:
        """Let go."""
        self._reach(Call.LEAVE, timeout, 0)
        self._lose_answer(Call.LEAVE, timeout)

    def state(self) -> State:
        """Give what the cluster holds now and its book, without asking it: for tests and rehearsals."""
        state = State.from_plain(self._store.load().content)
        return state.without_lost(lost_at(self._configuration, self._clock()))

    def _change(self, step: Callable[[State, datetime], State]) -> tuple[State, State]:
        """Take the state one step further, against others who do so too; give it before and after."""
        for _ in range(_MOST_TRIES):
            now = self._clock()
            stored = self._store.load()
            before = State.from_plain(stored.content).without_lost(lost_at(self._configuration, now))
            after = step(before, now)
            if self._store.save(after.to_plain(), expected=stored.revision):
                return before, after
        raise DriverUnavailable("others change the simulated cluster all the time, or it is gone")

    def _reach(self, call: Call, timeout: float, milliseconds: int) -> None:
        """Get through to the cluster and wait for what the call takes, at most until the time-out."""
        for fault in self._configuration.faults_at(self._clock()):
            if fault.kind in _DEAF:
                raise DriverUnavailable(f"the simulated cluster is {fault.kind}")
        if self._never_answers(call, after_effect=False) or milliseconds / 1000 > timeout:
            self._give_up(timeout)
        if milliseconds:
            self._sleep(milliseconds / 1000)

    def _lose_answer(self, call: Call, timeout: float) -> None:
        if self._never_answers(call, after_effect=True):
            self._give_up(timeout)

    def _never_answers(self, call: Call, *, after_effect: bool) -> bool:
        return any(
            fault.kind is FaultKind.TIME_OUT
            and fault.after_effect is after_effect
            and (not fault.calls or call in fault.calls)
            for fault in self._configuration.faults_at(self._clock())
        )

    def _give_up(self, timeout: float) -> None:
        self._sleep(timeout)
        raise DriverUnavailable(f"the simulated cluster gave no answer within {timeout:g} s")


def _seen(name: str, held: Held, faults: list[SimulatedFault], now: datetime) -> PlacementSeen:
    unready = [_object_seen(one, faults, now) for one in held.objects]
    return PlacementSeen(
        name,
        held.version,
        held.whole_version,
        held.refusals,
        tuple(one for one in unready if one is not None),
    )


def _object_seen(held: HeldObject, faults: list[SimulatedFault], now: datetime) -> ObjectSeen | None:
    is_kept = any(
        fault.keeps_unready(now) and fault.is_about(held.kind, held.name, held.images) for fault in faults
    )
    judged = readiness_of(live_object(held, is_ready=held.ready_at <= now and not is_kept))
    return None if judged == AVAILABLE else ObjectSeen(held.ref, judged.readiness, judged.reason)
