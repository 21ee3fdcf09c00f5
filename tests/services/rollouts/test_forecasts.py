"""The time left of a rollout: its own rate, before that past runs, and how often it is computed."""

from datetime import timedelta
from typing import Any

import pytest

from placements.engine.rollout.forecast import seconds_left
from placements.explain.rollouts import eta_document, eta_sentence
from placements.models import Placement, Rollout
from placements.services.rollouts import forecasts
from tests.rows import spec
from tests.services.rollouts.world import World, world_once

pytestmark = pytest.mark.django_db
CLUSTERS = 12
WAITS = {"approval": 0, "period": 0, "budget": 0, "cluster": 0}


def _updated() -> World:
    """Return a world that has placed on all clusters and updated them once, three at a time."""
    made = World(CLUSTERS, connection={"applyMilliseconds": 0, "readySeconds": 8})
    rolling = {"maxUnavailable": 3, "maxSurge": 3, "unavailablePeriodSeconds": 20}
    made.place(
        "web", spec(strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    )
    made.run(until=made.is_settled)
    made.change()
    made.work()
    made.run(until=made.is_settled)
    return made


@pytest.fixture
def world() -> World:
    return world_once("updated-twelve", _updated)


def _eta() -> Any:
    return Rollout.objects.latest("number").eta


def test_the_first_update_has_no_forecast_until_its_first_wave_is_done(
    world: World,
) -> None:
    world.change()
    Rollout.objects.filter(number__lt=3).delete()
    world.work()
    first = _eta()
    assert (first["left"], first["reason"]) == (None, "no-rate")

    world.run(until=lambda: bool(_eta()["left"]))
    found, at = _eta()["left"], world.now
    assert found["runs"] == 0
    world.run(until=world.is_settled)

    run = Rollout.objects.latest("number")
    assert run.ended_at is not None
    left = (run.ended_at - at).total_seconds()
    assert found["seconds"] == pytest.approx(left, rel=0.5)


def test_before_its_first_wave_it_is_the_median_of_the_runs_of_the_same_placement(
    world: World,
) -> None:
    past = Rollout.objects.filter(state="finished")
    seconds = sorted(
        (rollout.ended_at - rollout.started_at).total_seconds()
        for rollout in past
        if rollout.ended_at
    )
    world.place("other", spec())

    world.change()
    world.work()

    [eta] = Rollout.objects.filter(placement_name="web", state="running").values_list(
        "eta", flat=True
    )
    assert eta["left"] == {"seconds": pytest.approx(sum(seconds) / 2), "runs": 2}
    other = Rollout.objects.filter(placement_name="other").earliest("number").eta
    assert (other["left"], other["reason"]) == (None, "no-rate")


@pytest.mark.nightly
def test_it_is_computed_every_15_seconds_at_most(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def counted(*args: Any, **more: Any) -> Any:
        computed.append(1)
        return seconds_left(*args, **more)

    monkeypatch.setattr(forecasts, "seconds_left", counted)
    world.change()
    world.work()
    took = world.run(until=world.is_settled)

    assert 1 <= len(computed) <= took / 15 + 1


@pytest.mark.nightly
def test_edits_in_quick_succession_cost_one_forecast(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []

    def counted(*args: Any, **more: Any) -> Any:
        computed.append(1)
        return seconds_left(*args, **more)

    monkeypatch.setattr(forecasts, "seconds_left", counted)
    for _ in range(10):
        world.change()
        world.pass_time()

    assert len(computed) == 1
    assert _eta()["left"] is None


@pytest.mark.nightly
def test_a_pause_says_why_there_is_none(world: World) -> None:
    world.change()
    world.work()
    Placement.objects.update(
        paused_since=world.now, paused_by="ana", rollout_generation=99
    )
    world.pass_time(6)
    assert (_eta()["left"], _eta()["reason"]) == (None, "paused")


@pytest.mark.nightly
def test_seconds_in_which_nothing_could_start_are_counted_under_one_cause(
    world: World,
) -> None:
    world.change()
    world.work()
    world.run(until=world.is_settled)

    waiting = _eta()["waiting"]
    run = Rollout.objects.latest("number")
    assert run.ended_at is not None
    assert waiting["budget"] > 0
    assert sum(waiting.values()) <= (run.ended_at - run.started_at).total_seconds()


def test_the_document_and_the_sentence_pass_with_time(world: World) -> None:
    at = world.now
    eta = {
        "at": at.isoformat(),
        "left": {"seconds": 700.0, "runs": 0},
        "reason": "",
        "waiting": WAITS,
    }

    assert eta_sentence(eta, now=at) == "about 12m left (at the rate until now)"
    later = at + timedelta(seconds=620)
    assert eta_sentence(eta, now=later) == "about 1m20s left (at the rate until now)"
    ended = eta_document(
        eta, started_at=at, ended_at=later, now=later + timedelta(hours=1)
    )
    assert (ended["elapsed"], ended["remaining"]["seconds"]) == (620, 0)
