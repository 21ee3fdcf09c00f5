"""Saving staged runs: a manifest makes one, and changes nothing but its state (lifecycle B.1.7, B.5)."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User

from fleetui.events import SYSTEM, Happening, record
from fleetui.revisions import once_more_when_beaten, refuse_stale
from placements.models import Placement, ResourceSnapshot, StagedRun, StagedStrategy
from placements.operations.did import Did
from placements.operations.rollouts.asking import ask_to_advance
from placements.scheduling.door.staged_documents import (
    ClusterStagedUpdateRun,
    RunState,
    StagedRunSpec,
    parse_staged_run,
    run_change_faults,
)
from placements.scheduling.faults import Fault, Faults
from placements.scheduling.spec import StrategyType, parse_placement

STAGED_RUN = "staged-run"
_VERBS = {RunState.INITIALIZE: "changed", RunState.RUN: "set to run", RunState.STOP: "set to stop"}


@dataclass(frozen=True, slots=True)
class SavedRun:
    """What the operation did."""

    run: StagedRun
    did: Did


def locked_run(name: str) -> StagedRun | None:
    """Lock a run, and before it its placement, as a look at them does; only inside a transaction."""
    placement = StagedRun.objects.filter(name=name).values("placement")
    list(Placement.objects.select_for_update().filter(pk__in=placement).values_list("pk"))
    return StagedRun.objects.select_for_update().filter(name=name).first()


@once_more_when_beaten
def save_run(
    document: Mapping[str, Any], *, by: User | None, now: datetime, expected: int | None = None
) -> SavedRun:
    """Create a run or change its state; the same again changes nothing.

    Whether it can start, a worker finds out soon; the run says so. Raises Faults, StaleEditError.
    """
    manifest = parse_staged_run(dict(document))
    written = {key: deepcopy(value) for key, value in document.items() if key != "status"}
    name = manifest.metadata.name
    current = locked_run(name)
    refuse_stale(STAGED_RUN, name, expected=expected, revision=current.revision if current else 0)
    if current is None:
        return SavedRun(_create(manifest, written, by=by, now=now), Did.CREATED)
    if current.document == written:
        return SavedRun(current, Did.UNCHANGED)
    _change(current, manifest, written, by=by, now=now)
    return SavedRun(current, Did.CHANGED)


def _create(
    manifest: ClusterStagedUpdateRun, written: dict[str, Any], *, by: User | None, now: datetime
) -> StagedRun:
    spec = manifest.spec
    placement = Placement.objects.select_for_update().filter(name=spec.placement_name).first()
    strategy = StagedStrategy.objects.filter(name=spec.staged_rollout_strategy_name).first()
    index = spec.resource_snapshot_index
    snapshots = ResourceSnapshot.objects.filter(placement=placement)
    snapshot = snapshots.filter(number=int(index)).first() if index and placement else None
    faults = list(_missing(spec, placement, strategy, snapshot))
    if placement is None or strategy is None or faults:
        raise Faults(faults)
    run = StagedRun(
        name=manifest.metadata.name,
        document=written,
        placement=placement,
        placement_name=placement.name,
        strategy=strategy.document,
        resource_snapshot=snapshot,
        resource_number=snapshot.number if snapshot else None,
        created_at=now,
        created_by=by.get_username() if by else SYSTEM,
    )
    _note_start(run, spec.state, by=by, now=now)
    run.save(force_insert=True)
    record(Happening("created", STAGED_RUN, run.name, revision=1, after=written), by=by, now=now)
    ask_to_advance([placement.pk])
    return run


def _missing(
    spec: StagedRunSpec,
    placement: Placement | None,
    strategy: StagedStrategy | None,
    snapshot: ResourceSnapshot | None,
) -> Iterator[Fault]:
    """List what a new run refers to and is not there, or cannot be meant."""
    if placement is None:
        message = f"no placement is named {spec.placement_name!r}"
        yield Fault("spec.placementName", "not-found", message, "a placement with strategy External")
    elif placement.deleting_since:
        message = f"the placement {placement.name} is being deleted"
        yield Fault("spec.placementName", "being-deleted", message, "another placement")
    elif parse_placement(placement.document).spec.strategy.type is not StrategyType.EXTERNAL:
        message = (
            f"the placement {placement.name} is not updated by staged runs: its strategy is not External"
        )
        yield Fault("spec.placementName", "not-staged", message, "a placement with strategy External")
    if strategy is None:
        message = f"no strategy is named {spec.staged_rollout_strategy_name!r}"
        yield Fault("spec.stagedRolloutStrategyName", "not-found", message, "a ClusterStagedUpdateStrategy")
    if placement and spec.resource_snapshot_index and snapshot is None:
        numbers = ResourceSnapshot.objects.filter(placement=placement).order_by("number")
        known = ", ".join(map(str, numbers.values_list("number", flat=True))) or "none is there yet"
        message = f"{placement.name} has no resource snapshot {spec.resource_snapshot_index}"
        yield Fault("spec.resourceSnapshotIndex", "not-found", message, known)


def _change(
    run: StagedRun,
    manifest: ClusterStagedUpdateRun,
    written: dict[str, Any],
    *,
    by: User | None,
    now: datetime,
) -> None:
    before, state = parse_staged_run(run.document), manifest.spec.state
    faults = run_change_faults(before, manifest)
    if run.ended_at and state != before.spec.state:
        faults.append(Fault("spec.state", "ended", f"the run has ended ({run.status})", "make a new run"))
    if faults:
        raise Faults(faults)
    _note_start(run, state, by=by, now=now)
    happening = Happening(
        _VERBS[state] if state != before.spec.state else "changed",
        STAGED_RUN,
        run.name,
        revision=run.revision + 1,
        before=run.document,
        after=written,
    )
    run.document, run.revision, run.changes = written, run.revision + 1, run.changes + 1
    run.save(update_fields=["document", "revision", "changes", "started_at", "started_by"])
    record(happening, by=by, now=now)
    if run.placement_id:
        ask_to_advance([run.placement_id])


def _note_start(run: StagedRun, state: RunState, *, by: User | None, now: datetime) -> None:
    """Note who let the run begin, and when."""
    if state is RunState.RUN and run.started_at is None:
        run.started_at, run.started_by = now, by.get_username() if by else SYSTEM
