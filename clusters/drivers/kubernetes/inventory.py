"""The inventory: a ConfigMap on the member with what a placement has there, and whose it is.

One API server can be joined by several consoles, and by mistake under several names. What is removed has the
owner and the member of the caller; what is from before members had an identity, the inventory proves.

See `rules/kubernetes-driver.md#ownership-and-inventory`.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from clusters.drivers.base import (
    DriverPending,
    DriverRejected,
    DriverUnavailable,
    ObjectRef,
    Refusal,
)
from clusters.drivers.kubernetes.access import (
    FIELD_MANAGER,
    LONGEST_MESSAGE,
    ApiClient,
    KindNotServedError,
    MemberAccess,
    is_cut_off,
    is_namespace_missing,
    items_in_pages,
    run_waves,
    server_message,
)
from clusters.drivers.kubernetes.client import APPLY_PATCH, Response
from clusters.drivers.kubernetes.targets import (
    INVENTORY_NAMESPACE,
    MEMBER,
    OWNER,
    PART_OF,
    TAKEN_OVER,
    applyset_id,
    generation_of,
    inventory_name,
    managed_fields_digest,
    owner_value,
)
from fleetui.apimachinery.kinds import api_version_of
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.words import with_group

OTHER_HUB, OTHER_MEMBER = "OwnedByAnotherHub", "OwnedByAnotherMember"
NOT_CONFIRMED, SHARED = "RemovalNotConfirmed", "SharedServer"
SYSTEM_NAMESPACE_PATH = "/api/v1/namespaces/kube-system"


def read_cluster_uid(client: ApiClient, *, deadline: float) -> str:
    """Return the UID of the namespace `kube-system`, "" where it may not be read. Raise DriverUnavailable."""
    answer = client.request("GET", SYSTEM_NAMESPACE_PATH, deadline=deadline)
    if answer.status != 200:
        return ""
    return str((answer.body.get("metadata") or {}).get("uid") or "")[:64]


def annotation(live: Mapping[str, Any], name: str) -> str:
    """Return an annotation of a live object; "" without it."""
    return str(mapping_at(live, "metadata", "annotations").get(name) or "")


def is_of_member(access: MemberAccess, live: Mapping[str, Any]) -> bool:
    """Return whether an object names this member, or none: then it is from before they had an identity."""
    return annotation(live, MEMBER) in access.identity.own_members


def is_ours(access: MemberAccess, live: Mapping[str, Any], placement: str) -> bool:
    return annotation(live, OWNER) == owner_value(
        access.hub_id, placement
    ) and is_of_member(access, live)


def member_name(value: str) -> str:
    return value.partition("/")[2] or value


MOST_OBJECTS = 4_000
MOST_REFUSALS = 100

FENCE = "fleetui.io/fence"
UNDECIDED = "?"
"""In `incomplete`: an inventory was missing, and it is not known yet whether older objects exist."""
_ID = "applyset.kubernetes.io/id"
_NAMESPACES = "applyset.kubernetes.io/additional-namespaces"
_PATH = f"/api/v1/namespaces/{INVENTORY_NAMESPACE}/configmaps"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the inventory records of one object; `uid` "" = never applied.

    `ends_itself`: a Job that the cluster deletes some time after its end (`ttlSecondsAfterFinished`).
    """

    ref: ObjectRef
    version: str
    uid: str = ""
    hash: str = ""
    fields: str = ""
    generation: str = ""
    is_taken_over: bool = False
    ends_itself: bool = False

    @property
    def api_version(self) -> str:
        return api_version_of(self.ref.group, self.version)

    def was_taken_over(self, live: Mapping[str, Any]) -> bool:
        """Return whether the object was there before us: recorded twice, and either record alone counts."""
        is_recorded = self.is_taken_over and self.uid == live["metadata"].get("uid")
        return is_recorded or annotation(live, TAKEN_OVER) == "true"

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Entry":
        """Read a record of an inventory. Raise LookupError, TypeError."""
        return cls(
            ObjectRef(plain["group"], plain["kind"], plain["namespace"], plain["name"]),
            plain["version"],
            plain["uid"],
            plain["hash"],
            plain["f"],
            plain["g"],
            bool(plain["taken"]),
            bool(plain.get("ttl")),
        )

    def to_plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = {
            "group": self.ref.group,
            "version": self.version,
            "kind": self.ref.kind,
            "namespace": self.ref.namespace,
            "name": self.ref.name,
            "uid": self.uid,
            "hash": self.hash,
            "f": self.fields,
            "g": self.generation,
            "taken": self.is_taken_over,
        }
        if self.ends_itself:
            plain["ttl"] = True
        return plain


