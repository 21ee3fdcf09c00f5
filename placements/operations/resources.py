"""Applying objects to the hub, and deleting them; placements that select them are asked anew."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from fleetui.events import SYSTEM, Happening, record_all
from fleetui.revisions import once_more_when_beaten, refuse_stale
from placements.explain.wording import counted
from placements.models import Placement, Resource
from placements.operations.asking import ask
from placements.operations.did import Did
from placements.queries.hub import existing_namespaces, selectors_of
from placements.scheduling.door.resource_selectors import is_reserved_namespace
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.hub.manifest import parse_manifest
from placements.scheduling.hub.objects import HubObject, ObjectKey
from placements.scheduling.hub.secrets import without_secrets
from placements.scheduling.hub.selection import concerns

RESOURCE = "resource"


class UnknownResourceError(LookupError):
    """No object on the hub has this identity."""

    def __init__(self, key: ObjectKey) -> None:
        group, kind, namespace, name = key
        place = f"{namespace}/" if namespace else ""
        super().__init__(f"there is no {kind} {place}{name}{f' of {group}' if group else ''} on the hub")
        self.key = key


@dataclass(frozen=True, slots=True)
class Applied:
    """What the operation did with one object."""

    resource: Resource
    did: Did


def apply_resource(
    document: Mapping[str, Any], *, by: User | None, now: datetime, expected: int | None = None
) -> Applied:
    """Apply one object; `expected` as everywhere. Raises Faults, StaleEditError."""
    wanted = parse_manifest(dict(document))
    with transaction.atomic():
        row = _rows([wanted]).get(wanted.key)
        refuse_stale(RESOURCE, name_of(wanted), expected=expected, revision=row.revision if row else 0)
        return apply_resources([document], by=by, now=now)[0]


@once_more_when_beaten
def apply_resources(
    documents: Sequence[Mapping[str, Any]], *, by: User | None, now: datetime, is_demo: bool = False
) -> list[Applied]:
    """Apply objects to the hub, all or none; what is there already is unchanged. Raises Faults."""
    wanted = [parse_manifest(dict(document)) for document in documents]
    _refuse_missing_namespaces(wanted)
    there = _rows(wanted)
    before = {key: HubObject.of(row.content) for key, row in there.items()}
    applied = [_applied(one, there.get(one.key), now=now, is_demo=is_demo) for one in wanted]
    Resource.objects.bulk_create((one.resource for one in applied if one.did is Did.CREATED), batch_size=200)
    changed = [one.resource for one in applied if one.did is Did.CHANGED]
    Resource.objects.bulk_update(
        changed, ["version", "labels", "content", "revision", "updated_at"], batch_size=200
    )
    moved = [one for one in applied if one.did is not Did.UNCHANGED]
    record_all((_happening(one, before) for one in moved), by=by, now=now)
    after = [HubObject.of(one.resource.content) for one in moved]
    _ask_concerned([*(before[one.key] for one in after if one.key in before), *after], by=by)
    return applied


def delete_resource(
    key: ObjectKey, *, by: User | None, now: datetime, expected: int | None = None
) -> list[Resource]:
    """Delete an object; a Namespace goes with everything in it. Gives what was deleted.

    Raises UnknownResourceError, StaleEditError.
    """
    group, kind, namespace, name = key
    with transaction.atomic():
        rows = Resource.objects.select_for_update()
        row = rows.filter(group=group, kind=kind, namespace=namespace, name=name).first()
        if row is None:
            raise UnknownResourceError(key)
        deleted = HubObject.of(row.content)
        refuse_stale(RESOURCE, name_of(deleted), expected=expected, revision=row.revision)
        inside = rows.filter(namespace=name) if (group, kind) == ("", "Namespace") else rows.none()
        gone = [*inside, row]
        delete_resources(gone, by=by, now=now)
    return gone


def delete_resources(rows: Sequence[Resource], *, by: User | None, now: datetime) -> None:
    """Delete these objects, inside the caller's transaction."""
    Resource.objects.filter(pk__in=[row.pk for row in rows]).delete()
    objects = [HubObject.of(row.content) for row in rows]
    happenings = [
        Happening(
            "deleted", RESOURCE, name_of(one), revision=row.revision + 1, before=without_secrets(row.content)
        )
        for one, row in zip(objects, rows, strict=True)
    ]
    record_all(happenings, by=by, now=now)
    _ask_concerned(objects, by=by)


def name_of(one: HubObject) -> str:
    """Give the identity of an object as one text: `group/kind/namespace/name`."""
    return "/".join(one.key)


def _refuse_missing_namespaces(wanted: Iterable[HubObject]) -> None:
    """An object lives in a namespace that is on the hub, or comes with it."""
    objects = list(wanted)
    named = {one.namespace for one in objects if one.namespace and not is_reserved_namespace(one.namespace)}
    brought = {one.name for one in objects if (one.group, one.kind) == ("", "Namespace")}
    missing = named - brought - existing_namespaces(named)
    faults = [
        Fault(
            "metadata.namespace",
            "not-on-the-hub",
            f"{one}: the namespace {one.namespace} is not on the hub",
            "apply the Namespace first, or with it",
        )
        for one in objects
        if one.namespace in missing
    ]
    if faults:
        raise Faults(faults)


def _rows(wanted: Sequence[HubObject]) -> dict[ObjectKey, Resource]:
    keys = {one.key for one in wanted}
    found = Resource.objects.select_for_update().none()
    rows: dict[ObjectKey, Resource] = {}
    names = sorted({one.name for one in wanted})
    for start in range(0, len(names), 500):
        found = Resource.objects.select_for_update().filter(Q(name__in=names[start : start + 500]))
        rows |= {(row.group, row.kind, row.namespace, row.name): row for row in found}
    return {key: row for key, row in rows.items() if key in keys}


def _applied(one: HubObject, row: Resource | None, *, now: datetime, is_demo: bool) -> Applied:
    if row is None:
        group, kind, namespace, name = one.key
        row = Resource(
            group=group, kind=kind, namespace=namespace, name=name, created_at=now, is_demo=is_demo
        )
        did = Did.CREATED
    elif row.content == one.content:
        return Applied(row, Did.UNCHANGED)
    else:
        row.revision += 1
        did = Did.CHANGED
    row.version, row.labels, row.content, row.updated_at = (
        one.version,
        dict(one.labels),
        dict(one.content),
        now,
    )
    return Applied(row, did)


def _happening(one: Applied, before: Mapping[ObjectKey, HubObject]) -> Happening:
    """Say what became of an object; events never hold what a Secret holds."""
    applied = HubObject.of(one.resource.content)
    old = before.get(applied.key)
    old_content = dict(old.content) if old else None
    return Happening(
        one.did,
        RESOURCE,
        name_of(applied),
        revision=one.resource.revision,
        before=without_secrets(old_content),
        after=without_secrets(dict(applied.content), before=old_content),
    )


def _ask_concerned(changed: Sequence[HubObject], *, by: User | None) -> None:
    """Ask the placements whose selection these objects, as they were or as they are, may change."""
    if not changed:
        return
    placements = Placement.objects.filter(deleting_since=None).only("pk", "document")
    ids = [each.pk for each in placements.iterator() if concerns(selectors_of(each), changed)]
    several = {one.key: one for one in changed}
    word = str(changed[-1]) if len(several) == 1 else counted(len(several), "resource")
    ask(ids, because=f"{word} changed", by=by.get_username() if by else SYSTEM, resources=True)
