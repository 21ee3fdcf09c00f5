"""Actions of users on rollouts: pause, stop, approve, retry, roll back, and so on.

See `rules/lifecycle.md#actions`.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet

from clusters.models import MemberCluster
from clusters.operations.edit import set_faults
from fleetui.apimachinery.errors import (
    FieldError,
    InvalidManifest,
    raise_errors,
)
from fleetui.apimachinery.model import omit_empty
from fleetui.apimachinery.words import full_name, names_and_more
from fleetui.audit import (
    actor_name,
    record_event,
)
from fleetui.bulk import filter_by
from fleetui.concurrency import check_revision
from fleetui.errors import FleetError
from fleetui.permissions import check_change
from fleetui.task_queue import enqueue
from placements.engine.rollout.rolling_update import plan_work
from placements.engine.rollout.staged_run import RunStatus, StagedRunOutcome, WaitReason
from placements.engine.rollout.state import NO_FAILURE, Phase
from placements.manifests.binding import BindingState
from placements.manifests.staged_update import (
    approval_change_errors,
    parse_approval_request,
)
from placements.models import (
    ApprovalRequest,
    Binding,
    Placement,
    ResourceSnapshot,
    ResourceSnapshotPart,
    Rollout,
    StagedRun,
)
from placements.services.pruning import prune_resource_snapshots
from placements.services.resources.queries import selection_for
from placements.services.results import PLACEMENT, OperationResult
from placements.services.rollout_state import load_rollout_context
from placements.services.rollouts.cluster_objects import REAPPLIED
from placements.services.rollouts.controller import end_run, running_rollout
from placements.services.rollouts.queries import UnknownRunError, why_not_approve
from placements.services.rollouts.removals import keep_leftovers
from placements.services.rollouts.staged_runs import (
    STAGED_RUN,
    end_staged_run,
    locked_run,
    plan_of,
    save_run,
    show_progress,
)
from placements.services.teams import (
    check_placement_as_is,
    check_rollback,
    labels_of_run,
    locked_placement,
)
from placements.services.workqueue import RUN_CLUSTER_CALLS, enqueue_rollout

_STARTED = "started again"
"""The verb of the event, as stored."""
_MOST_NAMES = 20
_MOST_REASONS = 5


class ActionNotAllowed(FleetError):
    """The action is not possible now; the message has the reason, and what is possible."""


def check_possible(why_not: str) -> None:
    """Raise ActionNotAllowed with a reason; an empty one refuses nothing."""
    if why_not:
        raise ActionNotAllowed(why_not)


def check_all_possible(reasons: Sequence[str]) -> None:
    """Raise ActionNotAllowed with the reasons against some of many subjects; empty ones refuse nothing."""
    refusals = [reason for reason in reasons if reason]
    words = "; ".join(refusals[:_MOST_REASONS])
    if len(refusals) > _MOST_REASONS:
        words += f"; and {len(refusals) - _MOST_REASONS:,} more"
    check_possible(words)


@transaction.atomic
def pause(
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> Placement:
    """Start nothing more on a placement; running updates finish. Again it does nothing."""
    placement = locked_placement(name, by=by, expected=expected, removes=True)
    if placement.paused_since is None:
        placement.paused_since, placement.paused_by = now, actor_name(by)
        _save(placement, "paused", ["paused_since", "paused_by"], by=by, now=now)
    return placement


@transaction.atomic
def resume(
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> Placement:
    """Continue after a pause. Again it does nothing."""
    placement = locked_placement(name, by=by, expected=expected)
    if placement.paused_since is not None:
        placement.paused_since, placement.paused_by = None, ""
        _save(placement, "resumed", ["paused_since", "paused_by"], by=by, now=now)
    return placement


@transaction.atomic
def stop(
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> Placement:
    """End the rollout; the placement starts nothing until a user starts a new rollout.

    Raise ActionNotAllowed when no rollout is in progress.
    """
    placement = locked_placement(name, by=by, expected=expected, removes=True)
    run = running_rollout(placement)
    check_possible(why_not_stop(placement, run))
    if run is not None:
        end_run(run, Rollout.State.STOPPED, f"stopped by {actor_name(by)}", now=now)
    placement.is_stopped = True
    _save(placement, "stopped", ["is_stopped"], by=by, now=now)
    return placement


@transaction.atomic
def restart(
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> Placement:
    """Start a new rollout of a stopped placement. Raise ActionNotAllowed when it is not stopped."""
    placement = locked_placement(name, by=by, expected=expected)
    check_possible(why_not_start(placement))
    placement.is_stopped = False
    trigger = _set_trigger(placement, _STARTED, by=by)
    _save(placement, _STARTED, ["is_stopped", *trigger], by=by, now=now)
    return placement


@transaction.atomic
def retry(
    name: str,
    cluster: str = "",
    *,
    by: User | None,
    now: datetime,
) -> list[str]:
    """Retry what failed on one cluster or on all. Raise ActionNotAllowed where nothing failed."""
    placement = locked_placement(name, by=by)
    check_possible(why_not_retry(placement, cluster))
    failed = _failed_bindings(placement, cluster)
    names = list(failed.order_by("cluster_name").values_list("cluster_name", flat=True))
    failed.update(retry_at=None)
    after: dict[str, Any] = {"cluster": cluster} if cluster else {"clusters": names}
    record_event("retried", PLACEMENT, name, after=after, by=by, now=now)
    enqueue_rollout([placement.pk])
    return names


@transaction.atomic
def reapply(
    name: str,
    clusters: Sequence[str],
    *,
    by: User | None,
    now: datetime,
) -> list[str]:
    """Apply the same version again on these clusters, now and without a budget. Return their names.

    Raise InvalidManifest for clusters on which nothing is applied, ActionNotAllowed during a deletion.
    """
    placement = locked_placement(name, by=by)
    check_possible(why_not_reapply(placement))
    rows = _applied_bindings(placement).select_for_update().order_by("cluster_name")
    known = dict(rows.values_list("cluster_name", "pk"))
    allowed = names_and_more(known, _MOST_NAMES) or "none: nothing is applied yet"
    errors = [
        FieldError(
            f"clusters[{at}]",
            "unknown-name",
            _not_applied_words(placement, cluster),
            allowed,
        )
        for at, cluster in enumerate(clusters)
        if cluster not in known
    ]
    if not clusters:
        errors.append(FieldError("clusters", "required", "is empty", allowed))
    raise_errors(errors)
    names = sorted(set(clusters))
    # What is being applied already is not started twice; its next attempt comes at once.
    Binding.objects.filter(pk__in=[known[one] for one in names]).update(
        phase=Phase.APPLYING,
        phase_changed_at=now,
        next_call_at=now,
        retry_at=None,
        untrackable_since=None,
        objects_done=None,
        unavailable_code="",
        message=f"Applied again by {actor_name(by)}",
        **NO_FAILURE.columns(),
    )
    record_event(
        "applied again", PLACEMENT, name, after={"clusters": names}, by=by, now=now
    )
    enqueue_rollout([placement.pk])
    enqueue(RUN_CLUSTER_CALLS)
    return names


def reapply_on(
    name: str,
    cluster: str,
    *,
    by: User | None,
    now: datetime,
) -> list[str]:
    return reapply(name, [cluster], by=by, now=now)


@transaction.atomic
def roll_back(
    name: str,
    number: int | None,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
    target: str = "",
) -> ResourceSnapshot:
    """Roll out the resources of an older snapshot, and pin the placement to them.

    See `rules/lifecycle.md#history`.

    A new snapshot with the old content is made; changes on the hub wait until the placement is unpinned.
    Raise ActionNotAllowed when there is no such snapshot, as without a number, or it is the one rolled out.
    """
    placement = locked_placement(name, by=by, expected=expected)
    check_possible(why_not_roll_back(placement))
    rows = ResourceSnapshot.objects.filter(placement=placement)
    latest, older = rows.get(is_latest=True), rows.filter(is_latest=False)
    old = older.filter(number=number).first() if number is not None else None
    if old is None:
        kept = older.order_by("number").values_list("number", flat=True)
        numbers = ", ".join(map(str, kept)) or "none"
        wanted = "an unknown one" if number is None else number
        raise ActionNotAllowed(
            f"{name} cannot roll back to resource snapshot {wanted}; older ones: {numbers}"
        )
    check_rollback(by, old, selected=lambda: selection_for(placement).objects)
    ResourceSnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
    restored = ResourceSnapshot.objects.create(
        placement=placement,
        number=latest.number + 1,
        revision_number=placement.revision_with(latest.number + 1),
        content_hash=old.content_hash,
        objects_count=old.objects_count,
        identities=old.identities,
        wrapped_identities=old.wrapped_identities,
        created_at=now,
        created_by=actor_name(by),
    )
    ResourceSnapshotPart.objects.bulk_create(
        ResourceSnapshotPart(
            snapshot=restored, position=part.position, manifests=part.manifests
        )
        for part in old.parts.all()
    )
    placement.pinned_snapshot, placement.is_stopped = restored.number, False
    if not target:
        revision = old.revision_number
        target = (
            f"resource snapshot {number}"
            if revision is None
            else f"revision {revision}"
        )
    cause = f"rolled back to {target}"
    fields = ["pinned_snapshot", "is_stopped", *_set_trigger(placement, cause, by=by)]
    _save(placement, "rolled back", fields, by=by, now=now, after={"to": target})
    prune_resource_snapshots(placement)
    return restored


@transaction.atomic
def unpin(
    name: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> Placement:
    """Unpin a placement after a rollback. Raise ActionNotAllowed if it is not pinned."""
    placement = locked_placement(name, by=by, expected=expected)
    check_possible(why_not_unpin(placement))
    placement.pinned_snapshot = None
    placement.selection_generation += 1
    placement.generation += 1
    fields = [
        "pinned_snapshot",
        "selection_generation",
        "generation",
        *_set_trigger(placement, "released", by=by),
    ]
    _save(placement, "released", fields, by=by, now=now)
    return placement


@transaction.atomic
def abandon_cluster(
    placement: str,
    cluster: str,
    *,
    by: User | None,
    now: datetime,
) -> None:
    """End a deletion without a cluster that has been unreachable for 15 minutes.

    See `rules/lifecycle.md#deletion`.

    Its resources may remain there; an event records it. Raise UnknownPlacementError, ActionNotAllowed.
    """
    row = locked_placement(placement, by=by, removes=True)
    if row.deleting_since is None:
        raise ActionNotAllowed(
            f"{placement} is not being deleted; evict it from {cluster} instead"
        )
    work = plan_work(load_rollout_context(row, now=now, plans=True).state)
    allowed_from = {
        blocked_cluster.cluster: blocked_cluster.abandonable_from
        for blocked_cluster in work.blocked
    }.get(cluster)
    if allowed_from is None:
        raise ActionNotAllowed(
            f"{cluster} can be reached or holds nothing of {placement}; it cannot be force-removed"
        )
    if now < allowed_from:
        moment = allowed_from.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        raise ActionNotAllowed(
            f"{cluster} may come back; it can be force-removed from {moment} on"
        )
    Binding.objects.filter(placement=row, cluster_name=cluster).delete()
    keep_leftovers(placement, [cluster], now=now)
    after = {"cluster": cluster, "mayStillHold": [cluster]}
    record_event("force-removed", PLACEMENT, placement, after=after, by=by, now=now)
    enqueue_rollout([row.pk])


def why_not_stop(placement: Placement, run: Rollout | None = None) -> str:
    """Return why a rollout cannot be stopped; `run` is the one in progress, if it is known."""
    refusal = _why_not_rolling(placement)
    if refusal or run or running_rollout(placement):
        return refusal
    return f"{placement.full_name} has no rollout in progress; nothing to stop"


def why_not_start(placement: Placement) -> str:
    started = f"{placement.full_name} is not stopped; a rollout starts automatically when one is needed"
    return _why_not_rolling(placement) or ("" if placement.is_stopped else started)


def why_not_retry(placement: Placement, cluster: str = "") -> str:
    refusal = _why_not_rolling(placement)
    if refusal or _failed_bindings(placement, cluster).exists():
        return refusal
    return _nothing_failed_words(placement.full_name, cluster)


def _nothing_failed_words(name: str, cluster: str) -> str:
    where = f" on {cluster}" if cluster else ""
    return f"nothing of {name} has failed{where}; only what failed can be retried"


def _failed_bindings(placement: Placement, cluster: str) -> QuerySet[Binding]:
    return filter_by(
        Binding.objects.all(),
        placement=placement,
        phase__in=(Phase.FAILED, Phase.REMOVE_FAILED),
        cluster_name=cluster,
    )


def why_not_reapply(placement: Placement, cluster: str = "") -> str:
    if placement.deleting_since is not None:
        return f"{placement.full_name} is being deleted; its resources are not applied again"
    if (
        cluster
        and not _applied_bindings(placement).filter(cluster_name=cluster).exists()
    ):
        return _not_applied_words(placement, cluster)
    return ""


def _applied_bindings(placement: Placement) -> QuerySet[Binding]:
    rows = Binding.objects.filter(placement=placement, phase__in=REAPPLIED)
    return rows.exclude(state=BindingState.UNSCHEDULED)


def _not_applied_words(placement: Placement, cluster: str) -> str:
    return f"{placement.full_name} is not applied on {cluster[:253]!r}"


def why_not_roll_back(placement: Placement) -> str:
    name = placement.full_name
    if refusal := _why_not_rolling(placement):
        return refusal
    if placement.deleting_since is not None:
        return f"{name} is being deleted; nothing to roll back to"
    kept = getattr(placement, "kept_snapshots", None)  # by `with_revision`
    if kept is None:
        kept = placement.resource_snapshots.count()
    if not kept:
        return f"{name} has no resource snapshot yet; nothing to roll back to"
    has_earlier = kept > 1 or placement.spec_generation > 1
    return "" if has_earlier else f"{name} has no earlier revision to roll back to"


def why_not_unpin(placement: Placement) -> str:
    is_pinned = placement.pinned_snapshot is not None
    return (
        "" if is_pinned else f"{placement.full_name} is not pinned: it follows the hub"
    )


def _why_not_rolling(placement: Placement) -> str:
    """Return why a placement has no rolling updates: a staged one has runs with other actions."""
    if not placement.is_staged or placement.deleting_since is not None:
        return ""
    return (
        f"{placement.full_name} is updated by staged runs: pause, resume or retry its run, or start one with"
        " an older resourceSnapshotIndex"
    )


def _set_trigger(placement: Placement, trigger: str, *, by: User | None) -> list[str]:
    """Set what the next rollout is caused by; return the columns that this changes."""
    placement.trigger, placement.triggered_by = trigger, actor_name(by)
    return ["trigger", "triggered_by"]


def _save(
    placement: Placement,
    verb: str,
    fields: list[str],
    *,
    by: User | None,
    now: datetime,
    after: dict[str, Any] | None = None,
) -> None:
    placement.revision += 1
    placement.save(update_fields=["revision", *fields])
    record_event(
        verb,
        PLACEMENT,
        placement.full_name,
        revision=placement.revision,
        after=after,
        by=by,
        now=now,
    )
    enqueue_rollout([placement.pk])


APPROVAL = "approval-request"


LONGEST_COMMENT = 500
"""Characters of the comment of an approval; the column is as long."""


@transaction.atomic
def set_state(
    name: str,
    state: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> StagedRun:
    """Start, pause or resume a run. Raise UnknownRunError, InvalidManifest, RevisionConflict."""
    run = _locked_run(
        name, expected, by=by, removes=True
    )  # to start it again is checked where it is saved
    document: dict[str, Any] = deepcopy(run.document)
    document["spec"]["state"] = state
    return save_run(document, by=by, now=now).object


@transaction.atomic
def approve(
    name: str,
    stage: str,
    *,
    by: User | None,
    now: datetime,
    comment: str = "",
) -> ApprovalRequest:
    """Approve a stage with a pending request; again does nothing.

    Raise UnknownRunError, PermissionDenied, ActionNotAllowed when the stage has no pending request,
    InvalidManifest for a comment that is too long.
    """
    if len(comment) > LONGEST_COMMENT:
        raise InvalidManifest(
            [
                FieldError(
                    "comment",
                    "too-long",
                    f"The comment has {len(comment):,} characters; at most {LONGEST_COMMENT} are allowed",
                    f"at most {LONGEST_COMMENT} characters",
                )
            ]
        )
    run = _locked_run(
        name, by=None, removes=True
    )  # whether the user may approve is checked below
    why_not = why_not_approve(run, by)
    if by is None or why_not:
        raise PermissionDenied(why_not or "An approval needs a user who is recorded")
    check_possible(why_not_pending(run, stage))
    request = _request_of(run, stage)
    if request.approved_at is None:
        request.approved_at, request.approved_by, request.comment = (
            now,
            by.get_username(),
            comment,
        )
        request.save(update_fields=["approved_at", "approved_by", "comment"])
        _remove_wait(run, WaitReason(f"approval-{request.side}"), stage)
        facts = omit_empty(request=str(request), comment=comment)
        _save_run(run, "approved", facts, by=by, now=now)
    return request


@transaction.atomic
def apply_approval(
    document: Mapping[str, Any], *, by: User | None, now: datetime
) -> OperationResult:
    """Approve a stage by the status of its request's document. Raise InvalidManifest."""
    manifest = parse_approval_request(dict(document))
    run = full_name(
        manifest.namespace, manifest.spec.parent_stage_rollout
    )  # which it is beside
    name, stage = manifest.full_name, manifest.spec.target_stage
    requests = ApprovalRequest.objects.filter(
        stage=name.rpartition("-")[2]
    ).select_related("run")
    request = next(
        (
            approval_request
            for approval_request in requests
            if str(approval_request) == name
        ),
        None,
    )
    if request is None:
        message = f"stage {stage} of {run} has no request of this name"
        raise InvalidManifest(
            [FieldError("metadata.name", "not-found", message, "a pending request")]
        )
    if errors := approval_change_errors(
        parse_approval_request(request.to_manifest()), manifest
    ):
        raise InvalidManifest(errors)
    if request.approved_at or not manifest.is_approved:
        return OperationResult.UNCHANGED
    try:
        approve(run, stage, by=by, now=now)
    except (PermissionDenied, ActionNotAllowed) as error:
        raise InvalidManifest(
            [
                FieldError(
                    "status.conditions", "forbidden", str(error), "set by an approver"
                )
            ]
        ) from error
    return OperationResult.CHANGED


