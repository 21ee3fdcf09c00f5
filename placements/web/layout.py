"""The layout around every page, and the preferences of a browser, which are kept in cookies."""

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Value
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from clusters.drivers.registry import SIMULATED
from clusters.models import MemberCluster
from fleetui import __version__
from fleetui.permissions import may_approve, may_operate, may_read
from fleetui.task_queue import WorkerState, worker_state
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.models import Placement
from placements.services.rollouts.queries import running_count
from placements.services.waiting_work import waiting_since
from placements.web.api_links import api_url, curl_command

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
    given = request.COOKIES.get(_cookie(name), "")
    return given if given in allowed else allowed[0]


@require_POST
def set_preference(request: HttpRequest, name: str) -> HttpResponse:
    """Set a preference and redirect back; works without login."""
    chosen = request.POST.get(name, "")
    if chosen not in PREFERENCES[name]:
        return HttpResponseBadRequest(
            f"{name}: Unsupported value. Supported values: {', '.join(PREFERENCES[name])}", "text/plain"
        )
    wanted = request.POST.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    answer = redirect(wanted if is_ours and wanted.startswith("/") else "/")
    answer.set_cookie(
        _cookie(name), chosen, max_age=_A_YEAR, secure=settings.HTTPS, httponly=True, samesite="Lax"
    )
    return answer


def _cookie(name: str) -> str:
    return f"fleetui_{name}"


API_DOCS = "api:docs"
"""URL name of the API documentation; without such a URL there is no link."""
_SECTIONS = (
    ("Overview", "overview", ("/demo/", "/search/")),
    ("Clusters", "clusters", ("/clusters/", "/topology/")),
    ("Placements", "placements", ("/placements/", "/decisions/")),
    ("Rollouts", "rollouts", ("/rollouts/",)),
    ("What-if", "what-if", ("/what-if/",)),
    ("Resources", "resources", ("/resources/",)),
    ("Activity", "activity", ("/activity/",)),
)
_CAPTIONS = {"theme": "Theme", "rows": "Row height", "keys": "Keyboard shortcuts"}
_SIMULATED = MemberCluster.objects.filter(driver=SIMULATED)
_KEYS = {"Resources": "s"}
"""Letters of sections that are not their first."""


@dataclass(frozen=True, slots=True)
class Section:
    """One entry of the rail."""

    title: str
    url: str
    is_current: bool
    count: int

    @property
    def key(self) -> str:
        """Return the letter that leads here after a `g`."""
        return _KEYS.get(self.title, self.title[:1].lower())


def runs_under_way(request: HttpRequest) -> int:
    found: int | None = getattr(request, "runs_under_way", None)
    if found is None:
        found = running_count()
        request.runs_under_way = found  # type: ignore[attr-defined]  # one query for navigation and page
    return found


class AnyName(Container[str]):
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


class PageLayout:
    """What templates read; everything is lazy, so that a fragment costs no query for the layout."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._user = getattr(request, "user", None)

    @cached_property
    def may_read(self) -> bool:
        return self._user is not None and may_read(self._user)

    @cached_property
    def may_operate(self) -> bool:
        return self._user is not None and may_operate(self._user)

    @cached_property
    def may_approve(self) -> bool:
        return self._user is not None and may_approve(self._user)

    @cached_property
    def has_demo(self) -> bool:
        return self.may_read and "demo" in self._sorts

    @cached_property
    def simulated(self) -> Container[str]:
        """Return the names of the simulated clusters; a fleet of simulated ones only needs no list."""
        if "real" in self._sorts and "simulated" in self._sorts:
            return frozenset(_SIMULATED.values_list("name", flat=True))
        return AnyName() if "simulated" in self._sorts else frozenset()

    @cached_property
    def _sorts(self) -> frozenset[str]:
        demo = (model.objects.filter(is_demo=True) for model in (Placement, MemberCluster))
        sorts = [("demo", rows) for rows in demo]
        sorts += [("simulated", _SIMULATED), ("real", MemberCluster.objects.exclude(driver=SIMULATED))]
        first, *others = (rows.order_by().values_list(Value(words)) for words, rows in sorts)
        return frozenset(words for (words,) in first.union(*others))

    @cached_property
    def worker(self) -> WorkerState:
        return worker_state(now=timezone.now(), due_since=waiting_since)

    @property
    def theme(self) -> str:
        return preference_of(self._request, "theme")

    @property
    def rows(self) -> str:
        return preference_of(self._request, "rows")

    @property
    def keys(self) -> str:
        return preference_of(self._request, "keys")

    @property
    def choices(self) -> list[tuple[str, str, tuple[str, ...], str]]:
        return [
            (name, _CAPTIONS[name], words, preference_of(self._request, name))
            for name, words in PREFERENCES.items()
        ]

    @property
    def here(self) -> str:
        return self._request.get_full_path()

    @cached_property
    def twin(self) -> str:
        return api_url(self._request) if self.may_read else ""

    @property
    def curl(self) -> str:
        return curl_command(self._request, self.twin)

    @property
    def has_no_users(self) -> bool:
        return not User.objects.exists()

    @property
    def version(self) -> str:
        return __version__

    @property
    def engine(self) -> str:
        return ENGINE_VERSION

    @cached_property
    def sections(self) -> list[Section]:
        path = self._request.path
        return [
            Section(
                title,
                url,
                path == url or path.startswith(prefixes),
                runs_under_way(self._request) if title == "Rollouts" else 0,
            )
            for title, url, prefixes in ((title, reverse(f"web:{name}"), at) for title, name, at in _SECTIONS)
        ]

    @property
    def api_docs(self) -> str:
        try:
            return reverse(API_DOCS)
        except NoReverseMatch:
            return ""


def base_context(request: HttpRequest) -> dict[str, PageLayout]:
    return {"layout": PageLayout(request)}
