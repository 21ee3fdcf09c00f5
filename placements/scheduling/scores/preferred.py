"""Score: the preferred terms of the cluster affinity (`spec/scheduler.md` 4.2)."""

import numpy as np

from placements.scheduling.columns import Bools, Floats, Ints
from placements.scheduling.cycle import Cycle
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import PreferredTerm, PropertySorter, SortOrder
from placements.scheduling.selectors import Malformed, malformed_values, match_labels


def affinity(cycle: Cycle) -> Ints:
    """Give each cluster's affinity score: the sum over the preferred terms."""
    total = np.zeros(len(cycle.fleet), dtype=np.int64)
    for term in cycle.policy.preferred_terms:
        if term.weight:
            total += term_scores(term, cycle.fleet)
    return total


def term_scores(term: PreferredTerm, fleet: Fleet) -> Ints:
    """Give each cluster's score for one preferred term, between 0 and the weight."""
    matches = match_labels(term.preference.label_selector, fleet)
    if term.preference.property_sorter is None:
        return np.where(matches, term.weight, 0).astype(np.int64)
    return _interpolated(term.preference.property_sorter, term.weight, fleet, matches)


def observed_range(name: str, fleet: Fleet) -> tuple[float, float] | None:
    """Give the smallest and largest value of a property in the whole fleet, None where nobody has it."""
    values = fleet.property(name).approximates
    if np.isnan(values).all():
        return None
    return float(np.nanmin(values)), float(np.nanmax(values))


def malformed_sorter_values(cycle: Cycle) -> tuple[Malformed, ...]:
    """List the values that a sorter needs but that are no quantities, in the order of the terms."""
    fleet = cycle.fleet
    everywhere = np.ones(len(fleet), dtype=np.bool_)
    names = [
        term.preference.property_sorter.name
        for term in cycle.policy.preferred_terms
        if term.weight and term.preference.property_sorter is not None
    ]
    needed = dict.fromkeys(names)
    return tuple(one for name in needed for one in malformed_values(name, fleet, among=everywhere))


def _interpolated(sorter: PropertySorter, weight: int, fleet: Fleet, matches: Bools) -> Ints:
    bounds = observed_range(sorter.name, fleet)
    if bounds is None or bounds[0] == bounds[1]:
        return np.zeros(len(fleet), dtype=np.int64)
    smallest, largest = bounds
    values = fleet.property(sorter.name).approximates
    # The order of these operations is part of the rule: exact fractions differ at halves.
    share = (values - smallest) / (largest - smallest)
    if sorter.sort_order is SortOrder.ASCENDING:
        share = 1 - share
    scored = np.where(matches & ~np.isnan(values), share * weight, 0.0)
    return _round_half_away_from_zero(scored)


def _round_half_away_from_zero(values: Floats) -> Ints:
    whole = np.trunc(values)
    away = np.abs(values - whole) >= 0.5
    return (whole + np.where(away, np.copysign(1.0, values), 0.0)).astype(np.int64)