@dataclass(frozen=True, slots=True)
class PlacementInventory:
    """The inventory of one placement; `resource_version` is that of the ConfigMap, "" when there is none.

    `member`: which it names, "" in one of an earlier release. `is_ahead`: it has had
    a version that the console did not know, as after a restored backup.
    """

    placement: str
    version: str = ""
    whole: str = ""
    entries: Mapping[ObjectRef, Entry] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    refusal_count: int = 0
    incomplete: tuple[str, ...] = ()
    fence: int = 0
    resource_version: str = ""
    member: str = ""
    is_ahead: bool = False

    @property
    def notice(self) -> str:
        return "leftovers of older versions may remain" if self.incomplete else ""

    @property
    def exists(self) -> bool:
        return bool(self.resource_version)

    def with_refusals(self, refusals: Iterable[Refusal]) -> "PlacementInventory":
        """Replace the refusals; what exceeds the limits of an inventory is cut."""
        every = list(refusals)
        kept = tuple(
            replace(refusal, message=refusal.message[:LONGEST_MESSAGE])
            for refusal in every[:MOST_REFUSALS]
        )
        return replace(self, refusals=kept, refusal_count=len(every))


class InventoryChangedError(Exception):
    """Another call wrote the inventory after this one had read it."""


def live_entry(
    ref: ObjectRef, live: Mapping[str, Any], *, manifest_hash: str = ""
) -> Entry:
    metadata = live.get("metadata") or {}
    return Entry(
        ref,
        str(live.get("apiVersion") or "").rpartition("/")[2],
        str(metadata.get("uid") or ""),
        manifest_hash,
        managed_fields_digest(live),
        generation_of(live),
        (metadata.get("annotations") or {}).get(TAKEN_OVER) == "true",
        ends_itself(ref, live),
    )


def ends_itself(ref: ObjectRef, live: Mapping[str, Any]) -> bool:
    spec = live.get("spec") or {}
    return (ref.group, ref.kind) == ("batch", "Job") and spec.get(
        "ttlSecondsAfterFinished"
    ) is not None


def read_inventory(
    access: MemberAccess, placement: str, *, deadline: float
) -> PlacementInventory:
    """Return the inventory of a placement, an empty one where there is none.

    Raise DriverRejected when it may not be read or belongs to another hub or member; DriverUnavailable.
    """
    name = inventory_name(access.hub_id, placement)
    answer = access.client.request("GET", f"{_PATH}/{name}", deadline=deadline)
    if answer.status == 404:
        return PlacementInventory(placement)
    if answer.status != 200:
        raise _rejected(answer, "get")
    owner = owner_value(access.hub_id, placement)
    found = annotation(answer.body, OWNER)
    if found and found != owner:
        raise DriverRejected(
            f"the inventory of {placement} on the cluster belongs to {found}",
            code=OTHER_HUB,
        )
    if not is_of_member(access, answer.body):
        message = (
            f"{placement} is on this API server already, as member "
            f"{member_name(annotation(answer.body, MEMBER))}: one server is joined under two names"
        )
        raise DriverRejected(message, code=OTHER_MEMBER)
    return _parsed(answer.body, placement)


def list_inventories(
    access: MemberAccess, *, deadline: float
) -> list[PlacementInventory]:
    """Return the inventories of this member. Raise DriverRejected, DriverUnavailable.

    One from before members had an identity counts only where no other member can have written it.
    """
    prefix = owner_value(access.hub_id, "")
    inventories = []
    for document in _every_inventory(access.client, deadline=deadline):
        owner = annotation(document, OWNER)
        is_proved = annotation(document, MEMBER) or access.identity.proves_older_records
        if owner.startswith(prefix) and is_of_member(access, document) and is_proved:
            inventories.append(_parsed(document, owner.removeprefix(prefix)))
    return inventories


@dataclass(frozen=True, slots=True)
class NamespaceUser:
    """An inventory of any console or member: who it is of, and which namespaces it uses and has."""

    owner: str
    member: str
    namespaces: frozenset[str]
    entries: frozenset[ObjectRef]


