"""The best set of clusters that a placement can reach with few moves.

A move is one cluster that leaves. Sets are compared column by column: placed, excess of hard limits, excess
of soft limits, stale clusters kept, skew, affinity, moves (`docs/concepts/scheduling.md`).
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import count
from math import inf

import numpy as np

from clusters.columns import Ints
from placements.engine.exact.model import ExactModel, ModelProgram, build_model
from placements.engine.exact.record import (
    DEFAULT_OPTIONS,
    INLINE_OPTIONS,
    MOST_CLASSES,
    MOST_CONSTRAINTS,
    SearchOptions,
    is_small,
)
from placements.engine.exact.solver import SearchLimits
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import Batch, Cycle
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import is_hard
from placements.manifests.policy import PlacementType

_KNEE = 0.8  # of the possible gain


class NoPlanReason(StrEnum):
    """Why a placement cannot be rescheduled with few moves."""

    TYPE = "type-not-supported"
    SEMANTICS = "semantics-not-supported"
    OBSOLETE = "obsolete-bindings"
    SCALES_DOWN = "scales-down"
    TOO_LARGE = "too-large"


@dataclass(frozen=True)
class CurvePoint:
    """The best set with at most `limit` moves, by the columns that compare sets."""

    limit: int
    placed: int
    hard_excess: int
    excess: int
    stale: int
    skew: int
    affinity: int
    moves: int


def hub_difference(
    cycle: Cycle, plan: "MovePlan"
) -> tuple[int, tuple[str, ...]] | None:
    """Return after how many evictions the scheduler itself would leave a plan, and what it would select then.

    A live hub decides itself: there, a plan can only be followed by evicting the clusters that leave, one
    after another. None: that selects the clusters of the plan.
    """
    joins = {*plan.joins}
    for number, leaving in enumerate(plan.leaves, start=1):
        left = tuple(
            binding
            for binding in cycle.live_bindings
            if binding.is_active and binding.cluster != leaving
        )
        decision = schedule(replace(cycle, bindings=left))
        picked = {*decision.picked_names}
        is_last = number == len(plan.leaves)
        if not picked or not picked <= joins or (is_last and picked != joins):
            return number, decision.picked_names
        joins -= picked
        cycle = replace(cycle, bindings=decision.bindings_after)
    return None


@dataclass(frozen=True)
class MovePlan:
    """The curve of what each number of moves reaches, and the clusters that one point of it changes."""

    wanted: int
    current: CurvePoint
    curve: tuple[CurvePoint, ...]
    chosen: CurvePoint
    leaves: tuple[str, ...]
    joins: tuple[str, ...]
    is_cut: bool

    @property
    def batch(self) -> Batch:
        return Batch(self.leaves, self.joins)


@dataclass(frozen=True)
class MoveModel:
    """The classes of the clusters that pass or are placed; a class is placed, placed and stale, or free."""

    cycle: Cycle
    model: ExactModel
    hard: tuple[bool, ...]
    stale: Ints

    @property
    def placed(self) -> Ints:
        return self.model.greedy

    def point(self, limit: int, picks: Ints) -> CurvePoint:
        skews = self.skews(picks)
        over = [
            max(0, skew - constraint.max_skew)
            for skew, constraint in zip(skews, self.model.constraints, strict=True)
        ]
        hard = sum(
            one for one, is_limit in zip(over, self.hard, strict=True) if is_limit
        )
        return CurvePoint(
            limit,
            placed=int(picks.sum()),
            hard_excess=hard,
            excess=sum(over) - hard,
            stale=int(picks @ self.stale),
            skew=sum(skews),
            affinity=int(picks @ self.model.affinity),
            moves=int(np.maximum(self.placed - picks, 0).sum()),
        )

    def skews(self, picks: Ints) -> list[int]:
        parts = zip(self.model.constraints, self.model.codes, strict=True)
        counts = (constraint.counts(picks, codes) for constraint, codes in parts)
        return [int(one.max() - one.min()) for one in counts]

    def best(
        self,
        start: Ints,
        limits: SearchLimits,
        *,
        most: int | None = None,
        fewest: bool = False,
        optimum: Ints | None = None,
    ) -> tuple[Ints, bool]:
        """Return the best set with at most `most` moves, and whether every stage was proved.

        No hard limit is exceeded by more than today. With `fewest` only the number placed and the hard excess
        are optimised, then the moves. `optimum` has the values of the best set of any number of moves, where
        it is known.
        """
        program = ModelProgram.of(self.model, start)
        placed = np.nonzero(self.placed)[0]
        if most is not None and len(placed):
            program.program.add_row(placed, 1, int(self.placed.sum()) - most, inf)
        excess = program.first + 2 * len(self.hard)
        parts = zip(
            self.skews(self.placed), self.model.constraints, self.hard, strict=True
        )
        for at, (skew, constraint, is_limit) in enumerate(parts, start=excess):
            if is_limit:
                program.program.add_row(
                    [at], [1], -inf, max(0, skew - constraint.max_skew)
                )
        nothing = np.zeros(program.width, dtype=np.int64)
        hard, stale, moves = nothing.copy(), nothing.copy(), nothing.copy()
        hard[excess:] = self.hard
        stale[: len(self.stale)] = self.stale
        moves[placed] = -1
        stages = [program.cost("n"), hard]
        if not fewest:
            soft = program.cost("excess") - hard
            stages += [soft, stale, program.cost("skew"), program.cost("affinity")]
        is_proved = True
        for cost in [*stages, moves]:
            lowest = -self.model.needed if cost is stages[0] else None
            if optimum is not None:
                lowest = int(cost @ optimum)
            if cost.any():
                solution = program.minimise(cost, limits, lowest=lowest)
                if cost is stages[0]:
                    program.require(-solution.cost)
                is_proved &= solution.is_proved
                if solution.cost != lowest:
                    optimum = None  # a stage that is worse than in the optimum leaves the next ones room
        return program.program.values[: len(self.stale)], is_proved


def move_model(cycle: Cycle) -> MoveModel | NoPlanReason:
    """Return the model of the moves of a placement, or why there is none."""
    if cycle.policy.placement_type is not PlacementType.PICK_N:
        return NoPlanReason.TYPE
    if not profile_of(cycle).has_exact_search:
        return NoPlanReason.SEMANTICS
    if cycle.binding_classes.obsolete:
        return NoPlanReason.OBSOLETE
    number = cycle.policy.number_of_clusters or 0
    if len(cycle.placed) > number:
        return NoPlanReason.SCALES_DOWN
    candidates = candidates_of(replace(cycle, bindings=()))
    # The column *was here* has no part in a plan: it separates the free, placed and stale classes.
    kind = cycle.is_placed.astype(np.int64)
    kind += cycle.is_placed & ~candidates.passes
    constraints = candidates.constraints
    model = build_model(
        replace(candidates, was_here=kind),
        number,
        cycle.placed,
        passes=candidates.passes | cycle.is_placed,
        soft=frozenset(range(len(constraints))),
    )
    if len(model.sizes) > MOST_CLASSES or len(model.constraints) > MOST_CONSTRAINTS:
        return NoPlanReason.TOO_LARGE
    stale = np.zeros_like(model.sizes)
    stale[model.class_of] = kind[model.positions] == 2  # placed and stale
    hard = tuple(
        is_hard(constraints[constraint.index]) for constraint in model.constraints
    )
    return MoveModel(cycle, model, hard, stale)


def can_balance(cycle: Cycle) -> bool | None:
    """Return whether moves exceed hard limits less; None where no fast search finds out."""
    model = move_model(cycle)
    if isinstance(model, NoPlanReason) or not is_small(model.model):
        return None
    limits = SearchLimits(INLINE_OPTIONS.limit_seconds, INLINE_OPTIONS.node_limit)
    best, is_proved = model.best(model.placed, limits, fewest=True)
    today = model.point(0, model.placed).hard_excess
    is_better = model.point(0, best).hard_excess < today
    if not is_better and not is_proved:
        return None
    return is_better


def plan_moves(
    cycle: Cycle, *, moves: int | None = None, options: SearchOptions = DEFAULT_OPTIONS
) -> MovePlan | NoPlanReason:
    """Return the curve, and the changes by at most `moves` moves; None takes the fewest that repair."""
    model = move_model(cycle)
    if isinstance(model, NoPlanReason):
        return model
    limits = SearchLimits(options.limit_seconds, options.node_limit)
    wanted = model.model.needed
    current = model.point(0, model.placed)
    repaired, is_proved = model.best(model.placed, limits, fewest=True)
    fewest = model.point(0, repaired).moves
    optimum, optimum_is_proved = model.best(model.placed, limits)
    most = max(fewest, model.point(0, optimum).moves)
    steps = (lead * 10**power for power in count() for lead in (1, 2, 5))
    bound = (
        ModelProgram.of(model.model, optimum).program.values
        if optimum_is_proved
        else None
    )
    points_at = {0, fewest, most} | ({min(moves, most)} if moves is not None else set())
    for limit in steps:
        if limit >= most:
            break
        points_at.add(limit)
    sets, start, is_cut = (
        dict[int, Ints](),
        model.placed,
        not (is_proved and optimum_is_proved),
    )
    for limit in sorted(points_at):
        # The set of the limit before is a start: a search that is cut never makes the curve worse.
        if limit == most and optimum_is_proved:
            start = optimum
        elif limit or current.placed < wanted:  # else all is full as it is
            start, is_proved = model.best(start, limits, most=limit, optimum=bound)
        sets[limit], is_cut = start, is_cut or not is_proved
    points = {limit: model.point(limit, picks) for limit, picks in sets.items()}
    if moves is not None:
        chosen = min(moves, most)
    elif current.hard_excess or fewest:
        chosen = fewest
    else:
        chosen = _knee(list(points.values()))
    leaves, joins = _moved_names(model, sets[chosen])
    return MovePlan(
        wanted, current, tuple(points.values()), points[chosen], leaves, joins, is_cut
    )


def _knee(points: list[CurvePoint]) -> int:
    """Return the first limit with most of the gain in the first column that the best set improves."""
    first, last = points[0], points[-1]
    for column in ("excess", "stale", "skew", "affinity"):
        gains = [
            abs(getattr(point, column) - getattr(first, column)) for point in points
        ]
        if gains[-1]:
            enough = gains[-1] * (1 if column == "stale" else _KNEE)
            return next(
                point.limit
                for point, gain in zip(points, gains, strict=True)
                if gain >= enough
            )
    return last.limit


def _moved_names(
    model: MoveModel, target: Ints
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the clusters that leave and those that join, the best affinity first, to get to a set."""
    exact = model.model
    name_at = model.cycle.fleet.names.__getitem__
    change = target - model.placed
    # By class, and in it as in all: ascending, the last are the best.
    order = np.lexsort((exact.positions, exact.affinity[exact.class_of]))
    classes = exact.class_of[order]
    by_class = np.argsort(classes, kind="stable")
    place = np.empty_like(classes)
    place[by_class] = (
        np.arange(len(classes))
        - (np.cumsum(exact.sizes) - exact.sizes)[classes[by_class]]
    )
    leaves = exact.positions[order[place < -change[classes]]]
    joins = exact.positions[order[place >= (exact.sizes - change)[classes]]]
    return tuple(map(name_at, leaves.tolist())), tuple(
        map(name_at, joins[::-1].tolist())
    )
