"""Tables of a decision: the candidates of a step, the composition of a score, and outcomes as CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter

import numpy as np

from clusters.columns import Ints
from clusters.fleet import Fleet
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.quantity import quantity_words
from fleetui.apimachinery.words import counted, joined
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.replay import Candidate, Replay
from placements.engine.scheduling.round import NAME_COLUMN, Round, SpreadScore
from placements.engine.scheduling.scores.preferred_affinity import (
    observed_range,
    term_scores,
)
from placements.engine.scheduling.scoring import ScoreSource
from placements.engine.scheduling.spread.base import SOFT_VIOLATION_SCORE, is_hard
from placements.explain.decisions import (
    blocked_words,
    cost_words,
    over_words,
    rank_order_words,
)
from placements.explain.lanes import Mark
from placements.explain.steps import domain_words
from placements.explain.terminal import visible
from placements.explain.vocabulary import (
    COLUMN_WORDS,
    HEADINGS,
    NONE,
    TIMES,
    minus_signs,
    outcome_sentences,
    preference_words,
    score_text,
    scored_heading,
    signed_text,
)
from placements.manifests.affinity import PreferredTerm

TOP, AROUND_CUT, FORBIDDEN_SHOWN = 12, 2, 6
# Up to FEW candidates have a row each; of those that share one NAMED are listed, and
# OPENED on request.
FEW, NAMED, OPENED = 12, 10, 60


_MARKS = {"cost": Mark.COSTLY, "blocked": Mark.BLOCKED}
# The column of clusters that had the placement, which is shown where it decides.
PLACED_BEFORE = "placed before"
_YES = {True: "yes", False: "no"}
_DECIDING = COLUMN_WORDS | HEADINGS | {"topology": "spread"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a rank tuple; `is_deciding` marks the column that ranks the winner before this row.

    `bar` has the start and the width of a bar, and its zero, in percent of the cell.
    """

    text: str
    is_deciding: bool = False
    tone: str = ""
    column: str = ""
    bar: tuple[float, float, float] | None = None


@dataclass(frozen=True, slots=True)
class RankRow:
    """One candidate, or several in a row whose scores are the same: names by their domains.

    `rest` are names that open, and `more` is how many there are besides. `is_highest`: the affinity
    is that of the first, and the others have less.
    """

    rank: int | None
    last: int | None
    cluster: str
    names: tuple[tuple[str, tuple[str, ...]], ...]
    rest: tuple[str, ...]
    more: int
    cells: tuple[Cell, ...]
    words: str
    is_in: bool
    is_highlighted: bool
    is_highest: bool = False
    gap: int = 0
    is_cut: bool = False

    @property
    def hidden(self) -> int:
        return len(self.rest) + self.more


@dataclass(frozen=True, slots=True)
class Ranking:
    """The table of a step; `forbidden` rows have a sentence with the limit that rules them out."""

    columns: tuple[str, ...]
    rows: tuple[RankRow, ...]
    more: int
    forbidden: tuple[RankRow, ...]
    more_forbidden: tuple[str, ...]
    candidates: int
    earlier: int
    blocked: int
    size: int
    order: str
    notes: tuple[str, ...] = ()
    has_deciding: bool = False

    @property
    def count_words(self) -> str:
        """Return how the candidates of the step come about and what becomes of them, as sums."""
        words = counted(self.candidates, "candidate")
        if self.earlier:
            passed = counted(self.candidates + self.earlier, "candidate")
            words = f"{passed} − {self.earlier:,} selected = {self.candidates:,}"
        if self.blocked:
            ranked = self.candidates - self.blocked
            words += f": {ranked:,} ranked, {self.blocked:,} blocked"
        return words

    @property
    def marks(self) -> set[Mark]:
        """The marks of the lanes with which scores are drawn, too."""
        rows = (*self.rows, *self.forbidden)
        tones = {cell.tone for row in rows for cell in row.cells}
        return {mark for tone, mark in _MARKS.items() if tone in tones}


