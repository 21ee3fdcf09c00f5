"""After a drain: what would come back to the cluster, and rescheduling a placement so that it does."""

import pytest

from clusters.operations.edit import change_labels, uncordon
from placements.models import Placement, PolicySnapshot
from placements.services.disruption.drains import drain
from placements.services.disruption.restore import bring_back, fresh_schedule
from placements.services.placements import delete_placement
from placements.services.rescheduling import reschedule
from placements.services.results import UnknownPlacementError
from placements.services.rollouts.operations import ActionNotAllowed
from tests.rows import pick_n_spec, spec
from tests.services.rollouts.test_drain import FIXED, Drained, is_over

pytestmark = pytest.mark.django_db
BY_REGION = {
    "topologySpreadConstraints": [
        {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    ]
}


def drained() -> Drained:
    """Return a world of three clusters, one in the east, after that one was drained."""
    world = Drained(3)
    for name, region in (("c000", "east"), ("c001", "west"), ("c002", "west")):
        change_labels([name], put={"region": region}, by=None, now=world.now)
    world.place("all", spec())
    world.place("fixed", spec({**FIXED, "clusterNames": ["c000"]}))
    world.place("gone", spec())
    world.place("spread", pick_n_spec(2, **BY_REGION))
    world.place("three", pick_n_spec(3))
    world.place("two", pick_n_spec(2))
    world.run(until=world.is_settled)
    drain(["c000"], by=None, now=world.now)
    world.run(until=lambda: is_over() and world.is_settled())
    delete_placement("gone", by=None, now=world.now)
    return world


def found() -> dict[str, tuple[str, str]]:
    """Return how every placement would come back to c000, and what is said of it."""
    return {row.placement: (row.how, row.message) for row in bring_back("c000").rows}


@pytest.mark.servers_only
@pytest.mark.servers
def test_it_says_of_each_placement_that_the_drain_took_off_how_it_would_come_back() -> (
    None
):
    world = drained()

    assert bring_back("c000").is_cordoned
    assert found() == {
        "spread": ("rescheduled", "Would be selected if rescheduled, replacing c001."),
        "all": ("by-itself", "Returns automatically once the cluster is uncordoned."),
        "three": ("by-itself", "Returns automatically once the cluster is uncordoned."),
    }
    assert not PolicySnapshot.objects.filter(number__gt=0).exists()
    uncordon(["c000"], by=None, now=world.now)
    world.pass_time(30)
    assert not bring_back("c000").is_cordoned
    assert {name: how for name, (how, _) in found().items()} == {
        "spread": "rescheduled",
        "all": "here",
        "three": "here",
    }


@pytest.mark.nightly
def test_rescheduling_does_within_the_rollout_what_its_preview_showed() -> None:
    world = drained()
    uncordon(["c000"], by=None, now=world.now)
    world.pass_time(10)
    message = fresh_schedule(Placement.objects.get(name="spread"))

    reschedule("spread", by=None, now=world.now)
    world.pass_time(120)

    assert (message.joins, message.leaves) == (("c000",), ("c001",))
    assert (message.placed_before, message.placed_after, message.is_fulfilled) == (
        2,
        2,
        True,
    )
    assert world.available("spread") == ["c000", "c002"]
    snapshots = PolicySnapshot.objects.filter(placement__name="spread").order_by(
        "number"
    )
    assert [
        (snapshot.number, snapshot.is_latest, snapshot.created_by)
        for snapshot in snapshots
    ] == [
        (0, False, "system"),
        (1, True, "system"),
    ]
    assert len({snapshot.content_hash for snapshot in snapshots}) == 1
    assert found()["spread"][0] == "here"


@pytest.mark.servers_only
@pytest.mark.servers
def test_a_fresh_schedule_that_has_no_better_place_leaves_everything_where_it_is() -> (
    None
):
    world = drained()
    uncordon(["c000"], by=None, now=world.now)
    before = world.available("two")

    reschedule("two", by=None, now=world.now)
    world.pass_time(30)

    assert world.available("two") == before


@pytest.mark.nightly
def test_what_cannot_be_rescheduled_is_refused_with_the_reason() -> None:
    world = drained()

    with pytest.raises(ActionNotAllowed, match="names its clusters"):
        reschedule("fixed", by=None, now=world.now)
    with pytest.raises(ActionNotAllowed, match="is being deleted"):
        reschedule("gone", by=None, now=world.now)
    with pytest.raises(UnknownPlacementError):
        reschedule("missing", by=None, now=world.now)


def test_nothing_comes_back_to_a_cluster_that_was_never_drained() -> None:
    Drained(1)

    assert bring_back("c000").rows == ()
