"""Conditions in the words of a hub: on one cluster, and all in all."""

from datetime import timedelta
from typing import Any

import pytest

from placements.engine.rollout.state import FailureKind, ObjectFault, Phase
from placements.explain.hub_conditions import (
    OnCluster,
    conditions_in_all,
    conditions_on,
    failed_objects,
    not_scheduled,
    noted_of,
)
from tests.rows import NOW

LATER = NOW + timedelta(minutes=2)


def on(
    phase: Phase, *, is_current: bool | None = True, is_ready: bool = False, **more: Any
) -> OnCluster:
    """Make the facts of one cluster, picked at noon and in its phase two minutes later."""
    return OnCluster("a", NOW, phase, LATER, is_current, is_ready, **more)


def conditions_of(one: OnCluster) -> list[tuple[str, str]]:
    """Return what the conditions of a cluster say, each with its reason."""
    return [
        (condition.status.value, condition.reason) for condition in conditions_on(one)
    ]


FOUR = [
    ("True", "Scheduled"),
    ("True", "RolloutStarted"),
    ("True", "NoOverrideSpecified"),
    ("True", "AllWorkSynced"),
]


@pytest.mark.parametrize(
    ("one", "rest"),
    [
        (on(Phase.APPLYING), [("False", "ApplyInProgress")]),
        (on(Phase.FAILED), [("False", "NotAllWorkHaveBeenApplied")]),
        (
            on(Phase.APPLIED),
            [("True", "AllWorkHaveBeenApplied"), ("False", "NotAllWorkAreAvailable")],
        ),
        (
            on(Phase.APPLIED, is_ready=True),
            [
                ("True", "AllWorkHaveBeenApplied"),
                ("True", "NotAllWorkAreAvailabilityTrackable"),
            ],
        ),
        (
            on(Phase.AVAILABLE, is_ready=True),
            [("True", "AllWorkHaveBeenApplied"), ("True", "AllWorkAreAvailable")],
        ),
    ],
)
def test_goes_as_far_as_the_cluster_is(
    one: OnCluster, rest: list[tuple[str, str]]
) -> None:
    assert conditions_of(one) == FOUR + rest


def test_a_blocked_cluster_says_what_it_waits_for_and_nothing_after() -> None:
    found = conditions_on(
        on(Phase.AVAILABLE, is_current=False, is_ready=True, waits_for="runs r1")
    )

    assert [
        (condition.sort, condition.reason, condition.message) for condition in found[1:]
    ] == [
        (
            "RolloutStarted",
            "RolloutNotStartedYet",
            "The rollout is being blocked by the rollout strategy: runs r1",
        )
    ]


def test_is_unknown_before_there_are_resources() -> None:
    assert conditions_of(on(Phase.NOT_STARTED, is_current=None))[1:] == [
        ("Unknown", "RolloutStartedUnknown")
    ]


def test_all_in_all_unknown_comes_before_false_and_false_before_true() -> None:
    failing, undecided = (
        conditions_on(on(Phase.FAILED)),
        conditions_on(on(Phase.NOT_STARTED, is_current=None)),
    )
    fine = conditions_on(on(Phase.AVAILABLE, is_ready=True))

    def last(*clusters: list) -> tuple[str, str]:
        condition = conditions_in_all(clusters)[-1]
        return condition.reason, condition.message

    blocked = conditions_on(on(Phase.NOT_STARTED, is_current=False))
    assert last(fine, blocked, undecided)[0] == "RolloutStartedUnknown"
    assert last(fine, failing, failing) == (
        "ApplyFailed",
        "Failed to apply resources to 2 cluster(s), please check the `failedPlacements` status",
    )
    assert last(fine, fine) == (
        "ResourceAvailable",
        "The selected resources in 2 cluster(s) are available now",
    )


def test_nothing_is_summed_up_where_nothing_is_selected() -> None:
    assert conditions_in_all([]) == []


def test_a_condition_is_written_as_in_a_manifest() -> None:
    condition = conditions_on(on(Phase.AVAILABLE, is_ready=True))[-1]

    assert condition.plain(generation=7, prefix="ClusterResourcePlacement") == {
        "type": "ClusterResourcePlacementAvailable",
        "status": "True",
        "reason": "AllWorkAreAvailable",
        "message": "All corresponding work objects are available",
        "observedGeneration": 7,
        "lastTransitionTime": "2026-11-20T12:02:00Z",
    }


