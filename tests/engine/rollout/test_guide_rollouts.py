"""The rolling updates of the guide and of the released system's own tests, in the simulated world."""

from placements.engine.rollout.actions import RunPhase
from placements.engine.rollout.state import Phase
from placements.engine.rollout.waves import plan_waves
from tests.builders import pick_n
from tests.engine.rollout.states import NEW, OLD, available, budget, state
from tests.engine.rollout.world import World

TEN = [available(f"c{number:02}") for number in range(10)]
THREE = [available(name) for name in ("c1", "c2", "c3")]
GOOD = "v3"
IN_SECOND = {cluster_state.name: 0 for cluster_state in TEN + THREE}


def test_guide_ten_clusters_of_a_job_go_three_three_three_one() -> None:
    world = World(state(*TEN, policy=pick_n(10)), seconds=IN_SECOND, timed=True)

    assert world.run().phase is RunPhase.FINISHED
    assert world.batches() == [
        (0, "c00 c01 c02"),
        (60, "c03 c04 c05"),
        (120, "c06 c07 c08"),
        (180, "c09"),
    ]


def test_guide_plan_has_the_same_four_waves() -> None:
    waves = plan_waves(state(*TEN, policy=pick_n(10))).waves

    assert [len(wave.actions) for wave in waves] == [3, 3, 3, 1]
    assert [
        (wave.budgets.updates.ready, wave.budgets.updates.minimum) for wave in waves
    ] == [(10, 7)] * 4


def test_ten_clusters_that_can_be_observed_go_on_as_soon_as_one_is_available() -> None:
    seconds = {cluster_state.name: 5 for cluster_state in TEN} | {"c01": 20}
    world = World(state(*TEN, policy=pick_n(10)), seconds=seconds)

    assert world.run().phase is RunPhase.FINISHED
    assert world.batches() == [
        (0, "c00 c01 c02"),
        (10, "c03 c04"),
        (20, "c05 c06"),
        (30, "c07 c08"),
        (40, "c09"),
    ]


def test_s18_a_bad_version_stops_at_the_first_cluster() -> None:
    world = World(state(*THREE, strategy=budget(1)), bad=frozenset({NEW}))

    for _ in range(5):
        answer = world.step()

    assert world.batches() == [(0, "c1")]
    assert [(cluster.cluster, cluster.running) for cluster in answer.blocked] == [
        ("c2", OLD),
        ("c3", OLD),
    ]
    assert [(cluster.cluster, cluster.phase) for cluster in answer.in_progress] == [
        ("c1", Phase.APPLIED)
    ]


def test_s19_a_good_version_recovers_from_a_bad_one() -> None:
    world = World(state(*THREE, strategy=budget(1)), bad=frozenset({NEW}))
    for _ in range(5):
        world.step()

    world.want({cluster_state.name: GOOD for cluster_state in THREE})

    assert world.run().phase is RunPhase.FINISHED
    assert [action.cluster for _, action in world.starts] == ["c1", "c1", "c2", "c3"]
    assert {cluster.running for cluster in world.state.clusters} == {GOOD}


def test_s20_a_job_does_not_block_but_waits_the_period() -> None:
    strategy = budget(1, period=15)
    world = World(state(*THREE, strategy=strategy), seconds=IN_SECOND, timed=True)

    assert world.run().phase is RunPhase.FINISHED
    assert world.batches() == [(0, "c1"), (15, "c2"), (30, "c3")]


def test_s21_a_custom_resource_goes_one_cluster_every_thirty_seconds() -> None:
    strategy = budget(1, period=30)
    world = World(
        state(*THREE, strategy=strategy),
        seconds={"c1": 2, "c2": 2, "c3": 2},
        timed=True,
    )

    assert world.run().phase is RunPhase.FINISHED
    assert world.batches() == [(0, "c1"), (32, "c2"), (64, "c3")]


def test_a_failed_apply_is_tried_again_later_each_time() -> None:
    world = World(state(THREE[0]), seconds=IN_SECOND)
    world.failures["c1"] = 3

    assert world.run().phase is RunPhase.FINISHED
    assert [(second, action.attempt) for second, action in world.starts] == [
        (0, 1),
        (5, 2),
        (15, 3),
        (35, 4),
    ]
