"""Traces of requests and tasks: optional, with the extra `tracing` and FLEETUI_TRACES=1.

A request that has a `traceparent` continues that trace, and a task that of the request that sent it. Nothing
that a person wrote is in a span: names of views and tasks, methods and statuses only.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from django.http import HttpRequest, HttpResponse

from fleetui.env import SettingRefused
from fleetui.middleware import Middleware


class Tracing:
    """Records nothing; what records takes its place (`fleetui/otel.py`)."""

    @contextmanager
    def span(self, _name: str, *, kind: str, carrier: Mapping[str, str]) -> Iterator[Any]:  # noqa: ARG002
        """Record what happens inside of the block, in the trace of the carrier if it has one."""
        yield None

    def carrier(self) -> dict[str, str]:
        return {}

    def current(self) -> dict[str, str]:
        return {}


tracing = Tracing()


def use_tracing(implementation: Tracing) -> None:
    global tracing  # noqa: PLW0603  # one for each process
    tracing = implementation


def start_tracing() -> None:
    """Send spans as OpenTelemetry's variables say. Raise SettingRefused without its packages."""
    try:
        # Not imported above: without the extra there is no such library.
        implementation = import_module("fleetui.otel").OtelTracing()
    except ModuleNotFoundError as error:
        allowed = "it needs the packages of the extra: pip install fleetui[tracing]"
        raise SettingRefused("FLEETUI_TRACES", "1", allowed) from error
    use_tracing(implementation)


def current_carrier() -> dict[str, str]:
    return tracing.carrier()


def current_trace() -> dict[str, str]:
    return tracing.current()


class TracingMiddleware(Middleware):
    """Records each request under the name of its view, so that the number of names is bounded."""

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with tracing.span(str(request.method), kind="SERVER", carrier=request.headers) as span:
            # Django logs a refused request when all middleware has ended.
            request.fleetui_trace = tracing.current()  # type: ignore[attr-defined]
            response = self._get_response(request)
            if span is not None:
                match = request.resolver_match
                view = (match.view_name or match.route) if match else "none"
                span.finish(f"{request.method} {view}", view=view, status=response.status_code)
            return response
