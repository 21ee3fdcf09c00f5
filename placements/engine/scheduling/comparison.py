"""Comparison of the decisions for one placement under several semantics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from fleetui.apimachinery.model import DEFAULT_SEMANTICS, Semantics
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.round import Round


@dataclass(frozen=True, slots=True)
class SemanticsDifference:
    """The first place at which the choices differ.

    `place` counts from 1 in what each semantics places: kept clusters by name, then the picks. `choices` has
    None where a semantics has no cluster; `steps` the round in which a choice was made, or none was left.
    """

    place: int
    choices: dict[Semantics, str | None]
    steps: dict[Semantics, Round | None]


@dataclass(frozen=True)
class SemanticsComparison:
    """The decisions side by side; `base` is the one that the others are compared with."""

    decisions: Mapping[Semantics, Decision]
    base: Semantics = DEFAULT_SEMANTICS

    @property
    def is_fulfilled(self) -> bool:
        return all(decision.is_fulfilled for decision in self.decisions.values())

    @property
    def is_same_set(self) -> bool:
        return (
            len({frozenset(placed(decision)) for decision in self.decisions.values()})
            <= 1
        )

    @property
    def rows(self) -> list[dict[Semantics, str | None]]:
        columns = [placed(decision) for decision in self.decisions.values()]
        return [
            dict(zip(self.decisions, row, strict=True)) for row in zip_longest(*columns)
        ]

    @property
    def first_difference(self) -> SemanticsDifference | None:
        """Return where the choices differ; None where all place the same clusters in the same order."""
        return self.difference_among(tuple(self.decisions))

    def difference_among(self, some: Sequence[Semantics]) -> SemanticsDifference | None:
        """Return where the choices of some of them differ; None where those agree in the same order."""
        for place, row in enumerate(self.rows, start=1):
            choices = {semantics: row[semantics] for semantics in some}
            if len(set(choices.values())) > 1:
                steps = {
                    choice: _round_at(self.decisions[choice], place)
                    for choice in choices
                }
                return SemanticsDifference(place, choices, steps)
        return None


@dataclass(frozen=True)
class FirstDifference:
    """Where a decision and other rules differ for more than a name, with the places before as decided.

    `place` counts from 1; `choice` is the decision's, `instead` that of the other rules, each None for no
    cluster. `step` and `other_step` are the two rounds, the second with the decision's choices before it.
    """

    place: int
    choice: str | None
    instead: str | None
    step: Round | None
    other_step: Round


_MOST_FOLLOWED = 200
_MOST_JUDGED = 1_000_000


def last_followed(decision: Decision, start: int) -> int:
    """Return the last place that is followed from a place on; each costs a round over the whole fleet."""
    most = min(_MOST_FOLLOWED, 1 + _MOST_JUDGED // max(1, len(decision.cycle.fleet)))
    return min(len(placed(decision)) + 1, start + most)


def turn_of(
    decision: Decision, other: Decision, *, start: int
) -> FirstDifference | None:
    """Return the first place from `start` on at which other rules would not have chosen the same."""
    choices, names = placed(decision), decision.cycle.fleet.names
    if (
        other.candidates is None
        or decision.candidates is None
        or start <= len(other.kept)
    ):
        return None
    positions, kept = other.cycle.fleet.positions, set(other.kept)
    for place in range(start, last_followed(decision, start) + 1):
        choice = choices[place - 1] if place <= len(choices) else None
        if choice is None and decision.is_fulfilled:
            return None
        # The round that the other rules would have after these choices, which may include kept clusters.
        earlier_picks = [
            positions[name] for name in choices[: place - 1] if name not in kept
        ]
        one = Round(
            other.candidates,
            len(earlier_picks) + 1,
            np.array(earlier_picks, dtype=np.int32),
        )
        best = one.best()
        if not _would_take(one, best, choice, decision):
            instead = None if best is None else names[best]
            return FirstDifference(
                place, choice, instead, _round_at(decision, place), one
            )
    return None


def _would_take(
    one: Round, best: int | None, choice: str | None, decision: Decision
) -> bool:
    if best is None or choice is None:
        return best is None and choice is None
    position = decision.cycle.fleet.positions[choice]
    is_equal = all(column[position] == column[best] for column in one.rank_columns)
    return bool(one.contends[position]) and is_equal


def _round_at(decision: Decision, place: int) -> Round | None:
    number = min(place - len(decision.kept), decision.number_of_rounds)
    return decision.round(number) if number >= 1 else None


def placed(decision: Decision) -> tuple[str, ...]:
    """Return the clusters that a decision leaves placed: kept ones by name, then its picks in order."""
    return decision.kept + decision.picked_names
