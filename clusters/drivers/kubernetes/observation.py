"""What a cluster has of placements: health, readiness, drift (`rules/kubernetes-driver.md#observation`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from clusters.drivers.base import (
    DriverRejected,
    FieldDiff,
    LiveObject,
    ObjectDiff,
    ObjectRef,
    ObjectSeen,
    PlacementSeen,
    Version,
)
from clusters.drivers.kubernetes.access import (
    KindNotServedError,
    MemberAccess,
    RefusedError,
    read_object,
    run_each,
    server_message,
)
from clusters.drivers.kubernetes.inventory import (
    OTHER_MEMBER,
    Entry,
    PlacementInventory,
    annotation,
    is_ours,
    read_inventory,
)
from clusters.drivers.kubernetes.targets import (
    MEMBER,
    OWNER,
    Comparison,
    Live,
    Target,
    compare_live,
    diff_if_any,
    generation_of,
    managed_fields_digest,
    object_diff,
    owner_value,
    prepare_targets,
)
from clusters.drivers.readiness import AVAILABLE, Readiness, hint_of, readiness_of
from fleetui.apimachinery.grouping import grouped

Cleared: TypeAlias = dict[ObjectRef, tuple[str, str, str]]


ENDED = "deleted after its end (ttlSecondsAfterFinished); applied again when its manifest changes"


@dataclass(frozen=True, slots=True)
class Sighting:
    """One object of an inventory as it is now; `live`: None when deleted; `suspect` needs a dry run."""

    placement: str
    entry: Entry
    live: Live | None = None
    suspect: tuple[str, str, str] | None = None
    drift: ObjectDiff | None = None
    problem: str = ""


def read_health(access: MemberAccess, *, deadline: float) -> str:
    """Return "" when the cluster is healthy, otherwise the failing checks.

    Raise DriverUnavailable; DriverRejected when the account may not read `/readyz`.
    """
    answer = access.client.request("GET", "/readyz", deadline=deadline)
    if answer.status == 200:
        return ""
    if answer.status < 500:
        raise DriverRejected(f"/readyz: {server_message(answer)}")
    failing = [
        line[3:].split()[0]
        for line in answer.text.splitlines()
        if line.startswith("[-]")
    ]
    if failing:
        return f"failing checks: {', '.join(failing)}"
    return f"/readyz answered {answer.status}"


def observe_placements(
    access: MemberAccess,
    placements: Sequence[str],
    *,
    deadline: float,
    cleared: Callable[[str], Cleared],
    version_of: Callable[[str], Version | None] | None,
) -> tuple[PlacementSeen, ...]:
    """Return the state of those placements that have an inventory.

    `cleared` returns by placement what proved to be no drift, and is extended. `version_of` is called in
    this thread, for placements with objects that may have drifted. Raise DriverUnavailable, DriverRejected.
    """
    left = access.until(deadline)
    read = partial(read_own_inventory, access, deadline=deadline)
    inventories = {
        name: placement_inventory
        for name, placement_inventory in run_each(read, placements, time_left=left)
        if placement_inventory.exists
    }
    known = {name: cleared(name) for name in inventories}
    objects = [
        (name, entry)
        for name, inventory in inventories.items()
        for entry in inventory.entries.values()
        if entry.uid
    ]
    sightings = [
        sighting
        for _, sighting in run_each(
            lambda one: sight_object(
                access, one[0], one[1], known[one[0]], deadline=deadline
            ),
            objects,
            time_left=left,
        )
    ]
    drifts = confirm_drifts(
        access,
        sightings,
        inventories,
        known,
        version_of=version_of or (lambda _: None),
        deadline=deadline,
    )
    return tuple(
        placement_seen(
            inventory,
            [sighting for sighting in sightings if sighting.placement == name],
            drifts,
        )
        for name in placements
        if (inventory := inventories.get(name))
    )


def read_own_inventory(
    access: MemberAccess, placement: str, *, deadline: float
) -> PlacementInventory:
    """Return the inventory of a placement, an empty one where it is of another member: an apply says so."""
    try:
        return read_inventory(access, placement, deadline=deadline)
    except DriverRejected as error:
        if error.code != OTHER_MEMBER:
            raise
        return PlacementInventory(placement)


def sight_object(
    access: MemberAccess,
    placement: str,
    entry: Entry,
    known: Cleared,
    *,
    deadline: float,
) -> Sighting:
    try:
        live = read_object(access, entry.api_version, entry.ref, deadline=deadline)
    except KindNotServedError:
        live = None
    except RefusedError as error:
        return Sighting(placement, entry, problem=error.message)
    if live is None or live["metadata"].get("uid") != entry.uid:
        return Sighting(placement, entry)
    if not is_ours(access, live, placement):
        target = Target(entry.ref, entry.api_version, {})
        wanted = {
            OWNER: owner_value(access.hub_id, placement),
            MEMBER: access.identity.member,
        }
        fields = (
            FieldDiff(
                "/metadata/annotations/" + name.replace("/", "~1"),
                annotation(live, name),
                value,
            )
            for name, value in wanted.items()
            if annotation(live, name) != value
        )
        comparison = Comparison(tuple(fields))
        return Sighting(
            placement, entry, live, drift=object_diff(target, live, comparison)
        )
    state = managed_fields_digest(live), generation_of(live)
    is_suspect = state != (entry.fields, entry.generation) and known.get(entry.ref) != (
        entry.uid,
        *state,
    )
    return Sighting(
        placement, entry, live, suspect=(entry.uid, *state) if is_suspect else None
    )


def confirm_drifts(
    access: MemberAccess,
    sightings: Iterable[Sighting],
    inventories: Mapping[str, PlacementInventory],
    known: Mapping[str, Cleared],
    *,
    version_of: Callable[[str], Version | None],
    deadline: float,
) -> dict[tuple[str, ObjectRef], ObjectDiff]:
    """Compare the suspects with their manifests; where these are not known, a suspicion counts as drift."""
    every = list(sightings)
    drifts = {
        (sighting.placement, sighting.entry.ref): sighting.drift
        for sighting in every
        if sighting.drift
    }
    suspects = grouped(
        (sighting.placement, sighting) for sighting in every if sighting.suspect
    )
    for placement, some in suspects.items():
        version = version_of(placement)
        if version and version.id != inventories[placement].version:
            continue  # another version is going to be applied
        by_ref = {}
        is_full = False
        if version:
            targets, _ = prepare_targets(access, version, deadline=deadline)
            by_ref = {target.ref: target for target in targets}
            is_full = version.options.comparison == "FullComparison"
        compare = partial(_compare, access, by_ref, is_full=is_full, deadline=deadline)
        for sighting, drift in run_each(
            compare, some, time_left=access.until(deadline)
        ):
            ref = sighting.entry.ref
            if drift:
                drifts[placement, ref] = drift
            elif sighting.suspect:
                known[placement][ref] = sighting.suspect
    return drifts


def _compare(
    access: MemberAccess,
    targets: Mapping[ObjectRef, Target],
    sighting: Sighting,
    *,
    is_full: bool,
    deadline: float,
) -> ObjectDiff | None:
    entry, live = sighting.entry, sighting.live or {}
    target = targets.get(entry.ref)
    if target is None:
        return object_diff(Target(entry.ref, entry.api_version, {}), live, Comparison())
    try:
        comparison = compare_live(
            access, target, live, is_full=is_full, deadline=deadline
        )
    except RefusedError:  # an apply shows why
        return object_diff(target, live, Comparison())
    return diff_if_any(target, live, comparison)


def has_ended(sighting: Sighting) -> bool:
    """Return whether an object is a Job that its own time to live has removed.

    The cluster does not say who deleted it: a Job with a time to live that is absent counts as ended.
    """
    return sighting.live is None and not sighting.problem and sighting.entry.ends_itself


def placement_seen(
    inventory: PlacementInventory,
    sightings: Sequence[Sighting],
    drifts: Mapping[tuple[str, ObjectRef], ObjectDiff],
) -> PlacementSeen:
    order = {ref: place for place, ref in enumerate(inventory.entries)}
    unready, objects, drifted, missing = [], [], [], []
    for sighting in sorted(sightings, key=lambda one: order[one.entry.ref]):
        ref = sighting.entry.ref
        drift = drifts.get((inventory.placement, ref))
        if drift:
            drifted.append(drift)
        if sighting.problem:
            unready.append(ObjectSeen(ref, Readiness.NOT_YET, sighting.problem))
        if has_ended(sighting):
            unready.append(ObjectSeen(ref, Readiness.NOT_TRACKABLE, ENDED))
            objects.append(
                LiveObject(ref, sighting.entry.uid, Readiness.NOT_TRACKABLE, ENDED)
            )
            continue
        if sighting.live is None:
            objects.append(LiveObject(ref, reason=sighting.problem))
            if not sighting.problem:
                missing.append(ref)
            continue
        result = readiness_of(sighting.live)
        hint = hint_of(sighting.live)
        if hint == result.reason:
            hint = ""  # said once
        if result != AVAILABLE:
            unready.append(ObjectSeen(ref, result.readiness, result.reason))
        objects.append(
            LiveObject(ref, sighting.entry.uid, result.readiness, result.reason, hint)
        )
    return PlacementSeen(
        inventory.placement,
        inventory.version,
        inventory.whole,
        inventory.refusals,
        tuple(unready),
        missing=tuple(missing),
        drifted=tuple(drifted),
        notice=inventory.notice,
        objects=tuple(objects),
    )
