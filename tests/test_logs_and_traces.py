"""Logs as JSON have one object a line; a trace joins a request, its log lines and the task that it sends."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from celery.app.trace import trace_task
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.urls import path
from kombu import Connection
from opentelemetry.instrumentation.celery import CeleryInstrumentor
from opentelemetry.instrumentation.django import DjangoInstrumentor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pytest_django import Settings

from fleetui import otel, tracing
from fleetui.celery import app
from fleetui.env import SettingRefused
from fleetui.logs import JsonFormatter
from fleetui.supervisor import Output
from fleetui.tracing import current_trace
from tests.test_settings import ROOT

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = {"HTTP_TRACEPARENT": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture
def spans(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    settings.MIDDLEWARE = ["fleetui.middleware.RequestIdMiddleware", otel.AFTER]
    monkeypatch.setattr(tracing, "_otel", otel)
    otel.instrument(SimpleSpanProcessor(exporter))
    yield exporter
    CeleryInstrumentor().uninstrument()
    DjangoInstrumentor().uninstrument()


def logged(record: logging.LogRecord) -> dict[str, str]:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, str] = json.loads(text)
    return found


def record_of(message: str, *arguments: object, **more: object) -> logging.LogRecord:
    record = logging.LogRecord(
        "placements", logging.WARNING, "f.py", 1, message, arguments, None
    )
    record.__dict__ |= more
    return record


def test_a_line_has_its_request_and_its_traceback_in_fields() -> None:
    request = RequestFactory().get("/")
    request.fleetui_id = "12345678"  # type: ignore[attr-defined]
    try:
        raise ValueError("odd\nvalue")
    except ValueError:
        found = logged(
            record_of(
                "rollout %s\nstalled", 7, request=request, exc_info=sys.exc_info()
            )
        )

    assert found["message"] == "rollout 7\nstalled"
    assert (found["level"], found["logger"]) == ("warning", "placements")
    assert (found["request"], found["user"], found["address"]) == (
        "12345678",
        None,
        "127.0.0.1",
    )
    assert found["traceback"].endswith("ValueError: odd\nvalue")
    assert "request" not in logged(record_of("start"))


def test_the_supervisor_names_the_process_in_each_line() -> None:
    out = io.StringIO()
    output = Output(out, out, width=8, as_json=True)

    output.say("web", '{"level": "warning", "message": "slow"}')
    output.say("worker", "{broken", is_error=True)

    first, second = map(json.loads, out.getvalue().splitlines())
    assert first == {"part": "web", "level": "warning", "message": "slow"}
    assert (second["part"], second["level"], second["message"]) == (
        "worker",
        "warning",
        "{broken",
    )


def test_a_request_its_log_lines_and_its_task_are_one_trace(
    spans: InMemorySpanExporter, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, str]] = []
    broker = Connection("memory://")

    @app.task(name="tests.traced")
    def traced() -> None:
        lines.append(logged(record_of("updated")))

    def view(_request: object, name: str) -> HttpResponse:  # noqa: ARG001  # of the path
        lines.append(logged(record_of("decided")))
        traced.apply_async(connection=broker, queue="traced")
        return HttpResponse(status=500)

    settings.ROOT_URLCONF = type(
        "urls", (), {"urlpatterns": [path("placements/<name>", view, name="placement")]}
    )
    address = "/placements/web?token=secret"
    Client(raise_request_exception=False).get(address, RAW_URI=address, **PARENT)  # type: ignore[arg-type]
    message = broker.SimpleQueue("traced").get_nowait()
    trace_task(
        traced, message.headers["id"], (), {}, request={**message.headers}, app=app
    )

    sent, request, consumed = spans.get_finished_spans()
    names = ["apply_async/tests.traced", "GET placements/<name>", "run/tests.traced"]
    assert [sent.name, request.name, consumed.name] == names
    assert {f"{span.context.trace_id:032x}" for span in (sent, request, consumed)} == {
        TRACE
    }
    assert (parent_of(sent), parent_of(consumed)) == (
        request.context.span_id,
        sent.context.span_id,
    )
    attributes = dict(request.attributes or {})
    assert (attributes["http.route"], attributes["http.response.status_code"]) == (
        "placements/<name>",
        500,
    )
    assert attributes["url.path"] == "/placements/web"
    assert request.resource.attributes["service.name"] == "fleetui"
    assert request.status.is_ok is False
    assert [line["trace"] for line in lines] == [TRACE, TRACE]
    assert caplog.records[-1].name == "django.request"
    assert logged(caplog.records[-1])["trace"] == TRACE
    assert "secret" not in request.to_json()


def parent_of(span: Any) -> int:
    parent: int = span.parent.span_id
    return parent


def test_a_probe_is_answered_for_any_host_and_is_no_trace(
    spans: InMemorySpanExporter,
) -> None:
    assert Client().get("/healthz", HTTP_HOST="10.1.2.3").status_code == 200
    assert spans.get_finished_spans() == ()


@pytest.mark.nightly
def test_without_tracing_nothing_is_recorded_and_the_library_is_not_loaded() -> None:
    program = "import django, sys; django.setup(); import fleetui.urls; print('opentelemetry' in sys.modules)"
    variables = {"PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "fleetui.settings"}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.stdout, run.stderr) == ("False\n", "")
    assert current_trace() == {}


def test_tracing_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(tracing, "import_module", missing)
    with pytest.raises(
        SettingRefused, match=r"FLEETUI_TRACES='1' is refused: .* fleetui\[tracing\]"
    ):
        tracing.start_tracing()
