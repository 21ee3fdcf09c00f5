"""Middleware: request ids, the Content-Security-Policy, and the check of request paths."""

import logging
import secrets
from collections.abc import Callable, Iterable

from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse

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
