"""Rollouts and staged runs in progress, and those of them that wait for a user."""

from django.db.models import Exists, OuterRef, Q, QuerySet

from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.staged_run import RunStatus
from placements.models import ApprovalRequest, Rollout, StagedRun

_STARTED = Q(ended_at=None, started_at__isnull=False)


def runs_under_way() -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    return Rollout.objects.filter(
        state=Rollout.State.RUNNING
    ), StagedRun.objects.filter(_STARTED)


def waiting_runs() -> tuple[QuerySet[Rollout], QuerySet[StagedRun]]:
    """Return the rollouts and the staged runs in progress that stalled or wait for a user."""
    is_paused = Q(placement__paused_since__isnull=False)
    is_pending = Exists(
        ApprovalRequest.objects.filter(run=OuterRef("pk"), approved_at=None)
    )
    is_idle = Q(status__in=(RunStatus.STOPPED, RunStatus.STUCK))
    rolling, staged = runs_under_way()
    return rolling.filter(Q(verdict=RunPhase.HALTED) | is_paused), staged.filter(
        is_idle | is_paused | is_pending
    )
