"""The status that a hub of Open Cluster Management writes: groups of decisions, conditions.

See `rules/other-schedulers.md#status-of-a-placement`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from clusters.fleet import Cluster
from placements.engine.scheduling.selectors import selects
from placements.manifests.ocm import (
    DecisionGroupStrategy,
    OcmSpec,
    RequiredClusterSelector,
)

MOST_IN_AN_OBJECT = 100
Plain = dict[str, Any]


def decision_groups(
    spec: OcmSpec, selected: Sequence[Cluster], name: str
) -> list[Plain]:
    """Return the groups of the selected clusters, with the names of their PlacementDecision objects."""
    strategy = spec.decision_strategy and spec.decision_strategy.group_strategy
    strategy = strategy or DecisionGroupStrategy()
    length = _length(strategy, len(selected))
    rest = {
        cluster.name: cluster for cluster in sorted(selected, key=lambda one: one.name)
    }
    pieces: list[tuple[str, list[str]]] = []
    for group in strategy.decision_groups:
        selector = group.group_cluster_selector or RequiredClusterSelector()
        names = [
            cluster.name
            for cluster in rest.values()
            if selects(selector.label_selector, cluster.labels)
            and selects(selector.claim_selector, cluster.properties)
        ]
        pieces += [(group.group_name, piece) for piece in _pieces(names, length)]
        rest = {key: cluster for key, cluster in rest.items() if key not in names}
    pieces += [("", piece) for piece in _pieces(list(rest), length)]

    groups = []
    count = 0
    for index, (group_name, names) in enumerate(pieces or [("", [])]):
        size = max(1, math.ceil(len(names) / MOST_IN_AN_OBJECT))
        decisions = [f"{name}-decision-{count + at}" for at in range(1, size + 1)]
        count += size
        groups.append(
            {
                "index": index,
                "name": group_name,
                "clusters": names,
                "decisions": decisions,
            }
        )
    return groups


def _length(strategy: DecisionGroupStrategy, total: int) -> int:
    """Return how many clusters a group has at most; percentages are rounded up in doubles, as upstream."""
    amount = strategy.clusters_per_decision_group
    if amount is None:
        return total
    length = amount.number
    if amount.is_percent:
        length = math.ceil(amount.number / 100 * total)
    return length if 0 < length <= total else total


def _pieces(names: list[str], length: int) -> list[list[str]]:
    return [names[at : at + length] for at in range(0, len(names), max(length, 1))]


def satisfied_condition(
    *,
    bound: Sequence[str],
    named: Sequence[str],
    eligible: Sequence[str],
    available: int,
    selected: int,
    unscheduled: int,
) -> Mapping[str, str]:
    """Return PlacementSatisfied: the first reason that applies, in upstream's order and words."""
    reasons = (
        (
            not bound,
            "NoManagedClusterSetBindings",
            "No valid ManagedClusterSetBindings found in placement namespace",
        ),
        (
            not eligible,
            "NoIntersection",
            f"None of ManagedClusterSets [{','.join(named)}] is bound to placement namespace",
        ),
        (
            not available,
            "AllManagedClusterSetsEmpty",
            f"All ManagedClusterSets [{','.join(eligible)}] have no member ManagedCluster",
        ),
        (
            not selected,
            "NoManagedClusterMatched",
            "No ManagedCluster matches any of the cluster predicate",
        ),
        (
            unscheduled > 0,
            "NotAllDecisionsScheduled",
            f"{unscheduled} cluster decisions unscheduled",
        ),
        (True, "AllDecisionsScheduled", "All cluster decisions scheduled"),
    )
    reason, message = next(words for applies, *words in reasons if applies)
    return {
        "type": "PlacementSatisfied",
        "status": str(reason == "AllDecisionsScheduled"),
        "reason": reason,
        "message": message,
    }
