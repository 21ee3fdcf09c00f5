"""Saving and deleting overrides (`spec/lifecycle.md` B.1.8, B.3.3); the placements concerned are woken."""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.events import SYSTEM, Happening, record
from fleetui.revisions import once_more_when_beaten, refuse_stale
from placements.models import Override, OverrideSnapshot, OverrideTarget, ResourceSnapshot
from placements.models.overrides import full_name
from placements.operations.did import Did
from placements.operations.pruning import prune_override_snapshots
from placements.operations.rollouts.asking import ask_to_advance
from placements.overriding import KEY, TargetKey, target_keys
from placements.scheduling.door.kinds import CLUSTER_OVERRIDE_KIND, OVERRIDE_KIND
from placements.scheduling.door.override_documents import (
    ClusterResourceOverride,
    ResourceOverride,
    override_change_faults,
    parse_cluster_override,
    parse_override,
)
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.hub.secrets import without_secrets
from placements.snapshots import hash_of

MOST = 100
"""Overrides in the fleet, and in one namespace (lifecycle B.1.8)."""
_Manifest: TypeAlias = ClusterResourceOverride | ResourceOverride
NOUNS = {CLUSTER_OVERRIDE_KIND: "cluster-override", OVERRIDE_KIND: "override"}
"""What events call them."""
PARSERS: Mapping[str, Callable[[object], _Manifest]] = {
    CLUSTER_OVERRIDE_KIND: parse_cluster_override,
    OVERRIDE_KIND: parse_override,
}


class UnknownOverrideError(LookupError):
    """No override has this name."""

    def __init__(self, kind: str, namespace: str, name: str) -> None:
        super().__init__(f"there is no {kind} {full_name(namespace, name)}")


@dataclass(frozen=True, slots=True)
class SavedOverride:
    """What the operation did."""

    override: Override
    did: Did


@once_more_when_beaten
def save_override(
    document: Mapping[str, Any], *, by: User | None, now: datetime, expected: int | None = None
) -> SavedOverride:
    """Create an override or change it; the same again changes nothing. Raises Faults, StaleEditError."""
    raw = dict(document)
    manifest = PARSERS.get(str(raw.get("kind")), parse_cluster_override)(raw)
    written = {key: deepcopy(value) for key, value in raw.items() if key != "status"}
    place = {"kind": manifest.kind, "namespace": _namespace(manifest), "name": manifest.metadata.name}
    current = Override.objects.select_for_update().filter(**place).first()
    label = full_name(place["namespace"], place["name"])
    refuse_stale(NOUNS[manifest.kind], label, expected=expected, revision=current.revision if current else 0)
    if current and current.document == written:
        return SavedOverride(current, Did.UNCHANGED)
    _refuse(manifest, current)
    row = current or Override(**place, created_at=now, revision=0)
    _write(row, manifest, written, by=by, now=now)
    return SavedOverride(row, Did.CHANGED if current else Did.CREATED)


def _write(
    row: Override, manifest: _Manifest, written: dict[str, Any], *, by: User | None, now: datetime
) -> None:
    before = row.document if row.revision else None
    row.document, row.updated_at, row.revision = written, now, row.revision + 1
    row.placement_name = manifest.spec.placement.name if manifest.spec.placement else ""
    row.save()
    concerned = _changed_targets(row, manifest)
    _take_snapshot(row, manifest, by=by, now=now)
    verb = Did.CHANGED if before else Did.CREATED
    happening = Happening(
        verb,
        NOUNS[row.kind],
        row.label,
        revision=row.revision,
        before=without_secrets(before),
        after=without_secrets(written, before=before),
    )
    record(happening, by=by, now=now)
    _wake(row.placement_name, concerned)


@transaction.atomic
def delete_override(
    kind: str, namespace: str, name: str, *, by: User | None, now: datetime, expected: int | None = None
) -> None:
    """Delete an override; what it changed on clusters is undone as versions are rolled out.

    Its snapshots stay as long as a cluster runs them. Raises UnknownOverrideError, StaleEditError.
    """
    row = Override.objects.select_for_update().filter(kind=kind, namespace=namespace, name=name).first()
    if row is None:
        raise UnknownOverrideError(kind, namespace, name)
    refuse_stale(NOUNS[kind], row.label, expected=expected, revision=row.revision)
    concerned = set(row.targets.values_list(*KEY))
    _snapshots_of(row).update(is_latest=False)
    prune_override_snapshots(row, keep=0)
    happening = Happening(
        "deleted", NOUNS[kind], row.label, revision=row.revision + 1, before=without_secrets(row.document)
    )
    record(happening, by=by, now=now)
    placement_name = row.placement_name
    row.delete()
    _wake(placement_name, concerned)


