"""The response to an internal error: a request id, and nothing that could fail again."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from fleetui.middleware import request_id
from placements.web.layout import preference_of


def server_error(request: HttpRequest) -> HttpResponse:
    """Return the page or problem document for status 500, without a query."""
    found = request_id(request)
    if request.path.startswith("/api/"):
        problem = {
            "type": "about:blank",
            "title": "Internal Server Error",
            "status": 500,
            "detail": f"Internal error; see the log for request {found}.",
        }
        return JsonResponse(problem, status=500, content_type="application/problem+json")
    context = {"request_id": found, "path": request.get_full_path(), "theme": preference_of(request, "theme")}
    return HttpResponse(render_to_string("500.html", context), status=500)
