"""The spread strategies, one module each; none knows another."""

from placements.scheduling.policy import Semantics
from placements.scheduling.spread.base import SpreadStrategy
from placements.scheduling.spread.fleet import FleetSpread
from placements.scheduling.spread.kubefleet import KubeFleetSpread

STRATEGIES: dict[Semantics, SpreadStrategy] = {
    Semantics.FLEET: FleetSpread(),
    Semantics.KUBEFLEET: KubeFleetSpread(),
}
