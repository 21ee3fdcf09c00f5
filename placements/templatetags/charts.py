"""Charts on pages: the figure as JSON, and beside it the table of the same rows."""

from typing import Any

from django import template
from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode
from django.utils.safestring import SafeString, mark_safe

from placements.explain.charts.figure import Cell, Chart, GroupName
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
    """Write one cell of a table: a dash for nothing, numbers with the minus sign of people."""
    if value is None:
        return NONE
    if isinstance(value, str):
        return value
    return f"{value:,}".replace("-", "−")


@register.simple_tag(takes_context=True)
def group_link(context: dict[str, Any], cell: Cell) -> str:
    """Return the address of the clusters of a group: in the decision shown, or in the fleet; else nothing."""
    if not isinstance(cell, GroupName):
        return ""
    request: HttpRequest = context["request"]
    match = request.resolver_match
    if match is None or match.url_name != "decision":
        label = f"!{cell.key}" if cell.value is None else f"{cell.key}:{cell.value}"
        return f"{reverse('web:clusters')}?{urlencode({'label': label})}"
    query = request.GET.copy()
    for name in ("table", "row", "panel", "q", "outcome", "reason", "from"):
        query.pop(name, None)
    query["view"], query["group"] = "clusters", f"{cell.key}:{cell.value or ''}"
    return f"?{query.urlencode()}#view"


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
        "is_inline": is_inline,
        "rows": chart.lines() if is_inline else [],
        "before": "",
        "after": "",
        "request": context["request"],
    }
