"""A change that would unschedule everything waits until a user confirms it.

See `rules/lifecycle.md#removals`.
"""

from typing import Any

import pytest

from clusters.operations.edit import cordon
from fleetui.models import Event
from placements.models import Binding, Placement, PolicySnapshot
from placements.services.placements import (
    UnscheduledPlacement,
    UnschedulesEverything,
    save_placement,
)
from placements.services.rescheduling import reschedule
from tests.rows import NOW, all_joined, decided, pick_n_spec, placement_document, spec

pytestmark = pytest.mark.django_db
NOWHERE = {
    "affinity": {
        "clusterAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "clusterSelectorTerms": [
                    {"labelSelector": {"matchLabels": {"region": "moon"}}}
                ]
            }
        }
    }
}
PICK_ALL = spec({"placementType": "PickAll", **NOWHERE})
PICK_N = spec({"placementType": "PickN", "numberOfClusters": 2, **NOWHERE})
PICK_NONE = spec({"placementType": "PickN", "numberOfClusters": 0})
FIXED = spec({"placementType": "PickFixed", "clusterNames": ["a", "b"]})
FIXED_ELSEWHERE = spec({"placementType": "PickFixed", "clusterNames": ["missing"]})
EMPTYING = [
    (spec({"placementType": "PickAll"}), PICK_ALL, ("a", "b")),
    (pick_n_spec(2), PICK_N, ("a", "b")),
    (pick_n_spec(1), PICK_NONE, ("b",)),
    (FIXED, FIXED_ELSEWHERE, ("a", "b")),
]


def change(to: Any, **options: Any) -> None:
    """Save another spec over the placement `web`."""
    save_placement(placement_document("web", to), by=None, now=NOW, **options)


@pytest.mark.nightly
@pytest.mark.parametrize(("before", "after", "clusters"), EMPTYING)
def test_it_requires_confirmation_and_changes_nothing(
    before: Any, after: Any, clusters: tuple[str, ...]
) -> None:
    all_joined("a", "b")
    decided("web", before)
    counts = (
        Placement.objects.get().revision,
        PolicySnapshot.objects.count(),
        Event.objects.count(),
    )

    with pytest.raises(UnschedulesEverything) as refused:
        change(after)

    assert refused.value.emptied == (UnscheduledPlacement("web", clusters),)
    assert (
        Placement.objects.get().revision,
        PolicySnapshot.objects.count(),
        Event.objects.count(),
    ) == counts
    assert Placement.objects.get().document["spec"] == before


@pytest.mark.nightly
@pytest.mark.parametrize(("before", "after", "clusters"), EMPTYING)
def test_confirmed_it_is_done(
    before: Any,
    after: Any,
    clusters: tuple[str, ...],  # noqa: ARG001
) -> None:
    all_joined("a", "b")
    decided("web", before)

    change(after, confirmed=True)

    assert Placement.objects.get().document["spec"] == after


def test_a_change_that_keeps_one_cluster_requires_no_confirmation() -> None:
    all_joined("a", "b")
    decided("web", FIXED)

    change(spec({"placementType": "PickFixed", "clusterNames": ["b", "missing"]}))

    assert Placement.objects.get().revision == 2


def test_a_change_that_the_scheduler_does_not_see_requires_no_confirmation() -> None:
    all_joined("a")
    decided("web", PICK_NONE)
    change({**PICK_NONE, "revisionHistoryLimit": 3})

    assert Placement.objects.get().revision == 2


def test_what_is_nowhere_can_be_changed_freely() -> None:
    decided("web", pick_n_spec(2))

    change(PICK_N)

    assert Placement.objects.get().revision == 2


def test_the_words_name_the_clusters_and_count_the_rest() -> None:
    one, many = (
        UnscheduledPlacement("web", ("a",)),
        UnscheduledPlacement("db", tuple("abcdefg")),
    )

    assert str(UnschedulesEverything([one, many])) == (
        "This would unschedule everything: web would leave its only cluster: a;"
        " db would leave all 7 clusters: a, b, c, d, e and 2 more. Nothing has changed; confirm it first."
    )


def test_rescheduling_requires_confirmation_as_well() -> None:
    all_joined("a", "b")
    decided("web", spec({"placementType": "PickAll"}))
    cordon(["a", "b"], by=None, now=NOW)

    with pytest.raises(UnschedulesEverything):
        reschedule("web", by=None, now=NOW)

    assert PolicySnapshot.objects.count() == 1
    assert Binding.objects.count() == 2
    reschedule("web", by=None, now=NOW, confirmed=True)
    assert PolicySnapshot.objects.count() == 2
