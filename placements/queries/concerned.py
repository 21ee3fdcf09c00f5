"""Which placements a change of the fleet concerns (`spec/lifecycle.md` B.8.4)."""

from collections.abc import Iterable, Set

from placements.models import Binding, Placement

_BATCH = 500


def looking_placements(*, opens: bool, label_keys: Set[str], property_names: Set[str]) -> list[int]:
    """Give the placements that may find other clusters: those that look, and read what changed.

    `opens`: clusters came or went, or taints or verdicts changed.
    """
    rows = Placement.objects.filter(keeps_looking=True, deleting_since=None)
    return [
        pk
        for pk, keys_read, names_read in rows.values_list("pk", "label_keys_read", "property_names_read")
        if opens or not label_keys.isdisjoint(keys_read) or not property_names.isdisjoint(names_read)
    ]


def losing_placements(names: Iterable[str]) -> list[int]:
    """Give the placements that have something on clusters which leave."""
    gone = list(names)
    found: list[int] = []
    for start in range(0, len(gone), _BATCH):
        bindings = Binding.objects.filter(cluster_name__in=gone[start : start + _BATCH])
        found += bindings.values_list("placement_id", flat=True).distinct()
    return found
