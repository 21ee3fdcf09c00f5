"""Responses to errors that no view has, such as records that cannot be read."""

import re
import sys
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.deprecation import MiddlewareMixin
from django.views import defaults

from fleetui.environment import environment_problem, note_problem
from fleetui.middleware import request_id
from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.engine.scheduling.record import UnreadableRecordError
from placements.web.layout import preference_of

_PROBLEM_TYPE = "application/problem+json"
_API_OF_HUB = re.compile(r"/hubs/[^/]+/api/")


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Return the page for status 404, or the problem document for the API of an unknown hub.

    It is the same for a hub of which the user is to know nothing.
    """
    if not _API_OF_HUB.search(request.path):
        return defaults.page_not_found(request, exception)
    status = HTTPStatus.NOT_FOUND
    problem = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status,
        "detail": "Nothing found at this address.",
    }
    return JsonResponse(problem, status=status, content_type=_PROBLEM_TYPE)


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the page or problem document for status 500 or 503, with a request id and without a query.

    503 is for errors of the environment, such as a stopped database.
    """
    identifier, cause = request_id(request), environment_problem(sys.exception())
    if cause:
        note_problem(cause)
    status = (
        HTTPStatus.SERVICE_UNAVAILABLE if cause else HTTPStatus.INTERNAL_SERVER_ERROR
    )
    headers = {"Retry-After": str(cause.retry_after)} if cause else {}
    if request.path_info.startswith("/api/"):
        problem = {
            "type": f"urn:fleetui:problem:{cause.code}" if cause else "about:blank",
            "title": status.phrase,
            "status": status,
            "detail": str(cause)
            if cause
            else f"Internal error; see the log for request {identifier}.",
        }
        return JsonResponse(
            problem, status=status, content_type=_PROBLEM_TYPE, headers=headers
        )
    return HttpResponse(
        render_to_string(
            "500.html",
            {
                "request_id": identifier,
                "path": request.get_full_path(),
                "theme": preference_of(request, "theme"),
                "cause": cause,
            },
        ),
        status=status,
        headers=headers,
    )


GONE = 410


class UnreadableRecordMiddleware(MiddlewareMixin):
    """Responds with status 410 and the reason; the API has its own problem document for it."""

    def process_exception(
        self, request: HttpRequest, exception: Exception
    ) -> HttpResponse | None:
        """Return the page for an unreadable record; None leaves other errors to Django."""
        if not isinstance(exception, UnreadableRecordError):
            return None
        return render(
            request,
            "decisions/unreadable.html",
            {"reason": str(exception), "engine": ENGINE_VERSION},
            status=GONE,
        )
