"""The chart of topology domains: a lane for each, what is placed in it, and the band of the limit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from placements.explain.charts.figure import Color, figure
from placements.explain.lanes import (
    BLOCKING_WORDS,
    MARK_WORDS,
    Lane,
    LaneBlock,
    LanePanel,
    Mark,
)

_HEAD, _GAP, _WIDE, _DENSE, _TALL = 38, 4, 28, 20, 32
_DENSE_HEAD = 22
_NARROW, _FEWEST = 400, 3
# Widths of letters in the widest font that the style sheet names: longer names end in "…".
_USUAL_LETTER, _DIGIT = 0.64, 7.7
_LETTERS = {
    **dict.fromkeys("ijlI.,:;'|()", 0.34),
    **dict.fromkeys("frt- ", 0.4),
    **dict.fromkeys("mwMW…=+", 0.97),
}
_BOLD = 1.12
_ROOM, _NUMBER_ROOM, _NUMBER = 8, 23, "      "
# The size of names, whether they are below their numbers, and whether the words beside a lane are short.
_STYLES = (
    (
        (12, False, False),
        (11, False, False),
        (12, False, True),
        (11, False, True),
        (11, True, False),
        (11, True, True),
    ),
    ((12, False, True), (11, False, True)),  # of many columns
)
_HEADS_OF_COUNTS = ("placed of all", "placed")
_QUIET = {"color": Color.QUIET, "size": 12}
_MARKED = {"color": Color.TEXT, "size": 12, "weight": 600}
_BESIDE = {"xanchor": "left", "xshift": 8}

# The band does not show through: a cluster within it is no more allowed than one beside it.
_OPAQUE = {
    "color": Color.PAGE,
    "line": {"color": Color.QUIET, "width": 1},
}
_PATTERN = {
    "size": 6,
    "solidity": 0.25,
    "bgcolor": Color.PAGE,
}
_MARKERS: dict[Mark, dict[str, Any]] = {
    Mark.PLACED: {"color": Color.PLACED},
    Mark.NEW: {"color": Color.ACCENT},
    Mark.GONE: {
        **_OPAQUE,
        "pattern": {
            **_PATTERN,
            "shape": ".",
            "fgcolor": Color.HATCH,
        },
    },
    Mark.CANDIDATE: _OPAQUE,
    Mark.COSTLY: {
        "color": Color.PAGE,
        "line": {"color": Color.COST, "width": 1},
        "pattern": {
            **_PATTERN,
            "shape": "\\",
            "fgcolor": Color.COST,
        },
    },
    Mark.BLOCKED: {
        **_OPAQUE,
        "pattern": {
            **_PATTERN,
            "shape": "/",
            "fgcolor": Color.HATCH,
        },
    },
    Mark.REST: _OPAQUE,
    Mark.OUT: {
        "color": Color.PAGE,
        "line": {"color": Color.BAND, "width": 1},
    },
}
_TEXTS = {
    Mark.PLACED: Color.ON_PLACED,
    Mark.NEW: Color.ON_ACCENT,
    Mark.OUT: Color.QUIET,
}


@dataclass(frozen=True, slots=True)
class _Style:
    """The width of one cluster in pixels, and the size of its name, which may be below its number.

    `is_short`: beside a lane there is only the number of its candidates.
    """

    slot: float
    size: int
    is_stacked: bool
    is_short: bool

    def room(self, segment: LaneBlock) -> float:
        has_number = bool(segment.number) and not self.is_stacked
        return self.slot * segment.size - _ROOM - _NUMBER_ROOM * has_number


@dataclass(frozen=True, slots=True)
class _Part:
    """One column of a panel: its lanes, the number of its axes, and the share of the picture that it has.

    `width` is that of the picture and `left` that of the names of its lanes, in pixels.
    """

    panel: LanePanel
    lanes: Sequence[Lane]
    axes: int
    across: tuple[float, float]
    down: tuple[float, float]
    width: float
    left: int
    style: _Style

    @property
    def slots(self) -> float:
        return self.width * (self.across[1] - self.across[0]) / self.style.slot

    def text_of(self, segment: LaneBlock) -> str:
        """Return the name of a segment beside or below its number; what does not fit ends in "…"."""
        before = ""
        if segment.number:
            before = "&nbsp;<br>" if self.style.is_stacked else _NUMBER
        is_bold = segment.mark is Mark.NEW
        name = _cut(
            segment.words, self.style.room(segment), self.style.size, is_bold=is_bold
        )
        if is_bold:
            name = f"<b>{name}</b>"
        return f"{before}{name}"


def _width(words: str, size: int, *, is_bold: bool = False) -> float:
    """Return how many pixels a text needs at most."""
    letters = sum(_LETTERS.get(letter, _USUAL_LETTER) for letter in words)
    return letters * size * (_BOLD if is_bold else 1)


def _cut(words: str, room: float, size: int, *, is_bold: bool = False) -> str:
    """Return a name, its start with "…" where it is wider than the room, or nothing."""
    if _width(words, size, is_bold=is_bold) <= room:
        return words
    shown = len(words)
    while shown and _width(f"{words[:shown]}…", size, is_bold=is_bold) > room:
        shown -= 1
    return f"{words[:shown]}…" if shown >= _FEWEST else ""


def lanes_figure(panels: Sequence[LanePanel], *, width: int) -> go.Figure:
    """Draw the domains of each constraint below each other, about so wide; many domains in columns."""
    is_narrow = width < _NARROW
    # Beside the last column of many domains there are numbers, of few their counts below a heading.
    counts = [
        len(_count(lane, is_narrow=is_narrow)) * _DIGIT
        for panel in panels
        for lane in panel.lanes
        if panel.columns == 1
    ]
    heading = _width(_HEADS_OF_COUNTS[is_narrow], 12) * bool(counts)
    right = 8 + int(max(32, heading, *counts))
    left = min(map(_left_of, panels), default=0)
    parts, total = _placed_parts(panels, left, width - left - right)
    layout: dict[str, Any] = {}
    annotations: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    traces: list[Any] = []
    for part in parts:
        suffix = "" if part.axes == 1 else str(part.axes)
        hidden = {
            "showgrid": False,
            "zeroline": False,
            "showticklabels": False,
            "ticks": "",
        }
        layout[f"xaxis{suffix}"] = {
            **hidden,
            "domain": part.across,
            "range": [0, part.slots],
            "anchor": f"y{suffix}",
        }
        layout[f"yaxis{suffix}"] = {
            **hidden,
            "domain": part.down,
            "range": [part.panel.rows - 0.5, -0.5],
            "anchor": f"x{suffix}",
        }
        traces += _bars(part, suffix)
        shapes += _bands(part, suffix)
        annotations += _words(part, suffix, left, right, is_narrow=is_narrow)
    return figure(
        *traces,
        height=total,
        barmode="overlay",
        bargap=0.12,
        shapes=shapes,
        annotations=annotations,
        margin={"l": left, "r": right, "t": 0, "b": 0},
        **layout,
    )


def _left_of(panel: LanePanel) -> int:
    longest = max((int(_width(lane.name, 12)) for lane in panel.lanes), default=0)
    return min(120, 14 + longest)


def _head_of(panel: LanePanel) -> int:
    """Return the height above the lanes: many domains have one line of words there, few have two."""
    return _DENSE_HEAD if panel.columns > 1 else _HEAD


def _placed_parts(
    panels: Sequence[LanePanel], left: int, plot: int
) -> tuple[list[_Part], int]:
    """Return the columns of panels below each other, and the height of all.

    `left` and `plot` are the margin and the width of the picture in pixels: wider names take of their lanes.
    """
    parts: list[_Part] = []
    styles, heights = [], []
    for panel in panels:
        names = _left_of(panel)
        style = _style_of(panel, (plot + left) / panel.columns - names)
        row = _WIDE - 4 * (len(panel.lanes) > 4)
        if panel.columns > 1:
            row = _DENSE
        elif style.is_stacked and panel.is_numbered:
            row = _TALL
        styles.append((names, style))
        heights.append(_head_of(panel) + panel.rows * row + _GAP)
    total = sum(heights)

    top = 0
    for panel, height, (names, style) in zip(panels, heights, styles, strict=True):
        down = (1 - (top + height - _GAP) / total, 1 - (top + _head_of(panel)) / total)
        top += height
        share = (plot + left) / panel.columns
        for column in range(panel.columns):
            start = column * share - left + names
            end = (column + 1) * share - left
            across = (round(start / plot, 4), round(min(1.0, end / plot), 4))
            lanes = panel.lanes[column * panel.rows : (column + 1) * panel.rows]
            number = len(parts) + 1
            parts.append(_Part(panel, lanes, number, across, down, plot, names, style))
    return parts, total


def _style_of(panel: LanePanel, width: float) -> _Style:
    """Return the first style in which all names of a panel are whole in lanes so wide, else the last."""
    # Beside the last of many columns, the clusters without the key have the margin.
    lanes = [
        lane for lane in panel.lanes if lane.value is not None or panel.columns == 1
    ]
    for size, is_stacked, is_short in _STYLES[panel.columns > 1]:
        rooms = [
            (width - bool(lane.others) * (16 + _width(_beside(lane, is_short), 12)))
            / lane.end
            for lane in lanes
            if lane.end
        ]
        style = _Style(max(1, min(rooms, default=width)), size, is_stacked, is_short)
        if all(
            _width(segment.words, size, is_bold=segment.mark is Mark.NEW)
            <= style.room(segment)
            for lane in lanes
            for segment in lane.segments
        ):
            break
    return style


def _beside(lane: Lane, is_short: bool) -> str:
    if not is_short or lane.value is None:
        return lane.others
    return lane.others.partition(" ")[0]


def _bars(part: _Part, suffix: str) -> Iterator[Any]:
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    places = []
    for row, lane in enumerate(part.lanes):
        start = 0.0
        for segment in lane.segments:
            places.append((segment, row, start))
            start += segment.size
    for mark, marker in _MARKERS.items():
        own = [place for place in places if place[0].mark is mark]
        if not own:
            continue
        yield go.Bar(
            **axes,
            orientation="h",
            width=0.86,
            y=[row for _, row, _ in own],
            base=[start + 0.02 for *_, start in own],
            x=[segment.size - 0.04 for segment, *_ in own],
            name=MARK_WORDS[mark],
            marker=marker,
            text=[part.text_of(segment) for segment, *_ in own],
            textposition="inside",
            # A number is at the end of its bar: a limit crosses its start or its middle.
            insidetextanchor="start"
            if any(block.cluster for block, *_ in own)
            else "end",
            insidetextfont={
                "color": _TEXTS.get(mark, Color.TEXT),
                "size": part.style.size,
            },
            constraintext="none",
            textangle=0,
            customdata=[segment.cluster or None for segment, *_ in own],
            hovertext=[f"{segment.words}: {MARK_WORDS[mark]}" for segment, *_ in own],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    numbered = [place for place in places if place[0].number]
    if numbered:
        yield go.Scatter(
            **axes,
            mode="markers+text",
            x=[start + 13 / part.style.slot for *_, start in numbered],
            y=[row - 0.18 * part.style.is_stacked for _, row, _ in numbered],
            cliponaxis=False,
            text=[f"<b>{segment.number}</b>" for segment, *_ in numbered],
            textfont={
                "size": 11,
                "color": [_MARKERS[segment.mark]["color"] for segment, *_ in numbered],
            },
            marker={
                "size": 16,
                "color": [_TEXTS[segment.mark] for segment, *_ in numbered],
            },
            hoverinfo="skip",
        )


def _bands(part: _Part, suffix: str) -> Iterator[dict[str, Any]]:
    axes = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    yield {
        **axes,
        "type": "line",
        "x0": 0,
        "x1": 0,
        "y0": -0.5,
        "y1": len(part.lanes) - 0.5,
        "line": {"color": Color.BORDER, "width": 1},
    }
    for (low, high), run in groupby(
        enumerate(part.lanes), key=lambda pair: (pair[1].low, pair[1].high)
    ):
        rows = [row for row, _ in run]
        if high is None:
            continue
        edges = {**axes, "y0": rows[0] - 0.5, "y1": rows[-1] + 0.5, "layer": "below"}
        yield {
            **edges,
            "type": "rect",
            "x0": low,
            "x1": high,
            "fillcolor": Color.BAND,
            "line": {"width": 0},
        }
        for at in {low, high} - {0}:
            yield {
                **edges,
                "type": "line",
                "x0": at,
                "x1": at,
                "layer": "above",
                "line": {"color": Color.QUIET, "width": 1.5, "dash": "dash"},
            }


def _words(
    part: _Part,
    suffix: str,
    left: int,
    right: int,
    *,
    is_narrow: bool,
) -> Iterator[dict[str, Any]]:
    """Yield the texts of a part; `left` and `right` are the margins of the picture in pixels."""
    axes = {"xref": f"x{suffix}", "yref": f"y{suffix}", "showarrow": False}
    at_right = {
        **axes,
        "xref": "paper",
        "x": 1,
        "xanchor": "right",
        "xshift": right,
    }
    yield from _heads(part, axes, at_right, left, is_narrow=is_narrow)
    has_counts = part.panel.columns == 1
    for row, lane in enumerate(part.lanes):
        yield {
            **axes,
            "x": 0,
            "y": row,
            "xanchor": "right",
            "xshift": -8,
            "text": _cut(lane.name, part.left - 10, 12),
            "hovertext": lane.name,
        }
        if lane.others:
            yield {
                **axes,
                **_BESIDE,
                "x": lane.end,
                "y": row,
                "text": _beside(lane, part.style.is_short),
                "hovertext": lane.others,
                "font": _MARKED if lane.others == BLOCKING_WORDS else _QUIET,
            }
        if has_counts:
            count, *size = _count(lane, is_narrow=is_narrow).partition(" of ")
            yield {**at_right, "y": row, "text": f"<b>{count}</b>{''.join(size)}"}


def _count(lane: Lane, *, is_narrow: bool) -> str:
    added = f" + {lane.added:,}" if lane.added else ""
    return f"{lane.placed:,}{added}" + f" of {lane.size:,}" * (not is_narrow)


def _heads(
    part: _Part,
    axes: Mapping[str, Any],
    at_right: Mapping[str, Any],
    left: int,
    *,
    is_narrow: bool,
) -> Iterator[dict[str, Any]]:
    panel = part.panel
    above = {"y": -0.5, "yanchor": "bottom", "font": _QUIET}
    if part.lanes == panel.lanes[: len(part.lanes)]:
        room = max(0, left + part.width - _width(panel.key, 15)) * (not is_narrow)
        yield {
            "xref": "paper",
            "yref": "paper",
            "showarrow": False,
            "x": 0,
            "xanchor": "left",
            "xshift": -left,
            "y": part.down[1],
            "yanchor": "bottom",
            "yshift": _head_of(panel) - 18,
            "text": f"<b>{panel.key}</b>  <span style='color:{Color.QUIET}'>{_head_words(part, room)}</span>",
            "font": {"size": 13},
        }
    if panel.columns > 1:
        return
    bands = [lane for lane in part.lanes if lane.high is not None]
    if bands and panel.band:
        yield {
            **axes,
            **above,
            "x": ((bands[0].high or 0) + bands[0].low) / 2,
            "text": panel.band,
        }
    yield {**at_right, **above, "text": _HEADS_OF_COUNTS[is_narrow]}


def _head_words(part: _Part, room: float) -> str:
    """Return what is beside the key: as much as there is room for."""
    panel = part.panel
    sort = f"max skew {panel.max_skew}, " * panel.is_limited + panel.sort
    has_others = any(lane.others for lane in panel.lanes)
    beside = "beside: candidates" * (part.style.is_short and has_others)
    # Above many columns the band has no label.
    band = panel.band * (panel.columns > 1)
    choices = ((sort, panel.note, beside), (sort, band, beside), (panel.sort, band))
    for choice in choices:
        words = " · ".join(filter(None, choice))
        if _width(words, 13) <= room:
            return words
    return ""
