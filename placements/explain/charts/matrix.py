"""C3, joint matrix: are the combinations of two label keys covered?"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from placements.explain.charts.chart import NEUTRAL, RAMP, Chart, GroupName, figure
from placements.explain.wording import counted, joined
from placements.scheduling.candidates import candidates_of
from placements.scheduling.columns import ABSENT, Bools, Ints
from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.policy import PlacementType

MOST = 40
_ROW = 30


@dataclass(frozen=True)
class _Table:
    """Counts per combination; `placed` and `eligible` are of those that are there."""

    keys: tuple[str, str]
    names: tuple[list[str], list[str]]
    there: Ints
    eligible: Ints
    placed: Ints


def label_keys(decision: Decision) -> list[str]:
    """Give the label keys to choose from, those of the policy's spread first, then by name."""
    fleet = decision.cycle.fleet
    spread = [one.topology_key for one in decision.cycle.policy.topology_spread_constraints]
    carried = {key for cluster in fleet for key in cluster.labels}
    return [*dict.fromkeys(key for key in spread if key in carried), *sorted(carried - set(spread))]


def matrix_chart(decision: Decision, first: str, second: str) -> Chart:
    """Draw who is placed, of how many that could be, in every combination of the values of two keys."""
    table = _table(decision, first, second)
    rows, columns = _chosen(table, 0), _chosen(table, 1)
    return Chart(
        name="matrix",
        title=f"{first} and {second} together",
        caption=_caption(table, rows, columns),
        figure=_figure(table, rows, columns),
        columns=(first, second, "Placed", "Eligible", "Clusters"),
        rows=tuple(
            (
                _group(first, name),
                _group(second, other),
                int(table.placed[i, j]),
                int(table.eligible[i, j]),
                int(table.there[i, j]),
            )
            for i, name in enumerate(table.names[0])
            for j, other in enumerate(table.names[1])
            if table.there[i, j]
        ),
    )


def _group(key: str, name: str) -> GroupName:
    return GroupName.of(key, None if name == _lacking(key) else name, name)


def _lacking(key: str) -> str:
    return f"no {key}"


def _table(decision: Decision, first: str, second: str) -> _Table:
    fleet = decision.cycle.fleet
    sides = [fleet.label(key) for key in (first, second)]
    names = [[*side.values, *([_lacking(key)] if (side.codes == ABSENT).any() else [])]
             for side, key in zip(sides, (first, second), strict=True)]  # fmt: skip
    codes = [np.where(side.codes == ABSENT, len(side.values), side.codes) for side in sides]
    shape = (len(names[0]), len(names[1]))

    def counts(mask: Bools) -> Ints:
        table = np.zeros(shape, dtype=np.int64)
        np.add.at(table, (codes[0][mask], codes[1][mask]), 1)
        return table

    placed = _placed(decision)
    everybody = np.ones(len(fleet), dtype=np.bool_)
    return _Table(
        (first, second), (names[0], names[1]),
        counts(everybody), counts(_eligible(decision) | placed), counts(placed),
    )  # fmt: skip


def _placed(decision: Decision) -> Bools:
    positions = decision.cycle.fleet.positions
    mask = np.zeros(len(positions), dtype=np.bool_)
    active = (binding.cluster for binding in decision.bindings_after if binding.is_active)
    mask[[positions[name] for name in active if name in positions]] = True
    return mask


def _eligible(decision: Decision) -> Bools:
    """Mark who passes every filter but "has it already"; under PickFixed whoever is eligible."""
    cycle = decision.cycle
    if cycle.policy.placement_type is PlacementType.PICK_FIXED or decision.kind is CycleKind.FAILED:
        return cycle.fleet.is_eligible
    passes: Bools = (decision.candidates or candidates_of(cycle)).passes
    return passes


def _chosen(table: _Table, axis: int) -> list[int]:
    """Give the rows or columns to draw: where there are many, those furthest from the mean."""
    sums = table.placed.sum(axis=1 - axis)
    if len(sums) <= MOST:
        return list(range(len(sums)))
    order = np.argsort(-np.abs(sums - sums.mean()), kind="stable")
    return sorted(order[:MOST].tolist())


def _caption(table: _Table, rows: Sequence[int], columns: Sequence[int]) -> str:
    could = [
        (f"{table.names[0][i]} / {table.names[1][j]}", int(table.placed[i, j]))
        for i, j in zip(*np.nonzero(table.eligible), strict=True)
    ]
    covered = sum(1 for _, placed in could if placed)
    words = f"{covered} of {counted(len(could), 'combination')} with an eligible cluster hold the placement"
    bare = [name for name, placed in could if not placed]
    if bare:
        words += f"; nobody in {joined(bare[:3] + ([f'{len(bare) - 3} more'] if len(bare) > 3 else []))}"
    words += ". Each cell: placed / eligible; an empty one has no cluster."
    cut = [
        f"{len(shown):,} of {len(names):,} values of {key}"
        for shown, names, key in zip((rows, columns), table.names, table.keys, strict=True)
        if len(shown) < len(names)
    ]
    return f"{words} Shown are {joined(cut)}, those furthest from the mean." if cut else words


def _figure(table: _Table, rows: Sequence[int], columns: Sequence[int]) -> go.Figure:
    window = np.ix_(list(rows), list(columns))
    there, eligible, placed = table.there[window], table.eligible[window], table.placed[window]
    texts = [
        [f"{p:,} / {e:,}" if n else "" for p, e, n in zip(*line, strict=True)]
        for line in zip(placed.tolist(), eligible.tolist(), there.tolist(), strict=True)
    ]
    shades = np.where(there > 0, placed, -1).tolist()
    return figure(
        go.Heatmap(
            z=[[None if value < 0 else value for value in line] for line in shades],
            text=texts,
            texttemplate="%{text}",
            customdata=there.tolist(),
            zmin=-max(1, int(placed.max(initial=0))),
            zmax=max(1, int(placed.max(initial=0))),
            colorscale=RAMP,
            showscale=False,
            xgap=2,
            ygap=2,
            hoverongaps=False,
            hovertemplate="%{text} of %{customdata:,d} clusters<extra></extra>",
        ),
        height=_ROW * len(rows) + 72,
        xaxis=_axis([table.names[1][j] for j in columns], table.keys[1]),
        yaxis={**_axis([table.names[0][i] for i in rows], table.keys[0]), "range": [len(rows) - 0.5, -0.5]},
    )


def _axis(names: list[str], key: str) -> dict[str, object]:
    return {
        "title": key,
        "tickvals": list(range(len(names))),
        "ticktext": names,
        "range": [-0.5, len(names) - 0.5],
        "showgrid": False,
        "zeroline": False,
        "ticklen": 0,
        "tickcolor": NEUTRAL,
    }
