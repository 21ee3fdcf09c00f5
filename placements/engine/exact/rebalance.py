"""The best set of clusters that a placement can reach with few moves, and a safe order of the changes.

A move is one cluster that leaves. Sets are compared column by column: placed, excess of hard limits, excess
of soft limits, stale clusters kept, skew, affinity, moves (`docs/concepts/scheduling.md`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import count
from math import inf
from typing import Any

import numpy as np

from clusters.columns import ABSENT, Ints
from fleetui.apimachinery.model import camel_case
from placements.engine.exact.model import ExactModel, ModelProgram, build_model
from placements.engine.exact.record import DEFAULT_OPTIONS, MOST_CLASSES, MOST_CONSTRAINTS, SearchOptions
from placements.engine.exact.solver import SearchLimits
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.engine.scheduling.spread.base import is_hard
from placements.manifests.policy import PlacementType

_MOST_CONSTRAINTS_ORDERED = 3
_KNEE = 0.8  # of the possible gain


class NoPlanReason(StrEnum):
    """Why a placement cannot be rebalanced."""

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

    def to_plain(self) -> dict[str, int]:
        return camel_case(asdict(self))


@dataclass(frozen=True)
class RebalanceStep:
    """One cluster that leaves or joins, with the skew and the hard excess summed after it."""

    leave: str | None
    join: str | None
    skew: int
    hard_excess: int
    breaks_limit: bool

    def to_plain(self) -> dict[str, Any]:
        return camel_case(asdict(self))


def hard_excess(cycle: Cycle, names: Iterable[str]) -> list[int]:
    """Return by how much a set of clusters exceeds each hard limit."""
    is_placed = np.zeros(len(cycle.fleet), dtype=np.bool_)
    is_placed[[cycle.fleet.positions[name] for name in names]] = True
    candidates = candidates_of(replace(cycle, bindings=(), batch=None))
    excesses = []
    for one, groups in zip(candidates.constraints, candidates.groups, strict=True):
        if is_hard(one) and len(groups) > 1:
            codes = groups.codes[is_placed & (groups.codes != ABSENT)]
            counts = np.bincount(codes, minlength=len(groups.values))
            excesses.append(max(0, int(counts.max() - counts.min()) - one.max_skew))
    return excesses


def batches_of(steps: Sequence[RebalanceStep], size: int) -> list[tuple[RebalanceStep, ...]]:
    """Cut ordered steps into batches of at most `size` swaps where the order allows it.

    A batch adds as many clusters as it removes, except for those that make up for missing ones.
    """
    missing = sum(1 if step.leave is None else -1 for step in steps)
    batches: list[tuple[RebalanceStep, ...]] = []
    current: list[RebalanceStep] = []
    swaps = net = 0
    for step in steps:
        current.append(step)
        net += 1 if step.leave is None else -1
        if not 0 <= net <= missing:
            continue
        # Here the batch may end; a swap that is complete is counted.
        swaps += 1
        missing -= net
        net = 0
        if swaps == size:
            batches.append(tuple(current))
            current, swaps = [], 0
    return [*batches, tuple(current)] if current else batches


def hub_difference(
    cycle: Cycle, batches: Iterable[Sequence[RebalanceStep]]
) -> tuple[int, tuple[str, ...]] | None:
    """Return the first batch in which the scheduler itself would choose other clusters, and which.

    A live hub decides itself: there, a plan can only be followed by evictions of the clusters that leave.
    None: after each batch of evictions the scheduler chooses the clusters of the plan.
    """
    for number, batch in enumerate(batches, start=1):
        leaves = {step.leave for step in batch}
        joins = {step.join for step in batch if step.join}
        left = tuple(one for one in cycle.live_bindings if one.is_active and one.cluster not in leaves)
        decision = schedule(replace(cycle, bindings=left))
        if {*decision.picked_names} != joins:
            return number, decision.picked_names
        cycle = replace(cycle, bindings=decision.bindings_after)
    return None


@dataclass(frozen=True)
class MovePlan:
    """The curve of what each number of moves reaches, and the steps of one point of it."""

    wanted: int
    current: CurvePoint
    curve: tuple[CurvePoint, ...]
    chosen: CurvePoint
    steps: tuple[RebalanceStep, ...]
    is_cut: bool

    @property
    def is_safe(self) -> bool:
        return not any(step.breaks_limit for step in self.steps)

    def to_plain(self) -> dict[str, Any]:
        return {
            "wanted": self.wanted,
            "current": self.current.to_plain(),
            "curve": [point.to_plain() for point in self.curve],
            "chosen": self.chosen.to_plain(),
            "steps": [step.to_plain() for step in self.steps],
            "isSafe": self.is_safe,
            "isCut": self.is_cut,
        }


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
        over = [max(0, skew - one.max_skew) for skew, one in zip(skews, self.model.constraints, strict=True)]
        hard = sum(one for one, is_limit in zip(over, self.hard, strict=True) if is_limit)
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
        counts = (one.counts(picks, codes) for one, codes in parts)
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
        are optimised, then the moves. `optimum` is the best set of any number of moves, where it is known.
        """
        program = ModelProgram.of(self.model, start)
        placed = np.nonzero(self.placed)[0]
        if most is not None and len(placed):
            at_least = int(self.placed.sum()) - most
            program.program.add_row(placed, 1, at_least, inf)
        excess = program.first + 2 * len(self.hard)
        parts = zip(self.skews(self.placed), self.model.constraints, self.hard, strict=True)
        for at, (skew, one, is_limit) in enumerate(parts, start=excess):
            if is_limit:
                program.program.add_row([at], [1], -inf, max(0, skew - one.max_skew))
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
        best = None if optimum is None else ModelProgram.of(self.model, optimum).program.values
        for cost in [*stages, moves]:
            lowest = -self.model.needed if cost is stages[0] else None
            if best is not None:
                lowest = int(cost @ best)
            if cost.any():
                solution = program.minimise(cost, limits, lowest=lowest)
                if cost is stages[0]:
                    program.require(-solution.cost)
                is_proved &= solution.is_proved
                if solution.cost != lowest:
                    best = None  # a stage that is worse than in the optimum leaves the next ones room
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
    hard = tuple(is_hard(constraints[one.index]) for one in model.constraints)
    return MoveModel(cycle, model, hard, stale)