def ranking_of(replay: Replay, number: int, cluster: str = "") -> Ranking:
    """Return the candidates of a step: the first ones, those about the cut-off, and one cluster by name.

    Raise IndexError for a step that does not exist.
    """
    decision, one = replay.decision, replay.round(number)
    ranked = one.ranked
    size = 1 if one.constraint_scores else len(decision.chosen)
    position = decision.cycle.fleet.positions.get(cluster, -1)
    columns = _columns(decision, one)
    spans = _spans(one, size, position)
    cut = next(
        (place for place, (start, _) in enumerate(spans) if start >= size), len(spans)
    )
    own = [
        place
        for place, (start, end) in enumerate(spans)
        if position in ranked[start:end]
    ]
    around_cut = range(max(0, cut - AROUND_CUT), min(len(spans), cut + AROUND_CUT))
    preferences = one.candidates.affinity[one.is_left]
    bounds = (float(preferences.min(initial=0)), float(preferences.max(initial=0)))
    rows, before = [], 0
    for place in sorted({*range(min(TOP, len(spans))), *around_cut, *own}):
        start, end = spans[place]
        candidate = replay.candidate(number, replay.names[int(ranked[start])])
        if not one.constraint_scores and size:
            # All are selected from one ranking: compare with the last one in rather than the first.
            decided_by = (
                None
                if start < size
                else one.decided_by(int(ranked[size - 1]), int(ranked[start]))
            )
            candidate = replace(candidate, decided_by=decided_by)
        row = _rank_row(
            replay, candidate, ranked[start:end].tolist(), columns, bounds, size=size
        )
        rows.append(
            replace(
                row,
                last=end,
                words=_why_words(
                    replay, one, candidate, size, several=len(row.names) > 1
                ),
                is_highlighted=place in own,
                gap=start - before,
                is_cut=before <= size <= start,
            )
        )
        before = end

    blocked = np.flatnonzero(one.is_left & one.is_forbidden)
    forbidden, others = _blocked_rows(replay, one, blocked, position, columns, bounds)
    if not any(
        cell.is_deciding
        for row in rows
        for cell in row.cells
        if cell.column == PLACED_BEFORE
    ):
        columns.pop("was-here", None)
        rows = [_without_column(row) for row in rows]
        forbidden = [_without_column(row) for row in forbidden]
    return Ranking(
        tuple(columns.values()),
        tuple(rows),
        len(ranked) - before,
        tuple(forbidden),
        tuple(replay.names[place] for place in others),
        len(ranked) + len(blocked),
        int(np.count_nonzero(one.candidates.passes[one.earlier_picks])),
        len(blocked),
        size,
        rank_order_words(decision),
        tuple(_NOTES[decision.cycle.semantics](one)) if one.constraint_scores else (),
        any(cell.is_deciding for row in rows for cell in row.cells),
    )


def _without_column(row: RankRow) -> RankRow:
    return replace(
        row, cells=tuple(cell for cell in row.cells if cell.column != PLACED_BEFORE)
    )


def _spans(one: Round, size: int, position: int) -> list[tuple[int, int]]:
    """Return the first and the next rank of each row: equal scores share one, except the best two."""
    ranked = one.ranked
    if len(ranked) <= FEW:
        return [(place, place + 1) for place in range(len(ranked))]
    values = [
        *(column[ranked] for column in one.rank_columns),
        one.candidates.affinity[ranked],
        *(score.score[ranked] for score in one.constraint_scores),
    ]
    differs = np.zeros(len(ranked), dtype=np.bool_)
    for column in values:
        differs[1:] |= column[1:] != column[:-1]
    own = np.flatnonzero(ranked == position)
    starts = {
        *np.flatnonzero(differs).tolist(),
        *range(min(size, FEW) + 2),
        *own.tolist(),
        *(own + 1).tolist(),
    }
    ordered = sorted(start for start in starts | {size} if start < len(ranked))
    return list(zip(ordered, [*ordered[1:], len(ranked)], strict=True))


def _blocked_rows(
    replay: Replay,
    one: Round,
    blocked: Ints,
    position: int,
    columns: Mapping[str, str],
    bounds: tuple[float, float],
) -> tuple[list[RankRow], list[int]]:
    """Return the clusters that a hard limit blocks: few one by one, many by the domains that do.

    Then the positions of those beyond the rows.
    """
    affinity = one.candidates.affinity
    blocked = blocked[np.argsort(-affinity[blocked], kind="stable")]
    alike: dict[object, list[int]] = {place: [place] for place in blocked.tolist()}
    if len(blocked) > FORBIDDEN_SHOWN:
        alike = {}
        keys = [
            np.where(
                score.is_forbidden[blocked],
                score.groups.codes[blocked],
                np.iinfo(np.int32).max,
            ).tolist()
            for score in one.constraint_scores
        ]
        for place, *key in zip(blocked.tolist(), *keys, strict=True):
            alike.setdefault(tuple(key), []).append(place)
    ordered = sorted(alike.values(), key=lambda places: position not in places)
    rows = []
    for positions in ordered[:FORBIDDEN_SHOWN]:
        candidate = replay.candidate(one.number, replay.names[positions[0]])
        rows.append(
            replace(
                _rank_row(replay, candidate, positions, columns, bounds, size=0),
                is_highlighted=position in positions,
                is_highest=bool(affinity[positions[-1]] < affinity[positions[0]]),
            )
        )
    return rows, sorted(chain.from_iterable(ordered[FORBIDDEN_SHOWN:]))


