"""A slow worker selects the resources of a placement; what a user saved or rolled back meanwhile holds."""

from typing import Any

import pytest
from django.db.models import F

from clusters.queries import current_fleet
from placements.models import Placement, ResourceSnapshot
from placements.services.placements import delete_placement, save_placement
from placements.services.resources.operations import apply_resources
from placements.services.resources.snapshots import PlacementChanged, refresh_resources
from placements.services.rollouts.operations import roll_back
from placements.services.scheduling import schedule_placement
from placements.services.snapshots import cycles_of
from tests.rows import (
    NOW,
    config_map,
    decided,
    joined,
    namespace,
    pick_n_spec,
    placement_document,
    run_due,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def slow() -> Placement:
    """Return a placement of the namespace `shop` as a slow worker has read it: what it selects is due."""
    apply_resources([namespace("shop"), namespace("bank")], by=None, now=NOW)
    joined("a")
    decided("web", pick_n_spec(1))
    apply_resources([config_map("prices", data={"a": "1"})], by=None, now=NOW)
    run_due()
    apply_resources([config_map("prices", data={"a": "2"})], by=None, now=NOW)
    return Placement.objects.get()


def latest() -> tuple[int, list[str]]:
    """Return the number of the latest snapshot, and the names in it."""
    row = ResourceSnapshot.objects.get(is_latest=True)
    return row.number, [name for *_, name in row.identities]


@pytest.mark.nightly
def test_an_older_selection_does_not_follow_a_newer_one(slow: Placement) -> None:
    other = {"group": "", "version": "v1", "kind": "Namespace", "name": "bank"}
    document = placement_document(
        "web", {**pick_n_spec(1), "resourceSelectors": [other]}
    )
    save_placement(document, by=None, now=NOW)
    run_due()

    with pytest.raises(PlacementChanged):
        refresh_resources(slow, now=NOW)

    assert latest() == (2, ["bank"])
    now = Placement.objects.get()
    assert now.selection_observed == now.selection_generation


def test_a_rollback_holds(slow: Placement) -> None:
    restored = roll_back("web", 0, by=None, now=NOW)

    with pytest.raises(PlacementChanged):
        refresh_resources(slow, now=NOW)

    assert latest()[0] == restored.number


@pytest.mark.nightly
def test_a_placement_that_is_gone_meanwhile_is_let_be(
    slow: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(placement: Placement, **more: Any) -> bool:
        assert delete_placement("web", by=None, now=NOW)
        return refresh_resources(placement, **more)

    monkeypatch.setattr("placements.services.scheduling.refresh_resources", gone)

    assert schedule_placement(slow.pk, now=NOW) is None
    assert not ResourceSnapshot.objects.exists()


def test_a_deletion_that_another_worker_records_meanwhile_is_left_to_it(
    slow: Placement, monkeypatch: pytest.MonkeyPatch
) -> None:
    Placement.objects.update(deleting_since=NOW)

    def answered(_: Placement, **_now: object) -> bool:
        Placement.objects.update(observed_generation=F("generation"))
        return False

    monkeypatch.setattr("placements.services.scheduling.finish_deletion", answered)

    assert schedule_placement(slow.pk, now=NOW) is None
    assert Placement.objects.get().lease_expires_at is None


@pytest.mark.nightly
def test_a_placement_that_is_deleted_meanwhile_has_no_cycle(slow: Placement) -> None:
    kept = decided("kept", pick_n_spec(1))
    Placement.objects.filter(pk=slow.pk).delete()

    cycles = cycles_of([slow, kept], current_fleet().fleet)

    assert [placement.name for placement, _ in cycles] == ["kept"]
