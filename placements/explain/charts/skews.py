"""C2, skew through the steps: when did it get tight, and what did each pick do?"""

from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from placements.explain.charts.chart import ACCENT, ATTENTION, TEXT, Chart, figure, whole_ticks
from placements.explain.wording import spread_limit
from placements.scheduling.decision import Decision
from placements.scheduling.replay import Replay, Spread, Step

_PANEL, _SPACING = 96, 0.24
_NAMED_UP_TO = 40
MOST_STEPS = 400
"""Lines are drawn, and rows listed, up to this many steps; a longer decision shows its last ones."""


def skew_chart(decision: Decision, current: int | None = None) -> Chart | None:
    """Draw the skew of each constraint after each step, and mark the current one.

    None for a decision without steps or constraints.
    """
    steps = _steps(decision, current)
    if not steps or not steps[0].spreads:
        return None
    return Chart(
        name="skews",
        title=f"{_measure(steps).capitalize()} through the steps",
        caption=_caption(steps, decision.number_of_rounds),
        figure=_figure(steps, current),
        columns=(
            "Step",
            "Picked",
            *(f"{spread.topology_key}: {_measure(steps)}" for spread in steps[0].spreads),
        ),
        rows=tuple(
            (step.number, step.winner or "nobody", *(one.skew_after for one in step.spreads))
            for step in steps
        ),
    )


def _measure(steps: Sequence[Step]) -> str:
    """Call what the limits are on: the skew, or how far the fullest group is above the emptiest."""
    return "skew" if steps[0].spreads[0].limits_skew else "gap"


def _steps(decision: Decision, current: int | None) -> list[Step]:
    replay, last = Replay(decision), decision.number_of_rounds
    if current is not None:
        last = min(last, max(current + MOST_STEPS // 2, MOST_STEPS))
    return [replay.step(number) for number in range(max(1, last - MOST_STEPS + 1), last + 1)]


def _caption(steps: Sequence[Step], in_all: int) -> str:
    parts = [_constraint_words(steps, place) for place in range(len(steps[0].spreads))]
    where = "the last" if steps[-1].number == in_all else f"steps {steps[0].number} to {steps[-1].number},"
    shown = "" if len(steps) == in_all else f" Shown are {where} {len(steps):,} of {in_all:,} steps."
    return f"{'; '.join(parts)}.{shown}"


def _constraint_words(steps: Sequence[Step], place: int) -> str:
    limit = steps[0].spreads[place]
    worst = max(step.spreads[place].skew_after for step in steps)
    ends = steps[-1].spreads[place].skew_after
    words = f"{spread_limit(limit)}: at most {worst} on the way, {ends} at the end"
    if limit.limits_skew:
        return words
    among = "its emptiest sibling" if limit.is_nested else "the emptiest"
    return f"{words}, the fullest group above {among}"


def _figure(steps: Sequence[Step], current: int | None) -> go.Figure:
    spreads = steps[0].spreads
    panels = make_subplots(
        rows=len(spreads), cols=1, shared_xaxes=True, vertical_spacing=_SPACING / len(spreads)
    )
    for place, spread in enumerate(spreads):
        panels.add_trace(_line(steps, place), row=place + 1, col=1)
        if spread.is_hard or spread.limits_skew:
            dashes = {"color": ATTENTION, "dash": "dash", "width": 2}
            panels.add_hline(y=spread.max_skew, row=place + 1, col=1, line=dashes)
        if current is not None:
            panels.add_vline(x=current, row=place + 1, col=1, line={"color": TEXT, "dash": "dot", "width": 1})
        panels.update_yaxes(row=place + 1, col=1, **_skew_axis(steps, place, spread))
    panels.update_xaxes(row=len(spreads), col=1, title="step", **whole_ticks(len(steps), most=12))
    layout = panels.layout.to_plotly_json()
    layout.pop("template", None)
    return figure(*panels.data, height=_PANEL * len(spreads) + 48, **layout)


def _line(steps: Sequence[Step], place: int) -> go.Scatter:
    return go.Scatter(
        x=[step.number for step in steps],
        y=[step.spreads[place].skew_after for step in steps],
        mode="lines+markers" if len(steps) <= _NAMED_UP_TO else "lines",
        line={"shape": "hv", "color": ACCENT, "width": 2},
        customdata=[step.winner or "nobody" for step in steps],
        hovertemplate=f"step %{{x}}: %{{customdata}}<br>{_measure(steps)} %{{y}}<extra></extra>",
    )


def _skew_axis(steps: Sequence[Step], place: int, spread: Spread) -> dict[str, object]:
    limit = spread.max_skew if spread.is_hard or spread.limits_skew else 1
    top = max(limit, *(step.spreads[place].skew_after for step in steps))
    return {
        "title": f"{spread.topology_key} {_measure(steps)}",
        "range": [0, top * 1.15],
        **whole_ticks(top, most=4),
    }
