"""People's hands on a rollout: pause, stop, retry, roll back, and their opposites (lifecycle A.9, A.12)."""

from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.events import Happening, record
from fleetui.revisions import refuse_stale
from placements.models import Binding, Placement, ResourceSnapshot, ResourceSnapshotPart, Rollout
from placements.operations.placements import PLACEMENT, UnknownPlacementError
from placements.operations.pruning import prune_resource_snapshots
from placements.operations.rollouts.asking import ask_to_advance
from placements.operations.rollouts.runs import end_run, running_rollout
from placements.rollout.state import Phase
from placements.standing import is_staged


class HandRefusedError(Exception):
    """What was asked for makes no sense now; the message says why, and what would."""


@transaction.atomic
def pause(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> Placement:
    """Start nothing more on a placement; work in flight is observed to its end. Again it does nothing."""
    placement = _locked(name, expected)
    if placement.paused_since is None:
        placement.paused_since, placement.paused_by = now, by.get_username() if by else "system"
        _saved(placement, "paused", ["paused_since", "paused_by"], by=by, now=now)
    return placement


@transaction.atomic
def resume(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> Placement:
    """Go on after a pause. Again it does nothing."""
    placement = _locked(name, expected)
    if placement.paused_since is not None:
        placement.paused_since, placement.paused_by = None, ""
        _saved(placement, "resumed", ["paused_since", "paused_by"], by=by, now=now)
    return placement


@transaction.atomic
def stop(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> Placement:
    """End the run for good; the placement starts nothing until somebody begins a new run.

    Raises HandRefusedError when no run is under way.
    """
    placement = _rolling(name, expected)
    run = running_rollout(placement)
    if run is None:
        raise HandRefusedError(f"no run of {name} is under way; there is nothing to stop")
    end_run(run, Rollout.State.STOPPED, f"stopped by {by.get_username() if by else 'system'}", now=now)
    placement.is_stopped = True
    _saved(placement, "stopped", ["is_stopped"], by=by, now=now)
    return placement


@transaction.atomic
def begin_anew(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> Placement:
    """Let a stopped placement begin a new run. Raises HandRefusedError when it is not stopped."""
    placement = _rolling(name, expected)
    if not placement.is_stopped:
        raise HandRefusedError(f"{name} is not stopped; a run begins by itself when one is needed")
    placement.is_stopped = False
    _saved(placement, "begun anew", ["is_stopped", *_because(placement, "begun anew", by=by)], by=by, now=now)
    return placement


@transaction.atomic
def retry(name: str, cluster: str, *, by: User | None, now: datetime) -> Binding:
    """Try what failed on one cluster again at once. Raises HandRefusedError where nothing failed."""
    placement = _rolling(name, None)
    binding = Binding.objects.filter(placement=placement, cluster_name=cluster).first()
    if binding is None or binding.phase not in (Phase.FAILED, Phase.REMOVE_FAILED):
        raise HandRefusedError(f"nothing of {name} has failed on {cluster}; only what failed can be retried")
    Binding.objects.filter(pk=binding.pk).update(retry_at=now)
    record(Happening("retried", PLACEMENT, name, after={"cluster": cluster}), by=by, now=now)
    ask_to_advance([placement.pk])
    return binding


@transaction.atomic
def roll_back(
    name: str, number: int, *, by: User | None, now: datetime, expected: int | None = None
) -> ResourceSnapshot:
    """Carry out the resources of an older snapshot, and hold the placement there (lifecycle A.9).

    A new snapshot with the old content is made; changes on the hub wait until somebody releases the hold.
    Raises HandRefusedError when there is no such snapshot, or it is the one that is carried out.
    """
    placement = _rolling(name, expected)
    if placement.deleting_since is not None:
        raise HandRefusedError(f"{name} is being deleted; there is nothing to roll back to")
    rows = ResourceSnapshot.objects.filter(placement=placement)
    old, latest = rows.filter(number=number).first(), rows.filter(is_latest=True).first()
    if latest is None:
        raise HandRefusedError(f"{name} has no resource snapshot yet; there is nothing to roll back to")
    if old is None or old == latest:
        older = rows.exclude(pk=latest.pk).order_by("number").values_list("number", flat=True)
        known = ", ".join(str(one) for one in older) or "none"
        raise HandRefusedError(
            f"{name} cannot roll back to {number}; older snapshots than r{latest.number}: {known}"
        )
    restored = _copied(old, latest, by=by, now=now)
    placement.held_number, placement.is_stopped = restored.number, False
    because = _because(placement, f"rolled back to the content of r{number}", by=by)
    fields = ["held_number", "is_stopped", *because]
    _saved(placement, "rolled back", fields, by=by, now=now, after={"to": number})
    prune_resource_snapshots(placement)
    return restored


@transaction.atomic
def release(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> Placement:
    """Let a placement follow the hub again after a rollback. Raises HandRefusedError if nothing holds it."""
    placement = _locked(name, expected)
    if placement.held_number is None:
        raise HandRefusedError(f"nothing holds {name}: it follows the hub")
    placement.held_number = None
    placement.resources_asked += 1
    placement.asked += 1
    because = _because(placement, "released", by=by)
    _saved(placement, "released", ["held_number", "resources_asked", "asked", *because], by=by, now=now)
    return placement


def _locked(name: str, expected: int | None) -> Placement:
    placement = Placement.objects.select_for_update().filter(name=name).first()
    if placement is None:
        raise UnknownPlacementError(name)
    refuse_stale(PLACEMENT, name, expected=expected, revision=placement.revision)
    return placement


def _rolling(name: str, expected: int | None) -> Placement:
    """Give a placement that rolling updates carry out; a staged one has runs with hands of their own."""
    placement = _locked(name, expected)
    if is_staged(placement) and placement.deleting_since is None:
        raise HandRefusedError(
            f"{name} is updated by staged runs: stop, resume or retry its run, or begin one with an older"
            " resourceSnapshotIndex"
        )
    return placement


def _because(placement: Placement, words: str, *, by: User | None) -> list[str]:
    """Let the run that follows say what it comes from; give the columns that this changes."""
    placement.asked_because, placement.asked_by = words, by.get_username() if by else "system"
    return ["asked_because", "asked_by"]


def _saved(
    placement: Placement,
    verb: str,
    fields: list[str],
    *,
    by: User | None,
    now: datetime,
    after: dict[str, Any] | None = None,
) -> None:
    placement.revision += 1
    placement.save(update_fields=["revision", *fields])
    happening = Happening(verb, PLACEMENT, placement.name, revision=placement.revision, after=after)
    record(happening, by=by, now=now)
    ask_to_advance([placement.pk])


def _copied(
    old: ResourceSnapshot, latest: ResourceSnapshot, *, by: User | None, now: datetime
) -> ResourceSnapshot:
    ResourceSnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
    restored = ResourceSnapshot.objects.create(
        placement=old.placement,
        number=latest.number + 1,
        content_hash=old.content_hash,
        objects_count=old.objects_count,
        identities=old.identities,
        created_at=now,
        created_by=by.get_username() if by else "system",
    )
    ResourceSnapshotPart.objects.bulk_create(
        ResourceSnapshotPart(snapshot=restored, position=part.position, manifests=part.manifests)
        for part in old.parts.all()
    )
    return restored
