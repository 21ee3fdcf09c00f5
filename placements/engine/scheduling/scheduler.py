"""The entry point `schedule()`: from the inputs of one cycle to a decision (`rules/scheduler.md#pickn`)."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from clusters.columns import Codes
from fleetui.apimachinery.effort import check_time
from placements.engine.scheduling.candidates import (
    candidates_of,
    malformed_properties,
    verdicts,
)
from placements.engine.scheduling.cycle import Batch, Cycle
from placements.engine.scheduling.decision import CycleKind, Decision
from placements.engine.scheduling.picker import pick
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.round import Round, SpreadScore
from placements.engine.scheduling.selectors import Malformed
from placements.manifests.binding import BindingState, PlacedBinding
from placements.manifests.policy import PlacementType


def schedule(cycle: Cycle) -> Decision:
    """Decide which clusters the placement gets. Deterministic: equal inputs result in equal decisions."""
    check_time()
    if cycle.batch is not None:
        return _apply(cycle, cycle.batch)
    match cycle.policy.placement_type:
        case PlacementType.PICK_FIXED:
            return _pick_fixed(cycle)
        case PlacementType.PICK_ALL:
            return _pick_all(cycle)
        case PlacementType.PICK_N:
            return _pick_n(cycle)


def _apply(cycle: Cycle, batch: Batch) -> Decision:
    """Apply few moves; each join gets the scores of a round at that state."""
    fleet, bindings = cycle.fleet, cycle.binding_classes
    stays = replace(
        cycle,
        batch=None,
        bindings=tuple(
            binding for binding in cycle.bindings if binding.cluster not in batch.leaves
        ),
    )
    candidates = candidates_of(stays)
    chosen = np.array([fleet.positions[name] for name in batch.joins], dtype=np.int32)
    scores: list[tuple[SpreadScore, float]] = []
    for number, position in enumerate(chosen.tolist(), start=1):
        spread = Round(candidates, number, chosen[: number - 1]).spread_score(position)
        scores.append((spread, candidates.affinity[position].item()))
    kept = tuple(
        name for name in _cluster_names(bindings.current) if name not in batch.leaves
    )
    return Decision(
        cycle,
        CycleKind.REBALANCE,
        chosen=chosen,
        kept=kept,
        unscheduled=tuple(sorted({*batch.leaves, *_cluster_names(bindings.dangling)})),
        is_fulfilled=len(kept) + len(chosen) >= (cycle.policy.number_of_clusters or 0),
        verdicts=candidates.failed,
        scores=tuple(scores),
    )


def _pick_fixed(cycle: Cycle) -> Decision:
    names, fleet, bindings = (
        cycle.policy.cluster_names,
        cycle.fleet,
        cycle.binding_classes,
    )
    if not names:
        untouched, dangling = (
            _cluster_names(bindings.current),
            _cluster_names(bindings.dangling),
        )
        return Decision(
            cycle,
            CycleKind.NO_NAMES,
            kept=untouched,
            unscheduled=dangling,
            is_fulfilled=True,
        )
    valid = {
        name
        for name in names
        if name in fleet.positions and fleet.is_eligible[fleet.positions[name]]
    }
    kept = _kept_names(cycle)
    chosen = [
        fleet.positions[name]
        for name in names
        if name in valid and name not in set(kept)
    ]
    at_stake = (binding for binding in _at_stake(cycle) if binding.cluster not in valid)
    return Decision(
        cycle,
        CycleKind.PICK_FIXED,
        chosen=np.array(chosen, dtype=np.int32),
        kept=kept,
        unscheduled=_cluster_names((*bindings.dangling, *at_stake)),
        not_found=tuple(name for name in names if name not in fleet.positions),
        is_fulfilled=len(valid) == len(names),
    )


def _pick_all(cycle: Cycle) -> Decision:
    malformed = malformed_properties(cycle)
    if malformed and profile_of(cycle).fails_on_malformed_property:
        return _failed(cycle, malformed)
    failed = verdicts(cycle)
    chosen = np.nonzero(failed == 0)[0].astype(np.int32)
    return Decision(
        cycle,
        CycleKind.PICK_ALL,
        chosen=chosen,
        kept=_kept_names(cycle),
        unscheduled=_unscheduled(cycle, chosen),
        is_fulfilled=True,
        verdicts=failed,
        malformed=malformed,
    )


def _pick_n(cycle: Cycle) -> Decision:
    wanted, present = (
        cycle.policy.number_of_clusters or 0,
        len(cycle.binding_classes.current),
    )
    if wanted and profile_of(cycle).chooses_again:
        return _pick_more(cycle, wanted)
    if wanted < present or (wanted == present and cycle.binding_classes.obsolete):
        surplus = present - wanted
        by_name = cycle.binding_classes.current
        if profile_of(cycle).strategy.smaller_name_wins:
            by_name = by_name[::-1]
        current = sorted(by_name, key=trim_order)
        ending = (
            *cycle.binding_classes.dangling,
            *cycle.binding_classes.obsolete,
            *current[:surplus],
        )
        return Decision(
            cycle,
            CycleKind.SCALE_DOWN,
            kept=_cluster_names(current[surplus:]),
            unscheduled=_cluster_names(ending),
            is_fulfilled=True,
        )
    if wanted == present:
        unscheduled = _cluster_names(cycle.binding_classes.dangling)
        kept = _cluster_names(cycle.binding_classes.current)
        return Decision(
            cycle,
            CycleKind.NOTHING_TO_DO,
            kept=kept,
            unscheduled=unscheduled,
            is_fulfilled=True,
        )
    return _pick_more(cycle, wanted - present)


# What each part of `trim_order` compares.
TRIM_COLUMNS = ("state", "topology", "topology", "affinity", "affinity")


def trim_order(binding: PlacedBinding) -> tuple[object, ...]:
    """Return the sort key, first to end first: scheduled before bound; for each score none, then low ones."""
    spread, affinity = binding.topology_spread_score, binding.affinity_score
    is_bound = binding.state is BindingState.BOUND
    levels = spread if isinstance(spread, tuple) else (spread or 0,)
    return is_bound, spread is not None, levels, affinity is not None, affinity or 0


def _pick_more(cycle: Cycle, wanted: int) -> Decision:
    malformed = malformed_properties(cycle)
    profile = profile_of(cycle)
    if malformed and profile.fails_on_malformed_property:
        return _failed(cycle, malformed)
    candidates = candidates_of(cycle)
    picks = pick(candidates, wanted)
    if picks.ran_dry and not profile.strategy.stops_without_candidate():
        return _failed(cycle, malformed)
    return Decision(
        cycle,
        CycleKind.PICK,
        chosen=picks.positions,
        kept=_kept_names(cycle),
        unscheduled=_unscheduled(cycle, picks.positions),
        is_fulfilled=not picks.ran_dry,
        verdicts=candidates.failed,
        candidates=candidates,
        picks=picks,
        malformed=malformed,
    )


def _failed(cycle: Cycle, malformed: tuple[Malformed, ...]) -> Decision:
    """Return a decision without a pick; dangling bindings were unscheduled before (spec 4.4)."""
    bindings = cycle.binding_classes
    return Decision(
        cycle,
        CycleKind.FAILED,
        kept=_cluster_names(bindings.current),
        unscheduled=_cluster_names(bindings.dangling),
        malformed=malformed,
    )


def _unscheduled(cycle: Cycle, chosen: Codes) -> tuple[str, ...]:
    """Return whose binding ends: dangling ones, and obsolete ones whose cluster was not picked again."""
    bindings, at_stake = cycle.binding_classes, _at_stake(cycle)
    if not at_stake:
        return _cluster_names(bindings.dangling)
    again = set(map(cycle.fleet.names.__getitem__, chosen.tolist()))
    dropped = (binding for binding in at_stake if binding.cluster not in again)
    return _cluster_names((*bindings.dangling, *dropped))


def _at_stake(cycle: Cycle) -> tuple[PlacedBinding, ...]:
    """Return the bindings that end unless their clusters are picked again."""
    bindings = cycle.binding_classes
    return bindings.obsolete + (
        bindings.current if profile_of(cycle).chooses_again else ()
    )


def _kept_names(cycle: Cycle) -> tuple[str, ...]:
    """Return the current bindings that the cycle does not touch; none if it chooses among all clusters."""
    return (
        ()
        if profile_of(cycle).chooses_again
        else _cluster_names(cycle.binding_classes.current)
    )


def _cluster_names(bindings: Iterable[PlacedBinding]) -> tuple[str, ...]:
    return tuple(sorted(binding.cluster for binding in bindings))
