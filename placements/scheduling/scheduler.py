"""schedule(): the inputs of one cycle in, a Decision out (`spec/scheduler.md` 3 and 4)."""

from collections.abc import Callable, Iterable

import numpy as np

from placements.scheduling.bindings import Binding, BindingState
from placements.scheduling.candidates import candidates_of, verdicts
from placements.scheduling.columns import Codes
from placements.scheduling.cycle import Cycle
from placements.scheduling.decision import CycleKind, Decision
from placements.scheduling.fleet import Fleet
from placements.scheduling.picker import pick
from placements.scheduling.policy import PlacementType
from placements.scheduling.profile import PROFILES
from placements.scheduling.scores.preferred import malformed_sorter_values
from placements.scheduling.selectors import Malformed, match_any_term


def schedule(cycle: Cycle) -> Decision:
    """Decide which clusters the placement gets. Deterministic: the same inputs give the same decision."""
    deciders: dict[PlacementType, Callable[[Cycle], Decision]] = {
        PlacementType.PICK_FIXED: _pick_fixed,
        PlacementType.PICK_ALL: _pick_all,
        PlacementType.PICK_N: _pick_n,
    }
    return deciders[cycle.policy.placement_type](cycle)


def _pick_fixed(cycle: Cycle) -> Decision:
    names, fleet, standing = cycle.policy.cluster_names, cycle.fleet, cycle.standing
    if not names:
        return Decision(cycle, CycleKind.NO_NAMES, unscheduled=_names(standing.dangling))
    valid = {name for name in names if _is_valid(name, fleet)}
    kept = {binding.cluster for binding in standing.current}
    chosen = [fleet.positions[name] for name in names if name in valid and name not in kept]
    dropped = (binding for binding in standing.obsolete if binding.cluster not in valid)
    return Decision(
        cycle,
        CycleKind.PICK_FIXED,
        chosen=np.array(chosen, dtype=np.int32),
        kept=_names(standing.current),
        unscheduled=_names((*standing.dangling, *dropped)),
        not_found=tuple(name for name in names if name not in fleet.positions),
        is_fulfilled=len(valid) == len(names),
    )


def _is_valid(name: str, fleet: Fleet) -> bool:
    position = fleet.positions.get(name)
    return position is not None and bool(fleet.is_eligible[position])


def _pick_all(cycle: Cycle) -> Decision:
    malformed = match_any_term(cycle.policy.required_terms, cycle.fleet).malformed
    if malformed and PROFILES[cycle.semantics].fails_on_malformed_property:
        return _failed(cycle, malformed)
    failed = verdicts(cycle)
    chosen = np.nonzero(failed == 0)[0].astype(np.int32)
    return Decision(
        cycle,
        CycleKind.PICK_ALL,
        chosen=chosen,
        kept=_names(cycle.standing.current),
        unscheduled=_unscheduled(cycle, chosen),
        is_fulfilled=True,
        verdicts=failed,
        malformed=malformed,
    )


def _pick_n(cycle: Cycle) -> Decision:
    wanted, present = cycle.policy.number_of_clusters or 0, len(cycle.standing.current)
    if wanted < present or (wanted == present and cycle.standing.obsolete):
        return _scale_down(cycle, present - wanted)
    if wanted == present:
        unscheduled = _names(cycle.standing.dangling)
        kept = _names(cycle.standing.current)
        return Decision(cycle, CycleKind.NOTHING_TO_DO, kept=kept, unscheduled=unscheduled, is_fulfilled=True)
    return _pick_more(cycle, wanted - present)


def _scale_down(cycle: Cycle, surplus: int) -> Decision:
    current = sorted(cycle.standing.current, key=_trim_order)
    unscheduled = (*cycle.standing.dangling, *cycle.standing.obsolete, *current[:surplus])
    return Decision(
        cycle,
        CycleKind.SCALE_DOWN,
        kept=_names(current[surplus:]),
        unscheduled=_names(unscheduled),
        is_fulfilled=True,
    )


def _trim_order(binding: Binding) -> tuple[object, ...]:
    """Order by what goes first: scheduled before bound, no score before any, low score, name."""
    spread, affinity = binding.topology_spread_score, binding.affinity_score
    has_scores = spread is not None and affinity is not None
    is_bound = binding.state is BindingState.BOUND
    return is_bound, has_scores, spread or 0, affinity or 0, binding.cluster


def _pick_more(cycle: Cycle, wanted: int) -> Decision:
    malformed = _malformed(cycle)
    if malformed and PROFILES[cycle.semantics].fails_on_malformed_property:
        return _failed(cycle, malformed)
    candidates = candidates_of(cycle)
    picks = pick(candidates, wanted)
    return Decision(
        cycle,
        CycleKind.PICK,
        chosen=picks.positions,
        kept=_names(cycle.standing.current),
        unscheduled=_unscheduled(cycle, picks.positions),
        is_fulfilled=not picks.ran_dry,
        verdicts=candidates.failed,
        candidates=candidates,
        picks=picks,
        malformed=malformed,
    )


def _malformed(cycle: Cycle) -> tuple[Malformed, ...]:
    required = match_any_term(cycle.policy.required_terms, cycle.fleet).malformed
    return tuple(dict.fromkeys((*required, *malformed_sorter_values(cycle))))


def _failed(cycle: Cycle, malformed: tuple[Malformed, ...]) -> Decision:
    """End the cycle without a pick; what dangles was unscheduled before (spec 4.4)."""
    standing = cycle.standing
    return Decision(
        cycle,
        CycleKind.FAILED,
        kept=_names(standing.current),
        unscheduled=_names(standing.dangling),
        malformed=malformed,
    )


def _unscheduled(cycle: Cycle, chosen: Codes) -> tuple[str, ...]:
    """Give whose binding ends: it dangles, or it is obsolete and its cluster was not picked again."""
    standing = cycle.standing
    if not standing.obsolete:
        return _names(standing.dangling)
    again = set(map(cycle.fleet.names.__getitem__, chosen.tolist()))
    dropped = (binding for binding in standing.obsolete if binding.cluster not in again)
    return _names((*standing.dangling, *dropped))


def _names(bindings: Iterable[Binding]) -> tuple[str, ...]:
    return tuple(sorted(binding.cluster for binding in bindings))
