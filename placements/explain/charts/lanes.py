"""The chart of topology domains: a lane for each, what is placed in it, and the band of the limit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import plotly.graph_objects as go

from placements.explain.charts.figure import Color, figure
from placements.explain.steps import MARK_WORDS, Lane, LanePanel, Mark

_HEAD, _GAP, _WIDE, _DENSE, _TALL = 38, 4, 28, 20, 30
_DENSE_HEAD = 22
# The width of a letter in pixels: names that are longer than their lane are cut.
_LETTER, _NARROW, _FEWEST = 7.2, 460, 5
_COUNTS, _NUMBER = 92, "      "
_QUIET = {"color": Color.QUIET, "size": 12}
_BESIDE = {"xanchor": "left", "xshift": 8, "font": _QUIET}

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
class _Part:
    """One column of a panel: its lanes, the number of its axes, and the share of the picture that it has."""

    panel: LanePanel
    lanes: Sequence[Lane]
    axes: int
    across: tuple[float, float]
    down: tuple[float, float]
    width: float

    @property
    def slot(self) -> float:
        return self.width * (self.across[1] - self.across[0]) / self.panel.slots


def _letters(width: float) -> int:
    return max(3, int((width - 8) / _LETTER))


def lanes_figure(panels: Sequence[LanePanel], *, width: int) -> go.Figure:
    """Draw the domains of each constraint below each other, about so wide; many domains in columns."""
    is_narrow = width < _NARROW
    right = _COUNTS if all(panel.columns == 1 for panel in panels) else 40
    right = 44 if is_narrow else right  # "0 + 1"
    longest = max(
        (len(lane.name) for panel in panels for lane in panel.lanes), default=4
    )
    left = min(120, int(longest * _LETTER) + 14)
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
            "range": [0, part.panel.slots],
            "anchor": f"y{suffix}",
        }
        rows = part.panel.rows
        layout[f"yaxis{suffix}"] = {
            **hidden,
            "domain": part.down,
            "range": [rows - 0.5, -0.5],
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


def _head_of(panel: LanePanel) -> int:
    """Return the height above the lanes: many domains have one line of words there, few have two."""
    return _DENSE_HEAD if panel.columns > 1 else _HEAD


def _placed_parts(
    panels: Sequence[LanePanel], left: int, plot: int
) -> tuple[list[_Part], int]:
    heights = []
    for panel in panels:
        row = _WIDE if len(panel.lanes) <= 4 else _WIDE - 4
        if panel.columns > 1:
            row = _DENSE
        elif _letters(plot / panel.slots) < panel.longest:
            row = _TALL
        heights.append(_head_of(panel) + panel.rows * row + _GAP)
    total = sum(heights)

    parts: list[_Part] = []
    top = 0
    for panel, height in zip(panels, heights, strict=True):
        head = _head_of(panel)
        down = (1 - (top + height - _GAP) / total, 1 - (top + head) / total)
        top += height
        label = left / plot
        width = (1 - label * (panel.columns - 1)) / panel.columns
        for column in range(panel.columns):
            start = column * (width + label)
            across = (round(start, 4), round(min(1.0, start + width), 4))
            lanes = panel.lanes[column * panel.rows : (column + 1) * panel.rows]
            parts.append(_Part(panel, lanes, len(parts) + 1, across, down, plot))
    return parts, total


def _bars(part: _Part, suffix: str) -> Iterator[Any]:
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    places = []
    for row, lane in enumerate(part.lanes):
        start = 0.0
        for segment in lane.segments:
            places.append((segment, row, start))
            start += segment.size
    for mark, marker in _MARKERS.items():
        own = [one for one in places if one[0].mark is mark]
        if not own:
            continue
        is_bold = mark is Mark.NEW  # bold letters are wider
        texts = [
            _fitted(
                one.words,
                _letters(part.slot * one.size) - is_bold,
                number=one.number,
                is_dense=part.panel.columns > 1,
            )
            for one, *_ in own
        ]
        yield go.Bar(
            **axes,
            orientation="h",
            width=0.86,
            y=[row for _, row, _ in own],
            base=[start + 0.02 for *_, start in own],
            x=[segment.size - 0.04 for segment, *_ in own],
            name=MARK_WORDS[mark],
            marker=marker,
            text=[f"<b>{text}</b>" for text in texts] if is_bold else texts,
            textposition="inside",
            insidetextanchor="start" if part.panel.slots <= 40 else "middle",
            insidetextfont={
                "color": _TEXTS.get(mark, Color.TEXT),
                "size": [11 if "<br>" in text else 12 for text in texts],
            },
            constraintext="none",
            textangle=0,
            customdata=[segment.cluster or None for segment, *_ in own],
            hovertext=[f"{segment.words}: {MARK_WORDS[mark]}" for segment, *_ in own],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    numbered = [one for one in places if one[0].number]
    if numbered:
        yield go.Scatter(
            **axes,
            mode="markers+text",
            x=[start + 13 / part.slot for *_, start in numbered],
            y=[row for _, row, _ in numbered],
            text=[f"<b>{segment.number}</b>" for segment, *_ in numbered],
            textfont={
                "size": 11,
                "color": [
                    Color.ACCENT if one[0].mark is Mark.NEW else Color.PLACED
                    for one in numbered
                ],
            },
            marker={
                "size": 16,
                "color": [
                    Color.ON_ACCENT if one[0].mark is Mark.NEW else Color.ON_PLACED
                    for one in numbered
                ],
            },
            hoverinfo="skip",
        )


def _bands(part: _Part, suffix: str) -> Iterator[dict[str, Any]]:
    axes = {"xref": f"x{suffix}", "yref": f"y{suffix}"}
    axis = {"color": Color.BORDER, "width": 1}
    bottom = len(part.lanes) - 0.5
    yield {
        **axes,
        "type": "line",
        "x0": 0,
        "x1": 0,
        "y0": -0.5,
        "y1": bottom,
        "line": axis,
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
        dashes = {"color": Color.QUIET, "width": 1.5, "dash": "dash"}
        for at in {low, high} - {0}:
            yield {
                **edges,
                "type": "line",
                "x0": at,
                "x1": at,
                "layer": "above",
                "line": dashes,
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
    letters = int((left - 10) / _LETTER)
    for row, lane in enumerate(part.lanes):
        name = _cut(lane.name, letters)
        yield {**axes, "x": 0, "y": row, "xanchor": "right", "xshift": -8, "text": name}
        if lane.others:
            end = max(sum(one.size for one in lane.segments), lane.high or 0)
            words = lane.others
            if not has_counts and lane.value is not None:  # there is little room
                words = words.partition(" ")[0].replace("no", "0")
            yield {**axes, **_BESIDE, "x": end, "y": row, "text": words}
        if has_counts:
            added = f" + {lane.added:,}" if lane.added else ""
            size = f" <span style='font-size:12px'>of {lane.size:,}</span>"
            text = f"<b>{lane.placed:,}{added}</b>{size * (not is_narrow)}"
            yield {**at_right, "y": row, "text": text}


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
    if part.across[0] == 0:
        limit = f"max skew {panel.max_skew}, " if panel.is_limited else ""
        notes = [f"{limit}{panel.sort}", *[panel.note] * bool(panel.note)]
        if panel.columns > 1 and any(lane.others for lane in panel.lanes):
            notes = [panel.sort, *notes[1:], "beside: candidates"]
        words = " · ".join(notes) * (not is_narrow)
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
            "text": f"<b>{panel.key}</b>  <span style='color:{Color.QUIET}'>{words}</span>",
            "font": {"size": 13},
        }
    if panel.columns > 1:
        return
    bands = [lane for lane in part.lanes if lane.high is not None]
    if bands and panel.band:
        yield {
            **axes,
            **above,
            "x": bands[0].high,
            "xanchor": "right",
            "text": panel.band,
        }
    yield {**at_right, **above, "text": f"placed{' of all' * (not is_narrow)}"}


def _fitted(
    words: str,
    letters: int,
    *,
    number: int,
    is_dense: bool,
) -> str:
    """Return a name behind the room for its number: in a second line what does not fit in the first.

    Nothing where fewer than five letters fit: the number and the words of the pointer remain.
    """
    room = _NUMBER * bool(number)
    letters -= 3 * bool(number)
    if is_dense or len(words) <= letters or letters < _FEWEST:
        return room + _cut(words, letters) * (letters >= _FEWEST)
    half = min(letters, -(-len(words) // 2))
    return f"{room}{words[:half]}<br>{room}{_cut(words[half:], letters)}"


def _cut(words: str, letters: int) -> str:
    return words if len(words) <= letters else f"{words[: max(1, letters - 1)]}…"
