"""Saving and deleting placements (`spec/lifecycle.md` A.9 to A.11, B.3.1)."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from fleetui.events import SYSTEM, Happening, record
from fleetui.revisions import once_more_when_beaten, refuse_stale
from placements.models import Placement, PolicySnapshot
from placements.operations.asking import ask
from placements.operations.did import Did
from placements.operations.emptying import refuse_emptying_edit
from placements.operations.immutable import immutability_faults
from placements.operations.pruning import prune_policy_snapshots
from placements.operations.rollouts.asking import ask_to_advance
from placements.operations.staged.ending import end_runs_of
from placements.queries.hub import selection_of
from placements.rollout.stages import Reason
from placements.rollout.state import EMPTY
from placements.scheduling.bindings import BindingState
from placements.scheduling.cycle import Cycle
from placements.scheduling.door.ocm_placement import is_ocm_placement
from placements.scheduling.faults import Caveat, Fault, Faults
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import PlacementType
from placements.scheduling.profile import chooses_anew
from placements.scheduling.reads import labels_read, properties_read
from placements.scheduling.semantics import Semantics
from placements.scheduling.spec import (
    ClusterResourcePlacement,
    StrategyType,
    parse_placement,
    placement_caveats,
)
from placements.snapshots import content_hash

PLACEMENT = "placement"


class UnknownPlacementError(LookupError):
    """No placement has this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no placement is named {name!r}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Saved:
    """What the operation did, and what was accepted and may surprise."""

    placement: Placement
    did: Did
    caveats: tuple[Caveat, ...]


@once_more_when_beaten
def save_placement(
    document: Mapping[str, Any],
    *,
    by: User | None,
    now: datetime,
    expected: int | None = None,
    because: str = "",
    is_demo: bool = False,
    confirmed: bool = False,
) -> Saved:
    """Create a placement or change it, by its whole manifest; the same manifest again changes nothing.

    `expected` is the revision that the edit started from, 0 for a placement that must be new; `because` says
    in a few words what the decision that follows will be told to come from. `confirmed`: somebody knows what
    the change unschedules. Raises Faults, StaleEditError and EmptiesPlacementError; then nothing has changed.
    """
    manifest = parse_placement(dict(document))
    written = {key: deepcopy(value) for key, value in document.items() if key != "status"}
    caveats = (*placement_caveats(manifest), *selection_of(manifest).caveats)
    current = Placement.objects.select_for_update().filter(name=manifest.metadata.name).first()
    revision = current.revision if current else 0
    refuse_stale(PLACEMENT, manifest.metadata.name, expected=expected, revision=revision)
    if current is None:
        created = _create(manifest, written, because or "created", by=by, now=now, is_demo=is_demo)
        return Saved(created, Did.CREATED, caveats)
    _refuse_forbidden(current, manifest, written)
    if current.document == written:
        return Saved(current, Did.UNCHANGED, caveats)
    if not confirmed:
        refuse_emptying_edit(current, manifest)
    _change(current, manifest, written, because or "changed", by=by, now=now)
    return Saved(current, Did.CHANGED, caveats)


def delete_placement(name: str, *, by: User | None, now: datetime, expected: int | None = None) -> bool:
    """Delete a placement; tell whether it is gone already.

    One that was carried out somewhere stays until its resources are removed from the clusters (lifecycle
    A.11). Raises UnknownPlacementError, StaleEditError.
    """
    with transaction.atomic():
        current = Placement.objects.select_for_update().filter(name=name).first()
        if current is None:
            raise UnknownPlacementError(name)
        refuse_stale(PLACEMENT, name, expected=expected, revision=current.revision)
        if current.deleting_since is None:
            current.deleting_since, current.revision = now, current.revision + 1
            current.deletion_number = _selected(current)
            current.save(update_fields=["deleting_since", "deletion_number", "revision"])
            happening = Happening(
                "deleted", PLACEMENT, name, revision=current.revision, before=current.document
            )
            record(happening, by=by, now=now)
            end_runs_of(current, Reason("being-deleted"), by=by, now=now)
        ask_to_advance([current.pk])
        return finish_deletion(current)


def _selected(placement: Placement) -> int:
    return placement.bindings.exclude(state=BindingState.UNSCHEDULED).count()


def finish_deletion(placement: Placement) -> bool:
    """Remove the row of a placement under deletion once no cluster holds anything of it."""
    if placement.bindings.exclude(phase__in=EMPTY).exists():
        return False
    placement.bindings.all().delete()
    placement.delete()
    return True


