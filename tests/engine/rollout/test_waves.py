"""The waves beforehand: who is in which, for saved changes and for drafts."""

from unittest.mock import Mock

import pytest

from placements.engine.rollout import rolling_update, waves
from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.state import Phase, Suspension
from placements.engine.rollout.waves import compare_limits, plan_waves
from tests.builders import pick_n
from tests.engine.rollout.states import (
    NEW,
    after,
    available,
    blocks,
    brief,
    budget,
    cluster,
    done,
    empty,
    leaving,
    state,
)


def test_without_surge_removals_and_replacements_take_turns() -> None:
    facts = (*map(empty, "abc"), *map(leaving, "xyz"))

    made = plan_waves(state(*facts, policy=pick_n(3), strategy=budget(1, 0)))

    assert [brief(wave.actions) for wave in made.waves] == [
        "-x",
        "a:add",
        "-y",
        "b:add",
        "-z",
        "c:add",
    ]
    assert [wave.budgets.additions.holding for wave in made.waves] == [3, 2, 3, 2, 3, 2]
    assert made.rest.phase is RunPhase.FINISHED


def test_a_draft_says_who_joins_leaves_and_changes() -> None:
    now = state(done("a"), done("b"), policy=pick_n(2), strategy=budget(1))

    made = plan_waves(now.with_wanted({"b": "v3", "c": "v3"}, pick_n(2)))

    assert [brief(wave.actions) for wave in made.waves] == ["-a c:add", "b:update"]
    assert {
        action.cluster: wave.number for wave in made.waves for action in wave.actions
    } == {
        "a": 1,
        "b": 2,
        "c": 1,
    }


def test_a_pause_and_waits_for_a_retry_are_overlooked() -> None:
    failed = cluster("a", Phase.FAILED, runs=NEW, attempts=1, retry_at=after(99))

    made = plan_waves(
        state(failed, available("b"), strategy=budget(1), suspension=Suspension.PAUSED)
    )

    assert [brief(wave.actions) for wave in made.waves] == ["a:retry", "b:update"]


def test_what_would_never_start_is_reported_at_the_end() -> None:
    made = plan_waves(state(*map(leaving, "ab"), policy=pick_n(3), strategy=budget(2)))

    assert [brief(wave.actions) for wave in made.waves] == ["-a"]
    assert (made.rest.phase, blocks(made.rest)) == (
        RunPhase.HALTED,
        {"b": "removal-floor"},
    )


def test_other_limits_are_compared_with_that_of_the_strategy() -> None:
    running = state(
        *(done(f"c{number:02}") for number in range(40)), strategy=budget(8, 0)
    )
    changed = running.with_wanted({f"c{number:02}": "v3" for number in range(40)})

    compared = compare_limits(plan_waves(changed))

    assert [(str(limit.max_unavailable), *limit[1:]) for limit in compared] == [
        ("5%", 2, 38, 20),
        ("10%", 4, 36, 10),
        ("8", 8, 32, 5),
        ("25%", 10, 30, 4),
    ]


def test_limits_are_compared_without_another_look_at_the_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = state(*(done(f"c{number:02}") for number in range(40)))
    plan = plan_waves(
        running.with_wanted({f"c{number:02}": "v3" for number in range(40)})
    )
    counted = Mock(wraps=rolling_update.plan_work)
    monkeypatch.setattr(waves, "plan_work", counted)

    compared = compare_limits(plan)

    assert len(compared) == 4
    assert counted.call_count == 0
