"""C6, elimination funnel: where did all the clusters go?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from placements.explain.charts.chart import NEUTRAL, OK, QUIET, Chart, figure, whole_ticks
from placements.explain.wording import counted
from placements.scheduling.outcomes import ClusterOutcome, Outcome
from placements.scheduling.reasons import ReasonCode

_ROW = 34
_CLEAR = "rgba(0,0,0,0)"
_PLACED = (Outcome.PICKED, Outcome.KEPT)

RULES: dict[ReasonCode, str] = {
    ReasonCode.NO_NAMES: "nobody is named",
    ReasonCode.CYCLE_FAILED: "the cycle failed",
    ReasonCode.NOTHING_TO_DO: "enough were placed already",
    ReasonCode.SCALING_DOWN: "this cycle only removes",
    ReasonCode.CLUSTER_LEFT: "leaving the fleet",
    ReasonCode.NOT_NAMED: "not named",
    ReasonCode.REQUIRED_AFFINITY: "required terms",
    ReasonCode.NOT_ELIGIBLE: "eligibility",
    ReasonCode.UNTOLERATED_TAINT: "taints",
    ReasonCode.MISSING_TOPOLOGY_KEY: "topology keys",
    ReasonCode.TOPOLOGY_SPREAD: "hard spread limit",
    ReasonCode.OUTRANKED: "outranked",
    ReasonCode.POLICY_CHANGED: "outranked",
    ReasonCode.CHOSEN_ANEW: "outranked",
    ReasonCode.SCALED_DOWN: "fewer are wanted",
}
"""The rules that take clusters out, in the order in which they are asked, and what people call them."""

_COMPETING = (
    ReasonCode.TOPOLOGY_SPREAD,
    ReasonCode.OUTRANKED,
    ReasonCode.POLICY_CHANGED,
    ReasonCode.CHOSEN_ANEW,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: how many came through, and how many its rule took out; the first and last have no rule."""

    name: str
    remaining: int
    removed: int
    rule: ReasonCode | None = None


def stages(outcomes: Sequence[ClusterOutcome]) -> list[Stage]:
    """Give the stages from the whole fleet to those placed, leaving out rules that took nobody out."""
    removed = Counter(one.ruled_by for one in outcomes if one.outcome not in _PLACED)
    remaining, found = len(outcomes), [Stage("the fleet", len(outcomes), 0)]
    competes = False
    for rule, words in RULES.items():
        if not removed[rule]:
            continue
        if rule in _COMPETING and not competes:
            competes = True
            found.append(Stage("competed", remaining, 0))
        remaining -= removed[rule]
        found.append(Stage(words, remaining, removed[rule], rule))
    return [*found, Stage("placed", remaining, 0)]


def funnel_chart(outcomes: Sequence[ClusterOutcome]) -> Chart:
    """Draw how many clusters each rule left, and how many it took out."""
    found = stages(outcomes)
    return Chart(
        name="funnel",
        title="From the fleet to those placed",
        caption=_caption(found),
        figure=_figure(found),
        columns=("Stage", "Left", "Taken out"),
        rows=tuple((stage.name, stage.remaining, stage.removed) for stage in found),
    )


def _caption(found: Sequence[Stage]) -> str:
    first, last = found[0], found[-1]
    rules = [stage for stage in found if stage.rule]
    words = f"{last.remaining:,} of {counted(first.remaining, 'cluster')} placed"
    if not rules:
        return f"{words}; no rule took anybody out."
    most = max(rules, key=lambda stage: stage.removed)
    return f"{words}; most were taken out by “{most.name}”: {most.removed:,}."


def _figure(found: Sequence[Stage]) -> go.Figure:
    hatch = {"shape": "/", "fgcolor": QUIET, "bgcolor": _CLEAR, "size": 6}
    places = list(range(len(found)))
    left = [stage.remaining for stage in found]
    out = [stage.removed for stage in found]
    colours = [OK if place == len(found) - 1 else NEUTRAL for place in places]
    top = max(1, found[0].remaining)
    return figure(
        _bar(places, left, "left", {"color": colours}, "%{x} left"),
        _bar(
            places,
            out,
            "taken out",
            {"color": _CLEAR, "line": {"color": QUIET, "width": 1}, "pattern": hatch},
            "",
        ),
        _labels(found, top),
        height=_ROW * len(found) + 48,
        barmode="stack",
        bargap=0.35,
        xaxis={"range": [0, top * 1.25], "title": "clusters", **whole_ticks(top)},
        yaxis={
            "tickvals": places,
            "ticktext": [stage.name for stage in found],
            "range": [len(found) - 0.5, -0.5],
            "showgrid": False,
            "zeroline": False,
        },
    )


def _bar(places: list[int], values: list[int], what: str, marker: dict[str, object], hover: str) -> go.Bar:
    return go.Bar(
        orientation="h",
        y=places,
        x=values,
        name=what,
        marker=marker,
        hovertemplate=f"{hover or '%{x} taken out'}<extra></extra>",
    )


def _labels(found: Sequence[Stage], top: int) -> go.Scatter:
    ends = [stage.remaining + stage.removed for stage in found]
    return go.Scatter(
        mode="text",
        x=[end + top * 0.01 for end in ends],
        y=list(range(len(found))),
        text=[
            f"{stage.remaining:,}" + (f"  (−{stage.removed:,})" if stage.removed else "") for stage in found
        ],
        textposition="middle right",
        hoverinfo="skip",
    )
