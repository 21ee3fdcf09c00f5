"""The status of a placement from its facts: the worst condition counts."""

from dataclasses import replace
from typing import Any

import pytest

from placements.engine.limits import ExceededLimit
from placements.engine.rollout.state import Phase
from placements.engine.status import (
    ClusterFacts,
    HealthCounts,
    HealthFacts,
    MemberCondition,
    cluster_status,
    health_document,
    placement_health,
)

EXCEEDED = ExceededLimit("region", 1, "east", 4, "west", 1, 3)
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
            ("attention", "Unknown (0 of 6 available, 6 unreachable)"),
        ),
        (
            {"not_ready": 1},
            {},
            ("attention", "Degraded (6 of 6 available, 1 not ready)"),
        ),
        (
            {"applied": 4, "available": 4, "unreachable": 1, "not_monitored": 1},
            {},
            (
                "attention",
                "Degraded (4 of 6 available, 1 unreachable, 1 not monitored)",
            ),
        ),
        (
            {"started": 0, "applied": 0, "available": 0, "not_monitored": 6},
            {"is_rolling": True},
            ("suspended", "Scheduled, not applied (6 clusters not monitored)"),
        ),
        (
            {"applied": 0, "available": 0},
            {"resources": 0},
            ("attention", "No resources selected"),
        ),
        (
            {
                "wanted": 18,
                "scheduled": 13,
                "started": 13,
                "applied": 13,
                "available": 13,
            },
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
            ("failed", "Failed (on 1 cluster)"),
        ),
        (
            {"started": 4, "applied": 5, "available": 5},
            {"is_rolling": True},
            ("progress", "Progressing (4 of 6 started)"),
        ),
        ({"started": 3}, {"is_paused": True}, ("suspended", "Paused (3 of 6 started)")),
        (
            {"started": 3},
            {"is_stopped": True},
            ("suspended", "Stopped (3 of 6 started)"),
        ),
        (
            {"started": 3},
            {"is_stalled": True},
            ("attention", "Degraded (rollout stalled, 3 of 6 started)"),
        ),
        (
            {"started": 0, "applied": 0, "available": 0},
            {"is_staged": True},
            ("suspended", "Pending (needs a staged run)"),
        ),
        ({}, {"is_deleting": True}, ("progress", "Deleting")),
        (
            {"removal_failed": 1},
            {"is_deleting": True},
            ("failed", "Deleting (removal failed on 1 cluster)"),
        ),
        ({}, {"is_pending": True}, ("progress", "Scheduling")),
        ({}, {"is_starting": True}, ("progress", "Progressing (rollout pending)")),
        ({"removing": 1}, {}, ("progress", "Progressing (removing from 1 cluster)")),
        ({}, {"has_invalid_selectors": True}, ("failed", "Invalid resource selector")),
        (
            {"available": 2, "not_ready": 1, "not_available": 1, "unreachable": 2},
            {},
            (
                "attention",
                "Degraded (2 of 6 available, 2 unreachable, 1 not ready, 1 not available)",
            ),
        ),
        (
            {},
            {"exceeded": (EXCEEDED,)},
            (
                "attention",
                "Out of balance (region skew 3 with east 4 and west 1, max skew 1)",
            ),
        ),
        (
            {},
            {"exceeded": (EXCEEDED,), "awaits_decision": True},
            ("progress", "Scheduling"),
        ),
        (
            {"available": 5, "unreachable": 1},
            {"exceeded": (EXCEEDED,)},
            (
                "attention",
                "Degraded (5 of 6 available, 1 unreachable, out of balance)",
            ),
        ),
        (
            {"available": 4, "not_available": 2},
            {"exceeded": (EXCEEDED,)},
            (
                "attention",
                "Degraded (4 of 6 available, out of balance)",
            ),
        ),
        (
            {"scheduled": 5, "available": 3, "unreachable": 1, "not_available": 1},
            {"is_scheduled": False, "exceeded": (EXCEEDED,)},
            (
                "attention",
                "Partially fulfilled (5 of 6, 1 unreachable, 1 not available, out of balance)",
            ),
        ),
    ],
)
def test_the_worst_condition_counts(
    counts: dict[str, int], facts: dict[str, Any], expected: tuple[str, str]
) -> None:
    assert summary(replace(ALL, **counts), **facts) == expected


@pytest.mark.parametrize(
    ("placement_type", "words"),
    [("PickFixed", "No clusters named"), ("PickAll", "No clusters selected")],
)
def test_a_policy_that_selects_nothing_says_so(placement_type: str, words: str) -> None:
    assert summary(HealthCounts(), placement_type=placement_type) == (
        "attention",
        words,
    )


def test_before_the_first_decision_it_is_pending() -> None:
    assert summary(HealthCounts(), is_scheduled=None) == ("suspended", "Pending")


def test_the_document_has_the_level_the_word_and_the_counts() -> None:
    document = health_document(
        placement_health(replace(FACTS, counts=replace(ALL, available=5)))
    )

    assert document["counts"] == {
        "wanted": 6,
        "scheduled": 6,
        "rolloutStarted": 6,
        "applied": 6,
        "available": 5,
        "pending": 0,
        "inProgress": 0,
        "notAvailable": 0,
        "unreachable": 0,
        "notObserved": 0,
        "notMonitored": 0,
        "notReady": 0,
        "failed": 0,
        "differs": 0,
    }


def _six(**changed: int) -> HealthCounts:
    return replace(ALL, **changed)


