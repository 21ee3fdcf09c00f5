"""Server-side apply of one version: apply waves, then what older versions left.

See `rules/kubernetes-driver.md#waves`.
"""

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from clusters.drivers.base import (
    Applied,
    DriverFenced,
    DriverPending,
    DriverRejected,
    DriverUnavailable,
    ObjectDiff,
    ObjectRef,
    Refusal,
    Version,
)
from clusters.drivers.kubernetes.access import (
    NOT_SERVED,
    MemberAccess,
    Planned,
    RefusedError,
    is_cut_off,
    pool,
    read_object,
    result_of,
    run_waves,
)
from clusters.drivers.kubernetes.inventory import (
    MOST_OBJECTS,
    NOT_CONFIRMED,
    UNDECIDED,
    Entry,
    InventoryChangedError,
    Labelled,
    PlacementInventory,
    find_labelled,
    read_inventory,
    write_inventory,
)
from clusters.drivers.kubernetes.one_object import (
    DEFERRED,
    ApplyCall,
    ObjectResult,
    examine,
)
from clusters.drivers.kubernetes.removal import Removal, hold_entries, remove_entries
from clusters.drivers.kubernetes.targets import (
    CUSTOM_RESOURCE_DEFINITION,
    LAST_WAVE,
    RESERVE_SECONDS,
    Target,
    defined_group,
    prepare_targets,
)
from clusters.drivers.readiness import AVAILABLE, custom_resource_definition
from fleetui.apimachinery.words import counted

ESTABLISH_SECONDS = 5.0
POLL_SECONDS = 0.1
MOST_STARTS = 4
BACK_OFF_SECONDS = 0.05


def apply_version(
    access: MemberAccess,
    version: Version,
    *,
    deadline: float,
    finished: dict[ObjectRef, ObjectResult],
    cleared: Mapping[ObjectRef, tuple[str, str, str]],
) -> Applied:
    """Apply a version, and remove what older versions left.

    `finished` has what earlier calls did of a version that did not fit into their time, and is extended:
    otherwise a call to a far cluster would spend its time on verifying what the last one applied.
    `cleared`: UID, field digest and generation of objects whose drift suspicion proved unfounded. Calling
    again after any crash or error completes the work. Raise DriverUnavailable, DriverPending,
    DriverRejected, DriverFenced.
    """
    if version.options.type == "ReportDiff":
        raise DriverRejected(
            "an apply strategy of type ReportDiff compares and writes nothing"
        )
    for start in range(MOST_STARTS):
        try:
            return _apply(
                access, version, deadline=deadline, finished=finished, cleared=cleared
            )
        except InventoryChangedError:
            back_off(access, start, deadline=deadline)
    raise DriverPending("another call changes the inventory; continuing")


def is_ahead(inventory: PlacementInventory, version: Version) -> bool:
    """Return whether a cluster has, or had, a version that is not one of this console."""
    if version.is_removal_confirmed:
        return False
    is_unknown = version.known and inventory.version not in (
        "",
        version.id,
        *version.known,
    )
    return inventory.is_ahead or version.is_behind or bool(is_unknown)


def back_off(access: MemberAccess, start: int, *, deadline: float) -> None:
    """Wait longer after each conflict, at random: two calls that wait alike would meet again."""
    seconds = BACK_OFF_SECONDS * 2**start * random.uniform(0.5, 1.5)  # noqa: S311 -- no secret
    if access.monotonic() + seconds < deadline - RESERVE_SECONDS:
        time.sleep(seconds)


def _apply(
    access: MemberAccess,
    version: Version,
    *,
    deadline: float,
    finished: dict[ObjectRef, ObjectResult],
    cleared: Mapping[ObjectRef, tuple[str, str, str]],
) -> Applied:
    reading = pool().submit(_timed_inventory, access, version.placement, deadline)
    targets, refusals = prepare_targets(access, version, deadline=deadline)
    inventory, seconds, now = result_of(reading, deadline - access.monotonic())
    reserve = min(max(RESERVE_SECONDS, 3 * seconds), (deadline - now + seconds) / 2)
    stop = deadline - reserve
    check_fence(inventory, version.fence)
    ahead = write_ahead(access, inventory, version, targets, deadline=deadline)

    # A request that `stop` cuts off closes its socket, and the reserve is too short to open another one.
    call = ApplyCall(
        access, version, ahead.entries, cleared, stop, last_start=stop - reserve / 3
    )
    results = apply_targets(call, targets, finished)
    entries = {
        **ahead.entries,
        **{ref: result.entry for ref, result in results.items() if result.entry},
    }
    refusals += [result.refusal for result in results.values() if result.refusal]
    deferred = [
        target.ref
        for target in targets
        if target.ref not in results or results[target.ref].is_deferred
    ]

    incomplete = ahead.incomplete
    if incomplete and not deferred:
        leftovers = find_leftovers(call, ahead, results)
        entries = {**{entry.ref: entry for entry in leftovers.entries}, **entries}
        # Recorded, so that the next call lists what this one had no time for.
        incomplete = leftovers.denied + leftovers.remaining
        if leftovers.remaining and targets:
            deferred = [targets[-1].ref]

    removal = Removal()
    if not refusals and not deferred:
        wanted = {target.ref for target in targets}
        gone = [entry for ref, entry in entries.items() if ref not in wanted]
        removal = prune(access, ahead, gone, stop=stop)
        refusals += removal.refusals
        deferred += removal.remaining
        entries = {
            ref: entry for ref, entry in entries.items() if ref not in removal.finished
        }

    is_whole = not refusals and not deferred
    after = replace(
        ahead,
        entries=entries,
        incomplete=incomplete,
        whole=version.id if is_whole else ahead.whole,
        is_ahead=ahead.is_ahead and not is_whole,
    ).with_refusals(refusals)
    if after != ahead:
        try:
            write_result(access, after, deadline=deadline)
        except DriverUnavailable as error:
            # What is not recorded is looked at again by the next call, which there is anyway.
            if not deferred or not is_cut_off(error, access, deadline):
                raise
    if deferred:
        raise _pending(targets, results, deferred, removal)
    drifts = tuple(result.drift for result in results.values() if result.drift)
    if refusals:
        raise _rejected(version, refusals, results.values(), drifts)
    is_changed = inventory.whole != version.id or any(
        result.is_changed for result in results.values()
    )
    return Applied(
        version.id, changed=is_changed or bool(removal.finished), drifts=drifts
    )


