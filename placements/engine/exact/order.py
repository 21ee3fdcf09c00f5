"""An order of single picks in which no hard limit is exceeded on the way (`docs/concepts/scheduling.md`)."""

from hashlib import blake2b

import numpy as np

from clusters.columns import ABSENT, Ints
from placements.engine.exact.model import ExactModel
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
    counts = [one.start.copy() for one in model.constraints]
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
