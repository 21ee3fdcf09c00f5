"""The pace of a drain: which placements go first, how many at once, and what is left at its deadline."""

from datetime import timedelta

import pytest

from clusters.models import ClusterTaint
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.models import Event
from placements.models import Drain, DrainStep, Eviction
from placements.services.disruption.budgets import delete_budget, save_budget
from placements.services.disruption.drains import Pace, drain
from placements.services.disruption.queries import left_of, step_sentence
from tests.rows import spec
from tests.services.rollouts.test_drain import FIXED, is_over, steps, world_with
from tests.services.rollouts.test_evictions import budget
from tests.services.rollouts.world import SECOND

pytestmark = pytest.mark.django_db


def evicted() -> list[str]:
    """Name what was evicted, in order."""
    return list(
        Eviction.objects.order_by("pk").values_list("placement_name", flat=True)
    )


def sentences() -> dict[str, str]:
    """Return what is said of every placement of the last drain."""
    last = Drain.objects.latest("pk")
    return {step.placement_name: step_sentence(step) for step in last.steps.all()}


@pytest.mark.nightly
def test_the_placements_that_are_named_go_first_in_that_order_the_others_by_name() -> (
    None
):
    world = world_with(2, **{name: spec() for name in ("a", "b", "c", "d")})

    drain(["c001"], by=None, now=world.now, pace=Pace(at_once=1, first=("d", "b")))
    world.run(until=is_over)

    assert evicted() == ["d", "b", "a", "c"]


@pytest.mark.nightly
def test_at_the_deadline_a_drain_expires_and_shows_what_is_left() -> None:
    world = world_with(3, web=spec(), ledger=spec(), fixed=spec(FIXED))
    save_budget(budget("ledger", minAvailable=3), by=None, now=world.now)

    drain(["c001"], by=None, now=world.now, pace=Pace(deadline=world.now + 10 * SECOND))
    world.run(until=is_over)

    row = Drain.objects.get()
    assert (row.state, row.ended_reason) == (
        "expired",
        "the deadline passed with 2 placements left",
    )
    assert row.ended_at is not None
    assert (
        timedelta(seconds=10) <= row.ended_at - row.started_at <= timedelta(seconds=12)
    )
    assert [step.placement_name for step in left_of(row)] == ["fixed", "ledger"]
    assert Event.objects.get(verb="drain expired").after == {
        "because": row.ended_reason,
        "left": ["fixed", "ledger"],
        "leftCount": 2,
    }
    assert steps()["web"] == ("gone", "")


@pytest.mark.nightly
def test_after_the_deadline_nothing_more_is_evicted_the_cordon_stays_and_what_began_leaves() -> (
    None
):
    world = world_with(2, web=spec(), ledger=spec())
    world.inject("c001", {"kind": "unreachable"})
    drain(
        ["c001"],
        by=None,
        now=world.now,
        pace=Pace(at_once=1, deadline=world.now + 6 * SECOND),
    )
    world.run(until=is_over)

    assert Drain.objects.get().state == "expired"
    assert steps() == {"ledger": ("leaving", "leaving"), "web": ("waiting", "")}
    assert sentences() == {
        "ledger": "Removal was in progress when the drain ended.",
        "web": "Not evicted before the drain ended.",
    }
    world.inject("c001")
    world.pass_time(60)
    assert (evicted(), world.available("ledger"), len(world.available("web"))) == (
        ["ledger"],
        ["c000"],
        2,
    )
    assert ClusterTaint.objects.filter(cluster__name="c001").exists()


@pytest.mark.nightly
def test_a_drain_that_has_moved_everything_by_its_deadline_is_done() -> None:
    world = world_with(2, web=spec())

    drain(["c001"], by=None, now=world.now, pace=Pace(deadline=world.now + 60 * SECOND))
    world.run(until=is_over)
    world.pass_time(60)

    assert Drain.objects.get().state == "done"


@pytest.mark.servers_only
@pytest.mark.servers
def test_an_expired_drain_can_be_begun_again() -> None:
    world = world_with(2, web=spec())
    save_budget(budget(minAvailable=2), by=None, now=world.now)
    drain(["c001"], by=None, now=world.now, pace=Pace(deadline=world.now + 4 * SECOND))
    world.run(until=is_over)
    delete_budget("web", by=None, now=world.now)

    [again] = drain(["c001"], by=None, now=world.now)
    world.run(until=is_over)

    again.refresh_from_db()
    assert (again.state, again.deadline) == ("done", None)
    assert list(Drain.objects.order_by("pk").values_list("state", flat=True)) == [
        "expired",
        "done",
    ]


@pytest.mark.servers_only
@pytest.mark.servers
def test_draining_again_at_another_pace_changes_the_drain_that_runs() -> None:
    world = world_with(2, **{f"p{number}": spec() for number in range(4)})
    world.inject("c001", {"kind": "unreachable"})
    [first] = drain(["c001"], by=None, now=world.now, pace=Pace(at_once=1))
    world.pass_time(3)

    [same] = drain(
        ["c001"], by=None, now=world.now, pace=Pace(at_once=3, first=("p3",))
    )
    world.pass_time(3)

    assert same == first
    assert Drain.objects.get().first == ["p3"]
    assert {name for name, (state, _) in steps().items() if state == "leaving"} == {
        "p0",
        "p1",
        "p3",
    }
    event = Event.objects.get(verb="drain pace changed")
    assert (event.before, event.after) == (
        {"atOnce": 1},
        {"atOnce": 3, "order": ["p3"]},
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("pace", "paths"),
    [
        (Pace(at_once=0), ["atOnce"]),
        (Pace(at_once=101), ["atOnce"]),
        (Pace(first=("web", "no", "web")), ["order[1]", "order[2]"]),
    ],
)
def test_a_pace_that_will_not_do_is_refused_and_nothing_is_cordoned(
    pace: Pace, paths: list[str]
) -> None:
    world = world_with(1, web=spec())

    with pytest.raises(InvalidManifest) as refused:
        drain(["c000"], by=None, now=world.now, pace=pace)

    assert [error.path for error in refused.value.errors] == paths
    assert not Drain.objects.exists()
    assert not ClusterTaint.objects.exists()


@pytest.mark.nightly
def test_a_deadline_that_is_over_is_refused() -> None:
    world = world_with(1, web=spec())

    with pytest.raises(InvalidManifest) as refused:
        drain(["c000"], by=None, now=world.now, pace=Pace(deadline=world.now))

    assert [error.path for error in refused.value.errors] == ["deadline"]
    assert not DrainStep.objects.exists()
