"""A rollout over many simulated clusters, by one worker and a clock turned by hand: steps and statements."""

import resource
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from django.db import connection

from placements.models import ClusterUpdate
from tests.load.deciding import StatementCounter
from tests.rollouts.world import World
from tests.rows import spec


@dataclass(frozen=True)
class RolledOut:
    """How a rollout went; a step is one start on one cluster."""

    steps: int
    seconds: float
    statements: int
    megabytes: int

    @property
    def steps_a_second(self) -> float:
        """Give how many starts were carried to their end in a second of the worker's time."""
        return self.steps / self.seconds

    @property
    def statements_a_step(self) -> float:
        """Give how many statements one start took, everything counted."""
        return self.statements / self.steps


def placed(world: World) -> RolledOut:
    """Place something on every cluster."""
    return _measured(world, lambda: world.place("web", spec()))


def updated(world: World) -> RolledOut:
    """Give every cluster a new version, a quarter of them at a time."""
    return _measured(world, world.change)


def _measured(world: World, begin: Callable[[], object]) -> RolledOut:
    before, counter = ClusterUpdate.objects.count(), StatementCounter()
    started = perf_counter()
    with connection.execute_wrapper(counter):
        begin()
        world.work()
        world.run(until=world.is_settled)
    seconds = perf_counter() - started
    steps = ClusterUpdate.objects.count() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return RolledOut(steps, seconds, counter.count, peak)
