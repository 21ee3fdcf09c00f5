"""Cheap responses to live pages: 204 when nothing changed, and fragments that all viewers share.

For a minute after a view has answered a poll, the middleware answers equal polls of the session. Of a version
that the page has already it reads the version only, and each ten seconds, as for a newer version, whether the
session, the user and the grants are as the view checked them; if they are not, the view answers. A user who
lost a role learns meanwhile only that nothing changed.
"""

import re
import secrets
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from threading import Lock
from time import monotonic, perf_counter, thread_time
from typing import Any
from urllib.parse import unquote_plus

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware, get_token
from django.utils.crypto import get_random_string

from fleetui.accounts.second_factor import lacks_second_factor
from fleetui.hub_scope import current_hub_id, in_hub
from fleetui.middleware import HEADER, Middleware
from fleetui.monitoring import count_request
from fleetui.permissions import grant_rows
from fleetui.polling import ANYBODY, PARAMETER, NotModified, PreparedQuery, ReadVersion

SECONDS = 10.0
"""How long a 204 is given without a look at the session."""
LONGEST = 60.0
"""How long the view is not called: the precision of the limits of a session."""
FRAGMENT_SECONDS = 2.0
_MOST, _FRAGMENT_MOST = 5000, 200
TOKEN = get_random_string(64)
"""The placeholder of the token of its forms in a shared fragment."""


class SharedFragment(HttpResponse):
    """A fragment that all with this key get for this version; `read_version` returns the version now."""

    def __init__(self, content: bytes, key: Hashable, read_version: ReadVersion) -> None:
        super().__init__(content)
        self.hub, self.key, self.read_version = current_hub_id(), key, read_version


@dataclass(slots=True)
class _Known:
    """What a session polls, and what the view checked before it answered."""

    hub: int
    session: str
    read_version: ReadVersion
    user: int
    access: Hashable
    fresh_until: float
    ends: float
    key: Hashable
    headers: dict[str, str]


_known: dict[Hashable, _Known] = {}
_VERSION = re.compile(r"(?:^|&)v=([^&]*)")


def _poll_of(environ: Mapping[str, Any], path: str) -> tuple[Hashable, str | None]:
    """Return what a session polls, and the version that its page has."""
    query = environ.get("QUERY_STRING", "")
    version = _VERSION.search(query)
    poll = environ.get("HTTP_COOKIE"), path, _VERSION.sub("", query)
    return poll, unquote_plus(version[1]) if version else None


def _write_access() -> QuerySet[Session, Any]:
    user = User.objects.filter(pk=ANYBODY)
    columns = {name: Subquery(user.values(name)) for name in ("password", "is_active", "is_superuser")}
    sessions = Session.objects.filter(session_key=PARAMETER)
    return sessions.annotate(**columns).values_list("session_data", *columns)


_access_query = PreparedQuery(_write_access)


def _access(session: str, user: int) -> Hashable:
    """Return all that decides what a session may see; None once it has ended."""
    rows = _access_query.rows({PARAMETER: session, ANYBODY: user})
    if not rows:
        return None
    owners = User.objects.filter(pk=user) if settings.SECOND_FACTOR_ROLES else ()
    lacks_factor = any(map(lacks_second_factor, owners))
    return (*rows[0], lacks_factor, *grant_rows(user))


def _answer(known: _Known, seen: str | None, *, without_token: bool = False) -> bytes | None:
    """Return the response to a poll that has seen this version, empty for 204; None if the view responds."""
    if monotonic() >= known.ends:
        return None
    version, now = known.read_version(), monotonic()
    is_same = version == seen
    if is_same and now < known.fresh_until:
        return b""
    shared = None if is_same else _fragments.get((known.hub, known.key, version))
    content = shared.content if shared and now < shared.until else b""
    if not is_same and (not content or (without_token and TOKEN.encode() in content)):
        return None
    if known.access is None or _access(known.session, known.user) != known.access:
        return None
    known.fresh_until = now + SECONDS
    return content