def _refuse_forbidden(
    current: Placement, manifest: ClusterResourcePlacement, written: Mapping[str, Any]
) -> None:
    if current.deleting_since:
        message = f"the placement {current.name} is being deleted"
        raise Faults([Fault("metadata.name", "being-deleted", message, "another name, or try again later")])
    before = parse_placement(current.document)
    faults = immutability_faults(
        before, manifest, had_policy=_has_policy(current.document), has_policy=_has_policy(written)
    )
    if faults:
        raise Faults(faults)


def _has_policy(document: Mapping[str, Any]) -> bool:
    """Tell whether a document says anything of its policy; a Placement of OCM always does."""
    return is_ocm_placement(document) or document["spec"].get("policy") is not None


def _create(
    manifest: ClusterResourcePlacement,
    written: dict[str, Any],
    because: str,
    *,
    by: User | None,
    now: datetime,
    is_demo: bool,
) -> Placement:
    placement = Placement(
        name=manifest.metadata.name,
        document=written,
        created_at=now,
        updated_at=now,
        is_demo=is_demo,
    )
    _take_columns(placement, manifest)
    placement.scheduled, placement.scheduled_since = "Unknown", now
    placement.save(force_insert=True)
    _take_snapshot(placement, manifest, number=0, by=by, now=now)
    record(Happening("created", PLACEMENT, placement.name, revision=1, after=written), by=by, now=now)
    ask([placement.pk], because=because, by=_name_of(by), resources=True)
    return placement


def _change(
    placement: Placement,
    manifest: ClusterResourcePlacement,
    written: dict[str, Any],
    because: str,
    *,
    by: User | None,
    now: datetime,
) -> None:
    before = placement.document
    placement.document, placement.updated_at = written, now
    placement.revision += 1
    _take_columns(placement, manifest)
    pending = scheduled_columns(placement, "Unknown", now=now)
    for name, value in pending.items():
        setattr(placement, name, value)
    if manifest.spec.strategy.type is StrategyType.EXTERNAL:  # its runs are stopped, not the placement
        placement.is_stopped = False
    fields = ["document", "updated_at", "revision", "is_stopped", *_COLUMNS, *pending]
    placement.save(update_fields=fields)
    latest = PolicySnapshot.objects.get(placement=placement, is_latest=True)
    if latest.content_hash != content_hash(manifest):
        PolicySnapshot.objects.filter(pk=latest.pk).update(is_latest=False)
        _take_snapshot(placement, manifest, number=latest.number + 1, by=by, now=now)
        prune_policy_snapshots(placement)
    happening = Happening(
        "changed", PLACEMENT, placement.name, revision=placement.revision, before=before, after=written
    )
    record(happening, by=by, now=now)
    ask([placement.pk], because=because, by=_name_of(by), resources=True)
    ask_to_advance([placement.pk])


_COLUMNS = [
    "placement_type",
    "number_of_clusters",
    "semantics",
    "label_keys_read",
    "property_names_read",
    "revision_history_limit",
    "keeps_looking",
]


def _take_columns(placement: Placement, manifest: ClusterResourcePlacement) -> None:
    """Read off the manifest what lists are filtered by, and what a change of the fleet has to touch."""
    policy = manifest.spec.policy
    cycle = Cycle(Fleet(), policy, (), manifest.semantics, manifest.spread_options)
    is_pick_n = policy.placement_type is PlacementType.PICK_N
    placement.placement_type = policy.placement_type
    placement.number_of_clusters = policy.number_of_clusters if is_pick_n else None
    placement.semantics = manifest.semantics
    placement.label_keys_read = list(labels_read(cycle))
    placement.property_names_read = list(properties_read(cycle))
    placement.revision_history_limit = manifest.spec.revision_history_limit
    placement.keeps_looking = True


def _take_snapshot(
    placement: Placement,
    manifest: ClusterResourcePlacement,
    *,
    number: int,
    by: User | None,
    now: datetime,
) -> None:
    PolicySnapshot.objects.create(
        placement=placement,
        number=number,
        content_hash=content_hash(manifest),
        policy=manifest.spec.policy.without_number(),
        semantics=manifest.semantics,
        options=manifest.spread_options,
        created_at=now,
        created_by=_name_of(by),
    )


def scheduled_columns(placement: Placement, status: str, *, now: datetime) -> dict[str, Any]:
    """Give the columns of the condition `Scheduled`; its moment moves only with its value."""
    return {} if placement.scheduled == status else {"scheduled": status, "scheduled_since": now}


def always_looks(placement: Placement) -> bool:
    """Tell whether a fulfilled placement may still take on clusters: PickAll does, and some choose anew."""
    is_pick_all = placement.placement_type == PlacementType.PICK_ALL
    return is_pick_all or chooses_anew(Semantics(placement.semantics))


def _name_of(user: User | None) -> str:
    return user.get_username() if user else SYSTEM
