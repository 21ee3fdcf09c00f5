"""Middleware: request ids, headers, limits of sessions, the check of request paths, and budgets of requests.

The seconds of a user are a bucket that fills up again within two minutes: many quick previews pass, and a few
long simulations do not. A limit of requests would stop the editor first.

Buckets are kept by process, and not in the cache that processes share. What one user must not do is keep a
process from others, and a process computes on one processor at a time: its bucket bounds that, however many
processes there are. A shared bucket would be written twice by each preview, which is each keystroke in the
editor, next to the workers that write the database. Together N processes spend N buckets on a user, each at
most half of its time at the default.
"""

import logging
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from http import HTTPStatus
from math import ceil
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import SESSION_KEY, logout
from django.core.exceptions import (
    ObjectDoesNotExist,
    PermissionDenied,
    SuspiciousOperation,
)
from django.db import DatabaseError, connection
from django.http import (
    Http404,
    HttpRequest,
    HttpResponse,
    HttpResponseBase,
    HttpResponseNotAllowed,
    JsonResponse,
)
from django.shortcuts import render
from django.template.response import SimpleTemplateResponse
from django.utils.module_loading import import_string

from fleetui.apimachinery.effort import EffortBounds, bounded_effort
from fleetui.apimachinery.yaml import LARGEST_UPLOAD, MEBIBYTE
from fleetui.changes import noticed_changes
from fleetui.errors import FleetError

log = logging.getLogger(__name__)

HEADER = "X-Request-ID"


current_request: ContextVar[HttpRequest | None] = ContextVar("request", default=None)
"""The request of this thread; None for a worker or a command."""


class Middleware:
    """Keeps what comes after it. Not Django's mixin, which expects a middleware to work with ASGI as well."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)


class RequestIdMiddleware(Middleware):
    """Sets the id of the request and its response header; refused requests are recorded.

    This module is loaded before any model, so that what records them is a setting.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        super().__init__(get_response)
        self._record_refusal = import_string(settings.REFUSAL_RECORDER)

    def __call__(self, request: HttpRequest) -> HttpResponse:
        request.fleetui_id = secrets.token_hex(4)  # type: ignore[attr-defined]  # read by request_id below
        token = current_request.set(request)
        try:
            response = self._get_response(request)
            if response.status_code == HTTPStatus.FORBIDDEN:
                try:
                    self._record_refusal(request)
                except DatabaseError as error:  # the response does not depend on it
                    log.error(
                        "refusal not recorded: %s", error, extra={"request": request}
                    )
        finally:
            current_request.reset(token)
        response.headers[HEADER] = request_id(request)
        return response


def request_id(request: object) -> str:
    """Return the id of a request; empty for one that never came through the middleware."""
    return str(getattr(request, "fleetui_id", ""))


class RequestIdFilter(logging.Filter):
    """Appends the id of the request, its user and its address to its log messages."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        identifier = request_id(request)
        # Only a user who was read already: the database may be the reason for the message.
        user = getattr(request, "_cached_user", None)
        name = (
            user.get_username() if user is not None and user.is_authenticated else "-"
        )
        address = getattr(request, "META", {}).get("REMOTE_ADDR", "-")
        record.request_id = (
            f" [request {identifier}, user {name}, address {address}]"
            if identifier
            else ""
        )
        return True


_CLIENT_ERRORS = range(400, 500)


class RefusedRequestFilter(logging.Filter):
    """Leaves one line of a request that was refused: a traceback of our own code says nothing about it."""

    def filter(self, record: logging.LogRecord) -> bool:
        is_refused = getattr(record, "status_code", 0) in _CLIENT_ERRORS
        if is_refused or record.name.startswith("django.security"):
            record.exc_info = record.exc_text = None
        return True


class NoStoreMiddleware(Middleware):
    """Keeps pages and REST responses out of the caches of browsers and proxies, unless a view says otherwise.

    Conditional requests work as before: their tags are compared here.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


class ReadAgainMiddleware(Middleware):
    """Reads a second time what failed because a row was deleted between two queries.

    Pages and REST read with several statements, each of which sees what was committed before it. Without the
    row, a list is shorter, and its own page is not found. What fails twice is a fault.
    """

    def process_exception(
        self, request: HttpRequest, error: Exception
    ) -> HttpResponseBase | None:
        match = request.resolver_match
        is_fault = isinstance(error, _ABSENCES) and not isinstance(error, FleetError)
        if match is None or request.method not in ("GET", "HEAD") or not is_fault:
            return None
        log.info(
            "read again: %s: %s",
            type(error).__name__,
            error,
            extra={"request": request},
        )
        response: HttpResponseBase = match.func(request, *match.args, **match.kwargs)
        if isinstance(response, SimpleTemplateResponse):
            response.render()
        return response