def _rank_row(
    replay: Replay,
    candidate: Candidate,
    positions: Sequence[int],
    columns: Mapping[str, str],
    bounds: tuple[float, float],
    *,
    size: int,
) -> RankRow:
    named = [
        (domain_words(replay.decision, replay.names[place]), replay.names[place])
        for place in positions[:NAMED]
    ]
    if candidate.rank is None:
        named.sort()
    return RankRow(
        rank=candidate.rank,
        last=candidate.rank,
        cluster=candidate.cluster,
        names=tuple(
            (words, tuple(name for _, name in several))
            for words, several in groupby(named, key=itemgetter(0))
        ),
        rest=tuple(replay.names[place] for place in positions[NAMED : NAMED + OPENED]),
        more=max(0, len(positions) - NAMED - OPENED),
        cells=tuple(
            replace(_score_cell(key, candidate, bounds), column=word)
            for key, word in columns.items()
        ),
        words="; ".join(
            [
                blocked_words(constraint)
                for constraint in candidate.constraints
                if constraint.is_forbidden and not constraint.has_key
            ]
        ),
        is_in=candidate.rank is not None and candidate.rank <= size,
        is_highlighted=False,
    )


_COST_WORDS = {False: cost_words, True: over_words}
"""By whether the candidates of a row are in several domains."""


def _why_words(
    replay: Replay, one: Round, candidate: Candidate, size: int, *, several: bool
) -> str:
    """Return what put the winner before a candidate, or that the candidate is the only one.

    The candidate stands for all of a row, whose domains may be `several`.
    """
    if candidate.decided_by is None:
        is_only = (
            size == 1
            and len(one.ranked) == 1
            and bool(np.any(one.is_left & one.is_forbidden))
        )
        return "Selected, the only one within the limit" if is_only else "Selected"
    if candidate.decided_by == NAME_COLUMN:
        return "Same scores: by name"
    costs = [check for check in candidate.constraints if check.violates]
    if candidate.decided_by == "topology" and costs:
        return "; ".join(map(_COST_WORDS[several], costs))
    if candidate.decided_by == "was-here":
        return "Same scores; not placed before"
    best = replay.candidate(
        one.number, replay.names[int(one.ranked[min(size, len(one.ranked)) - 1])]
    )
    values = [
        _score_cell(candidate.decided_by, each, (0.0, 0.0)).text
        for each in (candidate, best)
    ]
    word = _DECIDING[candidate.decided_by].capitalize()
    return f"{word} {values[0]} against {values[1]}"


def _columns(decision: Decision, one: Round) -> dict[str, str]:
    """Return columns by their names in `decided_by`; those of single constraints never decide alone."""
    strategy, semantics = one.candidates.strategy, decision.cycle.semantics
    columns = {
        f"constraint-{index}": scored_heading(score.constraint.topology_key, semantics)
        for index, score in enumerate(one.constraint_scores)
        if strategy.hard_ones_score or not is_hard(score.constraint)
    }
    if one.constraint_scores:
        columns["topology"] = "= spread" if len(columns) > 1 else "spread"
        if (
            len(columns) == 2
            and "constraint-0" in columns
            and np.array_equal(one.constraint_scores[0].score, one.spread[0])
        ):
            columns = {"topology": "spread"}  # alone, it is the sum
    columns["affinity"] = "affinity"
    if decision.cycle.binding_classes.obsolete and "was-here" in strategy.rank_names:
        columns["was-here"] = PLACED_BEFORE
    return columns | {
        name: HEADINGS.get(name, name)
        for name in strategy.rank_names
        if name not in ("topology", "affinity", "was-here")
    }


def _skew_notes(one: Round) -> Iterator[str]:
    soft = any(not is_hard(score.constraint) for score in one.constraint_scores)
    cost = f", {minus_signs(str(SOFT_VIOLATION_SCORE))} is over a soft limit" * soft
    yield f"Spread: +1 lowers a skew, −1 raises it{cost}."


