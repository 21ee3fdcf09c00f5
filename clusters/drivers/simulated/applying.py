"""What becomes of a simulated cluster's state when it is told something: no clock, no store."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from clusters.drivers.base import ObjectRef, Refusal, Version
from clusters.drivers.simulated.configuration import Configuration, FaultKind, SimulatedFault
from clusters.drivers.simulated.live import HeldObject, held_object, images_in
from clusters.drivers.simulated.state import MOST_OBJECTS, Entry, Held, State

APPLY_FAILED = "ManifestApplyFailed"


def taken_on(state: State, version: Version, configuration: Configuration, *, now: datetime) -> State:
    """Put a version in the place of the placement's older one; what is refused stays as it was."""
    before = state.of(version.placement)
    if before and before.version == version.id and not before.refusals:
        return state.noting(_entry("applied again", version, now), is_change=False)
    held = _held(before, version, configuration, room=state.room_beside(version.placement), now=now)
    was = (before.whole_version, before.objects) if before else ("", ())
    entry = _entry("refused" if held.refusals else "applied", version, now)
    state = state.holding(version.placement, held)
    return state.noting(entry, is_change=was != (held.whole_version, held.objects))


def removed(state: State, placement: str, *, now: datetime) -> State:
    """Take away what a placement has; in the book a removal is a change to the version "" ."""
    entry = Entry(now.isoformat(), "removed", placement, "")
    if placement not in state.held:
        return state.noting(entry._replace(what="removed again"), is_change=False)
    return state.holding(placement, None).noting(entry, is_change=True)


def lost_at(configuration: Configuration, now: datetime) -> datetime | None:
    """Give the last moment at which the state was lost."""
    lost = [one.since for one in configuration.faults_at(now) if one.kind is FaultKind.LOST_STATE]
    return max((moment for moment in lost if moment), default=None)


def _held(
    before: Held | None, version: Version, configuration: Configuration, *, room: int, now: datetime
) -> Held:
    there = {one.ref: one for one in before.objects} if before else {}
    refusing = [fault for fault in configuration.faults_at(now) if fault.kind is FaultKind.REFUSE]
    ready_at = now + timedelta(seconds=configuration.ready_seconds)
    objects, refusals = [], []
    for place, manifest in enumerate(version.manifests):
        ref = ObjectRef.of(manifest)
        message = _why_refused(ref, manifest, refusing, is_full=place >= room)
        if message:
            refusals.append(Refusal(ref, APPLY_FAILED, message))
        held = (
            there.get(ref)
            if message
            else _unless_same(there.get(ref), held_object(manifest, ready_at=ready_at))
        )
        if held:
            objects.append(held)
    whole = (before.whole_version if before else "") if refusals else version.id
    return Held(version.id, whole, now, tuple(objects), tuple(refusals))


def _unless_same(before: HeldObject | None, wanted: HeldObject) -> HeldObject:
    """Leave an object that does not change alone: it stays ready."""
    return before if before and before.digest == wanted.digest else wanted


def _why_refused(
    ref: ObjectRef, manifest: Mapping[str, Any], refusing: list[SimulatedFault], *, is_full: bool
) -> str:
    if is_full:
        return f"the simulated cluster is full: it takes {MOST_OBJECTS} objects"
    images = images_in(manifest)
    is_refused = any(fault.is_about(ref.kind, ref.name, images) for fault in refusing)
    return f"the simulated cluster was told to refuse {ref}" if is_refused else ""


def _entry(what: str, version: Version, now: datetime) -> Entry:
    return Entry(now.isoformat(), what, version.placement, version.id)
