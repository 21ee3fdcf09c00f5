"""The response to an internal error: a request id, and nothing that could fail again."""

import sys
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from fleetui.environment import environment_problem
from fleetui.middleware import request_id
from placements.web.layout import preference_of


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the page or problem document for status 500 or 503, without a query.

    503 is for errors of the environment, such as a stopped database.
    """
    found, cause = request_id(request), environment_problem(sys.exception())
    status = HTTPStatus.SERVICE_UNAVAILABLE if cause else HTTPStatus.INTERNAL_SERVER_ERROR
    headers = {"Retry-After": str(cause.retry_after)} if cause else {}
    if request.path.startswith("/api/"):
        problem = {
            "type": f"urn:fleetui:problem:{cause.code}" if cause else "about:blank",
            "title": status.phrase,
            "status": status,
            "detail": str(cause) if cause else f"Internal error; see the log for request {found}.",
        }
        content_type = "application/problem+json"
        return JsonResponse(problem, status=status, content_type=content_type, headers=headers)
    context = {
        "request_id": found,
        "path": request.get_full_path(),
        "theme": preference_of(request, "theme"),
        "cause": cause,
    }
    return HttpResponse(render_to_string("500.html", context), status=status, headers=headers)
