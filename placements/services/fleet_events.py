"""Enqueueing of the placements that a change of the fleet affects (`rules/lifecycle.md#triggers`)."""

from collections.abc import Iterable, Sequence, Set

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q

from clusters.fleet import ANY_NAME, Fleet
from clusters.models import FleetChange
from clusters.queries import clusters_changed_in
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.words import counted
from fleetui.bulk import batched
from placements.engine.scheduling.decision import CycleKind
from placements.engine.scheduling.fleet_change import can_change_picks
from placements.engine.scheduling.profile import chooses_again
from placements.manifests.policy import PlacementType
from placements.models import (
    AssertionCheck,
    Binding,
    Decision,
    Drain,
    Placement,
    Rollout,
)
from placements.services.overrides.operations import labels_changed
from placements.services.snapshots import cycles_of
from placements.services.workqueue import enqueue_rollout, enqueue_scheduling


def affected_by_change(
    *, opens: bool, label_keys: Set[str], property_names: Set[str]
) -> list[int]:
    """Return the placements whose selection may change: those that reschedule and read what changed.

    `opens`: clusters joined or left, or taints or eligibility changed.
    """
    rows = Placement.objects.filter(
        reschedules_on_fleet_change=True, deleting_since=None
    )
    return [
        pk
        for pk, keys_read, names_read in rows.values_list(
            "pk", "label_keys_read", "property_names_read"
        )
        if opens
        or not label_keys.isdisjoint(keys_read)
        or not property_names.isdisjoint(names_read)
        or bool(label_keys and ANY_NAME in keys_read)
        or bool(property_names and ANY_NAME in names_read)
    ]


def reading_labels(keys: Set[str]) -> list[int]:
    """Return the placements that read one of these labels, whether their selection may change or not."""
    rows = (
        Placement.objects.filter(deleting_since=None).values_list(
            "pk", "label_keys_read"
        )
        if keys
        else ()
    )
    return [pk for pk, keys_read in rows if not keys.isdisjoint(keys_read)]


def _unchanged(
    affected: Iterable[int], fleet: Fleet, changes: Sequence[FleetChange]
) -> set[int]:
    """Return the placements at rest that a cycle would leave as they are; `fleet` is what changed."""
    keys = {key for change in changes for key in change.label_keys}
    is_membership_changed = any(change.joins or change.gone for change in changes)
    pks: set[int] = set()
    for part in batched(sorted(affected)):
        rows = Placement.objects.filter(
            pk__in=part, observed_generation=F("generation")
        ).exclude(decisions_made=0)
        latest = Decision.objects.filter(
            placement__in=part, number=F("placement__decisions_made")
        )
        failed = set(
            latest.filter(kind=CycleKind.FAILED).values_list("placement_id", flat=True)
        )
        for placement, cycle in cycles_of(
            rows, fleet, where=Q(cluster_name__in=fleet.names)
        ):
            if not can_change_picks(
                cycle,
                label_keys=keys,
                is_membership_changed=is_membership_changed,
                has_failed=placement.pk in failed,
            ):
                pks.add(placement.pk)
    return pks


def keeps_others(placement: Placement) -> bool:
    """Return whether a cycle would leave all clusters that stay as they are: a PickAll placement at rest.

    Properties of clusters may have changed without a cycle.
    """
    return (
        placement.is_fulfilled is True
        and not placement.is_due
        and placement.placement_type == PlacementType.PICK_ALL
        and not placement.is_mirrored
        and not placement.property_names_read
        and not chooses_again(Semantics(placement.semantics))
    )


_MOST_CHANGED = 500
"""With more changed clusters at once every affected placement gets a scheduling cycle."""


_NAMES_AT_ONCE = 10_000
"""A page asks for a third of the fleet: one statement, which takes 32,766 parameters on SQLite."""


def losing_a_cluster(names: Iterable[str]) -> list[int]:
    pks: list[int] = []
    for part in batched(names, _NAMES_AT_ONCE):
        lost = Binding.objects.filter(cluster_name__in=part, placement=OuterRef("pk"))
        pks += Placement.objects.filter(Exists(lost)).values_list("pk", flat=True)
    return pks


def recheck_assertions(names: Set[str]) -> None:
    """Have the assertions checked again of placements whose policy reads one of these properties."""
    if not names:
        return
    rows = AssertionCheck.objects.values_list("pk", "placement__property_names_read")
    for part in batched([pk for pk, read in rows if not names.isdisjoint(read)]):
        AssertionCheck.objects.filter(pk__in=part).update(decisions_made=0)


def enqueue_affected_placements() -> int:
    """Enqueue the placements affected by the logged changes, and delete the log; return how many.

    The drains of clusters that left or are leaving are due at once: they end with the cluster.
    """
    if (
        not FleetChange.objects.exists()
    ):  # read every second: a transaction would wait for those that write
        return 0
    with transaction.atomic():
        return _enqueue_affected()


def _enqueue_affected() -> int:
    changes = list(FleetChange.objects.select_for_update().order_by("pk"))
    if not changes:
        return 0
    opens = any(change.opens or change.gone for change in changes)
    keys, names = _all_in(changes, "label_keys"), _all_in(changes, "property_names")
    affected = set(
        affected_by_change(opens=opens, label_keys=keys, property_names=names)
    )
    recheck_assertions(names)
    changed = clusters_changed_in(
        min(change.sequence for change in changes), most=_MOST_CHANGED
    )
    if changed is not None:
        affected -= _unchanged(affected, changed, changes)
    if any(change.opens for change in changes):
        _enqueue_rollouts(changed)
    removed = _all_in(changes, "gone")
    losing = set(losing_a_cluster(removed))
    Drain.objects.filter(cluster_name__in=removed, state=Drain.State.RUNNING).update(
        requeue_at=F("started_at")
    )
    FleetChange.objects.filter(pk__in=[change.pk for change in changes]).delete()
    trigger = _trigger_of(changes)
    if keys:
        labels_changed(trigger)
    return enqueue_scheduling(sorted(affected | losing), trigger=trigger)


def _all_in(changes: Iterable[FleetChange], column: str) -> set[str]:
    return {name for change in changes for name in getattr(change, column)}


def _trigger_of(changes: Iterable[FleetChange]) -> str:
    first, *others = dict.fromkeys(change.reason for change in changes)
    if not others:
        return first
    return f"{first} and {counted(len(others), 'more change')}"


def _enqueue_rollouts(changed: Fleet | None) -> None:
    """Enqueue the rollouts that may start or stop to wait for a cluster whose eligibility changed."""
    running = Rollout.objects.filter(
        state=Rollout.State.RUNNING, placement__deleting_since=None
    )
    if changed is not None:
        running = running.filter(placement__bindings__cluster_name__in=changed.names)
    enqueue_rollout(running.values_list("placement_id", flat=True))
