"""What is answered where a page needs a record that this engine cannot read."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from placements.scheduling.storage import UnreadableRecordError
from placements.scheduling.version import ENGINE_VERSION

GONE = 410


class UnreadableRecordMiddleware:
    """Tells why a decision cannot be shown, wherever a page met one; the API has its own words for it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer as the view does."""
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Give the page for a record that cannot be read; other errors go their way."""
        if not isinstance(exception, UnreadableRecordError):
            return None
        context = {"reason": str(exception), "engine": ENGINE_VERSION}
        return render(request, "decisions/unreadable.html", context, status=GONE)
