"""The first picture of a chart: its rows of bars, which the server draws until Plotly takes over.

It is made from the figure itself, so that both say the same. Places and sizes are percent of the plot.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from placements.explain.charts.figure import Color

MOST_MARKS = 200
# From this part of a scale its color is so strong that numbers on it have the color
# of the page.
_STRONG = 0.85
# The lines of each hatch of Plotly, in a square of 6 pixels.
_HATCHES = {
    "/": "M-1 1L1 -1M0 6L6 0M5 7L7 5",
    "\\": "M-1 5L1 7M0 0L6 6M5 -1L7 1",
    "x": "M0 6L6 0M0 0L6 6",
    "+": "M3 0V6M0 3H6",
    "-": "M0 3H6",
    ".": "M2 3H4",
}


def first_picture(figure: go.Figure) -> dict[str, Any] | None:
    """Return what the template of pictures draws of a figure with numbered rows; None of too many marks."""
    drawn = figure.to_plotly_json()
    layout = drawn["layout"]
    across, down = layout["xaxis"], layout["yaxis"]
    traces = [one for one in drawn["data"] if one["type"] == "bar"]
    looks = [
        {
            "number": number,
            "words": trace.get("name"),
            "color": trace["marker"]["color"],
            "outline": trace["marker"].get("line", {}).get("color", Color.CLEAR),
            "path": _HATCHES.get(trace["marker"].get("pattern", {}).get("shape")),
            "hatch": trace["marker"].get("pattern", {}).get("fgcolor"),
        }
        for number, trace in enumerate(traces)
    ]
    bars = list(bars_of(traces, looks, layout))
    texts = [text for one in drawn["data"] for text in texts_of(one, layout)]
    if len(bars) + len(texts) >= MOST_MARKS:
        return None
    return {
        "height": layout["height"],
        "rows": down["ticktext"],
        "row_title": down.get("title", {}).get("text"),
        "unit": across["title"]["text"],
        "ticks": [
            (_place(at, layout), words)
            for at, words in zip(across["tickvals"], across["ticktext"], strict=True)
        ],
        "has_grid": across.get("showgrid", True),
        "is_above": across.get("side") == "top",
        "is_tilted": "tickangle" in across,
        "looks": looks,
        "has_legend": layout["showlegend"],
        "bars": bars,
        "texts": texts,
    }


def bars_of(
    traces: Sequence[Mapping[str, Any]],
    looks: Sequence[Mapping[str, Any]],
    layout: Mapping[str, Any],
) -> Iterator[dict[str, Any]]:
    """Yield the bars that have a length; those without a base are stacked by sign."""
    part = 100 / len(layout["yaxis"]["ticktext"])
    ends: dict[tuple[int, bool], float] = defaultdict(float)
    for trace, look in zip(traces, looks, strict=True):
        size = trace.get("width", 1 - layout.get("bargap", 0))
        for at, (row, length) in enumerate(zip(trace["y"], trace["x"], strict=True)):
            start = trace["base"][at] if "base" in trace else ends[row, length < 0]
            end = start + length
            ends[row, length < 0] = end
            left, right = (_place(one, layout) for one in sorted((start, end)))
            if length:
                yield {
                    "x": left,
                    "y": part * (row + 0.5 - size / 2),
                    "width": right - left,
                    "height": part * size,
                    "color": _color(trace["marker"], at),
                    "look": look,
                }


def texts_of(
    trace: Mapping[str, Any], layout: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the numbers in bars or beyond them, and the texts of points."""
    words = trace.get("text") or ()
    if "texttemplate" in trace:
        words = [f"{one:,}" for one in trace["customdata"]]
    for at, text in enumerate(words):
        base, length = trace.get("base", [0] * len(words))[at], trace["x"][at]
        is_inside = trace["textposition"] == "inside"
        x = base + length / 2 if is_inside else base + length
        yield {
            "x": _place(x, layout),
            "y": 100 * (trace["y"][at] + 0.5) / len(layout["yaxis"]["ticktext"]),
            "words": text.strip(),
            "is_inside": is_inside,
            "is_on_strong": is_inside and _share(trace["marker"], at) > _STRONG,
        }


def _place(value: float, layout: Mapping[str, Any]) -> float:
    low, high = layout["xaxis"]["range"]
    return float(100 * (value - low) / (high - low))


def _share(marker: Mapping[str, Any], at: int) -> float:
    low, high = marker["cmin"], marker["cmax"]
    return float((marker["color"][at] - low) / (high - low))


def _color(marker: Mapping[str, Any], at: int) -> str:
    """Return the color of a bar; one of a scale is mixed of the two tokens around it."""
    colors = marker["color"]
    if "colorscale" not in marker:
        return str(colors if isinstance(colors, str) else colors[at])
    stops = [color for _, color in marker["colorscale"]]
    place = _share(marker, at) * (len(stops) - 1)
    lower = min(int(place), len(stops) - 2)
    part = 100 * (place - lower)
    return f"color-mix(in srgb, {stops[lower]}, {stops[lower + 1]} {part:.0f}%)"
