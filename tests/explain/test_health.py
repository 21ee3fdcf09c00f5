"""The status of a placement from its facts: the worst condition counts."""

from dataclasses import replace
from typing import Any

import pytest

from placements.explain.health import (
    HealthCounts,
    HealthFacts,
    condition_sentence,
    health_document,
    placement_health,
)

ALL = HealthCounts(wanted=6, scheduled=6, started=6, applied=6, available=6)
FACTS = HealthFacts(ALL, "PickN", is_scheduled=True, resources=2)


def summary(counts: HealthCounts = ALL, **facts: Any) -> tuple[str, str]:
    found = placement_health(replace(FACTS, counts=counts, **facts))
    return str(found.level), found.summary


@pytest.mark.parametrize(
    ("counts", "facts", "expected"),
    [
        ({}, {}, ("healthy", "Healthy")),
        (
            {"started": 5, "available": 5, "unreachable": 1},
            {"is_stalled": True},
            ("attention", "Degraded (5 of 6 available, 1 unreachable)"),
        ),
        (
            {"available": 0, "unreachable": 6},
            {},
            ("unknown", "Unknown (0 of 6 available, 6 unreachable)"),
        ),
        ({"not_ready": 1}, {}, ("attention", "Degraded (6 of 6 available, 1 not ready)")),
        (
            {"applied": 4, "available": 4, "unreachable": 1, "not_monitored": 1},
            {},
            ("attention", "Degraded (4 of 6 available, 1 unreachable, 1 not monitored)"),
        ),
        (
            {"started": 0, "applied": 0, "available": 0, "not_monitored": 6},
            {"is_rolling": True},
            ("suspended", "Scheduled, not applied (6 clusters not monitored)"),
        ),
        ({"applied": 0, "available": 0}, {"resources": 0}, ("attention", "No resources selected")),
        (
            {"wanted": 18, "scheduled": 13, "started": 13, "applied": 13, "available": 13},
            {"is_scheduled": False},
            ("attention", "Partially fulfilled (13 of 18)"),
        ),
        (
            {"available": 4, "not_available": 2},
            {},
            ("attention", "Degraded (4 of 6 available)"),
        ),
        (
            {"wanted": 4, "scheduled": 0, "started": 0, "applied": 0, "available": 0},
            {"is_scheduled": False},
            ("failed", "Not fulfilled (0 of 4)"),
        ),
        (
            {"applied": 5, "available": 5, "failed": 1},
            {"is_stalled": True},
            ("failed", "Failed (failed on 1 cluster)"),
        ),
        (
            {"started": 4, "applied": 5, "available": 5},
            {"is_rolling": True},
            ("progress", "Progressing (4 of 6 updated)"),
        ),
        ({"started": 3}, {"is_paused": True}, ("suspended", "Paused (3 of 6 updated)")),
        ({"started": 3}, {"is_stopped": True}, ("suspended", "Stopped (3 of 6 updated)")),
        ({"started": 3}, {"is_stalled": True}, ("attention", "Degraded (rollout stalled, 3 of 6 updated)")),
        (
            {"started": 0, "applied": 0, "available": 0},
            {"is_staged": True},
            ("suspended", "Pending (waiting for a staged update run)"),
        ),
        ({}, {"is_deleting": True}, ("progress", "Deleting")),
        (
            {"removal_failed": 1},
            {"is_deleting": True},
            ("failed", "Deleting (removal failed on 1 cluster)"),
        ),
        ({}, {"is_pending": True}, ("progress", "Scheduling")),
        ({"removing": 1}, {}, ("progress", "Progressing (removing from 1 cluster)")),
        ({}, {"has_invalid_selectors": True}, ("failed", "Invalid resource selector")),
    ],
)
def test_the_worst_condition_counts(
    counts: dict[str, int], facts: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert summary(replace(ALL, **counts), **facts) == expected


@pytest.mark.parametrize(
    ("placement_type", "words"), [("PickFixed", "No clusters named"), ("PickAll", "No clusters selected")]
)
def test_a_policy_that_selects_nothing_says_so(placement_type: str, words: str) -> None:
    assert summary(HealthCounts(), placement_type=placement_type) == ("attention", words)


def test_before_the_first_decision_it_is_pending() -> None:
    assert summary(HealthCounts(), is_scheduled=None) == ("suspended", "Pending")


def test_counts_are_shown_by_condition() -> None:
    counts = replace(ALL, available=5)

    assert condition_sentence(counts) == "6/6 scheduled · 6/6 started · 6/6 applied · 5/6 available"
    document = health_document(placement_health(replace(FACTS, counts=counts)))
    assert document["counts"] == {
        "wanted": 6,
        "scheduled": 6,
        "rolloutStarted": 6,
        "applied": 6,
        "available": 5,
        "unreachable": 0,
        "notMonitored": 0,
        "notReady": 0,
        "failed": 0,
    }
