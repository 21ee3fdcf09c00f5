"""What stands around every page: the rail, who is logged in, whether demo data is loaded."""

from dataclasses import dataclass
from functools import cached_property

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from clusters.models import MemberCluster
from fleetui.roles import may_operate, may_read
from placements.models import Placement
from placements.queries.runs import running_count

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


@dataclass(frozen=True, slots=True)
class Section:
    """One entry of the rail."""

    title: str
    url: str
    is_current: bool
    count: int


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
    def has_demo(self) -> bool:
        """Tell whether anything of a demo is loaded."""
        placements, clusters = (
            model.objects.filter(is_demo=True).values_list("pk") for model in (Placement, MemberCluster)
        )
        return self.may_read and placements.union(clusters, all=True).exists()

    @property
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
        return running_count() if title == "Rollouts" else 0

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