def list_users(access: MemberAccess, *, deadline: float) -> list[NamespaceUser]:
    """Return who uses namespaces, other consoles too. Raise DriverRejected, DriverUnavailable."""
    users = []
    for document in _every_inventory(access.client, deadline=deadline):
        entries = _parsed(document, "").entries
        recorded = annotation(document, _NAMESPACES).split(",")
        user = NamespaceUser(
            annotation(document, OWNER),
            annotation(document, MEMBER),
            frozenset(recorded) | {ref.namespace for ref in entries},
            frozenset(entries),
        )
        users.append(user)
    return users


def list_holders(client: ApiClient, *, hub_id: str, deadline: float) -> set[str]:
    """Return the members of a console that have inventories on a cluster; "" for those without a member.

    Raise DriverRejected, DriverUnavailable.
    """
    prefix = owner_value(hub_id, "")
    every = _every_inventory(client, deadline=deadline)
    return {
        annotation(document, MEMBER)
        for document in every
        if annotation(document, OWNER).startswith(prefix)
    }


def _every_inventory(
    client: ApiClient, *, deadline: float
) -> Iterator[Mapping[str, Any]]:
    for item in items_in_pages(
        client, _PATH, {"labelSelector": _ID}, deadline=deadline
    ):
        if isinstance(item, Response):
            raise _rejected(item, "list")
        yield item


def write_inventory(
    access: MemberAccess, inventory: PlacementInventory, *, deadline: float
) -> PlacementInventory:
    """Write an inventory that was read before, and return it as it is now.

    Raise InventoryChangedError when it was written meanwhile; DriverRejected, DriverUnavailable.
    """
    name = inventory_name(access.hub_id, inventory.placement)
    body = inventory_document(access, inventory)
    path = f"{_PATH}/{name}"

    def apply(where: str, content: Mapping[str, Any]) -> Response:
        return access.client.request(
            "PATCH",
            where,
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=content,
            content_type=APPLY_PATCH,
            deadline=deadline,
        )

    def write() -> Response:
        if inventory.exists:
            return apply(path, body)
        # Not by apply: that would overwrite an inventory that another call has created meanwhile.
        query = {"fieldManager": FIELD_MANAGER}
        return access.client.request(
            "POST", _PATH, query=query, body=body, deadline=deadline
        )

    answer = write()
    if is_namespace_missing(answer):
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": INVENTORY_NAMESPACE},
        }
        made = apply(f"/api/v1/namespaces/{INVENTORY_NAMESPACE}", namespace)
        if made.status not in (200, 201):
            raise _rejected(made, "create the namespace of")
        answer = write()
    if answer.status == 409 or (
        answer.status == 404 and inventory.exists
    ):  # written or deleted meanwhile
        raise InventoryChangedError
    if answer.status not in (200, 201):
        raise _rejected(answer, "write")
    written = str(answer.body["metadata"]["resourceVersion"])
    return replace(inventory, resource_version=written, member=access.identity.member)


def delete_inventory(access: MemberAccess, placement: str, *, deadline: float) -> None:
    """Delete the inventory of a placement. Raise DriverRejected, DriverUnavailable."""
    name = inventory_name(access.hub_id, placement)
    answer = access.client.request("DELETE", f"{_PATH}/{name}", deadline=deadline)
    if answer.status not in (200, 202, 404):
        raise _rejected(answer, "delete")


@dataclass(frozen=True, slots=True)
class Labelled:
    """Live objects that have the label and owner of a placement.

    `denied`: the kinds that may not be listed; `remaining`: those that the time did not suffice for.
    """

    entries: tuple[Entry, ...]
    denied: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()


def find_labelled(
    access: MemberAccess,
    placement: str,
    kinds: Iterable[tuple[str, str]],
    *,
    stop: float,
    last_start: float,
) -> Labelled:
    every = sorted(set(kinds))
    found = run_waves(
        [every],
        lambda kind: _list_labelled(access, placement, kind, stop=stop),
        time_left=access.until(last_start),
    )
    entries = {kind: some for kind, some in found if isinstance(some, tuple)}
    denied = [kind for kind, some in found if isinstance(some, Response)]
    remaining = set(every) - set(entries) - set(denied)
    return Labelled(
        tuple(entry for some in entries.values() for entry in some),
        denied=tuple("/".join(kind) for kind in sorted(denied)),
        remaining=tuple("/".join(kind) for kind in sorted(remaining)),
    )


