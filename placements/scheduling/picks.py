"""What a picker returns."""

from dataclasses import dataclass

from placements.scheduling.columns import Codes
from placements.scheduling.spread.base import Scores


@dataclass(frozen=True)
class Picks:
    """The positions picked, in order, with the columns of the spread score that each had in its round.

    `ran_dry` says that a last round was evaluated and found no candidate.
    """

    positions: Codes
    spread: tuple[Scores, ...]
    ran_dry: bool