@transaction.atomic
def skip_wait(
    name: str,
    stage: str,
    *,
    by: User | None,
    now: datetime,
) -> StagedRun:
    """End the timed wait of a stage. Raise UnknownRunError, ActionNotAllowed when it does not wait."""
    run = _locked_run(name, by=by)
    check_possible(why_not_skip_wait(run, stage))
    since = plan_of(run).current.updated_at
    _remove_wait(run, WaitReason.TIME, stage)
    run.skipped_waits = {**run.skipped_waits, stage: since.isoformat() if since else ""}
    _save_run(run, "wait skipped", {"stage": stage}, by=by, now=now)
    return run


@transaction.atomic
def retry_run(
    name: str,
    cluster: str = "",
    *,
    by: User | None,
    now: datetime,
) -> StagedRun:
    """Retry what failed on one cluster or on all. Raise UnknownRunError, ActionNotAllowed as `retry`."""
    run = _locked_run(name, by=by)
    check_possible(why_not_retry_run(run, cluster))
    failures = _failures_of(run, cluster)
    run.retries = {**run.retries, **failures}
    after = {"cluster": cluster} if cluster else {"clusters": sorted(failures)}
    _save_run(run, "retried", after, by=by, now=now)
    return run


@transaction.atomic
def abandon(name: str, *, by: User | None, now: datetime) -> StagedRun:
    """Abort a run; running updates on clusters finish. Raise ActionNotAllowed if it has ended."""
    run = _locked_run(name, by=by, removes=True)
    check_possible(why_not_abandon(run))
    end_staged_run(run, StagedRunOutcome.ABANDONED, by=by, now=now)
    return run


