"""How a staged run begins: which cluster is in which stage, or why it cannot start (lifecycle B.5.2)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from placements.rollout.stages import ClusterStep, Reason, Stage, StagedRun
from placements.scheduling.door.staged_documents import StagedStrategySpec, StageSpec
from placements.scheduling.fleet import Cluster, Fleet
from placements.scheduling.selectors import match_labels

DELETE_STAGE = "kubernetes-fleet.io/deleteStage"
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class PlacementFacts:
    """What a run has to know of its placement when it begins."""

    picked: tuple[Cluster, ...]
    versions: Mapping[str, str]
    unscheduled: tuple[str, ...] = ()
    expected: int | None = None
    is_staged: bool = True
    is_being_deleted: bool = False
    is_decided: bool = True
    policy_snapshot: str = ""
    apply_strategy: str = ""


@dataclass(frozen=True, slots=True)
class CannotStart:
    """Why a run cannot start; one that is not final may be tried again when the scheduler has decided."""

    reasons: tuple[Reason, ...]
    is_final: bool = True


@dataclass
class _Members:
    """Which cluster was found in which stage."""

    of_stage: list[tuple[str, ...]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def initialise(strategy: StagedStrategySpec, placement: PlacementFacts) -> StagedRun | CannotStart:
    """Freeze stages, order, versions and deletions, or say everything that forbids it.

    Departing from the released system, a placement that is not decided yet may be tried again, and a cluster
    without a whole number as its sorting label comes after the others (lifecycle A.13).
    """
    if placement.is_staged and not placement.is_being_deleted and not placement.is_decided:
        return CannotStart((Reason("not-decided"),), is_final=False)
    members = _members(strategy.stages, placement.picked)
    reasons = (*_placement_reasons(placement), *_stage_reasons(members, placement.picked))
    if reasons:
        return CannotStart(reasons)
    stages = zip(strategy.stages, members.of_stage, strict=True)
    deletions = Stage(DELETE_STAGE, tuple(map(ClusterStep, sorted(placement.unscheduled))))
    return StagedRun(
        tuple(_stage(spec, names, placement.versions) for spec, names in stages),
        deletions,
        placement.policy_snapshot,
        placement.apply_strategy,
    )


def _placement_reasons(placement: PlacementFacts) -> Iterable[Reason]:
    if placement.is_being_deleted:
        yield Reason("being-deleted")
    if not placement.is_staged:
        yield Reason("not-staged")
    if not placement.picked and not placement.unscheduled:
        yield Reason("nothing-to-do")
    if placement.expected is not None and placement.expected != len(placement.picked):
        yield Reason("other-number", wanted=placement.expected, found=len(placement.picked))


def _stage_reasons(members: _Members, picked: Iterable[Cluster]) -> Iterable[Reason]:
    """Every cluster belongs to exactly one stage."""
    names = sorted(cluster.name for cluster in picked)
    nowhere = tuple(name for name in names if not members.counts[name])
    several = tuple(name for name in names if members.counts[name] > 1)
    if nowhere:
        yield Reason("in-no-stage", nowhere)
    if several:
        yield Reason("in-several-stages", several)


def _members(stages: Iterable[StageSpec], picked: tuple[Cluster, ...]) -> _Members:
    fleet, found = Fleet(picked), _Members()
    by_name = {cluster.name: cluster for cluster in picked}
    for stage in stages:
        if stage.label_selector is None:
            names: list[str] = []
        else:
            mask = match_labels(stage.label_selector, fleet).tolist()
            names = [name for name, matches in zip(fleet.names, mask, strict=True) if matches]
        found.of_stage.append(_in_order(names, stage.sorting_label_key, by_name))
        found.counts.update(names)
    return found


def _in_order(names: Iterable[str], key: str | None, by_name: Mapping[str, Cluster]) -> tuple[str, ...]:
    """Sort by the whole number that the label holds, then by name; clusters without one come last."""

    def place(name: str) -> tuple[bool, int, str]:
        text = by_name[name].labels.get(key, "") if key else ""
        return (False, int(text), name) if _INTEGER.fullmatch(text) else (True, 0, name)

    return tuple(sorted(names, key=place))


def _stage(spec: StageSpec, names: tuple[str, ...], versions: Mapping[str, str]) -> Stage:
    return Stage(
        spec.name,
        tuple(ClusterStep(name, versions[name]) for name in names),
        spec.max_concurrency.at_least_one_of(len(names)),
        spec.needs_approval_before,
        spec.needs_approval_after,
        spec.wait,
    )


def why_invalid(run: StagedRun, fresh: StagedRun | CannotStart) -> tuple[Reason, ...]:
    """Say why a run cannot go on, given what `initialise` says today of the strategy that it froze (B.5.3).

    A placement that is being decided anew is no reason: the run goes on with what it has.
    """
    if isinstance(fresh, CannotStart):
        excused = {"nothing-to-do"} if not any(stage.steps for stage in run.stages) else set()
        return tuple(one for one in fresh.reasons if fresh.is_final and one.code not in excused)
    if run.policy_snapshot != fresh.policy_snapshot:
        return (Reason("new-policy"),)
    if run.apply_strategy != fresh.apply_strategy:
        return (Reason("new-apply-strategy"),)
    was, became = ([(stage.name, stage.cluster_names) for stage in each.stages] for each in (run, fresh))
    if was != became:
        moved = {before[0] for before, after in zip(was, became, strict=False) if before != after}
        return (Reason("other-stages", tuple(sorted(moved))),)
    added = set(fresh.deletions.cluster_names) - set(run.deletions.cluster_names)
    return (Reason("new-deletions", tuple(sorted(added))),) if added else ()
