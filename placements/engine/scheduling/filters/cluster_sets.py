"""Filter: under `ocm` a cluster is in a set that the placement may use, where the hub has sets."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from clusters.columns import Bools
from clusters.fleet import Fleet
from clusters.hub_objects import SET_LABEL
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.engine.scheduling.selectors import label_requirements, match_labels
from placements.manifests.affinity import set_selector


class ClusterSetFilter:
    """A cluster passes in any of the sets (`rules/other-schedulers.md#objects-of-a-hub`)."""

    name = "cluster sets"

    def passes(self, cycle: Cycle) -> Bools:
        passes = np.zeros(len(cycle.fleet), dtype=np.bool_)
        for name, chosen in (cycle.cluster_sets or {}).items():
            passes |= _members(name, chosen, cycle.fleet)
        passes[leaving_in_hub(cycle.fleet)] = False
        return passes

    def reason(self, cycle: Cycle, position: int) -> Reason:
        is_leaving = position in leaving_in_hub(cycle.fleet)
        facts = {"sets": [*(cycle.cluster_sets or {})], "leaving": is_leaving}
        return Reason(ReasonCode.NOT_IN_CLUSTER_SET, facts)


def leaving_in_hub(fleet: Fleet) -> list[int]:
    """Return the positions of the clusters that are being deleted in their hub: they are in no set."""
    pairs = enumerate(fleet.clusters)
    return [
        at for at, cluster in pairs if cluster.managed and cluster.managed.is_leaving
    ]


def set_keys(chosen: Mapping[str, Any]) -> set[str]:
    """Return the keys of the labels that decide which clusters are in a set."""
    if chosen.get("selectorType", "") != "LabelSelector":
        return {SET_LABEL}
    return {requirement.key for requirement in label_requirements(set_selector(chosen))}


def _members(name: str, chosen: Mapping[str, Any], fleet: Fleet) -> Bools:
    """Return the clusters of a set; one without a selector is named by a label of its clusters."""
    if chosen.get("selectorType", "") != "LabelSelector":
        return fleet.label(SET_LABEL).is_any_of((name,))
    selector = set_selector(chosen)
    if selector is None:
        return np.zeros(len(fleet), dtype=np.bool_)
    return match_labels(selector, fleet)
