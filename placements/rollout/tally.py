"""A rollout at a glance: how many clusters stand how, beside the lines that the rolling update keeps to."""

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

from placements.rollout.answer import Answer, Remove
from placements.rollout.state import ClusterFacts, Phase, RolloutState


class Standing(StrEnum):
    """How a cluster that holds resources stands in a rollout."""

    OLD = "old"
    NEW = "new"
    UNAVAILABLE = "unavailable"
    REMOVING = "removing"


@dataclass(frozen=True, slots=True)
class Tally:
    """Clusters that hold resources, or begin to, each in one of four counts, and the lines of lifecycle A.2.

    `old` and `new` are available, on another version than wanted or on the one wanted; `unavailable` are
    worked on, settle, have failed or are out of reach; `removing` are being cleared. `number` is N, `floor`
    N − maxUnavailable and `ceiling` N + maxSurge.
    """

    old: int
    new: int
    unavailable: int
    removing: int
    number: int
    floor: int
    ceiling: int

    @property
    def available(self) -> int:
        """Count those available, on whichever version: what the floor is measured against."""
        return self.old + self.new

    @property
    def placed(self) -> int:
        """Count those that hold resources: what the ceiling is measured against."""
        return self.old + self.new + self.unavailable + self.removing


def tally_of(state: RolloutState, answer: Answer) -> Tally:
    """Count the clusters as they stand once the answer's actions have started."""
    actions = {action.cluster: action for action in answer.actions}
    counts: Counter[Standing] = Counter()
    for cluster in state.clusters:
        action = actions.get(cluster.name)
        if cluster.has_resources or action is not None:
            counts[
                _stands(state, cluster, removes=isinstance(action, Remove), starts=action is not None)
            ] += 1
    floor, ceiling = answer.budgets.updates, answer.budgets.additions
    return Tally(
        counts[Standing.OLD],
        counts[Standing.NEW],
        counts[Standing.UNAVAILABLE],
        counts[Standing.REMOVING],
        floor.number,
        floor.floor,
        ceiling.ceiling,
    )


def _stands(state: RolloutState, cluster: ClusterFacts, *, removes: bool, starts: bool) -> Standing:
    if removes or cluster.phase in (Phase.REMOVING, Phase.REMOVE_FAILED):
        return Standing.REMOVING
    if starts or not state.is_available(cluster):
        return Standing.UNAVAILABLE
    return Standing.NEW if cluster.running == cluster.wanted else Standing.OLD
