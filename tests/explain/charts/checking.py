"""What must hold of every chart."""

import json

from placements.explain.charts.figure import Chart

TRACES = {"bar", "scatter"}
"""Those of the smallest build of Plotly that are used; the console runs with the whole one, too."""


def check_chart(chart: Chart) -> None:
    """Assert what every chart promises: allowed traces, valid figure, a sentence, whole rows."""
    text = chart.json
    drawn = json.loads(text)
    assert {trace["type"] for trace in drawn["data"]} <= TRACES
    assert drawn["data"], "a chart draws something"
    assert chart.height > 0
    assert chart.caption.endswith(".")
    assert chart.title
    assert chart.columns
    assert {len(row) for row in chart.rows} <= {len(chart.columns)}
    assert "<" not in text
