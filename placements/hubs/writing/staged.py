"""Staged update runs and approvals of a hub."""

import re
from datetime import UTC
from typing import Any
from uuid import uuid4

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.words import full_name
from placements.hubs.kinds.base import Manifest, mapping_at, text_of
from placements.hubs.kinds.kubefleet import IS_LATEST_APPROVAL
from placements.hubs.watching.mirror import moment_of
from placements.hubs.write_bodies import identity_of
from placements.hubs.writing.effects import stage_notes
from placements.hubs.writing.objects import (
    NAMESPACED_PLACEMENT,
    PLACEMENT,
    condition_of,
    plan_delete,
)
from placements.hubs.writing.planning import (
    LONGEST_TEXT,
    Fields,
    Planner,
    WritePlan,
    WriteRefusedError,
    check_fields,
    choice_field,
    text_field,
)
from placements.manifests.staged_update import RunState

APPROVED, ACCEPTED = "Approved", "ApprovalAccepted"
REASON = "ApprovedInFleetUI"
LONGEST_NAME = 63
_INDEX = re.compile(r"[0-9]{1,9}")
_FORBIDDEN = frozenset(
    {("Initialize", "Stop"), ("Run", "Initialize"), ("Stop", "Initialize")}
)
_FINISHED = ("True", "False")


def kind_of(name: str, namespace: str) -> str:
    return name if namespace else f"Cluster{name}"


def plan_start_run(planner: Planner, entered: Fields) -> WritePlan:
    """Plan a staged update run; one whose strategy does not fit the clusters fails on the hub."""
    optional = ["namespace", "name", "resourceSnapshotIndex", "state"]
    fields = dict(
        check_fields(entered, required=["placement", "strategy"], optional=optional)
    )
    namespace = text_field(fields, "namespace", longest=63)
    placement, strategy = (
        text_field(fields, "placement"),
        text_field(fields, "strategy"),
    )
    fields.setdefault("state", RunState.INITIALIZE.value)
    state = choice_field(
        fields, "state", (RunState.INITIALIZE.value, RunState.RUN.value)
    )
    fields["name"] = text_field(fields, "name", longest=LONGEST_NAME) or run_name(
        placement
    )
    index = text_field(fields, "resourceSnapshotIndex")
    if index and not _INDEX.fullmatch(index):
        raise InvalidManifest.of(
            "resourceSnapshotIndex", "bad-format", "Invalid value", "an integer from 0"
        )
    live = planner.read(
        NAMESPACED_PLACEMENT if namespace else PLACEMENT, placement, namespace
    )
    stages = planner.read(
        kind_of("StagedUpdateStrategy", namespace), strategy, namespace
    )
    notes = preflight(planner, live, placement, namespace)
    notes = (*notes, *stage_notes(stages, full_name(namespace, placement)))
    kind = kind_of("StagedUpdateRun", namespace)
    spec: dict[str, Any] = {
        "placementName": placement,
        "stagedRolloutStrategyName": strategy,
        "state": state,
    }
    if index:
        spec["resourceSnapshotIndex"] = index
    metadata = {
        "name": fields["name"],
        **({"namespace": namespace} if namespace else {}),
    }
    request = planner.create({"kind": kind, "metadata": metadata, "spec": spec})
    return WritePlan(request, fields, manifest=request.body, notes=notes)


def run_name(placement: str) -> str:
    return f"{placement[: LONGEST_NAME - 9].strip('-.')}-{uuid4().hex[:8]}"


def preflight(
    planner: Planner, placement: Manifest, name: str, namespace: str
) -> tuple[str, ...]:
    """Return what would make a run fail or wait. Raise WriteRefusedError while another one is active."""
    owner = f"{namespace}/{name}" if namespace else name
    for run in planner.mirrored(kind_of("StagedUpdateRun", namespace), owner=owner):
        is_ended = condition_of(run, "Succeeded").get("status") in _FINISHED
        if not is_ended and condition_of(run, "Initialized").get("status") != "False":
            other = text_of(mapping_at(run, "metadata").get("name"))
            raise WriteRefusedError(
                f"Run {other} of this placement is active; stop or abort it first."
            )
    notes = []
    strategy = mapping_at(placement, "spec", "strategy").get("type")
    if strategy != "External":
        notes.append(
            "The strategy of the placement is not External: the hub rolls it out itself."
        )
    kind = text_of(placement.get("kind"))
    if condition_of(placement, f"{kind}Scheduled").get("status") != "True":
        notes.append(
            "The placement is not fulfilled: the run would fail, and a failed run does not continue."
        )
    return tuple(notes)


