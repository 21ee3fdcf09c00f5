"""Conditions in the words of a hub: on one cluster, and all in all."""

from datetime import timedelta

import pytest

from placements.explain.hub_conditions import OnCluster, conditions_in_all, conditions_on, failed_objects
from placements.rollout.state import Phase
from tests.rows import NOW

LATER = NOW + timedelta(minutes=2)


def on(phase: Phase, *, is_current: bool | None = True, is_ready: bool = False, **words: str) -> OnCluster:
    """Make the facts of one cluster, picked at noon and in its phase two minutes later."""
    return OnCluster("a", NOW, phase, LATER, is_current, is_ready, **words)


def told(one: OnCluster) -> list[tuple[str, str]]:
    """Give what the conditions of a cluster say, each with its reason."""
    return [(condition.status.value, condition.reason) for condition in conditions_on(one)]


FOUR = [
    ("True", "Scheduled"),
    ("True", "RolloutStarted"),
    ("True", "NoOverrideSpecified"),
    ("True", "WorkSynchronized"),
]


@pytest.mark.parametrize(
    ("one", "rest"),
    [
        (on(Phase.APPLYING), [("Unknown", "ApplyPending")]),
        (on(Phase.FAILED), [("False", "ApplyFailed")]),
        (on(Phase.SETTLING), [("True", "ApplySucceeded"), ("False", "ResourceNotAvailableYet")]),
        (on(Phase.SETTLING, is_ready=True), [("True", "ApplySucceeded"), ("True", "ResourceAvailable")]),
        (on(Phase.AVAILABLE, is_ready=True), [("True", "ApplySucceeded"), ("True", "ResourceAvailable")]),
    ],
)
def test_goes_as_far_as_the_cluster_is(one: OnCluster, rest: list[tuple[str, str]]) -> None:
    assert told(one) == FOUR + rest


def test_a_blocked_cluster_says_what_it_waits_for_and_nothing_after() -> None:
    found = conditions_on(on(Phase.AVAILABLE, is_current=False, is_ready=True, waits_for="runs r1"))

    assert [(one.sort, one.reason, one.message) for one in found[1:]] == [
        ("RolloutStarted", "RolloutNotStartedYet", "runs r1")
    ]


def test_nobody_knows_before_there_are_resources() -> None:
    assert told(on(Phase.NOTHING, is_current=None))[1:] == [("Unknown", "RolloutStartedUnknown")]


def test_all_in_all_unknown_comes_before_false_and_false_before_true() -> None:
    failing, applying = conditions_on(on(Phase.FAILED)), conditions_on(on(Phase.APPLYING))
    fine = conditions_on(on(Phase.AVAILABLE, is_ready=True))

    def last(*clusters: list) -> tuple[str, str]:
        condition = conditions_in_all(clusters)[-1]
        return condition.reason, condition.message

    assert last(fine, failing, applying) == ("ApplyPending", "is being applied on 1 cluster")
    assert last(fine, failing, failing) == ("ApplyFailed", "could not be applied on 2 clusters")
    assert last(fine, fine) == ("ResourceAvailable", "is available on 2 clusters")


def test_nothing_is_summed_up_where_nothing_is_selected() -> None:
    assert conditions_in_all([]) == []


def test_a_condition_is_written_as_in_a_manifest() -> None:
    condition = conditions_on(on(Phase.AVAILABLE, is_ready=True))[-1]

    assert condition.plain(generation=7, prefix="ClusterResourcePlacement") == {
        "type": "ClusterResourcePlacementAvailable",
        "status": "True",
        "reason": "ResourceAvailable",
        "message": "all its objects are ready",
        "observedGeneration": 7,
        "lastTransitionTime": "2026-11-20T12:02:00Z",
    }


def test_names_the_objects_that_a_cluster_refused() -> None:
    message = "Deployment shop/web: no such image: web:9; Namespace shop: forbidden"
    objects = [["v1", "Namespace", "", "shop"], ["apps/v1", "Deployment", "shop", "web"]]

    found = failed_objects(message, objects)

    assert [(one["group"], one["kind"], one["condition"]["message"]) for one in found] == [
        ("apps", "Deployment", "no such image: web:9"),
        ("", "Namespace", "forbidden"),
    ]
