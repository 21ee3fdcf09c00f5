"""The JSON twin of each page: the same numbers over REST, for whoever would rather count than read."""

from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any

from django.http import HttpRequest, QueryDict
from django.urls import NoReverseMatch, reverse

from placements.views.lists import PAGE_SIZE

Arguments = Mapping[str, Any]
Twin = Callable[[Arguments, QueryDict], str]


def twin_of(request: HttpRequest) -> str:
    """Give the address of what this page shows as JSON; empty for a page without numbers."""
    match = request.resolver_match
    if match is None or match.app_names != ["pages"]:
        return ""
    exact = _TWINS.get(match.url_name or "")
    try:
        return exact(match.kwargs, request.GET) if exact else _of_the_object(request.path, match.kwargs)
    except NoReverseMatch:  # a name that no object can have
        return ""


def curl_of(request: HttpRequest, twin: str) -> str:
    """Write the command that fetches a twin with a token."""
    return f'curl -H "Authorization: Token $FLEETUI_TOKEN" {quote(request.build_absolute_uri(twin))}'


def _at(name: str, *arguments: object, query: Mapping[str, str | list[str]] | None = None) -> str:
    """Give an address of the API; what is asked for with an empty word is not asked for."""
    given = QueryDict(mutable=True)
    for key, value in (query or {}).items():
        given.setlist(key, [one for one in ([value] if isinstance(value, str) else value) if one])
    address = reverse(f"api:{name}", args=arguments)
    return f"{address}?{given.urlencode()}" if given.urlencode() else address


def _list(name: str, *words: str, **renamed: str) -> Twin:
    """Make the twin of a list: the same filters, as many rows to a page."""

    def twin(_: Arguments, asked: QueryDict) -> str:
        known = {word: word for word in (*words, "after")} | {new: old for old, new in renamed.items()}
        given = {new: [one.strip() for one in asked.getlist(old)] for new, old in known.items()}
        return _at(name, query={**given, "limit": str(PAGE_SIZE)})

    return twin


def _object(name: str, *keys: str) -> Twin:
    """Make the twin of one object: what its address names, in this order."""
    return lambda arguments, _: _at(name, *(arguments[key] for key in keys))


def _nothing(_: Arguments, __: QueryDict) -> str:
    return ""


def _overview(_: Arguments, __: QueryDict) -> str:
    return _at("overview")


def _search(_: Arguments, asked: QueryDict) -> str:
    return _at("search", query={"q": asked.get("q", "").strip()})


def _clusters(arguments: Arguments, asked: QueryDict) -> str:
    """Give the list under the same filters; REST has no order by a label."""
    given = asked.copy()
    if "label:" in given.get("sort", ""):
        given.pop("sort")
    return _list("clusters", "q", "label", "state", sort="order")(arguments, given)


def _resource(arguments: Arguments, _: QueryDict) -> str:
    group, namespace = arguments["group"], arguments["namespace"]
    return _at(
        "resource",
        "core" if group == "_" else group,
        arguments["kind"],
        "-" if namespace == "_" else namespace,
        arguments["name"],
    )


_TWINS: dict[str, Twin] = {
    "overview": _overview,
    "search": _search,
    "activity": _list("events", "kind", "name", "q", "by"),
    "event": _object("event", "number"),
    "clusters": _clusters,
    "placements": _list("placements", "q", "state", "type", "semantics", "cluster", sort="order"),
    "plan": _object("plan", "name"),
    "reschedule": _object("reschedule", "name"),
    "history": _object("history", "name"),
    "compare": _object("compare", "name", "before", "after"),
    "rollouts": _list("rollouts", "placement", "state"),
    "rollout": _object("rollout", "name", "number"),
    "decision": _object("decision", "prefix"),
    "semantics": _object("decision-semantics", "prefix"),
    "decided-cluster": _object("outcome", "prefix", "cluster"),
    "staged-strategies": _list("staged-strategies"),
    "new-staged-strategy": _list("staged-strategies"),
    "topology": _list("clusters"),
    "what-if": _list("what-if"),
    "scenario": _object("scenario", "number"),
    "resources": _list("resources", "kind", "namespace", "q"),
    "resource": _resource,
    "delete-resource": _resource,
    "help": _nothing,
}
_OBJECTS = {
    "clusters": "cluster",
    "placements": "placement",
    "rollouts/staged/runs": "staged-run",
    "rollouts/staged/strategies": "staged-strategy",
}
_LISTS = ("clusters", "placements", "rollouts", "resources")


def _of_the_object(path: str, arguments: Arguments) -> str:
    """Give the object that a page is about, or the list that it belongs to: what forms and wizards show."""
    section = path.strip("/").partition("/")[0]
    noun = next((noun for start, noun in _OBJECTS.items() if path.startswith(f"/{start}/")), "")
    if "name" in arguments and noun:
        return _at(noun, arguments["name"])
    return _at(section) if section in _LISTS else ""
