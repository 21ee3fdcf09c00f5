"""Applying and deleting resources on the hub; placements that select them are enqueued."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import (
    FieldError,
    ManifestWarning,
    raise_errors,
)
from fleetui.apimachinery.kinds import current_version, no_effect_reason
from fleetui.apimachinery.metadata import next_generation, without_hub_metadata
from fleetui.apimachinery.secrets import HubObject, ObjectKey, without_secrets
from fleetui.apimachinery.words import counted
from fleetui.audit import AuditEvent, actor_name, record_all
from fleetui.bulk import (
    batched,
    first_or_raise,
)
from fleetui.concurrency import check_revision, retry_on_conflict
from fleetui.errors import UnknownObject
from placements.engine.resource_manifest import parse_hub_object
from placements.manifests.placement import is_reserved_namespace
from placements.models import Placement, Resource
from placements.services.boundary import NAMESPACE, HubFacts
from placements.services.resources.queries import existing_namespaces, may_select
from placements.services.results import (
    OperationResult,
    SaveResult,
    revision_of,
)
from placements.services.teams import check_objects
from placements.services.workqueue import enqueue_scheduling

RESOURCE = "resource"


class UnknownResourceError(UnknownObject):
    problem_type = "unknown-resource"

    def __init__(self, key: ObjectKey) -> None:
        group, kind, namespace, name = key
        place = namespace and f"{namespace}/"
        of_group = group and f" of {group}"
        super().__init__(f"no {kind} {place}{name}{of_group} on the hub")
        self.key = key


def apply_resource(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> SaveResult[Resource]:
    """Apply one object; `expected` as everywhere. Raise InvalidManifest, RevisionConflict."""
    hub_object = parse_hub_object(without_hub_metadata(document))
    with transaction.atomic():
        check_revision(
            RESOURCE,
            name_of(hub_object),
            expected=expected,
            revision=revision_of(_rows_by_key([hub_object]).get(hub_object.key)),
        )
        return apply_resources([document], by=by, now=now)[0]


@retry_on_conflict
def apply_resources(
    documents: Sequence[Mapping[str, Any]],
    *,
    by: User | None,
    now: datetime,
    is_demo: bool = False,
) -> list[SaveResult[Resource]]:
    """Apply objects to the hub, all or none; what is there already is unchanged. Raise InvalidManifest."""
    objects = [
        parse_hub_object(without_hub_metadata(document)) for document in documents
    ]
    there = _rows_by_key(objects)
    _check(objects, there, by=by)
    before = {
        key: HubObject.of(plain_manifest(row.content)) for key, row in there.items()
    }
    applied = [
        _apply(hub_object, there.get(hub_object.key), now=now, is_demo=is_demo)
        for hub_object in objects
    ]
    Resource.objects.bulk_create(
        (
            result.object
            for result in applied
            if result.result is OperationResult.CREATED
        ),
        batch_size=200,
    )
    changed = [
        result.object for result in applied if result.result is OperationResult.CHANGED
    ]
    columns = [
        "version",
        "labels",
        "content",
        "revision",
        "spec_generation",
        "updated_at",
    ]
    # An upsert of locked rows, and never an insert: bulk_update takes three times as long.
    Resource.objects.bulk_create(
        changed,
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=columns,
        batch_size=200,
    )
    moved = [
        result for result in applied if result.result is not OperationResult.UNCHANGED
    ]
    after = [HubObject.of(result.object.content) for result in moved]
    events = []
    for result, hub_object in zip(moved, after, strict=True):
        old = dict(before[hub_object.key].content) if hub_object.key in before else None
        events.append(
            AuditEvent(
                result.result,
                RESOURCE,
                name_of(hub_object),
                result.object.revision,
                without_secrets(old),
                without_secrets(dict(hub_object.content), before=old),
            )
        )
    record_all(events, by=by, now=now)
    _enqueue_selecting(
        [
            *(
                before[hub_object.key]
                for hub_object in after
                if hub_object.key in before
            ),
            *after,
        ],
        by=by,
    )
    return applied


def check_resources_to_apply(
    documents: Sequence[Mapping[str, Any]], *, by: User | None
) -> None:
    """Raise what `apply_resources` would. Nothing is locked or written."""
    objects = [
        parse_hub_object(without_hub_metadata(document)) for document in documents
    ]
    _check(objects, _rows_by_key(objects, lock=False), by=by)


def _check(
    objects: Sequence[HubObject],
    there: Mapping[ObjectKey, Resource],
    *,
    by: User | None,
) -> None:
    raise_errors([error for _, error in without_namespace(objects)])
    namespaces = {
        hub_object.name: hub_object.labels
        for hub_object in objects
        if (hub_object.group, hub_object.kind) == NAMESPACE
    }
    check_objects(by, (HubObject.of(row.content) for row in there.values()))
    check_objects(by, objects, facts=HubFacts(namespaces))


def without_namespace(objects: Sequence[HubObject]) -> list[tuple[int, FieldError]]:
    """Return the places of objects whose namespace is neither on the hub nor among them, with an error."""
    named = {
        hub_object.namespace
        for hub_object in objects
        if hub_object.namespace and not is_reserved_namespace(hub_object.namespace)
    }
    brought = {
        hub_object.name
        for hub_object in objects
        if (hub_object.group, hub_object.kind) == ("", "Namespace")
    }
    missing = named - brought - existing_namespaces(named)
    return [
        (
            place,
            FieldError(
                "metadata.namespace",
                "not-on-the-hub",
                f"{hub_object}: the namespace {hub_object.namespace} is not on the hub",
                "a namespace of the hub, or a Namespace among these manifests",
            ),
        )
        for place, hub_object in enumerate(objects)
        if hub_object.namespace in missing
    ]


def unchanged_resources(
    documents: Sequence[Mapping[str, Any]],
) -> list[SaveResult[Resource] | None]:
    """Return the result for each object that is on the hub as it is written, None for any other.

    Nothing is locked. Raise InvalidManifest.
    """
    objects = [
        parse_hub_object(without_hub_metadata(document)) for document in documents
    ]
    there = _rows_by_key(objects, lock=False)
    return [
        SaveResult(row, OperationResult.UNCHANGED, _warnings(hub_object))
        if (row := there.get(hub_object.key))
        and plain_manifest(row.content) == hub_object.content
        else None
        for hub_object in objects
    ]


def delete_resource(
    key: ObjectKey,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> list[Resource]:
    """Delete an object; a Namespace with everything in it. Return what was deleted.

    Raise UnknownResourceError, RevisionConflict.
    """
    group, kind, namespace, name = key
    with transaction.atomic():
        rows = Resource.objects.select_for_update()
        row = first_or_raise(
            rows.filter(group=group, kind=kind, namespace=namespace, name=name),
            UnknownResourceError(key),
        )
        deleted = HubObject.of(row.content)
        check_revision(
            RESOURCE, name_of(deleted), expected=expected, revision=row.revision
        )
        gone = [row]
        if (group, kind) == NAMESPACE:
            gone = [*rows.filter(namespace=name), row]
        delete_resources(gone, by=by, now=now)
    return gone


def delete_resources(
    rows: Sequence[Resource], *, by: User | None, now: datetime
) -> None:
    """Delete these objects, inside the caller's transaction."""
    check_objects(by, (HubObject.of(row.content) for row in rows))
    Resource.objects.filter(pk__in=[row.pk for row in rows]).delete()
    objects = [HubObject.of(row.content) for row in rows]
    record_all(
        [
            AuditEvent(
                "deleted",
                RESOURCE,
                name_of(hub_object),
                row.revision + 1,
                before=row.content,
            )
            for hub_object, row in zip(objects, rows, strict=True)
        ],
        by=by,
        now=now,
    )
    _enqueue_selecting(objects, by=by)


