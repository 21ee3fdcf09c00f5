"""How many clusters may be taken down or added now, and the numbers behind it (lifecycle A.2, A.3)."""

from dataclasses import dataclass, replace
from enum import StrEnum

from placements.rollout.state import Phase, RolloutState


class Cost(StrEnum):
    """Which budget a start takes from."""

    FREE = "free"
    UPDATE = "update"
    REMOVAL = "removal"
    ADDITION = "addition"
    DELETION = "deletion"


@dataclass(frozen=True, slots=True)
class Floor:
    """How many available clusters may be taken down.

    Of `number` clusters `limit` may be unavailable. `ready` are available; `at_risk` of them are being
    taken down by the very answer that this belongs to.
    """

    number: int
    limit: int
    ready: int
    at_risk: int = 0

    @property
    def floor(self) -> int:
        """Give how many must stay available."""
        return max(0, self.number - self.limit)

    @property
    def allowed(self) -> int:
        """Count how many more may be taken down."""
        return max(0, self.ready - self.at_risk - self.floor)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """How many clusters may be added: beyond `number`, `limit` more may hold resources.

    `holding` hold them, in flight and failing ones too; `added` are those that the answer adds.
    """

    number: int
    limit: int
    holding: int
    added: int = 0

    @property
    def ceiling(self) -> int:
        """Give how many may hold resources at once."""
        return self.number + self.limit

    @property
    def allowed(self) -> int:
        """Count how many more may be added."""
        return max(0, self.ceiling - self.holding - self.added)


@dataclass(frozen=True, slots=True)
class Slots:
    """How many removals may run at once while a placement is being deleted (lifecycle A.11)."""

    limit: int
    running: int
    started: int = 0

    @property
    def allowed(self) -> int:
        """Count how many more may start."""
        return max(0, self.limit - self.running - self.started)


@dataclass(frozen=True, slots=True)
class Budgets:
    """Both budgets; that of taking down measures updates and removals against different numbers.

    `deletion` is there while the placement is being deleted, and then it is the only one that counts.
    """

    updates: Floor
    removals: Floor
    additions: Ceiling
    deletion: Slots | None = None

    def allows(self, cost: Cost) -> bool:
        """Tell whether one more start of this cost keeps the inequality that binds it."""
        if cost is Cost.FREE:
            return True
        if cost is Cost.UPDATE:
            return self.updates.allowed > 0
        if cost is Cost.REMOVAL:
            return self.removals.allowed > 0
        if cost is Cost.ADDITION:
            return self.additions.allowed > 0
        return self.deletion is not None and self.deletion.allowed > 0

    def after(self, cost: Cost) -> "Budgets":
        """Give the budgets after one start."""
        if cost is Cost.FREE:
            return self
        if cost is Cost.ADDITION:
            return replace(self, additions=replace(self.additions, added=self.additions.added + 1))
        if cost is Cost.DELETION and self.deletion:
            return replace(self, deletion=replace(self.deletion, started=self.deletion.started + 1))
        at_risk = self.updates.at_risk + 1
        return replace(
            self,
            updates=replace(self.updates, at_risk=at_risk),
            removals=replace(self.removals, at_risk=at_risk),
        )


def budgets_of(state: RolloutState) -> Budgets:
    """Work out the budgets before anything starts; a percentage is of its own N, rounded up."""
    selected, asked_for = state.number_selected, state.number_asked_for
    ready = sum(map(state.is_available, state.clusters))
    holding = sum(cluster.has_resources and cluster.is_reachable for cluster in state.clusters)
    unavailable, surge = state.strategy.max_unavailable, state.strategy.max_surge
    return Budgets(
        Floor(selected, unavailable.of(selected), ready),
        Floor(asked_for, unavailable.of(asked_for), ready),
        Ceiling(selected, surge.of(selected), holding),
        _slots(state),
    )


def _slots(state: RolloutState) -> Slots | None:
    if state.deletion is None:
        return None
    running = sum(each.phase is Phase.REMOVING and each.is_reachable for each in state.clusters)
    return Slots(max(1, state.strategy.max_unavailable.of(state.deletion.number)), running)
