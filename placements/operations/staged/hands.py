"""People's hands on staged runs: run, stop, approve, skip a wait, retry, abandon (lifecycle A.12, A.13)."""

from collections.abc import Mapping
from copy import deepcopy
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db import transaction

from fleetui.events import Happening, record
from fleetui.revisions import refuse_stale
from placements.models import ApprovalRequest, StagedRun
from placements.operations.rollouts.asking import ask_to_advance
from placements.operations.rollouts.hands import HandRefusedError
from placements.operations.staged.ending import end_run, plan_of
from placements.operations.staged.runs import STAGED_RUN, locked_run, save_run
from placements.queries.staged_approvals import why_not_approve
from placements.rollout.staged_facts import WaitFor
from placements.rollout.stages import Outcome


class UnknownRunError(LookupError):
    """No staged run has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no staged run is named {name!r}")


@transaction.atomic
def set_state(
    name: str, state: str, *, by: User | None, now: datetime, expected: int | None = None
) -> StagedRun:
    """Let a run go, or stop it: Stop pauses, Run goes on. Raises UnknownRunError, Faults, StaleEditError."""
    run = _locked(name, expected)
    document: dict[str, Any] = deepcopy(run.document)
    document["spec"]["state"] = state
    return save_run(document, by=by, now=now).run


@transaction.atomic
def approve(name: str, stage: str, *, by: User | None, now: datetime) -> ApprovalRequest:
    """Let a stage go on that waits for it; again does nothing.

    Raises UnknownRunError, PermissionDenied, HandRefusedError when the stage does not wait.
    """
    run = _locked(name)
    requests = run.approvals.filter(stage=stage)
    request = requests.filter(approved_at=None).first() or requests.order_by("-approved_at").first()
    why_not = why_not_approve(run, by)
    if why_not:
        raise PermissionDenied(why_not)
    if request is None or by is None or (run.ended_at and request.approved_at is None):
        raise HandRefusedError(f"stage {stage} of {name} does not wait for an approval")
    if request.approved_at is None:
        request.approved_at, request.approved_by = now, by.get_username()
        request.save(update_fields=["approved_at", "approved_by"])
        _saved(run, "approved", {"request": str(request)}, by=by, now=now)
    return request


@transaction.atomic
def skip_wait(name: str, stage: str, *, by: User | None, now: datetime) -> StagedRun:
    """End the timed wait of a stage. Raises UnknownRunError, HandRefusedError when it does not wait."""
    run = _locked(name)
    if not _waits(run, WaitFor.TIME, stage):
        raise HandRefusedError(f"stage {stage} of {name} has no timed wait under way; nothing can be skipped")
    run.skipped_waits = {**run.skipped_waits, stage: now.isoformat()}
    _saved(run, "wait skipped", {"stage": stage}, by=by, now=now)
    return run


@transaction.atomic
def retry(name: str, cluster: str, *, by: User | None, now: datetime) -> StagedRun:
    """Try a failed cluster again at once. Raises UnknownRunError, HandRefusedError where nothing failed."""
    run = _locked(name)
    steps = plan_of(run).steps
    if run.ended_at or not any(step.name == cluster and step.failed_at for step in steps):
        raise HandRefusedError(f"nothing of {name} has failed on {cluster}; only what failed can be retried")
    run.retries = {**run.retries, cluster: now.isoformat()}
    _saved(run, "retried", {"cluster": cluster}, by=by, now=now)
    return run


@transaction.atomic
def abandon(name: str, *, by: User | None, now: datetime) -> StagedRun:
    """End a run by hand; what is under way on clusters comes to its end. Raises HandRefusedError if over."""
    run = _locked(name)
    if run.ended_at:
        raise HandRefusedError(f"{name} has ended already ({run.status})")
    end_run(run, Outcome.ABANDONED, by=by, now=now)
    return run


def _locked(name: str, expected: int | None = None) -> StagedRun:
    run = locked_run(name)
    if run is None:
        raise UnknownRunError(name)
    refuse_stale(STAGED_RUN, name, expected=expected, revision=run.revision)
    return run


def _waits(run: StagedRun, what: WaitFor, stage: str) -> bool:
    waits = run.answer.get("waits", ())
    return any((one["what"], one["stage"]) == (what, stage) for one in waits)


def _saved(
    run: StagedRun, verb: str, after: Mapping[str, Any] | None, *, by: User | None, now: datetime
) -> None:
    run.revision, run.changes = run.revision + 1, run.changes + 1
    run.save()
    record(Happening(verb, STAGED_RUN, run.name, revision=run.revision, after=after), by=by, now=now)
    if run.placement_id:
        ask_to_advance([run.placement_id])
