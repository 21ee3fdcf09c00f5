"""Which label the fleet is best looked at by."""

from collections import Counter
from collections.abc import Sequence

from placements.models import PolicySnapshot

_MOST_POLICIES = 500


def favourite_key(known: Sequence[str]) -> str:
    """Give the label that most placements spread over, else the first that there is; empty without any."""
    rows = PolicySnapshot.objects.filter(is_latest=True).order_by("pk")
    constraints = rows.values_list("policy__topologySpreadConstraints", flat=True)[:_MOST_POLICIES]
    counted = Counter(
        one["topologyKey"] for several in constraints for one in several or () if one["topologyKey"] in known
    )
    return counted.most_common(1)[0][0] if counted else next(iter(known), "")