def plan_rebalance(
    cycle: Cycle,
    *,
    moves: int | None = None,
    max_unavailable: int = 1,
    max_surge: int = 1,
    options: SearchOptions = DEFAULT_OPTIONS,
) -> MovePlan | NoPlanReason:
    """Return the curve, and the steps for at most `moves` moves; None takes the fewest that repair."""
    model = move_model(cycle)
    if isinstance(model, NoPlanReason):
        return model
    limits = SearchLimits(options.limit_seconds, options.node_limit)
    current = model.point(0, model.placed)
    repaired, is_proved = model.best(model.placed, limits, fewest=True)
    fewest = model.point(0, repaired).moves
    optimum, optimum_is_proved = model.best(model.placed, limits)
    most = max(fewest, model.point(0, optimum).moves)
    steps = (lead * 10**power for power in count() for lead in (1, 2, 5))
    points_at = {0, fewest, most} | ({min(moves, most)} if moves is not None else set())
    for limit in steps:
        if limit >= most:
            break
        points_at.add(limit)
    sets, start, is_cut = dict[int, Ints](), model.placed, not (is_proved and optimum_is_proved)
    for limit in sorted(points_at):
        # The set of the limit before is a start: a search that is cut never makes the curve worse.
        if limit == most and optimum_is_proved:
            start = optimum
        else:
            bound = optimum if optimum_is_proved else None
            start, is_proved = model.best(start, limits, most=limit, optimum=bound)
        sets[limit], is_cut = start, is_cut or not is_proved
    points = {limit: model.point(limit, picks) for limit, picks in sets.items()}
    if moves is not None:
        chosen = min(moves, most)
    elif current.hard_excess or fewest:
        chosen = fewest
    else:
        chosen = _knee(list(points.values()))
    # One swap after another: a batch of several is a row of swaps, each of them safe.
    band = (min(1, max_unavailable), min(1, max_surge))
    ordered = find_safe_order(model, sets[chosen], band=band, most_states=options.most_states)
    wanted = cycle.policy.number_of_clusters or 0
    return MovePlan(wanted, current, tuple(points.values()), points[chosen], tuple(ordered), is_cut)


def _knee(points: list[CurvePoint]) -> int:
    """Return the first limit with most of the gain in the first column that the best set improves."""
    first, last = points[0], points[-1]
    for column in ("excess", "stale", "skew", "affinity"):
        gains = [abs(getattr(one, column) - getattr(first, column)) for one in points]
        if gains[-1]:
            enough = gains[-1] * (1 if column == "stale" else _KNEE)
            return next(one.limit for one, gain in zip(points, gains, strict=True) if gain >= enough)
    return last.limit


def find_safe_order(
    model: MoveModel, target: Ints, *, band: tuple[int, int], most_states: int
) -> Iterator[RebalanceStep]:
    """Yield the steps from today's set to another, in an order that raises the excess of no hard limit.

    Between steps the number placed stays within the band (maxUnavailable, maxSurge) around the number
    wanted. Where no such order is found, the steps that break a rule are marked.
    """
    cells, cell_of = model.model.cells
    size, change = len(cells.sizes), target - model.placed
    joins, leaves = (
        np.bincount(cell_of, weights=np.maximum(one, 0), minlength=size).astype(np.int64)
        for one in (change, -change)
    )
    search = _OrderSearch(model, cells, np.concatenate([joins, leaves]), band)
    is_searched = len(model.hard) <= _MOST_CONSTRAINTS_ORDERED
    order = search.exact(most_states) if is_searched else None
    if order is None:
        order = search.greedy()
    names = _name_queues(model, target, cell_of)
    state = search.start
    for operation in order:
        before, state = state, search.after(state, operation)
        name = next(names[operation])
        is_leave = operation >= size
        yield RebalanceStep(
            leave=name if is_leave else None,
            join=None if is_leave else name,
            skew=sum(state.skews),
            hard_excess=sum(search.excess(state)),
            breaks_limit=not search.is_allowed(before, state),
        )


