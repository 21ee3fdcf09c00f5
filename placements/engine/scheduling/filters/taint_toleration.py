"""Filter: taints that no toleration tolerates (`rules/scheduler.md#filters`)."""

import numpy as np

from clusters.columns import Bools
from clusters.fleet import Taint
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.manifests.policy import Toleration, TolerationOperator


class TaintFilter:
    """A cluster passes when every taint it has is tolerated."""

    name = "taints"

    def passes(self, cycle: Cycle) -> Bools:
        """Return the clusters without an untolerated taint; each distinct list of taints is checked once."""
        tolerations, taint_sets = cycle.policy.tolerations, cycle.fleet.taint_sets
        verdicts = [not untolerated(taints, tolerations) for taints in taint_sets]
        return np.array(verdicts, dtype=np.bool_)[cycle.fleet.taint_codes]

    def reason(self, cycle: Cycle, position: int) -> Reason:
        taints = untolerated(
            cycle.fleet.clusters[position].taints, cycle.policy.tolerations
        )
        plain_taints = [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in taints
        ]
        return Reason(ReasonCode.UNTOLERATED_TAINT, {"taints": plain_taints})


def untolerated(
    taints: tuple[Taint, ...], tolerations: tuple[Toleration, ...]
) -> tuple[Taint, ...]:
    return tuple(
        taint
        for taint in taints
        if not any(_tolerates(one, taint) for one in tolerations)
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator is TolerationOperator.EXISTS:
        return not toleration.key or toleration.key == taint.key
    return toleration.key == taint.key and (toleration.value or "") == taint.value