def why_not_pending(run: StagedRun, stage: str) -> str:
    """Return why a stage cannot be approved; one that is approved already can, which does nothing."""
    request = _request_of(run, stage)
    if request is None or (run.ended_at and request.approved_at is None):
        return f"stage {stage} of {run.full_name} is not pending approval"
    return ""


def _request_of(run: StagedRun, stage: str) -> Any:
    requests = run.approvals.filter(stage=stage)
    return (
        requests.filter(approved_at=None).first()
        or requests.order_by("-approved_at").first()
    )


def why_not_skip_wait(run: StagedRun, stage: str) -> str:
    waits = [
        (wait["reason"], wait["stage"]) for wait in run.sync_result.get("waits", [])
    ]
    is_waiting = (WaitReason.TIME, stage) in waits and plan_of(run).current.updated_at
    return (
        ""
        if is_waiting
        else f"stage {stage} of {run.full_name} has no timed wait in progress"
    )


def why_not_retry_run(run: StagedRun, cluster: str = "") -> str:
    if run.is_running and _failures_of(run, cluster):
        return ""
    return _nothing_failed_words(run.full_name, cluster)


def _failures_of(run: StagedRun, cluster: str) -> dict[str, int]:
    """Return how often the steps have failed that wait for a retry, on one cluster or on all."""
    failed = {step.name: step for step in plan_of(run).steps if step.failed_at}
    return {
        name: step.failures for name, step in failed.items() if cluster in ("", name)
    }


