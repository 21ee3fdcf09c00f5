"""The candidates of a step as a table: the rank tuple as columns, and the column that decided."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from placements.explain.step_wording import verdict_sentence
from placements.explain.wording import (
    COLUMN_WORDS,
    HEADINGS,
    TIMES,
    joined,
    score_text,
    scored_heading,
    signed_text,
)
from placements.scheduling.classes import classes_of
from placements.scheduling.columns import Ints
from placements.scheduling.decision import Decision
from placements.scheduling.replay import Candidate, Replay
from placements.scheduling.rounds import NAME_COLUMN, Round
from placements.scheduling.semantics import Semantics
from placements.scheduling.spread.base import is_hard

TOP, AROUND_CUT, FORBIDDEN_SHOWN = 10, 2, 10
CLASSES_FROM = 100
"""From so many candidates on, those that are alike share a row."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a rank tuple; `is_deciding` marks the column that put the winner before this row."""

    text: str
    is_deciding: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class RankRow:
    """One candidate, or the first of several that differ in nothing but the name."""

    rank: int | None
    cluster: str
    cells: tuple[Cell, ...]
    decided_by: str
    is_in: bool
    is_asked: bool
    is_by_name: bool = False
    alike: int = 0
    words: str = ""
    gap: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Ranking:
    """The table of a step; `forbidden` rows say in a sentence which limit keeps them out."""

    columns: tuple[str, ...]
    rows: tuple[RankRow, ...]
    more: int
    forbidden: tuple[RankRow, ...]
    more_forbidden: int
    by_class: bool
    size: int
    notes: tuple[str, ...] = ()


@dataclass
class _Table:
    """What the rows of one step are made from."""

    replay: Replay
    one: Round
    asked: str
    columns: tuple[str, ...] = field(init=False)
    keys: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        named = dict(_columns(self.replay.decision, self.one))
        self.keys, self.columns = tuple(named), tuple(named.values())

    @property
    def size(self) -> int:
        """Give how many the step takes: one, or all of a single ranking."""
        return 1 if self.one.bids else len(self.replay.decision.chosen)

    def against_the_last(self, one: Candidate, place: int, ranked: Ints) -> Candidate:
        """Compare with the last one in rather than the first, where all are taken from one ranking."""
        if self.one.bids or not self.size:
            return one
        last = int(ranked[self.size - 1])
        decided_by = None if place < self.size else self.one.decided_by(last, int(ranked[place]))
        return replace(one, decided_by=decided_by)

    @property
    def by_class(self) -> bool:
        return int(np.count_nonzero(self.one.is_left)) > CLASSES_FROM


def ranking_of(replay: Replay, number: int, asked: str = "") -> Ranking:
    """Rank the candidates of a step: the first ones, those about the cut, and the cluster that was asked for.

    Raises IndexError for a step that there was not.
    """
    table = _Table(replay, replay.decision.round(number), asked)
    ranked = table.one.ranked
    codes = classes_of(replay.decision).of
    alike = _first_of_class(codes[ranked]) if table.by_class else {}
    places = _places(table, ranked, alike)
    rows = tuple(_ranked_rows(table, ranked, places, alike))
    forbidden = np.nonzero(table.one.is_left & table.one.is_forbidden)[0]
    kept_out = _forbidden_rows(table, forbidden, codes)
    return Ranking(
        table.columns,
        rows,
        len(ranked) - (places[-1] + 1 if places else 0),
        kept_out,
        len(forbidden) - sum(1 + row.alike for row in kept_out),
        table.by_class,
        table.size,
        tuple(_NOTES[replay.decision.cycle.semantics](table.one)) if table.one.bids else (),
    )


def _columns(decision: Decision, one: Round) -> Iterator[tuple[str, str]]:
    """Give the columns by what `decided_by` calls them; those of single constraints never decide alone."""
    semantics = decision.cycle.semantics
    for index, bid in enumerate(one.bids):
        if one.candidates.strategy.hard_ones_score or not is_hard(bid.constraint):
            yield f"constraint-{index}", scored_heading(bid.constraint.topology_key, semantics)
    if one.bids:
        yield "topology", "topology"
    yield "affinity", "affinity"
    if decision.cycle.standing.obsolete and "was-here" in one.candidates.strategy.rank_names:
        yield "was-here", "was here"
    for name in one.candidates.strategy.rank_names:
        if name not in ("topology", "affinity", "was-here"):
            yield name, HEADINGS.get(name, name)


def _notes_on_skew(_one: Round) -> Iterator[str]:
    return iter(())


def _notes_on_gap(one: Round) -> Iterator[str]:
    """Explain the numbers of `ocm`: gaps, what the preference is made of, and the sum."""
    names = one.candidates.strategy.rank_names
    weighed = [bid.constraint.topology_key for bid in one.bids if bid.groups.weights]
    if len(weighed) < len(one.bids):
        yield "A gap is how far a group is above its emptiest sibling, written negative."
    if weighed:
        yield f"That of {joined(weighed)} counts down from 0, the group that is next by count and weight."
    if "final" in names:
        yield f"Topology scales them to −100 to 100; the sum is {COLUMN_WORDS['final']}."
    yield "The preference is the affinity, Steady, Balance and the other scores, each times its weight."


