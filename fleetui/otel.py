"""Tracing by OpenTelemetry; only `fleetui.tracing` imports it, where the extra `tracing` is installed.

The instrumentations of Django and Celery record the spans. Exporter, name of the service and sampling are
those of OpenTelemetry's own variables, OTEL_….
"""

import os

from django.conf import settings
from django.http import HttpRequest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanProcessor
from opentelemetry.trace import Span, format_span_id, format_trace_id, get_current_span

from fleetui import __version__

AFTER = "fleetui.monitoring.ProbesMiddleware"
"""Requests are recorded from here on: probes are answered for any host, which the instrumentation refuses."""


def instrument(processor: SpanProcessor | None = None) -> None:
    """Record requests and tasks, and send their spans in the background."""
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence.
    named = Resource.create({"service.name": "fleetui", "service.version": __version__})
    provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()))
    provider.add_span_processor(processor or BatchSpanProcessor(OTLPSpanExporter()))
    # The stable names of attributes; with others, the query of an address would be in several of them.
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "http"
    DjangoInstrumentor().instrument(
        tracer_provider=provider,
        middleware_position=settings.MIDDLEWARE.index(AFTER) + 1,
        request_hook=complete_span,
    )
    CeleryInstrumentor().instrument(tracer_provider=provider)


def complete_span(span: Span, request: HttpRequest) -> None:
    """Keep the trace for the log line of a refused request, which Django writes after all middleware."""
    request.fleetui_trace = current_trace()  # type: ignore[attr-defined]
    # What a person searched for, or a token that was written into an address.
    span.set_attribute("url.query", "")


def current_trace() -> dict[str, str]:
    span = get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    return {
        "trace": format_trace_id(span.trace_id),
        "span": format_span_id(span.span_id),
    }
