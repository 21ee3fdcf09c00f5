"""What people read about staged runs, overrides and evictions: a sentence for everything there is to say."""

from datetime import timedelta

import pytest

from placements.engine.disruption import (
    EvictionReason,
    Executed,
    Invalid,
    NotExecuted,
    Numbers,
)
from placements.engine.overrides import OverrideFailed
from placements.engine.rollout.staged_run import (
    StagedRunOutcome,
    StageReason,
    Wait,
    WaitReason,
)
from placements.explain.staged_updates import (
    _REASONS,
    eviction_sentence,
    override_sentence,
    reason_sentence,
    run_sentences,
    wait_sentence,
)
from placements.manifests.staged_update import RunState
from tests.builders import cluster
from tests.engine.rollout.staged_world import START, World, begin, stage

PICKED = [cluster(name, env="prod") for name in ("c1", "c2", "c3")]


def prod() -> World:
    return World(
        begin(
            [stage("prod", env="prod", maxConcurrency=2)], *PICKED, unscheduled=("z",)
        )
    )


def test_a_run_says_its_arithmetic_and_what_it_waits_for() -> None:
    assert run_sentences(prod().go()) == [
        "Stage prod: 2 updating, 0 done, 1 pending (max 2 at a time).",
        "Stage prod: waiting for c1 and c2.",
    ]


def test_a_cluster_that_failed_is_not_counted_as_updating() -> None:
    world = prod()
    world.failures = {"c1": 1}
    world.go()
    world.pass_time(10)

    assert run_sentences(world.go())[0] == (
        "Stage prod: 1 updating, 1 failed, 0 done, 1 pending (max 2 at a time)."
    )


def test_a_run_says_that_it_is_stuck() -> None:
    world = prod()
    world.go()
    world.now += timedelta(minutes=5)

    assert run_sentences(world.go())[-1] == "Stuck: c1 and c2 not updated within 5m."


def test_a_run_says_how_it_ended() -> None:
    world = prod()
    world.reach("z", reachable=False)
    world.go_on()

    assert world.run.outcome is StagedRunOutcome.SUCCEEDED
    assert run_sentences(world.sync_result()) == [
        "3 of 3 clusters updated.",
        "Unreachable; resources may remain: z.",
    ]


def test_a_run_says_why_it_failed() -> None:
    world = prod()
    world.run = world.run.end(
        StagedRunOutcome.FAILED, START, StageReason("in-no-stage", ("c1", "c3"))
    )

    assert run_sentences(world.go()) == [
        "No stage selects c1 and c3.",
        "0 of 3 clusters updated.",
        "Start a new run.",
    ]


def test_a_stopped_run_says_how_it_goes_on() -> None:
    world = prod()
    world.state = RunState.STOP

    assert run_sentences(world.go()) == ["Waiting for a user to resume the run."]


@pytest.mark.parametrize("what", WaitReason)
def test_everything_to_wait_for_has_one_sentence(what: WaitReason) -> None:
    sentence = wait_sentence(Wait(what, "prod", ("c1", "c2"), START))

    assert sentence.endswith(".")
    assert sentence[0].isupper()


def test_a_timed_wait_shows_the_time() -> None:
    assert wait_sentence(Wait(WaitReason.TIME, "prod", until=START)) == (
        "Stage prod updated; waiting until 2026-08-20 12:00:00 UTC."
    )


@pytest.mark.nightly
@pytest.mark.parametrize("code", _REASONS)
def test_every_reason_has_one_sentence(code: str) -> None:
    assert reason_sentence(StageReason(code, ("c1",), 3, 2)).endswith(".")


@pytest.mark.nightly
@pytest.mark.parametrize("why", EvictionReason)
def test_every_verdict_has_one_sentence(why: EvictionReason) -> None:
    for verdict in (Executed(why), NotExecuted(why), Invalid(why)):
        assert eviction_sentence(verdict).endswith(".")


def test_an_eviction_that_a_budget_holds_back_shows_the_numbers() -> None:
    assert eviction_sentence(
        NotExecuted(EvictionReason.OVER_BUDGET, Numbers(3, 3, 0, 0))
    ) == (
        "Not executed: the disruption budget does not allow it (3 of 3 available, 0 may go)."
    )


def test_an_override_that_does_not_fit_is_named_with_its_place() -> None:
    failure = OverrideFailed(
        "shop/ro-0",
        "spec.policy.overrideRules[0]",
        "v1 ConfigMap shop/a",
        "no such key",
    )

    assert override_sentence(failure, "bravelion") == (
        "Nothing is sent to bravelion: override shop/ro-0 at spec.policy.overrideRules[0] does not fit "
        "v1 ConfigMap shop/a: no such key."
    )
