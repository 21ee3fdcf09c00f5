"""The budget of a rolling update: its limits and their inputs (`rules/lifecycle.md#budgets`)."""

from dataclasses import dataclass, replace
from enum import StrEnum

from fleetui.apimachinery.model import IntOrPercent
from placements.engine.rollout.state import Deletion, Phase, RolloutState


class BudgetKind(StrEnum):
    """The budget that a start uses."""

    FREE = "free"
    UPDATE = "update"
    REMOVAL = "removal"
    ADDITION = "addition"
    DELETION = "deletion"


@dataclass(frozen=True, slots=True)
class MinAvailable:
    """How many available clusters may become unavailable.

    Of `number` clusters `limit` may be unavailable. `ready` are available; `at_risk` of them are being
    made unavailable by the result that this belongs to.
    """

    number: int
    limit: int
    ready: int
    at_risk: int = 0

    @property
    def minimum(self) -> int:  # how many must stay available
        return max(0, self.number - self.limit)

    @property
    def allowed(self) -> int:  # how many more may become unavailable
        return max(0, self.ready - self.at_risk - self.minimum)


@dataclass(frozen=True, slots=True)
class MaxTotal:
    """How many clusters may be added: beyond `number`, `limit` more may hold resources.

    `holding` hold them, in flight and failing ones too; `added` are those that the result adds.
    """

    number: int
    limit: int
    holding: int
    added: int = 0

    @property
    def maximum(self) -> int:  # how many may hold resources at once
        return self.number + self.limit

    @property
    def allowed(self) -> int:  # how many more may be added
        return max(0, self.maximum - self.holding - self.added)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many clusters may be worked on at once: removals of a deletion, or updates of a stage."""

    limit: int
    running: int
    started: int = 0

    @property
    def allowed(self) -> int:  # how many more may start
        return max(0, self.limit - self.running - self.started)


@dataclass(frozen=True, slots=True)
class Budgets:
    """Both budgets; that of taking down measures updates and removals against different numbers.

    `deletion` is set while the placement is being deleted, and then it is the only one that counts.
    """

    updates: MinAvailable
    removals: MinAvailable
    additions: MaxTotal
    deletion: Concurrency | None = None

    def room(self, kind: BudgetKind) -> int | None:
        """Return how many more starts keep the inequality that binds them; None is any number."""
        if kind is BudgetKind.FREE:
            return None
        if kind is BudgetKind.DELETION:
            return self.deletion.allowed if self.deletion else 0
        budgets = {BudgetKind.UPDATE: self.updates, BudgetKind.REMOVAL: self.removals}
        return budgets.get(kind, self.additions).allowed

    def after(self, kind: BudgetKind, starts: int) -> "Budgets":
        if kind in (BudgetKind.UPDATE, BudgetKind.REMOVAL):
            at_risk = self.updates.at_risk + starts
            updates, removals = (
                replace(available, at_risk=at_risk)
                for available in (self.updates, self.removals)
            )
            return replace(self, updates=updates, removals=removals)
        if kind is BudgetKind.ADDITION:
            return replace(
                self,
                additions=replace(self.additions, added=self.additions.added + starts),
            )
        if kind is BudgetKind.DELETION and self.deletion:
            return replace(
                self,
                deletion=replace(self.deletion, started=self.deletion.started + starts),
            )
        return self


def budgets_of(state: RolloutState) -> Budgets:
    selected = state.number_selected
    ready = sum(map(state.is_available, state.clusters))
    holding = sum(
        cluster.has_resources and cluster.is_reachable for cluster in state.clusters
    )
    deletion = None
    if state.deletion is not None:
        running = sum(
            cluster.phase is Phase.REMOVING and cluster.is_reachable
            for cluster in state.clusters
        )
        deletion = Concurrency(0, running)
    budgets = Budgets(
        MinAvailable(selected, 0, ready),
        MinAvailable(state.number_required, 0, ready),
        MaxTotal(selected, state.strategy.max_surge.of(selected), holding),
        deletion,
    )
    return limited(budgets, state.strategy.max_unavailable, state.deletion)


def limited(
    budgets: Budgets, unavailable: IntOrPercent, deletion: Deletion | None
) -> Budgets:
    """Return the budgets with this `maxUnavailable`; a percentage is of its own N, rounded up."""
    updates, removals = (
        replace(available, limit=unavailable.of(available.number))
        for available in (budgets.updates, budgets.removals)
    )
    at_once = budgets.deletion
    if deletion is not None and at_once is not None:
        at_once = replace(at_once, limit=max(1, unavailable.of(deletion.number)))
    return Budgets(updates, removals, budgets.additions, at_once)
