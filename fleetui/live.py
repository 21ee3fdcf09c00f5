"""Cheap responses to live pages: 204 when nothing changed, and fragments that all viewers share.

For a minute after a view has answered a poll, the middleware answers equal polls of the session. Of a version
that the page has already it reads the version only, and each ten seconds, as for a newer version, whether the
session, the user and the grants are as the view checked them; if they are not, the view answers. A user who
lost a role learns meanwhile only that nothing changed.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from time import monotonic
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.middleware.csrf import CsrfViewMiddleware, get_token
from django.utils.crypto import get_random_string

from fleetui.hub_scope import current_hub_id
from fleetui.middleware import Middleware
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
        self.key, self.read_version = key, read_version


@dataclass(slots=True)
class _Known:
    """What a session polls, and what the view checked before it answered."""

    read_version: ReadVersion
    user: int
    access: Hashable
    fresh_until: float
    ends: float
    key: Hashable
    headers: dict[str, str]


_known: dict[Hashable, _Known] = {}


def _write_access() -> QuerySet[Session, Any]:
    user = User.objects.filter(pk=ANYBODY)
    columns = {name: Subquery(user.values(name)) for name in ("password", "is_active", "is_superuser")}
    sessions = Session.objects.filter(session_key=PARAMETER)
    return sessions.annotate(**columns).values_list("session_data", *columns)


_access_query = PreparedQuery(_write_access)


def _access(session: str, user: int) -> Hashable:
    """Return all that decides what a session may see; None once it has ended."""
    rows = _access_query.rows({PARAMETER: session, ANYBODY: user})
    return (*rows[0], *grant_rows(user)) if rows else None


class LiveMiddleware(Middleware):
    """Answers polls instead of their view, which is called at least once a minute."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        self._read_token = CsrfViewMiddleware(get_response).process_request

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer from the cache, or call the view and keep what it says."""
        session = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        if request.method != "GET" or not session or "HX-Request" not in request.headers:
            return self._get_response(request)
        query = tuple((name, *values) for name, values in request.GET.lists() if name != "v")
        poll = current_hub_id(), session, request.path, query
        known = _known.get(poll)
        if known and monotonic() < known.ends and (answer := self._answer(request, session, known)):
            return answer
        # Ahead of the view, so that what changes while it runs is noticed next time.
        access = _access(session, known.user) if known else None
        response = self._get_response(request)
        if isinstance(response, NotModified | SharedFragment):
            if len(_known) >= _MOST:
                _known.clear()
            key, headers = (known.key, known.headers) if known else (None, {})
            if isinstance(response, SharedFragment):
                key, headers = response.key, dict(response.headers)
            user, now = request.user.pk or 0, monotonic()
            until, ends = now + SECONDS, now + LONGEST
            _known[poll] = _Known(response.read_version, user, access, until, ends, key, headers)
        return response

    def _answer(self, request: HttpRequest, session: str, known: _Known) -> HttpResponse | None:
        version, now = known.read_version(), monotonic()
        is_same = version == request.GET.get("v")
        if is_same and now < known.fresh_until:
            return HttpResponse(status=204)
        shared = None if is_same else _fragments.get((current_hub_id(), known.key, version))
        content = shared.content if shared and now < shared.until else None
        if not is_same and content is None:
            return None
        if known.access is None or _access(session, known.user) != known.access:
            return None
        known.fresh_until = now + SECONDS
        if content is None:
            return HttpResponse(status=204)
        self._read_token(request)
        if TOKEN.encode() in content and "CSRF_COOKIE" not in request.META:
            return None
        content = _with_token(content, request)
        return HttpResponse(content, headers={**known.headers, "Content-Length": str(len(content))})


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
