"""Charts on pages: the figure as JSON, and beside it the table of the same rows."""

from typing import Any

from django import template
from django.utils.safestring import SafeString, mark_safe

from placements.explain.charts.chart import Cell, Chart
from placements.explain.wording import NONE

register = template.Library()

INLINE_ROWS = 50
"""Tables up to this many rows stand in the page; longer ones are fetched when somebody opens them."""


@register.filter
def figure_json(chart: Chart) -> SafeString:
    """Give the figure as JSON for a script element; Plotly escapes what could end the element."""
    return mark_safe(chart.json)  # noqa: S308 - to_json escapes <, > and /


@register.filter
def cell(value: Cell) -> str:
    """Write one cell of a table: a dash for nothing, numbers with the minus sign of people."""
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    return f"{value:,}".replace("-", "−")


@register.inclusion_tag("parts/chart.html", takes_context=True)
def chart(context: dict[str, Any], chart: Chart, *, first: str = "") -> dict[str, object]:
    """Show a chart: caption, picture, and the table of its rows, inline when it is short.

    `first` is what is seen of it at first, also on a phone; else a phone begins with the table.
    """
    is_inline = len(chart.rows) <= INLINE_ROWS
    return {
        "chart": chart,
        "first": first,
        "is_inline": is_inline,
        "rows": chart.rows if is_inline else (),
        "before": "",
        "after": "",
        "request": context["request"],
    }