def name_of(one: HubObject) -> str:
    """Return the identity of an object as one text: `group/kind/namespace/name`."""
    return "/".join(one.key)


def _rows_by_key(
    objects: Sequence[HubObject], *, lock: bool = True
) -> dict[ObjectKey, Resource]:
    keys = {hub_object.key for hub_object in objects}
    rows: dict[ObjectKey, Resource] = {}
    for part in batched(sorted({hub_object.name for hub_object in objects})):
        resources = Resource.objects.filter(name__in=part)
        if lock:
            resources = resources.select_for_update()
        rows |= {
            (row.group, row.kind, row.namespace, row.name): row for row in resources
        }
    return {key: row for key, row in rows.items() if key in keys}


def _apply(
    one: HubObject,
    row: Resource | None,
    *,
    now: datetime,
    is_demo: bool,
) -> SaveResult[Resource]:
    warnings = _warnings(one)
    if row is None:
        group, kind, namespace, name = one.key
        key = {"group": group, "kind": kind, "namespace": namespace, "name": name}
        row = Resource(**key, created_at=now, is_demo=is_demo)
        did = OperationResult.CREATED
    elif (before := plain_manifest(row.content)) == one.content:
        return SaveResult(row, OperationResult.UNCHANGED, warnings)
    else:
        row.revision += 1
        row.spec_generation = next_generation(row.spec_generation, before, one.content)
        did = OperationResult.CHANGED
    row.version, row.updated_at = one.version, now
    row.labels, row.content = dict(one.labels), dict(one.content)
    return SaveResult(row, did, warnings)


def _warnings(one: HubObject) -> tuple[ManifestWarning, ...]:
    warnings = []
    if reason := no_effect_reason(one.content):
        warnings.append(ManifestWarning("no-effect", "kind", reason))
    api_version, kind = str(one.content.get("apiVersion")), str(one.content.get("kind"))
    if current := current_version(api_version, kind):
        warnings.append(
            ManifestWarning(
                "removed-version",
                "apiVersion",
                f"{kind} in {api_version} is not served by current Kubernetes: use {current}",
            )
        )
    return tuple(warnings)


def _enqueue_selecting(changed: Sequence[HubObject], *, by: User | None) -> None:
    """Enqueue the placements whose selection these objects, before or after, may change."""
    if not changed:
        return
    placements = Placement.objects.filter(deleting_since=None).only(
        "namespace", "document"
    )
    ids = [
        placement.pk
        for placement in placements.iterator()
        if may_select(placement, changed)
    ]
    several = {hub_object.key: hub_object for hub_object in changed}
    word = counted(len(several), "resource") if len(several) > 1 else str(changed[-1])
    enqueue_scheduling(
        ids, trigger=f"{word} changed", by=actor_name(by), resources=True
    )
