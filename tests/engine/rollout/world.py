"""A simulated world for rollouts: a clock, and clusters that take time, fail, vanish and come back.

The world does what the core answers and nothing else, and keeps nothing of an answer from one step to the
next, as a worker that is killed would not. Every start is checked against the rules by plain counting.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from placements.engine.rollout.actions import (
    Action,
    Remove,
    RollingUpdateResult,
    RunPhase,
    StartUpdate,
    UpdateReason,
)
from placements.engine.rollout.rolling_update import next_actions
from placements.engine.rollout.state import (
    ClusterState,
    Phase,
    RolloutState,
    Suspension,
    retry_delay,
)
from placements.manifests.policy import PlacementType
from tests.engine.rollout.states import NOON

FAR = timedelta(days=1)


@dataclass
class World:
    """Clusters and their drivers; `bad` versions are applied and never become available."""

    state: RolloutState
    seconds: Mapping[str, int] = field(default_factory=dict)
    timed: bool = False
    bad: frozenset[str] = frozenset()
    failures: Counter[str] = field(default_factory=Counter)
    ends: dict[str, datetime] = field(default_factory=dict)
    starts: list[tuple[float, Action]] = field(default_factory=list)
    changes: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Take up what was in flight before this world was looked at."""
        for cluster in self.state.clusters:
            self._expect(cluster)

    @property
    def clusters(self) -> dict[str, ClusterState]:
        """Return the clusters by name."""
        return {cluster.name: cluster for cluster in self.state.clusters}

    def put(self, facts: ClusterState) -> None:
        """Write down what is now known of a cluster."""
        self.state = replace(
            self.state, clusters=tuple({**self.clusters, facts.name: facts}.values())
        )

    def step(self) -> RollingUpdateResult:
        """Sync, do what the result says, and advance the clock to the next event."""
        answer = next_actions(self.state)
        for action in answer.actions:
            check_start(self.state, action)
            self._start(action)
        moments = [self.ends[name] for name in self._busy()]
        moments += [answer.requeue_at] if answer.requeue_at else []
        if moments:
            self.state = replace(self.state, at=max(self.state.at, min(moments)))
        self._observe()
        return answer

    def run(self, steps: int = 400) -> RollingUpdateResult:
        """Continue until nothing moves any more."""
        for _ in range(steps):
            answer = self.step()
            is_at_rest = answer.phase in (RunPhase.FINISHED, RunPhase.HALTED)
            if is_at_rest and not answer.requeue_at:  # no retry is due
                return answer
        raise AssertionError(f"still going after {steps} steps: {answer}")

    def batches(self) -> list[tuple[float, str]]:
        """Return who started at which second after noon."""
        times = sorted({second for second, _ in self.starts})
        return [
            (time, " ".join(one.cluster for at, one in self.starts if at == time))
            for time in times
        ]

    def lose(self, name: str) -> None:
        """Put a cluster out of reach; what it does is not known until it is back."""
        if self.clusters[name].is_reachable:
            self.put(self.clusters[name]._replace(unreachable_since=self.state.at))

    def find(self, name: str) -> None:
        """Bring a cluster back; what was in flight there ends a moment later."""
        self.put(self.clusters[name]._replace(unreachable_since=None))
        if name in self.ends:
            self.ends[name] = max(self.ends[name], self.state.at + timedelta(seconds=1))

    def want(self, versions: Mapping[str, str]) -> None:
        """Supersede or scale: say who shall have which version from now on."""
        self.state = self.state.with_wanted(versions)

    def _busy(self) -> list[str]:
        return [name for name in self.ends if self.clusters[name].is_reachable]

    def _start(self, action: Action) -> None:
        self.starts.append(((self.state.at - NOON).total_seconds(), action))
        facts = self.clusters[action.cluster]._replace(
            untrackable_since=None,
            attempts=action.attempt,
            retry_at=None,
        )
        if isinstance(action, StartUpdate):
            facts = facts._replace(running=action.version, phase=Phase.APPLYING)
        else:
            facts = facts._replace(phase=Phase.REMOVING)
        self.put(facts)
        self._expect(facts)

    def _expect(self, facts: ClusterState) -> None:
        self.ends.pop(facts.name, None)
        is_stuck = facts.phase is Phase.APPLIED and (
            facts.running in self.bad or facts.untrackable_since
        )
        if (
            facts.phase in (Phase.APPLYING, Phase.REMOVING, Phase.APPLIED)
            and not is_stuck
        ):
            self.ends[facts.name] = self.state.at + timedelta(
                seconds=self.seconds.get(facts.name, 10)
            )

    def _observe(self) -> None:
        for name in self._busy():
            if self.ends[name] <= self.state.at:
                facts = self._ended(self.clusters[name])
                self.put(facts)
                self._expect(facts)

    def _ended(self, facts: ClusterState) -> ClusterState:
        if facts.phase is not Phase.APPLIED and self.failures[facts.name] > 0:
            self.failures[facts.name] -= 1
            failed = (
                Phase.FAILED if facts.phase is Phase.APPLYING else Phase.REMOVE_FAILED
            )
            due = self.state.at + retry_delay(facts.attempts)
            return facts._replace(phase=failed, retry_at=due)
        if facts.phase is Phase.REMOVING:
            return facts._replace(phase=Phase.REMOVED, running=None)
        if facts.phase is Phase.APPLIED:
            return facts._replace(phase=Phase.AVAILABLE)
        self.changes[facts.name, facts.running] += 1
        since = self.state.at if self.timed and facts.running not in self.bad else None
        return facts._replace(phase=Phase.APPLIED, untrackable_since=since)


