"""`/metrics`, for Prometheus: the fleets of all hubs, the work that is due, and the requests."""

from datetime import UTC, datetime

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import constant_time_compare
from django.views.decorators.http import require_safe
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from fleetui.monitoring import http_registry
from placements.services.metrics import metrics_registry


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Respond with all metrics; they name all hubs, so roles of single hubs are not enough to read them."""
    sent, token = (
        request.headers.get("Authorization", "").removeprefix("Bearer "),
        settings.METRICS_TOKEN,
    )
    if not request.user.is_superuser and not (
        token and constant_time_compare(sent, str(token))
    ):
        text = (
            "Send FLEETUI_METRICS_TOKEN as a bearer token, or sign in as a superuser.\n"
        )
        challenge = {"WWW-Authenticate": 'Bearer realm="metrics"'}
        return HttpResponse(
            text, status=401, content_type="text/plain", headers=challenge
        )
    fleet = generate_latest(metrics_registry(now=datetime.now(UTC)))
    response = HttpResponse(
        fleet + generate_latest(http_registry()), content_type=CONTENT_TYPE_LATEST
    )
    response.headers["Cache-Control"] = "no-store"
    return response
