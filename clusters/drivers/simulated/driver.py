"""The driver of a simulated cluster, and the changes of its state."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from clusters.drivers.base import (
    USUAL_TIMEOUT,
    Applied,
    DiffResult,
    DriverRejected,
    DriverUnavailable,
    FieldDiff,
    ObjectDiff,
    ObjectRef,
    ObjectSeen,
    Observation,
    PlacementSeen,
    Refusal,
    Version,
)
from clusters.drivers.readiness import AVAILABLE, readiness_of
from clusters.drivers.simulated.configuration import (
    Configuration,
    DriverCall,
    FaultKind,
    SimulatedFault,
    parse_configuration,
)
from clusters.drivers.simulated.state import (
    MOST_OBJECTS,
    CallLogEntry,
    HeldObject,
    SimulatedClusterState,
    StateStore,
    StoredPlacement,
    images_in,
    live_object,
    stored_object,
)

APPLY_FAILED = "ManifestApplyFailed"


def apply_objects(
    state: SimulatedClusterState, version: Version, configuration: Configuration, *, now: datetime
) -> SimulatedClusterState:
    """Replace the version of a placement; rejected objects stay unchanged."""
    before = state.of(version.placement)
    if before and before.version == version.id and not before.refusals:
        return state.noting(_entry("applied again", version, now), is_change=False)
    held = _held(before, version, configuration, room=state.room_beside(version.placement), now=now)
    was = (before.whole_version, before.objects) if before else ("", ())
    entry = _entry("refused" if held.refusals else "applied", version, now)
    state = state.holding(version.placement, held)
    return state.noting(entry, is_change=was != (held.whole_version, held.objects))


def removed(
    state: SimulatedClusterState, placement: str, *, now: datetime, what: str = "removed"
) -> SimulatedClusterState:
    """Remove the objects of a placement; the log has it as a change to the version "" ."""
    entry = CallLogEntry(now.isoformat(), what, placement, "")
    if placement not in state.held:
        return state.noting(entry._replace(what=f"{what} again"), is_change=False)
    return state.holding(placement, None).noting(entry, is_change=True)


def lost_since(configuration: Configuration, now: datetime) -> datetime | None:
    """Return the last time at which the state was lost."""
    lost = [one.since for one in configuration.faults_at(now) if one.kind is FaultKind.LOST_STATE]
    return max((moment for moment in lost if moment), default=None)


def _held(
    before: StoredPlacement | None,
    version: Version,
    configuration: Configuration,
    *,
    room: int,
    now: datetime,
) -> StoredPlacement:
    there = {one.ref: one for one in before.objects} if before else {}
    refusing = [fault for fault in configuration.faults_at(now) if fault.kind is FaultKind.REFUSE]
    ready_at = now + timedelta(seconds=configuration.ready_seconds)
    objects, refusals = [], []
    for place, manifest in enumerate(version.manifests):
        ref = ObjectRef.of(manifest)
        if place >= room:
            message = f"the simulated cluster is full: it takes {MOST_OBJECTS} objects"
        else:
            images = images_in(manifest)
            is_refused = any(fault.is_about(ref.kind, ref.name, images) for fault in refusing)
            message = f"injected fault: {ref} rejected" if is_refused else ""
        if message:
            refusals.append(Refusal(ref, APPLY_FAILED, message))
        held = there.get(ref)
        if not message:
            wanted = stored_object(manifest, ready_at=ready_at)
            held = held if held and held.digest == wanted.digest else wanted
        if held:
            objects.append(held)
    whole = (before.whole_version if before else "") if refusals else version.id
    return StoredPlacement(version.id, whole, now, tuple(objects), tuple(refusals))


def _entry(what: str, version: Version, now: datetime) -> CallLogEntry:
    return CallLogEntry(now.isoformat(), what, version.placement, version.id)


_MOST_TRIES = 20
_DEAF = frozenset({FaultKind.UNREACHABLE, FaultKind.SILENT})


class SimulatedDriver:
    """Driver of a cluster whose state is in a store, with a given clock."""

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
        """Apply a version after `applyMilliseconds`; its objects are ready `readySeconds` later."""
        self._reach(DriverCall.APPLY, timeout, self._configuration.apply_milliseconds)

        def step(state: SimulatedClusterState, now: datetime) -> SimulatedClusterState:
            fenced = state.fenced(version.placement, version.fence)
            return apply_objects(fenced, version, self._configuration, now=now)

        before, after = self._change(step)
        self._lose_answer(DriverCall.APPLY, timeout)
        held = after.of(version.placement)
        if refusals := held.refusals if held else ():
            raise DriverRejected(f"{len(refusals)} of {len(version.manifests)} objects refused", refusals)
        counts = [one.changes_to(version.placement, version.id) for one in (before, after)]
        return Applied(version.id, changed=counts[0] != counts[1])

    def observe(
        self,
        *placements: str,
        inventory: bool = False,
        version_of: Callable[[str], Version | None] | None = None,  # noqa: ARG002 -- objects do not drift here
        timeout: float = USUAL_TIMEOUT,
    ) -> Observation:
        """Return the health; the state is loaded only for placements and an inventory."""
        self._reach(DriverCall.OBSERVE, timeout, self._configuration.observe_milliseconds)
        self._lose_answer(DriverCall.OBSERVE, timeout)
        now = self._clock()
        faults = self._configuration.faults_at(now)
        state = self.state() if placements or inventory else SimulatedClusterState()
        held = {name: state.of(name) for name in placements}
        return Observation(
            is_healthy=all(fault.kind is not FaultKind.UNHEALTHY for fault in faults),
            placements=tuple(placement_seen(name, one, faults, now) for name, one in held.items() if one),
            held={name: state.fences.get(name, 0) for name in state.held} if inventory else None,
        )

    def remove(self, placement: str, *, fence: int = 0, timeout: float = USUAL_TIMEOUT) -> bool:
        self._reach(DriverCall.REMOVE, timeout, self._configuration.apply_milliseconds)
        before, _ = self._change(
            lambda state, now: removed(state.fenced(placement, fence), placement, now=now)
        )
        self._lose_answer(DriverCall.REMOVE, timeout)
        return placement in before.held

    def diff(self, version: Version, *, timeout: float = USUAL_TIMEOUT) -> DiffResult:
        """Compare with the state, which has digests of manifests and not their fields."""
        self._reach(DriverCall.OBSERVE, timeout, self._configuration.observe_milliseconds)
        self._lose_answer(DriverCall.OBSERVE, timeout)
        held = self.state().of(version.placement)
        there = {one.ref: one for one in held.objects} if held else {}
        diffs = []
        for manifest in version.manifests:
            ref = ObjectRef.of(manifest)
            found = there.get(ref)
            if found and found.digest == stored_object(manifest, ready_at=self._clock()).digest:
                continue
            member = "(another manifest)" if found else ""
            field = FieldDiff("/", member, "(the whole object)")
            api_version = str(manifest["apiVersion"]).rpartition("/")[2]
            diffs.append(ObjectDiff(ref, api_version, 1 if found else None, (field,)))
        return DiffResult(version.id, tuple(diffs))

    def release(self, placement: str, *, fence: int = 0, timeout: float = USUAL_TIMEOUT) -> bool:
        """Forget a placement; the state of a simulated cluster has nothing but what placements put there."""
        self._reach(DriverCall.REMOVE, timeout, self._configuration.apply_milliseconds)
        before, _ = self._change(
            lambda state, now: removed(state.fenced(placement, fence), placement, now=now, what="released")
        )
        self._lose_answer(DriverCall.REMOVE, timeout)
        return placement in before.held

    def leave(self, *, timeout: float = USUAL_TIMEOUT) -> None:
        self._reach(DriverCall.LEAVE, timeout, 0)
        self._lose_answer(DriverCall.LEAVE, timeout)

    def state(self) -> SimulatedClusterState:
        """Return the state and the call log without a call: for tests."""
        state = SimulatedClusterState.from_plain(self._store.load().content)
        return state.without_lost(lost_since(self._configuration, self._clock()))

    def _change(
        self, step: Callable[[SimulatedClusterState, datetime], SimulatedClusterState]
    ) -> tuple[SimulatedClusterState, SimulatedClusterState]:
        """Change the state with optimistic concurrency; return it before and after."""
        for _ in range(_MOST_TRIES):
            now = self._clock()
            stored = self._store.load()
            before = SimulatedClusterState.from_plain(stored.content).without_lost(
                lost_since(self._configuration, now)
            )
            after = step(before, now)
            if self._store.save(after.to_plain(), expected=stored.revision):
                return before, after
        raise DriverUnavailable("others change the simulated cluster all the time, or it is gone")

    def _reach(self, call: DriverCall, timeout: float, milliseconds: int) -> None:
        """Wait for the duration of the call, at most the timeout; raise the injected faults."""
        for fault in self._configuration.faults_at(self._clock()):
            if fault.kind in _DEAF:
                raise DriverUnavailable(f"the simulated cluster is {fault.kind}")
        if self._never_answers(call, after_effect=False) or milliseconds / 1000 > timeout:
            self._give_up(timeout)
        if milliseconds:
            self._sleep(milliseconds / 1000)

    def _lose_answer(self, call: DriverCall, timeout: float) -> None:
        if self._never_answers(call, after_effect=True):
            self._give_up(timeout)

    def _never_answers(self, call: DriverCall, *, after_effect: bool) -> bool:
        return any(
            fault.kind is FaultKind.TIME_OUT
            and fault.after_effect is after_effect
            and (not fault.calls or call in fault.calls)
            for fault in self._configuration.faults_at(self._clock())
        )

    def _give_up(self, timeout: float) -> None:
        self._sleep(timeout)
        raise DriverUnavailable(f"the simulated cluster gave no answer within {timeout:g} s")


def placement_seen(
    name: str, held: StoredPlacement, faults: list[SimulatedFault], now: datetime
) -> PlacementSeen:
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
