"""What views read from a request: the user, numbers, filters, the page of a list, the table of a chart."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeVar

from django.contrib import messages
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import get_script_prefix
from django.utils.http import url_has_allowed_host_and_scheme

from fleetui import LOCAL_HUB_NAME
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import LARGEST_UPLOAD, MEBIBYTE, decoded
from fleetui.htmx import query_with, render_page
from fleetui.pagination import BadCursorError, Page, page_of
from fleetui.permissions import View, current_user, for_roles
from placements.explain.charts.figure import Chart
from placements.services.actions import ACTIONS, ActionKind
from placements.services.results import CONFIRMATION


def for_action(kind: ActionKind, name: str) -> Callable[[View], View]:
    """Require the role of an action, for everything or for the label of its subject."""
    action = ACTIONS[kind, name]
    return for_roles(action.role, action=action.verb, of=action.labels_at)


def actor(request: HttpRequest) -> dict[str, Any]:
    """Return the arguments of every operation: the user and the time."""
    return {"by": current_user(request), "now": datetime.now(UTC)}


def redirect_after(
    request: HttpRequest, message: str, page: str, *arguments: object
) -> HttpResponse:
    """Show what was done on the page that comes next."""
    messages.success(request, message)
    return redirect(page, *arguments)


def at_hub(hub: str, address: str) -> str:
    """Return an address of the local hub as that of the same page of another hub."""
    if hub == LOCAL_HUB_NAME:
        return address
    prefix = get_script_prefix().rstrip("/")
    return f"{prefix}/hubs/{hub}{address.removeprefix(prefix)}"


def is_confirmed(request: HttpRequest) -> bool:
    """Return whether the user confirmed that everything may be unscheduled (`parts/confirm.html`)."""
    return request.POST.get("confirm") == CONFIRMATION


def number_of(text: str, *, digits: int = 9) -> int | None:
    """Return a natural number of at most so many digits; None for any other text.

    The bound keeps a number within its column: nine digits fit an integer, 18 a big integer.
    """
    return int(text) if text.isdecimal() and len(text) <= digits else None


def file_or_text(request: HttpRequest, text: str) -> str:
    """Return the uploaded file as text, or else the text. Raise InvalidManifest."""
    upload = request.FILES.get("file")
    if upload is None and not text.strip():
        raise InvalidManifest.of("", "required", "Required value", "a file or text")
    if upload is not None and (upload.size or 0) > LARGEST_UPLOAD:
        allowed = f"at most {LARGEST_UPLOAD // MEBIBYTE} MiB"
        raise InvalidManifest.of("", "too-large", "Too large", allowed)
    return text if upload is None else decoded(upload.read(), LARGEST_UPLOAD)


PAGE_SIZE = 50
PAGE_SIZES = (25, 50, 100, 200)
_LONGEST_WORD = 40
Row = TypeVar("Row", bound=Model)
Word = TypeVar("Word", bound=StrEnum)


def page_from(
    request: HttpRequest, rows: QuerySet[Row], *, order: str, unique: str = "name"
) -> Page[Row]:
    """Return the page that the address requests; the first one where its cursor is of another order."""
    after, size = request.GET.get("after"), page_size(request.GET)
    try:
        return page_of(
            rows,
            order=order,
            unique=unique,
            size=size,
            after=after,
            start=start_of(request),
        )
    except BadCursorError:
        return page_of(rows, order=order, unique=unique, size=size)


def page_size(query: QueryDict) -> int:
    size = number_of(query.get("size", ""))
    return size if size in PAGE_SIZES else PAGE_SIZE


def start_of(request: HttpRequest) -> int:
    """Return how many rows come before the page that the address requests."""
    return (
        (number_of(request.GET.get("at", "")) or 0) if request.GET.get("after") else 0
    )


@dataclass(frozen=True, slots=True)
class RowRange:
    """Which of the rows of a list in memory a page shows, and where its neighbours start."""

    start: int
    size: int
    total: int

    @property
    def first(self) -> int:
        """The number of the first row, as people count; 0 without rows."""
        return min(self.start + 1, self.total)

    @property
    def last(self) -> int:
        return min(self.start + self.size, self.total)

    @property
    def earlier(self) -> int | None:
        return max(0, self.start - self.size) if self.start else None

    @property
    def later(self) -> int | None:
        return self.last if self.last < self.total else None


def range_from(request: HttpRequest, total: int, size: int = PAGE_SIZE) -> RowRange:
    """Return the rows that the address requests: `?from=50`; the first ones where it has too few."""
    start = number_of(request.GET.get("from", "")) or 0
    return RowRange(start - start % size if start < total else 0, size, total)


@dataclass(frozen=True, slots=True)
class Pager:
    """Which rows of a list a page shows, and the addresses of its neighbours and of other page sizes."""

    first: int
    last: int
    count: int | None
    previous: str
    following: str
    sizes: list[tuple[int, str]]


def pager_of(
    request: HttpRequest,
    number: int,
    count: int | None,
    *,
    before: str | None,
    after: str | None,
) -> Pager:
    """Return the pager of a page with this number of rows; `count` is None where counting takes too long."""
    start, size = start_of(request), page_size(request.GET)
    last = start + number
    earlier = {"after": before, "at": max(0, start - size) if before else None}
    return Pager(
        start + 1,
        last,
        None if count is None else max(count, last),
        address_with(request, **earlier) if request.GET.get("after") else "",
        address_with(request, after=after, at=last) if after else "",
        [
            (
                one,
                ""
                if one == size
                else address_with(request, after=None, at=None, size=one),
            )
            for one in PAGE_SIZES
            if count is None or count > min(PAGE_SIZES)
        ],
    )


def word_from(request: HttpRequest, name: str, words: type[Word]) -> Word | None:
    """Return the value of a filter; an unsupported one filters nothing (see `unknown_words`)."""
    word = request.GET.get(name, "")
    return words(word) if word in list(words) else None


@dataclass(frozen=True, slots=True)
class UnknownWord:
    """A filter with an unsupported value; `known` are the supported values with their links."""

    name: str
    value: str
    known: list[tuple[str, str]]
    without: str


def unknown_words(request: HttpRequest, **closed: Iterable[str]) -> list[UnknownWord]:
    """Return the filters with unsupported values: a misspelt one must not show everything silently."""
    return [
        UnknownWord(
            name,
            value[:_LONGEST_WORD],
            [
                (str(word), query_with(request.GET, after=None, v=None, **{name: word}))
                for word in words
            ],
            query_with(request.GET, after=None, v=None, **{name: None}),
        )
        for name, words in closed.items()
        if (value := request.GET.get(name, "")) and value not in set(map(str, words))
    ]


def order_from(request: HttpRequest, orders: tuple[str, ...]) -> str:
    """Read the order, the first one by default."""
    order = request.GET.get("order", "")
    return order if order in orders else orders[0]


def requested_table(
    request: HttpRequest, charts: Iterable[Chart]
) -> HttpResponse | None:
    """Answer `?table=NAME&row=N`: 50 rows of that chart's table, from row N on; None without this parameter.

    Raise Http404 for a chart that is not among these, or a row that there is not.
    """
    name = request.GET.get("table")
    if name is None:
        return None
    chart = next((one for one in charts if one.name == name), None)
    if chart is None:
        raise Http404(f"No chart here is named {name[:40]}.")
    row = request.GET.get("row", "0")
    if not row.isdecimal() or int(row) > len(chart.rows):
        raise Http404(f"Row {row[:10]} not found.")
    start, end = int(row), min(int(row) + PAGE_SIZE, len(chart.rows))
    return render_page(
        request,
        "parts/chart_table.html",
        {
            "chart": chart,
            "rows": chart.lines(start, end),
            "first": start + 1,
            "last": end,
            "before": query_with(request.GET, row=max(0, start - PAGE_SIZE))
            if start
            else "",
            "after": query_with(request.GET, row=end) if end < len(chart.rows) else "",
            "back": address_with(request),
        },
        fragment="parts/chart_rows.html",
    )


def address_with(request: HttpRequest, **changes: object) -> str:
    """Return the address of the page itself, not of a table on it, with some of its parameters changed."""
    of_parts = {"table": None, "row": None, "v": None, "panel": None}
    return query_with(request.GET, **{**of_parts, **changes})


def as_file(response: HttpResponse, name: str) -> HttpResponse:
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def next_address(request: HttpRequest, default: str) -> str:
    """Return the address on this host that a form, or the address of its page, names to go to afterwards.

    Only a path counts: Django's `redirect` takes another text for the name of a view, and fails.
    """
    wanted = request.POST.get("next") or request.GET.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if is_ours and wanted.startswith("/") else default
