"""Tables of a decision: the candidates of a step, the composition of a score, and outcomes as CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from clusters.columns import Ints
from clusters.fleet import Fleet
from fleetui.apimachinery.model import Semantics
from fleetui.apimachinery.quantity import quantity_words
from fleetui.apimachinery.words import joined
from placements.engine.scheduling.comparison import SemanticsComparison
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.equivalence import classes_of
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome, Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.reason import ReasonCode
from placements.engine.scheduling.replay import Candidate, Replay
from placements.engine.scheduling.round import NAME_COLUMN, Round
from placements.engine.scheduling.scores.preferred_affinity import observed_range, term_scores
from placements.engine.scheduling.scoring import ScoreSource
from placements.engine.scheduling.spread.base import is_hard
from placements.explain.decisions import verdict_sentence
from placements.explain.terminal import visible
from placements.explain.vocabulary import (
    COLUMN_WORDS,
    HEADINGS,
    TIMES,
    minus_signs,
    preference_words,
    reason_sentence,
    score_text,
    scored_heading,
    signed_text,
)
from placements.manifests.affinity import PreferredTerm

TOP, AROUND_CUT, FORBIDDEN_SHOWN = 10, 2, 10
CLASSES_FROM = 100
"""With this number of candidates or more, those that are equal share a row."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a rank tuple; `is_deciding` marks the column that ranks the winner before this row."""

    text: str
    is_deciding: bool = False
    note: str = ""
    column: str = ""


@dataclass(frozen=True, slots=True)
class RankRow:
    """One candidate, or the first of several that differ in nothing but the name."""

    rank: int | None
    cluster: str
    cells: tuple[Cell, ...]
    decided_by: str
    is_in: bool
    is_highlighted: bool
    is_by_name: bool = False
    alike: int = 0
    words: str = ""
    gap: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Ranking:
    """The table of a step; `forbidden` rows have a sentence with the limit that rules them out."""

    columns: tuple[str, ...]
    rows: tuple[RankRow, ...]
    more: int
    forbidden: tuple[RankRow, ...]
    more_forbidden: int
    by_class: bool
    size: int
    notes: tuple[str, ...] = ()


def ranking_of(replay: Replay, number: int, cluster: str = "") -> Ranking:
    """Return the candidates of a step: the first ones, those about the cut-off, and one cluster by name.

    Raise IndexError for a step that does not exist.
    """
    decision, one = replay.decision, replay.decision.round(number)
    ranked, codes = one.ranked, classes_of(decision).of
    size = 1 if one.constraint_scores else len(decision.chosen)
    by_class = int(np.count_nonzero(one.is_left)) > CLASSES_FROM
    position = decision.cycle.fleet.positions.get(cluster, -1)
    columns = _columns(decision, one)
    row = partial(_rank_row, columns=columns, size=size, cluster=cluster)

    alike = _first_of_class(codes[ranked]) if by_class else {}
    top = sorted(alike)[:TOP] if by_class else range(min(TOP, len(ranked)))
    cut = range(max(0, size - AROUND_CUT), min(len(ranked), size + AROUND_CUT))
    places = sorted({*top, *cut, *np.nonzero(ranked == position)[0].tolist()})
    rows, before = [], -1
    for place in places:
        candidate = replay.candidate(number, replay.names[int(ranked[place])])
        if not one.constraint_scores and size:
            # All are selected from one ranking: compare with the last one in rather than the first.
            last = int(ranked[size - 1])
            decided_by = None if place < size else one.decided_by(last, int(ranked[place]))
            candidate = replace(candidate, decided_by=decided_by)
        rows.append(
            row(candidate, alike=alike.get(place, 0), gap=place - before - 1, is_cut=before < size <= place)
        )
        before = place

    forbidden = np.nonzero(one.is_left & one.is_forbidden)[0]
    like = _first_of_class(codes[forbidden]) if by_class else dict.fromkeys(range(len(forbidden)), 0)
    excluded = [(int(forbidden[place]), like[place]) for place in sorted(like)[:FORBIDDEN_SHOWN]]
    if position in forbidden.tolist() and position not in [each for each, _ in excluded]:
        excluded = [(position, 0), *excluded[: FORBIDDEN_SHOWN - 1]]
    ruled_out = tuple(row(replay.candidate(number, replay.names[at]), alike=more) for at, more in excluded)
    return Ranking(
        tuple(columns.values()),
        tuple(rows),
        len(ranked) - (places[-1] + 1 if places else 0),
        ruled_out,
        len(forbidden) - sum(1 + each.alike for each in ruled_out),
        by_class,
        size,
        tuple(_notes(one, decision.cycle.semantics)) if one.constraint_scores else (),
    )


