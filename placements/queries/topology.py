"""Which labels the fleet is best looked at by."""

from collections import Counter
from collections.abc import Sequence

from placements.models import PolicySnapshot

_MOST_POLICIES = 500


def favourite_keys(known: Sequence[str], *, most: int) -> list[str]:
    """Give the labels that most placements spread over, else the first that there are."""
    rows = PolicySnapshot.objects.filter(is_latest=True).order_by("pk")
    constraints = rows.values_list("policy__topologySpreadConstraints", flat=True)[:_MOST_POLICIES]
    counted = Counter(
        one["topologyKey"] for several in constraints for one in several or () if one["topologyKey"] in known
    )
    favourites = [key for key, _ in counted.most_common(most)]
    return favourites or list(known[:1])


def favourite_key(known: Sequence[str]) -> str:
    """Give the label that most placements spread over, else the first that there is; empty without any."""
    return next(iter(favourite_keys(known, most=1)), "")
