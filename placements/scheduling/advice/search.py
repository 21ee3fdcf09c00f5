"""Why not this cluster: every change of the menu, tried on the scheduler itself.

Each answer is verified by a run of `schedule()` as if the change were saved. *Minimal* means that no
value of the same kind nearer to today's, in the same direction, succeeds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from placements.scheduling.advice.changes import Change
from placements.scheduling.advice.menu import Axis, axes, fulfilment_axes
from placements.scheduling.advice.traps import pinned_groups
from placements.scheduling.decision import Decision
from placements.scheduling.faults import Faults
from placements.scheduling.outcomes import ClusterOutcome, Outcomes
from placements.scheduling.scheduler import schedule

_ADVICE_LOOKS = 1_000_000  # clusters looked at by all runs together: some seconds at most
_FULFILMENT_LOOKS = 200_000  # told with every decision that is short, so it must not be noticed
_FEWEST_RUNS = 4
_MOST_RUNS = 5_000


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that was tried; `gains` and `losses` compare its picks with today's.

    `furthest` is the last of the same kind and direction that was tried, where none helped.
    """

    change: Change
    helps: bool
    gains: tuple[str, ...]
    losses: tuple[str, ...]
    furthest: Change | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """What would get a cluster picked, what would not, and what there was no time to try."""

    outcome: ClusterOutcome
    helps: tuple[Suggestion, ...] = ()
    fails: tuple[Suggestion, ...] = ()
    not_tried: tuple[Change, ...] = ()


@dataclass
class _Budget:
    runs: int
    helps: list[Suggestion] = field(default_factory=list)
    fails: list[Suggestion] = field(default_factory=list)
    not_tried: list[Change] = field(default_factory=list)


def why_not(decision: Decision, cluster: str, *, runs: int | None = None) -> Advice:
    """Say what became of a cluster and what would have to change; `runs` bounds the scheduler runs.

    For a cluster that is placed there is nothing to advise. Raises KeyError when the fleet lacks it.
    """
    outcome = Outcomes(decision).of(cluster)
    if cluster in decision.picked_names or cluster in decision.kept:
        return Advice(outcome)
    budget = _Budget(_affordable_runs(decision, _ADVICE_LOOKS) if runs is None else runs)
    for axis in axes(decision, cluster):
        _try_axis(
            decision, axis, budget, lambda changed: not changed.is_failed and cluster in _placed(changed)
        )
    return Advice(outcome, tuple(budget.helps), tuple(budget.fails), tuple(budget.not_tried))


def how_to_fulfil(decision: Decision, *, runs: int | None = None) -> tuple[Suggestion, ...]:
    """List the single changes, each minimal and verified, with which a PickN placement would be fulfilled."""
    if decision.is_fulfilled or not decision.number_of_rounds:
        return ()
    budget = _Budget(_affordable_runs(decision, _FULFILMENT_LOOKS) if runs is None else runs)
    for axis in fulfilment_axes(decision, _clusters_of_pinned_groups(decision)):
        _try_axis(decision, axis, budget, lambda changed: changed.is_fulfilled)
    return tuple(budget.helps)


def _clusters_of_pinned_groups(decision: Decision) -> list[str]:
    fleet = decision.cycle.fleet
    pinned = {(one.topology_key, one.group) for one in pinned_groups(decision)}
    return [
        cluster.name for cluster in fleet if any(cluster.labels.get(key) == group for key, group in pinned)
    ]


def _affordable_runs(decision: Decision, looks: int) -> int:
    affordable = looks // max(1, len(decision.cycle.fleet))
    return min(_MOST_RUNS, max(_FEWEST_RUNS, affordable))


def _try_axis(decision: Decision, axis: Axis, budget: _Budget, succeeds: Callable[[Decision], bool]) -> None:
    """Try the changes of one axis, nearest first, until one succeeds; keep the nearest failure too."""
    nearest, last = None, None
    for change in axis:
        if budget.runs <= 0:
            budget.not_tried.append(change)
            break
        budget.runs -= 1
        suggestion = _tried(decision, change, succeeds)
        if suggestion is None:
            continue
        if suggestion.helps:
            budget.helps.append(suggestion)
            last = None
            break
        nearest, last = nearest or suggestion, change
    if nearest is not None:
        furthest = last if last is not nearest.change else None
        budget.fails.append(replace(nearest, furthest=furthest))


def _tried(decision: Decision, change: Change, succeeds: Callable[[Decision], bool]) -> Suggestion | None:
    """Run the scheduler with a change; None when no door would take it."""
    try:
        changed = schedule(change.changed())
    except Faults:
        return None
    before, after = _placed(decision), _placed(changed)
    return Suggestion(
        change,
        helps=succeeds(changed),
        gains=tuple(name for name in after if name not in before),
        losses=tuple(name for name in before if name not in after),
    )


def _placed(decision: Decision) -> dict[str, None]:
    return dict.fromkeys(decision.kept + decision.picked_names)
