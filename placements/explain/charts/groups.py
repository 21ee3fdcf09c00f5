"""C1, groups against the band: is the spread within its limits, and which group is short?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from placements.explain.charts.chart import (
    ACCENT,
    NEUTRAL,
    OK,
    ON_ACCENT,
    ON_OK,
    QUIET,
    TEXT,
    Chart,
    GroupName,
    figure,
    whole_ticks,
)
from placements.explain.wording import counted, joined, spread_limit_of, verb
from placements.scheduling.candidates import candidates_of
from placements.scheduling.columns import ABSENT, Bools, Codes, Ints
from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.policy import PlacementType, TopologySpreadConstraint
from placements.scheduling.profile import profile_of
from placements.scheduling.spread.base import Groups, Outlook, is_hard

MOST_GROUPS, FURTHEST = 24, 12
_ROW, _HEAD, _NAMED_UP_TO, _ALL_UP_TO = 26, 44, 12, 4
_CLEAR = "rgba(0,0,0,0)"
_BAND = {"fillcolor": ACCENT, "opacity": 0.12, "line": {"width": 0}, "layer": "below"}


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group: what it holds, what this step added, who could still be picked, who never could.

    `smallest` is the count that it is compared with.
    """

    name: str
    smallest: int
    before: int
    added: int
    left: int
    outside: int
    names: tuple[str, ...]

    @property
    def placed(self) -> int:
        """Count what the group holds."""
        return self.before + self.added

    @property
    def is_pinned(self) -> bool:
        """Tell whether nobody in the group is placed or can be."""
        return not self.placed and not self.left and not self.smallest


@dataclass(frozen=True)
class _Panel:
    """One constraint with its groups."""

    constraint: TopologySpreadConstraint
    rows: tuple[GroupRow, ...]
    limits_skew: bool = True
    has_shares: bool = False

    @property
    def has_band(self) -> bool:
        """Tell whether maxSkew is a limit, so that a band can say what is within it."""
        return (is_hard(self.constraint) or self.limits_skew) and not self.has_shares

    @property
    def gap(self) -> int:
        """Give how far a group is above what it is compared with, at most."""
        return max((row.placed - row.smallest for row in self.rows), default=0)

    @property
    def smallest(self) -> int:
        return min((row.placed for row in self.rows), default=0)

    @property
    def largest(self) -> int:
        return max((row.placed for row in self.rows), default=0)

    @property
    def highest_allowed(self) -> int:
        """Give the most that any group may hold."""
        smallest = max((row.smallest for row in self.rows), default=0)
        return smallest + (self.constraint.max_skew if self.has_band else 0)

    @property
    def shown(self) -> list[GroupRow]:
        """Give the groups to draw, the fullest first: where there are many, those furthest from the mean."""
        ordered = sorted(self.rows, key=lambda row: (-row.placed, row.name))
        if len(ordered) <= MOST_GROUPS:
            return ordered
        mean = sum(row.placed for row in ordered) / len(ordered)
        chosen = sorted(ordered, key=lambda row: (-abs(row.placed - mean), row.name))[:FURTHEST]
        return [row for row in ordered if row in chosen]


def group_chart(decision: Decision, step: int | None = None) -> Chart | None:
    """Draw the groups after a step, or as the decision leaves them; None where nothing is spread.

    Raises IndexError for a step that there was not.
    """
    panels = _panels(decision, step)
    if not panels:
        return None
    return Chart(
        name="groups",
        title="Groups as they end" if step is None else f"Groups after step {step}",
        caption=_caption(panels),
        figure=_figure(panels),
        columns=("Key", "Group", "Placed", "In this step", "Could be picked", "Cannot be picked"),
        rows=tuple(
            (panel.constraint.topology_key, _named(panel, row), row.placed, row.added, row.left, row.outside)
            for panel in panels
            for row in panel.rows
        ),
    )


def _named(panel: _Panel, row: GroupRow) -> GroupName:
    return GroupName.of(panel.constraint.topology_key, row.name, row.name)


def _panels(decision: Decision, step: int | None) -> list[_Panel]:
    policy = decision.cycle.policy
    is_spread = policy.placement_type is PlacementType.PICK_N and policy.topology_spread_constraints
    if not is_spread or decision.kind is CycleKind.FAILED:
        return []
    candidates = decision.candidates or candidates_of(decision.cycle)
    before, added = _placed(decision, step)
    left = candidates.passes.copy()
    left[before] = left[added] = False
    panels = []
    for constraint, groups in zip(candidates.constraints, candidates.groups, strict=True):
        counts = groups.count(before) + groups.count(added)
        outlook = candidates.strategy.outlook(constraint, groups, counts)
        rows = tuple(_rows(decision, groups, outlook, (before, added), left))
        panels.append(_Panel(constraint, rows, outlook.is_skew, bool(groups.weights)))
    return panels