def _all(number: int, wanted: int, **changed: int) -> HealthCounts:
    met = {
        "scheduled": number,
        "started": number,
        "applied": number,
        "available": number,
    }
    return HealthCounts(wanted=wanted, **{**met, **changed})


SHORT = {"is_scheduled": False}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("case", "counts", "facts", "word", "listed"),
    [
        ("H1", ALL, {}, "Healthy", "Healthy"),
        (
            "H2",
            _six(started=5, applied=5, available=5, unreachable=1),
            {"is_rolling": True, "is_stalled": True},
            "Degraded",
            "Degraded (5 of 6 available, 1 unreachable)",
        ),
        (
            "H3",
            _six(applied=0, available=0),
            {"resources": 0},
            "Degraded",
            "No resources selected",
        ),
        ("H4", _all(13, 18), SHORT, "Degraded", "Partially fulfilled (13 of 18)"),
        (
            "H5",
            _all(96, 96, available=94, not_available=2),
            {},
            "Degraded",
            "Degraded (94 of 96 available)",
        ),
        (
            "H6",
            HealthCounts(),
            {"placement_type": "PickFixed"},
            "Degraded",
            "No clusters named",
        ),
        ("H7", _all(7, 50), SHORT, "Degraded", "Partially fulfilled (7 of 50)"),
        ("H8", _all(0, 4), SHORT, "Failed", "Not fulfilled (0 of 4)"),
        (
            "H9",
            _six(applied=5, available=5, failed=1),
            {},
            "Failed",
            "Failed (on 1 cluster)",
        ),
        (
            "H10",
            _six(started=4, applied=5, available=5),
            {"is_rolling": True},
            "Progressing",
            "Progressing (4 of 6 started)",
        ),
        (
            "H11",
            _six(started=3),
            {"is_rolling": True, "is_paused": True},
            "Paused",
            "Paused (3 of 6 started)",
        ),
        (
            "H11 while an update is applying",
            _six(started=4, in_flight=1, applied=3, available=5),
            {"is_rolling": True, "is_paused": True},
            "Progressing",
            "Progressing (4 of 6 started)",
        ),
        (
            "H12",
            _six(started=3, available=5, not_available=1),
            {"is_rolling": True, "is_paused": True},
            "Degraded",
            "Degraded (5 of 6 available)",
        ),
        (
            "H13",
            _all(3, 3, available=0, unreachable=3),
            {},
            "Unknown",
            "Unknown (0 of 3 available, 3 unreachable)",
        ),
        (
            "H14",
            _six(started=0),
            {"is_staged": True},
            "Pending",
            "Pending (needs a staged run)",
        ),
        ("H15", _all(3, 5, removing=2), {"is_deleting": True}, "Deleting", "Deleting"),
        ("H16, pinned", ALL, {"resources": None}, "Healthy", "Healthy"),
        (
            "H19",
            _all(9, 9, not_ready=1),
            {"placement_type": "PickAll"},
            "Degraded",
            "Degraded (9 of 9 available, 1 not ready)",
        ),
        ("H20", _all(3, 5), SHORT, "Degraded", "Partially fulfilled (3 of 5)"),
    ],
)
def test_the_table_of_situations(
    case: str, counts: HealthCounts, facts: dict[str, Any], word: str, listed: str
) -> None:
    found = placement_health(replace(FACTS, counts=counts, **facts))

    assert (found.word, found.summary) == (word, listed), case


def test_the_first_rule_decides_the_status_of_a_cluster() -> None:
    available = ClusterFacts(Phase.AVAILABLE)
    lost, not_ready = MemberCondition.UNREACHABLE, MemberCondition.NOT_READY
    rules: dict[str, tuple[str, ClusterFacts]] = {
        "Removal failed": (
            "failed",
            ClusterFacts(Phase.REMOVE_FAILED, lost, is_selected=False),
        ),
        "Removing": ("progress", ClusterFacts(Phase.REMOVING, lost, is_selected=False)),
        "Unreachable": ("attention", ClusterFacts(Phase.FAILED, lost)),
        "Scheduled, not applied": (
            "suspended",
            ClusterFacts(
                Phase.NOT_STARTED, MemberCondition.NOT_MONITORED, is_current=False
            ),
        ),
        "Override failed": ("failed", ClusterFacts(Phase.FAILED, failure="override")),
        "Apply failed": ("failed", ClusterFacts(Phase.FAILED, is_current=False)),
        "Not available": ("attention", ClusterFacts(Phase.APPLIED, is_late=True)),
        "Applying": ("progress", ClusterFacts(Phase.APPLYING, suspension="Paused")),
        "Waiting for availability": (
            "progress",
            ClusterFacts(Phase.APPLIED, is_current=False),
        ),
        "Paused": (
            "suspended",
            replace(available, is_current=False, suspension="Paused", is_stalled=True),
        ),
        "Blocked": ("attention", replace(available, is_current=False, is_stalled=True)),
        "Pending": ("progress", replace(available, is_current=False, member=not_ready)),
        "Available (cluster unhealthy)": (
            "attention",
            replace(available, member=not_ready),
        ),
        "Available": (
            "healthy",
            ClusterFacts(Phase.APPLIED, is_ready=True, is_late=True),
        ),
    }

    found = {word: cluster_status(facts) for word, (_, facts) in rules.items()}

    assert {
        word: (str(status.level), status.word) for word, status in found.items()
    } == {word: (level, word) for word, (level, _) in rules.items()}
