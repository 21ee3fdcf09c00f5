"""Charts of outcomes: the filtering summary, and the combinations of two label keys."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from clusters.columns import ABSENT, Bools, Ints
from fleetui.apimachinery.words import counted, first_names, joined
from placements.engine.scheduling.candidates import candidates_of
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.outcome import ClusterOutcome, Outcome
from placements.engine.scheduling.reason import ReasonCode
from placements.explain.charts.figure import (
    HATCHED,
    RAMP,
    Chart,
    Color,
    GroupName,
    figure,
    heatmap,
    row_axis,
    whole_ticks,
)
from placements.explain.vocabulary import TIMES
from placements.manifests.policy import PlacementType

_PLACED = (Outcome.PICKED, Outcome.KEPT)

RULES: dict[ReasonCode, str] = {
    ReasonCode.NO_NAMES: "no cluster names",
    ReasonCode.CYCLE_FAILED: "scheduling failed",
    ReasonCode.NOTHING_TO_DO: "placement already satisfied",
    ReasonCode.SCALING_DOWN: "this cycle only removes",
    ReasonCode.NOT_IN_BATCH: "not in this batch",
    ReasonCode.CLUSTER_LEFT: "leaving the fleet",
    ReasonCode.NOT_NAMED: "not named",
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
"""The rules that remove clusters, in the order in which they apply, and their names on pages.

Clusters that a filter removes with a code that is missing here are counted as placed.
"""
_COMPETING = {ReasonCode.TOPOLOGY_SPREAD, *(code for code, words in RULES.items() if words == "lower rank")}


@dataclass(frozen=True, slots=True)
class FunnelStage:
    """One stage: how many clusters remain, and how many its rule removed; the first and last have no rule."""

    name: str
    remaining: int
    removed: int
    rule: ReasonCode | None = None


def stages(outcomes: Sequence[ClusterOutcome]) -> list[FunnelStage]:
    """Return the stages from the whole fleet to the clusters placed, without rules that removed none."""
    removed = Counter(one.ruled_by for one in outcomes if one.outcome not in _PLACED)
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
    """Draw how many clusters each rule left, and how many it removed."""
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
    labels = go.Scatter(
        mode="text",
        x=[stage.remaining + stage.removed + top * 0.01 for stage in funnel],
        y=places,
        text=[
            f"{stage.remaining:,}" + (f"  (−{stage.removed:,})" if stage.removed else "") for stage in funnel
        ],
        textposition="middle right",
        hoverinfo="skip",
    )
    return Chart(
        name="funnel",
        title="Filtering summary",
        caption=words,
        figure=figure(
            *bars,
            labels,
            height=34 * len(funnel) + 48,
            barmode="stack",
            bargap=0.35,
            xaxis={"range": [0, top * 1.25], "title": "clusters", **whole_ticks(top)},
            yaxis=row_axis([stage.name for stage in funnel]),
        ),
        columns=("Stage", "Remaining", "Removed"),
        rows=tuple((stage.name, stage.remaining, stage.removed) for stage in funnel),
    )


MOST = 40


def label_keys(decision: Decision) -> list[str]:
    """Return the label keys of the fleet, those of the policy's spread first, then by name."""
    spread = [one.topology_key for one in decision.cycle.policy.topology_spread_constraints]
    keys = {key for cluster in decision.cycle.fleet for key in cluster.labels}
    return [*dict.fromkeys(key for key in spread if key in keys), *sorted(keys - set(spread))]