def plan_run_state(planner: Planner, entered: Fields) -> WritePlan:
    """Plan to run, stop or resume a staged update run."""
    fields = check_fields(entered, required=["name", "state"], optional=["namespace"])
    live = read_run(planner, fields)
    state = choice_field(fields, "state", (RunState.RUN.value, RunState.STOP.value))
    before = text_of(mapping_at(live, "spec").get("state")) or RunState.INITIALIZE.value
    if (before, state) in _FORBIDDEN:
        raise WriteRefusedError(f"A run in state {before} cannot go to {state}.")
    if condition_of(live, "Succeeded").get("status") in _FINISHED:
        raise WriteRefusedError("The run has ended.")
    request = (
        None if before == state else planner.patch(live, {("spec", "state"): state})
    )
    return WritePlan(request, fields, live)


def plan_abandon_run(planner: Planner, entered: Fields) -> WritePlan:
    fields = check_fields(entered, required=["name"], optional=["namespace"])
    kind = kind_of("StagedUpdateRun", text_field(fields, "namespace", longest=63))
    plan = plan_delete(planner, {**fields, "kind": kind})
    return WritePlan(plan.request, fields, plan.live, None, plan.notes)


def read_run(planner: Planner, fields: Fields) -> Manifest:
    namespace = text_field(fields, "namespace", longest=63)
    return planner.read(
        kind_of("StagedUpdateRun", namespace), text_field(fields, "name"), namespace
    )


def plan_approve(planner: Planner, entered: Fields) -> WritePlan:
    """Plan the approval of a stage: a condition in the status of its request. `at` is its time."""
    fields = dict(
        check_fields(
            entered, required=["name"], optional=["namespace", "comment", "at"]
        )
    )
    namespace = text_field(fields, "namespace", longest=63)
    live = planner.read(
        kind_of("ApprovalRequest", namespace), text_field(fields, "name"), namespace
    )
    labels = mapping_at(live, "metadata", "labels")
    if labels.get(IS_LATEST_APPROVAL, "true") != "true":
        raise WriteRefusedError("A newer request replaced this one.")
    for kind in (APPROVED, ACCEPTED):
        if condition_of(live, kind).get("status") == "True":
            raise WriteRefusedError("The stage is approved already.")
    comment = comment_of(fields)
    fields["at"] = _moment(planner, fields)
    message = f"approved by {planner.person}" + (f": {comment}" if comment else "")
    condition = {
        "type": APPROVED,
        "status": "True",
        "reason": REASON,
        "message": message,
        "observedGeneration": mapping_at(live, "metadata").get("generation") or 1,
        "lastTransitionTime": fields["at"],
    }
    body = {**identity_of(live), "status": {"conditions": [condition]}}
    request = planner.apply_status(live, body)
    spec = mapping_at(live, "spec")
    notes = (
        f"Run {text_of(spec.get('parentStageRollout'))}, stage {text_of(spec.get('targetStage'))}.",
    )
    return WritePlan(request, fields, live, None, notes)


def comment_of(fields: Fields) -> str:
    value = fields.get("comment") or ""
    if (
        not isinstance(value, str)
        or len(value) > LONGEST_TEXT
        or not value.isprintable()
    ):
        allowed = f"a text of at most {LONGEST_TEXT} characters on one line"
        raise InvalidManifest.of("comment", "bad-format", "Invalid value", allowed)
    return value.strip()


def _moment(planner: Planner, fields: Fields) -> str:
    """Return the time of the condition: now, or that of the preview, so that both send the same."""
    text = text_field(fields, "at", longest=40)
    moment = moment_of(text) if text else planner.now
    if moment is None or abs((moment - planner.now).total_seconds()) > 3_600:
        raise InvalidManifest.of(
            "at", "bad-format", "Invalid value", "a time of the last hour"
        )
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
