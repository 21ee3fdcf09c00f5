"""Charts on pages: the first picture, the figure as JSON, and beside it the table of the same rows."""

from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from placements.explain.charts.figure import Cell, Chart, GroupName
from placements.explain.charts.fleet import label_filter
from placements.explain.charts.picture import first_picture
from placements.explain.vocabulary import NONE

register = template.Library()

INLINE_ROWS = 50
"""Tables up to this many rows are in the page; longer ones are fetched when they are opened."""


@register.filter
def figure_json(chart: Chart) -> SafeString:
    """Return the figure as JSON for a script element; Plotly escapes what could end the element."""
    return mark_safe(chart.json)  # noqa: S308 - to_json escapes <, > and /


@register.filter
def cell(value: Cell) -> str:
    """Write one cell of a table: a dash for nothing, a link for a group, numbers for people."""
    if value is None:
        return NONE
    if isinstance(value, GroupName):
        query = {"label": label_filter(value.key, value.value)}
        url = reverse("web:clusters", query=query)
        return format_html('<a href="{}">{}</a>', url, value)
    if isinstance(value, str):
        return value
    return f"{value:,}".replace("-", "−")


@register.inclusion_tag("parts/chart.html", takes_context=True)
def chart(
    context: dict[str, Any], chart: Chart, *, first: str = ""
) -> dict[str, object]:
    """Show a chart: caption, picture, and the table of its rows, inline when it is short.

    `first` is what is seen of it at first, also on a phone; else a phone starts with the table.
    """
    is_inline = len(chart.rows) <= INLINE_ROWS
    return {
        "chart": chart,
        "first": first,
        "picture": first_picture(chart.figure),
        "is_inline": is_inline,
        "rows": chart.lines() if is_inline else [],
        "before": "",
        "after": "",
        "request": context["request"],
    }


@register.simple_tag
def svg(**places: float) -> SafeString:
    """Return attributes of a shape in percent of its picture."""
    return format_html_join(
        " ", '{}="{}%"', ((name, f"{at:.2f}") for name, at in places.items())
    )
