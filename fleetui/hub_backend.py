# ruff: noqa: ARG002 -- the local hub answers without looking at anything
"""The port of hubs: what may be done on a hub from here and why not, who does it, where a value comes from.

The local hub is this console itself: its services do everything. An app of live hubs registers the backend
of them; without such an app there are none.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from django.urls import URLPattern, URLResolver
from django.utils.module_loading import import_string

from fleetui.hub_scope import LOCAL_HUB, HubDecidesError, current_hub_id


class HubBackend:
    """What the entry points of the console ask a hub: pages, REST, commands, and the table of actions.

    The answers of this class are those of the local hub: nothing is refused or comes from elsewhere.
    """

    def refusal(self, address: str, *, is_form: bool) -> HubDecidesError | None:
        """Return why the page `address`, a name such as "web:cluster-new", or its form is refused."""
        return None

    def refusal_of_command(self, name: str) -> HubDecidesError | None:
        return None

    def operation(
        self, kind: str, name: str, here: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return the operation of an action of the table: `here` on the local hub.

        Raise HubDecidesError.
        """
        return here

    def handler(self, view: Any, method: str) -> Callable[..., Any] | None:
        """Return what responds to a request of REST in place of the method of its view, if anything does.

        Raise HubDecidesError.
        """
        return None

    def metadata(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return `uid`, `resourceVersion` and `generation` of a live object; empty if it has none."""
        return {}

    def shown(self, hub: Any, *, now: datetime) -> Any:
        """Return a live hub as all its pages show it; None without one."""
        return None

    def problems(self, now: datetime) -> Iterable[Any]:
        return ()

    def due_tasks(self, now: datetime) -> Iterable[tuple[str, dict[str, int]]]:
        """Return the tasks of live hubs that are due, with their arguments."""
        return ()

    @property
    def pages(self) -> Sequence[URLPattern]:
        return ()

    @property
    def operations(self) -> Sequence[URLPattern | URLResolver]:
        return ()

    def part(self, name: str) -> str:
        """Return the template of what a hub adds to a page; empty for nothing."""
        return ""


_LOCAL = HubBackend()
_live: list[str] = []
HUB_PAGES: list[tuple[str, str]] = []
"""The entries of live hubs in the navigation: titles, and names of pages."""


def register(path: str, *, pages: Iterable[tuple[str, str]]) -> None:
    """Make the backend with this dotted path the one of all live hubs; it is imported when it is needed."""
    _live[:] = [path]
    HUB_PAGES[:] = pages


def has_live_hubs() -> bool:
    return bool(_live)


def live_backend() -> HubBackend:
    """Return the backend of live hubs; without an app of them, one that has nothing."""
    return _imported(_live[0]) if _live else _LOCAL


@cache
def _imported(path: str) -> HubBackend:
    backend: HubBackend = import_string(path)()
    return backend


def current_backend() -> HubBackend:
    """Return the backend of the hub in scope. Raise ScopeError."""
    return _LOCAL if current_hub_id() == LOCAL_HUB else live_backend()
