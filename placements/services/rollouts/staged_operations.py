"""Actions of users on staged runs: run, stop, approve, skip a wait, retry, abandon.

See `rules/lifecycle.md#actions`.
"""

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction

from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.apimachinery.words import full_name
from fleetui.audit import AuditEvent, record
from fleetui.concurrency import check_revision
from fleetui.errors import UnknownObject
from fleetui.permissions import check_change
from placements.engine.rollout.staged_run import RunStatus, StagedRunOutcome, WaitReason
from placements.manifests.staged_update import (
    approval_change_errors,
    parse_approval_request,
)
from placements.models import ApprovalRequest, StagedRun
from placements.services.results import OperationResult
from placements.services.rollouts.approvals import why_not_approve
from placements.services.rollouts.operations import ActionNotAllowed, check_possible
from placements.services.rollouts.staged_runs import (
    STAGED_RUN,
    end_run,
    locked_run,
    plan_of,
    save_run,
    show_progress,
)
from placements.services.teams import check_placement_as_is, labels_of_run
from placements.services.workqueue import enqueue_rollout

APPROVAL = "approval-request"
LONGEST_COMMENT = 500
"""Characters of the comment of an approval; the column is as long."""


class UnknownRunError(UnknownObject):
    problem_type = "unknown-run"

    def __init__(self, name: str) -> None:
        super().__init__(f"no staged run is named {name!r}")


@transaction.atomic
def set_state(
    name: str,
    state: str,
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
) -> StagedRun:
    """Start, stop or resume a run. Raise UnknownRunError, InvalidManifest, RevisionConflict."""
    run = _locked(
        name, expected, by=by, removes=True
    )  # to start it again is checked where it is saved
    document: dict[str, Any] = deepcopy(run.document)
    document["spec"]["state"] = state
    return save_run(document, by=by, now=now).object


@transaction.atomic
def approve(
    name: str, stage: str, *, by: User | None, now: datetime, comment: str = ""
) -> ApprovalRequest:
    """Approve a stage with a pending request; again does nothing.

    Raise UnknownRunError, PermissionDenied, ActionNotAllowed when the stage has no pending request,
    InvalidManifest for a comment that is too long.
    """
    if len(comment) > LONGEST_COMMENT:
        message = f"The comment has {len(comment):,} characters; at most {LONGEST_COMMENT} are allowed"
        raise InvalidManifest(
            [
                FieldError(
                    "comment",
                    "too-long",
                    message,
                    f"at most {LONGEST_COMMENT} characters",
                )
            ]
        )
    run = _locked(
        name, by=None, removes=True
    )  # whether the user may approve is checked below
    why_not = why_not_approve(run, by)
    if by is None or why_not:
        raise PermissionDenied(why_not)
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
        facts = {"request": str(request)} | ({"comment": comment} if comment else {})
        _save(run, "approved", facts, by=by, now=now)
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
    request = next((one for one in requests if str(one) == name), None)
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
def skip_wait(name: str, stage: str, *, by: User | None, now: datetime) -> StagedRun:
    """End the timed wait of a stage. Raise UnknownRunError, ActionNotAllowed when it does not wait."""
    run = _locked(name, by=by)
    check_possible(why_not_skip_wait(run, stage))
    since = plan_of(run).current.updated_at
    _remove_wait(run, WaitReason.TIME, stage)
    run.skipped_waits = {**run.skipped_waits, stage: since.isoformat() if since else ""}
    _save(run, "wait skipped", {"stage": stage}, by=by, now=now)
    return run


@transaction.atomic
def retry(name: str, cluster: str, *, by: User | None, now: datetime) -> StagedRun:
    """Retry a failed cluster immediately. Raise UnknownRunError, ActionNotAllowed where nothing failed."""
    run = _locked(name, by=by)
    check_possible(why_not_retry(run, cluster))
    run.retries = {**run.retries, cluster: _failures_on(run, cluster)[-1]}
    _save(run, "retried", {"cluster": cluster}, by=by, now=now)
    return run


@transaction.atomic
def abandon(name: str, *, by: User | None, now: datetime) -> StagedRun:
    """Abort a run; running updates on clusters finish. Raise ActionNotAllowed if it has ended."""
    run = _locked(name, by=by, removes=True)
    check_possible(why_not_abandon(run))
    end_run(run, StagedRunOutcome.ABANDONED, by=by, now=now)
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


def why_not_retry(run: StagedRun, cluster: str) -> str:
    if run.ended_at is None and _failures_on(run, cluster):
        return ""
    return f"nothing of {run.full_name} has failed on {cluster}; only what failed can be retried"


def _failures_on(run: StagedRun, cluster: str) -> list[int]:
    return [
        step.failures
        for step in plan_of(run).steps
        if step.name == cluster and step.failed_at
    ]


def why_not_abandon(run: StagedRun) -> str:
    return f"{run.full_name} has ended already ({run.status})" if run.ended_at else ""


def _locked(
    name: str, expected: int | None = None, *, by: User | None, removes: bool = False
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
    left = [one for one in waits if (one["reason"], one["stage"]) != (reason, stage)]
    if left != waits:
        show_progress(
            run, RunStatus(run.status) if left else RunStatus.PROGRESSING, left
        )


def _save(
    run: StagedRun,
    verb: str,
    after: Mapping[str, Any] | None,
    *,
    by: User | None,
    now: datetime,
) -> None:
    run.revision, run.progress_version = run.revision + 1, run.progress_version + 1
    run.save()
    record(
        AuditEvent(verb, STAGED_RUN, run.full_name, revision=run.revision, after=after),
        by=by,
        now=now,
    )
    if run.placement_id:
        enqueue_rollout([run.placement_id])
