"""The filter bar of a list: free text and `key=value` in one field, and the values to choose from.

What is typed becomes parameters of the address: links, older addresses and REST have the same filters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from clusters.filters import TYPED_WORD, typed_pair
from placements.services.filters import LIST_FILTERS
from placements.templatetags.fleet import state_of, state_words
from placements.web.request import UnknownWord, address_with, unknown_words

_TYPED = {"state": "status", "by": "user"}
_PARAMETERS = {typed: key for key, typed in _TYPED.items()}
# A status is typed in the words of the page, or as addresses have it.
_READ = {"state": state_of}
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Facet:
    """The values of one filter, each with its words and, where known, its count.

    A choice also clears the filters `without`. `is_row`: shown beside the menu of the other facets.
    """

    key: str
    title: str
    choices: Sequence[tuple[str, str, int | None]]
    is_row: bool = False
    without: tuple[str, ...] = ()


def plain_choices(values: Iterable[str]) -> list[tuple[str, str, None]]:
    return [(str(value), str(value), None) for value in values]


@dataclass(frozen=True, slots=True)
class FacetValue:
    """One value of a facet as a link; that of the present value clears the filter."""

    words: str
    count: int | None
    url: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class FilterBar:
    """What the templates `parts/filter_bar.html` and `parts/facets.html` show."""

    text: str
    hints: list[tuple[str, str]]
    rows: list[tuple[str, list[FacetValue]]]
    menu: list[tuple[str, list[FacetValue]]]
    is_filtered: bool
    unknown: list[UnknownWord]


def read_typed(request: HttpRequest, keys: Iterable[str]) -> str:
    """Move each `key=value` from the text of the address into its parameters; return the free text."""
    query, words, pairs = request.GET.copy(), list[str](), list[str]()
    for word in TYPED_WORD.findall(query.get("q", "")):
        name, is_pair, value = word.partition("=")
        key = _PARAMETERS.get(name, name)
        if is_pair and key in keys:
            query[key] = _READ.get(key, str)(value.replace('"', ""))
        else:
            (pairs if is_pair else words).append(word)
    if words or pairs:
        query["q"] = " ".join((*words, *pairs))
    else:
        query.pop("q", None)
    request.GET = query  # type: ignore[assignment]  # a cached property of the request
    return " ".join(words)


def read_filters(
    request: HttpRequest, name: str, **closed: Iterable[str]
) -> dict[str, str]:
    """Return the values of the filters of a list (`LIST_FILTERS`), and `q`, the free text.

    `closed` are those with the values that each supports; another value filters nothing.
    """
    values = {"q": read_typed(request, LIST_FILTERS[name])}
    for key in LIST_FILTERS[name]:
        value = request.GET.get(key, "").strip().replace("\x00", "")
        values[key] = value if value in closed.get(key, (value,)) else ""
    return values


def filter_bar(
    request: HttpRequest,
    keys: Iterable[str],
    facets: Iterable[Facet] = (),
    *,
    text: str | None = None,
    hints: Iterable[tuple[str, str]] = (),
    **closed: Iterable[str],
) -> FilterBar:
    """Return the bar of a list whose address went through `read_typed`; `text` is shown in place of that.

    `closed` are the parameters with the values that each supports.
    """
    search, facets = (
        request.GET.get("q", "").strip(),
        [facet for facet in facets if facet.choices],
    )
    names = {key: _TYPED.get(key, key) for key in keys}
    if text is None:
        typed = [
            _typed(key, value)
            for key in names
            if (value := request.GET.get(key, "").strip())
        ]
        text = " ".join([*typed, search]).strip()
    known = [
        (_typed(facet.key, choice[0]), choice[1])
        for facet in facets
        if facet.key in names
        for choice in facet.choices
    ]
    unknown = unknown_words(request, **closed)
    for word in search.split() if names else ():
        key, is_pair, value = word.partition("=")
        if is_pair:
            links = [
                (
                    name,
                    address_with(
                        request, after=None, q=search.replace(word, f"{name}={value}")
                    ),
                )
                for name in names.values()
            ]
            without = address_with(
                request, after=None, q=search.replace(word, "").strip() or None
            )
            unknown.append(UnknownWord("filter", key[:_LONGEST], links, without))
    return FilterBar(
        text,
        [*hints, *(known or [(f"{name}=", "") for name in names.values()])],
        [(facet.title, _choices(request, facet)) for facet in facets if facet.is_row],
        [
            (facet.title, _choices(request, facet))
            for facet in facets
            if not facet.is_row
        ],
        bool(text),
        unknown,
    )


def _typed(key: str, value: str) -> str:
    shown = state_words(value) if key == "state" else value
    return typed_pair(_TYPED.get(key, key), shown)


def _choices(request: HttpRequest, facet: Facet) -> list[FacetValue]:
    present = request.GET.getlist(facet.key)
    cleared = {"after": None, "at": None, **dict.fromkeys(facet.without)}

    def choice(
        value: str | None, words: str, count: int | None, *, is_chosen: bool
    ) -> FacetValue:
        target = {facet.key: None if is_chosen else value}
        return FacetValue(
            words, count, address_with(request, **cleared, **target), is_chosen
        )

    choices = [choice(*one, is_chosen=one[0] in present) for one in facet.choices]
    if len(choices) == 1:
        return choices
    is_open = not any(present) and not any(map(request.GET.get, facet.without))
    return [choice(None, "All", None, is_chosen=is_open), *choices]
