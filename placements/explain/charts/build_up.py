"""C7, score build-up: of what is the preference for one cluster, or its affinity score, composed?"""

from collections.abc import Sequence
from itertools import accumulate

import plotly.graph_objects as go

from placements.explain.charts.chart import ACCENT, ATTENTION, OK, Chart, figure
from placements.explain.preferences import Composition, composition
from placements.explain.wording import counted, score_text, verb
from placements.scheduling.decision import Decision

MOST_TERMS = 8
_ROW = 32


def build_up_chart(decision: Decision, cluster: str) -> Chart | None:
    """Draw what each preferred term, and each other score that ranks, gives a cluster.

    None where nothing is preferred. Raises KeyError when the fleet has no such cluster.
    """
    made = composition(decision, cluster)
    if not made.rows:
        return None
    return Chart(
        name="build-up",
        title=f"{made.noun.capitalize()} of {cluster}",
        caption=_caption(cluster, made),
        figure=_figure(_drawn(list(made.rows)), made),
        columns=(made.part.capitalize(), "Points"),
        rows=(*made.rows, (made.noun, made.total)),
    )


def _caption(cluster: str, made: Composition) -> str:
    given, parts = sum(1 for _, points in made.rows if points), len(made.rows)
    article = "an" if made.noun[0] in "aeiou" else "a"
    words = f"{cluster} has {article} {made.noun} of {_signed(made.total)}"
    if given:
        return f"{words}: {given} of {counted(parts, made.part)} {verb(given, 'gives')} points."
    none = f"none of the {parts} {made.part}s gives it a point"
    return f"{words}: {f'its {made.part} gives none' if parts == 1 else none}."


def _signed(points: float) -> str:
    return score_text(points).replace("-", "−")


def _drawn(rows: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Give the rows to draw: beyond eight, those that weigh most, and the rest together."""
    if len(rows) <= MOST_TERMS:
        return rows
    chosen = sorted(rows, key=lambda row: -abs(row[1]))[: MOST_TERMS - 1]
    shown = [row for row in rows if row in chosen][: MOST_TERMS - 1]
    rest = sum(points for _, points in rows) - sum(points for _, points in shown)
    return [*shown, (f"{len(rows) - len(shown)} other terms", rest)]


def _figure(rows: Sequence[tuple[str, float]], made: Composition) -> go.Figure:
    points, total = [value for _, value in rows], made.total
    starts = [0, *accumulate(points)][:-1]
    colours = [OK if value >= 0 else ATTENTION for value in points]
    names = [*(_short(words) for words, _ in rows), made.noun]
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


def _beyond(end: float, span: float) -> float:
    """Leave room beyond an end of the bars for its number; none beyond zero, where nothing is written."""
    return end + span * 0.15 if end * span > 0 else 0


def _short(words: str, most: int = 48) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
