"""A hard topology spread limit that is exceeded: its counts, and in words."""

from collections.abc import Iterable
from typing import NamedTuple


class ExceededLimit(NamedTuple):
    """A `DoNotSchedule` constraint whose skew is above its limit.

    `emptiest_domain` is the one that the fullest is compared with; it is empty while there are fewer domains
    than minDomains, so that the minimum counts as 0. `has_better_set`: whether moves within the rules exceed
    the limits less; None where no search was made.
    """

    topology_key: str
    max_skew: int
    fullest_domain: str
    fullest_count: int
    emptiest_domain: str
    emptiest_count: int
    skew: int
    has_better_set: bool | None = None


def limit_words(limit: ExceededLimit) -> str:
    """Return which limit is exceeded by what: "region skew 3 with east 4 and west 1, max skew 1"."""
    emptiest = f"{limit.emptiest_domain} {limit.emptiest_count:,}"
    if not limit.emptiest_domain:
        emptiest = "fewer domains than minDomains"
    counts = f"{limit.fullest_domain} {limit.fullest_count:,} and {emptiest}"
    return f"{limit.topology_key} skew {limit.skew:,} with {counts}, max skew {limit.max_skew:,}"


def balance_sentence(exceeded: Iterable[ExceededLimit]) -> str:
    """Return which hard limits what is placed exceeds, with the counts; empty without one."""
    parts = [limit_words(limit) for limit in exceeded]
    return f"Out of balance: {'; '.join(parts)}." if parts else ""
