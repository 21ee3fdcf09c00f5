"""What the lists share: pages from a cursor in the address, and filters that only know their own words."""

from enum import StrEnum
from typing import TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from fleetui.paging import BadCursorError, Page, page_of

PAGE_SIZE = 50
Row = TypeVar("Row", bound=Model)
Word = TypeVar("Word", bound=StrEnum)


def page_from(
    request: HttpRequest, rows: QuerySet[Row], *, order: str, unique: str = "name", size: int = PAGE_SIZE
) -> Page[Row]:
    """Give the page that the address asks for; the first one where its cursor is of another order."""
    after = request.GET.get("after")
    try:
        return page_of(rows, order=order, unique=unique, size=size, after=after)
    except BadCursorError:
        return page_of(rows, order=order, unique=unique, size=size)


def word_from(request: HttpRequest, name: str, words: type[Word]) -> Word | None:
    """Read a filter with a closed set of words; any other word filters nothing."""
    given = request.GET.get(name, "")
    return words(given) if given in list(words) else None


def order_from(request: HttpRequest, orders: tuple[str, ...]) -> str:
    """Read the order, the first one by default."""
    given = request.GET.get("sort", "")
    return given if given in orders else orders[0]
