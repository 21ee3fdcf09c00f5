"""The formulas of PodTopologySpread (`spec/other-schedulers.md` 3.2, 3.3 and 6.6), on columns of any sort."""

from math import log
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from placements.scheduling.columns import Bools, Floats, Ints
from placements.scheduling.policy import TopologySpreadConstraint

BEST = 100
SPREAD_WEIGHT = 2  # of PodTopologySpread in the default profile
_Cost = TypeVar("_Cost", float, NDArray[np.float64])


def smallest_counted(constraint: TopologySpreadConstraint, counts: Ints) -> int:
    """Give the smallest count, which is 0 while there are fewer groups than minDomains."""
    if len(counts) < (constraint.min_domains or 1):
        return 0
    return int(counts.min())


def is_too_many(constraint: TopologySpreadConstraint, counts: Ints) -> Bools:
    """Mark the groups in which one more would exceed the smallest by more than maxSkew."""
    return counts + (1 - smallest_counted(constraint, counts)) > constraint.max_skew


def soft_cost(constraint: TopologySpreadConstraint, count: _Cost, groups: int) -> _Cost:
    """Give what `count` clusters in a group cost when clusters of so many groups contend."""
    return count * log(groups + 2) + (constraint.max_skew - 1)


def rounded(costs: Floats) -> Floats:
    """Round half away from zero to whole numbers; costs are never negative."""
    whole: Floats = np.floor(costs + 0.5)
    return whole


def normalised(costs: Floats, largest: float, smallest: float) -> Floats:
    """Turn whole costs into scores, 100 for no cost; exact below 2^53 divided by 100."""
    score: Floats = largest + smallest - costs
    score *= BEST
    score /= largest
    return np.floor(score, out=score)
