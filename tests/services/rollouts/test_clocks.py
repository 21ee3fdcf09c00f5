"""Actions count whatever the clocks of the processes say: they are matched by what they are about."""

from datetime import timedelta

import pytest

from placements.engine.rollout.state import Phase
from placements.models import Binding
from placements.services.rollouts import operations
from tests.rows import spec
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db
ALL = {"prod": ["c000", "c001"]}
SKEW = timedelta(seconds=30)
REFUSE = {"kind": "refuse", "objectName": "web"}


def begun(**tasks: bool | str) -> StagedWorld:
    world = StagedWorld(ALL, stage("prod", most=2, **tasks))  # type: ignore[arg-type]
    world.place("web", staged_spec())
    world.begin("one")
    return world


@pytest.mark.nightly
@pytest.mark.parametrize("skew", [-SKEW, SKEW])
@pytest.mark.parametrize("side", ["before", "after"])
def test_an_approval_counts(side: str, skew: timedelta) -> None:
    world = begun(**{side: True})
    world.run(until=lambda: f"approval-{side}" in world.waits("one"))

    operations.approve("one", "prod", by=world.approver, now=world.now + skew)
    world.work()

    world.run(until=lambda: world.status("one") == "succeeded")


@pytest.mark.nightly
@pytest.mark.parametrize("skew", [-SKEW, SKEW])
def test_a_skipped_wait_is_over(skew: timedelta) -> None:
    world = begun(wait="2h")
    world.run(until=lambda: "time" in world.waits("one"))

    operations.skip_wait("one", "prod", by=None, now=world.now + skew)
    world.work()

    assert world.status("one") == "succeeded"


@pytest.mark.servers_only
@pytest.mark.servers
@pytest.mark.parametrize("skew", [-SKEW, SKEW])
def test_a_retry_starts_at_once(skew: timedelta) -> None:
    world = StagedWorld(ALL, stage("prod", most=2))
    world.inject("c001", REFUSE)
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on(60)
    world.inject("c001")
    assert world.plan("one").current.steps[1].failures > 2

    operations.retry_run("one", "c001", by=None, now=world.now + skew)
    world.work()

    assert world.phases()["c001"] == Phase.APPLIED


@pytest.mark.servers_only
@pytest.mark.servers
@pytest.mark.parametrize("skew", [-SKEW, SKEW])
def test_a_retry_of_a_rolling_update_starts_at_once(skew: timedelta) -> None:
    world = World(1)
    world.inject("c000", REFUSE)
    world.place("web", spec())
    world.pass_time(60)
    world.inject("c000")
    assert Binding.objects.get().phase == Phase.FAILED

    operations.retry("web", "c000", by=None, now=world.now + skew)
    world.work()

    assert world.phases()["c000"] == Phase.APPLIED
