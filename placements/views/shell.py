"""What stands around every page: the rail, who is logged in, whether demo data is loaded."""

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Value
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from clusters.drivers.registry import SIMULATED
from clusters.models import MemberCluster
from fleetui.pulse import silence
from fleetui.roles import may_approve, may_operate, may_read
from placements.models import Placement
from placements.queries.runs import running_count
from placements.queries.waiting_work import waiting_since
from placements.scheduling.version import ENGINE_VERSION
from placements.views.preferences import PREFERENCES, preference_of
from placements.views.twins import curl_of, twin_of

API_DOCS = "api:docs"
"""The name of the address of the API's documentation; without one there is no link."""
_SECTIONS = (
    ("Overview", "overview", ("/demo/", "/search/")),
    ("Clusters", "clusters", ("/clusters/", "/topology/")),
    ("Placements", "placements", ("/placements/", "/decisions/")),
    ("Rollouts", "rollouts", ("/rollouts/",)),
    ("What-if", "what-if", ("/what-if/",)),
    ("Resources", "resources", ("/resources/",)),
    ("Activity", "activity", ("/activity/",)),
)
_CAPTIONS = {"theme": "Theme", "rows": "Rows", "keys": "Keyboard shortcuts"}
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
        """Give the letter that leads here after a `g`."""
        return _KEYS.get(self.title, self.title[:1].lower())


def runs_under_way(request: HttpRequest) -> int:
    """Count the runs of both sorts that are under way, once for everything that a page says of them."""
    found: int | None = getattr(request, "runs_under_way", None)
    if found is None:
        found = running_count()
        request.runs_under_way = found  # type: ignore[attr-defined]  # kept for the rail and the page alike
    return found


class Everyone(Container[str]):
    """Names, all of them."""

    def __contains__(self, name: object) -> bool:
        """Say yes to any name."""
        return True


class Shell:
    """Asked by the templates only for what they show, so that a fragment costs no query of it."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self._user = getattr(request, "user", None)

    @cached_property
    def may_read(self) -> bool:
        """Tell whether there is anything to navigate to."""
        return self._user is not None and may_read(self._user)

    @cached_property
    def may_operate(self) -> bool:
        """Tell whether actions are offered, or shown as refused."""
        return self._user is not None and may_operate(self._user)

    @cached_property
    def may_approve(self) -> bool:
        """Tell whether approvals are offered, or shown as refused."""
        return self._user is not None and may_approve(self._user)

    @cached_property
    def has_demo(self) -> bool:
        """Tell whether anything of a demo is loaded."""
        return self.may_read and "demo" in self._sorts

    @cached_property
    def simulated(self) -> Container[str]:
        """Give the names of the simulated clusters; where all are alike, nobody has to list them."""
        if "real" in self._sorts and "simulated" in self._sorts:
            return frozenset(_SIMULATED.values_list("name", flat=True))
        return Everyone() if "simulated" in self._sorts else frozenset()

    @cached_property
    def _sorts(self) -> frozenset[str]:
        """Tell in one query what there is: something of a demo, simulated clusters, real ones."""
        demo = (model.objects.filter(is_demo=True) for model in (Placement, MemberCluster))
        sorts = [("demo", rows) for rows in demo]
        sorts += [("simulated", _SIMULATED), ("real", MemberCluster.objects.exclude(driver=SIMULATED))]
        first, *others = (rows.order_by().values_list(Value(words)) for words, rows in sorts)
        return frozenset(words for (words,) in first.union(*others))

    @cached_property
    def silence(self) -> int | None:
        """Give for how many seconds no worker has answered, if that is too long and work waits for one."""
        found = silence(now=timezone.now(), waiting=waiting_since)
        return int(found.total_seconds()) if found else None

    @property
    def theme(self) -> str:
        """Give the theme that was chosen: system, light or dark."""
        return preference_of(self._request, "theme")

    @property
    def rows(self) -> str:
        """Give the height of rows that was chosen."""
        return preference_of(self._request, "rows")

    @property
    def keys(self) -> str:
        """Tell whether single letters do something, as on or off."""
        return preference_of(self._request, "keys")

    @property
    def choices(self) -> list[tuple[str, str, tuple[str, ...], str]]:
        """Give what can be chosen: name, caption, the words, the one that holds."""
        return [
            (name, _CAPTIONS[name], words, preference_of(self._request, name))
            for name, words in PREFERENCES.items()
        ]

    @property
    def here(self) -> str:
        """Give the address to come back to."""
        return self._request.get_full_path()

    @cached_property
    def twin(self) -> str:
        """Give the address of this page as JSON, if it shows anything to count."""
        return twin_of(self._request) if self.may_read else ""

    @property
    def curl(self) -> str:
        """Write the command that fetches the twin."""
        return curl_of(self._request, self.twin)

    @property
    def engine(self) -> str:
        """Give the version of the scheduling engine."""
        return ENGINE_VERSION

    @cached_property
    def sections(self) -> list[Section]:
        """Give the rail."""
        path = self._request.path
        return [
            Section(title, url, path == url or path.startswith(prefixes), self._count(title))
            for title, url, prefixes in (
                (title, reverse(f"pages:{name}"), at) for title, name, at in _SECTIONS
            )
        ]

    def _count(self, title: str) -> int:
        """Count what of a section is under way."""
        return runs_under_way(self._request) if title == "Rollouts" else 0

    @property
    def api_docs(self) -> str:
        """Give the address of the API's documentation, if it is served."""
        try:
            return reverse(API_DOCS)
        except NoReverseMatch:
            return ""


def shell(request: HttpRequest) -> dict[str, Shell]:
    """Hand the shell to every template."""
    return {"shell": Shell(request)}
