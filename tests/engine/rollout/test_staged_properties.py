"""What holds for every staged run, whatever happens: random fleets, stages, failures, stops and losses."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.fleet import Cluster
from placements.engine.rollout.staged_run import (
    Approval,
    ApprovalPoint,
    Stage,
    StagedRunOutcome,
    StagedRunPlan,
    StagedUpdateResult,
    initialise,
)
from placements.engine.rollout.state import Phase
from placements.manifests.staged_update import RunState
from tests.builders import cluster
from tests.engine.rollout.staged_world import World, placed, stage, strategy

ENVS = ("one", "two", "three")
CONCURRENCY = st.integers(1, 4) | st.integers(1, 100).map(lambda percent: f"{percent}%")


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a run: up to eight clusters in three stages, some tasks, some removals, some failures."""
    names = [f"c{number}" for number in range(draw(st.integers(1, 8)))]
    picked: list[Cluster] = []
    for name in names:
        order = draw(st.sampled_from(["", "1", "2", "x"]))
        picked.append(cluster(name, env=draw(st.sampled_from(ENVS)), order=order))
    stages = [
        stage(
            env,
            env=env,
            before=draw(st.booleans()),
            after=draw(st.booleans()),
            wait=draw(st.sampled_from(["", "45s"])),
            maxConcurrency=draw(CONCURRENCY),
            sortingLabelKey="order",
        )
        for env in ENVS
    ]
    gone = tuple(f"z{number}" for number in range(draw(st.integers(0, 2))))
    run = initialise(strategy(stages), placed(*picked, unscheduled=gone))
    assert isinstance(run, StagedRunPlan)
    failures = {name: draw(st.integers(0, 2)) for name in (*names, *gone)}
    return World(run, failures=failures)


WHATS = ["sync", "sync", "sync", "crash", "stop", "resume", "lose", "find", "approve"]
EVENTS = st.lists(st.tuples(st.sampled_from(WHATS), st.integers(0, 9)), max_size=60)


def happen(world: World, what: str, which: int) -> None:
    """Apply one random event."""
    name = sorted(world.clusters)[which % len(world.clusters)]
    match what:
        case "sync":
            world.go()
            world.pass_time(world.seconds)
        case "crash":  # stored, and not executed
            world.run = world.sync_result().run
        case "stop":
            world.state = RunState.STOP
        case "resume":
            world.state = RunState.RUN
        case "lose" | "find":
            world.reach(name, reachable=what == "find")
        case "approve":  # there is a request once a sync has stored it
            stored = set(requested(world.run))
            for approval in stored.intersection(world.sync_result().approvals):
                world.approve(approval.stage, approval.when)


def requested(run: StagedRunPlan) -> Iterator[Approval]:
    for one in run.stages:
        if one.requested_before_at:
            yield Approval(one.name, ApprovalPoint.BEFORE)
        if one.requested_after_at:
            yield Approval(one.name, ApprovalPoint.AFTER)


def begun(stage: Stage) -> list[str]:
    return [step.name for step in stage.steps if step.started_at]


def check(world: World, before: StagedRunPlan, state: RunState, tries: int) -> None:
    """Check one step of a run."""
    run = world.run
    for number, one in enumerate(run.stages):
        assert sum(step.is_running for step in one.steps) <= one.limit
        if begun(one):
            assert all(earlier.ended_at for earlier in run.stages[:number])
            assert not one.needs_approval_before or one.approved_before_at
        if one.ended_at and one.steps:
            assert one.is_updated
            assert not one.needs_approval_after or one.approved_after_at
            assert one.updated_at
            assert one.ended_at >= one.updated_at + one.wait
    if begun(run.deletions):
        assert all(one.ended_at for one in run.stages)
    if state is not RunState.RUN:
        assert len(world.started) + len(world.removed) == tries
        assert [begun(one) for one in run.stages] == [
            begun(one) for one in before.stages
        ]
    for one in run.stages:
        for step in one.steps:
            assert (
                step.started_at or world.clusters[step.name].phase is Phase.NOT_STARTED
            )


@given(worlds(), EVENTS)
def test_no_rule_is_ever_broken(world: World, sequence: list[tuple[str, int]]) -> None:
    for what, which in sequence:
        before, state, tries = (
            world.run,
            world.state,
            len(world.started) + len(world.removed),
        )
        happen(world, what, which)
        check(world, before, state, tries)


@pytest.mark.nightly
@given(worlds(), EVENTS)
def test_a_run_whose_clusters_get_well_and_whose_approvals_come_finishes(
    world: World, sequence: list[tuple[str, int]]
) -> None:
    for what, which in sequence:
        happen(world, what, which)
    for name in world.clusters:
        world.reach(name, reachable=True)
    world.state = RunState.RUN

    for number in range(300):
        if (
            world.run.outcome and number % 8 == 0
        ):  # a few steps after the end are checked too
            break
        before, tries = world.run, len(world.started) + len(world.removed)
        happen(world, "sync" if number % 4 else "approve", 0)
        check(world, before, world.state, tries)

    assert world.run.outcome is StagedRunOutcome.SUCCEEDED
    wanted = {step.name: step.version for one in world.run.stages for step in one.steps}
    assert all(
        (world.clusters[name].phase, world.clusters[name].running)
        == (Phase.AVAILABLE, version)
        for name, version in wanted.items()
    )


@given(worlds(), EVENTS)
def test_a_second_sync_changes_nothing(
    world: World, sequence: list[tuple[str, int]]
) -> None:
    for what, which in sequence:
        happen(world, what, which)

    first = world.sync_result()
    world.run = first.run

    assert without_times(world.sync_result()) == without_times(first)


def without_times(answer: StagedUpdateResult) -> Any:
    return answer.run, answer.actions, answer.approvals


@pytest.mark.nightly
@given(worlds())
def test_clusters_start_in_the_order_of_their_stage(world: World) -> None:
    for number in range(300):
        if world.run.outcome and number % 8 == 0:
            break
        happen(world, "approve", 0)
        happen(world, "sync", 0)

    planned = [name for one in world.run.stages for name in one.cluster_names]
    assert list(dict.fromkeys(world.started)) == planned
