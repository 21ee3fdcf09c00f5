"""Staged runs as they are read: the manifest with its status, and the progress in facts and sentences."""

from typing import Any

from placements.explain.staged_document import answer_of
from placements.explain.staged_status import progress_facts, run_status
from placements.models import StagedRun
from placements.models.staged import INITIALISING
from placements.rollout.staged_facts import Answer


def run_manifest(run: StagedRun) -> dict[str, Any]:
    """Give the document of a run as it was written, with its status."""
    answer = _answer(run)
    status = run_status(answer, snapshot=run.resource_number) if answer else {"conditions": []}
    return {**run.document, "status": status}


def progress_of(run: StagedRun) -> dict[str, Any]:
    """Give what a run is doing, and how far it has come."""
    answer = _answer(run)
    return {
        "name": run.name,
        "placement": run.placement_name,
        "snapshot": run.resource_number,
        "startedBy": run.started_by,
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


def _answer(run: StagedRun) -> Answer | None:
    return answer_of(run.plan, run.answer) if run.plan else None
