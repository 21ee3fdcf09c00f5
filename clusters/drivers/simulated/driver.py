"""The driver of a simulated cluster, and the changes of its state."""

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from clusters.drivers.base import (
    APPLY_FAILED,
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
    Removed,
    Version,
)
from clusters.drivers.readiness import AVAILABLE, readiness_of
from clusters.drivers.simulated.state import (
    MOST_OBJECTS,
    OWNERS,
    CallLogEntry,
    Configuration,
    DriverCall,
    FaultKind,
    HeldObject,
    Ownership,
    Ownerships,
    PlacementState,
    SimulatedFault,
    StateStore,
    Stored,
    StoredPlacement,
    claimed,
    confirmed,
    live_object,
    ownerships_from_plain,
    ownerships_to_plain,
    parse_configuration,
    refusal_of,
    separated,
    stored_object,
)


def apply_objects(
    state: PlacementState,
    version: Version,
    configuration: Configuration,
    *,
    now: datetime,
    is_without_namespace: bool = False,
    taken: Collection[Refusal] = (),
) -> PlacementState:
    """Replace the version of a placement; rejected objects stay unchanged.

    `is_without_namespace`: nothing has placed the namespace of the placement there. `taken` are the objects
    that belong to other placements.
    """
    before = state.placement or StoredPlacement("", "", now)
    if before.version == version.id and not before.refusals:
        return state.with_entry(
            CallLogEntry(now.isoformat(), "applied again", version.id), is_change=False
        )
    after = _merge(
        before,
        version,
        configuration,
        now,
        taken,
        is_without_namespace=is_without_namespace,
    )
    was = (before.whole_version, before.objects)
    entry = CallLogEntry(
        now.isoformat(), "refused" if after.refusals else "applied", version.id
    )
    is_change = was != (after.whole_version, after.objects)
    return replace(state, placement=after).with_entry(entry, is_change=is_change)


def removed(state: PlacementState, what: str, *, now: datetime) -> PlacementState:
    """Remove the objects of a placement; the log has it as a change to the version "" ."""
    entry = CallLogEntry(now.isoformat(), what, "")
    if state.placement is None:
        return state.with_entry(entry._replace(what=f"{what} again"), is_change=False)
    return replace(state, placement=None).with_entry(entry, is_change=True)


def lost_since(configuration: Configuration, now: datetime) -> datetime | None:
    lost = [
        fault.since
        for fault in configuration.faults_at(now)
        if fault.kind is FaultKind.LOST_STATE
    ]
    return max((moment for moment in lost if moment), default=None)


def _merge(
    before: StoredPlacement,
    version: Version,
    configuration: Configuration,
    now: datetime,
    taken: Collection[Refusal],
    *,
    is_without_namespace: bool,
) -> StoredPlacement:
    others = {refusal.object: refusal for refusal in taken}
    there = {held_object.ref: held_object for held_object in before.objects}
    ready_at = now + timedelta(seconds=configuration.ready_seconds)
    objects: list[HeldObject] = []
    refusals = []
    sent = set()
    for place, manifest in enumerate(version.manifests):
        ref = ObjectRef.of(manifest)
        if ref in sent:  # as two envelopes may hold the same object
            refusals.append(
                Refusal(ref, "Duplicated", f"{ref} is in the version more than once")
            )
            continue
        sent.add(ref)
        if ref in others:
            refusals.append(others[ref])
            continue
        message = ""
        if place >= MOST_OBJECTS:
            message = f"a simulated cluster takes {MOST_OBJECTS} objects of a placement"
        elif is_without_namespace:
            message = version.missing_namespace(version.namespace)
        elif configuration.refuses(manifest, now):
            message = "injected fault: rejected"
        if message:
            refusals.append(Refusal(ref, APPLY_FAILED, message))
            objects += filter(None, [there.get(ref)])
        else:
            wanted = stored_object(manifest, ready_at=ready_at)
            record = there.get(ref, wanted)
            objects.append(record if record.digest == wanted.digest else wanted)
    whole = before.whole_version if refusals else version.id
    return StoredPlacement(version.id, whole, now, tuple(objects), tuple(refusals))


def _record_of(state: PlacementState | None, ref: ObjectRef) -> HeldObject | None:
    objects = state.objects if state else ()
    return next(
        (held_object for held_object in objects if held_object.ref == ref), None
    )


def _claims(
    owned: Ownerships,
    placement: str,
    before: PlacementState,
    after: PlacementState,
    version: Version | None,
) -> Ownerships:
    old = set(before.objects)
    written = {
        held_object.ref for held_object in after.objects if held_object not in old
    }
    consent = version is not None and version.options.allow_co_ownership
    return claimed(owned, placement, after.objects, written, consent=consent)


