"""Filter: taints that no toleration tolerates (`rules/scheduler.md#filters`)."""

from datetime import UTC, datetime, timedelta

import numpy as np

from clusters.columns import Bools
from clusters.fleet import Taint
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.reason import Reason, ReasonCode
from placements.manifests.policy import SOFT_EFFECTS, Toleration, TolerationOperator

PREFER, IF_NEW = SOFT_EFFECTS
_MOST_SECONDS = (2**63 - 1) // 10**9
_NEVER = datetime.max.replace(tzinfo=UTC)


class TaintFilter:
    """A cluster passes when every taint it has is tolerated."""

    name = "taints"
    of_hub = False

    def passes(self, cycle: Cycle) -> Bools:
        """Return the clusters without an untolerated taint; each distinct list of taints is checked once."""
        fleet = cycle.fleet
        if self.of_hub:
            fleet = fleet.of_hub
        sets, codes = fleet.taint_sets, fleet.taint_codes
        passes = np.zeros(len(fleet), dtype=np.bool_)
        has_new = any(taint.effect == IF_NEW for taints in sets for taint in taints)
        for is_selected in (False, True)[: 1 + has_new]:
            verdicts = [
                not untolerated(
                    taints,
                    cycle.policy.tolerations,
                    now=cycle.moment,
                    is_selected=is_selected,
                )
                for taints in sets
            ]
            allowed = np.array(verdicts, dtype=np.bool_)[codes]
            if is_selected:
                allowed &= cycle.is_active
            passes |= allowed
        return passes

    def reason(self, cycle: Cycle, position: int) -> Reason:
        fleet = cycle.fleet
        if self.of_hub:
            fleet = fleet.of_hub
        taints = untolerated(
            fleet.clusters[position].taints,
            cycle.policy.tolerations,
            now=cycle.moment,
            is_selected=bool(cycle.is_active[position]),
        )
        plain_taints = [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in taints
        ]
        return Reason(ReasonCode.UNTOLERATED_TAINT, {"taints": plain_taints})


class HubTaintFilter(TaintFilter):
    """Taints have the effects and times that a hub of Open Cluster Management gives them."""

    of_hub = True


def untolerated(
    taints: tuple[Taint, ...],
    tolerations: tuple[Toleration, ...],
    *,
    now: datetime | None = None,
    is_selected: bool = False,
) -> tuple[Taint, ...]:
    """Return the taints that rule a cluster out at a moment; without one no toleration ends.

    `is_selected`: the placement has the cluster already, so that `NoSelectIfNew` does not rule it out.
    """
    return tuple(
        taint
        for taint in taints
        if taint.effect != PREFER
        and not (is_selected and taint.effect == IF_NEW)
        and not any(tolerates(toleration, taint, now) for toleration in tolerations)
    )


def tolerates(toleration: Toleration, taint: Taint, now: datetime | None) -> bool:
    """Return whether a toleration accepts a taint at a moment; without one no toleration ends."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.operator is TolerationOperator.EXISTS:
        matches = not toleration.key or toleration.key == taint.key
    else:
        is_same_value = (toleration.value or "") == taint.value
        matches = toleration.key == taint.key and is_same_value
    seconds = toleration.toleration_seconds
    if not matches or seconds is None or now is None:
        return matches
    end = toleration_end(taint, seconds)
    return end is not None and now < end


def toleration_end(taint: Taint, seconds: int) -> datetime | None:
    """Return when a taint is no longer tolerated; None where it never is.

    A hub counts nanoseconds in 64 bits: a time too long for them is over at once, as is one of a taint
    without the moment it was added.
    """
    if taint.time_added is None or not -_MOST_SECONDS <= seconds <= _MOST_SECONDS:
        return None
    try:
        return taint.time_added + timedelta(seconds=seconds)
    except OverflowError:
        return _NEVER if seconds > 0 else None
