"""The exact search of one decision, and its record."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from importlib.metadata import version
from typing import Any

import numpy as np

from clusters.columns import ABSENT, Ints
from placements.engine.exact.conflict import (
    ConflictAnalysis,
    Correction,
    Element,
    ShoppingItem,
)
from placements.engine.exact.model import (
    STAGES,
    ExactModel,
    InvalidSolutionError,
    ModelProgram,
    SetColumns,
    best_set,
    build_model,
)
from placements.engine.exact.solver import SearchLimits
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.cycle import NO_CLUSTERS
from placements.engine.scheduling.decision import ENGINE_VERSION, CycleKind, Decision
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.spread.base import SkewAfterPick, levels_of

_BROKEN = 1 << 40


def find_order(
    model: ExactModel, picks: Ints, *, most_states: int
) -> tuple[list[int] | None, bool]:
    """Return the cells in an order of picking, None where there is none, and whether that is settled.

    `picks` are counts per cell. Depth first with a memory of visited multisets; the pick with the best
    resulting skew first.
    """
    left, order = picks.copy(), list[int]()
    counts = [constraint.start.copy() for constraint in model.constraints]
    visited = {_digest(left)}
    choices = [_choices(model, counts, left)]
    while left.any():
        if len(visited) > most_states:
            return None, False
        while choices[-1]:
            cell = choices[-1].pop()
            left[cell] -= 1
            if (digest := _digest(left)) not in visited:
                visited.add(digest)
                break
            left[cell] += 1
        else:
            choices.pop()
            if not order:
                return None, True
            cell = order.pop()
            left[cell] += 1
            _count(model, counts, cell, -1)
            continue
        order.append(cell)
        _count(model, counts, cell, 1)
        choices.append(_choices(model, counts, left))
    return order, True


def _digest(left: Ints) -> bytes:
    return blake2b(left.tobytes(), digest_size=16).digest()


def _count(model: ExactModel, counts: list[Ints], cell: int, by: int) -> None:
    for column, codes in zip(counts, model.codes, strict=True):
        if codes[cell] != ABSENT:
            column[codes[cell]] += by


def _choices(model: ExactModel, counts: list[Ints], left: Ints) -> list[int]:
    """Return the cells that may be picked next, the best last."""
    cells = np.nonzero(left)[0]
    cost = np.zeros(len(cells), dtype=np.int64)
    for constraint, column, codes in zip(
        model.constraints, counts, model.codes, strict=True
    ):
        levels = levels_of(column)
        after = SkewAfterPick(column, levels).after
        is_broken = constraint.is_hard & (after > max(constraint.max_skew, levels.skew))
        by_domain = np.append(np.where(is_broken, _BROKEN, after), levels.skew)
        cost += by_domain[codes[cells]]
    cells, cost = cells[cost < _BROKEN], cost[cost < _BROKEN]
    choices: list[int] = cells[np.argsort(-cost, kind="stable")].tolist()
    return choices


MOST_CLASSES, MOST_CONSTRAINTS = 50_000, 8
_INLINE_CLASSES, _INLINE_CONSTRAINTS = 2_000, 3
_CLASSES_SHOWN = 200


class ExactVerdict(StrEnum):
    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    IMPOSSIBLE = "impossible"
    OPEN = "open"


class OpenReason(StrEnum):
    SEMANTICS = "semantics-not-supported"
    START_OVER_LIMIT = "start-over-limit"
    NOTHING_TO_PICK = "nothing-to-pick"
    TOO_LARGE = "too-large"
    TIME_LIMIT = "time-limit"
    NODE_LIMIT = "node-limit"
    SOLVER_ENDED = "solver-ended"
    CHECK_FAILED = "check-failed"


class PickOrder(StrEnum):
    """Whether the set has an order of picks in which every prefix keeps the hard limits."""

    POSSIBLE = "possible"
    IMPOSSIBLE = "impossible"
    OPEN = "open"


@dataclass(frozen=True)
class SearchOptions:
    """What a search computes and may use; `most_states` bounds the search for an order of the picks."""

    stages: tuple[str, ...] = STAGES
    limit_seconds: float = 10
    node_limit: int = 20_000
    most_states: int = 200_000


DEFAULT_OPTIONS = SearchOptions()
INLINE_OPTIONS = SearchOptions(limit_seconds=2, most_states=5_000)
REQUEST_OPTIONS = SearchOptions(most_states=15_000)
"""For the search of a request: 200,000 states take longer than the whole limit of the solver."""


@dataclass(frozen=True)
class ClassRow:
    """The clusters that agree in all topology keys: how many there are, and how many are in each set."""

    domains: dict[str, str | None]
    greedy: int
    exact: int
    size: int

    def to_plain(self) -> dict[str, Any]:
        return {
            "domains": self.domains,
            "greedy": self.greedy,
            "exact": self.exact,
            "size": self.size,
        }


@dataclass(frozen=True)
class ExactRecord:
    """The result of an exact search; `low` and `high` bound the number that is possible.

    The clusters of the placement stay. `most_with_moves` is the number that is possible where they may leave,
    if that is more.
    """

    id: str
    decision: str
    verdict: ExactVerdict
    reason: OpenReason | None
    wanted: int
    low: int
    high: int
    most_with_moves: int | None = None
    picks: tuple[str, ...] = ()
    sequence: tuple[str, ...] = ()
    greedy: SetColumns | None = None
    exact: SetColumns | None = None
    missed: tuple[str, ...] = ()
    instead_of: tuple[str, ...] = ()
    order: PickOrder = PickOrder.OPEN
    conflict: tuple[tuple[Element, ...], ...] = ()
    corrections: tuple[Correction, ...] = ()
    shopping: tuple[ShoppingItem, ...] = ()
    classes: tuple[ClassRow, ...] = ()
    seconds: float = 0
    nodes: int = 0
    cut_stages: tuple[str, ...] = field(default=())

    @property
    def is_possible(self) -> bool:
        return self.verdict in (ExactVerdict.OPTIMAL, ExactVerdict.FEASIBLE)

    @property
    def has_better_set(self) -> bool:
        return bool(self.missed or self.most_with_moves)

    @property
    def is_final(self) -> bool:
        ended = (OpenReason.TIME_LIMIT, OpenReason.SOLVER_ENDED)
        return not self.cut_stages and self.reason not in ended

    def to_plain(self) -> dict[str, Any]:
        columns = None
        if self.greedy is not None and self.exact is not None:
            columns = {"greedy": self.greedy.to_plain(), "exact": self.exact.to_plain()}
        return {
            "id": self.id,
            "decision": self.decision,
            "verdict": str(self.verdict),
            "reason": None if self.reason is None else str(self.reason),
            "wanted": self.wanted,
            "most": [self.low, self.high],
            "mostWithMoves": self.most_with_moves,
            "picks": list(self.picks),
            "sequence": list(self.sequence),
            "columns": columns,
            "missed": list(self.missed),
            "insteadOf": list(self.instead_of),
            "order": str(self.order),
            "conflict": [
                [element.to_plain() for element in elements]
                for elements in self.conflict
            ],
            "corrections": [correction.to_plain() for correction in self.corrections],
            "shopping": [item.to_plain() for item in self.shopping],
            "classes": [class_row.to_plain() for class_row in self.classes],
            "seconds": round(self.seconds, 4),
            "nodes": self.nodes,
            "cutStages": list(self.cut_stages),
        }


def record_id(decision_id: str, options: SearchOptions) -> str:
    identity = {
        "decision": decision_id,
        "stages": [stage for stage in STAGES if stage in options.stages],
        "limits": {
            "limitSeconds": options.limit_seconds,
            "nodeLimit": options.node_limit,
            "states": options.most_states,
        },
        "engine": ENGINE_VERSION,
        "highspy": version("highspy"),
    }
    text = json.dumps(
        identity, ensure_ascii=False, sort_keys=True, separators=(",", ":")
    )
    return "x-" + hashlib.sha256(text.encode()).hexdigest()[:32]


def open_record(
    decision: Decision, reason: OpenReason, options: SearchOptions = DEFAULT_OPTIONS
) -> ExactRecord:
    """Return the record of a search that determined nothing."""
    wanted = decision.cycle.policy.number_of_clusters or 0
    placed = len(decision.kept) + len(decision.chosen)
    low, high = placed, max(placed, min(wanted, len(decision.cycle.fleet)))
    return ExactRecord(
        record_id(decision.id, options),
        decision.id,
        ExactVerdict.OPEN,
        reason,
        wanted,
        low,
        high,
    )


def model_of(decision: Decision) -> ExactModel | OpenReason:
    profile = profile_of(decision.cycle)
    if not profile.has_exact_search:
        return OpenReason.SEMANTICS
    if decision.kind is not CycleKind.PICK or decision.candidates is None:
        return OpenReason.NOTHING_TO_PICK
    needed = (decision.cycle.policy.number_of_clusters or 0) - len(decision.kept)
    model = build_model(
        decision.candidates, needed, decision.chosen, passes=decision.candidates.passes
    )
    over = any(
        constraint.is_hard and constraint.limit > constraint.max_skew
        for constraint in model.constraints
    )
    if over and profile.is_blocked_over_limit:
        return OpenReason.START_OVER_LIMIT
    if len(model.sizes) > MOST_CLASSES or len(model.constraints) > MOST_CONSTRAINTS:
        return OpenReason.TOO_LARGE
    return model


def is_small(model: ExactModel) -> bool:
    """Return whether a search is fast enough to run while a page is computed."""
    return (
        len(model.sizes) <= _INLINE_CLASSES
        and len(model.constraints) <= _INLINE_CONSTRAINTS
    )


def inline_search(
    decision: Decision, options: SearchOptions = INLINE_OPTIONS
) -> ExactRecord | None:
    """Search where a decision is unfulfilled and the search is fast; else return None.

    The record is open where no search is possible, None where a search takes longer.
    """
    if decision.is_fulfilled:
        return None
    model = model_of(decision)
    if isinstance(model, ExactModel):
        return exact_search(decision, options) if is_small(model) else None
    return (
        None
        if model is OpenReason.NOTHING_TO_PICK
        else open_record(decision, model, options)
    )


def exact_search(
    decision: Decision, options: SearchOptions = DEFAULT_OPTIONS
) -> ExactRecord:
    """Return the best set that a decision could have picked, and why it is not larger."""
    model = model_of(decision)
    if isinstance(model, OpenReason):
        return open_record(decision, model, options)
    limits = SearchLimits(options.limit_seconds, options.node_limit)
    try:
        best = best_set(model, limits, options.stages)
        names = _check_set(decision, model, best.picks)
    except InvalidSolutionError:
        return open_record(decision, OpenReason.CHECK_FAILED, options)
    kept, size = len(decision.kept), int(best.picks.sum())
    verdict, reason = _verdict(model, best.most, size, best.cut_stages, limits)
    cells, cell_of = model.cells
    by_cell = np.bincount(
        cell_of, weights=best.picks, minlength=len(cells.sizes)
    ).astype(np.int64)
    order, settled = find_order(cells, by_cell, most_states=options.most_states)
    found_order = PickOrder.POSSIBLE if order is not None else PickOrder.OPEN
    if order is None and settled:
        found_order = PickOrder.IMPOSSIBLE
    record = ExactRecord(
        record_id(decision.id, options),
        decision.id,
        verdict,
        reason,
        wanted=model.needed + kept,
        low=kept + size,
        high=kept + best.most,
        picks=names,
        sequence=() if order is None else _sequence(decision, model, best.picks, order),
        greedy=model.columns(model.greedy),
        exact=model.columns(best.picks),
        missed=tuple(sorted(set(names) - set(decision.picked_names))),
        instead_of=tuple(sorted(set(decision.picked_names) - set(names))),
        order=found_order,
        classes=tuple(_class_rows(cells, by_cell)),
        cut_stages=best.cut_stages,
    )
    if verdict is ExactVerdict.IMPOSSIBLE:
        conflict = ConflictAnalysis(decision, model.needed, limits)
        sets = conflict.correction_sets()
        record = replace(
            record,
            conflict=tuple(conflict.smallest_conflicts(sets)),
            corrections=tuple(conflict.corrections(sets)),
            shopping=tuple(conflict.shopping()),
        )
    if verdict is ExactVerdict.IMPOSSIBLE and kept:
        unbound = candidates_of(replace(decision.cycle, bindings=()))
        cells, _ = build_model(
            unbound, record.wanted, NO_CLUSTERS, passes=unbound.passes
        ).cells
        most = int(ModelProgram.of(cells, cells.greedy).stage("n", limits)[0].sum())
        record = replace(record, most_with_moves=most if most > record.high else None)
    return replace(
        record,
        seconds=options.limit_seconds - limits.seconds,
        nodes=options.node_limit - limits.nodes,
    )


def _verdict(
    model: ExactModel, most: int, size: int, cut: tuple[str, ...], limits: SearchLimits
) -> tuple[ExactVerdict, OpenReason | None]:
    if size == model.needed:
        return (ExactVerdict.FEASIBLE if cut else ExactVerdict.OPTIMAL), None
    if most < model.needed:
        return ExactVerdict.IMPOSSIBLE, None
    return (
        ExactVerdict.OPEN,
        OpenReason.NODE_LIMIT if limits.seconds > 0 else OpenReason.TIME_LIMIT,
    )


def _check_set(decision: Decision, model: ExactModel, picks: Ints) -> tuple[str, ...]:
    """Return the names of a set after checking it without the model. Raise InvalidSolutionError."""
    candidates = decision.candidates
    positions = model.members(picks)
    if (
        candidates is None
        or not candidates.passes[positions].all()
        or len(positions) > model.needed
    ):
        raise InvalidSolutionError
    for constraint in model.constraints:
        counts = constraint.start + candidates.groups[constraint.index].count(positions)
        if constraint.is_hard and int(counts.max() - counts.min()) > constraint.limit:
            raise InvalidSolutionError
    return tuple(map(decision.cycle.fleet.names.__getitem__, positions.tolist()))


def _sequence(
    decision: Decision, model: ExactModel, picks: Ints, order: list[int]
) -> tuple[str, ...]:
    """Return the names in the order of the cells, of each cell the best ranked first."""
    _, cell_of = model.cells
    class_at = dict(zip(model.positions.tolist(), model.class_of.tolist(), strict=True))
    by_cell: dict[int, list[tuple[int, int]]] = {}
    for position in model.members(picks).tolist():
        one = class_at[position]
        by_cell.setdefault(int(cell_of[one]), []).append(
            (int(model.affinity[one]), position)
        )
    for members in by_cell.values():
        members.sort()
    return tuple(decision.cycle.fleet.names[by_cell[cell].pop()[1]] for cell in order)


def _class_rows(cells: ExactModel, exact: Ints) -> Iterable[ClassRow]:
    """Yield the classes that one of the sets uses, those that differ most first."""
    used = np.nonzero((cells.greedy + exact) > 0)[0]
    most_different = used[
        np.argsort(-np.abs(exact - cells.greedy)[used], kind="stable")
    ]
    for at in most_different[:_CLASSES_SHOWN].tolist():
        domains = {
            constraint.key: constraint.values[codes[at]]
            if codes[at] != ABSENT
            else None
            for constraint, codes in zip(cells.constraints, cells.codes, strict=True)
        }
        yield ClassRow(
            domains, int(cells.greedy[at]), int(exact[at]), int(cells.sizes[at])
        )
