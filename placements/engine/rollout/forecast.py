"""How long the rest of a rollout takes: list scheduling of the remaining clusters over the free slots.

The duration of each is drawn from past runs (`spec/foresight.md` 7). All times are in seconds.
"""

import heapq
import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

DRAWS = 200
_MOST_STEPS = 250_000
"""Of all draws together; a rollout over thousands of clusters gets fewer draws."""
_FEWEST_DRAWS = 50
FEWEST_CLUSTERS = 10
"""Smaller rollouts have no forecast."""
ENOUGH_RUNS = 3
"""With fewer past runs the durations vary less than the next run will; their weights are drawn as well."""


class StepKind(StrEnum):
    """What is done on a cluster; additions have separate slots."""

    ADDITION = "addition"
    UPDATE = "update"
    REMOVAL = "removal"


@dataclass(frozen=True, slots=True)
class Step:
    """One remaining cluster.

    `elapsed` is how long its step has been in progress, None if it has not started. `left` is the exact rest
    where time alone ends it. `wait` is added to the drawn duration: a fixed wait after the work.
    """

    kind: StepKind
    elapsed: float | None = None
    left: float | None = None
    wait: float = 0


@dataclass(frozen=True, slots=True)
class Forecast:
    """Percentiles of the time until all steps have ended; `slower` of these take longer than any past one."""

    p10: float
    p50: float
    p90: float
    slower: int


def forecast(
    stages: Sequence["WorkStage"], durations: Mapping[StepKind, Sequence[float]], *, runs: int, seed: int
) -> Forecast:
    """Return the forecast; every kind of a remaining step has a past duration."""
    rng = random.Random(seed)  # noqa: S311 -- reproducible, not secret
    past = {kind: sorted(values) for kind, values in durations.items()}
    steps = [step for stage in stages for step in stage.steps]
    draws = min(DRAWS, max(_FEWEST_DRAWS, _MOST_STEPS // max(1, len(steps))))
    ends = []
    for _ in range(draws):
        times = {kind: _weighted(values, runs, rng) for kind, values in past.items()}
        ends.append(sum(_stage_seconds(stage, times, rng) for stage in stages))
    ends.sort()
    slower = sum(
        step.elapsed is not None and step.left is None and step.elapsed >= past[step.kind][-1]
        for step in steps
    )
    p10, p50, p90 = (ends[round(share * (draws - 1))] for share in (0.1, 0.5, 0.9))
    return Forecast(p10, p50, p90, slower)


@dataclass(frozen=True, slots=True)
class WorkStage:
    """Steps that share slots, and the fixed waits before and after them.

    A rolling update is one stage. `slots` are the numbers that may be in progress at once: of additions, and
    of updates and removals.
    """

    steps: Sequence[Step]
    additions: int
    others: int
    wait: float = 0


def _weighted(values: Sequence[float], runs: int, rng: random.Random) -> Sequence[float]:
    """Return the durations to draw from; with few runs a Bayesian bootstrap of them."""
    if runs >= ENOUGH_RUNS:
        return values
    weights = [rng.expovariate(1) for _ in values]  # normalized, these are a draw of a Dirichlet distribution
    return sorted(rng.choices(values, weights, k=len(values)))


def _stage_seconds(stage: WorkStage, times: Mapping[StepKind, Sequence[float]], rng: random.Random) -> float:
    last = 0.0
    for is_addition, slots in ((True, stage.additions), (False, stage.others)):
        steps = [step for step in stage.steps if (step.kind is StepKind.ADDITION) is is_addition]
        if not steps:
            continue
        running = [_rest(step, times[step.kind], rng) for step in steps if step.elapsed is not None]
        busy = [0.0] * max(1 - len(running), slots - len(running)) + running
        heapq.heapify(busy)
        last = max([last, *running])
        waiting = [step for step in steps if step.elapsed is None]
        # All at once for each kind: a draw on its own costs more than everything else here.
        choices = {
            kind: iter(rng.choices(times[kind], k=sum(step.kind is kind for step in waiting)))
            for kind in dict.fromkeys(step.kind for step in waiting)
        }
        for step in waiting:
            end = busy[0] + next(choices[step.kind]) + step.wait
            heapq.heapreplace(busy, end)
            last = max(last, end)
    return last + stage.wait


def _rest(step: Step, values: Sequence[float], rng: random.Random) -> float:
    """Return the rest of a step in progress: drawn from the past ones that took longer, else from all."""
    if step.left is not None:
        return step.left
    elapsed = step.elapsed or 0.0
    first = bisect_right(values, elapsed)
    if first == len(values):
        return rng.choice(values) + step.wait
    return values[rng.randrange(first, len(values))] - elapsed + step.wait
