"""What is answered when the console itself is at fault: an id to quote, and nothing that could fail again."""

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.template.loader import render_to_string

from fleetui.request_ids import request_id
from placements.views.preferences import preference_of


def server_error(request: HttpRequest) -> HttpResponse:
    """Say that something went wrong, without asking the database anything."""
    found = request_id(request)
    if request.path.startswith("/api/"):
        problem = {
            "type": "about:blank",
            "title": "Internal Server Error",
            "status": 500,
            "detail": f"Something went wrong here; the log says what, under request {found}.",
        }
        return JsonResponse(problem, status=500, content_type="application/problem+json")
    context = {"request_id": found, "path": request.get_full_path(), "theme": preference_of(request, "theme")}
    return HttpResponse(render_to_string("500.html", context), status=500)
