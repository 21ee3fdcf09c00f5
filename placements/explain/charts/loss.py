"""Chart of a resilience report: which placements do not survive which losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placements.explain.charts.figure import (
    RAMP,
    Chart,
    Color,
    figure,
    matrix,
    row_axis,
)

MOST_LOSSES = 60
MOST_GROUPS = 40


@dataclass(frozen=True, slots=True)
class LossLine:
    """One loss: its name, and for each group the placements that it concerns and those it leaves bad."""

    name: str
    groups: Mapping[str, tuple[int, int]]


def survival_chart(
    lines: Sequence[LossLine], *, by: str, is_down: bool
) -> Chart | None:
    """Draw the losses by group of placements, the worst first; None where no loss concerns a placement.

    `by` is the kind of group: team, namespace or placement. A cell is the share of the placements of the
    group on the lost clusters that are unfulfilled or without clusters afterwards. Losses that all placements
    survive are in the table only, unless there is no other.
    """
    bad: dict[str, int] = {}
    for line in lines:
        for group, (_, count) in line.groups.items():
            bad[group] = bad.get(group, 0) + count
    groups = sorted(bad, key=lambda one: (-bad[one], one))[:MOST_GROUPS]
    losses = lines[:MOST_LOSSES]
    if not groups or not losses:
        return None
    rows = [
        line for line in losses if any(count for _, count in line.groups.values())
    ] or losses
    cells = [[line.groups.get(group) for group in groups] for line in rows]
    words = (
        "without a working cluster" if is_down else "unfulfilled or without clusters"
    )
    caption = (
        f"Losses by {by}, the worst first; the color is the share of placements that are {words} afterwards, "
        "and an empty cell concerns none"
    )
    if len(bad) > MOST_GROUPS or len(lines) > len(rows):
        caption += f". Shown: {len(rows):,} of {len(lines):,} losses, {len(groups):,} of {len(bad):,} columns"
    return Chart(
        name="survival",
        title="Losses that placements do not survive",
        caption=f"{caption}.",
        figure=figure(
            matrix(
                [
                    [100 * one[1] / one[0] if one else None for one in line]
                    for line in cells
                ],
                texts=[
                    [
                        f"{line.name}, {group}: {one[1]:,} of {one[0]:,} placements"
                        if one
                        else ""
                        for group, one in zip(groups, row, strict=True)
                    ]
                    for line, row in zip(rows, cells, strict=True)
                ],
                marker={"cmin": -100, "cmax": 100, "colorscale": RAMP},
            ),
            height=22 * len(rows) + 140,
            margin={"l": 8, "r": 16, "t": 8, "b": 100},
            xaxis={
                "title": by,
                "tickvals": list(range(len(groups))),
                "ticktext": groups,
                "range": [-0.5, len(groups) - 0.5],
                "tickangle": -45,
                "showgrid": False,
                "zeroline": False,
                "tickcolor": Color.NEUTRAL,
            },
            yaxis=row_axis([line.name for line in rows]),
        ),
        columns=("Loss", by.capitalize(), "Placements", "Not survived"),
        rows=tuple(
            (line.name, group, *one)
            for line in losses
            for group in groups
            if (one := line.groups.get(group))
        ),
    )