def why_not_abandon(run: StagedRun) -> str:
    return f"{run.full_name} has ended already ({run.status})" if run.ended_at else ""


def _locked_run(
    name: str,
    expected: int | None = None,
    *,
    by: User | None,
    removes: bool = False,
) -> StagedRun:
    run = locked_run(name)
    if run is None:
        raise UnknownRunError(name)
    check_change(by, labels_of_run(run), what=f"staged run {name}")
    if run.placement is not None and not removes:
        check_placement_as_is(by, run.placement_name, run.placement.document)
    check_revision(STAGED_RUN, name, expected=expected, revision=run.revision)
    return run


def _remove_wait(run: StagedRun, reason: WaitReason, stage: str) -> None:
    waits = run.sync_result.get("waits", [])
    left = [
        wait for wait in waits if (wait["reason"], wait["stage"]) != (reason, stage)
    ]
    if left != waits:
        show_progress(
            run, RunStatus(run.status) if left else RunStatus.PROGRESSING, left
        )


def _save_run(
    run: StagedRun,
    verb: str,
    after: Mapping[str, Any] | None,
    *,
    by: User | None,
    now: datetime,
) -> None:
    run.revision, run.progress_version = run.revision + 1, run.progress_version + 1
    run.save()
    record_event(
        verb,
        STAGED_RUN,
        run.full_name,
        revision=run.revision,
        after=after,
        by=by,
        now=now,
    )
    if run.placement_id:
        enqueue_rollout([run.placement_id])


@transaction.atomic
def inject_faults(
    name: str,
    faults: Sequence[Mapping[str, Any]],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> MemberCluster:
    """Replace the faults of a simulated cluster. Raise what `set_faults` raises."""
    row = set_faults(name, faults, by=by, now=now, expected=expected)
    # At rest the workloads are read every two minutes; until then the fault would have no effect.
    Binding.objects.filter(
        cluster_name=name,
        phase__in=(Phase.APPLIED, Phase.AVAILABLE),
        next_call_at__gt=now,
    ).update(next_call_at=now)
    enqueue(RUN_CLUSTER_CALLS)
    return row