_Step: TypeAlias = Callable[
    [PlacementState, Collection[Refusal], datetime], PlacementState
]
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
        """Raises InvalidManifest where the connection is malformed; `sleep` takes seconds."""
        self._configuration = parse_configuration(connection)
        self._store, self._clock, self._sleep = store, clock, sleep

    def apply(self, version: Version, *, timeout: float = USUAL_TIMEOUT) -> Applied:
        """Apply a version after `applyMilliseconds`; its objects are ready `readySeconds` later."""
        self._reach(DriverCall.APPLY, timeout, self._configuration.apply_milliseconds)
        is_without = bool(version.namespace) and not self._has_namespace(
            version.namespace
        )

        def step(
            state: PlacementState, taken: Collection[Refusal], now: datetime
        ) -> PlacementState:
            return apply_objects(
                state,
                version,
                self._configuration,
                now=now,
                is_without_namespace=is_without,
                taken=taken,
            )

        before, after = self._change(version.placement, version.fence, step, version)
        self._lose_answer(DriverCall.APPLY, timeout)
        if refusals := after.placement.refusals if after.placement else ():
            raise DriverRejected(
                f"{len(refusals)} of {len(version.manifests)} objects refused", refusals
            )
        now = self._clock()
        faults = self._configuration.faults_at(now)
        placement, is_changed = after.placement, before.changes != after.changes
        seen_placement = (
            placement_seen(version.placement, placement, faults, now)
            if placement
            else None
        )
        return Applied(version.id, changed=is_changed, placement=seen_placement)

    def observe(
        self,
        *placements: str,
        inventory: bool = False,
        version_of: Callable[[str], Version | None] | None = None,  # noqa: ARG002 -- objects do not drift here
        timeout: float = USUAL_TIMEOUT,
    ) -> Observation:
        """Return the health; the state is loaded only for placements and an inventory."""
        self._reach(
            DriverCall.OBSERVE, timeout, self._configuration.observe_milliseconds
        )
        self._lose_answer(DriverCall.OBSERVE, timeout)
        now = self._clock()
        faults = self._configuration.faults_at(now)
        states = (
            self.states(*(() if inventory else placements))
            if placements or inventory
            else {}
        )
        stored = {
            name: state.placement for name, state in states.items() if state.placement
        }
        return Observation(
            is_healthy=all(fault.kind is not FaultKind.UNHEALTHY for fault in faults),
            placements=tuple(
                placement_seen(name, stored[name], faults, now)
                for name in placements
                if name in stored
            ),
            fences={name: states[name].fence for name in stored} if inventory else None,
        )

    def remove(
        self, placement: str, *, fence: int = 0, timeout: float = USUAL_TIMEOUT
    ) -> Removed:
        return self._end(placement, "removed", fence, timeout)

    def diff(
        self,
        version: Version,
        *,
        as_apply: bool = False,  # noqa: ARG002 -- there is no server that would refuse anything
        timeout: float = USUAL_TIMEOUT,
    ) -> DiffResult:
        """Compare with the state, which has digests of manifests and not their fields."""
        self._reach(
            DriverCall.OBSERVE, timeout, self._configuration.observe_milliseconds
        )
        self._lose_answer(DriverCall.OBSERVE, timeout)
        states = self.states(version.placement)
        there = {
            held_object.ref: held_object
            for state in states.values()
            for held_object in state.objects
        }
        diffs = []
        for manifest in version.manifests:
            ref = ObjectRef.of(manifest)
            record = there.get(ref)
            if (
                record
                and record.digest
                == stored_object(manifest, ready_at=self._clock()).digest
            ):
                continue
            member = "(another manifest)" if record else ""
            field = FieldDiff("/", member, "(the whole object)")
            api_version = str(manifest["apiVersion"]).rpartition("/")[2]
            diffs.append(ObjectDiff(ref, api_version, 1 if record else None, (field,)))
        return DiffResult(version.id, tuple(diffs))

    def release(
        self, placement: str, *, fence: int = 0, timeout: float = USUAL_TIMEOUT
    ) -> Removed:
        """Forget a placement; the state of a simulated cluster has nothing but what placements put there."""
        return self._end(placement, "released", fence, timeout)

    def _end(self, placement: str, what: str, fence: int, timeout: float) -> Removed:
        self._reach(DriverCall.REMOVE, timeout, self._configuration.apply_milliseconds)
        before, _ = self._change(
            placement, fence, lambda state, _, now: removed(state, what, now=now)
        )
        self._lose_answer(DriverCall.REMOVE, timeout)
        return Removed(before.placement is not None)

    def serves(
        self,
        kinds: Collection[tuple[str, str]],  # noqa: ARG002 -- it refuses no kind for not being served
        *,
        timeout: float = USUAL_TIMEOUT,
    ) -> bool:
        self._reach(DriverCall.OBSERVE, timeout, 0)
        return False

    def leave(self, *, timeout: float = USUAL_TIMEOUT) -> None:
        self._reach(DriverCall.LEAVE, timeout, 0)
        self._lose_answer(DriverCall.LEAVE, timeout)

    def states(self, *placements: str) -> dict[str, PlacementState]:
        """Return the states of these placements, without names of all; the call log notes no call."""
        return self._states_of(self._store.load(*placements))

    def _states_of(self, several: Mapping[str, Stored]) -> dict[str, PlacementState]:
        lost_at = lost_since(self._configuration, self._clock())
        return {
            name: PlacementState.from_plain(stored.content).without_lost(lost_at)
            for name, stored in several.items()
        }

    def _has_namespace(self, name: str) -> bool:
        """Return whether every cluster has a namespace, or a placement has brought it here."""
        if name == "default" or name.startswith("kube-"):
            return True
        wanted = ObjectRef("", "Namespace", "", name)
        return any(_record_of(state, wanted) for state in self.states().values())

    def objects(self) -> dict[ObjectRef, tuple[Ownership, HeldObject]]:
        """Return each object of the cluster with its owners and the content that it has."""
        states = self.states()
        owned, _ = self._ownerships(self._store.load(OWNERS).get(OWNERS))
        return {
            ref: (ownership, record)
            for ref, ownership in confirmed(owned, states).items()
            if (record := _record_of(states.get(ownership.writer), ref))
        }

    def _ownerships(
        self, stored: Stored | None
    ) -> tuple[Ownerships, dict[str, Stored]]:
        """Return the owners, and the states of other placements that have to be saved with them."""
        if stored is not None:
            return ownerships_from_plain(stored.content), {}
        several = self._store.load()
        ownerships, changed = separated(self._states_of(several))
        return ownerships, {
            name: Stored(several[name].revision, state.to_plain())
            for name, state in changed.items()
        }

    def _taken(
        self, version: Version, owned: Ownerships
    ) -> tuple[Ownerships, list[Refusal]]:
        """Return the owners that still have their objects, and what others have of a version.

        Whether they still have them matters where the placement is not an owner yet.
        """
        manifests = {ObjectRef.of(manifest): manifest for manifest in version.manifests}
        mine = version.placement
        others = (
            owned[ref].owners
            for ref in manifests
            if ref in owned and mine not in owned[ref].owners
        )
        rivals = set[str]().union(*others)
        if not rivals:
            return owned, []
        states = self.states(*rivals)
        lost = {name: PlacementState() for name in rivals - states.keys()}
        left = confirmed(owned, {**lost, **states})
        refusals = []
        for ref, manifest in manifests.items():
            there = left.get(ref)
            record = _record_of(states.get(there.writer), ref) if there else None
            wanted = stored_object(manifest, ready_at=self._clock())
            refusals.append(
                refusal_of(version, wanted, there, record.digest if record else "")
            )
        return left, list(filter(None, refusals))

    def _change(
        self, placement: str, fence: int, step: _Step, version: Version | None = None
    ) -> tuple[PlacementState, PlacementState]:
        """Change the state of a placement with optimistic concurrency; return it before and after.

        The owners are saved with it where they change, and where a placement begins: it may have lost its
        objects, so that another one has them meanwhile.
        """
        for _ in range(_MOST_TRIES):
            now = self._clock()
            loaded = self._store.load(placement, OWNERS)
            owned, separate = self._ownerships(loaded.get(OWNERS))
            stored = separate.get(placement) or loaded.get(placement, Stored(0, {}))
            before = PlacementState.from_plain(stored.content).without_lost(
                lost_since(self._configuration, now)
            )
            left, taken = self._taken(version, owned) if version else (owned, [])
            after = step(before.fenced(placement, fence), taken, now)
            mine = _claims(left, placement, before, after, version)

            states = {**separate, placement: Stored(stored.revision, after.to_plain())}
            revision = loaded.get(OWNERS, Stored(0, {})).revision
            if mine != owned or not revision or before.placement is None:
                states[OWNERS] = Stored(revision, ownerships_to_plain(mine))
            if self._store.save(states):
                return before, after
        raise DriverUnavailable(
            "others change the simulated cluster all the time, or it was removed"
        )

    def _reach(self, call: DriverCall, timeout: float, milliseconds: int) -> None:
        """Wait for the duration of the call, at most the timeout; raise the injected faults."""
        for fault in self._configuration.faults_at(self._clock()):
            if fault.kind in _DEAF:
                raise DriverUnavailable(f"the simulated cluster is {fault.kind}")
        if (
            self._never_answers(call, after_effect=False)
            or milliseconds / 1000 > timeout
        ):
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
        raise DriverUnavailable(
            f"the simulated cluster gave no answer within {timeout:g} s"
        )


def placement_seen(
    name: str, placement: StoredPlacement, faults: list[SimulatedFault], now: datetime
) -> PlacementSeen:
    unready = []
    for record in placement.objects:
        is_kept = any(
            fault.keeps_unready(now)
            and fault.is_about(record.kind, record.name, record.images)
            for fault in faults
        )
        is_ready = record.ready_at <= now and not is_kept
        judged = readiness_of(live_object(record, is_ready=is_ready, has_fault=is_kept))
        if judged != AVAILABLE:
            unready.append(ObjectSeen(record.ref, judged.readiness, judged.reason))
    return PlacementSeen(
        name,
        placement.version,
        placement.whole_version,
        placement.refusals,
        tuple(unready),
    )