_ABSENCES = (AttributeError, LookupError, ObjectDoesNotExist, TypeError, ValueError)
"""What a row that is missing makes of code that has just read its key."""


STARTED, ACTIVE = "session_started", "session_active"
ADDRESS, BROWSER = "session_address", "session_browser"
_LONGEST_BROWSER = 200
POLL = "FleetUI-Poll"
"""The header of requests that a timer sent and no person."""
_STEP = 60
"""The time of the last activity is written once a minute: a write for every page would be too much."""


def start_session(
    sender: object,  # noqa: ARG001
    request: HttpRequest | None,
    **_signal: object,
) -> None:
    """Write down when and where a session starts; a login by token has none."""
    session = getattr(request, "session", None)
    if request is not None and session is not None and SESSION_KEY in session:
        session[STARTED] = session[ACTIVE] = int(time.time())
        session[ADDRESS] = request.META.get("REMOTE_ADDR", "")
        session[BROWSER] = request.META.get("HTTP_USER_AGENT", "")[:_LONGEST_BROWSER]


class SessionLimitsMiddleware(Middleware):
    """Ends sessions after inactivity and after their longest time."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        session = request.session
        if (
            settings.SESSION_COOKIE_NAME not in request.COOKIES
            or SESSION_KEY not in session
        ):
            return self._get_response(request)
        now, active = int(time.time()), session.get(ACTIVE, 0)
        if now - session.get(STARTED, 0) >= settings.SESSION_LONGEST.total_seconds():
            return self._end(
                request, "The session reached its longest time. Log in again."
            )
        if now - active >= settings.SESSION_IDLE.total_seconds():
            return self._end(
                request, "The session ended after inactivity. Log in again."
            )
        if now - active >= _STEP and POLL not in request.headers:
            session[ACTIVE], session[ADDRESS] = now, request.META.get("REMOTE_ADDR", "")
        return self._get_response(request)

    def _end(self, request: HttpRequest, message: str) -> HttpResponse:
        logout(request)
        if not request.path_info.startswith("/api/"):
            messages.info(request, message)
        return self._get_response(request)


# Charts create an empty style sheet and add rules: the hash is that of an empty text.
_EMPTY_STYLE = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
_COMMON = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": f"'self' {_EMPTY_STYLE}",
    "style-src-attr": "'unsafe-inline'",
    "img-src": "'self' data:",
    "object-src": "'none'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
}
# Lists without actions have a style sheet of their own inside the page.
_ADMIN = _COMMON | {"style-src": "'self' 'unsafe-inline'"}
# A script fills the page of the API documentation with inline styles.
_DOCS = _ADMIN


def _written(policy: dict[str, str]) -> str:
    return "; ".join(f"{name} {sources}" for name, sources in policy.items())


# The first matching prefix counts.
_POLICIES = (
    ("/api/docs", _written(_DOCS)),
    ("/admin/", _written(_ADMIN)),
    ("/", _written(_COMMON)),
)


class ContentSecurityPolicyMiddleware(Middleware):
    """Adds the policy of the address, unless the view brought one of its own."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self._get_response(request)
        policy = next(
            policy for start, policy in _POLICIES if request.path_info.startswith(start)
        )
        response.headers.setdefault("Content-Security-Policy", policy)
        return response


class NoNullsMiddleware(Middleware):
    """Rejects addresses of pages and the admin with a NUL character, which PostgreSQL cannot compare.

    The REST API has its own response.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Return the response. Raises SuspiciousOperation: status 400."""
        is_page = not request.path_info.startswith("/api/")
        if is_page and "%00" in request.META.get("QUERY_STRING", ""):
            raise SuspiciousOperation("the address holds a NUL character")
        return self._get_response(request)


METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REST = re.compile(r"(/hubs/[^/]+)?/api/v\d")