def _rejected(
    version: Version,
    refusals: Sequence[Refusal],
    results: Iterable[ObjectResult],
    drifts: tuple[ObjectDiff, ...],
) -> DriverRejected:
    diffs = tuple(result.diff for result in results if result.diff)
    message = f"{len(refusals)} of {len(version.manifests)} objects refused"
    code = (
        NOT_CONFIRMED
        if any(refusal.code == NOT_CONFIRMED for refusal in refusals)
        else ""
    )
    return DriverRejected(
        message, tuple(refusals), drifts=drifts, diffs=diffs, code=code
    )


def prune(
    access: MemberAccess,
    inventory: PlacementInventory,
    gone: Sequence[Entry],
    *,
    stop: float,
) -> Removal:
    """Remove what older versions left; of a cluster that is ahead of this console nothing without a person.

    After a restore of the database, the "older" version is the newer one.
    """
    if gone and inventory.is_ahead:
        why = (
            f"not removed: the cluster has {counted(len(gone), 'object')} of a version that this console does "
            "not know, as after a restored backup; the removal waits for a confirmation"
        )
        return hold_entries(
            access, gone, placement=inventory.placement, why=why, stop=stop
        )
    return remove_entries(access, gone, placement=inventory.placement, stop=stop)


def _timed_inventory(
    access: MemberAccess, placement: str, deadline: float
) -> tuple[PlacementInventory, float, float]:
    before = access.monotonic()
    inventory = read_inventory(access, placement, deadline=deadline)
    now = access.monotonic()
    return inventory, now - before, now


def check_fence(inventory: PlacementInventory, fence: int) -> None:
    """Raise DriverFenced where the cluster has seen a newer call."""
    if fence < inventory.fence:
        raise DriverFenced(inventory.placement, inventory.fence)


def write_ahead(
    access: MemberAccess,
    inventory: PlacementInventory,
    version: Version,
    targets: Sequence[Target],
    *,
    deadline: float,
) -> PlacementInventory:
    """Record what this call is going to apply, so that no crash leaves an object that nothing knows of."""
    missing = {
        target.ref: Entry(target.ref, target.api_version.rpartition("/")[2])
        for target in targets
        if target.ref not in inventory.entries
    }
    entries = {**inventory.entries, **missing}
    if len(entries) > MOST_OBJECTS:
        raise DriverRejected(
            f"{len(entries)} objects, old and new together; at most {MOST_OBJECTS} are possible",
            code="TooManyObjects",
        )
    incomplete = inventory.incomplete if inventory.exists else (UNDECIDED,)
    ahead = replace(
        inventory,
        version=version.id,
        entries=entries,
        fence=version.fence,
        incomplete=incomplete,
        member=access.identity.member,
        is_ahead=is_ahead(inventory, version),
    )
    if version.id != inventory.version:
        ahead = ahead.with_refusals(())  # those of another version
    if ahead == inventory:
        return inventory
    return write_inventory(access, ahead, deadline=deadline)


