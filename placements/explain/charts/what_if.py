"""C11, what-if impact: which placements move or get stuck?"""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from placements.explain.charts.bars import hatched, round_ticks
from placements.explain.charts.chart import ATTENTION, FAILED, OK, Chart, figure
from placements.explain.wording import verb

MOST_BARS = 30
_BAR, _AROUND = 22, 72
_PARTS = (
    ("stay", OK, "", "stays"),
    ("move", ATTENTION, "/", "moves"),
    ("are lost", FAILED, "x", "lost"),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """One placement: on how many clusters it stays, how many it moves, how many it loses."""

    placement: str
    fate: str
    stays: int
    moves: int
    lost: int


def what_if_chart(bars: Sequence[Bar], *, total: Bar, in_all: int) -> Chart | None:
    """Draw the placements that are concerned, in the order given; None where nothing is placed.

    `total` sums up all `in_all` placements, those beyond the first thirty among them.
    """
    if not total.stays + total.moves + total.lost:
        return None
    shown = bars[:MOST_BARS]
    return Chart(
        name="what-if",
        title="What moves, and what is lost",
        caption=_caption(shown, total, in_all),
        figure=_figure([*shown, total]),
        columns=("Placement", "Fate", "Stays on", "Moves from", "Loses"),
        rows=tuple((one.placement, one.fate, one.stays, one.moves, one.lost) for one in (*shown, total)),
    )


def _caption(shown: Sequence[Bar], total: Bar, in_all: int) -> str:
    placed = total.stays + total.moves + total.lost
    words = ((total.stays, "stays"), (total.moves, "moves"), (total.lost, "is"))
    fates = ", ".join(f"{count:,} {verb(count, word)}" for count, word in words) + " lost"
    told = f"Placed on clusters {placed:,} times: {fates}"
    left_out = (
        f". Shown are {len(shown):,} of {in_all:,} placements, the worst first" if in_all > len(shown) else ""
    )
    return f"{told}{left_out}."


def _figure(bars: Sequence[Bar]) -> go.Figure:
    largest = max(one.stays + one.moves + one.lost for one in bars)
    names = [one.placement for one in bars]
    traces = [_trace(bars, names, *part) for part in _PARTS]
    return figure(
        *traces,
        height=_BAR * len(bars) + _AROUND,
        barmode="stack",
        bargap=0.3,
        showlegend=True,
        legend={"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        margin={"l": 8, "r": 16, "t": 32, "b": 8},
        yaxis={"autorange": "reversed", "type": "category", "showgrid": False, **_labels(bars)},
        xaxis={"title": "clusters", "range": [0, largest * 1.04], **round_ticks(largest)},
    )


def _labels(bars: Sequence[Bar]) -> dict[str, object]:
    """Write how many move and are lost beside the names: a few of thousands are no more than a hair."""
    return {
        "tickvals": [one.placement for one in bars],
        "ticktext": [f"{one.placement}  {_changes(one)}".rstrip() for one in bars],
    }


def _changes(bar: Bar) -> str:
    told = ((bar.moves, "moves"), (bar.lost, "is"))
    words = [f"{count:,} {verb(count, word)}" for count, word in told if count]
    return ", ".join(words) + (" lost" if bar.lost else "")


def _trace(bars: Sequence[Bar], names: list[str], words: str, colour: str, hatch: str, field: str) -> go.Bar:
    return go.Bar(
        name=words,
        orientation="h",
        y=names,
        x=[getattr(one, field) for one in bars],
        marker=hatched(colour, hatch),
        hovertemplate=f"%{{y}}: %{{x}} {words}<extra></extra>",
    )