def matrix_chart(decision: Decision, first: str, second: str) -> Chart:
    """Draw how many of the candidates are placed, in every combination of the values of two keys."""
    keys = (first, second)
    names, (clusters, candidates, placed) = _count_combinations(decision, keys)
    could = [
        (f"{names[0][i]} / {names[1][j]}", int(placed[i, j]))
        for i, j in zip(*np.nonzero(candidates), strict=True)
    ]
    covered = sum(1 for _, count in could if count)
    words = f"Placed in {covered} of {counted(len(could), 'combination')} with a candidate"
    bare = [name for name, count in could if not count]
    if bare:
        words += f"; none in {first_names(bare)}"
    words += ". Each cell: placed / candidates; empty without clusters."
    # Of many rows or columns those furthest from the mean.
    indices = []
    for axis in (0, 1):
        sums = placed.sum(axis=1 - axis)
        order = (
            np.argsort(-np.abs(sums - sums.mean()), kind="stable") if len(sums) > MOST else range(len(sums))
        )
        indices.append(sorted(int(at) for at in order[:MOST]))
    cut = [
        f"{len(drawn):,} of {len(values):,} values of {key}"
        for drawn, values, key in zip(indices, names, keys, strict=True)
        if len(drawn) < len(values)
    ]
    if cut:
        words += f" Shown: {joined(cut)}, furthest from the mean."

    def domain(key: str, name: str) -> GroupName:
        return GroupName.of(key, None if name == f"no {key}" else name, name)

    window = np.ix_(*indices)
    labels = [[values[at] for at in drawn] for values, drawn in zip(names, indices, strict=True)]
    return Chart(
        name="matrix",
        title=f"{first} {TIMES} {second}",
        caption=words,
        figure=_matrix_figure(keys, labels, clusters[window], candidates[window], placed[window]),
        columns=(first, second, "Placed", "Candidates", "Clusters"),
        rows=tuple(
            (
                domain(first, name),
                domain(second, other),
                *(int(one[i, j]) for one in (placed, candidates, clusters)),
            )
            for i, name in enumerate(names[0])
            for j, other in enumerate(names[1])
            if clusters[i, j]
        ),
    )


def _count_combinations(
    decision: Decision, keys: tuple[str, str]
) -> tuple[list[list[str]], tuple[Ints, Ints, Ints]]:
    """Return the values of both keys, and of each combination its clusters, candidates and placed ones."""
    cycle = decision.cycle
    fleet, positions = cycle.fleet, cycle.fleet.positions
    sides = [fleet.label(key) for key in keys]
    names = [
        [*side.values, *([f"no {key}"] if (side.codes == ABSENT).any() else [])]
        for side, key in zip(sides, keys, strict=True)
    ]
    codes = [np.where(side.codes == ABSENT, len(side.values), side.codes) for side in sides]

    def counts(mask: Bools) -> Ints:
        table = np.zeros((len(names[0]), len(names[1])), dtype=np.int64)
        np.add.at(table, (codes[0][mask], codes[1][mask]), 1)
        return table

    placed = np.zeros(len(fleet), dtype=np.bool_)
    active = (binding.cluster for binding in decision.bindings_after if binding.is_active)
    placed[[positions[name] for name in active if name in positions]] = True
    # Candidates pass every filter but "placed already"; under PickFixed every ready cluster is one.
    if cycle.policy.placement_type is PlacementType.PICK_FIXED or decision.kind is CycleKind.FAILED:
        passes: Bools = cycle.fleet.is_eligible
    else:
        passes = (decision.candidates or candidates_of(cycle)).passes
    every = np.ones(len(fleet), dtype=np.bool_)
    return names, (counts(every), counts(passes | placed), counts(placed))


def _matrix_figure(
    keys: Sequence[str], names: Sequence[list[str]], clusters: Ints, candidates: Ints, placed: Ints
) -> go.Figure:
    counts = zip(clusters.tolist(), candidates.tolist(), placed.tolist(), strict=True)
    lines = [list(zip(*line, strict=True)) for line in counts]
    most = max(1, int(placed.max(initial=0)))
    down, across = (
        {"title": key, **row_axis(values), "ticklen": 0, "tickcolor": Color.NEUTRAL}
        for key, values in zip(keys, names, strict=True)
    )
    return figure(
        heatmap(
            [[p if n else None for n, _, p in line] for line in lines],
            text=[[f"{p:,} / {c:,}" if n else "" for n, c, p in line] for line in lines],
            texttemplate="%{text}",
            customdata=clusters.tolist(),
            zmin=-most,
            zmax=most,
            colorscale=RAMP,
            hovertemplate="%{text} of %{customdata:,d} clusters<extra></extra>",
        ),
        height=30 * len(names[0]) + 72,
        xaxis={**across, "range": [-0.5, len(names[1]) - 0.5]},
        yaxis=down,
    )
