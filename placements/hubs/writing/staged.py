"""Staged update runs and approvals of a hub."""

from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.model import mapping_at
from fleetui.apimachinery.words import full_name
from placements.hubs.kinds.base import Manifest, text_of
from placements.hubs.kinds.kubefleet import IS_LATEST_APPROVAL
from placements.hubs.watching.mirror import moment_of
from placements.hubs.write_bodies import identity_of
from placements.hubs.write_requests import Verb, kind_of
from placements.hubs.writing.effects import stage_notes
from placements.hubs.writing.objects import status_of
from placements.hubs.writing.planning import Planner, WritePlan, WriteRefusedError
from placements.manifests.staged_update import RunState

APPROVED, ACCEPTED = "Approved", "ApprovalAccepted"
REASON = "ApprovedInFleetUI"
LONGEST_NAME = 63
_FINISHED = ("True", "False")


def start_run(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan a staged update run; one whose strategy does not fit the clusters fails on the hub."""
    placement, namespace = fields["placement"], fields.get("namespace", "")
    owner = full_name(namespace, placement)
    fields.setdefault("state", RunState.INITIALIZE.value)
    fields.setdefault("name", run_name(placement))
    kind = kind_of("StagedUpdateStrategy", namespace)
    stages = planner.read(kind, fields["strategy"], namespace)
    kind = kind_of("StagedUpdateRun", namespace)
    notes = (*preflight(planner, live, kind, owner), *stage_notes(stages, owner))
    metadata = {"name": fields["name"], "namespace": namespace}
    spec = {
        "placementName": placement,
        "stagedRolloutStrategyName": fields["strategy"],
        "state": fields["state"],
    }
    if "resourceSnapshotIndex" in fields:
        spec["resourceSnapshotIndex"] = fields["resourceSnapshotIndex"]
    request = planner.create({"kind": kind, "metadata": metadata, "spec": spec})
    return WritePlan(request, request.body, notes)


def run_name(placement: str) -> str:
    return f"{placement[: LONGEST_NAME - 9].strip('-.')}-{uuid4().hex[:8]}"


def preflight(
    planner: Planner,
    placement: Manifest,
    kind: str,
    owner: str,
) -> tuple[str, ...]:
    """Return what would make a run fail or wait. Raise WriteRefusedError while another one is active."""
    for run in planner.mirrored(kind, owner=owner):
        is_ended = status_of(run, "Succeeded") in _FINISHED
        if not is_ended and status_of(run, "Initialized") != "False":
            other = text_of(mapping_at(run, "metadata").get("name"))
            raise WriteRefusedError(
                f"Run {other} of this placement is active; stop or abort it first."
            )
    notes = []
    if mapping_at(placement, "spec", "strategy").get("type") != "External":
        notes.append(
            "The strategy of the placement is not External: the hub rolls it out itself."
        )
    if status_of(placement, f"{placement.get('kind')}Scheduled") != "True":
        notes.append(
            "The placement is not fulfilled: the run would fail, and a failed run does not continue."
        )
    return tuple(notes)


def change_state(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan to run, stop or resume a staged update run."""
    state = fields["state"]
    before = text_of(mapping_at(live, "spec").get("state")) or RunState.INITIALIZE.value
    if (before, state) == (RunState.INITIALIZE.value, RunState.STOP.value):
        raise WriteRefusedError(f"A run in state {before} cannot go to {state}.")
    if status_of(live, "Succeeded") in _FINISHED:
        raise WriteRefusedError("The run has ended.")
    if before == state:
        return WritePlan(None)
    return WritePlan(planner.patch(live, {("spec", "state"): state}))


def approve(planner: Planner, fields: dict[str, Any], live: Manifest) -> WritePlan:
    """Plan an approval; `at` is the time of its condition, so that preview and request are the same."""
    if is_replaced(live):
        raise WriteRefusedError("A newer request replaced this one.")
    if is_approved(live):
        raise WriteRefusedError("The stage is approved already.")
    moment: datetime | None = planner.now
    if "at" in fields:
        moment = moment_of(fields["at"])
    if moment is None or abs((moment - planner.now).total_seconds()) > 3_600:
        allowed = "a time of the last hour"
        raise InvalidManifest.of("at", "bad-format", "Invalid value", allowed)
    fields["at"] = moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = f"approved by {planner.person}"
    if comment := fields.get("comment", "").strip():
        message += f": {comment}"
    condition = {
        "type": APPROVED,
        "status": "True",
        "reason": REASON,
        "message": message,
        "observedGeneration": mapping_at(live, "metadata").get("generation") or 1,
        "lastTransitionTime": fields["at"],
    }
    body = {**identity_of(live), "status": {"conditions": [condition]}}
    spec = mapping_at(live, "spec")
    run, stage = (
        text_of(spec.get(key)) for key in ("parentStageRollout", "targetStage")
    )
    request = planner.write(Verb.APPLY, live, body, subresource="status")
    return WritePlan(request, notes=(f"Run {run}, stage {stage}.",))


def is_replaced(request: Manifest) -> bool:
    labels = mapping_at(request, "metadata", "labels")
    return labels.get(IS_LATEST_APPROVAL, "true") != "true"


def is_approved(request: Manifest) -> bool:
    return "True" in [status_of(request, kind) for kind in (APPROVED, ACCEPTED)]