def _placed(decision: Decision, step: int | None) -> tuple[Ints, Codes]:
    """Give the positions that are placed before a step, and the one that it adds."""
    if step is None:
        after = {binding.cluster for binding in decision.bindings_after if binding.is_active}
        positions = decision.cycle.fleet.positions
        found = sorted(positions[name] for name in after if name in positions)
        return np.array(found, dtype=np.int64), decision.chosen[:0]
    taken = decision.round(step).taken
    placed = np.concatenate([_counted(decision), taken]).astype(np.int64)
    return placed, decision.chosen[step - 1 : step]


def _counted(decision: Decision) -> Codes:
    """Give whom the groups count before the first step: nobody where every cycle chooses anew."""
    assert decision.candidates is not None  # noqa: S101 -- only called for a decision with rounds
    placed = decision.candidates.placed
    return placed[:0] if profile_of(decision.cycle).chooses_anew else placed


def _rows(
    decision: Decision, groups: Groups, outlook: Outlook, placed: tuple[Ints, Codes], left: Bools
) -> list[GroupRow]:
    before, added = (groups.count(positions) for positions in placed)
    remaining = groups.count(np.nonzero(left)[0])
    everybody = np.bincount(groups.codes[groups.codes != ABSENT], minlength=len(groups))
    names = _names(decision, groups, np.concatenate(placed).astype(np.int64))
    return [
        GroupRow(
            name,
            int(outlook.smallest[code]),
            int(before[code]),
            int(added[code]),
            int(remaining[code]),
            int(everybody[code] - before[code] - added[code] - remaining[code]),
            names.get(code, ()),
        )
        for code, name in enumerate(groups.values)
    ]


def _names(decision: Decision, groups: Groups, positions: Ints) -> dict[int, tuple[str, ...]]:
    if len(positions) > _NAMED_UP_TO:
        return {}
    found: dict[int, tuple[str, ...]] = {}
    for position in positions.tolist():
        code = int(groups.codes[position])
        found[code] = (*found.get(code, ()), decision.cycle.fleet.names[position])
    return found


def _caption(panels: Sequence[_Panel]) -> str:
    return " ".join([*map(_panel_words, panels), _key(panels)])


def _key(panels: Sequence[_Panel]) -> str:
    """Say what the bars and the band mean, and where bars end that are longer than the picture."""
    is_cut = any(row.placed + row.left > _top(panel) for panel in panels for row in panel.shown)
    has_pinned = any(row.is_pinned for panel in panels for row in panel.shown)
    outlined = "outlined could be picked" + (", open where there are more" if is_cut else "")
    hatched = ", hatched cannot" if has_pinned else ""
    shaded = ", shaded is within the limit" if any(panel.has_band for panel in panels) else ""
    return f"Solid is placed, {outlined}{hatched}{shaded}."


def _panel_words(panel: _Panel) -> str:
    limit = spread_limit_of(panel.constraint, limits_skew=panel.limits_skew)
    measure = "skew" if panel.limits_skew else "gap"
    far = f", {measure} {panel.gap} of {panel.constraint.max_skew}" if panel.has_band else ""
    words = f"{limit}: {_holdings(panel)}{far}."
    pinned = [row.name for row in panel.rows if row.is_pinned]
    if pinned and panel.smallest == 0 and is_hard(panel.constraint):
        holds = verb(len(pinned), "holds")
        words += f" {joined(_cut(pinned))} {holds} the minimum at 0: nobody there can be picked."
    if len(panel.rows) > MOST_GROUPS:
        words += f" Shown are the {FURTHEST} of {len(panel.rows):,} groups furthest from the mean."
    return words


def _holdings(panel: _Panel) -> str:
    if not panel.rows:
        return "no cluster carries the label" if panel.limits_skew else "no group counts"
    if panel.smallest == panel.largest:
        return f"each of {counted(len(panel.rows), 'group')} holds {panel.smallest:,}"
    fullest = [row.name for row in panel.rows if row.placed == panel.largest]
    emptiest = [row.name for row in panel.rows if row.placed == panel.smallest]
    most = f"most in {joined(_cut(fullest))} ({panel.largest:,})"
    return f"{most}, fewest in {joined(_cut(emptiest))} ({panel.smallest:,})"


def _cut(names: Sequence[str], most: int = 4) -> list[str]:
    return list(names) if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]


def _figure(panels: Sequence[_Panel]) -> go.Figure:
    heights = [_height(panel) for panel in panels]
    drawn = make_subplots(
        rows=len(panels),
        cols=1,
        row_heights=heights,
        vertical_spacing=_HEAD / (sum(heights) + _HEAD * len(panels)) if len(panels) > 1 else 0,
    )
    for place, panel in enumerate(panels, start=1):
        for trace in _bars(panel):
            drawn.add_trace(trace, row=place, col=1)
        for low, high, first, last in _bands(panel):
            drawn.add_shape(
                type="rect", x0=low, x1=high, y0=first - 0.5, y1=last + 0.5, row=place, col=1, **_BAND
            )
        drawn.update_xaxes(row=place, col=1, **_count_axis(panel))
        drawn.update_yaxes(row=place, col=1, **_group_axis(panel))
    layout = drawn.layout.to_plotly_json()
    layout.pop("template", None)
    height = sum(heights) + _HEAD * len(panels)
    return figure(*drawn.data, height=height, barmode="stack", bargap=0.3, **layout)


