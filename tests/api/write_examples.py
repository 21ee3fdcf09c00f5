"""Writes the examples of the API: `python -m tests.api.write_examples` makes every call on a filled hub.

Run it when responses have changed. Long lists and texts are shortened.
"""

import json
import os
from typing import Any

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "fleetui.settings"
django.setup()

from django.conf import settings  # noqa: E402 -- models are there from here on
from django.core.signals import request_finished, request_started  # noqa: E402
from django.db import close_old_connections  # noqa: E402
from django.test.utils import get_runner, setup_test_environment  # noqa: E402
from schemathesis.core.result import Ok  # noqa: E402

from fleetui.hub_scope import LOCAL_HUB, in_hub  # noqa: E402
from placements.api.manifest_schema import EXAMPLES  # noqa: E402
from tests.api.test_schema import BODIES, filled_hub, on_what_is_there, read_schema  # noqa: E402
from tests.database import rolled_back  # noqa: E402

_MOST_ITEMS, _LONGEST = 2, 600


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return [_short(one) for one in value[:_MOST_ITEMS]]
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return value[:_LONGEST] if isinstance(value, str) else value


def _examples() -> dict[str, Any]:
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    hub, found = filled_hub(), {}
    for get_all_operation in read_schema().get_all_operations():
        assert isinstance(get_all_operation, Ok)
        operation = get_all_operation.ok()
        case = on_what_is_there(operation, hub)
        accepted = {} if ".csv" in operation.path else {"Accept": "application/json"}
        accepted["Accept-Encoding"] = "identity"
        with rolled_back():
            answer = case.call(
                headers={"Authorization": f"Token {hub['token']}", **accepted}
            )
        example: dict[str, Any] = {"status": str(answer.status_code)}
        if operation.label in BODIES:
            example["request"] = BODIES[operation.label]
        if answer.content:
            is_json = "json" in answer.headers["content-type"][0]
            example["response"] = (
                _short(answer.json()) if is_json else answer.text[:_LONGEST]
            )
        if operation.label == "POST /api/v1/token":
            example["response"]["token"] = "0123456789abcdef0123456789abcdef01234567"
        found[operation.definition.raw["operationId"]] = example
    return found


def main() -> None:
    setup_test_environment()
    runner = get_runner(settings)(verbosity=0, interactive=False)
    databases = runner.setup_databases()
    try:
        with in_hub(LOCAL_HUB):
            text = json.dumps(_examples(), indent=1, sort_keys=True, ensure_ascii=False)
    finally:
        runner.teardown_databases(databases)
    EXAMPLES.write_text(text + "\n")


if __name__ == "__main__":
    main()