def _gap_notes(one: Round) -> Iterator[str]:
    weighed = [
        score.constraint.topology_key
        for score in one.constraint_scores
        if score.groups.weights
    ]
    if len(weighed) < len(one.constraint_scores):
        yield "A gap is how far a domain is above its emptiest sibling, written negative."
    if weighed:
        yield (
            f"That of {joined(weighed)} counts down from 0, "
            "the domain that is next by count and weight."
        )
    if "final" in one.candidates.strategy.rank_names:
        yield f"Topology scales them to −100 to 100; the sum is {COLUMN_WORDS['final']}."
    yield "The preference is the affinity, Steady, Balance and the other scores, each times its weight."


def _cost_notes(one: Round) -> Iterator[str]:
    hard = [is_hard(score.constraint) for score in one.constraint_scores]
    if not all(hard):
        yield (
            f"A cost is count {TIMES} ln(domains + 2) + maxSkew − 1; "
            "topology scales the costs to 0 to 100."
        )
    if any(hard):
        yield "Hard limits filter and score nothing."
    yield f"The sum is {COLUMN_WORDS['score']}."


# What explains the numbers of a step.
_NOTES: Mapping[Semantics, Callable[[Round], Iterator[str]]] = {
    Semantics.FLEET: _skew_notes,
    Semantics.KUBEFLEET: _skew_notes,
    Semantics.OCM: _gap_notes,
    Semantics.KUBERNETES: _cost_notes,
}


def _score_cell(key: str, one: Candidate, bounds: tuple[float, float]) -> Cell:
    is_deciding = key == one.decided_by and one.rank is not None
    if key.startswith("constraint-"):
        check = one.constraints[int(key.removeprefix("constraint-"))]
        if check.is_forbidden:
            return Cell("blocked", tone="blocked")
        if one.rank is None:
            return Cell(NONE)  # another limit blocks the cluster, which is not scored
        is_cost = isinstance(check.score, float)
        if is_cost:
            return Cell(score_text(check.score))
        return Cell(
            signed_text(check.score), tone=_tone(check.score, is_cost=check.violates)
        )
    if key == "topology":
        score = one.topology_spread_score
        if one.rank is None:
            return Cell("blocked", tone="blocked")
        is_cost = any(check.violates for check in one.constraints)
        return Cell(signed_text(score), is_deciding, tone=_tone(score, is_cost=is_cost))
    if key == "affinity":
        low, high = bounds
        reach = (high - low) or 1.0
        bar = (
            round(100 * ((min(0.0, one.affinity_score) - low) / reach), 1),
            round(100 * (abs(one.affinity_score) / reach), 1),
            round(-100 * low / reach, 1),
        )
        return Cell(signed_text(one.affinity_score), is_deciding, bar=bar)
    if key == "was-here":
        return Cell(_YES[bool(one.was_here)], is_deciding)
    return Cell(minus_signs(score_text(one.combined.get(key))), is_deciding)


def _tone(score: SpreadScore | None, *, is_cost: bool) -> str:
    """Return how a score is colored: a gain, a loss, or the cost of a soft limit."""
    if is_cost:
        return "cost"
    if not isinstance(score, int | float) or not score:
        return ""
    return "gain" if score > 0 else "loss"


_OTHERS = {
    ScoreSource.STEADY: "Steady: stays where it is placed",
    ScoreSource.BALANCE: "Balance: few other placements",
    ScoreSource.CPU: "allocatable cpu",
    ScoreSource.MEMORY: "allocatable memory",
    ScoreSource.ADD_ON: "scores of add-ons",
}


@dataclass(frozen=True)
class Composition:
    """Rows of words and points, and their sum; `noun` names the sum, `part` a row."""

    noun: str
    part: str
    rows: tuple[tuple[str, float], ...]
    total: float


