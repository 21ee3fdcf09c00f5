"""The time left of staged runs: stages one after the other, timed waits exactly, approvals never guessed."""

from typing import Any

import pytest

from placements.explain.rollouts import eta_sentence
from placements.models import StagedRun
from placements.services.rollouts import forecasts
from placements.services.rollouts.forecasts import calibration_of
from placements.services.rollouts.staged_queries import progress_of
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec

pytestmark = pytest.mark.django_db
BY_STAGE = {"canary": ["c000", "c001"], "prod": [f"c{number:03}" for number in range(2, 12)]}
WAIT = 60


def _run(world: StagedWorld, name: str) -> None:
    world.begin(name)
    world.run(until=lambda: "approval-after" in world.waits(name))
    world.approve(name, "canary")
    world.run(until=lambda: world.status(name) == "succeeded")


def _eta(name: str) -> dict[str, Any]:
    return StagedRun.objects.get(full_name=name).eta


def _world() -> StagedWorld:
    """Return twelve clusters that one run has updated: a canary with a gate, then the rest."""
    made = StagedWorld(BY_STAGE, stage("canary", after=True, wait=f"{WAIT}s"), stage("prod", most="50%"))
    made.place("web", staged_spec())
    _run(made, "first")
    made.change()
    return made


@pytest.mark.nightly
def test_the_next_run_is_forecast_with_its_timed_wait_and_without_its_approval() -> None:
    world = _world()
    assert _eta("first")["reason"] in ("no-history", "")

    world.begin("second")
    world.work()
    eta = _eta("second")
    begun_at = world.now

    remaining = eta["remaining"]
    assert remaining["basis"] == {"runs": 1, "clusters": 12, "source": "placement"}
    assert remaining["p10"] > WAIT
    assert eta["approvals"] == 1
    assert " of work, without 1 approval (based on 1 run)" in eta_sentence(eta, now=world.now)
    assert progress_of(StagedRun.objects.get(full_name="second"))["eta"]["remaining"]["basis"]["runs"] == 1
    world.run(until=lambda: "approval-after" in world.waits("second"))
    world.approve("second", "canary")
    world.run(until=lambda: world.status("second") == "succeeded")
    took = (world.now - begun_at).total_seconds()
    assert remaining["p10"] <= took <= remaining["p90"] + 60  # a sync may come later than the end of a wait
    assert progress_of(StagedRun.objects.get(full_name="second"))["eta"]["remaining"]["p90"] == 0

    kept = _eta("second")["kept"]
    assert kept[0]["progress"] == 0
    world.change()
    world.begin("third")
    world.work()
    calibration = progress_of(StagedRun.objects.get(full_name="third"))["eta"]["calibration"]
    assert calibration["judged"] == len(kept)


@pytest.mark.nightly
def test_the_seconds_until_an_approval_are_no_part_of_the_judgement() -> None:
    world = _world()
    world.begin("second")
    world.run(until=lambda: "approval-after" in world.waits("second"))
    world.pass_time(1_800, step=60)
    world.approve("second", "canary")
    world.run(until=lambda: world.status("second") == "succeeded")

    assert _eta("second")["waiting"]["approval"] >= 1_700
    assert calibration_of(StagedRun.objects.filter(full_name="second"))["right"]


@pytest.mark.nightly
def test_a_stopped_run_and_a_small_one_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    world = StagedWorld(BY_STAGE, stage("canary", after=True), stage("prod"))
    world.place("web", staged_spec())
    world.begin("second")
    world.work()
    world.set("second", "Stop")
    world.go_on(40)
    assert (_eta("second")["remaining"], _eta("second")["reason"]) == (None, "stopped")

    monkeypatch.setattr(forecasts, "FEWEST_CLUSTERS", 99)
    world.set("second", "Run")
    world.go_on(40)
    assert _eta("second")["reason"] == "small"
