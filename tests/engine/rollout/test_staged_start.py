"""How a staged run begins, and what ends it from outside (`rules/lifecycle.md#staged-update-runs`)."""

from dataclasses import replace
from typing import Any

import pytest

from placements.engine.rollout.staged_run import (
    CannotStart,
    StagedRunOutcome,
    StagedRunPlan,
    StageReason,
    initialise,
    why_invalid,
)
from tests.builders import cluster
from tests.engine.rollout.staged_world import World, begin, placed, stage, strategy

CANARY = stage("canary", env="canary")
PROD = stage("prod", env="prod", maxConcurrency="70%", sortingLabelKey="order")
A = cluster("a", env="canary")
B, C, D = (cluster(name, env="prod") for name in "bcd")


def reasons(*stages: Any, picked: Any = (), **facts: Any) -> CannotStart:
    """Return why a run cannot start."""
    found = initialise(strategy(stages), placed(*picked, **facts))
    assert isinstance(found, CannotStart)
    return found


def test_stages_become_names_in_their_order() -> None:
    run = begin([CANARY, PROD], B, A, D, C, unscheduled=("z", "y"))

    assert [(one.name, one.cluster_names, one.limit) for one in run.stages] == [
        ("canary", ("a",), 1),
        ("prod", ("b", "c", "d"), 2),
    ]
    assert run.deletions.cluster_names == ("y", "z")


def test_sorts_by_the_whole_number_in_the_label_and_others_after_by_name() -> None:
    ordered = {"b": "10", "c": "9", "d": "-1", "e": "first", "f": ""}
    picked = [cluster(name, env="prod", order=order) for name, order in ordered.items()]

    run = begin([PROD], cluster("a", env="prod"), *picked)

    assert run.stages[0].cluster_names == ("d", "c", "b", "a", "e", "f")


def test_a_stage_without_a_selector_has_no_clusters_and_an_empty_one_has_all() -> None:
    nothing = {"name": "nothing"}
    run = begin([nothing, {"name": "all", "labelSelector": {}}], A, B)

    assert [one.cluster_names for one in run.stages] == [(), ("a", "b")]


def test_every_cluster_is_in_exactly_one_stage() -> None:
    also = stage("also", env="canary")

    found = reasons(CANARY, also, picked=(A, B, C))

    assert found == CannotStart(
        (
            StageReason("in-no-stage", ("b", "c")),
            StageReason("in-several-stages", ("a",)),
        )
    )


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"is_staged": False}, StageReason("not-staged")),
        ({"is_being_deleted": True}, StageReason("being-deleted")),
        ({"expected": 3}, StageReason("other-number", wanted=3, found=1)),
        ({"picked": ()}, StageReason("nothing-to-do")),
    ],
)
def test_cannot_start(facts: Any, reason: StageReason) -> None:
    assert reasons(CANARY, **{"picked": (A,), **facts}) == CannotStart((reason,))


def test_a_placement_that_is_not_decided_may_be_tried_again() -> None:
    assert reasons(CANARY, picked=(A,), is_decided=False) == CannotStart(
        (StageReason("not-decided"),), is_final=False
    )


def test_a_run_may_only_have_deletions() -> None:
    assert begin([CANARY], unscheduled=("z",)).deletions.cluster_names == ("z",)


RUN = begin(
    [CANARY, PROD],
    A,
    B,
    C,
    unscheduled=("z",),
    policy_snapshot="p-0",
    apply_strategy="x",
)


def today(*picked: Any, **facts: Any) -> StagedRunPlan | CannotStart:
    """Initialise again, from other facts."""
    usual = {
        "unscheduled": ("z",),
        "policy_snapshot": "p-0",
        "apply_strategy": "x",
        **facts,
    }
    return initialise(strategy([CANARY, PROD]), placed(*(picked or (A, B, C)), **usual))


@pytest.mark.parametrize(
    ("again", "why"),
    [
        (today(), ()),
        (today(unscheduled=()), ()),
        (today(is_decided=False), ()),
        (today(policy_snapshot="p-1"), (StageReason("new-policy"),)),
        (today(apply_strategy="y"), (StageReason("new-apply-strategy"),)),
        (today(unscheduled=("z", "y")), (StageReason("new-deletions", ("y",)),)),
        (today(A, B), (StageReason("other-stages", ("prod",)),)),
        (
            today(A, B, cluster("c", env="prod", order="1")),
            (StageReason("other-stages", ("prod",)),),
        ),
        (today(A, B, cluster("c", env="none")), (StageReason("in-no-stage", ("c",)),)),
        (today(is_being_deleted=True), (StageReason("being-deleted"),)),
        (today(is_staged=False), (StageReason("not-staged"),)),
        (today(expected=4), (StageReason("other-number", wanted=4, found=3),)),
    ],
)
def test_what_ends_a_run_from_outside(
    again: StagedRunPlan | CannotStart, why: tuple[StageReason, ...]
) -> None:
    assert why_invalid(RUN, again) == why


def test_a_run_of_deletions_alone_goes_on_when_they_are_gone() -> None:
    run = begin([CANARY], unscheduled=("z",))

    assert why_invalid(run, initialise(strategy([CANARY]), placed())) == ()


def test_a_run_that_is_not_valid_any_more_fails_with_the_reason_and_leaves_the_clusters_alone() -> (
    None
):
    world = World(RUN)
    world.go()
    world.today = today(policy_snapshot="p-1")

    answer = world.go()

    assert (answer.run.outcome, answer.run.reasons) == (
        StagedRunOutcome.FAILED,
        (StageReason("new-policy"),),
    )
    assert world.sync_result() == replace(answer, actions=())
    assert world.started == ["a"]
