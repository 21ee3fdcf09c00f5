"""Single clusters in a staged run: what was seen of them, and which are started or tried again."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from placements.rollout.staged_facts import EMPTY, ClusterFacts, Phase, RunFacts
from placements.rollout.stages import ClusterStep, Stage


@dataclass(frozen=True, slots=True)
class Moment:
    """The world at one time."""

    facts: RunFacts
    at: datetime

    def observed(self, stage: Stage, *, removing: bool) -> Stage:
        """Write down what became of the clusters of a stage that were started."""
        running = [step for step in stage.steps if step.is_running]
        return stage.replacing({step.name: self._seen(step, removing) for step in running})

    def _seen(self, step: ClusterStep, removing: bool) -> ClusterStep:
        """Take note of an end; an unreachable cluster is neither done nor failed (lifecycle A.1)."""
        fact = self.facts.of(step.name)
        if not fact.is_reachable:
            return step
        since = max(fact.since or self.at, step.started_at or self.at)
        if _is_done(step, fact, removing):
            return replace(step, done_at=since, failed_at=None)
        is_new = step.failed_at is None and _is_news(step, fact)
        is_ours = removing or fact.version == step.version
        return step.failed(since) if is_ours and is_new and fact.phase is Phase.FAILED else step

    def taken_over(self, stage: Stage) -> tuple[str, ...]:
        """List the clusters that somebody else has brought to another version meanwhile (lifecycle B.5.4)."""
        return tuple(step.name for step in stage.steps if step.is_running and self._is_taken(step))

    def _is_taken(self, step: ClusterStep) -> bool:
        """Tell whether a cluster has a version that this run did not bring, and did not find either.

        What it found may also come back: then it counts whether another run started it there since.
        """
        version = self.facts.of(step.name).version
        if version in ("", step.version):
            return False
        return version != step.before or self._was_brought(version, step)

    def _was_brought(self, version: str, step: ClusterStep) -> bool:
        """Tell whether another run started this version on the cluster after this run had begun there."""
        theirs = (other for run in self.facts.others for other in run.steps if other.name == step.name)
        return any(
            other.version == version and other.started_at >= step.started_at
            for other in theirs
            if other.started_at and step.started_at
        )

    def filled(self, stage: Stage) -> Stage:
        """Start as many clusters as may run at once, in their order; what failed is tried again when due.

        A cluster that has the version already is done without having been started. An unreachable one is
        left for later; one that was started keeps its place, lest a bad version goes on to the next.
        """
        there = {step.name: self._done(step) for step in stage.steps if self._is_there(step)}
        stage = stage.replacing(there)
        free = stage.limit - sum(step.is_running for step in stage.steps)
        ready = [step for step in stage.steps if step.is_waiting and self._may_start(step)]
        started = {step.name: self._started(step) for step in ready[: max(0, free)]}
        return self.retried(stage.replacing(started))

    def retried(self, stage: Stage) -> Stage:
        """Try failed clusters again whose time has come, or of which somebody asks it."""
        due = [step for step in stage.steps if self._is_due(step)]
        return stage.replacing({step.name: step.tried_again(self.at) for step in due})

    def unseen(self, stage: Stage, *, removing: bool) -> Iterator[ClusterStep]:
        """Give the steps that were started, now or before, and of which the cluster shows nothing yet."""
        for step in stage.steps:
            fact = self.facts.of(step.name)
            is_waited_for = step.is_running and step.failed_at is None and fact.is_reachable
            if is_waited_for and not _shows(step, fact, removing):
                yield step

    def emptied(self, stage: Stage) -> Stage:
        """Start every removal on a cluster that can be reached, all at once (lifecycle B.5.4)."""
        left = [step for step in stage.steps if not step.done_at and self.facts.of(step.name).is_reachable]
        empty = [step for step in left if self.facts.of(step.name).phase in EMPTY]
        stage = stage.replacing({step.name: self._done(step) for step in empty})
        started = {step.name: self._started(step) for step in left if step.is_waiting and step not in empty}
        return self.retried(stage.replacing(started))

    def _started(self, step: ClusterStep) -> ClusterStep:
        return step.started(self.at, self.facts.of(step.name).version)

    def _done(self, step: ClusterStep) -> ClusterStep:
        return replace(self._started(step), done_at=self.at)

    def _is_there(self, step: ClusterStep) -> bool:
        fact = self.facts.of(step.name)
        return step.is_waiting and fact.is_reachable and _is_done(step, fact, removing=False)

    def _may_start(self, step: ClusterStep) -> bool:
        """Tell whether a cluster can be reached and is not busy with an older removal."""
        fact = self.facts.of(step.name)
        return fact.is_reachable and fact.phase is not Phase.REMOVING

    def _is_due(self, step: ClusterStep) -> bool:
        if step.failed_at is None or step.retry_at is None or not self.facts.of(step.name).is_reachable:
            return False
        asked = self.facts.retries.get(step.name)
        return step.retry_at <= self.at or (asked is not None and asked >= step.failed_at)


def _is_done(step: ClusterStep, fact: ClusterFacts, removing: bool) -> bool:
    if removing:
        return fact.phase in EMPTY
    return fact.phase is Phase.AVAILABLE and fact.version == step.version


def _is_news(step: ClusterStep, fact: ClusterFacts) -> bool:
    """Tell whether a fact is from after the last try."""
    return fact.since is None or step.tried_at is None or fact.since >= step.tried_at


def _shows(step: ClusterStep, fact: ClusterFacts, removing: bool) -> bool:
    """Tell whether the cluster shows the work of the last try, or is still busy with an older removal."""
    if removing or fact.phase is Phase.REMOVING:
        return fact.phase is Phase.REMOVING
    return fact.version == step.version and fact.phase not in (*EMPTY, Phase.FAILED)
