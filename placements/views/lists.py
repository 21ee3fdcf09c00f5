"""What the lists share: pages from a cursor in the address, and filters that only know their own words."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from fleetui.paging import BadCursorError, Page, page_of

PAGE_SIZE = 50
_LONGEST_WORD = 40
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
    """Read a filter with a closed set of words; any other filters nothing (`unknown_words` tells)."""
    given = request.GET.get(name, "")
    return words(given) if given in list(words) else None


@dataclass(frozen=True, slots=True)
class UnknownWord:
    """A filter that asks for what there is not; `known` are the words that there are, with links."""

    name: str
    given: str
    known: list[tuple[str, str]]
    without: str


def unknown_words(request: HttpRequest, **closed: Iterable[str]) -> list[UnknownWord]:
    """List the filters that the address asks for in vain: a word misspelt must not show everything unsaid.

    Each filter comes with the words that it knows.
    """
    return [
        UnknownWord(
            name,
            given[:_LONGEST_WORD],
            [(str(one), _address(request, name, str(one))) for one in words],
            _address(request, name, ""),
        )
        for name, words in closed.items()
        if (given := request.GET.get(name, "")) and given not in set(map(str, words))
    ]


def _address(request: HttpRequest, name: str, word: str) -> str:
    query = request.GET.copy()
    for one in (name, "after", "v"):
        query.pop(one, None)
    if word:
        query[name] = word
    return f"?{query.urlencode()}"


def order_from(request: HttpRequest, orders: tuple[str, ...]) -> str:
    """Read the order, the first one by default."""
    given = request.GET.get("sort", "")
    return given if given in orders else orders[0]
