"""Cells: the clusters that are in the same domain of every constraint."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clusters.columns import Codes, Ints


def cells_of(columns: list[Codes]) -> tuple[Ints, NDArray[np.int32]]:
    """Number the distinct combinations of domains; give each cluster's cell, and each cell's domains."""
    cell_of = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        cell_of = cell_of * (int(column.max(initial=0)) - low + 1) + (column - low)
        cell_of = _renumber(cell_of)
    count = int(cell_of.max(initial=-1)) + 1
    groups = np.zeros((len(columns), count), dtype=np.int32)
    for index, column in enumerate(columns):
        groups[index, cell_of] = column
    return cell_of, groups


def _renumber(codes: Ints) -> Ints:
    """Number the values that occur from 0 without gaps, keeping their order."""
    room = int(codes.max(initial=0)) + 1
    if room > 4 * len(codes) + 1024:
        return np.unique(codes, return_inverse=True)[1]
    occurs = np.zeros(room, dtype=np.bool_)
    occurs[codes] = True
    return (np.cumsum(occurs) - 1)[codes]


def narrow(codes: Ints) -> NDArray[np.integer[Any]]:
    """Use 16 bits where they suffice, which makes a stable sort a radix sort."""
    return codes.astype(np.uint16) if codes.max(initial=0) < 1 << 16 else codes


def cells_by_group(group_of_cell: Codes | Ints, groups: int) -> list[Ints]:
    """Return the cells of each of so many domains; a cell in none has a negative code."""
    by_group = np.argsort(group_of_cell, kind="stable")
    bounds = np.searchsorted(group_of_cell[by_group], np.arange(groups + 1)).tolist()
    return [by_group[start:end] for start, end in pairwise(bounds)]
