"""Metrics of the requests to the console, in the form of Prometheus.

Several web processes share them through files in one folder, which `manage.py up` names by
PROMETHEUS_MULTIPROC_DIR; without it they are those of this process.
"""

import os
from pathlib import Path
from time import perf_counter, thread_time

from django.http import HttpRequest, HttpResponse
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.multiprocess import MultiProcessCollector

from fleetui.middleware import METHODS, Middleware

FOLDER = "PROMETHEUS_MULTIPROC_DIR"
disable_created_metrics()  # twice the series, for nothing
REQUESTS = Counter(
    "fleetui_http_requests", "Requests by method, name of the view and status.", ("method", "view", "status")
)
SECONDS = Histogram(
    "fleetui_http_request_seconds",
    "Time to the response, by method and name of the view.",
    ("method", "view"),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
CPU_SECONDS = Histogram(
    "fleetui_http_request_cpu_seconds",
    "Seconds of a processor that a request took, by method and name of the view.",
    ("method", "view"),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5),
)


class HttpMetricsMiddleware(Middleware):
    """Counts requests; a view has its URL name, so that the number of series is bounded."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        started, computed = perf_counter(), thread_time()
        response = self._get_response(request)
        match = request.resolver_match
        method = request.method if request.method in METHODS else "other"
        view = (match.view_name or match.route) if match else ""
        count_request(method, view, response.status_code, started, computed)
        return response


def count_request(method: str, view: str, status: int, started: float, computed: float) -> None:
    """Count a request with this response, since these values of `perf_counter` and `thread_time`."""
    REQUESTS.labels(method, view, str(status)).inc()
    SECONDS.labels(method, view).observe(perf_counter() - started)
    CPU_SECONDS.labels(method, view).observe(thread_time() - computed)


def shared_metrics(folder: Path) -> dict[str, str]:
    """Empty the folder in which web processes share their metrics; return the environment that names it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in folder.glob("*.db"):
        file.unlink()
    return {FOLDER: str(folder)}


def http_registry() -> CollectorRegistry:
    """Return the registry of what was counted, of all web processes where they share it."""
    if FOLDER not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return registry
