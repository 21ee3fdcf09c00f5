"""Saving and deleting placements (`rules/lifecycle.md#immutable-fields`).

A Placement of Open Cluster Management is rescheduled each time, so its number and tolerations may
be removed (`docs/adr/0009`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from clusters.drivers.registry import ACTING_DRIVERS
from clusters.models import MemberCluster
from clusters.queries import load_fleet
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    ManifestWarning,
    raise_errors,
)
from fleetui.apimachinery.metadata import next_generation
from fleetui.apimachinery.model import Semantics, items_at, mapping_at
from fleetui.apimachinery.words import counted, first_names, split_full_name
from fleetui.audit import (
    actor_name,
    record_event,
)
from fleetui.concurrency import check_revision, retry_on_conflict
from fleetui.errors import CONFIRMATION_NEEDED, FleetError
from fleetui.task_queue import enqueue
from placements.engine.rollout.staged_run import StageReason
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.profile import chooses_again
from placements.engine.scheduling.scheduler import schedule
from placements.explain.diff import cause_words
from placements.manifests.binding import BindingState
from placements.manifests.ocm import STRATEGY_ANNOTATION, annotated, annotation_path
from placements.manifests.placement import (
    APPLY_STRATEGY,
    ClusterResourcePlacement,
    OcmPlacement,
    StatusReportingScope,
    external_document,
    is_ocm_placement,
    parse_placement,
    placement_warnings,
    selectors_of_document,
)
from placements.manifests.policy import PlacementType, Toleration
from placements.manifests.strategy import ApplyStrategy, StrategyType
from placements.models import LONGEST_NAME, Placement, PolicySnapshot, StagedRun
from placements.services.assertions import (
    check_assertions_before_save,
    written_assertions,
)
from placements.services.pruning import prune_policy_snapshots
from placements.services.resources.queries import selection_of
from placements.services.results import (
    BESIDE,
    CONFIRMATION,
    PLACEMENT,
    OperationResult,
    SaveResult,
    document_of,
    name_on_hub,
    revision_of,
    stored_document,
)
from placements.services.rollouts.controller import finish_deletion
from placements.services.rollouts.staged_runs import end_runs_of, start_run
from placements.services.snapshots import content_hash, draft_cycle, placement_columns
from placements.services.teams import check_placement_change, locked_placement
from placements.services.workqueue import (
    DUE,
    LONGEST_TRIGGER,
    SCHEDULE_DUE,
    enqueue_rollout,
    enqueue_scheduling,
)

RESERVED_NAMES = ("new", "preview")
"""Names whose addresses belong to a page or to another REST path."""
_NAMES_SHOWN = 5
_NEW_PLACEMENT = "create a placement with another name, and delete this one when the new one is in place"


@dataclass(frozen=True, slots=True)
class UnscheduledPlacement:
    """A placement that a change would remove from every cluster that it is on."""

    placement: str
    clusters: tuple[str, ...]

    def __str__(self) -> str:
        names = first_names(self.clusters, _NAMES_SHOWN)
        all_clusters = "its only cluster"
        if len(self.clusters) > 1:
            all_clusters = f"all {counted(len(self.clusters), 'cluster')}"
        return f"{self.placement} would leave {all_clusters}: {names}"


class UnschedulesEverything(FleetError):
    """A change would unschedule everything and was not confirmed; nothing has changed."""

    problem_type = CONFIRMATION_NEEDED

    def __init__(self, emptied: Iterable[UnscheduledPlacement]) -> None:
        self.emptied = tuple(emptied)
        placements = "; ".join(map(str, self.emptied))
        super().__init__(
            f"This would unschedule everything: {placements}. Nothing has changed; confirm it first."
        )

    def problem_facts(self) -> dict[str, Any]:
        emptied = [
            {"placement": placement.placement, "clusters": list(placement.clusters)}
            for placement in self.emptied
        ]
        return {"confirm": CONFIRMATION, "placements": emptied}


@retry_on_conflict
def save_placement(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
    trigger: str = "",
    is_demo: bool = False,
    confirmed: bool = False,
    manifest: ClusterResourcePlacement | None = None,
    address: str = "",
) -> SaveResult[Placement]:
    """Create a placement or change it, by its whole manifest; the same manifest again changes nothing.

    `expected` is the revision that the edit started from, 0 for a placement that must be new; `trigger` is
    the trigger of the scheduling cycle that follows. `confirmed`: it may leave all of its clusters.
    `manifest` is the document, where it is parsed already; `address` is the full name that it must have.
    Raise InvalidManifest, RevisionConflict and UnschedulesEverything; then nothing has changed.
    """
    manifest = manifest or parse_placement(dict(document))
    name = name_on_hub(manifest)
    _check_name(manifest, name, address)
    content = stored_document(document)
    warnings = warnings_of(manifest)

    current = Placement.objects.select_for_update().filter(full_name=name).first()
    check_placement_change(by, manifest, before=document_of(current), after=content)
    check_revision(PLACEMENT, name, expected=expected, revision=revision_of(current))
    if current is None:
        cause = trigger or "created"
        created, broken = _create(
            name, manifest, content, cause, is_demo=is_demo, by=by, now=now
        )
        return SaveResult(created, OperationResult.CREATED, (*warnings, *broken))

    raise_errors(unchangeable_errors(current, manifest, content))
    if current.document == content:
        return SaveResult(current, OperationResult.UNCHANGED, warnings)
    columns = _columns_of(manifest)
    warnings += staging_warnings(current, manifest)
    if columns["has_assertions"]:
        warnings += check_assertions_before_save(manifest, saved=current, now=now)
    if not confirmed:
        check_not_unscheduling_all(current, manifest)
    cause = trigger or cause_words(current.document, content)
    _update(current, manifest, content, columns, cause, by=by, now=now)
    return SaveResult(current, OperationResult.CHANGED, warnings)


@transaction.atomic
def start_first_run(
    name: str,
    *,
    placement: str,
    expected: int,
    by: User | None,
    now: datetime,
    **options: Any,
) -> StagedRun:
    """Change the rollout strategy of a placement to External, and start a run with options of `start_run`.

    `expected` is the revision of the placement. Raise InvalidManifest, RevisionConflict.
    """
    document = locked_placement(placement, by=by, expected=expected).document
    save_placement(external_document(document), by=by, now=now)
    return start_run(name, placement=placement, by=by, now=now, **options)


def check_placement_to_save(
    document: Mapping[str, Any], *, by: User | None, confirmed: bool
) -> None:
    """Raise what `save_placement` would, as far as the hub is now. Nothing is locked or written."""
    manifest = parse_placement(dict(document))
    content, name = stored_document(document), name_on_hub(manifest)
    _check_name(manifest, name, name)
    current = Placement.objects.filter(full_name=name).first()
    check_placement_change(by, manifest, before=document_of(current), after=content)
    if current is None:
        return
    raise_errors(unchangeable_errors(current, manifest, content))
    if not confirmed:
        check_not_unscheduling_all(current, manifest)


def _check_name(manifest: ClusterResourcePlacement, name: str, address: str) -> None:
    if errors := reserved_name_errors(manifest) or address_errors(
        manifest, name, address
    ):
        raise InvalidManifest(errors)


def warnings_of(manifest: ClusterResourcePlacement) -> tuple[ManifestWarning, ...]:
    return (*manifest_warnings(manifest), *selection_of(manifest).warnings)


def manifest_warnings(
    manifest: ClusterResourcePlacement,
) -> tuple[ManifestWarning, ...]:
    """Return the warnings of a manifest; of the apply strategy only while a cluster does not act on it."""
    warnings = placement_warnings(manifest)
    if manifest.spec.strategy.apply_strategy == ApplyStrategy():
        return warnings
    drivers = set(MemberCluster.objects.values_list("driver", flat=True).distinct())
    if not drivers or not drivers.issubset(ACTING_DRIVERS):
        return warnings
    return tuple(
        warning for warning in warnings if not warning.path.endswith(APPLY_STRATEGY)
    )


def staging_warnings(
    before: Placement | None, manifest: ClusterResourcePlacement
) -> tuple[ManifestWarning, ...]:
    """Return the warning of a change from rolling updates to staged update runs."""
    is_external = manifest.spec.strategy.type is StrategyType.EXTERNAL
    if before is None or not is_external or before.is_staged:
        return ()
    message = (
        "External cannot be changed to RollingUpdate: "
        "from now on only staged update runs roll out changes."
    )
    warning = ManifestWarning("becomes-external", "spec.strategy.type", message)
    return (manifest.in_document(warning),)


def _columns_of(manifest: ClusterResourcePlacement) -> dict[str, Any]:
    return {
        **placement_columns(manifest),
        "has_assertions": bool(written_assertions(manifest)),
    }


def _create(
    name: str,
    manifest: ClusterResourcePlacement,
    content: dict[str, Any],
    trigger: str,
    *,
    is_demo: bool,
    by: User | None,
    now: datetime,
) -> tuple[Placement, tuple[ManifestWarning, ...]]:
    """Create a placement that is due; return it with the warnings of its assertions."""
    columns = _columns_of(manifest)
    warnings: tuple[ManifestWarning, ...] = ()
    if columns["has_assertions"]:
        warnings = check_assertions_before_save(manifest, saved=None, now=now)
    created = Placement.objects.create(
        namespace=manifest.namespace,
        name=split_full_name(name)[1],
        document=content,
        created_at=now,
        updated_at=now,
        is_demo=is_demo,
        scheduled="Unknown",
        scheduled_since=now,
        **DUE,
        trigger=trigger[:LONGEST_TRIGGER],
        triggered_by=actor_name(by),
        **columns,
    )
    _take_policy_snapshot(created, manifest, number=0, by=by, now=now)
    record_event(
        "created",
        PLACEMENT,
        created.full_name,
        revision=1,
        after=content,
        by=by,
        now=now,
    )
    enqueue(SCHEDULE_DUE)
    return created, warnings


def _update(
    placement: Placement,
    manifest: ClusterResourcePlacement,
    content: dict[str, Any],
    columns: dict[str, Any],
    trigger: str,
    *,
    by: User | None,
    now: datetime,
) -> None:
    before = placement.document
    has_same_cycle = not changes_scheduling(placement, manifest)
    if has_same_cycle:
        del columns["reschedules_on_fleet_change"]  # that of the decision, which stays
    # Selectors that became invalid: without them nothing is decided.
    if not has_same_cycle or (
        selectors_of_document(before) != selectors_of_document(content)
    ):
        columns |= scheduled_columns(placement, "Unknown", now=now)
    placement.document, placement.updated_at = content, now
    placement.revision += 1
    latest = PolicySnapshot.objects.get(placement=placement, is_latest=True)
    has_new_policy = latest.content_hash != content_hash(manifest)
    generation = next_generation(placement.spec_generation, before, content)
    if has_new_policy and generation == placement.spec_generation:
        columns["hub_changes"] = placement.hub_changes + 1
    columns["spec_generation"] = generation
    for name, value in columns.items():
        setattr(placement, name, value)
    if (
        manifest.spec.strategy.type is StrategyType.EXTERNAL
    ):  # its runs are stopped, not the placement
        placement.is_stopped = False
    placement.save(
        update_fields=["document", "updated_at", "revision", "is_stopped", *columns]
    )

    if has_new_policy:
        PolicySnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
        _take_policy_snapshot(
            placement, manifest, number=latest.number + 1, by=by, now=now
        )
        prune_policy_snapshots(placement)
    record_event(
        "changed",
        PLACEMENT,
        placement.full_name,
        placement.revision,
        before=before,
        after=content,
        by=by,
        now=now,
    )
    enqueue_scheduling(
        [placement.pk],
        trigger=trigger,
        by=actor_name(by),
        resources=True,
        rollouts=True,
    )


def _take_policy_snapshot(
    placement: Placement,
    manifest: ClusterResourcePlacement,
    *,
    number: int,
    by: User | None,
    now: datetime,
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


def delete_placement(
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> bool:
    """Delete a placement; return whether its row was deleted already.

    One that was rolled out stays until its resources are removed from the clusters
    (`rules/lifecycle.md#deletion`). Raises UnknownPlacementError, RevisionConflict.
    """
    with transaction.atomic():
        current = locked_placement(name, by=by, expected=expected, removes=True)
        if current.deleting_since is None:
            current.deleting_since, current.revision = now, current.revision + 1
            current.trigger = "deleted"
            current.triggered_by = actor_name(by)
            current.deletion_number = current.bindings.exclude(
                state=BindingState.UNSCHEDULED
            ).count()
            current.save(
                update_fields=[
                    "deleting_since",
                    "deletion_number",
                    "revision",
                    "trigger",
                    "triggered_by",
                ]
            )
            record_event(
                "deleted",
                PLACEMENT,
                name,
                current.revision,
                before=current.document,
                by=by,
                now=now,
            )
            end_runs_of(current, StageReason("being-deleted"), by=by, now=now)
        enqueue_rollout([current.pk])
        return finish_deletion(current, now=now)


def scheduled_columns(
    placement: Placement, status: str, *, now: datetime
) -> dict[str, Any]:
    """Return the columns of the condition `Scheduled`; its time changes only with its value."""
    if placement.scheduled == status:
        return {}
    return {"scheduled": status, "scheduled_since": now}


def reschedules_when_fulfilled(placement: Placement) -> bool:
    """Return whether a fulfilled placement may still get clusters: PickAll, and rules without stickiness."""
    is_pick_all = placement.placement_type == PlacementType.PICK_ALL
    return is_pick_all or chooses_again(Semantics(placement.semantics))


def reserved_name_errors(manifest: ClusterResourcePlacement) -> list[FieldError]:
    """Return the error of a name whose address belongs to a page or to another REST path."""
    name = manifest.full_name
    if name not in RESERVED_NAMES:
        return []
    message = f"{name} is a reserved name (reserved: {', '.join(RESERVED_NAMES)})"
    return [FieldError("metadata.name", "reserved-name", message, "another name")]


def address_errors(
    manifest: ClusterResourcePlacement, name: str, address: str
) -> list[FieldError]:
    """Return what is wrong with the full name of a placement, which is saved under an address."""
    own = split_full_name(name)[1]
    if len(own) > LONGEST_NAME:
        message = f"is too long beside a placement of the same name: the full name would end in {own[-8:]}"
        return [
            FieldError(
                "metadata.name",
                "too-long",
                message,
                f"{LONGEST_NAME - len(BESIDE)} characters",
            )
        ]
    if address in ("", name):
        return []
    message = f"this {manifest.kind} has the full name {name}, and the address that of {address}"
    return [FieldError("kind", "conflict", message, f"the address of {name}")]


def has_policy(document: Mapping[str, Any]) -> bool:
    """Return whether a manifest has a policy; a Placement of OCM always does."""
    return is_ocm_placement(document) or document["spec"].get("policy") is not None


def unchangeable_errors(
    current: Placement, manifest: ClusterResourcePlacement, content: Mapping[str, Any]
) -> list[FieldError]:
    """Return why a saved placement cannot become this one: it is being deleted, or what is immutable."""
    if current.deleting_since is None:
        return immutable_field_errors(current, manifest, content)
    return [
        FieldError(
            "metadata.name",
            "being-deleted",
            f"the placement {current.full_name} is being deleted",
            "another name, or try again later",
        )
    ]


def immutable_field_errors(
    before: Placement, after: ClusterResourcePlacement, document: Mapping[str, Any]
) -> list[FieldError]:
    """Return an error for every forbidden change of a saved placement; `document` is the new one as written.

    The saved manifest was parsed when it was saved, so its document is compared as it is.
    """
    saved = before.document
    if saved["kind"] != after.kind:
        name, kind = before.full_name, saved["kind"]
        message = f"{name} is a {kind} already and cannot become a {after.kind}"
        allowed = f"{kind}, or another name than {name}"
        if is_ocm_placement(saved):
            allowed += (
                f"; or delete the Placement and apply both: it is {name}{BESIDE} then"
            )
        return [FieldError("kind", "immutable", message, allowed)]
    if isinstance(after, OcmPlacement):
        path = f"{annotation_path(STRATEGY_ANNOTATION)}.type"
        strategy = annotated(saved, STRATEGY_ANNOTATION)
        return _strategy_errors(path, strategy, after)

    strategy = saved["spec"].get("strategy")
    errors = [
        *_policy_errors(before, after),
        *_strategy_errors("spec.strategy.type", strategy, after),
    ]
    if has_policy(saved) and not has_policy(document):
        message = "cannot be removed once it was set"
        allowed = "to select every cluster: placementType: PickAll"
        errors.append(FieldError("spec.policy", "immutable", message, allowed))
    scope = (
        saved["spec"].get("statusReportingScope")
        or StatusReportingScope.CLUSTER_SCOPE_ONLY
    )
    if (
        scope != after.spec.status_reporting_scope and not before.namespace
    ):  # where it has no effect
        message = f"cannot change from {scope}"
        errors.append(
            FieldError(
                "spec.statusReportingScope", "immutable", message, _NEW_PLACEMENT
            )
        )
    return errors


def _strategy_errors(
    path: str, before: object, after: ClusterResourcePlacement
) -> list[FieldError]:
    was_staged = mapping_at(before).get("type") == StrategyType.EXTERNAL
    if not was_staged or after.spec.strategy.type is StrategyType.EXTERNAL:
        return []
    message = "a staged placement cannot go back to rolling updates"
    return [FieldError(path, "immutable", message, _NEW_PLACEMENT)]


def _policy_errors(
    before: Placement, after: ClusterResourcePlacement
) -> Iterator[FieldError]:
    policy = after.spec.policy
    if before.placement_type != policy.placement_type:
        message = (
            f"cannot change from {before.placement_type} to {policy.placement_type}: "
            "what is placed was chosen in another way"
        )
        yield FieldError(
            "spec.policy.placementType", "immutable", message, _NEW_PLACEMENT
        )
    saved = mapping_at(before.document, "spec", "policy")
    for index, raw in enumerate(items_at(saved, "tolerations")):
        toleration = Toleration.model_validate(
            raw, context={"semantics": after.semantics}
        )
        if toleration not in policy.tolerations:
            taint = toleration.key or "every taint"
            message = f"tolerations may only be added: the one for {taint} (number {index + 1}) is missing"
            yield FieldError(
                "spec.policy.tolerations",
                "immutable",
                message,
                f"put it back; or {_NEW_PLACEMENT}",
            )


def changes_scheduling(current: Placement, manifest: ClusterResourcePlacement) -> bool:
    latest = (
        current.policy_snapshots.filter(is_latest=True)
        .values_list("content_hash", flat=True)
        .first()
    )
    number = manifest.spec.policy.number_of_clusters
    return latest != content_hash(manifest) or number != current.number_of_clusters


def check_not_unscheduling_all(
    current: Placement, manifest: ClusterResourcePlacement
) -> None:
    """Raise UnschedulesEverything when saving a manifest over a placement would unschedule everything."""
    if changes_scheduling(current, manifest) and current.bindings.exists():
        cycle = draft_cycle(manifest, saved=current, fleet=load_fleet())
        check_decision_keeps_clusters(current.full_name, schedule(cycle))


def check_decision_keeps_clusters(name: str, decision: Decision) -> None:
    """Raise UnschedulesEverything when a decision removes a placement from every cluster that it is on."""
    before = tuple(sorted(decision.cycle.placed_before))
    if before and not decision.is_failed and not decision.placed_after:
        raise UnschedulesEverything([UnscheduledPlacement(name, before)])
