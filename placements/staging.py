"""Rows to staged runs: what a run has to know of its placement, of its clusters and of what hands did."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from clusters.queries import fleet_now
from placements.models import PolicySnapshot, StagedRun
from placements.rollout.staged import CannotStart, PlacementFacts, initialise
from placements.rollout.staged_facts import ClusterFacts, Phase, RunFacts
from placements.rollout.stages import Approval, When, run_from_plain
from placements.rollout.stages import StagedRun as Plan
from placements.rollout.state import ClusterFacts as Known
from placements.rollout.state import Phase as Carried
from placements.scheduling.bindings import BindingState
from placements.scheduling.door.staged_documents import (
    RunState,
    StagedStrategySpec,
    parse_staged_run,
    parse_staged_strategy,
)
from placements.scheduling.policy import PlacementType
from placements.snapshots import hash_of
from placements.standing import Held, Standing


def strategy_of(run: StagedRun) -> StagedStrategySpec:
    """Give the stages that a run froze."""
    return parse_staged_strategy(run.strategy).spec


def state_of(run: StagedRun) -> RunState:
    """Give what the author of a run wants of it."""
    return parse_staged_run(run.document).spec.state


def begin(run: StagedRun, standing: Standing, versions: Mapping[str, str]) -> Plan | CannotStart:
    """Say how a run would begin now; clusters without a version get an empty one."""
    return initialise(strategy_of(run), placement_facts(standing, versions))


def placement_facts(standing: Standing, versions: Mapping[str, str]) -> PlacementFacts:
    """Give what a run has to know of its placement when it begins."""
    placement, manifest, fleet = standing.placement, standing.manifest, fleet_now().fleet
    bindings = [*standing.bindings, *standing.left_behind]
    names = set(_names(bindings, scheduled=True))
    picked = tuple(cluster for cluster in fleet if cluster.name in names)
    return PlacementFacts(
        picked,
        {cluster.name: versions.get(cluster.name, "") for cluster in picked},
        tuple(_names(bindings, scheduled=False)),
        _expected(standing),
        standing.is_staged,
        placement.deleting_since is not None,
        not placement.is_due and not placement.selection_faults,
        _policy_snapshot(standing),
        hash_of({"applyStrategy": manifest.spec.strategy.apply_strategy.to_plain()}),
    )


def _names(bindings: Iterable[Held], *, scheduled: bool) -> list[str]:
    return [one.cluster_name for one in bindings if (one.state != BindingState.UNSCHEDULED) == scheduled]


def _expected(standing: Standing) -> int | None:
    """Give how many clusters have to be picked, None where that follows from the fleet (lifecycle B.5.2)."""
    policy = standing.manifest.spec.policy
    return None if policy.placement_type is PlacementType.PICK_ALL else standing.state.number_asked_for


def _policy_snapshot(standing: Standing) -> str:
    rows = PolicySnapshot.objects.filter(placement=standing.placement, is_latest=True)
    return str(rows.values_list("number", flat=True).get())


def run_facts(
    run: StagedRun, plan: Plan, standing: Standing, *, others: Iterable[StagedRun] = ()
) -> RunFacts:
    """Give the world around a run; the other runs that have not ended are part of it."""
    return RunFacts(
        state_of(run),
        _clusters(plan, standing),
        {
            Approval(one.stage, When(one.side)): one.approved_at
            for one in run.approvals.all()
            if one.approved_at
        },
        _moments(run.skipped_waits),
        _moments(run.retries),
        begin(run, standing, {}),
        tuple(run_from_plain(other.plan) for other in others if other.plan and not other.ended_at),
    )


def _moments(plain: Mapping[str, str]) -> dict[str, datetime]:
    return {name: datetime.fromisoformat(text) for name, text in plain.items()}


def _clusters(plan: Plan, standing: Standing) -> dict[str, ClusterFacts]:
    """Give what is known of each cluster; one in the fleet that has nothing of the placement is empty."""
    left_behind = {binding.cluster_name for binding in standing.left_behind}
    in_fleet = fleet_now().fleet.positions.keys() - left_behind
    found = {step.name: ClusterFacts(Phase.REMOVED) for step in plan.steps if step.name in in_fleet}
    since = {binding.cluster_name: binding.phase_since for binding in standing.bindings}
    known = {one.name: _facts(one, since[one.name]) for one in standing.state.clusters if one.is_in_fleet}
    return found | known


def _facts(known: Known, since: datetime | None) -> ClusterFacts:
    """Translate; what nobody can observe counts as available once it is applied (lifecycle A.13)."""
    phase = _PHASES[known.phase]
    if known.phase is Carried.SETTLING and known.timed_since:
        phase, since = Phase.AVAILABLE, known.timed_since
    return ClusterFacts(phase, known.running or "", since, known.is_reachable)


_PHASES = {
    Carried.NOTHING: Phase.NOTHING,
    Carried.APPLYING: Phase.APPLYING,
    Carried.SETTLING: Phase.SETTLING,
    Carried.AVAILABLE: Phase.AVAILABLE,
    Carried.FAILED: Phase.FAILED,
    Carried.REMOVING: Phase.REMOVING,
    Carried.REMOVE_FAILED: Phase.FAILED,
    Carried.REMOVED: Phase.REMOVED,
}
