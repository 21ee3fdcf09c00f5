"""Filter: a namespaced placement needs its namespace on the cluster.

See `rules/live-hub.md#objects-of-a-hub`.
"""

import numpy as np

from clusters.columns import Bools
from clusters.fleet import lacks_namespace
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason, ReasonCode


class NamespaceFilter:
    """A cluster passes when it has the namespace of the placement, or does not collect its namespaces."""

    name = "namespace"

    def passes(self, cycle: Cycle) -> Bools:
        verdicts = [
            lacks_namespace(cluster, cycle.namespace) is None for cluster in cycle.fleet
        ]
        return np.array(verdicts, dtype=np.bool_)

    def reason(self, cycle: Cycle, position: int) -> Reason:
        lacks = lacks_namespace(cycle.fleet.clusters[position], cycle.namespace)
        facts = {"namespace": cycle.namespace, "known": lacks == "missing"}
        return Reason(ReasonCode.NAMESPACE_MISSING, facts)