def _namespace(manifest: _Manifest) -> str:
    return "" if isinstance(manifest, ClusterResourceOverride) else manifest.metadata.namespace


def _keys(manifest: _Manifest) -> list[TargetKey]:
    namespace = _namespace(manifest)
    if isinstance(manifest, ClusterResourceOverride):
        selected = manifest.spec.cluster_resource_selectors
    else:
        selected = manifest.spec.resource_selectors
    return [(namespace, one.group, one.version, one.kind, one.name) for one in selected]


def _refuse(manifest: _Manifest, current: Override | None) -> None:
    if current:
        faults = override_change_faults(PARSERS[manifest.kind](current.document), manifest)
    else:
        faults = _one_too_many(manifest)
    faults += _taken(manifest, current)
    if faults:
        raise Faults(faults)


def _one_too_many(manifest: _Manifest) -> list[Fault]:
    namespace = _namespace(manifest)
    if Override.objects.filter(kind=manifest.kind, namespace=namespace).count() < MOST:
        return []
    place = f"in the namespace {namespace}" if namespace else "in the fleet"
    message = f"there are {MOST} of this kind {place} already"
    return [Fault("kind", "too-many", message, "changes to one that is there, or delete one")]


def _taken(manifest: _Manifest, current: Override | None) -> list[Fault]:
    """List the resources that another override of the same kind selects already."""
    namespace = _namespace(manifest)
    others = OverrideTarget.objects.filter(override_kind=manifest.kind, namespace=namespace)
    if current:
        others = others.exclude(override=current)
    owners = {tuple(key): name for name, *key in others.values_list("override__name", *KEY)}
    field = "clusterResourceSelectors" if manifest.kind == CLUSTER_OVERRIDE_KIND else "resourceSelectors"
    return [
        Fault(
            f"spec.{field}[{index}]",
            "conflict",
            f"{key[3]} {full_name(namespace, key[4])} is selected by {owners[key]} already",
            "each resource in one override of a kind",
        )
        for index, key in enumerate(_keys(manifest))
        if key in owners
    ]


def _changed_targets(row: Override, manifest: _Manifest) -> set[TargetKey]:
    """Write which resources are selected; give those that are or were."""
    before: set[TargetKey] = set(row.targets.values_list(*KEY))
    after = _keys(manifest)
    if before != set(after):
        row.targets.all().delete()
        OverrideTarget.objects.bulk_create(
            OverrideTarget(override=row, override_kind=row.kind, **dict(zip(KEY, key, strict=True)))
            for key in after
        )
    return before | set(after)


def _take_snapshot(row: Override, manifest: _Manifest, *, by: User | None, now: datetime) -> None:
    """Freeze what the override says, unless that is what its latest snapshot says."""
    content = hash_of(manifest.spec.to_plain())
    rows = _snapshots_of(row)
    if rows.filter(is_latest=True, content_hash=content).exists():
        return
    newest = rows.order_by("-number").first()
    rows.filter(is_latest=True).update(is_latest=False)
    OverrideSnapshot.objects.create(
        kind=row.kind,
        namespace=row.namespace,
        override_name=row.name,
        number=newest.number + 1 if newest else 0,
        content_hash=content,
        document=manifest.to_manifest(),
        placement_name=row.placement_name,
        created_at=now,
        created_by=by.get_username() if by else SYSTEM,
    )
    prune_override_snapshots(row)


def _snapshots_of(row: Override) -> Any:
    return OverrideSnapshot.objects.filter(kind=row.kind, namespace=row.namespace, override_name=row.name)


def labels_changed() -> None:
    """Let the placements look that have an overridden resource: rules choose clusters by label."""
    for placement in Override.objects.values_list("placement_name", flat=True).distinct():
        targets = OverrideTarget.objects.filter(override__placement_name=placement)
        _wake(placement, targets.values_list(*KEY))


def _wake(placement: str, targets: Iterable[TargetKey]) -> None:
    """Let the placements look that have one of the resources (lifecycle A.6)."""
    wanted = frozenset(targets)
    latest = ResourceSnapshot.objects.filter(is_latest=True, placement__deleting_since=None)
    if placement:
        latest = latest.filter(placement__name=placement)
    rows = latest.values_list("placement_id", "identities").iterator()
    ask_to_advance(pk for pk, identities in rows if not wanted.isdisjoint(target_keys(identities)))
