"""Thousands of generated calls, alone and in sequences that follow what the responses name: no server error.

By `make bench-more`; `tests/api/test_schema.py` has a short run of the same checks. FLEETUI_API_EXAMPLES is
another number of calls.
"""

import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.api.test_schema import filled_hub, read_schema
from tests.database import rolled_back

EXAMPLES = int(os.environ.get("FLEETUI_API_EXAMPLES", "3000"))
STEPS = 10
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("collected_static", "kept_connection")
def test_sequences_of_calls_cause_no_server_error() -> None:
    hub = filled_hub()
    calls: Counter[str] = Counter()
    headers = {"Authorization": f"Token {hub['token']}", "Accept-Encoding": "identity"}
    machine: Any = read_schema().as_state_machine()

    class Calls(machine):
        def setup(self) -> None:
            self.undo = rolled_back()
            self.undo.__enter__()

        def teardown(self) -> None:
            self.undo.__exit__(None, None, None)

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:  # noqa: ARG002 -- schemathesis'
            return {"headers": headers}

        def validate_response(self, response: Any, case: Any, **_options: Any) -> None:
            calls[f"{response.status_code // 100}xx"] += 1
            case.validate_response(response, checks=CHECKS, headers=headers)

    Calls.run(
        settings=settings(
            max_examples=EXAMPLES // STEPS + EXAMPLES // 20,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
    )
    print(f"\n{calls.total()} calls: {dict(sorted(calls.items()))}")  # noqa: T201 -- a measurement
    assert calls.total() >= EXAMPLES
    assert calls["2xx"] > calls.total() // 20
