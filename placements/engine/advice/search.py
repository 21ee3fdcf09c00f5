"""The search for changes after which a cluster would be selected or a placement fulfilled.

Each answer is verified by a run of `schedule()` as if the change were saved. *Minimal* means that no
value of the same kind nearer to the current one, in the same direction, succeeds.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from fleetui.apimachinery.errors import InvalidManifest
from placements.engine.advice.candidates import Axis, candidate_changes, fulfilment_axes
from placements.engine.advice.changes import Change
from placements.engine.advice.diagnosis import pinned_groups
from placements.engine.scheduling.decision import WITHOUT_EVALUATION, Decision
from placements.engine.scheduling.outcome import ClusterOutcome, Outcomes
from placements.engine.scheduling.scheduler import schedule

_ADVICE_EVALUATIONS = (
    1_000_000  # clusters evaluated by all runs together: some seconds at most
)
_FULFILMENT_EVALUATIONS = (
    200_000  # runs with every unfulfilled decision, so it must be fast
)
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
    """Changes that would select a cluster, that would not, and those not tried within the time limit.

    `is_rescheduled`: the decision evaluated no cluster, so that `outcome` is the one of rescheduling.
    """

    outcome: ClusterOutcome
    helps: tuple[Suggestion, ...] = ()
    fails: tuple[Suggestion, ...] = ()
    not_tried: tuple[Change, ...] = ()
    is_rescheduled: bool = False


@dataclass
class _Budget:
    runs: int
    helps: list[Suggestion] = field(default_factory=list)
    fails: list[Suggestion] = field(default_factory=list)
    not_tried: list[Change] = field(default_factory=list)


def why_not(decision: Decision, cluster: str, *, runs: int | None = None) -> Advice:
    """Return the outcome of a cluster and what would change it; `runs` bounds the scheduler runs.

    For a cluster that is placed there is no advice. Raise KeyError when it is not in the fleet.
    """
    if decision.cycle.batch is not None and cluster not in (
        *decision.picked_names,
        *decision.unscheduled,
    ):
        # Beside the clusters that the batch moved, the state after it is explained.
        decision = schedule(
            replace(decision.cycle, batch=None, bindings=decision.bindings_after)
        )
    evaluated = evaluated_decision(decision, cluster)
    outcome = Outcomes(evaluated).of(cluster)
    if cluster in decision.picked_names or cluster in decision.kept:
        return Advice(outcome)
    budget = _Budget(
        _affordable_runs(decision, _ADVICE_EVALUATIONS) if runs is None else runs
    )
    for axis in candidate_changes(decision, cluster):
        _try_axis(
            decision,
            axis,
            budget,
            lambda each: not each.is_failed and cluster in _placed_names(each),
        )
    suggestions = (
        _in_order(budget.helps),
        tuple(budget.fails),
        tuple(budget.not_tried),
    )
    return Advice(outcome, *suggestions, is_rescheduled=evaluated is not decision)


def evaluated_decision(decision: Decision, cluster: str) -> Decision:
    """Return what explains a cluster: a decision that evaluated no cluster is rescheduled for that."""
    is_evaluated = decision.kind not in WITHOUT_EVALUATION
    if is_evaluated or cluster in decision.kept or cluster in decision.unscheduled:
        return decision
    return schedule(decision.cycle.rescheduled())


def how_to_fulfil(decision: Decision) -> tuple[Suggestion, ...]:
    """Return the single changes, each minimal and verified, that would fulfil a PickN placement."""
    if decision.is_fulfilled or not decision.number_of_rounds:
        return ()
    budget = _Budget(_affordable_runs(decision, _FULFILMENT_EVALUATIONS))

    fleet = decision.cycle.fleet
    pinned = {(one.topology_key, one.group) for one in pinned_groups(decision)}
    in_pinned_domains = [
        cluster.name
        for cluster in fleet
        if any(cluster.labels.get(key) == group for key, group in pinned)
    ]
    for axis in fulfilment_axes(decision, in_pinned_domains):
        _try_axis(decision, axis, budget, lambda changed: changed.is_fulfilled)

    return _in_order(budget.helps)


def _in_order(suggestions: Iterable[Suggestion]) -> tuple[Suggestion, ...]:
    """Return the changes that an operator would accept first, of one kind those that move the fewest."""
    return tuple(
        sorted(
            suggestions,
            key=lambda one: (one.change.acceptance, len(one.gains) + len(one.losses)),
        )
    )


def _affordable_runs(decision: Decision, evaluations: int) -> int:
    affordable = evaluations // max(1, len(decision.cycle.fleet))
    return min(_MOST_RUNS, max(_FEWEST_RUNS, affordable))


def _try_axis(
    decision: Decision,
    axis: Axis,
    budget: _Budget,
    succeeds: Callable[[Decision], bool],
) -> None:
    """Try the changes of one axis, nearest first, until one succeeds; keep the nearest failure too."""
    nearest, last = None, None
    for change in axis:
        if budget.runs <= 0:
            budget.not_tried.append(change)
            break
        budget.runs -= 1
        try:
            changed = schedule(change.changed())
        except InvalidManifest:
            continue
        before, after = _placed_names(decision), _placed_names(changed)
        suggestion = Suggestion(
            change,
            helps=succeeds(changed),
            gains=tuple(name for name in after if name not in before),
            losses=tuple(name for name in before if name not in after),
        )
        if suggestion.helps:
            budget.helps.append(suggestion)
            last = None
            break
        nearest, last = nearest or suggestion, change
    if nearest is not None:
        furthest = last if last is not nearest.change else None
        budget.fails.append(replace(nearest, furthest=furthest))


def _placed_names(decision: Decision) -> dict[str, None]:
    return dict.fromkeys(decision.kept + decision.picked_names)
