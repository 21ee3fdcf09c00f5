"""C4, score heatmap: why did these win and those not? Clusters, or classes of them, by rank column."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

import plotly.graph_objects as go

from placements.explain.charts.chart import BLOCKED, DIVIDER, QUIET, RAMP, TEXT, Cell, Chart, figure
from placements.explain.sentences import preference_words
from placements.explain.wording import OUTCOME_ORDER, counted, score_text
from placements.scheduling.classes import Classes, classes_of
from placements.scheduling.decision import Decision
from placements.scheduling.outcomes import ClusterOutcome, Outcome
from placements.scheduling.replay import Replay, Verdict
from placements.scheduling.replay import verdict as verdict_of
from placements.scheduling.rounds import Round

MOST_ROWS = 60
_ROW, _HEAD, _HEADING = 24, 72, 16
_CLEAR = "rgba(0,0,0,0)"


@dataclass(frozen=True, slots=True)
class _Score:
    """One cell: its number, and the word for a limit that it breaks."""

    value: float | None
    breaks: str = ""

    @property
    def words(self) -> str:
        number = score_text(self.value).replace("-", "−")
        return f"{self.breaks} {number}" if self.breaks == "soft" else self.breaks or number


@dataclass(frozen=True, slots=True)
class _Line:
    """One row: a cluster or a class, its cells, and what became of it."""

    name: str
    count: int
    scores: tuple[_Score, ...]
    outcome: str
    filtered: str


def heatmap_chart(
    decision: Decision, outcomes: Sequence[ClusterOutcome], number: int | None = None
) -> Chart | None:
    """Draw the scores of a step, the last one by default; None for a decision without scores.

    `outcomes` are those of the decision, by name. Raises IndexError for a step that there was not.
    """
    if not decision.number_of_rounds:
        return None
    one = decision.round(number or decision.number_of_rounds)
    lines, columns = _lines(decision, outcomes, one), _columns(decision)
    return Chart(
        name="scores",
        title=f"Scores in step {one.number}",
        caption=_caption(decision, lines, one),
        figure=_figure(lines[:MOST_ROWS], columns),
        columns=("Cluster" if _is_small(decision) else "Class", "Clusters", *columns, "Outcome"),
        rows=tuple((line.name, line.count, *_cells(line), line.outcome) for line in lines),
    )


def _is_small(decision: Decision) -> bool:
    return len(decision.cycle.fleet) <= MOST_ROWS


def _cells(line: _Line) -> Iterator[Cell]:
    for score in line.scores:
        yield line.filtered if line.filtered else score.words if score.breaks else score.value


def _columns(decision: Decision) -> list[str]:
    policy = decision.cycle.policy
    constraints = [one.topology_key for one in policy.topology_spread_constraints]
    terms = [preference_words(term) for term in policy.preferred_terms]
    return [
        *constraints,
        *(["topology"] if len(constraints) > 1 else []),
        *(terms if len(terms) > 1 else []),
        "affinity",
        *(["was here"] if _had_others(decision) else []),
    ]


def _wrapped(words: str) -> str:
    """Break a heading over at most three lines."""
    lines = wrap(words, _HEADING, break_on_hyphens=False, break_long_words=True)
    return "<br>".join(lines if len(lines) <= 3 else [*lines[:2], lines[2][:-1] + "…"])


def _had_others(decision: Decision) -> bool:
    return bool(decision.cycle.standing.obsolete)


def _lines(decision: Decision, outcomes: Sequence[ClusterOutcome], one: Round) -> list[_Line]:
    """Give the rows: clusters, or from a size on their classes, by what became of the first of each."""
    classes, replay = classes_of(decision), Replay(decision)
    names = decision.cycle.fleet.names
    members = (
        [[position] for position in range(len(names))]
        if _is_small(decision)
        else [group.tolist() for group in classes.members]
    )
    told = [(min(group, key=lambda place: _rank(outcomes[place])), group) for group in members]
    told.sort(key=lambda pair: _rank(outcomes[pair[0]]))
    return [_line(classes, replay, outcomes, one, first, group) for first, group in told]


def _rank(one: ClusterOutcome) -> tuple[int, int, str]:
    facts = one.reasons[0].facts
    return OUTCOME_ORDER.index(one.outcome), int(facts.get("pick") or facts.get("rank") or 0), one.cluster


def _line(
    classes: Classes,
    replay: Replay,
    outcomes: Sequence[ClusterOutcome],
    one: Round,
    first: int,
    group: Sequence[int],
) -> _Line:
    name, seen = replay.names[first], next((place for place in group if one.is_left[place]), first)
    if not _is_small(replay.decision):
        name = f"{classes.words(first)} · {counted(len(group), 'cluster')}"
    passes = bool(one.candidates.passes[first]) or outcomes[first].outcome in (Outcome.PICKED, Outcome.KEPT)
    return _Line(
        name,
        len(group),
        tuple(_scores(replay, _own_round(replay.decision, one, outcomes[seen], seen), seen)),
        _outcome_words([outcomes[place] for place in group]),
        "" if passes else str(outcomes[first].ruled_by).replace("-", " "),
    )


def _own_round(decision: Decision, one: Round, outcome: ClusterOutcome, position: int) -> Round:
    """Give the round whose scores tell: this one, or the own one of a cluster that was picked before it."""
    is_taken = outcome.round is not None and outcome.round < one.number and not one.is_left[position]
    return decision.round(outcome.round) if is_taken and outcome.round else one


def _scores(replay: Replay, one: Round, position: int) -> Iterator[_Score]:
    decision = replay.decision
    verdicts = [verdict_of(bid, position) for bid in one.bids]
    yield from map(_of_verdict, verdicts)
    if len(verdicts) > 1:
        total = None if one.is_forbidden[position] else one.spread_score(position)
        value = total[0] if isinstance(total, tuple) else total
        yield _Score(value, "soft" if any(map(_is_soft, verdicts)) and value is not None else "")
    terms = replay.term_scores(position)
    if len(terms) > 1:
        yield from map(_Score, terms)
    yield _Score(one.candidates.affinity[position].item())
    if _had_others(decision):
        yield _Score(int(one.candidates.was_here_in(one.number)[position]))


def _is_soft(verdict: Verdict) -> bool:
    return verdict.violates and not verdict.is_forbidden


def _of_verdict(verdict: Verdict) -> _Score:
    if verdict.is_forbidden:
        return _Score(None, "over the limit")
    return _Score(verdict.score, "soft" if _is_soft(verdict) else "")


def _outcome_words(found: Sequence[ClusterOutcome]) -> str:
    if len(found) == 1:
        one = found[0]
        return f"picked, step {one.round}" if one.round else str(one.outcome)
    counts = [(sum(1 for one in found if one.outcome is outcome), outcome) for outcome in OUTCOME_ORDER]
    return ", ".join(f"{count:,} {outcome}" for count, outcome in counts if count)


def _caption(decision: Decision, lines: Sequence[_Line], one: Round) -> str:
    placed = len(decision.picked_names)
    filtered = sum(line.count for line in lines if line.filtered)
    what = "cluster" if _is_small(decision) else "class"
    words = [
        f"{placed} picked of {counted(len(decision.cycle.fleet), 'cluster')}",
        f"scores as they stood in step {one.number}, of those picked before in their own step",
        "the colour is the share of the largest score of the column",
    ]
    if filtered:
        words.append(f"{filtered} filtered before any score counts (hatched)")
    if len(lines) > MOST_ROWS:
        words.append(f"shown are the first {MOST_ROWS} of {len(lines):,} {what}es, by outcome")
    return "; ".join(words) + "."


def _figure(lines: Sequence[_Line], columns: Sequence[str]) -> go.Figure:
    width = len(columns)
    return figure(
        _ramp(lines, width),
        *([_soft(lines, width)] if any(_breaks(line, "soft") for line in lines) else []),
        _hatched(lines, width),
        _texts(lines, width),
        height=_ROW * len(lines) + _HEAD,
        barmode="overlay",
        xaxis={
            "tickvals": list(range(width + 1)),
            "ticktext": [*map(_wrapped, columns), "outcome"],
            "tickangle": 0,
            "range": [-0.5, width + 1.2],
            "side": "top",
            "showgrid": False,
            "zeroline": False,
        },
        yaxis={
            "tickvals": list(range(len(lines))),
            "ticktext": [line.name for line in lines],
            "range": [len(lines) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
        },
    )


def _breaks(line: _Line, how: str) -> bool:
    return not line.filtered and any(score.breaks == how for score in line.scores)


def _is_on_ramp(line: _Line, column: int) -> bool:
    score = line.scores[column]
    return not line.filtered and not score.breaks and score.value is not None


def _ramp(lines: Sequence[_Line], width: int) -> go.Heatmap:
    """Draw what lies on the ramp, each column by its own largest score."""
    largest = [
        max((abs(line.scores[i].value or 0) for line in lines if _is_on_ramp(line, i)), default=0) or 1
        for i in range(width)
    ]
    return _heat(
        [
            [(line.scores[i].value or 0) / largest[i] if _is_on_ramp(line, i) else None for i in range(width)]
            for line in lines
        ],
        [[line.scores[i].words if _is_on_ramp(line, i) else "" for i in range(width)] for line in lines],
        RAMP,
    )


def _soft(lines: Sequence[_Line], width: int) -> go.Heatmap:
    is_soft = [
        [not line.filtered and line.scores[i].breaks == "soft" for i in range(width)] for line in lines
    ]
    return _heat(
        [[1 if here else None for here in line] for line in is_soft],
        [
            [line.scores[i].words if is_soft[row][i] else "" for i in range(width)]
            for row, line in enumerate(lines)
        ],
        [[0, BLOCKED], [1, BLOCKED]],
    )


def _heat(shades: list[list[float | None]], texts: list[list[str]], scale: list[list[object]]) -> go.Heatmap:
    return go.Heatmap(
        z=shades,
        text=texts,
        texttemplate="%{text}",
        zmin=-1,
        zmax=1,
        colorscale=scale,
        showscale=False,
        xgap=1,
        ygap=1,
        hoverongaps=False,
        hovertemplate="%{text}<extra></extra>",
    )


def _hatched(lines: Sequence[_Line], width: int) -> go.Bar:
    """Hatch what is off the ramp: whole rows that a filter took out, and cells over a hard limit."""
    spots = [(row, -0.5, width, line.filtered) for row, line in enumerate(lines) if line.filtered]
    spots += [
        (row, column - 0.5, 1, "over the limit")
        for row, line in enumerate(lines)
        for column in range(width)
        if not line.filtered and line.scores[column].breaks == "over the limit"
    ]
    return go.Bar(
        orientation="h",
        y=[row for row, *_ in spots],
        base=[start for _, start, *_ in spots],
        x=[length for _, _, length, _ in spots],
        width=0.92,
        marker={
            "color": _CLEAR,
            "line": {"color": QUIET, "width": 1},
            "pattern": {"shape": "/", "fgcolor": DIVIDER, "bgcolor": _CLEAR, "size": 8, "solidity": 0.15},
        },
        text=[words for *_, words in spots],
        textposition="inside",
        insidetextanchor="middle",
        insidetextfont={"color": TEXT},
        hovertemplate="%{text}<extra></extra>",
    )


def _texts(lines: Sequence[_Line], width: int) -> go.Scatter:
    return go.Scatter(
        mode="text",
        x=[width - 0.45] * len(lines),
        y=list(range(len(lines))),
        text=[line.outcome for line in lines],
        textposition="middle right",
        cliponaxis=False,
        hoverinfo="skip",
    )