def _bands(panel: _Panel) -> Iterator[tuple[int, int, int, int]]:
    """Give where counts may lie: from, to, and the rows from first to last that this holds for."""
    rows = enumerate(panel.shown) if panel.has_band else ()
    for smallest, run in groupby(rows, key=lambda pair: pair[1].smallest):
        places = [place for place, _ in run]
        yield smallest, smallest + panel.constraint.max_skew, places[0], places[-1]


def _height(panel: _Panel) -> int:
    return _ROW * max(2, len(_labels(panel)))


def _labels(panel: _Panel) -> list[str]:
    labels = [_label(row) for row in panel.shown]
    others = _others(panel)
    if others:
        low, high = min(row.placed for row in others), max(row.placed for row in others)
        span = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        labels.append(f"{len(others):,} groups nearer the mean  {span}")
    return labels


def _label(row: GroupRow) -> str:
    """Say how many of a group are placed; whom a step adds stands in the bar, where names have room."""
    added = f"  (+{row.added:,})" if row.added and not row.names[row.before :] else ""
    return f"{row.name}  {row.placed:,} of {row.placed + row.left:,}{added}"


def _others(panel: _Panel) -> list[GroupRow]:
    shown = set(panel.shown)
    return [row for row in panel.rows if row not in shown]


def _bars(panel: _Panel) -> list[go.Bar]:
    rows, top = panel.shown, _top(panel)
    hatch = {"shape": "/", "fgcolor": QUIET, "bgcolor": _CLEAR, "size": 6}
    return [
        _bar(rows, [row.before for row in rows], "placed", {"color": OK}, (ON_OK, _texts(rows))),
        _bar(
            rows,
            [row.added for row in rows],
            "placed in this step",
            {"color": ACCENT, "line": {"color": TEXT, "width": 2}},
            (ON_ACCENT, [_added_text(row) for row in rows]),
        ),
        _bar(
            rows,
            [min(row.left, max(0.0, top - row.placed)) for row in rows],
            "could be picked",
            {"color": _CLEAR, "line": {"color": NEUTRAL, "width": 1}},
        ),
        _bar(
            rows,
            [min(row.outside, top) if row.is_pinned else 0 for row in rows],
            "cannot be picked: holds the minimum at 0",
            {"color": _CLEAR, "line": {"color": QUIET, "width": 1}, "pattern": hatch},
        ),
    ]


def _texts(rows: Sequence[GroupRow]) -> list[str]:
    return [", ".join(row.names[: row.before]) for row in rows]


def _added_text(row: GroupRow) -> str:
    return f"+ {', '.join(row.names[row.before :])}" if row.names[row.before :] else ""


def _bar(
    rows: Sequence[GroupRow],
    values: Sequence[float],
    what: str,
    marker: dict[str, object],
    inside: tuple[str, Sequence[str]] = (TEXT, ()),
) -> go.Bar:
    """Make the bars of one sort; `inside` are the texts that stand in them, and their colour."""
    colour, texts = inside
    return go.Bar(
        orientation="h",
        y=list(range(len(rows))),
        x=list(values),
        name=what,
        marker=marker,
        text=texts or None,
        insidetextfont={"color": colour},
        textposition="inside",
        insidetextanchor="start",
        constraintext="inside",
        customdata=[[row.name, row.placed, row.left, row.outside] for row in rows],
        hovertemplate=f"%{{customdata[0]}}: {what}<br>%{{customdata[1]:,d}} placed, %{{customdata[2]:,d}}"
        " could be picked, %{customdata[3]:,d} cannot<extra></extra>",
    )


def _top(panel: _Panel) -> float:
    """Give the end of the axis: what could still be picked may go far beyond a few, and is cut there."""
    most = max((row.placed + row.left for row in panel.rows), default=0)
    left = min(most, max(panel.highest_allowed + 1, _ALL_UP_TO))
    return max(1, panel.highest_allowed, panel.largest, left) + 0.5


def _count_axis(panel: _Panel) -> dict[str, object]:
    return {"range": [0, _top(panel)], "zeroline": True, **whole_ticks(int(_top(panel)))}


def _group_axis(panel: _Panel) -> dict[str, object]:
    labels = _labels(panel)
    return {
        "tickvals": list(range(len(labels))),
        "ticktext": labels,
        "range": [len(labels) - 0.5, -0.5],
        "showgrid": False,
        "zeroline": False,
        "title": panel.constraint.topology_key,
    }
