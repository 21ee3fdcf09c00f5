"""Rollouts over many simulated clusters, by one worker and a manual clock: steps and statements."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter, process_time
from unittest.mock import patch

from django.db import connection

from clusters.models import SimulatedPlacement
from placements.models import ClusterUpdate, Rollout
from placements.services.placements import save_placement
from placements.services.rollouts import controller
from tests.load.deciding import StatementCounter
from tests.rows import NAMESPACE, placement_document, spec
from tests.services.rollouts.world import World


@dataclass(frozen=True)
class RolledOut:
    """How a rollout went; a step is one start on one cluster, a look reads all clusters of a placement."""

    steps: int
    seconds: float
    processor_seconds: float
    statements: int
    looks: int
    megabytes: int

    @property
    def steps_a_processor_second(self) -> float:
        """Return how many starts were completed in a second of the processor."""
        return self.steps / self.processor_seconds

    @property
    def statements_a_step(self) -> float:
        """Return how many statements one start took, everything counted."""
        return self.statements / self.steps

    def __str__(self) -> str:
        """Write it as a line of a table."""
        return (
            f"{self.steps:>9,} {self.seconds:>8.1f} {self.processor_seconds:>10.1f} "
            f"{self.steps_a_processor_second:>18.0f} {self.statements_a_step:>16.1f} {self.megabytes:>8}"
        )


HEADING = (
    f"{'steps':>9} {'seconds':>8} {'processor':>10} {'steps/processor s':>18} "
    f"{'statements/step':>16} {'peak MB':>8}"
)


def placed(world: World) -> RolledOut:
    """Place something on every cluster."""
    return _measured(world, lambda: world.place("web", spec()))


def placed_at_once(world: World, placements: int) -> RolledOut:
    """Place so many placements on every cluster, each of its namespace, all rollouts at a time."""
    names = [world.add_namespace(f"p{number:03}") for number in range(placements)]

    def begin() -> None:
        for name in names:
            own = {**spec(), "resourceSelectors": [{**NAMESPACE, "name": name}]}
            save_placement(placement_document(name, own), by=None, now=world.now)

    return _measured(world, begin)


def updated(world: World) -> RolledOut:
    """Change everything on every cluster, a quarter of them at a time for each placement."""
    return _measured(world, world.change)


def clusters_with_differences() -> list[str]:
    """Return the simulated clusters not at the version of the last rollout, or changed to it twice."""
    versions = dict(
        Rollout.objects.order_by("number").values_list("placement_name", "version")
    )
    has: dict[str, dict[str, str]] = {}
    wrong = []
    placements = SimulatedPlacement.objects.exclude(placement_name="")
    rows = placements.values_list("cluster__name", "placement_name", "content")
    for cluster, placement, content in rows.iterator():
        if content["held"]:
            has.setdefault(cluster, {})[placement] = content["held"]["version"]
        wrong += [
            f"{cluster} changed {placement} twice to {version}"
            for version, count in content["changes"]
            if count != 1
        ]
    return wrong + [
        f"{cluster} has {one}"
        for cluster, held in has.items()
        for one in held.items() ^ versions.items()
    ]


def _measured(world: World, begin: Callable[[], object]) -> RolledOut:
    before, counter = ClusterUpdate.objects.count(), StatementCounter()
    started, at_first = perf_counter(), process_time()
    with connection.execute_wrapper(counter), counted_looks() as looks:
        begin()
        world.pass_time()  # a large placement rests a moment after the last look at it
        world.run(until=world.is_settled)
    steps = ClusterUpdate.objects.count() - before
    seconds, busy = perf_counter() - started, process_time() - at_first
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return RolledOut(steps, seconds, busy, counter.count, looks(), peak)


@contextmanager
def counted_looks() -> Iterator[Callable[[], int]]:
    """Count the looks at rollouts; what is called gives how many there were."""
    with patch.object(
        controller, "load_rollout_context", wraps=controller.load_rollout_context
    ) as looked:
        yield lambda: looked.call_count
