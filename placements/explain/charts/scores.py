"""Charts of scores: a heatmap of clusters by score, and the composition of one affinity."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from textwrap import wrap

import plotly.graph_objects as go

from fleetui.apimachinery.words import counted
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.equivalence import classes_of
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome
from placements.engine.scheduling.replay import Replay, verdict
from placements.engine.scheduling.round import Round
from placements.explain.charts.figure import OUTLINED, RAMP, Cell, Chart, Color, figure, heatmap, row_axis
from placements.explain.decision_tables import composition
from placements.explain.vocabulary import (
    OUTCOME_ORDER,
    OUTCOME_WORDS,
    minus_signs,
    preference_words,
    score_text,
    verb,
)

MOST_ROWS = 60


@dataclass(frozen=True, slots=True)
class _Score:
    """One cell: its number, and the word for a limit that it breaks."""

    value: float | None
    breaks: str = ""

    @property
    def words(self) -> str:
        number = minus_signs(score_text(self.value))
        return f"{self.breaks} {number}" if self.breaks == "soft" else self.breaks or number

    @property
    def is_on_ramp(self) -> bool:
        return not self.breaks and self.value is not None


@dataclass(frozen=True, slots=True)
class _Line:
    """One row: a cluster or a class, its scores, its outcome, and the filter that removed it."""

    name: str
    count: int
    scores: tuple[_Score, ...]
    outcome: str
    filtered: str

    @property
    def cells(self) -> Iterator[Cell]:
        for score in self.scores:
            yield self.filtered or (score.words if score.breaks else score.value)


def heatmap_chart(
    decision: Decision, outcomes: Sequence[ClusterOutcome], number: int | None = None
) -> Chart | None:
    """Draw the scores of a step, the last one by default; None for a decision without scores.

    `outcomes` are those of the decision, by name. Raise IndexError for a step that does not exist.
    """
    if not decision.number_of_rounds:
        return None
    one = decision.round(number or decision.number_of_rounds)
    is_small = len(decision.cycle.fleet) <= MOST_ROWS
    has_others = bool(decision.cycle.binding_classes.obsolete)
    lines = _score_lines(decision, outcomes, one, is_small=is_small, has_others=has_others)

    policy = decision.cycle.policy
    columns = [one.topology_key for one in policy.topology_spread_constraints]
    columns += ["topology"] if len(columns) > 1 else []
    terms = [preference_words(term) for term in policy.preferred_terms]
    columns += [*(terms if len(terms) > 1 else []), "affinity"]
    columns += ["previously placed"] if has_others else []

    filtered = sum(line.count for line in lines if line.filtered)
    words = [
        f"{len(decision.picked_names)} of {counted(len(decision.cycle.fleet), 'cluster')} selected",
        f"scores in step {one.number}, for clusters selected before in their own step",
        "the color is the share of the largest score of the column",
    ]
    if filtered:
        words.append(f"{filtered} filtered out before any score counts (hatched)")
    if len(lines) > MOST_ROWS:
        what = "clusters" if is_small else "classes"
        words.append(f"shown: the first {MOST_ROWS} of {len(lines):,} {what}, by outcome")
    return Chart(
        name="scores",
        title=f"Scores in step {one.number}",
        caption="; ".join(words) + ".",
        figure=_heatmap(lines[:MOST_ROWS], columns),
        columns=("Cluster" if is_small else "Class", "Clusters", *columns, "Outcome"),
        rows=tuple((line.name, line.count, *line.cells, line.outcome) for line in lines),
    )


def _score_lines(
    decision: Decision, outcomes: Sequence[ClusterOutcome], one: Round, *, is_small: bool, has_others: bool
) -> list[_Line]:
    """Return the rows: clusters, or from a size on their classes, by the outcome of the first of each."""

    def order(place: int) -> tuple[int, int, str]:
        outcome = outcomes[place]
        facts = outcome.reasons[0].facts
        rank = int(facts.get("pick") or facts.get("rank") or 0)
        return OUTCOME_ORDER.index(outcome.outcome), rank, outcome.cluster

    classes, replay, names = classes_of(decision), Replay(decision), decision.cycle.fleet.names
    members = [[at] for at in range(len(names))] if is_small else [one.tolist() for one in classes.members]
    lines = []
    for first, group in sorted(
        ((min(group, key=order), group) for group in members), key=lambda p: order(p[0])
    ):
        example = next((place for place in group if one.is_left[place]), first)
        # A cluster that was selected before this step has its scores in its own step.
        own = outcomes[example].round
        is_taken = own is not None and own < one.number and not one.is_left[example]
        round_ = decision.round(own) if is_taken and own else one
        name = names[first] if is_small else f"{classes.words(first)} · {counted(len(group), 'cluster')}"
        outcome = outcomes[first]
        counts = Counter(outcomes[place].outcome for place in group)
        words = ", ".join(
            f"{counts[each]:,} {OUTCOME_WORDS[each].lower()}" for each in OUTCOME_ORDER if counts[each]
        )
        if len(group) == 1:
            words = OUTCOME_WORDS[outcome.outcome] + (f", step {outcome.round}" if outcome.round else "")
        passes = outcome.outcome in (Outcome.PICKED, Outcome.KEPT) or bool(one.candidates.passes[first])
        filtered = "" if passes else str(outcome.ruled_by).replace("-", " ")
        scores = tuple(_scores(replay, round_, example, has_others=has_others))
        lines.append(_Line(name, len(group), scores, words, filtered))
    return lines


def _scores(replay: Replay, one: Round, position: int, *, has_others: bool) -> Iterator[_Score]:
    verdicts = [verdict(score, position) for score in one.constraint_scores]
    is_soft = False
    for each in verdicts:
        soft = each.violates and not each.is_forbidden
        is_soft = is_soft or soft
        over = _Score(None, "over the limit")
        yield over if each.is_forbidden else _Score(each.score, "soft" if soft else "")
    if len(verdicts) > 1:
        total = None if one.is_forbidden[position] else one.spread_score(position)
        value = total[0] if isinstance(total, tuple) else total
        yield _Score(value, "soft" if is_soft and value is not None else "")
    terms = replay.term_scores(position)
    if len(terms) > 1:
        yield from map(_Score, terms)
    yield _Score(one.candidates.affinity[position].item())
    if has_others:
        yield _Score(int(one.candidates.was_here_in(one.number)[position]))


def _heatmap(lines: Sequence[_Line], columns: Sequence[str]) -> go.Figure:
    width = len(columns)
    empty = _Score(None)
    scores = [[empty if line.filtered else score for score in line.scores] for line in lines]
    ramp = [[score if score.is_on_ramp else empty for score in row] for row in scores]
    # Each column by its own largest score.
    largest = [max((abs(row[i].value or 0) for row in ramp), default=0) or 1 for i in range(width)]
    shades = [
        [None if score.value is None else score.value / largest[i] for i, score in enumerate(row)]
        for row in ramp
    ]
    texts = [[score.words if score.is_on_ramp else "" for score in row] for row in ramp]
    traces = [_heat(shades, texts, RAMP)]
    if any(score.breaks == "soft" for row in scores for score in row):
        marks = [[1.0 if score.breaks == "soft" else None for score in row] for row in scores]
        texts = [[score.words if score.breaks == "soft" else "" for score in row] for row in scores]
        traces.append(_heat(marks, texts, [[0, Color.NEUTRAL], [1, Color.NEUTRAL]]))

    headings = []
    for column in columns:
        broken = wrap(column, 16, break_on_hyphens=False, break_long_words=True)
        headings.append("<br>".join(broken if len(broken) <= 3 else [*broken[:2], broken[2][:-1] + "…"]))
    outcome_texts = go.Scatter(
        mode="text",
        x=[width - 0.45] * len(lines),
        y=list(range(len(lines))),
        text=[line.outcome for line in lines],
        textposition="middle right",
        cliponaxis=False,
        hoverinfo="skip",
    )
    return figure(
        *traces,
        _off_the_ramp(lines, scores),
        outcome_texts,
        height=24 * len(lines) + 72,
        barmode="overlay",
        xaxis={
            "tickvals": list(range(width + 1)),
            "ticktext": [*headings, "outcome"],
            "tickangle": 0,
            "range": [-0.5, width + 1.2],
            "side": "top",
            "showgrid": False,
            "zeroline": False,
        },
        yaxis=row_axis([line.name for line in lines]),
    )


def _heat(shades: list[list[float | None]], texts: list[list[str]], scale: list[list[object]]) -> go.Heatmap:
    return heatmap(
        shades,
        gap=1,
        text=texts,
        texttemplate="%{text}",
        zmin=-1,
        zmax=1,
        colorscale=scale,
        hovertemplate="%{text}<extra></extra>",
    )


def _off_the_ramp(lines: Sequence[_Line], scores: Sequence[Sequence[_Score]]) -> go.Bar:
    """Hatch what is off the ramp: whole rows that a filter removed, and cells over a hard limit."""
    spots = [(row, -0.5, len(line.scores), line.filtered) for row, line in enumerate(lines) if line.filtered]
    spots += [
        (row, column - 0.5, 1, score.breaks)
        for row, cells in enumerate(scores)
        for column, score in enumerate(cells)
        if score.breaks == "over the limit"
    ]
    return go.Bar(
        orientation="h",
        y=[row for row, *_ in spots],
        base=[start for _, start, *_ in spots],
        x=[length for _, _, length, _ in spots],
        width=0.92,
        marker={
            **OUTLINED,
            "pattern": {
                "shape": "/",
                "fgcolor": Color.DIVIDER,
                "bgcolor": Color.CLEAR,
                "size": 8,
                "solidity": 0.15,
            },
        },
        text=[words for *_, words in spots],
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont={"color": Color.TEXT},
        hovertemplate="%{text}<extra></extra>",
    )


MOST_TERMS = 8


def build_up_chart(decision: Decision, cluster: str) -> Chart | None:
    """Draw what each preferred term, and each other score that ranks, adds for a cluster.

    None where nothing is preferred. Raise KeyError if the fleet has no such cluster.
    """
    sums = composition(decision, cluster)
    if not sums.rows:
        return None
    adding, parts = sum(1 for _, points in sums.rows if points), len(sums.rows)
    article = "an" if sums.noun[0] in "aeiou" else "a"
    words = f"{cluster} has {article} {sums.noun} of {minus_signs(score_text(sums.total))}"
    if adding:
        words += f": {adding} of {counted(parts, sums.part)} {verb(adding, 'adds')} points."
    else:
        words += (
            f": its {sums.part} adds none." if parts == 1 else f": none of the {parts} {sums.part}s adds any."
        )

    # Beyond eight rows those that weigh most, and the rest together.
    rows = list(sums.rows)
    if len(rows) > MOST_TERMS:
        chosen = sorted(rows, key=lambda row: -abs(row[1]))[: MOST_TERMS - 1]
        heaviest = [row for row in rows if row in chosen][: MOST_TERMS - 1]
        rest = sum(points for _, points in rows) - sum(points for _, points in heaviest)
        rows = [*heaviest, (f"{len(rows) - len(heaviest)} other terms", rest)]
    points = [value for _, value in rows]
    totals = [0, *accumulate(points)]
    low, high = min(*totals, sums.total), max(*totals, sums.total)
    # Room for the numbers beyond the bars; none beyond zero, where no number is written.
    room = max(1, high - low) * 0.15
    reach = [low - room if low < 0 else 0, high + room if high > 0 else 0]
    labels = [words if len(words) <= 48 else f"{words[:47]}…" for words, _ in rows]
    return Chart(
        name="build-up",
        title=f"{sums.noun.capitalize()} of {cluster}",
        caption=words,
        figure=figure(
            go.Bar(
                orientation="h",
                y=list(range(len(rows) + 1)),
                x=[*points, sums.total],
                base=[*totals[:-1], 0],
                marker={
                    "color": [*(Color.SERIES if one >= 0 else Color.NEUTRAL for one in points), Color.ACCENT]
                },
                text=[minus_signs(score_text(value)) for value in (*points, sums.total)],
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{text}<extra></extra>",
            ),
            height=32 * (len(rows) + 1) + 44,
            bargap=0.35,
            xaxis={"range": reach, "zeroline": True, "title": "points"},
            yaxis=row_axis([*labels, sums.noun]),
        ),
        columns=(sums.part.capitalize(), "Points"),
        rows=(*sums.rows, (sums.noun, sums.total)),
    )
