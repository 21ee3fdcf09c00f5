"""Saving and deleting placements (`spec/lifecycle.md` A.5, A.9 to A.11, B.3.1).

A Placement of Open Cluster Management is decided from scratch each time, so its number and tolerations may
be removed (`docs/adr/0009`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.fleet import Fleet
from clusters.queries import load_fleet
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.model import Semantics
from fleetui.audit import AuditEvent, actor_name, record
from fleetui.concurrency import check_revision, retry_on_conflict
from placements.engine.rollout.staged_run import StageReason
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import Decision, labels_read, properties_read
from placements.engine.scheduling.profile import chooses_anew
from placements.engine.scheduling.scheduler import schedule
from placements.explain.vocabulary import counted, joined
from placements.manifests.binding import BindingState
from placements.manifests.ocm import STRATEGY_ANNOTATION, annotation_path
from placements.manifests.ocm_placement import is_ocm_placement
from placements.manifests.placement import (
    ClusterResourcePlacement,
    OcmPlacement,
    parse_placement,
    placement_caveats,
)
from placements.manifests.policy import PlacementType
from placements.manifests.strategy import StrategyType
from placements.models import Placement, PolicySnapshot
from placements.services.pruning import prune_policy_snapshots
from placements.services.resources.queries import selection_of
from placements.services.results import (
    PLACEMENT,
    OperationResult,
    SaveResult,
    UnknownPlacementError,
    without_status,
)
from placements.services.rollouts.controller import finish_deletion
from placements.services.rollouts.staged_runs import end_runs_of
from placements.services.snapshots import content_hash, draft_cycle
from placements.services.workqueue import enqueue_rollout, enqueue_scheduling

RESERVED_NAMES = ("new", "preview")
"""Names whose addresses belong to a page or to another REST path."""
CONFIRMATION = "unschedule-everything"
"""What every entry point sends to confirm that a placement may leave all of its clusters."""
_NAMES_SHOWN = 5
_NEW_PLACEMENT = "create a placement with another name, and delete this one when the new one is in place"
_COLUMNS_READ_FROM_MANIFEST = [
    "placement_type",
    "number_of_clusters",
    "semantics",
    "label_keys_read",
    "property_names_read",
    "revision_history_limit",
    "reschedules_on_fleet_change",
]


@dataclass(frozen=True, slots=True)
class UnscheduledPlacement:
    """A placement that a change would remove from every cluster that it is on."""

    placement: str
    clusters: tuple[str, ...]

    def __str__(self) -> str:
        count = len(self.clusters)
        shown = joined(self.clusters[:_NAMES_SHOWN])
        if count > _NAMES_SHOWN:
            shown = f"{', '.join(self.clusters[:_NAMES_SHOWN])} and {count - _NAMES_SHOWN} more"
        all_clusters = "its only cluster" if count == 1 else f"all {counted(count, 'cluster')}"
        return f"{self.placement} would leave {all_clusters}: {shown}"


class UnschedulesEverything(Exception):
    """A change would unschedule everything and was not confirmed; nothing has changed."""

    def __init__(self, emptied: Iterable[UnscheduledPlacement]) -> None:
        self.emptied = tuple(emptied)
        placements = "; ".join(map(str, self.emptied))
        super().__init__(
            f"This would unschedule everything: {placements}. Nothing has changed; confirm it first."
        )


def save_placement(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
    trigger: str = "",
    is_demo: bool = False,
    confirmed: bool = False,
) -> SaveResult[Placement]:
    """Create a placement or change it, by its whole manifest; the same manifest again changes nothing.

    `expected` is the revision that the edit started from, 0 for a placement that must be new; `trigger` is
    the trigger of the scheduling cycle that follows. `confirmed`: it may leave all of its clusters. Raises
    InvalidManifest, RevisionConflict and UnschedulesEverything; then nothing has changed.
    """
    return save_manifest(
        parse_placement(dict(document)),
        document,
        by=by,
        now=now,
        expected=expected,
        trigger=trigger,
        is_demo=is_demo,
        confirmed=confirmed,
    )


@retry_on_conflict
def save_manifest(
    manifest: ClusterResourcePlacement,
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
    trigger: str = "",
    is_demo: bool = False,
    confirmed: bool = False,
) -> SaveResult[Placement]:
    """Save a manifest that was parsed from this document already; otherwise as `save_placement`."""
    name = manifest.metadata.name
    if errors := reserved_name_errors(name):
        raise InvalidManifest(errors)
    content = without_status(document)
    caveats = (*placement_caveats(manifest), *selection_of(manifest).caveats)

    current = Placement.objects.select_for_update().filter(name=name).first()
    revision = current.revision if current else 0
    check_revision(PLACEMENT, name, expected=expected, revision=revision)
    if current is None:
        created = Placement(
            name=manifest.metadata.name,
            document=content,
            created_at=now,
            updated_at=now,
            is_demo=is_demo,
            scheduled="Unknown",
            scheduled_since=now,
        )
        _set_columns(created, manifest)
        created.save(force_insert=True)
        _take_policy_snapshot(created, manifest, number=0, by=by, now=now)
        record(AuditEvent("created", PLACEMENT, created.name, revision=1, after=content), by=by, now=now)
        enqueue_scheduling([created.pk], trigger=trigger or "created", by=actor_name(by), resources=True)
        return SaveResult(created, OperationResult.CREATED, caveats)

    if current.deleting_since:
        message = f"the placement {name} is being deleted"
        raise InvalidManifest(
            [FieldError("metadata.name", "being-deleted", message, "another name, or try again later")]
        )
    before = parse_placement(current.document)
    if errors := immutable_field_errors(before, manifest, documents=(current.document, content)):
        raise InvalidManifest(errors)
    if current.document == content:
        return SaveResult(current, OperationResult.UNCHANGED, caveats)
    if not confirmed:
        check_not_unscheduling_all(current, manifest)
    _change(current, manifest, content, trigger or "changed", by=by, now=now)
    return SaveResult(current, OperationResult.CHANGED, caveats)


def _change(
    placement: Placement,
    manifest: ClusterResourcePlacement,
    content: dict[str, Any],
    trigger: str,
    *,
    by: User | None,
    now: datetime,
) -> None:
    before = placement.document
    placement.document, placement.updated_at = content, now
    placement.revision += 1
    _set_columns(placement, manifest)
    pending = scheduled_columns(placement, "Unknown", now=now)
    for name, value in pending.items():
        setattr(placement, name, value)
    if manifest.spec.strategy.type is StrategyType.EXTERNAL:  # its runs are stopped, not the placement
        placement.is_stopped = False
    fields = ["document", "updated_at", "revision", "is_stopped", *_COLUMNS_READ_FROM_MANIFEST, *pending]
    placement.save(update_fields=fields)

    latest = PolicySnapshot.objects.get(placement=placement, is_latest=True)
    if latest.content_hash != content_hash(manifest):
        PolicySnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
        _take_policy_snapshot(placement, manifest, number=latest.number + 1, by=by, now=now)
        prune_policy_snapshots(placement)
    happening = AuditEvent(
        "changed", PLACEMENT, placement.name, revision=placement.revision, before=before, after=content
    )
    record(happening, by=by, now=now)
    enqueue_scheduling([placement.pk], trigger=trigger, by=actor_name(by), resources=True)
    enqueue_rollout([placement.pk])


def _set_columns(placement: Placement, manifest: ClusterResourcePlacement) -> None:
    """Set the columns that lists filter by, and that say which changes of the fleet affect the placement."""
    policy = manifest.spec.policy
    cycle = Cycle(Fleet(), policy, (), manifest.semantics, manifest.spread_options)
    is_pick_n = policy.placement_type is PlacementType.PICK_N
    placement.placement_type = policy.placement_type
    placement.number_of_clusters = policy.number_of_clusters if is_pick_n else None
    placement.semantics = manifest.semantics
    placement.label_keys_read = list(labels_read(cycle))
    placement.property_names_read = list(properties_read(cycle))
    placement.revision_history_limit = manifest.spec.revision_history_limit
    placement.reschedules_on_fleet_change = True


def _take_policy_snapshot(
    placement: Placement, manifest: ClusterResourcePlacement, *, number: int, by: User | None, now: datetime
) -> None:
    PolicySnapshot.objects.create(
        placement=placement,
        number=number,
        content_hash=content_hash(manifest),
        policy=manifest.spec.policy.without_number(),
        semantics=manifest.semantics,
        options=manifest.spread_options,
        created_at=now,
        created_by=actor_name(by),
    )


def delete_placement(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> bool:
    """Delete a placement; return whether its row is gone already.

    One that was rolled out stays until its resources are removed from the clusters (lifecycle A.11). Raises
    UnknownPlacementError, RevisionConflict.
    """
    with transaction.atomic():
        current = Placement.objects.select_for_update().filter(name=name).first()
        if current is None:
            raise UnknownPlacementError(name)
        check_revision(PLACEMENT, name, expected=expected, revision=current.revision)
        if current.deleting_since is None:
            current.deleting_since, current.revision = now, current.revision + 1
            current.deletion_number = current.bindings.exclude(state=BindingState.UNSCHEDULED).count()
            current.save(update_fields=["deleting_since", "deletion_number", "revision"])
            happening = AuditEvent(
                "deleted", PLACEMENT, name, revision=current.revision, before=current.document
            )
            record(happening, by=by, now=now)
            end_runs_of(current, StageReason("being-deleted"), by=by, now=now)
        enqueue_rollout([current.pk])
        return finish_deletion(current)


def scheduled_columns(placement: Placement, status: str, *, now: datetime) -> dict[str, Any]:
    """Return the columns of the condition `Scheduled`; its time changes only with its value."""
    return {} if placement.scheduled == status else {"scheduled": status, "scheduled_since": now}


def reschedules_when_fulfilled(placement: Placement) -> bool:
    """Return whether a fulfilled placement may still get clusters: PickAll, and rules without stickiness."""
    is_pick_all = placement.placement_type == PlacementType.PICK_ALL
    return is_pick_all or chooses_anew(Semantics(placement.semantics))


def reserved_name_errors(name: str) -> list[FieldError]:
    """Return the error of a name whose address belongs to a page or to another REST path."""
    if name not in RESERVED_NAMES:
        return []
    message = f"{name} is a reserved name (reserved: {', '.join(RESERVED_NAMES)})"
    return [FieldError("metadata.name", "reserved-name", message, "another name")]


def has_policy(document: Mapping[str, Any]) -> bool:
    """Return whether a manifest has a policy; a Placement of OCM always does."""
    return is_ocm_placement(document) or document["spec"].get("policy") is not None


def immutable_field_errors(
    before: ClusterResourcePlacement,
    after: ClusterResourcePlacement,
    *,
    documents: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> list[FieldError]:
    """Return an error for every forbidden change of a saved manifest; `documents` are both as written."""
    if before.kind != after.kind:
        message = f"{before.metadata.name} is a {before.kind} already; names are unique across both kinds"
        allowed = f"{before.kind}, or another name than {after.metadata.name}"
        return [FieldError("kind", "immutable", message, allowed)]
    errors: list[FieldError] = []
    if isinstance(before, OcmPlacement) and isinstance(after, OcmPlacement):
        if before.namespace != after.namespace:
            place = f"in namespace {before.namespace}" if before.namespace else "without a namespace"
            message = (
                f"a Placement {before.metadata.name} exists already, {place}; "
                "names are unique across namespaces"
            )
            allowed = f"{before.namespace or 'no namespace'}, or another name"
            errors.append(FieldError("metadata.namespace", "immutable", message, allowed))
        return [*errors, *_strategy_errors(before, after)]

    errors += [*_policy_errors(before, after), *_strategy_errors(before, after)]
    if has_policy(documents[0]) and not has_policy(documents[1]):
        message = "cannot be removed once it was set"
        allowed = "to pick every cluster: placementType: PickAll"
        errors.append(FieldError("spec.policy", "immutable", message, allowed))
    if before.spec.status_reporting_scope != after.spec.status_reporting_scope:
        message = f"cannot change from {before.spec.status_reporting_scope}"
        errors.append(FieldError("spec.statusReportingScope", "immutable", message, _NEW_PLACEMENT))
    return errors


def _policy_errors(before: ClusterResourcePlacement, after: ClusterResourcePlacement) -> Iterator[FieldError]:
    old, new = before.spec.policy, after.spec.policy
    if old.placement_type != new.placement_type:
        message = (
            f"cannot change from {old.placement_type} to {new.placement_type}: "
            "what is placed was chosen in another way"
        )
        yield FieldError("spec.policy.placementType", "immutable", message, _NEW_PLACEMENT)
    for index, toleration in enumerate(old.tolerations):
        if toleration not in new.tolerations:
            taint = toleration.key or "every taint"
            message = f"tolerations may only be added: the one for {taint} (number {index + 1}) is missing"
            yield FieldError(
                "spec.policy.tolerations", "immutable", message, f"put it back; or {_NEW_PLACEMENT}"
            )


def _strategy_errors(
    before: ClusterResourcePlacement, after: ClusterResourcePlacement
) -> Iterator[FieldError]:
    old, new = before.spec.strategy.type, after.spec.strategy.type
    if old is StrategyType.EXTERNAL and new is not StrategyType.EXTERNAL:
        message = "a staged placement cannot go back to rolling updates"
        is_ocm = isinstance(after, OcmPlacement)
        path = f"{annotation_path(STRATEGY_ANNOTATION)}.type" if is_ocm else "spec.strategy.type"
        yield FieldError(path, "immutable", message, _NEW_PLACEMENT)


def changes_scheduling(current: Placement, manifest: ClusterResourcePlacement) -> bool:
    latest = current.policy_snapshots.filter(is_latest=True).values_list("content_hash", flat=True).first()
    number = manifest.spec.policy.number_of_clusters
    return latest != content_hash(manifest) or number != current.number_of_clusters


def check_not_unscheduling_all(current: Placement, manifest: ClusterResourcePlacement) -> None:
    """Raise UnschedulesEverything when saving a manifest over a placement would unschedule everything."""
    if changes_scheduling(current, manifest) and current.bindings.exists():
        cycle = draft_cycle(manifest, saved=current, fleet=load_fleet())
        check_decision_keeps_clusters(current.name, schedule(cycle))


def check_decision_keeps_clusters(name: str, decision: Decision) -> None:
    """Raise UnschedulesEverything when a decision removes a placement from every cluster that it is on."""
    before = tuple(sorted(one.cluster for one in decision.cycle.live_bindings if one.is_active))
    if before and not decision.is_failed and not any(one.is_active for one in decision.bindings_after):
        raise UnschedulesEverything([UnscheduledPlacement(name, before)])
