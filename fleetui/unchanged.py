"""Answers to pages that ask again and again: nothing is new, told as cheaply as can be.

A view that answers 204 says how to look again. For the next ten seconds the same question from the same
session is answered by that look alone, before session, user and roles are read anew. All that it tells is
that nothing changed: who has logged out or lost a role meanwhile hears no more than that, and not for long.
"""

from collections.abc import Callable
from time import monotonic
from typing import TypeAlias

from django.conf import settings
from django.http import HttpRequest, HttpResponse

from fleetui.htmx import wants_fragment

SECONDS = 10.0
_MOST = 5000

Look: TypeAlias = Callable[[], str]
_Question: TypeAlias = tuple[str, str]
_known: dict[_Question, tuple[float, str, Look]] = {}


class Unchanged(HttpResponse):
    """Says that what `look` gives is still the `version` that the page shows."""

    status_code = 204

    def __init__(self, version: str, look: Look) -> None:
        super().__init__()
        self.version, self.look = version, look


def unchanged_since(request: HttpRequest, version: str, look: Look) -> Unchanged | None:
    """Give the answer to a fragment that asks for what is newer than it has, where nothing is."""
    if wants_fragment(request) and request.GET.get("v") == version:
        return Unchanged(version, look)
    return None


class UnchangedMiddleware:
    """Asks a view for such an answer once in ten seconds, and looks for itself in between."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer from what is known, or let the view answer and remember how it did."""
        question = _question_of(request)
        if question is None:
            return self._get_response(request)
        until, version, look = _known.get(question, (0.0, "", str))
        if monotonic() < until and look() == version:
            return HttpResponse(status=204)
        response = self._get_response(request)
        if isinstance(response, Unchanged):
            _remember(question, response)
        return response


def forget_unchanged() -> None:
    """Ask the views again."""
    _known.clear()


def _question_of(request: HttpRequest) -> _Question | None:
    session = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    if request.method != "GET" or not session or "HX-Request" not in request.headers:
        return None
    return session, request.get_full_path()


def _remember(question: _Question, response: Unchanged) -> None:
    if len(_known) >= _MOST:
        _known.clear()
    _known[question] = (monotonic() + SECONDS, response.version, response.look)
