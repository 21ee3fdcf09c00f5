"""The REST counterpart of each page: its address and a curl command."""

from collections.abc import Callable, Mapping
from shlex import quote
from typing import Any

from django.http import HttpRequest, QueryDict
from django.urls import NoReverseMatch, reverse

from placements.web.request import PAGE_SIZE

Arguments = Mapping[str, Any]
Twin = Callable[[Arguments, QueryDict], str]


def api_url(request: HttpRequest) -> str:
    """Return the address of what this page shows as JSON; empty for a page without numbers."""
    match = request.resolver_match
    if match is None or match.app_names != ["web"]:
        return ""
    exact = _TWINS.get(match.url_name or "")
    try:
        if exact:
            return exact(match.kwargs, request.GET)
        noun = next((noun for start, noun in _OBJECTS.items() if request.path.startswith(f"/{start}/")), "")
        if noun and "name" in match.kwargs:
            return _at(noun, match.kwargs["name"])
        section = request.path.strip("/").partition("/")[0]
        return _at(section) if section in _LISTS else ""
    except NoReverseMatch:  # a name that no object can have
        return ""


def curl_command(request: HttpRequest, twin: str) -> str:
    return f'curl -H "Authorization: Token $FLEETUI_TOKEN" {quote(request.build_absolute_uri(twin))}'


def _at(name: str, *arguments: object, query: Mapping[str, str | list[str]] | None = None) -> str:
    """Return an address of the API, without empty parameters."""
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
    return lambda arguments, _: _at(name, *(arguments[key] for key in keys))


def _clusters(arguments: Arguments, asked: QueryDict) -> str:
    """Return the list under the same filters; REST has no order by a label."""
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
    "overview": lambda _, __: _at("overview"),
    "search": lambda _, query: _at("search", query={"q": query.get("q", "").strip()}),
    "activity": _list("events", "kind", "name", "q", "by"),
    "event": _object("event", "number"),
    "clusters": _clusters,
    "placements": _list("placements", "q", "state", "type", "semantics", "cluster", sort="order"),
    "placement-plan": _object("plan", "name"),
    "placement-reschedule": _object("reschedule", "name"),
    "placement-history": _object("history", "name"),
    "comparison": _object("compare", "name", "before", "after"),
    "rollouts": _list("rollouts", "placement", "state"),
    "rollout": _object("rollout", "name", "number"),
    "decision": _object("decision", "prefix"),
    "decision-semantics": _object("decision-semantics", "prefix"),
    "decision-cluster": _object("outcome", "prefix", "cluster"),
    "staged-strategies": _list("staged-strategies"),
    "staged-strategy-new": _list("staged-strategies"),
    "topology": _list("clusters"),
    "what-if": _list("scenarios"),
    "scenario": _object("scenario", "number"),
    "resources": _list("resources", "kind", "namespace", "q"),
    "resource": _resource,
    "resource-delete": _resource,
    "help": lambda _, __: "",
}
_OBJECTS = {
    "clusters": "cluster",
    "placements": "placement",
    "rollouts/staged/runs": "staged-run",
    "rollouts/staged/strategies": "staged-strategy",
}
_LISTS = ("clusters", "placements", "rollouts", "resources")
