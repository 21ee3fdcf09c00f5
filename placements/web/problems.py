"""What a person has changed may end a problem, or be one."""

from http import HTTPStatus

from django.http import HttpRequest, HttpResponse

from fleetui.hub_scope import current_hub_id
from fleetui.middleware import Middleware
from placements.services.problems.book import outdate

_READING = ("GET", "HEAD", "OPTIONS")


class ProblemsMiddleware(Middleware):
    """Has the problems of the hub compared again after each request that may have changed something."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer, and leave the hint."""
        response = self._get_response(request)
        if request.method not in _READING and response.status_code < HTTPStatus.BAD_REQUEST:
            outdate(current_hub_id())
        return response
