"""The waves beforehand: who is in which, for changes asked for and for drafts."""

from placements.rollout.answer import Verdict
from placements.rollout.plan import plan
from placements.rollout.state import Hold, Phase
from tests.builders import pick_n
from tests.rollout.states import (
    NEW,
    after,
    available,
    blocks,
    budget,
    cluster,
    done,
    empty,
    leaving,
    state,
    told,
)


def test_without_surge_removals_and_replacements_take_turns() -> None:
    facts = (*map(empty, "abc"), *map(leaving, "xyz"))

    made = plan(state(*facts, policy=pick_n(3), strategy=budget(1, 0)))

    assert [told(wave.actions) for wave in made.waves] == ["-x", "a:add", "-y", "b:add", "-z", "c:add"]
    assert [wave.budgets.additions.holding for wave in made.waves] == [3, 2, 3, 2, 3, 2]
    assert made.rest.verdict is Verdict.FINISHED


def test_a_draft_says_who_joins_leaves_and_changes() -> None:
    now = state(done("a"), done("b"), policy=pick_n(2), strategy=budget(1))

    made = plan(now.wanting({"b": "v3", "c": "v3"}, pick_n(2)))

    assert [told(wave.actions) for wave in made.waves] == ["-a c:add", "b:update"]
    assert made.wave_of == {"a": 1, "b": 2, "c": 1}


def test_a_pause_and_waits_for_a_retry_are_overlooked() -> None:
    failed = cluster("a", Phase.FAILED, runs=NEW, attempts=1, retry_at=after(99))

    made = plan(state(failed, available("b"), strategy=budget(1), hold=Hold.PAUSED))

    assert [told(wave.actions) for wave in made.waves] == ["a:retry", "b:update"]


def test_what_would_never_start_is_told_at_the_end() -> None:
    made = plan(state(*map(leaving, "ab"), policy=pick_n(3), strategy=budget(2)))

    assert [told(wave.actions) for wave in made.waves] == ["-a"]
    assert (made.rest.verdict, blocks(made.rest)) == (Verdict.HALTED, {"b": "removal-floor"})