class LiveApplication:
    """Answers polls ahead of Django, whose requests, signals and middleware cost more than the version."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        started, computed = perf_counter(), thread_time()
        poll, seen = _poll_of(environ, environ.get("SCRIPT_NAME", "") + environ["PATH_INFO"])
        known, content = _known.get(poll), None
        if known and environ["REQUEST_METHOD"] == "GET" and "HTTP_HX_REQUEST" in environ:
            with suppress(Exception), in_hub(known.hub):  # Django meets the fault again, and responds
                content = _answer(known, seen, without_token=True)
        if known is None or content is None:
            return self._application(environ, start_response)
        status = HTTPStatus.OK if content else HTTPStatus.NO_CONTENT
        count_request("GET", "", status, started, computed)
        own = {"Content-Length": str(len(content)), HEADER: secrets.token_hex(4)}
        start_response(f"{status} {status.phrase}", list((known.headers | own).items()))
        return [content]


class LiveMiddleware(Middleware):
    """Answers polls instead of their view, which is called at least once a minute.

    It comes before all other middleware that a poll does not need, so that it has the headers of a response.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        self._read_token = CsrfViewMiddleware(get_response).process_request

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer from the cache, or call the view and keep what it says."""
        session = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        if request.method != "GET" or not session or "HX-Request" not in request.headers:
            return self._get_response(request)
        poll, seen = _poll_of(request.META, request.path)
        known, access = _known.get(poll), None
        if known:
            with in_hub(known.hub):
                content = _answer(known, seen)
                if content is not None and (answer := self._response(request, known, content)):
                    return answer
                # Ahead of the view, so that what changes while it runs is noticed next time.
                access = _access(session, known.user)
        response = self._get_response(request)
        if isinstance(response, NotModified | SharedFragment):
            if len(_known) >= _MOST:
                _known.clear()
            key = response.key if isinstance(response, SharedFragment) else known.key if known else None
            of = (response.hub, session, response.read_version, request.user.pk or 0, access)
            now = monotonic()
            _known[poll] = _Known(*of, now + SECONDS, now + LONGEST, key, dict(response.headers))
        return response

    def _response(self, request: HttpRequest, known: _Known, content: bytes) -> HttpResponse | None:
        self._read_token(request)
        if TOKEN.encode() in content and "CSRF_COOKIE" not in request.META:
            return None
        content = _with_token(content, request)
        headers = known.headers | {"Content-Length": str(len(content))}
        return HttpResponse(content, status=200 if content else 204, headers=headers)


class _Shared:
    """A fragment that is being written, or is written until some moment."""

    def __init__(self) -> None:
        self.lock, self.until, self.content = Lock(), 0.0, b""


_fragments: dict[Hashable, _Shared] = {}


def _with_token(content: bytes, request: HttpRequest) -> bytes:
    mark = TOKEN.encode()
    return content.replace(mark, get_token(request).encode()) if mark in content else content


def shared_fragment(
    request: HttpRequest,
    key: Hashable,
    version: str,
    make: Callable[[], HttpResponse],
    *,
    read_version: ReadVersion | None = None,
) -> HttpResponse:
    """Return the response of `make` for this hub, key and version, at most two seconds old.

    It gets the token of the session. With `read_version`, which returns the version now, equal requests of
    the session get later fragments of this key without the view.
    """
    if len(_fragments) >= _FRAGMENT_MOST:
        _fragments.clear()
    one = _fragments.setdefault((current_hub_id(), key, version), _Shared())
    with one.lock:
        if monotonic() >= one.until:
            one.content, one.until = make().content, monotonic() + FRAGMENT_SECONDS
        content = one.content
    content = _with_token(content, request)
    return SharedFragment(content, key, read_version) if read_version else HttpResponse(content)


def clear_caches() -> None:
    """Forget every response, for tests."""
    _known.clear()
    _fragments.clear()
