"""Stages that wait for somebody: which, since when, and who may let them go on."""

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, QuerySet, Window

from fleetui.events import SYSTEM
from fleetui.roles import may_approve
from placements.models import ApprovalRequest, StagedRun
from placements.rollout.stages import When
from placements.scheduling.spec import parse_placement


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request that waits; `why_not` says why the reader may not approve it, empty where they may."""

    request: ApprovalRequest
    who: str
    why_not: str

    @property
    def run(self) -> StagedRun:
        """Give the run that waits."""
        return self.request.run

    @property
    def side(self) -> str:
        """Say at which end of the stage it stands."""
        return "before it begins" if self.request.side == When.BEFORE else "before the next stage begins"


def approvals_waiting() -> QuerySet[ApprovalRequest]:
    """Give the requests that wait, with their runs and placements; unordered."""
    rows = ApprovalRequest.objects.filter(approved_at=None, run__ended_at=None)
    rows = rows.select_related("run__placement")
    return rows.defer("run__plan", "run__answer", "run__strategy", "run__overrides", "run__document")


def first_waiting(*, most: int) -> tuple[list[ApprovalRequest], int]:
    """Give the requests that have waited longest, and how many wait in all; one query."""
    rows = approvals_waiting().annotate(in_all=Window(Count("pk"))).order_by("asked_at", "pk")
    found: list[Any] = list(rows[:most])
    return found, found[0].in_all if found else 0


def waiting_for(request: ApprovalRequest, user: User) -> Waiting:
    """Say who may approve, and why this user may not."""
    run = request.run
    is_person = run.started_by not in ("", SYSTEM)
    other = f" other than {run.started_by}, who started it" if is_person and _demands_another(run) else ""
    return Waiting(request, f"an approver{other}", why_not_approve(run, user))


def why_not_approve(run: StagedRun, user: User | None) -> str:
    """Say why somebody may not let a stage of a run go on; empty where they may."""
    if user is None or not may_approve(user):
        return "only an approver may let a stage go on"
    if _demands_another(run) and user.get_username() == run.started_by:
        demand = f"{run.placement_name} demands that somebody else approves than {run.started_by}"
        return f"{demand}, who started the run"
    return ""


def _demands_another(run: StagedRun) -> bool:
    return run.placement is not None and parse_placement(run.placement.document).approver_differs
