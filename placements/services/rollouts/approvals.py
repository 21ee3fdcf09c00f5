"""Pending approvals of stages: which, since when, and who may approve."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.db.models.fields.json import KT

from fleetui.audit import SYSTEM
from fleetui.permissions import Role, may_change
from placements.engine.rollout.staged_run import ApprovalPoint
from placements.manifests.placement import parse_placement
from placements.models import WAITS_FOR_APPROVAL, ApprovalRequest, StagedRun
from placements.services.rollouts.queries import with_failed
from placements.services.teams import labels_of_run


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A pending request; `why_not` is why the reader may not approve it, empty if they may."""

    request: ApprovalRequest
    who: str
    why_not: str

    @property
    def run(self) -> StagedRun:
        return self.request.run

    @property
    def side(self) -> str:
        return (
            "before the stage"
            if self.request.side == ApprovalPoint.BEFORE
            else "after the stage"
        )


def approvals_waiting() -> QuerySet[ApprovalRequest]:
    """Return the requests that runs wait for, with run and placement; unordered. A stopped one has none."""
    rows = ApprovalRequest.objects.filter(WAITS_FOR_APPROVAL).select_related(
        "run__placement"
    )
    return rows.defer(
        "run__plan",
        "run__sync_result",
        "run__strategy",
        "run__overrides",
        "run__document",
    )


def with_status(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the runs with how many clusters they failed on, and what they wait for first."""
    return with_gate(with_failed(rows))


def with_gate(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.annotate(gate=KT("sync_result__waits__0__reason"))


def waiting_for(request: ApprovalRequest, user: User | None) -> PendingApproval:
    """Return who may approve, and why this user may not."""
    run = request.run
    is_person = run.started_by not in ("", SYSTEM)
    other = (
        f" other than {run.started_by}, who started it"
        if is_person and _requires_another(run)
        else ""
    )
    return PendingApproval(request, f"an approver{other}", why_not_approve(run, user))


def why_not_approve(run: StagedRun, user: User | None) -> str:
    """Return why a user may not approve a stage of a run; empty if they may."""
    if user is None or not may_change(user, labels_of_run(run), role=Role.APPROVER):
        return f"only an approver may approve a stage; required role: {Role.APPROVER}"
    if _requires_another(run) and user.get_username() == run.started_by:
        demand = f"{run.placement_name} requires another approver than {run.started_by}"
        return f"{demand}, who started the run"
    return ""


def _requires_another(run: StagedRun) -> bool:
    return (
        run.placement is not None
        and parse_placement(run.placement.document).approver_differs
    )
