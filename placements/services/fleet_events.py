"""Enqueueing of the placements that a change of the fleet affects (`spec/lifecycle.md` B.8.4)."""

from collections.abc import Iterable, Set

from django.db import transaction
from django.db.models import F

from clusters.models import FleetChange
from fleetui.bulk import batched
from placements.models import Binding, Drain, Placement
from placements.services.overrides.operations import labels_changed
from placements.services.workqueue import enqueue_scheduling


def affected_by_change(*, opens: bool, label_keys: Set[str], property_names: Set[str]) -> list[int]:
    """Return the placements whose selection may change: those that reschedule and read what changed.

    `opens`: clusters joined or left, or taints or eligibility changed.
    """
    rows = Placement.objects.filter(reschedules_on_fleet_change=True, deleting_since=None)
    return [
        pk
        for pk, keys_read, names_read in rows.values_list("pk", "label_keys_read", "property_names_read")
        if opens or not label_keys.isdisjoint(keys_read) or not property_names.isdisjoint(names_read)
    ]


def losing_a_cluster(names: Iterable[str]) -> list[int]:
    found: list[int] = []
    for part in batched(names):
        bindings = Binding.objects.filter(cluster_name__in=part)
        found += bindings.values_list("placement_id", flat=True).distinct()
    return found


@transaction.atomic
def enqueue_affected_placements() -> int:
    """Enqueue the placements affected by the logged changes, and delete the log; return how many.

    The drains of clusters that left or are leaving are due at once: they end with the cluster.
    """
    changes = list(FleetChange.objects.select_for_update().order_by("pk"))
    if not changes:
        return 0
    affected = set(
        affected_by_change(
            opens=any(change.opens or change.gone for change in changes),
            label_keys={key for change in changes for key in change.label_keys},
            property_names={name for change in changes for name in change.property_names},
        )
    )
    gone = {name for change in changes for name in change.gone}
    losing = set(losing_a_cluster(gone))
    draining = Drain.objects.filter(cluster_name__in=gone, state=Drain.State.RUNNING)
    draining.update(requeue_at=F("started_at"))
    FleetChange.objects.filter(pk__in=[change.pk for change in changes]).delete()
    reasons = list(dict.fromkeys(change.reason for change in changes))
    trigger = (
        reasons[0]
        if len(reasons) == 1
        else f"{reasons[0]} and {len(reasons) - 1} more change{'s' if len(reasons) > 2 else ''}"
    )
    if any(change.label_keys for change in changes):
        labels_changed(trigger)
    return enqueue_scheduling(sorted(affected | losing), trigger=trigger)