def composition(decision: Decision, cluster: str) -> Composition:
    """Return what adds points for a cluster. Raise KeyError if the fleet has no such cluster.

    Where more than the preferred terms ranks, all of it is listed, but only for a cycle that ranked.
    """
    fleet, candidates = decision.cycle.fleet, decision.candidates
    position = fleet.positions[cluster]
    if candidates is None or candidates.preference is candidates.affinity:
        rows = [
            (_term(term, fleet), term_scores(term, fleet)[position].item())
            for term in decision.cycle.policy.preferred_terms
        ]
        return Composition(
            "affinity score",
            "preferred term",
            tuple(rows),
            sum(points for _, points in rows),
        )

    def whole(points: float) -> float:
        return int(points) if points == int(points) else points

    rows = []
    for addend in profile_of(decision.cycle).preference.addends(
        decision.cycle, candidates.passes
    ):
        if addend.term is not None:
            words = _term(addend.term, fleet)
        elif addend.raw is not None:
            # The rows before they were scaled over the candidates to −100 to 100.
            among = addend.raw[candidates.passes]
            words = f"affinity rows: {score_text(addend.raw[position].item())}"
            if len(np.unique(among)) < 2:
                words += ", as for every candidate"
            else:
                words += f"; candidates {score_text(among.min().item())} to {score_text(among.max().item())}"
            words = minus_signs(words)
        else:
            words = f"{_OTHERS[addend.source]} (weight {score_text(addend.weight)})"
        rows.append((words, whole(addend.points[position].item())))
    return Composition(
        "preference",
        "score",
        tuple(rows),
        whole(candidates.preference[position].item()),
    )


def _term(term: PreferredTerm, fleet: Fleet) -> str:
    words, sorter = preference_words(term), term.preference.property_sorter
    if sorter and (bounds := observed_range(sorter.name, fleet)):
        low, high = (quantity_words(bound, sorter.name) for bound in bounds)
        words += f", observed from {low} to {high}"
    return words


OUTCOME_COLUMNS = (
    "cluster",
    "outcome",
    "round",
    "stays",
    "topologySpreadScore",
    "affinityScore",
    "decidingReason",
    "reasons",
    "why",
)


def outcome_rows(decision: Decision) -> Iterator[tuple[object, ...]]:
    """Yield a row for each cluster, as in OUTCOME_COLUMNS: the fleet by name, then clusters not in it."""
    yield from rows_of(decision, Outcomes(decision))
    ended = (
        str(Outcome.UNSCHEDULED),
        str(ReasonCode.CLUSTER_LEFT),
        "no longer in the fleet",
    )
    missing = ("not found", "not-found", "named, but not in the fleet")
    removed = [
        name
        for name in decision.unscheduled
        if name not in decision.cycle.fleet.positions
    ]
    for names, (outcome, code, why) in (
        (removed, ended),
        (decision.not_found, missing),
    ):
        yield from (
            (name, outcome, None, "no", None, None, code, code, why) for name in names
        )


def rows_of(
    decision: Decision, outcomes: Iterable[ClusterOutcome]
) -> Iterator[tuple[object, ...]]:
    scores = {
        picked.cluster: (picked.topology_spread_score, picked.affinity_score)
        for picked in decision.picked
    }
    for outcome in outcomes:
        # A score of several levels has spaces: a spreadsheet takes 1/2 for a date.
        cells = [
            " ".join(map(str, score)) if isinstance(score, tuple) else score
            for score in scores.get(outcome.cluster, (None, None))
        ]
        yield (
            outcome.cluster,
            str(outcome.outcome),
            outcome.round,
            _YES[outcome.stays],
            *cells,
            next(str(reason.code) for reason in outcome.reasons if reason.is_deciding),
            " ".join(str(reason.code) for reason in outcome.reasons),
            "; ".join(outcome_sentences(outcome)),
        )


def outcome_csv(decision: Decision) -> str:
    return rows_csv(outcome_rows(decision))


def rows_csv(rows: Iterable[tuple[object, ...]]) -> str:
    return csv_text(OUTCOME_COLUMNS, rows)


def comparison_csv(comparison: SemanticsComparison) -> str:
    columns = [
        {outcome.cluster: str(outcome.outcome) for outcome in Outcomes(decision)}
        for decision in comparison.decisions.values()
    ]
    return csv_text(
        ("cluster", *map(str, comparison.decisions)),
        ((name, *(column[name] for column in columns)) for name in columns[0]),
    )


def csv_text(header: Iterable[str], rows: Iterable[tuple[object, ...]]) -> str:
    """Write rows as CSV that is safe to open in a spreadsheet or a terminal."""

    def safe(cell: object) -> object:
        """Prevent that a spreadsheet reads a name as a formula, or a terminal as a command."""
        if isinstance(cell, str):
            return visible(
                f"'{cell}" if cell.startswith(("=", "+", "-", "@")) else cell
            )
        return cell

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([safe(cell) for cell in row] for row in rows)
    return text.getvalue()
