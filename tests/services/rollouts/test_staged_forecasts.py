"""The time left of staged runs: stages one after the other, timed waits exactly, approvals never guessed."""

from typing import Any

import pytest

from placements.explain.rollouts import eta_sentence, eta_words
from placements.models import StagedRun
from placements.services.rollouts.operations import pause
from placements.services.rollouts.queries import progress_document
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec

pytestmark = pytest.mark.django_db
BY_STAGE = {
    "canary": ["c000", "c001"],
    "prod": [f"c{number:03}" for number in range(2, 12)],
}
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
    made = StagedWorld(
        BY_STAGE,
        stage("canary", after=True, wait=f"{WAIT}s"),
        stage("prod", most="50%"),
    )
    made.place("web", staged_spec())
    _run(made, "first")
    made.change()
    return made


@pytest.mark.nightly
def test_the_next_run_is_forecast_from_the_last_one_then_by_its_own_rate_without_its_approval() -> (
    None
):
    world = _world()
    world.begin("second")
    world.work()
    eta = _eta("second")
    assert eta["left"]["runs"] == 1
    assert eta["left"]["seconds"] > WAIT
    assert eta["approvals"] == 1
    assert " left, not counting 1 approval (median of 1 past run)" in eta_sentence(
        eta, now=world.now
    )
    assert (
        progress_document(StagedRun.objects.get(full_name="second"))["eta"][
            "remaining"
        ]["runs"]
        == 1
    )

    world.run(until=lambda: "approval-after" in world.waits("second"))
    world.pass_time(1_800, step=60)
    world.approve("second", "canary")
    world.run(until=lambda: (_eta("second")["left"] or {}).get("runs") == 0)
    found, at = _eta("second")["left"]["seconds"], world.now
    world.run(until=lambda: world.status("second") == "succeeded")
    assert found == pytest.approx((world.now - at).total_seconds(), abs=60)
    assert (
        progress_document(StagedRun.objects.get(full_name="second"))["eta"][
            "remaining"
        ]["seconds"]
        == 0
    )
    assert _eta("second")["waiting"]["approval"] >= 1_700


def test_a_run_that_waits_for_a_person_has_no_time_left_at_any_door() -> None:
    world = StagedWorld(BY_STAGE, stage("canary", after=True), stage("prod"))
    world.place("web", staged_spec())
    world.begin("first")
    world.run(until=lambda: "approval-after" in world.waits("first"))

    eta = _eta("first")
    run = StagedRun.objects.get()
    assert (eta["left"], eta["reason"]) == (None, "approval")
    words = "No forecast while the run waits for approval."
    assert eta_words(run.forecast, now=world.now) == words
    assert progress_document(run)["eta"]["reason"] == words

    world.approve("first", "canary")
    world.work()
    StagedRun.objects.update(eta={**eta, "left": {"seconds": 9.0, "runs": 0}})
    pause("web", by=None, now=world.now)
    run = StagedRun.objects.get()
    assert eta_sentence(run.forecast, now=world.now) == ""
    assert progress_document(run)["eta"]["remaining"] is None


@pytest.mark.nightly
def test_a_paused_run_has_none() -> None:
    world = StagedWorld(BY_STAGE, stage("canary", after=True), stage("prod"))
    world.place("web", staged_spec())
    world.begin("second")
    world.work()
    world.set("second", "Stop")
    world.go_on(40)
    assert (_eta("second")["left"], _eta("second")["reason"]) == (None, "paused")
