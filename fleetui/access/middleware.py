"""Middleware: the request of this thread, and a line in the access log for every refused one."""

import logging
from collections.abc import Callable
from http import HTTPStatus

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse

from fleetui.access.audit import current_request, record_refusal

log = logging.getLogger(__name__)


class AccessMiddleware:
    """Keeps the request for lines of the access log, and records responses with the status 403."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = current_request.set(request)
        try:
            response = self._get_response(request)
            if response.status_code == HTTPStatus.FORBIDDEN:
                self._record(request)
        finally:
            current_request.reset(token)
        return response

    def _record(self, request: HttpRequest) -> None:
        try:
            record_refusal(request)
        except DatabaseError as error:  # the refusal stands; the response must not depend on the log
            log.error("refusal not recorded: %s", error, extra={"request": request})
