"""The response for a page that needs a record which this engine cannot read."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.deprecation import MiddlewareMixin

from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.engine.scheduling.record import UnreadableRecordError

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
