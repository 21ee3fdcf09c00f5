"""Every address of the console, from its URL configuration, with names that the samples of a test have."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.urls import URLPattern, get_resolver
from django.urls.resolvers import RoutePattern

_PART = re.compile(r"<(?:[a-z_]+:)?([a-z_]+)>")
_READING = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Address:
    """A path with places for names, the name of its view, and the method to call it with."""

    route: str
    name: str
    method: str

    @property
    def is_rest(self) -> bool:
        return self.route.startswith("/api/")

    def path(self, names: Callable[[str, str], Any]) -> str:
        """Return the path; `names` returns what is there by the route and the name of a place."""
        return _PART.sub(lambda found: str(names(self.route, found[1])), self.route)


def writing_addresses() -> list[Address]:
    """Return the addresses that may change something: methods of REST that do, and POST to all others."""
    found = {
        Address(route, pattern.name or "", method): None
        for route, pattern, actions in routes(get_resolver().url_patterns, "/")
        for method in ([name.upper() for name in actions] if actions else ["POST"])
        if method not in _READING
    }
    return list(found)


def costly_addresses() -> dict[str, bool]:
    """Return whether an address uses the seconds of its user: of pages by route, of REST by method too."""
    found = {}
    for route, pattern, actions in routes(get_resolver().url_patterns, "/"):
        view: Any = pattern.callback
        if actions is None:
            found[route] = getattr(view, "is_costly", False)
            continue
        for method, action in actions.items():
            is_costly = getattr(getattr(view.cls, action), "is_costly", False)
            if method != "head":  # which REST framework adds with the first request
                found[f"{method.upper()} {route}"] = is_costly
    return found


def page_names() -> set[str]:
    """Return the names of the pages."""
    return {
        pattern.name or ""
        for _, pattern, actions in routes(get_resolver().url_patterns, "/")
        if actions is None
    }


def page_routes() -> list[str]:
    """Return the routes of everything that is no REST operation."""
    return [
        route
        for route, _, actions in routes(get_resolver().url_patterns, "/")
        if actions is None
    ]


def routes(
    patterns: Any, start: str
) -> Iterator[tuple[str, URLPattern, Mapping[str, str] | None]]:
    """Yield the route, the pattern and the actions of every address; pages have no actions."""
    for pattern in patterns:
        if not isinstance(pattern.pattern, RoutePattern):
            continue
        route = f"{start}{pattern.pattern}"
        if isinstance(pattern, URLPattern):
            yield route, pattern, getattr(pattern.callback, "actions", None)
        else:
            yield from routes(pattern.url_patterns, route)
