"""Middleware: request ids, headers, the limits of sessions, and the check of request paths."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import SESSION_KEY, logout
from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect

HEADER = "X-Request-ID"


class RequestIdMiddleware:
    """Sets the id of the request and its response header."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.fleetui_id = secrets.token_hex(4)  # type: ignore[attr-defined]  # read by request_id below
        response = self._get_response(request)
        response.headers[HEADER] = request_id(request)
        return response


def request_id(request: object) -> str:
    """Return the id of a request; empty for one that never came through the middleware."""
    return str(getattr(request, "fleetui_id", ""))


class RequestIdFilter(logging.Filter):
    """Appends the id of the request, its user and its address to its log messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Write them into the record; nothing is held back."""
        request = getattr(record, "request", None)
        found = request_id(request)
        # Only a user who was read already: the database may be the reason for the message.
        user = getattr(request, "_cached_user", None)
        name = user.get_username() if user is not None and user.is_authenticated else "-"
        address = getattr(request, "META", {}).get("REMOTE_ADDR", "-")
        record.request_id = f" [request {found}, user {name}, address {address}]" if found else ""
        return True


_CLIENT_ERRORS = range(400, 500)


class RefusedRequestFilter(logging.Filter):
    """Leaves one line of a request that was refused: a traceback of our own code says nothing about it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the traceback; nothing is held back."""
        is_refused = getattr(record, "status_code", 0) in _CLIENT_ERRORS
        if is_refused or record.name.startswith("django.security"):
            record.exc_info = record.exc_text = None
        return True


class NoStoreMiddleware:
    """Keeps pages and REST responses out of the caches of browsers and proxies, unless a view says otherwise.

    Conditional requests work as before: their tags are compared here.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


STARTED, ACTIVE, SECOND_FACTOR_DUE = "session_started", "session_active", "second_factor_due"
POLL = "FleetUI-Poll"
"""The header of requests that a timer sent and no person."""
_STEP = 60
"""The time of the last activity is written once a minute: a write for every page would be too much."""
_WITHOUT_FACTOR = ("/account/", "/login/", "/logout/", "/theme/", "/rows/", "/keys/", "/help/")


def start_session(sender: object, request: HttpRequest | None, **_signal: object) -> None:  # noqa: ARG001
    """Write down when a session starts; a login by token has none."""
    session = getattr(request, "session", None)
    if session is not None and SESSION_KEY in session:
        session[STARTED] = session[ACTIVE] = int(time.time())


class SessionLimitsMiddleware:
    """Ends sessions after inactivity and after their longest time, and those without a required factor."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        if settings.SESSION_COOKIE_NAME not in request.COOKIES or SESSION_KEY not in session:
            return self._get_response(request)
        now, active = int(time.time()), session.get(ACTIVE, 0)
        if now - session.get(STARTED, 0) >= settings.SESSION_LONGEST.total_seconds():
            return self._end(request, "The session reached its longest time. Log in again.")
        if now - active >= settings.SESSION_IDLE.total_seconds():
            return self._end(request, "The session ended after inactivity. Log in again.")
        if now - active >= _STEP and POLL not in request.headers:
            session[ACTIVE] = now
        if SECOND_FACTOR_DUE in session and not request.path_info.startswith(_WITHOUT_FACTOR):
            return _demand_second_factor(request)
        return self._get_response(request)

    def _end(self, request: HttpRequest, message: str) -> HttpResponse:
        logout(request)
        if not request.path_info.startswith("/api/"):
            messages.info(request, message)
        return self._get_response(request)


def _demand_second_factor(request: HttpRequest) -> HttpResponse:
    if not request.path_info.startswith("/api/"):
        return redirect("mfa_index")
    problem = {
        "type": "urn:fleetui:problem:second-factor-required",
        "title": "Forbidden",
        "status": 403,
        "detail": "Your role requires a second factor: add one on the page of the account.",
    }
    return JsonResponse(problem, status=403, content_type="application/problem+json")


_HEADER = "Content-Security-Policy"

# Charts create an empty style sheet and add rules: the hash is that of an empty text.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
_COMMON = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": f"'self' {_EMPTY_STYLE}",
    "style-src-attr": "'unsafe-inline'",
    "img-src": "'self' data:",
    "frame-ancestors": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
}
# Lists without actions have a style sheet of their own inside the page.
_ADMIN = _COMMON | {"style-src": "'self' 'unsafe-inline'"}
# A script fills the page of the API documentation with inline styles.
_DOCS = _ADMIN


def _written(policy: dict[str, str]) -> str:
    return "; ".join(f"{name} {sources}" for name, sources in policy.items())


# The first matching prefix counts.
_POLICIES = (("/api/docs", _written(_DOCS)), ("/admin/", _written(_ADMIN)), ("/", _written(_COMMON)))


class ContentSecurityPolicyMiddleware:
    """Adds the policy of the address, unless the view brought one of its own."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        policy = next(policy for start, policy in _POLICIES if request.path_info.startswith(start))
        response.headers.setdefault(_HEADER, policy)
        return response


class NoNullsMiddleware:
    """Rejects page addresses with a NUL character, which PostgreSQL cannot compare.

    The REST API and the admin have their own responses.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Return the response. Raises SuspiciousOperation: status 400."""
        is_page = not request.path_info.startswith(("/api/", "/admin/"))
        if is_page and "%00" in request.META.get("QUERY_STRING", ""):
            raise SuspiciousOperation("the address holds a NUL character")
        return self._get_response(request)


def https_origins(hosts: Iterable[str]) -> list[str]:
    return [f"https://{'*' if host.startswith('.') else ''}{host}" for host in hosts if host != "*"]
