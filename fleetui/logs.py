"""Log lines as JSON, one object a line, for programs that collect them."""

import json
import logging
from datetime import UTC, datetime
from typing import Any

from gunicorn.glogging import Logger

from fleetui.tracing import current_trace


class JsonFormatter(logging.Formatter):
    """Writes time, level, logger and message, and of a request its id, user and address.

    A traceback is one field, so that a line stays a line; a trace has its id.
    """

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **current_trace(),
            **_request_fields(getattr(record, "request", None)),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def _request_fields(request: object) -> dict[str, Any]:
    identifier = getattr(request, "fleetui_id", "")
    if not identifier:
        return {}
    # Only a user who was read already: the database may be the reason for the message.
    user = getattr(request, "_cached_user", None)
    name = user.get_username() if user is not None and user.is_authenticated else None
    return {
        "request": identifier,
        "user": name,
        "address": getattr(request, "META", {}).get("REMOTE_ADDR"),
        **getattr(request, "fleetui_trace", {}),
    }


def wrapped_line(part: str, line: str, *, is_error: bool) -> str:
    """Return a line of a process as JSON with the name of the process; one that is JSON keeps its fields."""
    try:
        fields = json.loads(line) if line.startswith("{") else None
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        level = "warning" if is_error else "info"
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        fields = {"time": time, "level": level, "message": line}
    return json.dumps({"part": part, **fields}, ensure_ascii=False)


class JsonGunicornLogger(Logger):
    def setup(self, cfg: Any) -> None:
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(JsonFormatter())
