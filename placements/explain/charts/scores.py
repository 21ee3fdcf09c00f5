"""Charts of scores: what each term adds for the candidates, and the composition of one affinity."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import plotly.graph_objects as go

from fleetui.apimachinery.words import counted
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome
from placements.explain.charts.figure import (
    LEGEND_ABOVE,
    Chart,
    Color,
    figure,
    number_axis,
    row_axis,
)
from placements.explain.decision_tables import composition
from placements.explain.vocabulary import minus_signs, score_text, signed_text, verb

MOST_ROWS = 40


def affinity_chart(
    decision: Decision, outcomes: Sequence[ClusterOutcome]
) -> Chart | None:
    """Draw what each score adds for the selected clusters and the best ten others, one bar a candidate.

    None where nothing is preferred.
    """
    chosen = list(dict.fromkeys([*decision.picked_names, *decision.kept]))[:MOST_ROWS]
    best, filtered = _best_others(decision, set(chosen))
    filtered = filtered or sum(
        outcome.outcome is Outcome.FILTERED for outcome in outcomes
    )
    shown = [*chosen, *best]
    sums = {
        name: composition(decision, name)
        for name in shown
        if name in decision.cycle.fleet.positions
    }
    if not any(one.rows for one in sums.values()):
        return None

    shown = sorted(sums, key=lambda name: -sums[name].total)
    first = next(iter(sums.values()))
    terms = [words for words, _ in first.rows]
    labels = [f"{name} (selected)" if name in chosen else name for name in shown]
    noted = [f"{filtered:,} ruled out before any score"] if filtered else []
    bars = [
        go.Bar(
            orientation="h",
            name=words,
            y=list(range(len(shown))),
            x=[sums[name].rows[place][1] for name in shown],
            marker={
                "color": _SERIES[place % len(_SERIES)],
                "line": {"color": Color.PAGE, "width": 1},
            },
            hovertemplate=f"%{{x}} {words}<extra></extra>",
        )
        for place, words in enumerate(terms)
    ]
    ends = [sum(max(0, points) for _, points in sums[name].rows) for name in shown]
    losses = [sum(min(0, points) for _, points in sums[name].rows) for name in shown]
    low, high = min(losses), max(ends)
    others = f"; {noted[0]}" if noted else ""
    return Chart(
        name="affinity",
        title=f"{first.noun.capitalize()} by candidate",
        caption=f"{counted(len(chosen), 'selected cluster')} and the best {len(best):,} others{others}.",
        figure=figure(
            *bars,
            go.Scatter(
                mode="text",
                x=ends,
                y=list(range(len(shown))),
                text=[f"  {signed_text(sums[name].total)}" for name in shown],
                textposition="middle right",
                cliponaxis=False,
                showlegend=False,
                hoverinfo="skip",
            ),
            height=26 * (len(shown) + len(noted)) + 72,
            barmode="relative",
            bargap=0.3,
            xaxis=number_axis(low, high, "points"),
            yaxis=row_axis([*labels, *noted]),
            **LEGEND_ABOVE,
        ),
        columns=("Cluster", *terms, first.noun.capitalize()),
        rows=tuple(
            (name, *(points for _, points in sums[name].rows), sums[name].total)
            for name in shown
        ),
    )


def _best_others(decision: Decision, chosen: set[str]) -> tuple[list[str], int]:
    """Return the most preferred candidates besides, and how many clusters were no candidates."""
    candidates, names = decision.candidates, decision.cycle.fleet.names
    if candidates is None:
        return [], 0
    passing = np.flatnonzero(candidates.passes)
    order = passing[np.argsort(-candidates.preference[passing], kind="stable")].tolist()
    best = [names[at] for at in order if names[at] not in chosen]
    return best[:_BEST], len(names) - len(passing)


_BEST = 10
_SERIES = (
    Color.SERIES,
    Color.NEUTRAL,
    Color.PLACED,
    Color.COST,
    Color.ACCENT,
    Color.HATCH,
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
    words = (
        f"{cluster} has {article} {sums.noun} of {minus_signs(score_text(sums.total))}"
    )
    if adding:
        words += (
            f": {adding} of {counted(parts, sums.part)} {verb(adding, 'adds')} points."
        )
    else:
        words += (
            f": its {sums.part} adds none."
            if parts == 1
            else f": none of the {parts} {sums.part}s adds any."
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
                    "color": [
                        *(
                            Color.SERIES if point >= 0 else Color.NEUTRAL
                            for point in points
                        ),
                        Color.ACCENT,
                    ]
                },
                text=[
                    minus_signs(score_text(value)) for value in (*points, sums.total)
                ],
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{text}<extra></extra>",
            ),
            height=32 * (len(rows) + 1) + 44,
            bargap=0.35,
            xaxis=number_axis(low, high, "points"),
            yaxis=row_axis([*labels, sums.noun]),
        ),
        columns=(sums.part.capitalize(), "Points"),
        rows=(*sums.rows, (sums.noun, sums.total)),
    )
