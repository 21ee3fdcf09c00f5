"""Traces of requests and tasks: optional, with the extra `tracing` and FLEETUI_TRACES=1."""

from importlib import import_module
from types import ModuleType

from fleetui.env import SettingRefused

_otel: ModuleType | None = None


def start_tracing() -> None:
    """Send spans as OpenTelemetry's variables say. Raise SettingRefused without its packages."""
    global _otel  # noqa: PLW0603  # one for each process
    try:
        # Not imported above: without the extra there is no such library.
        _otel = import_module("fleetui.otel")
    except ModuleNotFoundError as error:
        raise SettingRefused(
            "FLEETUI_TRACES",
            "1",
            "it needs the packages of the extra: pip install fleetui[tracing]",
        ) from error
    _otel.instrument()


def current_trace() -> dict[str, str]:
    """Return the ids of the trace and of the span of this moment, if there is one."""
    if _otel is None:
        return {}
    trace: dict[str, str] = _otel.current_trace()
    return trace