class TransportMiddleware(Middleware):
    """Refuses methods that nothing serves, such as TRACE, and REST without HTTPS where HTTPS is required.

    Redirected, a REST client would send its token in clear text each time, and no one would notice.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        is_rest = _REST.match(request.path)
        if (
            request.method not in METHODS and not is_rest
        ):  # REST names the methods of each address itself
            return HttpResponseNotAllowed(sorted(METHODS))
        if settings.SECURE_SSL_REDIRECT and is_rest and not request.is_secure():
            return refusal(
                request,
                HTTPStatus.FORBIDDEN,
                "HTTPS is required. Replace the token if this request contained one.",
                "https-required",
            )
        return self._get_response(request)


def https_origins(hosts: Iterable[str]) -> list[str]:
    return [
        f"https://{'*' if host.startswith('.') else ''}{host}"
        for host in hosts
        if host != "*"
    ]


REFILL_SECONDS = 120.0
_DEPOSIT = 0.05
"""Seconds that are taken before it is known how many a request needs."""
_DEPOSIT_OF_MEBIBYTE = 0.25
_MOST_USERS = 10_000
MOST_COMPARISONS = 1_000_000_000
"""Of combinations of domains in one run of the scheduler: 2 to 10 seconds, by the scheduling rules."""
LARGE = MEBIBYTE
"""Bytes of a body from which on a request waits for one of a few places: parsed, they are many times more."""
LARGE_AT_ONCE = 2
LARGE_PATIENCE = 10.0
LARGEST_FORM = 3 * LARGEST_UPLOAD + MEBIBYTE
LARGEST_SMALL_FORM = MEBIBYTE
_LARGE_FORMS = (
    "placement-new",
    "placement-edit",
    "draft",
    "resource-apply",
    "resource-dry-run",
    "cluster-import",
    "cluster-new",
    "cluster-connection",
    "staged-strategy",
    "hub-new",
    "hub-credentials",
    "hub-write",
)
"""How the names of pages start whose forms have manifests, files or previews of them."""


class BudgetSpentError(FleetError):
    """A user has spent the seconds of a processor; `wait` seconds later there are some again."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    problem_type = "throttled"
    title = "Too many requests"
    wait: float

    def __init__(self, wait: float) -> None:
        super().__init__(
            f"Too much was computed for you lately; try again in {ceil(wait)} seconds."
        )
        self.wait = wait


