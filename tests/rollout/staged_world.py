"""A small world for staged runs: clusters that take their time, fail and get lost, and a clock to move.

    world = World(begin([stage("canary", env="canary")], cluster("a", env="canary")))
    world.go()                       asks once and carries out what the answer says
    world.pass_time(60)              lets the clusters go on

Every run goes through its JSON form between two steps, as a restart would do.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from placements.rollout.staged import CannotStart, PlacementFacts, initialise
from placements.rollout.staged_actions import next_actions
from placements.rollout.staged_facts import Answer, ClusterFacts, Phase, RunFacts
from placements.rollout.stages import Approval, StagedRun, When, run_from_plain
from placements.scheduling.door.staged_documents import RunState, StagedStrategySpec, parse_staged_strategy
from placements.scheduling.fleet import Cluster

START = datetime(2026, 8, 20, 12, 0, tzinfo=UTC)
NEW = "new"
Document = dict[str, Any]


def stage(name: str, *, before: bool = False, after: bool = False, wait: str = "", **fields: Any) -> Document:
    """Write a stage; fields that are not its own are the labels that it selects."""
    own: Document = {key: fields.pop(key) for key in ("maxConcurrency", "sortingLabelKey") if key in fields}
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
    """Give the facts of a placement whose clusters are all to get the new version."""
    return PlacementFacts(picked, {cluster.name: NEW for cluster in picked}, **facts)


def begin(stages: Iterable[Document], *picked: Cluster, **facts: Any) -> StagedRun:
    """Initialise a run that can start."""
    run = initialise(strategy(stages), placed(*picked, **facts))
    assert isinstance(run, StagedRun)
    return run


@dataclass
class World:
    """A run, its clusters, and the time."""

    run: StagedRun
    state: RunState = RunState.RUN
    now: datetime = START
    seconds: float = 10
    """How long a cluster applies and settles, each."""
    failures: dict[str, int] = field(default_factory=dict)
    """How many more tries go wrong, by cluster."""
    clusters: dict[str, ClusterFacts] = field(default_factory=dict)
    approvals: dict[Approval, datetime] = field(default_factory=dict)
    skipped: dict[str, datetime] = field(default_factory=dict)
    retries: dict[str, datetime] = field(default_factory=dict)
    today: StagedRun | CannotStart | None = None
    others: tuple[StagedRun, ...] = ()
    tried: dict[str, int] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        for step in self.run.steps:
            phase, version = (Phase.AVAILABLE, "old") if not step.version else (Phase.NOTHING, "")
            self.clusters.setdefault(step.name, ClusterFacts(phase, version, START))

    def ask(self) -> Answer:
        """Ask what to do, and do nothing."""
        hands = (self.approvals, self.skipped, self.retries)
        facts = RunFacts(self.state, self.clusters, *hands, self.today, self.others)
        return next_actions(self.run, facts, self.now)

    def go(self) -> Answer:
        """Ask what to do, store the run, and do it."""
        answer = self.ask()
        self.run = run_from_plain(json.loads(json.dumps(answer.run.to_plain())))
        assert self.run == answer.run
        self.answers.append(answer)
        for start in answer.start:
            self._begin(start.cluster, start.attempt, Phase.APPLYING, start.version, self.started)
        for remove in answer.remove:
            version = self.clusters[remove.cluster].version
            self._begin(remove.cluster, remove.attempt, Phase.REMOVING, version, self.removed)
        return answer

    def _begin(self, name: str, attempt: int, phase: Phase, version: str, log: list[str]) -> None:
        """Carry out what was not carried out before: an answer that comes twice does no harm."""
        if self.tried.get(name, 0) >= attempt:
            return
        self.tried[name] = attempt
        log.append(name)
        self.clusters[name] = replace(self.clusters[name], phase=phase, version=version, since=self.now)

    def pass_time(self, seconds: float) -> None:
        """Move the clock in steps, in which clusters go on."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now = min(end, self.now + timedelta(seconds=self.seconds))
            for name in self.clusters:
                self._move(name)

    def _move(self, name: str) -> None:
        fact = self.clusters[name]
        if not fact.is_reachable or fact.since is None:
            return
        if self.now - fact.since < timedelta(seconds=self.seconds):
            return
        following = _NEXT.get(fact.phase)
        if following and self.failures.get(name, 0) > 0:
            self.failures[name] -= 1
            following = Phase.FAILED
        if following:
            self.clusters[name] = replace(fact, phase=following, since=self.now)

    def approve(self, stage: str, when: str) -> None:
        """Let a stage go on."""
        self.approvals[Approval(stage, When(when))] = self.now

    def reach(self, name: str, *, reachable: bool) -> None:
        """Lose a cluster, or find it again."""
        self.clusters[name] = replace(self.clusters[name], is_reachable=reachable)

    def go_on(self, *, times: int = 200) -> Answer:
        """Ask and let time pass until the run is over or waits for somebody."""
        for _ in range(times):
            answer = self.go()
            if self.run.outcome or answer.asks or not (answer.slots or answer.waits):
                break
            self.pass_time(self.seconds)
        return answer

    def having(self, phase: Phase) -> set[str]:
        """Give the clusters in a phase."""
        return {name for name, fact in self.clusters.items() if fact.phase is phase}


_NEXT = {
    Phase.APPLYING: Phase.SETTLING,
    Phase.SETTLING: Phase.AVAILABLE,
    Phase.REMOVING: Phase.REMOVED,
}