def _rank_row(
    candidate: Candidate,
    *,
    columns: Mapping[str, str],
    size: int,
    cluster: str,
    alike: int = 0,
    gap: int = 0,
    is_cut: bool = False,
) -> RankRow:
    out = [verdict_sentence(one) for one in candidate.constraints if one.is_forbidden and not one.has_key]
    is_in = candidate.rank is not None and candidate.rank <= size
    decided = HEADINGS.get(candidate.decided_by or "", COLUMN_WORDS[candidate.decided_by])
    if candidate.rank is None:
        decided = "filtered out"
    elif is_in:
        decided = f"selected, {decided}" if candidate.decided_by else "selected"
    return RankRow(
        rank=candidate.rank,
        cluster=candidate.cluster,
        cells=tuple(replace(_score_cell(key, candidate), column=word) for key, word in columns.items()),
        decided_by=decided,
        is_in=is_in,
        is_highlighted=candidate.cluster == cluster,
        is_by_name=candidate.decided_by == NAME_COLUMN,
        alike=alike,
        words="; ".join(out),
        gap=gap,
        is_cut=is_cut,
    )


def _columns(decision: Decision, one: Round) -> dict[str, str]:
    """Return columns by their names in `decided_by`; those of single constraints never decide alone."""
    strategy, semantics = one.candidates.strategy, decision.cycle.semantics
    columns = {
        f"constraint-{index}": scored_heading(score.constraint.topology_key, semantics)
        for index, score in enumerate(one.constraint_scores)
        if strategy.hard_ones_score or not is_hard(score.constraint)
    }
    columns |= {"topology": "topology"} if one.constraint_scores else {}
    columns["affinity"] = "affinity"
    if decision.cycle.binding_classes.obsolete and "was-here" in strategy.rank_names:
        columns["was-here"] = "previously placed"
    others = [name for name in strategy.rank_names if name not in ("topology", "affinity", "was-here")]
    return columns | {name: HEADINGS.get(name, name) for name in others}


def _notes(one: Round, semantics: Semantics) -> Iterator[str]:
    """Explain the numbers of a step: gaps and the preference of `ocm`, costs of `kubernetes`."""
    names = one.candidates.strategy.rank_names
    if semantics is Semantics.OCM:
        weighed = [score.constraint.topology_key for score in one.constraint_scores if score.groups.weights]
        if len(weighed) < len(one.constraint_scores):
            yield "A gap is how far a domain is above its emptiest sibling, written negative."
        if weighed:
            next_one = "the domain that is next by count and weight"
            yield f"That of {joined(weighed)} counts down from 0, {next_one}."
        if "final" in names:
            yield f"Topology scales them to −100 to 100; the sum is {COLUMN_WORDS['final']}."
        yield "The preference is the affinity, Steady, Balance and the other scores, each times its weight."
    if semantics is Semantics.KUBERNETES:
        hard = [is_hard(score.constraint) for score in one.constraint_scores]
        if not all(hard):
            scaled = "topology scales the costs to 0 to 100"
            yield f"A cost is count {TIMES} ln(domains + 2) + maxSkew − 1; {scaled}."
        if any(hard):
            yield "Hard limits filter and score nothing."
        yield f"The sum is {COLUMN_WORDS['score']}."


def _first_of_class(codes: Ints) -> dict[int, int]:
    """Return the first place of each class, with the number of others in it."""
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return dict(zip(first.tolist(), (counts - 1).tolist(), strict=True))


def _score_cell(key: str, one: Candidate) -> Cell:
    is_deciding = key == one.decided_by and one.rank is not None
    if key.startswith("constraint-"):
        verdict = one.constraints[int(key.removeprefix("constraint-"))]
        note = "soft limit broken" if verdict.violates and not verdict.is_forbidden else ""
        is_cost = isinstance(verdict.score, float)
        score = score_text(verdict.score) if is_cost else signed_text(verdict.score)
        return Cell("out" if verdict.is_forbidden else score, note=note)
    if key in ("topology", "affinity"):
        number = one.topology_spread_score if key == "topology" else one.affinity_score
        return Cell(signed_text(number), is_deciding)
    if key == "was-here":
        return Cell("yes" if one.was_here else "no", is_deciding)
    return Cell(minus_signs(score_text(one.combined.get(key))), is_deciding)


