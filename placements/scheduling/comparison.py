"""One wish under several semantics: where their choices part, and what each went by."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest

from placements.scheduling.decision import Decision
from placements.scheduling.policy import Semantics
from placements.scheduling.replay import Replay, Step


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place at which the choices are not the same.

    `place` counts from 1 in what each semantics places: kept clusters by name, then the picks. `choices` has
    None where a semantics has nobody; `steps` the round in which a choice was made, or found nobody.
    """

    place: int
    choices: dict[Semantics, str | None]
    steps: dict[Semantics, Step | None]


@dataclass(frozen=True)
class Comparison:
    """The decisions side by side."""

    decisions: Mapping[Semantics, Decision]

    @property
    def is_fulfilled(self) -> bool:
        """Tell whether every one of the decisions is fulfilled."""
        return all(decision.is_fulfilled for decision in self.decisions.values())

    @property
    def rows(self) -> list[dict[Semantics, str | None]]:
        """Give who is placed, place by place, under each semantics."""
        columns = [placed(decision) for decision in self.decisions.values()]
        return [dict(zip(self.decisions, row, strict=True)) for row in zip_longest(*columns)]

    @property
    def first_difference(self) -> Difference | None:
        """Find where the choices part; None where all place the same clusters in the same order."""
        for place, choices in enumerate(self.rows, start=1):
            if len(set(choices.values())) > 1:
                steps = {one: _step(self.decisions[one], place) for one in choices}
                return Difference(place, choices, steps)
        return None


def placed(decision: Decision) -> tuple[str, ...]:
    """Give whom a decision leaves placed: kept clusters by name, then its picks in order."""
    return decision.kept + decision.picked_names


def _step(decision: Decision, place: int) -> Step | None:
    """Give the round that filled a place, or failed to."""
    number = min(place - len(decision.kept), decision.number_of_rounds)
    return Replay(decision).step(number) if number >= 1 else None
