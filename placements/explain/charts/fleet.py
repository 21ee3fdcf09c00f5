"""Charts of the fleet: bars for one label, a matrix for two."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from clusters.columns import domain_order
from clusters.filters import ClusterListState, Domain
from placements.explain.charts.figure import (
    Cell,
    Chart,
    Color,
    GroupName,
    figure,
    matrix,
    row_axis,
    stacked_bars,
)
from placements.explain.vocabulary import value_words

MOST_BARS, MOST_SIDE = 40, 40


class _State(NamedTuple):
    """How a state of a cluster is drawn, and its word on pages."""

    color: str
    hatch: str
    words: str


STATES = {
    ClusterListState.READY: _State(Color.HEALTHY, "", "ready"),
    ClusterListState.NOT_MONITORED: _State(Color.UNKNOWN, "", "not monitored"),
    ClusterListState.JOINING: _State(Color.PROGRESS, ".", "joining"),
    ClusterListState.CORDONED: _State(Color.NEUTRAL, "/", "cordoned"),
    ClusterListState.WORKLOADS_FAILING: _State(
        Color.ATTENTION, "x", "workloads failing"
    ),
    ClusterListState.UNHEALTHY: _State(Color.ATTENTION, "+", "unhealthy"),
    ClusterListState.HEARTBEAT_LATE: _State(Color.ATTENTION, "\\", "heartbeat late"),
    ClusterListState.NOT_OBSERVED: _State(Color.UNKNOWN, "\\", "not observed"),
    ClusterListState.NOT_ELIGIBLE: _State(Color.FAILED, "x", "not ready"),
    ClusterListState.LEAVING: _State(Color.PROGRESS, "-", "leaving"),
}


def topology_chart(keys: tuple[str, ...], groups: Sequence[Domain]) -> Chart | None:
    """Draw the domains of one label or two; None without clusters."""
    if not groups:
        return None
    states = [
        state for state in STATES if any(group.counts.get(state) for group in groups)
    ]
    totals = [group.total for group in groups if None not in group.values]
    total, without = (
        sum(group.total for group in groups),
        sum(group.total for group in groups if None in group.values),
    )
    words = f"{total:,} clusters in {len(totals):,} domains by {' and '.join(keys)}"
    if totals:
        smallest, largest = min(totals), max(totals)
        words += (
            f", {smallest:,} to {largest:,} each"
            if smallest < largest
            else f", {largest:,} each"
        )
    if without:
        words += f"; {without:,} without {'the label' if len(keys) == 1 else 'a label'}"
    most = MOST_BARS if len(keys) == 1 else MOST_SIDE
    sides = [
        len({group.values[place] for group in groups}) for place in range(len(keys))
    ]
    cut = [
        f"{most:,} of {side:,} values of {key}"
        for key, side in zip(keys, sides, strict=True)
        if side > most
    ]
    if cut:
        words += f". Shown: the largest {' and '.join(cut)}"

    if len(keys) == 1:
        [values] = _largest(groups, keys, most)
        bars = [group for group in groups if group.values[0] in values]
        chart = stacked_bars(
            [value_words(bar.values[0]) for bar in bars],
            [
                (
                    STATES[state].words,
                    *STATES[state][:2],
                    [bar.counts.get(state, 0) for bar in bars],
                )
                for state in states
            ],
            height=26 * len(bars) + 72,
            bargap=0.25,
        )
    else:
        chart = _matrix(keys, groups)
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        names = (
            GroupName.of(key, value, value_words(value))
            for key, value in zip(keys, group.values, strict=True)
        )
        rows.append(
            (*names, group.total, *(group.counts.get(state, 0) for state in states))
        )
    return Chart(
        name="topology",
        title=f"Clusters by {' and '.join(keys)}",
        caption=f"{words}.",
        figure=chart,
        columns=(
            *keys,
            "Clusters",
            *(STATES[state].words.capitalize() for state in states),
        ),
        rows=tuple(rows),
    )


def _matrix(keys: tuple[str, ...], groups: Sequence[Domain]) -> go.Figure:
    down, across = _largest(groups, keys, MOST_SIDE)
    count = {group.values: group.total for group in groups}
    return figure(
        matrix(
            [[count.get((row, column)) for column in across] for row in down],
            texts=[
                [
                    f"{keys[0]} {value_words(row)}, {keys[1]} {value_words(column)}:"
                    f" {count.get((row, column), 0):,} clusters"
                    for column in across
                ]
                for row in down
            ],
            marker={
                "colorscale": [
                    [step / 3, f"var(--ramp-{step + 4})"] for step in range(4)
                ],
                "cmin": 0,
                "cmax": max(count.values()),
            },
            texttemplate="%{customdata:,d}",
            textposition="inside",
            insidetextanchor="middle",
            constraintext="none",
            textangle=0,
        ),
        height=28 * len(down) + 72,
        yaxis={
            **row_axis([value_words(one) for one in down]),
            "title": {"text": keys[0], "standoff": 16},
        },
        xaxis={
            "side": "top",
            "tickvals": list(range(len(across))),
            "ticktext": [value_words(one) for one in across],
            "range": [-0.5, len(across) - 0.5],
            "title": {"text": keys[1], "standoff": 8},
            "showgrid": False,
            "zeroline": False,
        },
        margin={"l": 16, "r": 16, "t": 48, "b": 8},
    )


def _largest(
    groups: Sequence[Domain], keys: Sequence[str], most: int
) -> list[list[str | None]]:
    """Return the values of each label that most clusters have, in order; no label comes last."""
    by_label = []
    for place in range(len(keys)):
        totals: Counter[str | None] = Counter()
        for group in groups:
            totals[group.values[place]] += group.total
        kept = [value for value, _ in totals.most_common(most)]
        by_label.append(sorted(kept, key=domain_order))
    return by_label


def label_filter(key: str, value: str | None) -> str:
    if not key:
        return ""
    return f"!{key}" if value is None else f"{key}:{value}"