def _name_queues(model: MoveModel, target: Ints, cell_of: Ints) -> list[Iterator[str]]:
    """Return the names that join in each cell, then those that leave; the best affinity joins first."""
    one, names = model.model, model.cycle.fleet.names
    order = np.lexsort((one.positions, one.affinity[one.class_of]))  # ascending: the last are the best
    left = np.abs(target - model.placed)
    cells = len(one.cells[0].sizes)
    queues: list[list[str]] = [[] for _ in range(2 * cells)]
    is_placed = model.placed > 0
    for leaving, sequence in ((False, order[::-1]), (True, order)):
        for at in sequence.tolist():
            of_class = int(one.class_of[at])
            if is_placed[of_class] == leaving and left[of_class]:
                left[of_class] -= 1
                queues[int(cell_of[of_class]) + cells * leaving].append(names[int(one.positions[at])])
    return [iter(each) for each in queues]


@dataclass(frozen=True)
class _OrderState:
    """The operations that are left, the counts per constraint and the number placed."""

    left: Ints
    counts: tuple[Ints, ...]
    placed: int

    @property
    def skews(self) -> list[int]:
        return [int(one.max() - one.min()) for one in self.counts]


class _OrderSearch:
    """The search of an order of operations: an index per cell to join, then one per cell to leave."""

    def __init__(self, model: MoveModel, cells: ExactModel, left: Ints, band: tuple[int, int]) -> None:
        self._model, self._codes, self._cells = model, cells.codes, len(cells.sizes)
        present = int(model.placed.sum())
        counts = tuple(
            one.counts(model.placed, codes)
            for one, codes in zip(model.model.constraints, model.model.codes, strict=True)
        )
        self.start = _OrderState(left, counts, present)
        self._least, self._most = present - band[0], model.model.needed + band[1]

    def after(self, state: _OrderState, operation: int) -> _OrderState:
        cell, by = operation % self._cells, 1 if operation < self._cells else -1
        left, counts = state.left.copy(), tuple(one.copy() for one in state.counts)
        left[operation] -= 1
        for column, codes in zip(counts, self._codes, strict=True):
            if codes[cell] != ABSENT:
                column[codes[cell]] += by
        return _OrderState(left, counts, state.placed + by)

    def excess(self, state: _OrderState) -> list[int]:
        parts = zip(state.skews, self._model.model.constraints, self._model.hard, strict=True)
        return [max(0, skew - one.max_skew) for skew, one, is_limit in parts if is_limit]

    def is_allowed(self, before: _OrderState, after: _OrderState) -> bool:
        if not self._least <= after.placed <= self._most:
            return False
        pairs = zip(self.excess(before), self.excess(after), strict=True)
        return all(now <= earlier for earlier, now in pairs)

    def _successors(self, state: _OrderState) -> list[tuple[tuple[bool, int, int], int, _OrderState]]:
        """Return the operations that are left, the worst first."""
        successors = []
        for operation in np.nonzero(state.left)[0].tolist():
            following = self.after(state, operation)
            is_broken = not self.is_allowed(state, following)
            cost = (is_broken, sum(self.excess(following)), sum(following.skews))
            successors.append((cost, operation, following))
        return sorted(successors, key=lambda one: one[:2], reverse=True)

    def exact(self, most_states: int) -> list[int] | None:
        """Search depth first with a memory; return None where no order exists or the budget is used up."""
        order, visited = list[int](), {self.start.left.tobytes()}
        states = [self.start]
        choices = [self._successors(self.start)]
        while states[-1].left.any():
            while choices[-1]:
                (is_broken, *_), operation, following = choices[-1].pop()
                if is_broken or (key := following.left.tobytes()) in visited:
                    continue
                visited.add(key)
                order.append(operation)
                states.append(following)
                choices.append(self._successors(following))
                break
            else:
                choices.pop()
                states.pop()
                if not order:
                    return None
                order.pop()
            if len(visited) > most_states:
                return None
        return order

    def greedy(self) -> list[int]:
        """Return an order by the best next operation, without going back."""
        order, state = list[int](), self.start
        while state.left.any():
            _, operation, state = self._successors(state)[-1]
            order.append(operation)
        return order