_OTHERS = {
    ScoreSource.STEADY: "Steady: stays where it is placed",
    ScoreSource.BALANCE: "Balance: few other placements",
    ScoreSource.CPU: "allocatable cpu",
    ScoreSource.MEMORY: "allocatable memory",
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
        terms = decision.cycle.policy.preferred_terms
        rows = [(_term(one, fleet), term_scores(one, fleet)[position].item()) for one in terms]
        return Composition("affinity score", "preferred term", tuple(rows), sum(points for _, points in rows))

    def whole(points: float) -> float:
        return int(points) if points == int(points) else points

    rows = []
    for one in profile_of(decision.cycle).preference.addends(decision.cycle, candidates.passes):
        if one.term is not None:
            words = _term(one.term, fleet)
        elif one.raw is not None:
            # The rows before they were scaled over the candidates to −100 to 100.
            among = one.raw[candidates.passes]
            words = f"affinity rows: {score_text(one.raw[position].item())}"
            if not len(among) or among.min() == among.max():
                words += ", as for every candidate"
            else:
                words += f"; candidates {score_text(among.min().item())} to {score_text(among.max().item())}"
            words = minus_signs(words)
        else:
            words = f"{_OTHERS[one.source]} (weight {score_text(one.weight)})"
        rows.append((words, whole(one.points[position].item())))
    return Composition("preference", "score", tuple(rows), whole(candidates.preference[position].item()))


def _term(term: PreferredTerm, fleet: Fleet) -> str:
    words, sorter = preference_words(term), term.preference.property_sorter
    if sorter and (bounds := observed_range(sorter.name, fleet)):
        low, high = (quantity_words(one, sorter.name) for one in bounds)
        words += f", observed from {low} to {high}"
    return words


OUTCOME_COLUMNS = (
    *("cluster", "outcome", "round", "stays", "topologySpreadScore", "affinityScore"),
    *("decidingReason", "reasons", "why"),
)


def outcome_rows(decision: Decision) -> Iterator[tuple[object, ...]]:
    """Yield a row for each cluster, as in OUTCOME_COLUMNS: the fleet by name, then clusters not in it."""
    yield from rows_of(decision, Outcomes(decision))
    ended = (str(Outcome.UNSCHEDULED), str(ReasonCode.CLUSTER_LEFT), "no longer in the fleet")
    missing = ("not found", "not-found", "named, but not in the fleet")
    removed = [name for name in decision.unscheduled if name not in decision.cycle.fleet.positions]
    for names, (outcome, code, why) in ((removed, ended), (decision.not_found, missing)):
        for name in names:
            yield name, outcome, None, "no", None, None, code, code, why


def rows_of(decision: Decision, outcomes: Iterable[ClusterOutcome]) -> Iterator[tuple[object, ...]]:
    scores = {one.cluster: (one.topology_spread_score, one.affinity_score) for one in decision.picked}
    for one in outcomes:
        # A score of several levels has spaces: a spreadsheet takes 1/2 for a date.
        cells = [
            " ".join(map(str, score)) if isinstance(score, tuple) else score
            for score in scores.get(one.cluster, (None, None))
        ]
        yield (
            one.cluster,
            str(one.outcome),
            one.round,
            "yes" if one.stays else "no",
            *cells,
            next(str(reason.code) for reason in one.reasons if reason.is_deciding),
            " ".join(str(reason.code) for reason in one.reasons),
            "; ".join(reason_sentence(reason) for reason in one.reasons),
        )


def outcome_csv(decision: Decision) -> str:
    return rows_csv(outcome_rows(decision))


def rows_csv(rows: Iterable[tuple[object, ...]]) -> str:
    return csv_text(OUTCOME_COLUMNS, rows)


def comparison_csv(comparison: SemanticsComparison) -> str:
    columns = [
        {one.cluster: str(one.outcome) for one in Outcomes(each)} for each in comparison.decisions.values()
    ]
    rows = ((name, *(column[name] for column in columns)) for name in columns[0])
    return csv_text(("cluster", *map(str, comparison.decisions)), rows)


def csv_text(header: Iterable[str], rows: Iterable[tuple[object, ...]]) -> str:
    """Write rows as CSV that is safe to open in a spreadsheet or a terminal."""

    def safe(cell: object) -> object:
        """Prevent that a spreadsheet reads a name as a formula, or a terminal as a command."""
        if isinstance(cell, str):
            return visible(f"'{cell}" if cell.startswith(("=", "+", "-", "@")) else cell)
        return cell

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([safe(cell) for cell in row] for row in rows)
    return text.getvalue()
