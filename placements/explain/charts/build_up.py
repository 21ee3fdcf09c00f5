"""C7, score build-up: how is the affinity score of one cluster composed?"""

from collections.abc import Sequence
from itertools import accumulate

import plotly.graph_objects as go

from placements.explain.charts.chart import ACCENT, ATTENTION, OK, Chart, figure
from placements.explain.sentences import preference_words
from placements.explain.wording import counted, score_text, verb
from placements.scheduling.decision import Decision
from placements.scheduling.scores.preferred import observed_range, term_scores
from placements.scheduling.semantics import Semantics

MOST_TERMS = 8
_ROW = 32


def build_up_chart(decision: Decision, cluster: str) -> Chart | None:
    """Draw what each preferred term gives a cluster; None where nothing is preferred.

    Raises KeyError when the fleet has no such cluster.
    """
    position, parts = decision.cycle.fleet.positions[cluster], _parts(decision)
    if not parts or decision.cycle.semantics is Semantics.OCM:
        return None
    rows = [(words, column[position]) for words, column in parts]
    total = sum(points for _, points in rows)
    return Chart(
        name="build-up",
        title=f"Affinity score of {cluster}",
        caption=_caption(cluster, rows, total),
        figure=_figure(_drawn(rows), total),
        columns=("Preferred term", "Points"),
        rows=(*rows, ("affinity score", total)),
    )


def _parts(decision: Decision) -> list[tuple[str, list[int]]]:
    fleet = decision.cycle.fleet
    found = []
    for term in decision.cycle.policy.preferred_terms:
        words, sorter = preference_words(term), term.preference.property_sorter
        bounds = observed_range(sorter.name, fleet) if sorter else None
        if bounds:
            words += f", seen from {score_text(bounds[0])} to {score_text(bounds[1])}"
        found.append((words, term_scores(term, fleet).tolist()))
    return found


def _caption(cluster: str, rows: Sequence[tuple[str, int]], total: int) -> str:
    given = [points for _, points in rows if points]
    words = f"{cluster} has an affinity score of {_signed(total)}"
    if not given:
        which = (
            "its preferred term gives none"
            if len(rows) == 1
            else f"none of the {len(rows)} preferred terms gives it a point"
        )
        return f"{words}: {which}."
    terms = counted(len(rows), "preferred term")
    return f"{words}: {len(given)} of {terms} {verb(len(given), 'gives')} points."


def _signed(points: int) -> str:
    return str(points).replace("-", "−")


def _drawn(rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Give the rows to draw: beyond eight, those that weigh most, and the rest together."""
    if len(rows) <= MOST_TERMS:
        return rows
    chosen = sorted(rows, key=lambda row: -abs(row[1]))[: MOST_TERMS - 1]
    shown = [row for row in rows if row in chosen][: MOST_TERMS - 1]
    rest = sum(points for _, points in rows) - sum(points for _, points in shown)
    return [*shown, (f"{len(rows) - len(shown)} other terms", rest)]


def _figure(rows: list[tuple[str, int]], total: int) -> go.Figure:
    points = [value for _, value in rows]
    starts = [0, *accumulate(points)][:-1]
    colours = [OK if value >= 0 else ATTENTION for value in points]
    names = [*(_short(words) for words, _ in rows), "affinity score"]
    ends = [0, *accumulate(points), total]
    span = max(1, max(ends) - min(ends))
    return figure(
        go.Bar(
            orientation="h",
            y=list(range(len(names))),
            x=[*points, total],
            base=[*starts, 0],
            marker={"color": [*colours, ACCENT]},
            text=[_signed(value) for value in (*points, total)],
            textposition="outside",
            cliponaxis=False,
            hovertemplate="%{text}<extra></extra>",
        ),
        height=_ROW * len(names) + 44,
        bargap=0.35,
        xaxis={
            "range": [_beyond(min(ends), -span), _beyond(max(ends), span)],
            "zeroline": True,
            "title": "points",
        },
        yaxis={
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "range": [len(names) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
        },
    )


def _beyond(end: int, span: int) -> float:
    """Leave room beyond an end of the bars for its number; none beyond zero, where nothing is written."""
    return end + span * 0.15 if end * span > 0 else 0


def _short(words: str, most: int = 48) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
