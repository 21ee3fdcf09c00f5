"""What a browser may do with our pages, as the Content-Security-Policy says, and what it may not ask."""

from collections.abc import Callable, Iterable

from django.core.exceptions import SuspiciousOperation
from django.http import HttpRequest, HttpResponse

_HEADER = "Content-Security-Policy"

# Charts make one empty style sheet and fill it by rules: its hash is that of nothing.
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
# The page of the API's documentation is filled by a script of ours with styles that stand in it.
_DOCS = _ADMIN


def _written(policy: dict[str, str]) -> str:
    return "; ".join(f"{name} {sources}" for name, sources in policy.items())


# The first that the address begins with counts.
_POLICIES = (("/api/docs", _written(_DOCS)), ("/admin/", _written(_ADMIN)), ("/", _written(_COMMON)))


class ContentSecurityPolicyMiddleware:
    """Adds the policy of the address, unless the view brought one of its own."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, and say what may be done with the answer."""
        response = self._get_response(request)
        policy = next(policy for start, policy in _POLICIES if request.path_info.startswith(start))
        response.headers.setdefault(_HEADER, policy)
        return response


class NoNullsMiddleware:
    """Refuses addresses of pages that ask with a NUL character: PostgreSQL can look for none.

    The REST API and the admin have an answer of their own.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer. Raises SuspiciousOperation, which is answered as a bad request."""
        is_page = not request.path_info.startswith(("/api/", "/admin/"))
        if is_page and "%00" in request.META.get("QUERY_STRING", ""):
            raise SuspiciousOperation("the address holds a NUL character")
        return self._get_response(request)


def https_origins(hosts: Iterable[str]) -> list[str]:
    """Name the origins from which forms may come when a proxy speaks HTTPS for these hosts."""
    return [f"https://{'*' if host.startswith('.') else ''}{host}" for host in hosts if host != "*"]
