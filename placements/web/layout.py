"""The layout around every page, its REST counterpart, and the preferences of a browser, kept in cookies."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from shlex import quote
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import caches
from django.db.models import Exists
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    HttpResponseBase,
    QueryDict,
)
from django.shortcuts import redirect
from django.urls import NoReverseMatch, get_script_prefix, reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from clusters.drivers.base import SIMULATED
from clusters.middleware import HUB_INDEPENDENT
from clusters.models import Hub, MemberCluster
from clusters.operations.connection import INSECURE_WARNING
from fleetui import __version__
from fleetui.changes import hub_version, version_as_of
from fleetui.environment import EnvironmentProblem, disk_problem
from fleetui.htmx import wants_fragment
from fleetui.hub_backend import HUB_PAGES, current_backend
from fleetui.hub_scope import current_hub_id
from fleetui.permissions import (
    LabelsOf,
    Role,
    by_operation,
    may_administer_clusters,
    may_change_at,
    may_operate,
    may_read,
    may_view_access_log,
    teams_of,
)
from fleetui.polling import polled
from fleetui.task_queue import WorkerState, worker_state
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.services.dashboard.navigation import NavigationCounts, navigation_counts
from placements.services.filters import LIST_FILTERS
from placements.services.teams import (
    of_draft,
    of_placement,
    of_resource,
    of_run,
    of_strategy,
)
from placements.services.workqueue import waiting_since
from placements.web.request import next_address, page_size

PREFERENCES = {
    "theme": ("system", "light", "dark"),
    "rows": ("comfortable", "dense"),
    "keys": ("on", "off"),
}
"""The values of each preference; the first one is the default."""
_A_YEAR = 365 * 24 * 3600


def preference_of(request: HttpRequest, name: str) -> str:
    """Return a preference; an unsupported cookie counts as not set."""
    allowed = PREFERENCES[name]
    cookie = request.COOKIES.get(_cookie(name), "")
    return cookie if cookie in allowed else allowed[0]


@require_POST
def set_preference(request: HttpRequest, name: str) -> HttpResponse:
    """Set a preference and redirect back; works without login."""
    chosen = request.POST.get(name, "")
    if chosen not in PREFERENCES[name]:
        return HttpResponseBadRequest(
            f"{name}: Unsupported value. Supported values: {', '.join(PREFERENCES[name])}",
            "text/plain",
        )
    answer = redirect(next_address(request, "/"))
    answer.set_cookie(
        _cookie(name),
        chosen,
        max_age=_A_YEAR,
        secure=settings.HTTPS,
        httponly=True,
        samesite="Lax",
    )
    return answer


def _cookie(name: str) -> str:
    return f"fleetui_{name}"


_SECTIONS = (
    ("Overview", "overview", ("/demo/", "/search/", "/inbox/")),
    ("Clusters", "clusters", ("/clusters/", "/topology/")),
    (
        "Placements",
        "placements",
        ("/placements/", "/drafts/", "/decisions/", "/disruptions/"),
    ),
    ("Rollouts", "rollouts", ("/rollouts/",)),
    ("Resources", "resources", ("/resources/", "/overrides/")),
    ("What-if", "what-if", ("/what-if/", "/checks/")),
    ("Activity", "activity", ("/activity/",)),
)
_COUNTED = {"Overview": "inbox", "Rollouts": "rollouts"}
"""What the navigation counts beside an entry."""
_CAPTIONS = {"theme": "Theme", "rows": "Row height", "keys": "Keyboard shortcuts"}
_KEYS = {"Resources": "s"}
"""Letters of sections that are not their first."""


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    url: str
    is_current: bool
    count: int = 0
    counted: str = ""
    """What is counted; empty for an entry without a count."""
    key: str = ""
    """The letter that leads there after `g`; empty below the gear."""


def counts_of(request: HttpRequest, *, is_outdated: bool = False) -> NavigationCounts:
    counts: NavigationCounts | None = getattr(request, "navigation_counts", None)
    if counts is None or is_outdated:
        counts = navigation_counts(request.user, is_outdated=is_outdated)
        request.navigation_counts = counts  # type: ignore[attr-defined]  # one query for navigation and page
    return counts


def live_page(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Answer the polls of a page, and set `request.version`, which it polls with.

    Problems are compared first, as that moves the version; and the version is read before all that the page
    shows. Else its first poll would render the same again.
    """

    @polled
    @wraps(view)
    def compared(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        request.version = version_as_of(counts_of(request).version or 0)  # type: ignore[attr-defined]  # read by templates
        return view(request, *args, **kwargs)

    return compared


_LABELS_OF_PAGES: tuple[tuple[str, LabelsOf], ...] = (
    ("staged-run-create", of_placement),
    ("staged-run", of_run),
    ("staged-strategy", of_strategy),
    ("placement", of_placement),
    ("comparison", of_placement),
    ("rollout", of_placement),
    ("draft", of_draft),
    ("resource", of_resource),
)
"""What a page is about, by the start of its name: the first one counts."""
_PAGES_OF_ALL = frozenset(
    {
        "placements",
        "placement-new",
        "resources",
        "resource-apply",
        "staged-strategies",
        "staged-strategy-new",
    }
)
"""Pages where everyone with a team starts something new."""


def operates_here(request: HttpRequest) -> bool:
    """Return whether the user may change what the page is about; a query for roles by label only."""
    match = request.resolver_match
    if match is None or not teams_of(request.user):
        return may_operate(request.user)
    name = match.url_name or ""
    of = next(
        (
            of
            for start, of in _LABELS_OF_PAGES
            if name.startswith(start) and match.kwargs
        ),
        None,
    )
    of = by_operation if name in _PAGES_OF_ALL else of
    return may_change_at(request.user, of, match.kwargs, Role.OPERATOR)


class PageLayout:
    """What templates read; queries are lazy, so that a fragment costs none for the layout."""

    version, engine = __version__, ENGINE_VERSION

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self.here = request.get_full_path()
        self.theme, self.rows, self.keys = (
            preference_of(request, name) for name in PREFERENCES
        )
        self._user = getattr(request, "user", None)
        self.refused_writes: dict[str, dict[str, Any]] = {}
        """The actions on a live hub that the page shows disabled, by reason and address."""

    @cached_property
    def may_read(self) -> bool:
        return self._user is not None and may_read(self._user)

    @cached_property
    def may_operate(self) -> bool:
        """Return whether the user may change what this page shows."""
        return self._user is not None and operates_here(self._request)

    @cached_property
    def may_operate_fleet(self) -> bool:
        return self._user is not None and may_operate(self._user)

    @cached_property
    def may_manage_notifications(self) -> bool:
        # Only a superuser gets the link; others with the permission know the address.
        return bool(getattr(self._user, "is_superuser", False))

    @cached_property
    def may_administer_clusters(self) -> bool:
        return self._user is not None and may_administer_clusters(self._user)

    @cached_property
    def may_view_access_log(self) -> bool:
        """Return whether the user may read the access log; without a query for those without permissions."""
        return self._user is not None and may_view_access_log(self._user)

    @cached_property
    def hub(self) -> Any:
        """Return the live hub that the page is about, as it is shown; None on the local hub."""
        hub: Hub | None = getattr(self._request, "hub", None)
        if hub is None or not self.may_read:
            return None
        return current_backend().shown(hub, now=timezone.now())

    @property
    def insecure_hub(self) -> str:
        return (
            INSECURE_WARNING
            if self.hub and self.hub.hub.connection.get("insecureTLS")
            else ""
        )

    @property
    def has_demo(self) -> bool:
        return self.may_read and counts_of(self._request).has_demo

    @cached_property
    def simulated(self) -> frozenset[str]:
        """Return the names of the simulated clusters, where the fleet has others too.

        This process keeps them while the version of the hub is the same: there may be thousands.
        """
        counts: NavigationCounts | None = getattr(
            self._request, "navigation_counts", None
        )
        if counts and not (counts.has_simulated and counts.has_others):
            return frozenset()
        # A fragment has no counts: one query for both.
        has_others = Exists(MemberCluster.objects.exclude(driver=SIMULATED))
        names = MemberCluster.objects.filter(has_others, driver=SIMULATED).values_list(
            "name", flat=True
        )
        version = getattr(self._request, "version", "") or hub_version()
        key = f"simulated-{current_hub_id()}-{version}"
        return (
            caches["process"].get_or_set(key, lambda: frozenset(names)) or frozenset()
        )

    @property
    def is_all_simulated(self) -> bool:
        if not self.may_read:
            return False
        counts = counts_of(self._request)
        return counts.has_simulated and not counts.has_others

    @cached_property
    def disk_problem(self) -> EnvironmentProblem | None:
        return disk_problem() if self.may_read else None

    @cached_property
    def worker(self) -> WorkerState:
        return worker_state(now=timezone.now(), due_since=waiting_since)

    @property
    def choices(self) -> list[tuple[str, str, tuple[str, ...], str]]:
        return [
            (name, _CAPTIONS[name], words, getattr(self, name))
            for name, words in PREFERENCES.items()
        ]

    @cached_property
    def twin(self) -> str:
        return api_url(self._request) if self.may_read else ""

    @property
    def curl(self) -> str:
        address = quote(self._request.build_absolute_uri(self.twin))
        return f'curl -H "Authorization: Token $FLEETUI_TOKEN" {address}'

    @property
    def has_no_users(self) -> bool:
        return not User.objects.exists()

    @cached_property
    def news(self) -> NavigationCounts | None:
        """Return what a fragment replaces in the navigation; None on a whole page."""
        return counts_of(self._request) if wants_fragment(self._request) else None

    @cached_property
    def sections(self) -> list[Section]:
        path, inside = self._request.path, self._request.path_info
        navigation = counts_of(self._request)
        counts = {"rollouts": navigation.rollouts, "inbox": navigation.inbox}
        sections = []
        for title, name, prefixes in _SECTIONS:
            url, counted = reverse(f"web:{name}"), _COUNTED.get(title, "")
            is_current = path == url or inside.startswith(prefixes)
            key = _KEYS.get(title, title[:1].lower())
            sections.append(
                Section(title, url, is_current, counts.get(counted, 0), counted, key)
            )
        if navigation.has_live_hubs:
            for title, name in HUB_PAGES:
                url = reverse(name)
                is_current = path.startswith(url)
                sections.append(Section(title, url, is_current, key=title[:1].lower()))
        return sections

    @cached_property
    def settings(self) -> list[Section]:
        """The entries below the gear."""
        links = [
            *zip(dict(HUB_PAGES), map(reverse, dict(HUB_PAGES).values()), strict=True),
            *(
                [
                    ("Users", reverse("web:users")),
                    ("Notifications", reverse("web:notifications")),
                ]
                if self.may_manage_notifications
                else ()
            ),
            ("API tokens", reverse("web:tokens")),
            ("API", reverse("api:docs")),
            ("Admin", reverse("admin:index")),
        ]
        mount = get_script_prefix()
        root = mount.partition("hubs/")[0]
        sections = []
        for title, address in links:
            page = address.removeprefix(mount)
            is_independent = f"/{page}".startswith(HUB_INDEPENDENT)
            url = f"{root}{page}" if is_independent else address
            is_current = self._request.path_info.startswith(f"/{page}")
            sections.append(Section(title, url, is_current))
        return sections


def base_context(request: HttpRequest) -> dict[str, PageLayout]:
    return {"layout": PageLayout(request)}


Arguments = Mapping[str, Any]
Twin = Callable[[Arguments, QueryDict], str]


def api_url(request: HttpRequest) -> str:
    """Return the address of what this page shows as JSON; empty for a page without numbers."""
    match = request.resolver_match
    if match is None or match.app_names != ["web"]:
        return ""
    exact = _API_URLS.get(match.url_name or "")
    try:
        if exact:
            return exact(match.kwargs, request.GET)
        noun = next(
            (
                noun
                for start, noun in _API_OBJECTS.items()
                if request.path_info.startswith(f"/{start}/")
            ),
            "",
        )
        if noun and "name" in match.kwargs:
            return _at(noun, match.kwargs["name"])
        section = request.path_info.strip("/").partition("/")[0]
        return (
            _at(section)
            if section in ("clusters", "placements", "rollouts", "resources")
            else ""
        )
    except NoReverseMatch:  # a name that no object can have
        return ""


def _at(
    name: str, *arguments: object, query: Mapping[str, str | list[str]] | None = None
) -> str:
    """Return an address of the API, without empty parameters."""
    params = QueryDict(mutable=True)
    for key, value in (query or {}).items():
        params.setlist(
            key, [one for one in ([value] if isinstance(value, str) else value) if one]
        )
    return reverse(f"api:{name}", args=arguments, query=params)


def _list(name: str, *words: str) -> Twin:
    """Make the twin of a list: the same filters, as many rows to a page."""
    known = ("q", *LIST_FILTERS.get(name, ()), *words, "after")

    def twin(_: Arguments, query: QueryDict) -> str:
        params = {word: [one.strip() for one in query.getlist(word)] for word in known}
        return _at(name, query={**params, "limit": str(page_size(query))})

    return twin


def _object(name: str, *keys: str) -> Twin:
    return lambda arguments, _: _at(name, *(arguments[key] for key in keys))


def _clusters(arguments: Arguments, query: QueryDict) -> str:
    """Return the list under the same filters; REST has no order by a label."""
    params = query.copy()
    if "label:" in params.get("order", ""):
        params.pop("order")
    return _list("clusters", "order")(arguments, params)


def _resource(arguments: Arguments, _: QueryDict) -> str:
    group, namespace = arguments["group"], arguments["namespace"]
    return _at(
        "resource",
        "core" if group == "_" else group,
        arguments["kind"],
        "-" if namespace == "_" else namespace,
        arguments["name"],
    )


_API_URLS: dict[str, Twin] = {
    "overview": _object("overview"),
    "search": lambda _, query: _at("search", query={"q": query.get("q", "").strip()}),
    "activity": _list("events"),
    "event": _object("event", "number"),
    "clusters": _clusters,
    "placements": _list("placements", "order"),
    "placement-plan": _object("plan", "name"),
    "placement-reschedule": lambda arguments, query: _at(
        "reschedule",
        arguments["name"],
        query={"moves": moves} if (moves := query.get("moves")) else {},
    ),
    "placement-history": _object("history", "name"),
    "comparison": _object("compare", "name", "before", "after"),
    "rollouts": _list("rollouts", "q", "placement", "state"),
    **{
        f"rollout{tab}": _object("rollout", "name", "number")
        for tab in ("", "-charts", "-clusters", "-events")
    },
    "rollout-plan": _object("plan", "name"),
    "decision": _object("decision", "prefix"),
    "decision-semantics": _object("decision-semantics", "prefix"),
    "decision-cluster": _object("outcome", "prefix", "cluster"),
    "staged-strategies": _list("staged-strategies"),
    "staged-strategy-new": _list("staged-strategies"),
    "topology": _list("clusters"),
    "what-if": _object("resilience"),
    "resilience": _object("resilience"),
    "checks": lambda _, query: _at(
        "checks",
        query={name: query.get(name, "") for name in ("q", *LIST_FILTERS["checks"])},
    ),
    "checks-file": _object("checks-file"),
    "resources": _list("resources", "order"),
    "resource": _resource,
    "resource-delete": _resource,
    "overrides": _list("overrides"),
    "override": lambda arguments, _: _at(
        "override",
        arguments["kind"],
        "-" if arguments["namespace"] == "_" else arguments["namespace"],
        arguments["name"],
    ),
    "disruptions": _list("evictions"),
    "budget": _object("budget-state", "name"),
    "eviction": _object("eviction", "number"),
    "inbox": lambda _, query: _at(
        "inbox", query={name: query.get(name, "") for name in ("kind", "hub")}
    ),
    "hubs": _object("hubs"),
    "hub-about": _object("hub", "name"),
    "help": lambda _, __: "",
}
_API_OBJECTS = {
    "clusters": "cluster",
    "placements": "placement",
    "rollouts/staged/runs": "staged-run",
    "rollouts/staged/strategies": "staged-strategy",
}
