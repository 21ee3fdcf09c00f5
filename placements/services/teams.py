"""Checks of changes for users whose role applies to some labels only (`permissions.may_change`).

What their grants include beside the label is in `boundary.py`. A rollout, staged run, eviction, budget, draft
or dry run has the labels of its placement; a resource, an override and a strategy their own. Nothing is read
for a user who has the role on the whole hub.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import HubObject, ObjectKey, sanitised
from fleetui.bulk import first_or_raise
from fleetui.concurrency import check_revision
from fleetui.permissions import (
    FLEET,
    Labels,
    NotOfTeamError,
    check_boundary,
    check_change,
    may_change,
    teams_of,
)
from placements.manifests.override import ClusterResourceOverride, ResourceOverride
from placements.manifests.placement import ClusterResourcePlacement, parse_placement
from placements.models import (
    Draft,
    Override,
    Placement,
    Resource,
    ResourceSnapshot,
    Run,
    StagedRun,
    StagedStrategy,
)
from placements.services.boundary import (
    NAMESPACE,
    HubFacts,
    missing_for_namespace,
    missing_for_object,
    missing_for_override,
    missing_for_placement,
)
from placements.services.results import PLACEMENT, UnknownPlacementError


def labels_in(document: object) -> Labels:
    return mapping_at(document, "metadata", "labels")


def check_placement(by: User | None, name: str) -> None:
    """Raise NotOfTeamError unless a user may change what belongs to a placement, which may not exist."""
    if not may_change(by):
        document = (
            Placement.objects.filter(full_name=name)
            .values_list("document", flat=True)
            .first()
        )
        check_placement_as_is(by, name, document)


def check_placement_as_is(
    by: User | None, name: str, document: Mapping[str, Any] | None
) -> None:
    """Raise NotOfTeamError unless a user may bring something somewhere by a placement as it is saved."""
    if document is None:
        check_change(by, FLEET, what=f"placement {name}")
    elif not may_change(by):
        check_placement_change(
            by, parse_placement(document), before=None, after=document
        )


def check_placement_change(
    by: User | None,
    manifest: ClusterResourcePlacement,
    *,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
) -> None:
    """Raise NotOfTeamError unless a user may save a placement; `manifest` is what it will be, parsed.

    As it was, it needs the label only: a team may bring a placement back into the boundary of its grant.
    """
    what = f"placement {manifest.full_name}"
    if before is not None:
        check_change(by, labels_in(before), what=what)
    facts = HubFacts()
    check_boundary(
        by,
        labels_in(after),
        lambda team: missing_for_placement(team, manifest, after, facts),
        what=what,
    )


def placement_refusal(
    by: User | None,
    manifest: ClusterResourcePlacement,
    *,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any],
) -> str:
    """Return why a user with grants of teams may not save a placement, for previews; empty for others."""
    if not teams_of(by) or may_change(by):
        return ""
    try:
        check_placement_change(by, manifest, before=before, after=after)
    except NotOfTeamError as error:
        return str(error)
    return ""


def check_documents(by: User | None, what: str, *documents: Any) -> None:
    """Raise NotOfTeamError unless a user may change an object with these manifests, before and after."""
    facts = HubFacts()
    for document in documents:
        if document is not None:
            check_boundary(
                by,
                labels_in(document),
                partial(missing_for_namespace, document=document, facts=facts),
                what=what,
            )


def locked_placement(
    name: str, *, by: User | None, expected: int | None = None, removes: bool = False
) -> Placement:
    """Lock a placement. Raise UnknownPlacementError, RevisionConflict, NotOfTeamError.

    What only `removes` or stops needs the label of the placement; all else needs the boundary of the grant.
    """
    rows = Placement.objects.select_for_update().filter(full_name=name)
    row = first_or_raise(rows, UnknownPlacementError(name))
    if removes:
        check_change(by, labels_in(row.document), what=f"placement {name}")
    else:
        check_placement_as_is(by, name, row.document)
    check_revision(PLACEMENT, name, expected=expected, revision=row.revision)
    return row


def check_objects(
    by: User | None, objects: Iterable[HubObject], *, facts: HubFacts | None = None
) -> None:
    """Raise NotOfTeamError unless a user may change these objects of the hub."""
    if may_change(by):
        return
    known = facts or HubFacts()
    for hub_object in objects:
        check_boundary(
            by,
            hub_object.labels,
            partial(missing_for_object, one=hub_object, facts=known),
            what=str(hub_object),
        )


def check_resources(by: User | None, keys: Iterable[ObjectKey]) -> None:
    """Raise NotOfTeamError unless a user may change these resources; missing ones are of no team."""
    if may_change(by):
        return
    for group, kind, namespace, name in keys:
        row = Resource.objects.filter(
            group=group, kind=kind, namespace=namespace, name=name
        ).first()
        if row is None:
            check_change(by, FLEET, what=f"{kind} {name}")
        else:
            check_objects(by, [HubObject.of(row.content)])


def may_change_resource(user: User | None, row: Resource) -> bool:
    try:
        check_objects(user, [HubObject.of(row.content)])
    except NotOfTeamError:
        return False
    return True


def check_override(
    by: User | None, manifest: ClusterResourceOverride | ResourceOverride
) -> None:
    """Raise NotOfTeamError unless a user may have all that an override patches changed.

    One that names a Namespace patches everything in it.
    """
    if may_change(by):
        return
    selected = manifest.spec.selected
    check_resources(
        by,
        [
            (resource.group, resource.kind, manifest.namespace, resource.name)
            for resource in selected
        ],
    )
    inside = [
        resource.name
        for resource in selected
        if (resource.group, resource.kind) == NAMESPACE
    ]
    rows = Resource.objects.filter(namespace__in=inside)
    check_objects(by, [HubObject.of(row.content) for row in rows])
    check_boundary(
        by,
        manifest.metadata.labels,
        lambda team: missing_for_override(team, manifest),
        what=f"{manifest.kind} {manifest.full_name}",
    )
    if manifest.placement:
        check_placement(by, manifest.placement)


def check_rollback(
    by: User | None,
    old: ResourceSnapshot,
    *,
    selected: Callable[[], Iterable[HubObject]],
) -> None:
    """Raise NotOfTeamError unless a user may change what differs between a snapshot and the hub.

    `selected` returns what the placement selects now; where that is invalid, the whole snapshot counts.
    """
    if may_change(by):
        return
    before: dict[ObjectKey, HubObject] = {}
    with suppress(InvalidManifest):
        plain = (
            replace(hub_object, content=plain_manifest(hub_object.content))
            for hub_object in selected()
        )
        before = {hub_object.key: sanitised(hub_object) for hub_object in plain}
    parts = old.parts.order_by("position")
    manifests = (
        manifest for part in parts for manifest in plain_manifest(part.manifests)
    )
    after = {manifest.key: manifest for manifest in map(HubObject.of, manifests)}
    differing = [
        hub_object
        for side, other in ((before, after), (after, before))
        for key, hub_object in side.items()
        if key not in other or other[key].content != hub_object.content
    ]
    check_objects(by, differing)


# --- from the arguments of a path to labels: for `of` of a view and `labels_of` of a viewset ---


def of_placement(name: str, **_path: Any) -> list[Labels] | None:
    return _labels_at(Placement.objects.filter(full_name=name))


def of_run(name: str, **_path: Any) -> list[Labels] | None:
    return _labels_at(StagedRun.objects.filter(full_name=name), "placement__document")


def labels_of_run(run: Run) -> Labels:
    """Return the labels of the placement of a run; none once that is deleted."""
    return labels_in(run.placement and run.placement.document)


def of_strategy(name: str, **_path: Any) -> list[Labels] | None:
    return _labels_at(StagedStrategy.objects.filter(full_name=name))


def of_draft(number: int, **_path: Any) -> list[Labels] | None:
    """Return the labels of the placement of a draft; None for a new placement."""
    drafts = Draft.objects.filter(pk=number, placement__isnull=False)
    return _labels_at(drafts, "placement__document")


def of_resource(
    group: str, kind: str, namespace: str, name: str, **_path: Any
) -> list[Labels] | None:
    """Return the labels of a resource; a path writes `core` or `_`, and `-` or `_`, for what is empty."""
    rows = Resource.objects.filter(
        group=_EMPTY_GROUPS.get(group, group),
        kind=kind,
        namespace=_EMPTY_NAMESPACES.get(namespace, namespace),
        name=name,
    )
    return list(rows.values_list("labels", flat=True)[:1]) or None


def of_override(
    kind: str, namespace: str, name: str, **_path: Any
) -> list[Labels] | None:
    rows = Override.objects.filter(
        kind=kind, namespace=_EMPTY_NAMESPACES.get(namespace, namespace), name=name
    )
    return _labels_at(rows)


_EMPTY_GROUPS = {"core": "", "_": ""}
_EMPTY_NAMESPACES = {"-": "", "_": ""}


def _labels_at(rows: QuerySet[Any], column: str = "document") -> list[Labels] | None:
    """Return the labels in the manifest of a row; None if there is no row."""
    documents = rows.values_list(column, flat=True)[:1]
    return [labels_in(document) for document in documents] or None
