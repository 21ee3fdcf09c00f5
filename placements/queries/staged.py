"""Staged runs as they are read: the manifest with its status, and the progress in facts and sentences."""

from typing import Any

from django.db.models import QuerySet

from placements.explain.staged_document import answer_of
from placements.explain.staged_status import moment, progress_facts, run_status
from placements.models import ApprovalRequest, StagedRun
from placements.models.staged import INITIALISING
from placements.rollout.staged_facts import Answer


def run_manifest(run: StagedRun) -> dict[str, Any]:
    """Give the document of a run as it was written, with its status."""
    answer = answer_in(run)
    status = run_status(answer, snapshot=run.resource_number) if answer else {"conditions": []}
    return {**run.document, "status": status}


def progress_of(run: StagedRun) -> dict[str, Any]:
    """Give what a run is doing, and how far it has come."""
    answer = answer_in(run)
    return {
        "name": run.name,
        "placement": run.placement_name,
        "snapshot": run.resource_number,
        "startedBy": run.started_by,
        "approvals": [_approval_facts(run, one) for one in run.approvals.order_by("pk")],
        **(progress_facts(answer) if answer else _NOT_BEGUN),
    }


_NOT_BEGUN: dict[str, Any] = {
    "status": INITIALISING,
    "sentences": ["The scheduler has not decided on this placement yet."],
    "stage": None,
    "waits": [],
    "stuck": [],
    "mayStillHold": [],
    "stages": [],
}


def runs_matching(*, placement: str = "", active: bool | None = None) -> QuerySet[StagedRun]:
    """Give the runs of a placement, or of all; those that have not ended, or have, or both."""
    rows = StagedRun.objects.defer("plan", "answer", "strategy", "overrides", "document")
    if placement:
        rows = rows.filter(placement_name=placement)
    return rows if active is None else rows.filter(ended_at__isnull=active)


def _approval_facts(run: StagedRun, request: ApprovalRequest) -> dict[str, Any]:
    return {
        "name": request.name_in(run),
        "stage": request.stage,
        "side": request.side,
        "askedAt": moment(request.asked_at),
        "approvedAt": moment(request.approved_at),
        "approvedBy": request.approved_by,
    }


def answer_in(run: StagedRun) -> Answer | None:
    """Give what a run does and waits for; None before it has begun."""
    return answer_of(run.plan, run.answer) if run.plan else None