def check_start(state: RolloutState, action: Action) -> None:
    """Check one start against `rules/lifecycle.md#starts` by counting again, without the core's budgets."""
    facts = {cluster.name: cluster for cluster in state.clusters}[action.cluster]
    reached = [
        cluster
        for cluster in state.clusters
        if cluster.is_in_fleet and cluster.unreachable_since is None
    ]
    available = [
        cluster_state.name
        for cluster_state in reached
        if _is_available(cluster_state, state)
    ]
    selected = sum(cluster.wanted is not None for cluster in state.clusters)
    assert facts in reached
    assert state.suspension is Suspension.NONE or (
        state.suspension is Suspension.STOPPED and state.deletion
    )
    if state.deletion:
        running = sum(
            cluster_state.phase is Phase.REMOVING for cluster_state in reached
        )
        assert running + 1 <= max(
            1, _ceil(state.strategy.max_unavailable, state.deletion.number)
        )
    elif isinstance(action, StartUpdate) and action.reason is UpdateReason.ADD:
        assert facts.phase in (Phase.NOT_STARTED, Phase.REMOVED)
        holding = sum(
            cluster_state.phase not in (Phase.NOT_STARTED, Phase.REMOVED)
            for cluster_state in reached
        )
        assert holding + 1 <= selected + _ceil(state.strategy.max_surge, selected)
    elif action.cluster in available:
        number = (
            _number_for_removals(state, selected)
            if isinstance(action, Remove)
            else selected
        )
        assert len(available) - 1 >= max(
            0, number - _ceil(state.strategy.max_unavailable, number)
        )
    assert isinstance(action, Remove) == (facts.wanted is None)
    is_same = isinstance(action, StartUpdate) and facts.running == action.version
    assert not is_same or facts.phase in (Phase.FAILED, Phase.REMOVE_FAILED)


def _is_available(facts: ClusterState, state: RolloutState) -> bool:
    period = timedelta(seconds=state.strategy.unavailable_period_seconds)
    settled = (
        facts.phase is Phase.APPLIED
        and facts.untrackable_since
        and facts.untrackable_since + period <= state.at
    )
    return facts.phase is Phase.AVAILABLE or bool(settled)


def _number_for_removals(state: RolloutState, selected: int) -> int:
    if state.policy.placement_type is PlacementType.PICK_N:
        return int(str(state.policy.number_of_clusters))
    return len(state.policy.cluster_names) if state.policy.cluster_names else selected


def _ceil(amount: object, number: int) -> int:
    text = str(amount)
    return -(-number * int(text[:-1]) // 100) if text.endswith("%") else int(text)