class RequestTooLongError(FleetError):
    """A request took longer than its budget; what it changed is rolled back."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    problem_type = "too-long"
    title = "Ended"

    def __init__(self, seconds: float, unit: str = "seconds") -> None:
        super().__init__(
            f"The request took longer than {seconds:g} {unit} and was ended."
        )
        self.wait = REFILL_SECONDS / 4


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


_buckets: OrderedDict[object, _Bucket] = OrderedDict()
_lock = threading.Lock()
_large_places = threading.BoundedSemaphore(LARGE_AT_ONCE)


def reserve(user: object, *, body_bytes: int = 0, now: float | None = None) -> float:
    """Deduct a deposit from the seconds of a user, and return it. Raise BudgetSpentError."""
    capacity = float(settings.COMPUTE_SECONDS)
    now = time.monotonic() if now is None else now
    deposit = min(capacity, _DEPOSIT + body_bytes / MEBIBYTE * _DEPOSIT_OF_MEBIBYTE)
    with _lock:
        bucket = _filled(user, capacity, now)
        if bucket.left < deposit:
            raise BudgetSpentError((deposit - bucket.left) * REFILL_SECONDS / capacity)
        bucket.left -= deposit
    return deposit


def settle(
    user: object, *, deposit: float, used: float, now: float | None = None
) -> None:
    now = time.monotonic() if now is None else now
    with _lock:
        bucket = _filled(user, float(settings.COMPUTE_SECONDS), now)
        bucket.left += deposit - used


def _filled(user: object, capacity: float, now: float) -> _Bucket:
    bucket = _buckets.pop(user, None) or _Bucket(capacity, now)
    bucket.left = min(
        capacity, bucket.left + (now - bucket.at) * capacity / REFILL_SECONDS
    )
    bucket.at = now
    _buckets[user] = bucket
    if len(_buckets) > _MOST_USERS:
        _buckets.popitem(last=False)
    return bucket


def body_size(request: HttpRequest) -> int:
    text = str(request.META.get("CONTENT_LENGTH") or "")
    return int(text) if text.isdecimal() and len(text) < 15 else 0


def costly(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Charge a page to the seconds of its user. Raise BudgetSpentError with none left."""

    @wraps(view)
    def measured(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        user = request.user.pk
        deposit = reserve(user, body_bytes=body_size(request))
        started = time.thread_time()
        try:
            return view(request, *args, **kwargs)
        finally:
            settle(user, deposit=deposit, used=time.thread_time() - started)

    measured.is_costly = True  # type: ignore[attr-defined]  # what walks all addresses reads it
    return measured


class RefusalMiddleware(Middleware):
    """Responds to what a view refused and does not show itself; REST has its own responses."""

    def process_exception(
        self, request: HttpRequest, error: Exception
    ) -> HttpResponse | None:
        return show_refusal(request, error) if isinstance(error, FleetError) else None


def show_refusal(request: HttpRequest, error: FleetError) -> HttpResponse:
    """Return the page of a refusal. Raise Http404, PermissionDenied, which have pages of their own."""
    if error.status == HTTPStatus.NOT_FOUND:
        raise Http404(str(error)) from error
    if error.status == HTTPStatus.FORBIDDEN:
        raise PermissionDenied(str(error)) from error
    response = render(request, "refused.html", {"error": error}, status=error.status)
    if error.wait is not None:
        response.headers["Retry-After"] = str(ceil(error.wait))
    return response


class ChangesMiddleware(Middleware):
    """Moves the version of the hub that a request changes."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with noticed_changes():
            return self._get_response(request)


class RequestBudgetMiddleware(Middleware):
    """Refuses bodies that are too large before they are read, and ends requests that take too long.

    Ahead of the check of forms, which reads the body. The time is looked at before each query, and in the
    loops of the scheduler and of all that repeats it.
    """

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with ExitStack() as stack:
            if body_size(request) > LARGE:
                if not _large_places.acquire(timeout=LARGE_PATIENCE):
                    return refusal(
                        request,
                        HTTPStatus.SERVICE_UNAVAILABLE,
                        "Other large requests are running.",
                    )
                stack.callback(_large_places.release)
            stack.enter_context(_deadline(float(settings.REQUEST_SECONDS)))
            return self._get_response(request)

    def process_view(
        self, request: HttpRequest, view: Any, _arguments: Any, _named: Any
    ) -> HttpResponse | None:
        match = request.resolver_match
        if hasattr(view, "cls"):
            most = getattr(view.cls, "largest_body", LARGEST_UPLOAD)
        else:
            is_large = match is not None and (match.url_name or "").startswith(
                _LARGE_FORMS
            )
            most = LARGEST_FORM if is_large else LARGEST_SMALL_FORM
        if body_size(request) <= most:
            return None
        return refusal(
            request,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has more than {most} bytes",
            "too-large",
        )


@contextmanager
def _deadline(seconds: float) -> Iterator[None]:
    """Raise RequestTooLongError at the first query or round of the scheduler after so many seconds.

    Rounds also end after the seconds of a processor that a user has within two minutes.
    """
    until = time.monotonic() + seconds
    most_computed = float(settings.COMPUTE_SECONDS)
    computed_until = time.thread_time() + most_computed

    def check_time() -> None:
        if time.monotonic() > until:
            raise RequestTooLongError(seconds)
        if time.thread_time() > computed_until:
            raise RequestTooLongError(most_computed, "seconds of a processor")

    def check_query(
        execute: Any, sql: Any, params: Any, many: Any, context: Any
    ) -> Any:
        if time.monotonic() > until:
            raise RequestTooLongError(seconds)
        return execute(sql, params, many, context)

    with (
        connection.execute_wrapper(check_query),
        bounded_effort(EffortBounds(check_time, MOST_COMPARISONS)),
    ):
        yield


def refusal(
    request: HttpRequest, status: HTTPStatus, message: str, kind: str = ""
) -> HttpResponse:
    """Return a problem document for REST, and plain text otherwise."""
    headers = {"Retry-After": "2"} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    if "/api/" in request.path:
        problem = {
            "type": f"urn:fleetui:problem:{kind}" if kind else "about:blank",
            "title": status.phrase,
            "status": status,
            "detail": message,
        }
        return JsonResponse(
            problem,
            status=status,
            content_type="application/problem+json",
            headers=headers,
        )
    return HttpResponse(
        f"{message[:1].upper()}{message[1:]}",
        "text/plain",
        status=status,
        headers=headers,
    )
