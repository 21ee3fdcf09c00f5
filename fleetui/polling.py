"""Cheap responses to polling pages: 204 when nothing changed, fragments shared by tabs, prepared queries.

For ten seconds after a 204, equal requests of a session run only the query of the version, without session,
user and roles. A user who logged out or lost a role meanwhile learns only that nothing changed.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from time import monotonic
from typing import Any, TypeAlias

from django.conf import settings
from django.db import connection
from django.db.models import Count, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import get_token
from django.utils.crypto import get_random_string

from fleetui.htmx import wants_fragment
from fleetui.hub_scope import current_hub_id
from fleetui.middleware import Middleware

SECONDS = 10.0
_MOST = 5000

Look: TypeAlias = Callable[[], str]
_Question: TypeAlias = tuple[int, str, str]
_known: dict[_Question, tuple[float, str, Look]] = {}


class NotModified(HttpResponse):
    """Status 204: `look` still returns the `version` of the page."""

    status_code = 204

    def __init__(self, version: str, look: Look) -> None:
        super().__init__()
        self.version, self.look = version, look


def not_modified(request: HttpRequest, version: str, look: Look) -> NotModified | None:
    if wants_fragment(request) and request.GET.get("v") == version:
        return NotModified(version, look)
    return None


class UnchangedMiddleware(Middleware):
    """Calls the view once in ten seconds, and in between only the query of its last response."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Respond from the cache, or call the view and cache its query."""
        session = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        if request.method != "GET" or not session or "HX-Request" not in request.headers:
            return self._get_response(request)
        question = current_hub_id(), session, request.get_full_path()
        until, version, look = _known.get(question, (0.0, "", str))
        if monotonic() < until and look() == version:
            return HttpResponse(status=204)
        response = self._get_response(request)
        if isinstance(response, NotModified):
            if len(_known) >= _MOST:
                _known.clear()
            _known[question] = (monotonic() + SECONDS, response.version, response.look)
        return response


FRAGMENT_SECONDS = 2.0
TOKEN = get_random_string(64)
"""The placeholder of the token of its forms in a shared fragment."""

_FRAGMENT_MOST = 200


class _Shared:
    """A fragment that is being written, or is written until some moment."""

    def __init__(self) -> None:
        self.lock, self.until, self.content = Lock(), 0.0, b""


_fragment_known: dict[Hashable, _Shared] = {}


def shared_fragment(request: HttpRequest, key: Hashable, make: Callable[[], HttpResponse]) -> HttpResponse:
    """Return the response of `make` for this hub and key, at most two seconds old.

    It gets the token of the session.
    """
    if len(_fragment_known) >= _FRAGMENT_MOST:
        _fragment_known.clear()
    one = _fragment_known.setdefault((current_hub_id(), key), _Shared())
    with one.lock:
        if monotonic() >= one.until:
            one.content, one.until = make().content, monotonic() + FRAGMENT_SECONDS
        content = one.content
    mark = TOKEN.encode()
    return HttpResponse(content.replace(mark, get_token(request).encode()) if mark in content else content)


def clear_caches() -> None:
    """Forget every response, for tests."""
    _known.clear()
    _fragment_known.clear()


PARAMETER = "\0given"
"""The placeholder of a parameter in a query of one row."""
ANYBODY = 2_000_000_011
"""The placeholder of the primary key of a user."""
ANY_TIME = datetime(1999, 1, 1, 1, 1, 1, tzinfo=UTC)
"""The placeholder of the time of the request."""


def number_of(rows: QuerySet[Any, Any]) -> Coalesce:
    one_group = rows.order_by().annotate(one=Value(1)).values("one")
    return Coalesce(Subquery(one_group.annotate(number=Count("pk")).values("number")), 0)


class PreparedQuery:
    """A query of the hub in scope, compiled once; `write` returns it with placeholders for what differs."""

    def __init__(self, write: Callable[[], QuerySet[Any, Any]]) -> None:
        self._write = write
        self._written: dict[int, tuple[str, Sequence[Any]]] = {}

    def first(self, *given: str) -> tuple[Any, ...] | None:
        values = iter(given)
        sql, parameters = self._compiled(most=1)
        with connection.cursor() as cursor:
            cursor.execute(sql, [next(values) if one == PARAMETER else one for one in parameters])
            row: tuple[Any, ...] | None = cursor.fetchone()
        return row

    def rows(self, values: Mapping[Any, Any]) -> list[tuple[Any, ...]]:
        """Return the rows, as the database writes their values; `values` are those of the placeholders."""
        sql, parameters = self._compiled(most=None)
        with connection.cursor() as cursor:
            # PostgreSQL takes the values of an `__in` as a list, which is no key.
            given = [one if isinstance(one, list) else values.get(one, one) for one in parameters]
            cursor.execute(sql, given)
            return list(cursor.fetchall())

    def _compiled(self, most: int | None) -> tuple[str, Sequence[Any]]:
        hub = current_hub_id()
        if hub not in self._written:
            self._written[hub] = self._write()[:most].query.sql_with_params()
        return self._written[hub]
