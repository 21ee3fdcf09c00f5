"""C12, score cloud: was it close? Topology spread score against affinity score of everybody in one step."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import sqrt

import numpy as np
import plotly.graph_objects as go

from placements.explain.charts.chart import ATTENTION, NEUTRAL, OK, Chart, figure
from placements.explain.wording import counted, score_text
from placements.scheduling.decision import Decision
from placements.scheduling.replay import Replay, Step
from placements.scheduling.rounds import Round
from placements.scheduling.spread.base import SOFT_VIOLATION_SCORE

_CLEAR = "rgba(0,0,0,0)"
_LANE = 1.5


@dataclass(frozen=True, slots=True)
class _Bubble:
    """The clusters with the same two scores."""

    topology: float
    affinity: float
    count: int
    in_front: int


def cloud_chart(decision: Decision, number: int | None = None) -> Chart | None:
    """Draw everybody who could be picked in a step, the last one that picked by default; None without steps.

    Raises IndexError for a step that there was not.
    """
    if not decision.number_of_rounds or not len(decision.chosen):
        return None
    one = decision.round(number or min(decision.number_of_rounds, len(decision.chosen)))
    step, bubbles = Replay(decision).step(one.number), _bubbles(one, _taken_by(one, decision))
    if not bubbles:
        return None
    return Chart(
        name="cloud",
        title=f"Scores in step {one.number}",
        caption=_caption(step, bubbles, int(np.count_nonzero(one.is_left & one.is_forbidden))),
        figure=_figure(bubbles),
        columns=("Topology spread", "Affinity", "Clusters", "Picked in this step"),
        rows=tuple((one.topology, one.affinity, one.count, one.in_front) for one in bubbles),
    )


def _taken_by(one: Round, decision: Decision) -> int:
    """Count whom this step takes: one with a spread, else all that are wanted at once."""
    return (1 if len(one.ranked) else 0) if one.bids else len(decision.chosen)


def _bubbles(one: Round, taken: int) -> list[_Bubble]:
    ranked = one.ranked
    topology = one.spread[0][ranked].tolist() if one.bids else [0] * len(ranked)
    pairs = list(zip(topology, one.candidates.affinity[ranked].tolist(), strict=True))
    counts, in_front = Counter(pairs), Counter(pairs[:taken])
    return [_Bubble(*pair, counts[pair], in_front[pair]) for pair in sorted(counts, reverse=True)]


def _caption(step: Step, bubbles: list[_Bubble], forbidden: int) -> str:
    competing = sum(one.count for one in bubbles)
    equal = next(one for one in bubbles if one.in_front)
    words = [f"{counted(competing, 'cluster')} competed in step {step.number}"]
    if forbidden:
        words.append(f"{forbidden} more were out by a hard limit")
    last = [one for one in bubbles if one.in_front][-1]
    rest = last.count - last.in_front
    if rest:
        words.append(
            f"close: {counted(rest, 'cluster')} had the same scores as the last one taken, and lost by rank"
        )
    elif len(bubbles) == 1:
        words.append("all of them were taken")
    else:
        words.append(f"the best stood at {score_text(equal.topology)} | {score_text(equal.affinity)}, alone")
    return "; ".join(words).replace("-", "−") + "."


def _figure(bubbles: list[_Bubble]) -> go.Figure:
    lane = _lane(one.topology for one in bubbles)
    width = sqrt(max(one.count for one in bubbles))
    sizes = [10 + 30 * sqrt(one.count) / max(width, 3) for one in bubbles]
    last = [one for one in bubbles if one.in_front][-1]
    places = [_place(one.topology, lane) for one in bubbles]
    ticks = sorted(set(places))
    return figure(
        go.Scatter(
            mode="markers+text",
            x=places,
            y=[one.affinity for one in bubbles],
            text=[f"{one.count:,}" if one.count > 1 else "" for one in bubbles],
            marker={
                "size": sizes,
                "color": [OK if one.in_front else _CLEAR for one in bubbles],
                "line": {"color": [OK if one.in_front else NEUTRAL for one in bubbles], "width": 2},
            },
            textposition="middle right",
            cliponaxis=False,
            customdata=[[one.topology, one.count, one.in_front] for one in bubbles],
            hovertemplate="topology %{customdata[0]}, affinity %{y}<br>%{customdata[1]:,d} competed,"
            " %{customdata[2]:,d} taken<extra></extra>",
        ),
        height=320,
        shapes=[_cut(last, lane, is_flat=len(set(places)) == 1)],
        xaxis={
            "title": "topology spread score",
            "tickvals": ticks[:: max(1, len(ticks) // 8)],
            "ticktext": [_tick(place, lane) for place in ticks[:: max(1, len(ticks) // 8)]],
            "range": [min(places) - 1, max(places) + 1],
            "zeroline": False,
        },
        yaxis={"title": "affinity score", "zeroline": False},
    )


def _cut(last: _Bubble, lane: float, *, is_flat: bool) -> dict[str, object]:
    """Draw the line through the last one taken: across the affinity where nobody differs in topology."""
    style = {"type": "line", "layer": "below", "line": {"color": ATTENTION, "width": 2, "dash": "dash"}}
    if is_flat:
        return {**style, "xref": "paper", "x0": 0, "x1": 1, "y0": last.affinity, "y1": last.affinity}
    place = _place(last.topology, lane)
    return {**style, "yref": "paper", "y0": 0, "y1": 1, "x0": place, "x1": place}


def _lane(values: Iterable[float]) -> float:
    """Give where soft violations stand: beside all others, for −1000 would press those together."""
    normal = [value for value in values if value > SOFT_VIOLATION_SCORE / 2]
    return min(normal, default=0) - _LANE


def _place(topology: float, lane: float) -> float:
    return topology if topology > SOFT_VIOLATION_SCORE / 2 else lane


def _tick(place: float, lane: float) -> str:
    return "−1000 or less" if place == lane else score_text(place).replace("-", "−")
