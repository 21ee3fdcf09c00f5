"""The numbers of OCM's weighted mode (`spec/other-schedulers.md` 2.5 and 6.6)."""

import numpy as np

from placements.scheduling.columns import Floats, Ints

TOP_LEVEL = 63
EXACT_LEVELS = 8
"""So many levels, six bits each, a float holds exactly."""
FULL = 100.0


def level_score(gap: int, lowest: int, highest: int) -> int:
    """Scale a gap to 0 (fullest) to 63 (emptiest) between those of its siblings; all equal is 0."""
    span = highest - lowest
    return TOP_LEVEL * (gap - lowest) // span if span > 0 else 0


def level_scores(gaps: Ints, lowest: Ints, highest: Ints) -> Ints:
    """Do the same for columns."""
    span = highest - lowest
    return np.where(span > 0, TOP_LEVEL * (gaps - lowest) // np.maximum(span, 1), 0)


def stretched(total: Ints | Floats, low: float, high: float) -> Floats:
    """Stretch what lies between low and high to −100 to 100; all equal, or nothing to stretch, is 0."""
    if not low < high:
        return np.zeros(len(total), dtype=np.float64)
    even: Floats = (2 * FULL * (total - low) / (high - low) - FULL).astype(np.float64, copy=False)
    return even