def test_the_objects_that_were_refused_keep_the_condition_of_their_cluster() -> None:
    failing = conditions_on(on(Phase.FAILED))[-1]
    objects = [
        ObjectFault(
            "",
            "v1",
            "Namespace",
            "",
            "shop",
            "ManifestApplyFailed",
            "forbidden; really: no",
        ),
        ObjectFault(
            "apps",
            "v1",
            "Deployment",
            "shop",
            "web",
            "ManifestApplyFailed",
            "no such image",
        ),
    ]

    found = failed_objects(objects, failing, generation=3)

    condition = {
        "type": "Applied",
        "status": "False",
        "reason": "ManifestApplyFailed",
        "observedGeneration": 3,
        "lastTransitionTime": "2026-11-20T12:02:00Z",
    }
    assert found == [
        {
            "group": "",
            "version": "v1",
            "kind": "Namespace",
            "name": "shop",
            "condition": {**condition, "message": "forbidden; really: no"},
        },
        {
            "group": "apps",
            "version": "v1",
            "kind": "Deployment",
            "name": "web",
            "namespace": "shop",
            "condition": {**condition, "message": "no such image"},
        },
    ]


def test_an_override_that_does_not_apply_is_not_a_cluster_that_refused() -> None:
    words = "Nothing is sent to a: override o-0 at spec does not fit Namespace shop: no such place."
    failing = on(
        Phase.FAILED, failure=FailureKind.OVERRIDE, has_overrides=True, message=words
    )

    last = conditions_on(failing)[-1]

    assert (last.sort, last.status, last.reason, last.message) == (
        "Overridden",
        "False",
        "OverriddenFailed",
        f"Failed to apply the override rules on the resources: {words}",
    )
    assert conditions_in_all([conditions_on(failing)])[-1].message == (
        "Failed to override resources in 1 cluster(s)"
    )


def test_overrides_that_were_applied_say_so() -> None:
    plain = conditions_on(on(Phase.AVAILABLE, is_ready=True))
    changed = conditions_on(on(Phase.AVAILABLE, is_ready=True, has_overrides=True))

    assert changed[2].reason == "OverriddenSucceeded"
    in_all = conditions_in_all([plain, changed])[1]
    assert (in_all.reason, in_all.message) == (
        "OverriddenSucceeded",
        "The selected resources are successfully overridden in 2 cluster(s)",
    )


def test_a_condition_keeps_its_moment_until_its_value_changes() -> None:
    first = noted_of(conditions_on(on(Phase.APPLIED)))
    later = LATER + timedelta(minutes=5)

    ready = OnCluster(
        "a", NOW, Phase.AVAILABLE, later, True, is_ready=True, noted=first
    )

    since = {condition.sort: condition.since for condition in conditions_on(ready)}
    assert since == {
        "Scheduled": NOW,
        "RolloutStarted": LATER,
        "Overridden": LATER,
        "WorkSynchronized": LATER,
        "Applied": LATER,
        "Available": later,
    }


def test_the_sum_keeps_its_moment_too() -> None:
    fine = [conditions_on(on(Phase.AVAILABLE, is_ready=True))]
    noted = {
        "Available": ["True", NOW.isoformat()],
        "Applied": ["False", NOW.isoformat()],
    }

    since = {
        condition.sort: condition.since for condition in conditions_in_all(fine, noted)
    }

    assert (since["Available"], since["Applied"]) == (NOW, LATER)


def test_a_cluster_that_is_missing_has_no_name() -> None:
    scheduled = conditions_on(on(Phase.NOT_STARTED))[0]

    assert not_scheduled(["no room"], scheduled, generation=2) == [
        {
            "conditions": [
                {
                    "type": "Scheduled",
                    "status": "False",
                    "reason": "ScheduleFailed",
                    "message": "no room",
                    "observedGeneration": 2,
                    "lastTransitionTime": "2026-11-20T12:00:00Z",
                }
            ]
        }
    ]
