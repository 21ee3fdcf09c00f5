"""The labels of what is changed, for users whose role applies to some labels only (`permissions.may_change`).

A rollout, staged run, eviction, budget, draft or dry run has the labels of its placement; a resource, an
override and a strategy their own. Nothing is read for a user who has the role on the whole hub.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth.models import User

from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.secrets import ObjectKey
from fleetui.concurrency import check_revision
from fleetui.permissions import FLEET, Labels, check_change, may_change
from placements.models import Draft, Override, Placement, Resource, StagedRun, StagedStrategy
from placements.services.results import PLACEMENT, UnknownPlacementError


def labels_in(document: object) -> Labels:
    """Return the labels of a manifest; none where it is no manifest."""
    return mapping_at(document, "metadata", "labels") if isinstance(document, Mapping) else FLEET


def placement_labels(full_name: str) -> Labels | None:
    document = Placement.objects.filter(full_name=full_name).values_list("document", flat=True).first()
    return None if document is None else labels_in(document)


def check_placement(by: User | None, name: str) -> None:
    """Raise NotOfTeamError unless a user may change what belongs to a placement, which may not exist."""
    if not may_change(by):
        check_change(by, placement_labels(name) or FLEET, what=f"placement {name}")


def check_documents(by: User | None, what: str, *documents: Any) -> None:
    """Raise NotOfTeamError unless a user may change an object with these manifests, before and after."""
    check_change(by, *(labels_in(one) for one in documents if one is not None), what=what)


def locked_placement(name: str, *, by: User | None, expected: int | None = None) -> Placement:
    """Lock a placement. Raise UnknownPlacementError, RevisionConflict, NotOfTeamError."""
    row = Placement.objects.select_for_update().filter(full_name=name).first()
    if row is None:
        raise UnknownPlacementError(name)
    check_documents(by, f"placement {name}", row.document)
    check_revision(PLACEMENT, name, expected=expected, revision=row.revision)
    return row


def check_resources(by: User | None, keys: Iterable[ObjectKey]) -> None:
    """Raise NotOfTeamError unless a user may change these resources; missing ones are of no team."""
    if may_change(by):
        return
    for group, kind, namespace, name in keys:
        rows = Resource.objects.filter(group=group, kind=kind, namespace=namespace, name=name)
        labels = rows.values_list("labels", flat=True).first()
        check_change(by, labels or FLEET, what=f"{kind} {name}")


# --- from the arguments of a path to labels: for `of` of a view and `labels_of` of a viewset ---


def of_placement(name: str, **_path: Any) -> list[Labels] | None:
    labels = placement_labels(name)
    return None if labels is None else [labels]


def of_run(name: str, **_path: Any) -> list[Labels] | None:
    run = StagedRun.objects.filter(full_name=name).select_related("placement").first()
    return None if run is None else [labels_of_run(run)]


def labels_of_run(run: StagedRun) -> Labels:
    return labels_in(run.placement.document) if run.placement else FLEET


def of_strategy(name: str, **_path: Any) -> list[Labels] | None:
    document = StagedStrategy.objects.filter(full_name=name).values_list("document", flat=True).first()
    return None if document is None else [labels_in(document)]


def of_draft(number: int, **_path: Any) -> list[Labels] | None:
    """Return the labels of the placement of a draft; None for a new placement."""
    draft = Draft.objects.filter(pk=number).select_related("placement").first()
    return [labels_in(draft.placement.document)] if draft and draft.placement else None


def of_resource(group: str, kind: str, namespace: str, name: str, **_path: Any) -> list[Labels] | None:
    """Return the labels of a resource; a path writes `core` or `_`, and `-` or `_`, for what is empty."""
    key = {"group": "" if group in ("core", "_") else group, "kind": kind, "name": name}
    rows = Resource.objects.filter(namespace="" if namespace in ("-", "_") else namespace, **key)
    labels = rows.values_list("labels", flat=True).first()
    return None if labels is None else [labels]


def of_override(kind: str, namespace: str, name: str, **_path: Any) -> list[Labels] | None:
    rows = Override.objects.filter(
        kind=kind, namespace="" if namespace in ("-", "_") else namespace, name=name
    )
    document = rows.values_list("document", flat=True).first()
    return None if document is None else [labels_in(document)]
