"""Evictions and what budgets say to them (`rules/lifecycle.md#evictions`)."""

from typing import Any

import pytest

from placements.engine.disruption import (
    ClusterAvailability,
    EvictionContext,
    EvictionReason,
    Executed,
    Invalid,
    NotExecuted,
    Numbers,
    Verdict,
    judge_eviction,
)
from placements.manifests.disruption import (
    DisruptionBudgetSpec,
    parse_disruption_budget,
)
from placements.manifests.policy import PlacementType

THREE = {
    "c1": ClusterAvailability.AVAILABLE,
    "c2": ClusterAvailability.AVAILABLE,
    "c3": ClusterAvailability.AVAILABLE,
}


def pick_all(**ranker: ClusterAvailability) -> EvictionContext:
    return EvictionContext(PlacementType.PICK_ALL, {**THREE, **ranker})


def pick_n(number: int = 3, **ranker: ClusterAvailability) -> EvictionContext:
    return EvictionContext(PlacementType.PICK_N, {**THREE, **ranker}, number)


def budget(**spec: Any) -> DisruptionBudgetSpec:
    return parse_disruption_budget(
        {
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
            "kind": "ClusterResourcePlacementDisruptionBudget",
            "metadata": {"name": "web"},
            "spec": spec,
        }
    ).spec


def judged(placement: EvictionContext, **spec: Any) -> Verdict:
    return judge_eviction(placement, "c1", budget(**spec))


def test_s45_without_a_budget_it_is_executed() -> None:
    assert judge_eviction(pick_all(), "c1", None) == Executed(EvictionReason.NO_BUDGET)


def test_s46_pick_all_over_three_with_three_to_stay_is_not_executed() -> None:
    assert judged(pick_all(), minAvailable=3) == NotExecuted(
        EvictionReason.OVER_BUDGET, Numbers(3, 3, 0, 0)
    )


def test_s46_pick_all_over_three_with_two_to_stay_is_executed() -> None:
    assert judged(pick_all(), minAvailable=2) == Executed(
        EvictionReason.WITHIN_BUDGET, Numbers(3, 3, 0, 1)
    )


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"maxUnavailable": 0}, 0),
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "33%"}, 1),
        ({"maxUnavailable": "0%"}, 0),
        ({"minAvailable": 3}, 0),
        ({"minAvailable": 2}, 1),
        ({"minAvailable": "100%"}, 0),
        ({"minAvailable": "66%"}, 1),
        ({"minAvailable": "67%"}, 0),
    ],
)
def test_s46_pick_n_of_three(spec: Any, allowed: int) -> None:
    numbers = Numbers(available=3, total=3, wanted=3, allowed=allowed)
    expected = (
        Executed(EvictionReason.WITHIN_BUDGET, numbers)
        if allowed
        else NotExecuted(EvictionReason.OVER_BUDGET, numbers)
    )

    assert judged(pick_n(), **spec) == expected


def test_s46_thirty_percent_of_two_is_one() -> None:
    placement = EvictionContext(PlacementType.PICK_N, dict(list(THREE.items())[:2]), 2)

    assert judged(placement, minAvailable="30%") == Executed(
        EvictionReason.WITHIN_BUDGET, Numbers(2, 2, 2, 1)
    )


def test_s49_a_drain_goes_as_far_as_the_budget_lets_it() -> None:
    # Each eviction is judged when the one before was written down; what leaves is not available.
    placement = pick_n()
    assert judged(placement, maxUnavailable=1) == Executed(
        EvictionReason.WITHIN_BUDGET, Numbers(3, 3, 3, 1)
    )

    after = pick_n(c2=ClusterAvailability.LEAVING)

    assert judged(after, maxUnavailable=1) == NotExecuted(
        EvictionReason.OVER_BUDGET, Numbers(2, 3, 3, 0)
    )


@pytest.mark.parametrize(
    ("placement", "cluster", "verdict"),
    [
        (None, "c1", Invalid(EvictionReason.NO_PLACEMENT)),
        (
            EvictionContext(PlacementType.PICK_N, THREE, 3, is_being_deleted=True),
            "c1",
            Invalid(EvictionReason.BEING_DELETED),
        ),
        (
            EvictionContext(PlacementType.PICK_FIXED, THREE),
            "c1",
            Invalid(EvictionReason.PICK_FIXED),
        ),
        (pick_n(), "c9", Invalid(EvictionReason.NOT_THERE)),
        (
            pick_n(c1=ClusterAvailability.LEAVING),
            "c1",
            Executed(EvictionReason.LEAVING),
        ),
        (
            pick_n(c1=ClusterAvailability.PLANNED),
            "c1",
            NotExecuted(EvictionReason.PLANNED),
        ),
        (pick_n(c1=ClusterAvailability.FAILED), "c1", Executed(EvictionReason.FAILED)),
        (
            pick_n(c1=ClusterAvailability.WORKING),
            "c1",
            NotExecuted(EvictionReason.OVER_BUDGET, Numbers(2, 3, 3, -1)),
        ),
    ],
)
def test_what_is_looked_at_before_the_budget(
    placement: EvictionContext | None, cluster: str, verdict: Verdict
) -> None:
    # `rules/lifecycle.md#terms`: a cluster that is merely not ready is not failed; the released system evicts
    # it past any budget.
    assert judge_eviction(placement, cluster, budget(maxUnavailable=0)) == verdict


@pytest.mark.parametrize("spec", [{"maxUnavailable": 3}, {"minAvailable": "10%"}])
def test_a_budget_that_does_not_go_with_pick_all_lets_nothing_go(spec: Any) -> None:
    assert judged(pick_all(), **spec) == NotExecuted(EvictionReason.MISCONFIGURED)
