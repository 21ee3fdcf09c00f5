"""Asking the placements that a change of the fleet concerns (`spec/lifecycle.md` B.8.4)."""

from collections.abc import Iterable

from django.db import transaction

from clusters.models import FleetChange
from placements.models import Binding, Placement
from placements.operations.asking import ask

_BATCH = 500


@transaction.atomic
def ask_those_concerned() -> int:
    """Ask every placement that the noted changes concern, and forget the notes; tell how many were asked."""
    changes = list(FleetChange.objects.select_for_update().order_by("pk"))
    if not changes:
        return 0
    looking = set(_those_looking(changes))
    losing = set(_those_losing(name for change in changes for name in change.gone))
    FleetChange.objects.filter(pk__in=[change.pk for change in changes]).delete()
    reasons = list(dict.fromkeys(change.reason for change in changes))
    because = reasons[0] if len(reasons) == 1 else f"{reasons[0]} and {len(reasons) - 1} more changes"
    return ask(sorted(looking | losing), because=because)


def _those_looking(changes: Iterable[FleetChange]) -> list[int]:
    """Give the placements that may find other clusters: those that look, and read what changed."""
    opens = any(change.opens or change.gone for change in changes)
    keys = {key for change in changes for key in change.label_keys}
    names = {name for change in changes for name in change.property_names}
    rows = Placement.objects.filter(keeps_looking=True, deleting_since=None)
    return [
        pk
        for pk, keys_read, names_read in rows.values_list("pk", "label_keys_read", "property_names_read")
        if opens or not keys.isdisjoint(keys_read) or not names.isdisjoint(names_read)
    ]


def _those_losing(names: Iterable[str]) -> list[int]:
    """Give the placements that have something on clusters which leave."""
    gone = list(names)
    found: list[int] = []
    for start in range(0, len(gone), _BATCH):
        bindings = Binding.objects.filter(cluster_name__in=gone[start : start + _BATCH])
        found += bindings.values_list("placement_id", flat=True).distinct()
    return found
