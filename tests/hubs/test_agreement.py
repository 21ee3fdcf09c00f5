"""Replays of what a hub decided agree with it, and find what differs (`spec/live-hub.md` 12)."""

from typing import Any

import pytest

from placements.models import Agreement
from tests.hubs.scenarios import RecordedHub, scenarios

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
AGREED = {Agreement.AGREES, Agreement.FORGOTTEN}
SAMPLE = 40


def sample() -> list[dict[str, Any]]:
    """Return scenarios of every sort: those with several steps, few clusters first."""
    several = [one for one in scenarios() if len(one["steps"]) > 1 and len(one["clusters"]) < 40]
    return several[:: max(1, len(several) // SAMPLE)][:SAMPLE]


def disagreements(scenario: dict[str, Any]) -> list[Any]:
    hub, found = RecordedHub(scenario), []
    for number, expected in enumerate(hub.steps()):
        row = hub.judge()
        if expected["condition"] is None:
            continue
        if row.agreement not in AGREED or row.inputs == "none":
            found.append((scenario["id"], number, row.agreement, row.inputs, row.note, row.differences[:3]))
    return found


@pytest.mark.parametrize("scenario", sample(), ids=lambda one: one["id"])
def test_every_decided_step_of_a_sample_agrees(scenario: dict[str, Any]) -> None:
    assert disagreements(scenario) == []
