"""One wish under several semantics: where their choices part, and what each went by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from placements.scheduling.decision import Decision
from placements.scheduling.rounds import Round
from placements.scheduling.semantics import DEFAULT_SEMANTICS, Semantics


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which the choices are not the same.

    `place` counts from 1 in what each semantics places: kept clusters by name, then the picks. `choices` has
    None where a semantics has nobody; `steps` the round in which a choice was made, or found nobody.
    """

    place: int
    choices: dict[Semantics, str | None]
    steps: dict[Semantics, Round | None]


@dataclass(frozen=True)
class Comparison:
    """The decisions side by side; `base` is the one that the others are compared with."""

    decisions: Mapping[Semantics, Decision]
    base: Semantics = DEFAULT_SEMANTICS

    @property
    def is_fulfilled(self) -> bool:
        """Tell whether every one of the decisions is fulfilled."""
        return all(decision.is_fulfilled for decision in self.decisions.values())

    @property
    def is_same_set(self) -> bool:
        """Tell whether all place the same clusters, in whichever order."""
        return len({frozenset(placed(one)) for one in self.decisions.values()}) <= 1

    @property
    def rows(self) -> list[dict[Semantics, str | None]]:
        """Give who is placed, place by place, under each semantics."""
        columns = [placed(decision) for decision in self.decisions.values()]
        return [dict(zip(self.decisions, row, strict=True)) for row in zip_longest(*columns)]

    @property
    def first_difference(self) -> Difference | None:
        """Find where the choices part; None where all place the same clusters in the same order."""
        return self.difference_among(tuple(self.decisions))

    def difference_among(self, some: Sequence[Semantics]) -> Difference | None:
        """Find where the choices of some of them part; None where those place the same in the same order."""
        for place, row in enumerate(self.rows, start=1):
            choices = {one: row[one] for one in some}
            if len(set(choices.values())) > 1:
                steps = {one: _round_at(self.decisions[one], place) for one in choices}
                return Difference(place, choices, steps)
        return None


@dataclass(frozen=True)
class Turn:
    """Where a decision and other rules part for more than a name, the places before taken as decided.

    `place` counts from 1; `choice` is the decision's, `instead` whom the other rules would take, each None
    for nobody. `step` and `other_step` are the two rounds, the second with the decision's choices before it.
    """

    place: int
    choice: str | None
    instead: str | None
    step: Round | None
    other_step: Round


_MOST_FOLLOWED = 200
_MOST_JUDGED = 1_000_000


def last_followed(decision: Decision, start: int) -> int:
    """Give the last place that is followed from a place on; each costs a round over the whole fleet."""
    most = min(_MOST_FOLLOWED, 1 + _MOST_JUDGED // max(1, len(decision.cycle.fleet)))
    return min(len(placed(decision)) + 1, start + most)


def turn_of(decision: Decision, other: Decision, *, start: int) -> Turn | None:
    """Follow what a decision places from a place on, and find where other rules would not have done the same.

    None where they would, at least up to the last place that is followed, or where one of them does not pick
    by rounds.
    """
    choices, names = placed(decision), decision.cycle.fleet.names
    if other.candidates is None or decision.candidates is None or start <= len(other.kept):
        return None
    for place in range(start, last_followed(decision, start) + 1):
        choice = choices[place - 1] if place <= len(choices) else None
        if choice is None and decision.is_fulfilled:
            return None
        one = _round_after(other, choices[: place - 1])
        best = one.best()
        if not _would_take(one, best, choice, decision):
            instead = None if best is None else names[best]
            return Turn(place, choice, instead, _round_at(decision, place), one)
    return None


def _would_take(one: Round, best: int | None, choice: str | None, decision: Decision) -> bool:
    if best is None or choice is None:
        return best is None and choice is None
    position = decision.cycle.fleet.positions[choice]
    is_equal = all(column[position] == column[best] for column in one.rank_columns)
    return bool(one.contends[position]) and is_equal


def _round_after(decision: Decision, choices: Sequence[str]) -> Round:
    """Give the round that these rules would have after some choices, among which their kept ones may be."""
    assert decision.candidates is not None  # noqa: S101 -- the caller has looked
    positions, kept = decision.cycle.fleet.positions, set(decision.kept)
    taken = [positions[name] for name in choices if name not in kept]
    return Round(decision.candidates, len(taken) + 1, np.array(taken, dtype=np.int32))


def _round_at(decision: Decision, place: int) -> Round | None:
    number = min(place - len(decision.kept), decision.number_of_rounds)
    return decision.round(number) if number >= 1 else None


def placed(decision: Decision) -> tuple[str, ...]:
    """Give whom a decision leaves placed: kept clusters by name, then its picks in order."""
    return decision.kept + decision.picked_names
