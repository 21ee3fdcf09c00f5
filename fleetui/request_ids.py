"""A short id for each request: on the page that says something went wrong, and on the line of the log."""

import logging
import secrets
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

HEADER = "X-Request-ID"


class RequestIdMiddleware:
    """Gives the request its id, and says it in the answer."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, with the id in a header."""
        request.fleetui_id = secrets.token_hex(4)  # type: ignore[attr-defined]  # read by request_id below
        response = self._get_response(request)
        response.headers[HEADER] = request_id(request)
        return response


def request_id(request: object) -> str:
    """Give the id of a request; empty for one that never came through the middleware."""
    return str(getattr(request, "fleetui_id", ""))


class RequestIdFilter(logging.Filter):
    """Puts the id of the request, where there is one, at the end of what is logged about it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Write the id into the record; nothing is held back."""
        found = request_id(getattr(record, "request", None))
        record.request_id = f" [request {found}]" if found else ""
        return True
