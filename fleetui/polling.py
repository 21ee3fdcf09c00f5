"""Pages that poll: 204 while the version of the hub is the same, and fragments that all viewers share.

A fragment names the version it was rendered for in the parameter `v`. Views are `polled`; for a minute after
one has answered a poll, the middleware answers equal polls of the session. Each ten seconds it looks whether
the session, the account, its groups and what these are granted are as the view checked them, and except for
the last also whenever it has a fragment to give; if they are not, the view answers. A user who left a group
learns meanwhile only that nothing changed.
"""

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import wraps
from threading import Lock
from time import monotonic
from typing import Any
from urllib.parse import unquote_plus

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.middleware.csrf import CsrfViewMiddleware, get_token
from django.utils.crypto import get_random_string

from fleetui.accounts.second_factor import lacks_second_factor
from fleetui.changes import hub_version
from fleetui.htmx import wants_fragment
from fleetui.hub_scope import current_hub_id
from fleetui.middleware import Middleware
from fleetui.permissions import grant_rows

SECONDS = 10.0
"""How long a 204 is given without a look at the session."""
LONGEST = 60.0
"""How long the view is not called: the precision of the limits of a session."""
FRAGMENT_SECONDS = 1.0
"""How long a fragment is shared, whatever changes meanwhile."""
_MOST, _FRAGMENT_MOST = 5000, 200
TOKEN = get_random_string(64)
"""The placeholder of the token of its forms in a shared fragment."""
_VERSION = re.compile(r"(?:^|&)v=([^&]*)")


class Answered(HttpResponse):
    """What the middleware may answer instead of the view: 204, or the fragment with this key."""

    def __init__(self, content: bytes = b"", *, key: Hashable = None) -> None:
        super().__init__(content, status=200 if content else 204)
        self.key = key


def polled(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Answer 204 to a page that has the version of the hub."""

    @wraps(view)
    def answered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        is_read = request.method != "POST" and wants_fragment(request)
        if is_read and request.GET.get("v") == hub_version():
            return Answered()
        return view(request, *args, **kwargs)

    return answered


@dataclass(slots=True)
class _Known:
    """What a session polls, and what the view checked before it answered."""

    user: int
    identity: Hashable
    grants: Hashable
    key: Hashable
    fresh_until: float
    ends: float
    headers: dict[str, str]


class _Shared:
    """A fragment that is being written, or is shared until some moment."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.until = 0.0
        self.version = ""
        self.content = b""

    def newer_than(self, seen: str) -> bytes | None:
        """Return the content while it is shared, empty for a page that has it; None if it has expired."""
        if monotonic() >= self.until or _place(self.version) < _place(seen):
            return None
        return b"" if self.version == seen else self.content

    def for_poll(self, seen: str) -> bytes | None:
        """Return the same, and empty while it is being written: the next poll gets it."""
        content = self.newer_than(seen)
        return b"" if content is None and self.lock.locked() else content


def _place(version: str) -> tuple[int, ...]:
    """Return the order of a version; a page that names none comes first."""
    return tuple(map(int, re.findall(r"\d+", version)))


_known: dict[Hashable, _Known] = {}
_fragments: dict[Hashable, _Shared] = {}


def shared_fragment(
    request: Any, key: Hashable, make: Callable[[], HttpResponseBase]
) -> HttpResponse:
    """Return what `make` renders for all with this key: newer than the page, and at most a second old.

    It gets the token of the session.
    """
    if len(_fragments) >= _FRAGMENT_MOST:
        _fragments.clear()
    shared = _fragments.setdefault((current_hub_id(), key), _Shared())
    with shared.lock:
        content = shared.newer_than(request.GET.get("v", ""))
        if content is None:
            response: Any = make()
            content = response.content
            shared.content = content
            shared.version = request.version
            shared.until = monotonic() + FRAGMENT_SECONDS
    return Answered(_with_token(content, request), key=key)


def _with_token(content: bytes, request: HttpRequest) -> bytes:
    mark = TOKEN.encode()
    return (
        content.replace(mark, get_token(request).encode())
        if mark in content
        else content
    )


# Written out: every shared fragment takes it, and Django needs five times as long to write it.
_WHO_POLLS = """
SELECT session_data, password, is_active, is_superuser, group_id
FROM django_session, auth_user LEFT JOIN auth_user_groups ON user_id = auth_user.id
WHERE session_key = %s AND auth_user.id = %s
ORDER BY group_id
"""


def _identity(session: str, user: int) -> Hashable:
    """Return who polls: the content of the session, the account and its groups; None without them."""
    with connection.cursor() as cursor:
        cursor.execute(_WHO_POLLS, [session, user])
        return tuple(cursor.fetchall()) or None


def _grants(user: int) -> Hashable:
    """Return what the groups of a user may do, and whether the user has to set up a second factor first."""
    owners = User.objects.filter(pk=user) if settings.SECOND_FACTOR_ROLES else ()
    return tuple(grant_rows(user)), any(map(lacks_second_factor, owners))


class PollingMiddleware(Middleware):
    """Answers polls instead of their view, which is called at least once a minute.

    It comes before all that costs more than the version: sessions, users and forms.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        self._read_token = CsrfViewMiddleware(get_response).process_request

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer from the cache, or call the view and keep what it says."""
        session = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
        if (
            request.method != "GET"
            or not session
            or "HX-Request" not in request.headers
            or "HX-Boosted" in request.headers
        ):
            return self._get_response(request)
        query = request.META.get("QUERY_STRING", "")
        poll = session, request.path, _VERSION.sub("", query)
        known, identity, grants = _known.get(poll), None, None
        if known:
            if answer := self._answer(request, known, session, query):
                return answer
            # Ahead of the view, so that what changes while it runs is noticed next time.
            identity, grants = _identity(session, known.user), _grants(known.user)
        response = self._get_response(request)
        if isinstance(response, Answered):
            if len(_known) >= _MOST:
                _known.clear()
            key = known.key if known and response.key is None else response.key
            now, user = monotonic(), request.user.pk or 0
            checked = (user, identity, grants, key)
            _known[poll] = _Known(
                *checked, now + SECONDS, now + LONGEST, dict(response.headers)
            )
        return response

    def _answer(
        self,
        request: HttpRequest,
        known: _Known,
        session: str,
        query: str,
    ) -> HttpResponse | None:
        """Return 204, or a fragment that is shared now; None if the view responds."""
        now = monotonic()
        if now >= known.ends:
            return None
        named = _VERSION.search(query)
        seen = unquote_plus(named[1]) if named else ""
        content: bytes | None = b""
        if seen != hub_version():
            shared = _fragments.get((current_hub_id(), known.key))
            content = shared.for_poll(seen) if shared else None
        if content is None:
            return None
        is_stale = now >= known.fresh_until
        if content or is_stale:
            identity = _identity(session, known.user)
            if identity is None or identity != known.identity:
                return None
        if is_stale:
            if _grants(known.user) != known.grants:
                return None
            known.fresh_until = now + SECONDS
        if TOKEN.encode() in content:
            self._read_token(request)
            if "CSRF_COOKIE" not in request.META:
                return None
            content = _with_token(content, request)
        headers = known.headers | {"Content-Length": str(len(content))}
        return HttpResponse(content, status=200 if content else 204, headers=headers)
