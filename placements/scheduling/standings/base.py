"""Standings: how the cells of a run rank, kept up to date from pick to pick.

A strategy whose answers depend on who else contends has to judge every cell in every round. Asking it the
eight questions each time is slow; standings of its own know what one pick changes. `round_picker.py` picks by
them, and the tests compare all picks and scores with those of the eight questions.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from placements.scheduling.columns import ABSENT, Codes, Ints
from placements.scheduling.policy import TopologySpreadConstraint
from placements.scheduling.spread.base import Groups, Scores

FORBIDDEN = -(1 << 55)
"""What each limit that a pick would break adds to a whole number that ranks; 60 of them fit."""
OUT = -(1 << 54)
"""No pick that is allowed ranks as low as this."""


class OutOfRoomError(Exception):
    """The numbers that rank have outgrown their bits; the eight questions have to be asked."""


class Leader(NamedTuple):
    """The best cluster left in a cell: its position in the fleet, its rank without the spread (0 is best)."""

    position: int
    rank: int
    preference: float


@dataclass(frozen=True)
class Field:
    """A run at its start: the groups with cells for entries, counts per group, and who leads each cell.

    The columns `positions`, `ranks` and `preference` have an entry per cell and are those of its Leader. All
    ranks and positions of the run are below `size`, all preferences within `widest` of zero.
    """

    constraints: tuple[TopologySpreadConstraint, ...]
    groups: tuple[Groups, ...]
    counts: tuple[Ints, ...]
    positions: Ints
    ranks: Ints
    preference: Scores
    size: int
    widest: float


class Standings(Protocol):
    """Who is ahead, and with which spread score."""

    def best(self) -> int | None:
        """Judge the next round: give the cell whose leader ranks first, None when nobody contends."""

    def scores(self, cell: int) -> list[float]:
        """Give the columns of a cell's spread score in the round that was judged last."""

    def take(self, cell: int, successor: Leader | None) -> None:
        """Count the leader of a cell as picked; its successor leads from now on. Raises OutOfRoomError."""


@runtime_checkable
class StandingsStrategy(Protocol):
    """A strategy that keeps standings of its own."""

    def standings(self, field: Field) -> Standings | None:
        """Keep the standings of a run; None where only the eight questions can."""


def places(codes: Codes, absent: int | Ints) -> NDArray[np.intp]:
    """Give each entry the place of its group in a column by group, and `absent` where it is in none."""
    return np.where(codes == ABSENT, absent, codes).astype(np.intp)