def _list_labelled(
    access: MemberAccess, placement: str, kind: tuple[str, str], *, stop: float
) -> tuple[Entry, ...] | Response | None:
    """Return the labelled objects of a kind, the answer that was no list, or None where time was up."""
    selector = f"{PART_OF}={applyset_id(inventory_name(access.hub_id, placement))}"
    api_version, name = kind
    entries = []
    try:
        resource = access.discovery.resource(api_version, name, deadline=stop)
        query = {"labelSelector": selector}
        for item in items_in_pages(
            access.client, resource.path(), query, deadline=stop
        ):
            if isinstance(item, Response):
                return () if item.status == 404 else item
            # Without the inventory nothing proves what is from before members had an identity.
            if is_ours(access, item, placement) and annotation(item, MEMBER):
                # The items of a list have neither apiVersion nor kind.
                live = {**item, "apiVersion": api_version, "kind": name}
                entries.append(live_entry(ObjectRef.of(live), live))
    except KindNotServedError:  # then there are no objects of it
        return ()
    except DriverUnavailable as error:
        if not is_cut_off(error, access, stop):
            raise
        return None
    return tuple(entries)


def _rejected(answer: Response, verb: str) -> DriverRejected | DriverUnavailable:
    message = server_message(answer)
    if answer.status >= 500:
        return DriverUnavailable(
            f"could not {verb} the inventory: {message}", code=f"http-{answer.status}"
        )
    if answer.status == 409:
        return DriverPending(f"could not {verb} the inventory: {message}; continuing")
    hint = (
        "; the role has no permission for the inventory" if answer.status == 403 else ""
    )
    return DriverRejected(
        f"could not {verb} the inventory: {message}{hint}", code="InventoryRefused"
    )


def _parsed(body: Mapping[str, Any], placement: str) -> PlacementInventory:
    metadata = mapping_at(body, "metadata")
    found_member = annotation(body, MEMBER)
    try:
        content = json.loads(mapping_at(body, "data").get("inventory", ""))
        entries = [Entry.from_plain(one) for one in content["objects"]]
        refusals = tuple(
            Refusal(ObjectRef(*map(str, refusal[:4])), str(refusal[4]), str(refusal[5]))
            for refusal in content["refusals"]
        )
        fence = int(annotation(body, FENCE) or 0)
    except (ValueError, LookupError, TypeError):  # edited manually: as good as lost
        return PlacementInventory(
            placement,
            incomplete=(UNDECIDED,),
            resource_version=str(metadata["resourceVersion"]),
            member=found_member,
        )
    return PlacementInventory(
        placement,
        str(content.get("version") or ""),
        str(content.get("whole") or ""),
        {entry.ref: entry for entry in entries},
        refusals,
        int(content.get("refusalCount") or 0),
        tuple(map(str, content.get("incomplete") or ())),
        fence,
        str(metadata["resourceVersion"]),
        found_member,
        bool(content.get("ahead")),
    )


def inventory_document(
    access: MemberAccess, inventory: PlacementInventory
) -> dict[str, Any]:
    name = inventory_name(access.hub_id, inventory.placement)
    refs = [entry.ref for entry in inventory.entries.values()]
    kinds = {with_group(ref.kind, ref.group) for ref in refs}
    namespaces = {ref.namespace for ref in refs if ref.namespace} - {
        INVENTORY_NAMESPACE
    }
    content = {
        "v": 1,
        "version": inventory.version,
        "whole": inventory.whole,
        "objects": [entry.to_plain() for entry in inventory.entries.values()],
        "refusals": [
            [
                *(
                    getattr(refusal.object, key)
                    for key in ("group", "kind", "namespace", "name")
                ),
                refusal.code,
                refusal.message,
            ]
            for refusal in inventory.refusals
        ],
        "refusalCount": inventory.refusal_count,
        "incomplete": list(inventory.incomplete),
        **({"ahead": True} if inventory.is_ahead else {}),
    }
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": INVENTORY_NAMESPACE,
        "labels": {_ID: applyset_id(name)},
        "annotations": {
            "applyset.kubernetes.io/tooling": "fleetui/v1",
            "applyset.kubernetes.io/contains-group-kinds": ",".join(sorted(kinds)),
            _NAMESPACES: ",".join(sorted(namespaces)),
            OWNER: owner_value(access.hub_id, inventory.placement),
            MEMBER: access.identity.member,
            FENCE: str(inventory.fence),
        },
    }
    if inventory.resource_version:
        metadata["resourceVersion"] = inventory.resource_version
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"inventory": text},
    }
