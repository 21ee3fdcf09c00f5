"""Saving and deleting overrides (`rules/lifecycle.md#overrides`)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Max

from clusters.queries import load_fleet
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.errors import (
    FieldError,
    raise_errors,
)
from fleetui.apimachinery.kinds import CLUSTER_OVERRIDE_KIND, OVERRIDE_KIND
from fleetui.apimachinery.secrets import refuse_hidden
from fleetui.apimachinery.words import full_name
from fleetui.audit import SYSTEM, actor_name
from fleetui.concurrency import retry_on_conflict
from fleetui.errors import UnknownObject
from placements.engine.overrides import idle_rule_warnings
from placements.manifests.override import (
    OVERRIDE_PARSERS,
    ClusterResourceOverride,
    ResourceOverride,
    override_change_errors,
    parse_cluster_override,
)
from placements.models import (
    Override,
    OverrideSnapshot,
    OverrideTarget,
    ResourceSnapshot,
)
from placements.services.overrides.queries import KEY, TargetKey, target_keys
from placements.services.pruning import prune_override_snapshots
from placements.services.results import (
    OperationResult,
    SaveResult,
    delete_row,
    document_of,
    locked_row,
    save_row,
    stored_document,
)
from placements.services.snapshots import hash_of
from placements.services.teams import check_documents, check_override
from placements.services.workqueue import enqueue_rollout

MOST = 100
"""Overrides in the fleet, and in one namespace (`rules/lifecycle.md#overrides`)."""
_Manifest: TypeAlias = ClusterResourceOverride | ResourceOverride
NOUNS = {CLUSTER_OVERRIDE_KIND: "cluster-override", OVERRIDE_KIND: "override"}
"""The kinds of events."""


class UnknownOverrideError(UnknownObject):
    problem_type = "unknown-override"

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        super().__init__(f"no {kind} is named {full_name(namespace, name)}")


@retry_on_conflict
def save_override(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> SaveResult[Override]:
    """Create an override or change it; the same again changes nothing.

    Raise InvalidManifest, RevisionConflict.
    """
    raw = dict(document)
    refuse_hidden(raw)
    manifest = OVERRIDE_PARSERS.get(str(raw.get("kind")), parse_cluster_override)(raw)
    namespace = manifest.namespace
    place = {
        "kind": manifest.kind,
        "namespace": namespace,
        "name": manifest.metadata.name,
    }
    noun, label = NOUNS[manifest.kind], full_name(namespace, place["name"])
    current = locked_row(Override, noun, expected, label=label, **place)
    check_documents(by, f"{manifest.kind} {label}", document_of(current), raw)
    warnings = idle_rule_warnings(manifest, load_fleet())
    if current and plain_manifest(current.document) == stored_document(raw):
        return SaveResult(current, OperationResult.UNCHANGED, warnings)
    spec = manifest.spec
    keys: list[TargetKey] = [
        (namespace, resource.group, resource.version, resource.kind, resource.name)
        for resource in spec.selected
    ]
    targets = {f"spec.{spec.SELECTORS}[{at}]": key for at, key in enumerate(keys)}
    check_override(by, manifest)
    raise_errors(_save_errors(current, manifest, namespace, targets))
    row = current or Override(**place, created_at=now, revision=0)
    row.placement_name = manifest.placement
    saved = save_row(row, noun, document, by=by, now=now, label=label)
    before: set[TargetKey] = set(row.targets.values_list(*KEY))
    if before != set(keys):
        row.targets.all().delete()
        OverrideTarget.objects.bulk_create(
            OverrideTarget(
                override=row, override_kind=row.kind, **dict(zip(KEY, key, strict=True))
            )
            for key in keys
        )
    _take_snapshot(row, manifest, by=by, now=now)
    _enqueue_affected(
        row.placement_name,
        before | set(keys),
        trigger=f"{manifest.kind} {label} {saved.result}",
        by=actor_name(by),
    )
    return replace(saved, warnings=warnings)


@transaction.atomic
def delete_override(
    kind: str,
    namespace: str,
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> None:
    """Delete an override; what it changed on clusters is undone as versions are rolled out.

    Its snapshots stay as long as a cluster runs them. Raise UnknownOverrideError, RevisionConflict.
    """
    if kind not in NOUNS:
        raise UnknownOverrideError(kind, namespace, name)
    label = full_name(namespace, name)
    row = locked_row(
        Override,
        NOUNS[kind],
        expected,
        label=label,
        kind=kind,
        namespace=namespace,
        name=name,
    )
    if row is None:
        raise UnknownOverrideError(kind, namespace, name)
    check_documents(by, f"{kind} {label}", row.document)
    targets = set(row.targets.values_list(*KEY))
    _snapshots_of(row).update(is_latest=False)
    prune_override_snapshots(row, keep=0)
    delete_row(row, NOUNS[kind], by=by, now=now, label=label)
    _enqueue_affected(
        row.placement_name,
        targets,
        trigger=f"{kind} {label} deleted",
        by=actor_name(by),
    )


def _save_errors(
    current: Override | None,
    manifest: _Manifest,
    namespace: str,
    targets: Mapping[str, TargetKey],
) -> list[FieldError]:
    """Return what prevents saving a manifest with these targets, by path, over the current one."""
    rows = Override.objects.filter(kind=manifest.kind, namespace=namespace)
    others = OverrideTarget.objects.filter(
        override_kind=manifest.kind, namespace=namespace
    )
    errors = []
    if current:
        errors = override_change_errors(
            OVERRIDE_PARSERS[manifest.kind](current.document), manifest
        )
        others = others.exclude(override=current)
    elif rows.count() >= MOST:
        place = f"in the namespace {namespace}" if namespace else "in the fleet"
        errors = [
            FieldError(
                "kind",
                "too-many",
                f"there are {MOST} of this kind {place} already",
                "changes to one that is there, or delete one",
            )
        ]
    owners = {
        tuple(key): name for name, *key in others.values_list("override__name", *KEY)
    }
    return errors + [
        FieldError(
            path,
            "conflict",
            f"{key[3]} {full_name(namespace, key[4])} is selected by {owners[key]} already",
            "each resource in one override of a kind",
        )
        for path, key in targets.items()
        if key in owners
    ]


def _take_snapshot(
    row: Override, manifest: _Manifest, *, by: User | None, now: datetime
) -> None:
    content = hash_of(manifest.spec.to_plain())
    rows = _snapshots_of(row)
    if rows.filter(is_latest=True, content_hash=content).exists():
        return
    newest = rows.aggregate(number=Max("number", default=-1))["number"]
    rows.filter(is_latest=True).update(is_latest=False)
    OverrideSnapshot.objects.create(
        kind=row.kind,
        namespace=row.namespace,
        override_name=row.name,
        number=newest + 1,
        content_hash=content,
        document=manifest.to_manifest(),
        placement_name=row.placement_name,
        created_at=now,
        created_by=actor_name(by),
    )
    prune_override_snapshots(row)


def _snapshots_of(row: Override) -> Any:
    return OverrideSnapshot.objects.filter(
        kind=row.kind, namespace=row.namespace, override_name=row.name
    )


def labels_changed(trigger: str) -> None:
    for placement in Override.objects.values_list(
        "placement_name", flat=True
    ).distinct():
        targets = OverrideTarget.objects.filter(override__placement_name=placement)
        _enqueue_affected(
            placement, targets.values_list(*KEY), trigger=trigger, by=SYSTEM
        )


def _enqueue_affected(
    placement: str, targets: Iterable[TargetKey], *, trigger: str, by: str
) -> None:
    """Enqueue the rollouts of the placements that have one of the resources.

    See `rules/lifecycle.md#triggers`.
    """
    keys = frozenset(targets)
    latest = ResourceSnapshot.objects.filter(
        is_latest=True, placement__deleting_since=None
    )
    if placement:
        latest = latest.filter(placement__full_name=placement)
    rows = latest.values_list("placement_id", "identities").iterator()
    enqueue_rollout(
        [pk for pk, identities in rows if not keys.isdisjoint(target_keys(identities))],
        trigger=trigger,
        by=by,
    )
