"""A user acts, or another worker syncs, while a sync of a drain runs: pace and pauses hold."""

from collections.abc import Callable
from typing import Any

import pytest

from placements.models import Drain, DrainStep, Eviction, Placement
from placements.services.disruption import drains
from placements.services.disruption.drains import Pace, drain, take_steps
from placements.services.rollouts import operations
from tests.rows import spec
from tests.services.rollouts.test_drain import steps, world_with
from tests.services.rollouts.world import SECOND

pytestmark = [pytest.mark.django_db, pytest.mark.servers]


def first(
    patched: pytest.MonkeyPatch,
    name: str,
    act: Callable[[], object],
    *,
    after: bool = False,
) -> None:
    """Call a function before, or after, the first call of a step of the drain."""
    real: Callable[..., Any] = getattr(drains, name)
    acts = [act]

    def step(*given: Any, **more: Any) -> Any:
        result = real(*given, **more) if after else None
        if acts:
            acts.pop()()
        return result if after else real(*given, **more)

    patched.setattr(drains, name, step)


@pytest.mark.servers_only
def test_a_placement_that_is_paused_in_that_moment_is_not_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with(2, web=spec())
    [row] = drain(["c001"], by=None, now=world.now)
    first(monkeypatch, "judge", lambda: operations.pause("web", by=None, now=world.now))

    take_steps(row, now=world.now)

    assert steps() == {"web": ("blocked", "held")}
    assert not Eviction.objects.exists()


@pytest.mark.servers_only
def test_two_looks_at_once_keep_the_pace_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with(2, **{f"p{number}": spec() for number in range(4)})
    [row] = drain(["c001"], by=None, now=world.now, pace=Pace(at_once=2))
    other = Drain.objects.get()
    first(
        monkeypatch, "note_steps", lambda: take_steps(other, now=world.now), after=True
    )

    take_steps(row, now=world.now)

    assert DrainStep.objects.filter(state="leaving").count() == 2
    assert Eviction.objects.count() == 2


@pytest.mark.servers_only
def test_a_pace_that_is_slowed_down_meanwhile_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with(2, a=spec(), b=spec())
    [row] = drain(["c001"], by=None, now=world.now)
    slower = Pace(at_once=1)
    first(
        monkeypatch,
        "note_steps",
        lambda: drain(["c001"], by=None, now=world.now, pace=slower),
        after=True,
    )

    take_steps(row, now=world.now)

    assert DrainStep.objects.filter(state="leaving").count() == 1


@pytest.mark.servers_only
def test_two_drains_do_not_evict_one_placement_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with(4, web=spec())
    row, other = drain(["c001", "c002"], by=None, now=world.now)
    first(monkeypatch, "judge", lambda: take_steps(other, now=world.now))

    take_steps(row, now=world.now)

    assert list(Eviction.objects.values_list("cluster_name", flat=True)) == ["c002"]


def test_a_deadline_that_is_put_off_in_that_moment_is_not_kept() -> None:
    world = world_with(2, web=spec())
    drain(["c001"], by=None, now=world.now, pace=Pace(deadline=world.now + 5 * SECOND))
    Placement.objects.update(paused_since=world.now, paused_by="ana")
    row_before = Drain.objects.get()
    drain(
        ["c001"], by=None, now=world.now, pace=Pace(deadline=world.now + 500 * SECOND)
    )

    drains._continue(row_before, now=world.now + 6 * SECOND)

    assert Drain.objects.get().state == "running"