def _notes_on_cost(one: Round) -> Iterator[str]:
    """Explain the numbers of `kubernetes`."""
    if any(not is_hard(bid.constraint) for bid in one.bids):
        yield f"A cost is count {TIMES} ln(groups + 2) + maxSkew − 1; topology scales the costs to 0 to 100."
    if any(is_hard(bid.constraint) for bid in one.bids):
        yield "Hard limits filter and score nothing."
    yield f"The sum is {COLUMN_WORDS['score']}."


_NOTES: Mapping[Semantics, Callable[[Round], Iterator[str]]] = {
    Semantics.FLEET: _notes_on_skew,
    Semantics.KUBEFLEET: _notes_on_skew,
    Semantics.OCM: _notes_on_gap,
    Semantics.KUBERNETES: _notes_on_cost,
}


def _first_of_class(codes: Ints) -> dict[int, int]:
    """Give the places where a class first stands, with how many more it has."""
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return dict(zip(first.tolist(), (counts - 1).tolist(), strict=True))


def _places(table: _Table, ranked: Ints, alike: dict[int, int]) -> list[int]:
    """Choose the places to show, from 0: the first, those about the cut, the cluster asked for."""
    first = sorted(alike)[:TOP] if table.by_class else list(range(min(TOP, len(ranked))))
    cut = range(max(0, table.size - AROUND_CUT), min(len(ranked), table.size + AROUND_CUT))
    position = table.replay.decision.cycle.fleet.positions.get(table.asked, -1)
    wanted = np.nonzero(ranked == position)[0].tolist()
    return sorted({*first, *cut, *wanted})


def _ranked_rows(
    table: _Table, ranked: Ints, places: Sequence[int], alike: dict[int, int]
) -> Iterator[RankRow]:
    before = -1
    for place in places:
        name = table.replay.names[int(ranked[place])]
        one = table.against_the_last(table.replay.candidate(table.one.number, name), place, ranked)
        yield _row(
            table, one, alike=alike.get(place, 0), gap=place - before - 1, is_cut=before < table.size <= place
        )
        before = place


def _forbidden_rows(table: _Table, positions: Ints, codes: Ints) -> tuple[RankRow, ...]:
    alike = _first_of_class(codes[positions]) if table.by_class else dict.fromkeys(range(len(positions)), 0)
    chosen = sorted(alike)[:FORBIDDEN_SHOWN]
    asked = table.replay.decision.cycle.fleet.positions.get(table.asked, -1)
    found = [(int(positions[place]), alike[place]) for place in chosen]
    if asked in positions.tolist() and asked not in [position for position, _ in found]:
        found = [(asked, 0), *found[: FORBIDDEN_SHOWN - 1]]
    return tuple(
        _row(table, table.replay.candidate(table.one.number, table.replay.names[position]), alike=others)
        for position, others in found
    )


def _row(table: _Table, one: Candidate, *, alike: int = 0, gap: int = 0, is_cut: bool = False) -> RankRow:
    out = [verdict_sentence(it) for it in one.constraints if it.is_forbidden and not it.has_key]
    is_in = one.rank is not None and one.rank <= table.size
    return RankRow(
        rank=one.rank,
        cluster=one.cluster,
        cells=tuple(_cell(key, one) for key in table.keys),
        decided_by=_decided(one, is_in=is_in),
        is_in=is_in,
        is_asked=one.cluster == table.asked,
        is_by_name=one.decided_by == NAME_COLUMN,
        alike=alike,
        words="; ".join(out),
        gap=gap,
        is_cut=is_cut,
    )


def _decided(one: Candidate, *, is_in: bool) -> str:
    if one.rank is None:
        return "filtered"
    if is_in and one.decided_by is None:
        return "picked"
    words = HEADINGS.get(one.decided_by or "", COLUMN_WORDS[one.decided_by])
    return ("picked, " if is_in else "") + words


def _cell(key: str, one: Candidate) -> Cell:
    is_deciding = key == one.decided_by and one.rank is not None
    if key.startswith("constraint-"):
        verdict = one.constraints[int(key.removeprefix("constraint-"))]
        note = "soft limit broken" if verdict.violates and not verdict.is_forbidden else ""
        is_cost = isinstance(verdict.score, float)
        score = score_text(verdict.score) if is_cost else signed_text(verdict.score)
        return Cell(score if not verdict.is_forbidden else "out", note=note)
    if key == "topology":
        return Cell(signed_text(one.topology_spread_score), is_deciding)
    if key == "affinity":
        return Cell(signed_text(one.affinity_score), is_deciding)
    if key == "was-here":
        return Cell("yes" if one.was_here else "no", is_deciding)
    return Cell(score_text(one.combined.get(key)).replace("-", "−"), is_deciding)
