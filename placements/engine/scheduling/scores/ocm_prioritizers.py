"""Scores of `ocm` semantics: affinity rows, Steady, Balance, allocatable resources, add-ons.

Each aims at −100 to 100 (`rules/other-schedulers.md#prioritizers`).
"""

from collections.abc import Iterator
from datetime import datetime

import numpy as np

from clusters.columns import Bools, Floats
from clusters.fleet import RESOURCE_PREFIX, AddOnScores, Fleet
from placements.engine.scheduling.cycle import Cycle
from placements.manifests.ocm_options import AddOnWeight, OcmOptions

_FULL = 100.0


def affinity_rows(options: OcmOptions, fleet: Fleet, candidates: Bools) -> Floats:
    """Return for each cluster the weights of the rows it matches, stretched over the candidates to ±100."""
    raw = raw_rows(options, fleet)
    counted = raw[candidates]
    if not len(counted) or counted.min() == counted.max():
        return np.zeros(len(raw), dtype=np.float64)
    low, high = float(counted.min()), float(counted.max())
    return 2 * _FULL * (raw - low) / (high - low) - _FULL


def raw_rows(options: OcmOptions, fleet: Fleet) -> Floats:
    """Return for each cluster the sum of the weights of the rows it matches, not stretched."""
    raw = np.zeros(len(fleet), dtype=np.float64)
    for term in options.affinity_terms:
        column = fleet.topology(term.topology_key, term.topology_key_type)
        for row in term.topology_weights:
            answers = {
                "In": column.is_any_of(row.values),
                "NotIn": ~column.is_any_of(row.values),
                "Exists": column.is_present,
                "DoesNotExist": ~column.is_present,
            }
            raw[answers[row.operator]] += row.weight
    return raw


def prioritizers(options: OcmOptions, cycle: Cycle, candidates: Bools) -> Floats:
    """Return for each cluster the weighted sum of all scores but the affinity rows."""
    total = np.zeros(len(cycle.fleet), dtype=np.float64)
    for _, weight, score in weighed(options, cycle, candidates):
        total += weight * score
    return total


def weighed(
    options: OcmOptions, cycle: Cycle, candidates: Bools
) -> Iterator[tuple[str, float, Floats]]:
    """Return the name, the weight and the score of each of them that has a weight."""
    if options.steady_weight:
        yield "steady", options.steady_weight, cycle.is_active.astype(np.float64)
    if options.balance_weight:
        yield "balance", options.balance_weight, _balance(options, cycle.fleet)
    yield from (
        (resource, weight, _allocatable(resource, cycle.fleet, candidates))
        for resource, weight in (
            ("cpu", options.cpu_weight),
            ("memory", options.memory_weight),
        )
        if weight
    )
    yield from (
        ("addOn", add_on.weight, add_on_scores(add_on, cycle))
        for add_on in options.add_ons
        if add_on.weight
    )


def add_on_scores(add_on: AddOnWeight, cycle: Cycle) -> Floats:
    """Return the score that each cluster reports; 0 without one or after its end."""
    score = np.zeros(len(cycle.fleet), dtype=np.float64)
    for position, scores in reported_scores(add_on, cycle.fleet):
        if not is_expired(scores, cycle.moment):
            score[position] = scores.values.get(add_on.score_name, 0)
    return score


def reported_scores(
    add_on: AddOnWeight, fleet: Fleet
) -> Iterator[tuple[int, AddOnScores]]:
    """Yield the position and scores of each cluster that an add-on has scores of."""
    for position, cluster in enumerate(fleet.clusters):
        scores = cluster.managed and cluster.managed.scores.get(add_on.resource_name)
        if scores:
            yield position, scores


def is_expired(scores: AddOnScores, now: datetime | None) -> bool:
    """Return whether scores have expired; at the very second of their end they have not."""
    end = scores.valid_until
    return now is not None and end is not None and now > end


def _balance(options: OcmOptions, fleet: Fleet) -> Floats:
    """Prefer clusters that other placements use little: 100 for an unused one.

    The busiest is that of all which decisions name, also one that is no longer in the fleet.
    """
    used = np.array(
        [options.balance.get(name, 0) for name in fleet.names], dtype=np.float64
    )
    most = max(options.balance.values(), default=0)
    if most == 0:
        return np.full(len(fleet), _FULL)
    score: Floats = 2 * np.trunc(_FULL * (0.5 - used / most))
    return score


def _allocatable(resource: str, fleet: Fleet, candidates: Bools) -> Floats:
    values = fleet.property(f"{RESOURCE_PREFIX}allocatable-{resource}").approximates
    # A cluster that reports no capacity has no score.
    has_capacity = ~np.isnan(
        fleet.property(f"{RESOURCE_PREFIX}total-{resource}").approximates
    )
    values = np.where(has_capacity, values, np.nan)
    finite = values[candidates & ~np.isnan(values)]
    if not len(finite):
        return np.zeros(len(fleet), dtype=np.float64)
    low, high = float(finite.min()), float(finite.max())
    if low == high:
        return np.where(np.isnan(values), 0.0, _FULL)
    return np.where(
        np.isnan(values),
        0.0,
        np.trunc(((values - low) / (high - low) - 0.5) * 2 * _FULL),
    )
