"""Scores for preferred affinity terms and obsolete bindings (`rules/scheduler.md#scores-and-ranking`)."""

import numpy as np

from clusters.columns import Ints
from clusters.fleet import Fleet
from fleetui.apimachinery.effort import check_time
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.selectors import match_labels
from placements.manifests.affinity import PreferredTerm, SortOrder


def affinity(cycle: Cycle) -> Ints:
    """Return each cluster's affinity score: the sum over the preferred terms."""
    total = np.zeros(len(cycle.fleet), dtype=np.int64)
    for term in cycle.policy.preferred_terms:
        check_time()
        if term.weight:
            total += term_scores(term, cycle.fleet)
    return total


def term_scores(term: PreferredTerm, fleet: Fleet) -> Ints:
    """Return each cluster's score for one preferred term, between 0 and the weight."""
    matches = match_labels(term.preference.label_selector, fleet)
    if term.preference.property_sorter is None:
        return np.where(matches, term.weight, 0).astype(np.int64)

    bounds = observed_range(term.preference.property_sorter.name, fleet)
    if bounds is None or bounds[0] == bounds[1]:
        return np.zeros(len(fleet), dtype=np.int64)
    smallest, largest = bounds
    values = fleet.property(term.preference.property_sorter.name).approximates
    # The order of these operations is part of the rule: exact fractions differ at halves.
    share = (values - smallest) / (largest - smallest)
    if term.preference.property_sorter.sort_order is SortOrder.ASCENDING:
        share = 1 - share
    scored = np.where(matches & ~np.isnan(values), share * term.weight, 0.0)
    whole = np.trunc(scored)
    # Halves are rounded away from zero.
    away = np.abs(scored - whole) >= 0.5
    return (whole + np.where(away, np.copysign(1.0, scored), 0.0)).astype(np.int64)


def observed_range(name: str, fleet: Fleet) -> tuple[float, float] | None:
    """Return the smallest and largest value of a property in the whole fleet, None without any."""
    values = fleet.property(name).approximates
    if np.isnan(values).all():
        return None
    return float(np.nanmin(values)), float(np.nanmax(values))


def stickiness(cycle: Cycle) -> Ints:
    """Return 1 for each cluster that an older policy of this placement had placed, else 0."""
    return cycle.was_here.astype(np.int64)
