"""A small world for staged runs: clusters that take their time, fail and get lost, and a clock to move.

    world = World(begin([stage("canary", env="canary")], cluster("a", env="canary")))
    world.go()                       syncs once and does what the result says
    world.pass_time(60)              lets the clusters continue

Every run goes through its JSON form between two steps, as a restart would do.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from clusters.fleet import Cluster
from placements.engine.rollout.actions import StartUpdate
from placements.engine.rollout.staged_run import (
    Approval,
    ApprovalPoint,
    CannotStart,
    PlacementFacts,
    StagedRunPlan,
    StagedRunState,
    StagedUpdateResult,
    initialise,
    run_from_plain,
)
from placements.engine.rollout.staged_update import next_actions
from placements.engine.rollout.state import ClusterState, Phase
from placements.manifests.staged_update import (
    RunState,
    StagedStrategySpec,
    parse_staged_strategy,
)

START = datetime(2026, 8, 20, 12, 0, tzinfo=UTC)
NEW = "new"
Document = dict[str, Any]


def stage(
    name: str,
    *,
    before: bool = False,
    after: bool = False,
    wait: str = "",
    **fields: Any,
) -> Document:
    """Write a stage; fields that are not its own are the labels that it selects."""
    own: Document = {
        key: fields.pop(key)
        for key in ("maxConcurrency", "sortingLabelKey")
        if key in fields
    }
    tasks = [{"type": "TimedWait", "waitTime": wait}] if wait else []
    tasks += [{"type": "Approval"}] if after else []
    return {
        "name": name,
        "labelSelector": {"matchLabels": fields},
        "beforeStageTasks": [{"type": "Approval"}] if before else [],
        "afterStageTasks": tasks,
        **own,
    }


def strategy(stages: Iterable[Document]) -> StagedStrategySpec:
    """Read stages as a document would bring them."""
    return parse_staged_strategy(
        {
            "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
            "kind": "ClusterStagedUpdateStrategy",
            "metadata": {"name": "strategy"},
            "spec": {"stages": list(stages)},
        }
    ).spec


def placed(*picked: Cluster, **facts: Any) -> PlacementFacts:
    """Return the facts of a placement whose clusters are all to get the new version."""
    return PlacementFacts(picked, {cluster.name: NEW for cluster in picked}, **facts)


def begin(stages: Iterable[Document], *picked: Cluster, **facts: Any) -> StagedRunPlan:
    """Initialise a run that can start."""
    run = initialise(strategy(stages), placed(*picked, **facts))
    assert isinstance(run, StagedRunPlan)
    return run


def seen(
    name: str, phase: Phase, version: str, since: datetime, **more: Any
) -> ClusterState:
    """Return a cluster as it was last observed."""
    return ClusterState(name, None, version, phase, phase_changed_at=since, **more)


@dataclass
class World:
    """A run, its clusters, and the time."""

    run: StagedRunPlan
    state: RunState = RunState.RUN
    now: datetime = START
    seconds: float = 10
    """How long a cluster applies and settles, each."""
    failures: dict[str, int] = field(default_factory=dict)
    """How many more tries go wrong, by cluster."""
    clusters: dict[str, ClusterState] = field(default_factory=dict)
    approvals: dict[Approval, datetime] = field(default_factory=dict)
    skipped: dict[str, datetime] = field(default_factory=dict)
    retries: dict[str, int] = field(default_factory=dict)
    today: StagedRunPlan | CannotStart | None = None
    others: tuple[StagedRunPlan, ...] = ()
    tried: dict[str, int] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    answers: list[StagedUpdateResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        for step in self.run.steps:
            phase, version = (
                (Phase.AVAILABLE, "old")
                if not step.version
                else (Phase.NOT_STARTED, "")
            )
            self.clusters.setdefault(step.name, seen(step.name, phase, version, START))

    def sync_result(self) -> StagedUpdateResult:
        """Return what to do, and do nothing."""
        actions = (self.approvals, self.skipped, self.retries)
        return next_actions(
            StagedRunState(
                self.run,
                self.state,
                self.clusters,
                self.now,
                *actions,
                self.today,
                self.others,
            )
        )

    def go(self) -> StagedUpdateResult:
        """Store the next result of the run, and execute it."""
        answer = self.sync_result()
        self.run = run_from_plain(json.loads(json.dumps(answer.run.to_plain())))
        assert self.run == answer.run
        self.answers.append(answer)
        for action in answer.actions:
            if isinstance(action, StartUpdate):
                self._begin(
                    action.cluster,
                    action.attempt,
                    Phase.APPLYING,
                    action.version,
                    self.started,
                )
            else:
                version = self.clusters[action.cluster].running or ""
                self._begin(
                    action.cluster,
                    action.attempt,
                    Phase.REMOVING,
                    version,
                    self.removed,
                )
        return answer

    def _begin(
        self, name: str, attempt: int, phase: Phase, version: str, log: list[str]
    ) -> None:
        """Execute what was not executed before: an answer that comes twice does no harm."""
        if self.tried.get(name, 0) >= attempt:
            return
        self.tried[name] = attempt
        log.append(name)
        self.clusters[name] = self.clusters[name]._replace(
            phase=phase,
            running=version,
            attempts=attempt,
            phase_changed_at=self.now,
        )

    def pass_time(self, seconds: float) -> None:
        """Move the clock in steps, in which clusters continue."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now = min(end, self.now + timedelta(seconds=self.seconds))
            for name in self.clusters:
                self._move(name)

    def _move(self, name: str) -> None:
        fact = self.clusters[name]
        if not fact.is_reachable or fact.phase_changed_at is None:
            return
        if self.now - fact.phase_changed_at < timedelta(seconds=self.seconds):
            return
        following = _NEXT.get(fact.phase)
        if following and self.failures.get(name, 0) > 0:
            self.failures[name] -= 1
            following = Phase.FAILED
        if following:
            self.clusters[name] = fact._replace(
                phase=following, phase_changed_at=self.now
            )

    def approve(self, stage: str, when: str) -> None:
        """Approve a stage."""
        self.approvals[Approval(stage, ApprovalPoint(when))] = self.now

    def reach(self, name: str, *, reachable: bool) -> None:
        """Lose a cluster, or find it again."""
        self.clusters[name] = self.clusters[name]._replace(
            unreachable_since=None if reachable else self.now
        )

    def go_on(self, *, times: int = 200) -> StagedUpdateResult:
        """Sync and let time pass until the run is over or waits for an approval."""
        for _ in range(times):
            answer = self.go()
            if (
                self.run.outcome
                or answer.approvals
                or not (answer.concurrency or answer.waits)
            ):
                break
            self.pass_time(self.seconds)
        return answer

    def having(self, phase: Phase) -> set[str]:
        """Return the clusters in a phase."""
        return {name for name, fact in self.clusters.items() if fact.phase is phase}


_NEXT = {
    Phase.APPLYING: Phase.APPLIED,
    Phase.APPLIED: Phase.AVAILABLE,
    Phase.REMOVING: Phase.REMOVED,
}
