"""Staged runs that end before their last stage."""

from datetime import datetime

from django.contrib.auth.models import User

from fleetui.events import Happening, record
from placements.explain.staged_document import answer_facts
from placements.models import Placement, StagedRun
from placements.operations.staged.runs import STAGED_RUN
from placements.rollout.staged import DELETE_STAGE
from placements.rollout.staged_facts import Answer, RunStatus
from placements.rollout.stages import Outcome, Reason, Stage, run_from_plain
from placements.rollout.stages import StagedRun as Plan

NO_PLAN = Plan((), Stage(DELETE_STAGE, ()))
"""What a run has that never began."""
_STATUS = {Outcome.FAILED: RunStatus.FAILED, Outcome.ABANDONED: RunStatus.ABANDONED}


def plan_of(run: StagedRun) -> Plan:
    """Give a run as a value."""
    return run_from_plain(run.plan) if run.plan else NO_PLAN


def end_answer(plan: Plan, outcome: Outcome, *why: Reason, now: datetime) -> Answer:
    """Give the answer that ends a run."""
    return Answer(plan.ended(outcome, now, *why), _STATUS[outcome])


def end_run(run: StagedRun, outcome: Outcome, *why: Reason, by: User | None, now: datetime) -> None:
    """End a run, inside the caller's transaction; what is under way on clusters comes to its end."""
    answer = end_answer(plan_of(run), outcome, *why, now=now)
    run.plan, run.answer, run.status = answer.run.to_plain(), answer_facts(answer), answer.status
    run.ended_at, run.changes, run.revision = now, run.changes + 1, run.revision + 1
    run.save(update_fields=["plan", "answer", "status", "ended_at", "changes", "revision"])
    after = {"why": [reason.code for reason in why]} if why else None
    record(Happening(run.status, STAGED_RUN, run.name, revision=run.revision, after=after), by=by, now=now)


def end_runs_of(placement: Placement, why: Reason, *, by: User | None, now: datetime) -> None:
    """End every run of a placement."""
    rows = StagedRun.objects.select_for_update().filter(placement=placement, ended_at=None)
    for run in rows.order_by("pk"):
        end_run(run, Outcome.FAILED, why, by=by, now=now)
