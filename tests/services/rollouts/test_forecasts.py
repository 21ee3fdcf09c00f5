"""The forecast of a rollout: from which runs, why there is none, how often it is computed and was right."""

from datetime import timedelta
from typing import Any

import pytest

from placements.engine.rollout.forecast import forecast
from placements.explain.rollouts import eta_document, eta_sentence
from placements.models import Placement, Rollout
from placements.services.rollouts import forecasts
from placements.services.rollouts.forecasts import calibration_of
from tests.rows import pick_n_spec, spec
from tests.services.rollouts.world import World, world_once

pytestmark = pytest.mark.django_db
CLUSTERS = 12
WAITS = {"approval": 0, "period": 0, "budget": 0, "cluster": 0}


def _updated() -> World:
    """Return a world that has placed on all clusters and updated them once, three at a time."""
    made = World(CLUSTERS, connection={"applyMilliseconds": 0, "readySeconds": 8})
    rolling = {"maxUnavailable": 3, "maxSurge": 3, "unavailablePeriodSeconds": 20}
    made.place("web", spec(strategy={"type": "RollingUpdate", "rollingUpdate": rolling}))
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


@pytest.mark.nightly
def test_the_first_update_has_no_forecast_and_the_next_one_is_based_on_it(world: World) -> None:
    first = Rollout.objects.get(number=2).eta
    assert (first["remaining"], first["reason"]) == (None, "no-history")

    world.change()
    world.work()
    at_start = _eta()["remaining"]
    assert at_start["basis"] == {"runs": 1, "clusters": CLUSTERS, "source": "placement"}
    begun_at = world.now
    world.run(until=world.is_settled)

    run = Rollout.objects.latest("number")
    assert run.ended_at is not None
    took = (run.ended_at - begun_at).total_seconds()
    assert at_start["p10"] <= took <= at_start["p90"]
    kept = [one["progress"] for one in _eta()["kept"]]
    assert kept[0] == 0
    assert kept[-1] in (30, 60)
    calibration = calibration_of(Placement.objects.get().rollouts.filter(state="finished"))
    assert calibration["judged"] == len(kept)
    assert calibration["right"] >= 1


@pytest.mark.nightly
def test_it_is_computed_every_15_seconds_at_most(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def counted(*args: Any, **more: Any) -> Any:
        computed.append(1)
        return forecast(*args, **more)

    monkeypatch.setattr(forecasts, "forecast", counted)
    world.change()
    world.work()
    took = world.run(until=world.is_settled)

    assert 1 <= len(computed) <= took / 15 + 1


@pytest.mark.nightly
def test_edits_in_quick_succession_cost_one_forecast(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(*args: Any) -> Any:
        read.append(1)
        return history(*args)

    history = forecasts.history_of
    monkeypatch.setattr(forecasts, "history_of", counted)
    for _ in range(10):
        world.change()
        world.pass_time()

    assert len(read) == 1
    assert _eta()["remaining"] is None
    world.pass_time(10)
    assert len(read) == 2


@pytest.mark.nightly
def test_a_pause_and_a_small_rollout_say_why_there_is_none(world: World) -> None:
    world.change()
    world.work()
    Placement.objects.update(paused_since=world.now, paused_by="ana", rollout_generation=99)
    world.pass_time(6)
    assert _eta()["reason"] == "paused"

    world.place("few", pick_n_spec(3))
    assert Rollout.objects.get(placement_name="few").eta["reason"] == "small"


@pytest.mark.nightly
def test_seconds_in_which_nothing_could_start_are_counted_under_one_cause(world: World) -> None:
    world.change()
    world.work()
    world.run(until=world.is_settled)

    waiting = _eta()["waiting"]
    run = Rollout.objects.latest("number")
    assert run.ended_at is not None
    assert waiting["budget"] > 0
    assert sum(waiting.values()) <= (run.ended_at - run.started_at).total_seconds()


@pytest.mark.nightly
def test_the_document_and_the_sentence_pass_with_time(world: World) -> None:
    at = world.now
    remaining = {
        "p10": 110,
        "p50": 300,
        "p90": 700,
        "slower": 1,
        "basis": {"runs": 3, "clusters": 96, "source": "placement"},
    }
    eta = {"at": at.isoformat(), "remaining": remaining, "reason": "", "waiting": WAITS}

    assert eta_sentence(eta, now=at) == (
        "about 2 to 12 min left (based on 3 runs; 1 cluster slower than in any past run)"
    )
    later = at + timedelta(seconds=620)
    assert eta_sentence(eta, now=later) == (
        "about 10 to 80 s left (based on 3 runs; 1 cluster slower than in any past run)"
    )
    ended = eta_document(eta, started_at=at, ended_at=later, now=later + timedelta(hours=1))
    assert (ended["elapsed"], ended["remaining"]["p90"]) == (620, 0)
