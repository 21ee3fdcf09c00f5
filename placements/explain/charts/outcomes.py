"""The chart of outcomes: the filtering summary."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from fleetui.apimachinery.words import counted
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome
from placements.engine.scheduling.reason import ReasonCode
from placements.explain.charts.figure import (
    HATCHED,
    Chart,
    Color,
    figure,
    number_axis,
    row_axis,
)

_PLACED = (Outcome.PICKED, Outcome.KEPT)

# The rules that remove clusters, in the order in which they apply, and their names on
# pages. Clusters that a filter removes with a code that is missing here are counted
# as placed.
RULES: dict[ReasonCode, str] = {
    ReasonCode.NO_NAMES: "no cluster names",
    ReasonCode.CYCLE_FAILED: "scheduling failed",
    ReasonCode.NOTHING_TO_DO: "placement already satisfied",
    ReasonCode.SCALING_DOWN: "this cycle only removes",
    ReasonCode.NOT_IN_BATCH: "few moves",
    ReasonCode.CLUSTER_LEFT: "leaving the fleet",
    ReasonCode.NOT_NAMED: "not named",
    ReasonCode.NOT_IN_CLUSTER_SET: "cluster sets",
    ReasonCode.REQUIRED_AFFINITY: "required affinity",
    ReasonCode.NOT_ELIGIBLE: "not ready",
    ReasonCode.NAMESPACE_MISSING: "namespace",
    ReasonCode.UNTOLERATED_TAINT: "taints",
    ReasonCode.MISSING_TOPOLOGY_KEY: "topology keys",
    ReasonCode.TOPOLOGY_SPREAD: "hard spread limit",
    ReasonCode.OUTRANKED: "lower rank",
    ReasonCode.POLICY_CHANGED: "lower rank",
    ReasonCode.CHOSEN_AGAIN: "lower rank",
    ReasonCode.SCALED_DOWN: "fewer clusters requested",
    ReasonCode.MOVED_BY_PLAN: "moved by a plan",
}
_COMPETING = {
    ReasonCode.TOPOLOGY_SPREAD,
    *(code for code, words in RULES.items() if words == "lower rank"),
}


@dataclass(frozen=True, slots=True)
class FunnelStage:
    """One stage: how many clusters remain, and how many its rule removed; the first and last have no rule."""

    name: str
    remaining: int
    removed: int
    rule: ReasonCode | None = None


def stages(outcomes: Sequence[ClusterOutcome]) -> list[FunnelStage]:
    """Return the stages from the whole fleet to the clusters placed, without rules that removed none."""
    removed = Counter(
        outcome.against.code for outcome in outcomes if outcome.outcome not in _PLACED
    )
    remaining, funnel = len(outcomes), [FunnelStage("the fleet", len(outcomes), 0)]
    competes = False
    for rule, words in RULES.items():
        if not removed[rule]:
            continue
        if rule in _COMPETING and not competes:
            competes = True
            funnel.append(FunnelStage("candidates", remaining, 0))
        remaining -= removed[rule]
        funnel.append(FunnelStage(words, remaining, removed[rule], rule))
    return [*funnel, FunnelStage("placed", remaining, 0)]


def funnel_chart(outcomes: Sequence[ClusterOutcome]) -> Chart:
    funnel = stages(outcomes)
    first, *rules, last = funnel
    words = f"{last.remaining:,} of {counted(first.remaining, 'cluster')} placed"
    rules = [stage for stage in rules if stage.rule]
    if rules:
        most = max(rules, key=lambda stage: stage.removed)
        words += f"; most removed by “{most.name}”: {most.removed:,}."
    else:
        words += "; no rule removed any."

    places = list(range(len(funnel)))
    top = max(1, first.remaining)
    colours = [Color.SERIES if stage is last else Color.NEUTRAL for stage in funnel]
    bars = [
        go.Bar(
            orientation="h",
            y=places,
            x=values,
            name=what,
            marker=marker,
            hovertemplate=f"%{{x}} {what}<extra></extra>",
        )
        for what, values, marker in (
            ("remaining", [stage.remaining for stage in funnel], {"color": colours}),
            ("removed", [stage.removed for stage in funnel], HATCHED),
        )
    ]
    return Chart(
        name="funnel",
        title="Filtering summary",
        caption=words,
        figure=figure(
            *bars,
            go.Scatter(
                mode="text",
                x=[stage.remaining + stage.removed + top * 0.01 for stage in funnel],
                y=places,
                text=[
                    f"{stage.remaining:,}"
                    + (f"  (−{stage.removed:,})" if stage.removed else "")
                    for stage in funnel
                ],
                textposition="middle right",
                hoverinfo="skip",
            ),
            height=34 * len(funnel) + 48,
            barmode="stack",
            bargap=0.35,
            xaxis=number_axis(0, top, "clusters", room=0.25),
            yaxis=row_axis([stage.name for stage in funnel]),
        ),
        columns=("Stage", "Remaining", "Removed"),
        rows=tuple((stage.name, stage.remaining, stage.removed) for stage in funnel),
    )
