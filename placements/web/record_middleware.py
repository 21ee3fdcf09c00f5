"""The response for a page that needs a record which this engine cannot read."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.engine.scheduling.record import UnreadableRecordError

GONE = 410


class UnreadableRecordMiddleware:
    """Responds with status 410 and the reason; the API has its own problem document for it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Return the page for an unreadable record; None leaves other errors to Django."""
        if not isinstance(exception, UnreadableRecordError):
            return None
        context = {"reason": str(exception), "engine": ENGINE_VERSION}
        return render(request, "decisions/unreadable.html", context, status=GONE)