def apply_targets(
    call: ApplyCall, targets: Sequence[Target], finished: dict[ObjectRef, ObjectResult]
) -> dict[ObjectRef, ObjectResult]:
    """Return the results of the objects that were reached, in the order of apply waves."""

    def first_step(target: Target) -> ObjectResult | Planned[ObjectResult]:
        outcome = examine(call, target)
        if isinstance(outcome, ObjectResult):
            return kept(target, outcome)
        return Planned(lambda: kept(target, outcome.run()))

    def kept(target: Target, result: ObjectResult) -> ObjectResult:
        if result.entry:
            finished[target.ref] = result
        return result

    def run(some: Sequence[Target]) -> list[tuple[Target, ObjectResult]]:
        left = [target for target in some if target.ref not in finished]
        waves = [
            [target for target in left if target.wave == place]
            for place in range(LAST_WAVE + 1)
        ]
        return run_waves(
            waves, first_step, time_left=call.access.until(call.last_start)
        )

    results = {
        target.ref: result
        for target, result in run([one for one in targets if not one.is_custom])
    }
    custom = [one for one in targets if one.is_custom]
    if custom:
        definitions = [
            one
            for one in targets
            if (one.ref.group, one.ref.kind) == CUSTOM_RESOURCE_DEFINITION
        ]
        waiting = await_definitions(call, definitions, {**finished, **results})
        ready = [one for one in custom if one.ref.group not in waiting]
        refused = {
            defined_group(definition)
            for definition in definitions
            if (end := results.get(definition.ref)) and end.refusal
        }
        for target, result in run(ready):
            is_late = (
                result.refusal
                and result.refusal.code == NOT_SERVED
                and target.ref.group not in refused
            )
            if is_late:  # established a moment ago, and not in discovery yet
                call.access.discovery.forget(target.ref.group)
            results[target.ref] = DEFERRED if is_late else result
    every = {**finished, **results}
    return {one.ref: every[one.ref] for one in targets if one.ref in every}


def await_definitions(
    call: ApplyCall,
    definitions: Sequence[Target],
    results: Mapping[ObjectRef, ObjectResult],
) -> set[str]:
    """Wait for the applied definitions, and return the groups of those that are not established."""
    waiting = set()
    until = min(call.stop, call.access.monotonic() + ESTABLISH_SECONDS)
    for target in definitions:
        group = defined_group(target)
        result = results.get(target.ref)
        if result is None or result.is_deferred:
            waiting.add(group)
        elif result.entry and not result.is_established:
            # Until its conditions are written, discovery does not have the kind.
            if not await_established(call, target, until=until):
                waiting.add(group)
            call.access.discovery.forget(group)
    return waiting


def await_established(call: ApplyCall, target: Target, *, until: float) -> bool:
    while True:
        try:
            live = read_object(
                call.access, target.api_version, target.ref, deadline=call.stop
            )
        except RefusedError:
            return False
        except DriverUnavailable as error:
            if is_cut_off(error, call.access, call.stop):
                return False
            raise
        if live is not None and custom_resource_definition(live) == AVAILABLE:
            return True
        if call.access.monotonic() + POLL_SECONDS >= until:
            return False
        time.sleep(POLL_SECONDS)


def find_leftovers(
    call: ApplyCall,
    inventory: PlacementInventory,
    results: Mapping[ObjectRef, ObjectResult],
) -> Labelled:
    """Return the objects of a lost inventory, as far as there is time."""
    if UNDECIDED in inventory.incomplete:
        if not call.version.was_applied and not any(
            result.is_evidence_of_loss for result in results.values()
        ):
            return Labelled(())
        kinds = set(call.version.kinds)
    else:
        kinds = {
            (one.rpartition("/")[0], one.rpartition("/")[2])
            for one in inventory.incomplete
        }
    return find_labelled(
        call.access,
        inventory.placement,
        kinds,
        stop=call.stop,
        # Twice as early: four requests that are cut off leave no connection for the inventory.
        last_start=2 * call.last_start - call.stop,
    )


def write_result(
    access: MemberAccess, inventory: PlacementInventory, *, deadline: float
) -> None:
    """Write the inventory at the end of a call, also where an equal call wrote it meanwhile.

    Where a newer call did, what this one applied and that one does not know is removed: nothing else would.
    """
    for start in range(MOST_STARTS):
        try:
            write_inventory(access, inventory, deadline=deadline)
            return
        except InventoryChangedError:
            back_off(access, start, deadline=deadline)
            current = read_inventory(access, inventory.placement, deadline=deadline)
            if inventory.fence < current.fence:
                unknown = [
                    entry
                    for entry in inventory.entries.values()
                    if entry.ref not in current.entries
                ]
                remove_entries(
                    access, unknown, placement=inventory.placement, stop=deadline
                )
            check_fence(current, inventory.fence)
            if current.version != inventory.version:
                break
            inventory = replace(inventory, resource_version=current.resource_version)
    raise DriverPending("another call changed the inventory; continuing")


def _pending(
    targets: Sequence[Target],
    results: Mapping[ObjectRef, ObjectResult],
    remaining: Sequence[ObjectRef],
    removal: Removal,
) -> DriverPending:
    total = len(targets)
    done = sum(1 for result in results.values() if result.entry)
    causes = {
        result.refusal.message if result.refusal else result.cause
        for result in results.values()
    } - {""}
    if removal.remaining:
        message = f"waiting until {removal.words()}"
    else:
        message = "; ".join(
            [f"{done} of {total} objects applied", *sorted(causes), "continuing"]
        )
    return DriverPending(message, done=done, total=total, remaining=tuple(remaining))
