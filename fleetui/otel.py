"""Tracing by OpenTelemetry; only `fleetui.tracing` imports it, where the extra `tracing` is installed.

Exporter, name of the service and sampling are those of OpenTelemetry's own variables, OTEL_….
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, format_span_id, format_trace_id, get_current_span

from fleetui import __version__
from fleetui.tracing import Tracing

_SERVER_ERROR = 500


@dataclass(frozen=True, slots=True)
class RecordedSpan:
    """A span that is open."""

    span: Span

    def finish(self, name: str, *, view: str = "", status: int = 0) -> None:
        """Set the name of the span and the facts that are known at the end."""
        self.span.update_name(name)
        if view:
            self.span.set_attribute("http.route", view)
            self.span.set_attribute("http.response.status_code", status)
        if status >= _SERVER_ERROR:
            self.span.set_status(StatusCode.ERROR)


class OtelTracing(Tracing):
    """Records spans and sends them in the background."""

    def __init__(self, processor: SpanProcessor | None = None) -> None:
        # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
        named = Resource({"service.name": "fleetui", "service.version": __version__})
        provider = TracerProvider(resource=named.merge(Resource.create()))
        provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = provider.get_tracer("fleetui", __version__)

    @contextmanager
    def span(self, name: str, *, kind: str, carrier: Mapping[str, str]) -> Iterator[Any]:
        context = extract({key.lower(): value for key, value in carrier.items()})
        with self._tracer.start_as_current_span(name, context=context, kind=SpanKind[kind]) as span:
            yield RecordedSpan(span)

    def carrier(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        inject(headers)
        return headers

    def current(self) -> dict[str, str]:
        span = get_current_span().get_span_context()
        if not span.is_valid:
            return {}
        return {"trace": format_trace_id(span.trace_id), "span": format_span_id(span.span_id)}
