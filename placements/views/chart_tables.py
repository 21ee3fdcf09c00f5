"""The table of a chart by itself: what its link without JavaScript leads to, and what opening it fetches."""

from collections.abc import Iterable
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse

from fleetui.htmx import render_page
from placements.explain.charts.chart import Chart

_PAGE = 50


def asked_table(request: HttpRequest, charts: Iterable[Chart]) -> HttpResponse | None:
    """Answer `?table=NAME&row=N`: 50 rows of that chart's table, from row N on; None when none is asked for.

    Raises Http404 for a chart that is not among these, or a row that there is not.
    """
    name = request.GET.get("table")
    if name is None:
        return None
    found = next((one for one in charts if one.name == name), None)
    if found is None:
        raise Http404(f"There is no chart called {name[:40]} here.")
    return render_page(
        request, "parts/chart_table.html", _context(request, found), fragment="parts/chart_rows.html"
    )


def _context(request: HttpRequest, chart: Chart) -> dict[str, Any]:
    start = _start(request, chart)
    end = min(start + _PAGE, len(chart.rows))
    return {
        "chart": chart,
        "rows": chart.lines(start, end),
        "first": start + 1,
        "last": end,
        "before": _address(request, row=max(0, start - _PAGE)) if start else "",
        "after": _address(request, row=end) if end < len(chart.rows) else "",
        "back": address_with(request),
    }


def address_with(request: HttpRequest, **changes: object) -> str:
    """Give the address of the page itself, not of a table on it, with some of its parameters changed."""
    return _address(request, **{"table": None, "row": None, "v": None, **changes})


def _start(request: HttpRequest, chart: Chart) -> int:
    given = request.GET.get("row", "0")
    if not given.isdecimal() or int(given) > len(chart.rows):
        raise Http404(f"There is no row {given[:10]}.")
    return int(given)


def _address(request: HttpRequest, **changes: object) -> str:
    query = request.GET.copy()
    for name, value in changes.items():
        query.pop(name, None)
        if value is not None:
            query[name] = str(value)
    return f"?{query.urlencode()}"
