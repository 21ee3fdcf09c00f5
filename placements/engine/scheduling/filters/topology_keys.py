"""Filter: under `ocm` with `unsetPolicy: exclude`, a cluster needs every topology key of the spread."""

import numpy as np

from clusters.columns import Bools
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason, ReasonCode


class TopologyKeyFilter:
    """A cluster passes with the key of every spread constraint (`rules/other-schedulers.md#ocm`)."""

    name = "topology keys"

    def passes(self, cycle: Cycle) -> Bools:
        passes = np.ones(len(cycle.fleet), dtype=np.bool_)
        for constraint in cycle.policy.topology_spread_constraints:
            passes &= cycle.fleet.topology(
                constraint.topology_key, constraint.topology_key_type
            ).is_present
        return passes

    def reason(self, cycle: Cycle, position: int) -> Reason:
        keys = [
            constraint.topology_key
            for constraint in cycle.policy.topology_spread_constraints
            if not cycle.fleet.topology(
                constraint.topology_key, constraint.topology_key_type
            ).is_present[position]
        ]
        return Reason(ReasonCode.MISSING_TOPOLOGY_KEY, {"keys": keys})
