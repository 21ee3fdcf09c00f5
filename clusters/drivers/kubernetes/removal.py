"""Prune, remove and release what a placement has on a cluster (`rules/kubernetes-driver.md#removal`)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TypeVar

from clusters.drivers.base import (
    APPLY_FAILED,
    DriverFenced,
    DriverPending,
    DriverRejected,
    DriverUnavailable,
    ObjectRef,
    Refusal,
)
from clusters.drivers.kubernetes.access import (
    KindNotServedError,
    MemberAccess,
    Planned,
    RefusedError,
    delete_object,
    is_cut_off,
    patch_object,
    read_object,
    run_waves,
    server_message,
)
from clusters.drivers.kubernetes.inventory import (
    NOT_CONFIRMED,
    OTHER_MEMBER,
    SHARED,
    Entry,
    InventoryChangedError,
    NamespaceUser,
    PlacementInventory,
    delete_inventory,
    is_ours,
    list_users,
    member_name,
    read_inventory,
    write_inventory,
)
from clusters.drivers.kubernetes.targets import (
    CUSTOM_RESOURCE_DEFINITION,
    LAST_WAVE,
    MANIFEST_HASH,
    MEMBER,
    OWNER,
    PART_OF,
    RESERVE_SECONDS,
    TAKEN_OVER,
    Live,
    is_own_entry,
    owner_value,
    wave_of,
)
from fleetui.apimachinery.words import names_and_more

Step = TypeVar("Step")

MERGE_PATCH = "application/merge-patch+json"
_RELEASE_TRIES = 2
CONTAINER_KINDS = {("", "Namespace"), CUSTOM_RESOURCE_DEFINITION}
"""What is deleted with one of these may belong to others."""
_NAMESPACE_CONDITIONS = (
    "NamespaceContentRemaining",
    "NamespaceFinalizersRemaining",
    "NamespaceDeletionContentFailure",
)


@dataclass(frozen=True, slots=True)
class Ending:
    """What became of one object: gone or released, refused, or still there (`waiting` says why)."""

    waiting: str = ""
    refusal: Refusal | None = None


FINISHED = Ending()


@dataclass(slots=True)
class Removal:
    """What became of several objects; not reached ones are `waiting`, too. A namespace waits for the rest."""

    finished: set[ObjectRef] = field(default_factory=set)
    refusals: list[Refusal] = field(default_factory=list)
    waiting: dict[ObjectRef, str] = field(default_factory=dict)

    @property
    def remaining(self) -> list[ObjectRef]:
        return list(self.waiting)

    def words(self, ending: str = "deleted") -> str:
        waiting = sorted(
            self.waiting.items(), key=lambda item: item[0].kind == "Namespace"
        )
        why = f" ({waiting[0][1]})" if waiting[0][1] else ""
        names = names_and_more((str(ref) for ref, _ in waiting), 1)
        return f"{names} {'are' if len(waiting) > 1 else 'is'} {ending}{why}"


def remove_entries(
    access: MemberAccess, entries: Sequence[Entry], *, placement: str, stop: float
) -> Removal:
    """Delete the objects of these records in reverse wave order; taken-over namespaces are released.

    Nothing is deleted from a server that another member shares: what one removes, the other may want.
    """
    if access.identity.shared_with:
        why = shared_message(access)
        return Removal(refusals=[Refusal(entry.ref, SHARED, why) for entry in entries])
    users = _NamespaceUsers(access, placement, stop)
    end = partial(delete_entry, access, placement=placement, users=users, stop=stop)
    return _end_all(access, entries, end, stop=stop)


def release_entries(
    access: MemberAccess, entries: Sequence[Entry], *, placement: str, stop: float
) -> Removal:
    return _end_all(
        access,
        entries,
        partial(release_entry, access, placement=placement, stop=stop),
        stop=stop,
    )


def hold_entries(
    access: MemberAccess,
    entries: Sequence[Entry],
    *,
    placement: str,
    why: str,
    stop: float,
) -> Removal:
    """Refuse to delete what is there of these records, and delete nothing; what is not there is finished."""

    def step(entry: Entry) -> Ending:
        live = read_object(access, entry.api_version, entry.ref, deadline=stop)
        if live is None or not is_ours(access, live, placement):
            return FINISHED
        return Ending(refusal=Refusal(entry.ref, NOT_CONFIRMED, why))

    return _end_all(
        access,
        entries,
        lambda entry: _guarded(access, entry, partial(step, entry), stop=stop),
        stop=stop,
    )


def shared_message(access: MemberAccess) -> str:
    other = access.identity.shared_with
    return f"not removed: member {other} has the same API server; one of the two has to leave the fleet"


def end_placement(
    access: MemberAccess,
    placement: str,
    end_entries: Callable[..., Removal],
    ending: str,
    *,
    fence: int,
    deadline: float,
) -> bool:
    """Delete or release all objects of a placement, at last its inventory; return whether there was one.

    Raise DriverPending while an object has to be waited for; DriverUnavailable, DriverRejected, DriverFenced.
    """
    stop = deadline - RESERVE_SECONDS
    inventory = _inventory_to_end(access, placement, deadline=deadline)
    if not inventory.exists:
        return False
    if fence < inventory.fence:
        raise DriverFenced(placement, inventory.fence)
    try:
        # From now on no version is there, whatever happens to this call.
        inventory = _written(
            access,
            inventory,
            inventory.entries.values(),
            fence=fence,
            deadline=deadline,
        )
        removal = end_entries(
            access, list(inventory.entries.values()), placement=placement, stop=stop
        )
        left = [
            entry
            for ref, entry in inventory.entries.items()
            if ref not in removal.finished
        ]
        if left:
            _written(access, inventory, left, fence=fence, deadline=deadline)
    except InventoryChangedError:
        raise DriverPending("another call changed the inventory; continuing") from None

    total, done = len(inventory.entries), len(removal.finished)
    if removal.waiting:
        raise DriverPending(
            f"waiting until {removal.words(ending)}",
            done=done,
            total=total,
            remaining=tuple(removal.remaining),
        )
    if removal.refusals:
        raise DriverRejected(
            f"{len(removal.refusals)} of {total} objects could not be {ending}",
            tuple(removal.refusals),
        )
    delete_inventory(access, placement, deadline=deadline)
    return True


def _inventory_to_end(
    access: MemberAccess, placement: str, *, deadline: float
) -> PlacementInventory:
    """Return what this member has of a placement, nothing where the inventory is of another member.

    Raise DriverPending or DriverRejected where it is not proved whose it is.
    """
    try:
        inventory = read_inventory(access, placement, deadline=deadline)
    except DriverRejected as error:
        if error.code != OTHER_MEMBER:
            raise
        return PlacementInventory(placement)
    if (
        inventory.exists
        and not inventory.member
        and not access.identity.proves_older_records
    ):
        if access.identity.shared_with:
            raise DriverRejected(shared_message(access), code=SHARED)
        # Read with the next heartbeat.
        raise DriverPending(
            "waiting until the UID of the namespace kube-system is known, which the account has to get",
            total=len(inventory.entries),
        )
    return inventory


def _written(
    access: MemberAccess,
    inventory: PlacementInventory,
    entries: Iterable[Entry],
    *,
    fence: int,
    deadline: float,
) -> PlacementInventory:
    kept = {entry.ref: entry for entry in entries}
    changed = replace(inventory, version="", whole="", entries=kept, fence=fence)
    if changed == inventory:
        return inventory
    return write_inventory(access, changed, deadline=deadline)


def _end_all(
    access: MemberAccess,
    entries: Sequence[Entry],
    end: Callable[[Entry], Ending | Planned[Ending]],
    *,
    stop: float,
) -> Removal:
    waves = [
        [
            entry
            for entry in entries
            if wave_of(entry.ref.group, entry.ref.kind) == place
        ]
        for place in range(LAST_WAVE, -1, -1)
    ]
    removal = Removal()
    for entry, ending in run_waves(waves, end, time_left=access.until(stop)):
        if ending.refusal:
            removal.refusals.append(ending.refusal)
        elif ending.waiting:
            removal.waiting[entry.ref] = ending.waiting
        else:
            removal.finished.add(entry.ref)
    refused = {refusal.object for refusal in removal.refusals}
    for entry in entries:
        if entry.ref not in removal.finished | refused | removal.waiting.keys():
            removal.waiting[entry.ref] = "not reached in time"
    return removal


def _guarded(
    access: MemberAccess, entry: Entry, step: Callable[[], Step], *, stop: float
) -> Step | Ending:
    try:
        return step()
    except KindNotServedError:  # then no object of it exists
        return FINISHED
    except RefusedError as error:
        if not entry.uid and error.status == 403:  # never applied
            return FINISHED
        return Ending(refusal=Refusal(entry.ref, error.code, error.message))
    except DriverUnavailable as error:
        if is_cut_off(error, access, stop):
            return Ending(waiting="not reached in time")
        raise


def delete_entry(
    access: MemberAccess,
    entry: Entry,
    *,
    placement: str,
    users: "_NamespaceUsers",
    stop: float,
) -> Ending | Planned[Ending]:
    def read() -> Ending | Planned[Ending]:
        live = read_object(access, entry.api_version, entry.ref, deadline=stop)
        if live is None or not is_ours(access, live, placement):
            return FINISHED
        if live["metadata"].get("deletionTimestamp"):
            return Ending(waiting=_deletion_message(live))
        is_container = (entry.ref.group, entry.ref.kind) in CONTAINER_KINDS
        if is_container and entry.was_taken_over(live):
            step = partial(
                _release, access, entry, live, placement=placement, stop=stop
            )
        else:
            step = partial(
                delete_live,
                access,
                entry,
                live,
                placement=placement,
                users=users,
                stop=stop,
            )
        return Planned(lambda: _guarded(access, entry, step, stop=stop))

    return _guarded(access, entry, read, stop=stop)


def release_entry(
    access: MemberAccess, entry: Entry, *, placement: str, stop: float
) -> Ending | Planned[Ending]:
    def step() -> Ending:
        live = read_object(access, entry.api_version, entry.ref, deadline=stop)
        if live is None or not is_ours(access, live, placement):
            return FINISHED
        return _release(access, entry, live, placement=placement, stop=stop)

    return _guarded(access, entry, step, stop=stop)


def delete_live(
    access: MemberAccess,
    entry: Entry,
    live: Live,
    *,
    placement: str,
    users: "_NamespaceUsers",
    stop: float,
) -> Ending:
    ref = entry.ref
    if (ref.group, ref.kind) == ("", "Namespace") and (others := users.of(ref.name)):
        if users.have(ref):
            # Refused, it could never end: the other placement waits until this one leaves the namespace.
            return _release(access, entry, live, placement=placement, stop=stop)
        raise RefusedError(APPLY_FAILED, f"{ref} is still used by {', '.join(others)}")
    uid = str(live["metadata"].get("uid"))
    answer = delete_object(access, entry.api_version, ref, uid=uid, deadline=stop)
    if answer.status not in (200, 202, 404, 409):
        raise RefusedError(APPLY_FAILED, server_message(answer))
    if (ref.group, ref.kind) == CUSTOM_RESOURCE_DEFINITION:
        access.discovery.forget(str((live.get("spec") or {}).get("group")))
    # Of an object that finalizers or its grace period keep, the server returns the object.
    is_kept = (answer.body.get("metadata") or {}).get("deletionTimestamp")
    return Ending(waiting=_deletion_message(answer.body)) if is_kept else FINISHED


def _deletion_message(live: Live) -> str:
    """Return why an object that is being deleted still exists."""
    conditions = (live.get("status") or {}).get("conditions") or ()
    messages = [
        str(condition.get("message"))
        for condition in conditions
        if condition.get("type") in _NAMESPACE_CONDITIONS
        and condition.get("status") == "True"
    ]
    finalizers = live["metadata"].get("finalizers") or ()
    if not messages and finalizers:
        messages = [f"finalizers: {', '.join(finalizers)}"]
    return "; ".join(messages) or "being deleted"


def _release(
    access: MemberAccess, entry: Entry, live: Live, *, placement: str, stop: float
) -> Ending:
    """Remove label, annotations and our entry in managedFields.

    With our entry left, a later takeover by another placement would remove the fields that it does not set.
    """
    for _ in range(_RELEASE_TRIES):
        metadata = live["metadata"]
        others = [
            managed_field
            for managed_field in metadata.get("managedFields") or ()
            if not is_own_entry(managed_field)
        ]
        changed = {
            "resourceVersion": metadata.get("resourceVersion"),
            "labels": {PART_OF: None},
            "annotations": dict.fromkeys((OWNER, MEMBER, TAKEN_OVER, MANIFEST_HASH)),
            "managedFields": others or [{}],
        }
        answer = patch_object(
            access,
            entry.api_version,
            entry.ref,
            {"metadata": changed},
            query={},
            content_type=MERGE_PATCH,
            deadline=stop,
        )
        if answer.status in (200, 404):
            return FINISHED
        if answer.status != 409:
            raise RefusedError(APPLY_FAILED, server_message(answer))
        newer = read_object(access, entry.api_version, entry.ref, deadline=stop)
        if newer is None or not is_ours(access, newer, placement):
            return FINISHED
        live = newer
    return Ending(waiting="others change it all the time")


class _NamespaceUsers:
    """The others with objects in a namespace, from one LIST that is made when it is needed.

    Those of other consoles and members count as well: a namespace is deleted with everything in it.
    """

    def __init__(self, access: MemberAccess, placement: str, stop: float) -> None:
        self._access, self._placement, self._stop = access, placement, stop
        self._users: list[NamespaceUser] | None = None
        self._lock = Lock()

    def of(self, namespace: str) -> list[str]:
        return sorted(
            self._words(other)
            for other in self._others()
            if namespace in other.namespaces
        )

    def have(self, ref: ObjectRef) -> bool:
        """Return whether another placement has, or waits for, the namespace itself."""
        return any(ref in other.entries for other in self._others())

    def _words(self, user: NamespaceUser) -> str:
        hub, _, placement = user.owner.partition("/")
        if hub != self._access.hub_id:
            return f"placement {placement} of another console"
        if user.member in self._access.identity.own_members:
            return f"placement {placement}"
        return f"placement {placement} of member {member_name(user.member)}"

    def _others(self) -> list[NamespaceUser]:
        with self._lock:
            if self._users is None:
                self._users = list_users(self._access, deadline=self._stop)
        owner = owner_value(self._access.hub_id, self._placement)
        mine = self._access.identity.own_members
        return [
            user
            for user in self._users
            if user.owner != owner or user.member not in mine
        ]
