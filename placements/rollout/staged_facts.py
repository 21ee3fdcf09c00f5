"""What a staged run is told of the world, and what it answers (`spec/lifecycle.md` A.1, A.12, B.5.4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from placements.rollout.staged import CannotStart
from placements.rollout.stages import Approval, StagedRun
from placements.scheduling.door.staged_documents import RunState


class Phase(StrEnum):
    """What a placement is doing on one cluster."""

    NOTHING = "nothing"
    APPLYING = "applying"
    SETTLING = "settling"
    AVAILABLE = "available"
    FAILED = "failed"
    REMOVING = "removing"
    REMOVED = "removed"


IN_FLIGHT = frozenset({Phase.APPLYING, Phase.SETTLING, Phase.REMOVING})
EMPTY = frozenset({Phase.NOTHING, Phase.REMOVED})


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What was last seen of a placement on a cluster: the version the phase is about, and since when."""

    phase: Phase = Phase.NOTHING
    version: str = ""
    since: datetime | None = None
    is_reachable: bool = True


GONE = ClusterFacts(is_reachable=False)
"""What is known of a cluster that has left the fleet."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The world around a run: what its author wants, its clusters, and what hands have done, and when.

    A cluster that is missing from `clusters` has left the fleet. `fresh` is what `initialise` answers now for
    the strategy that the run froze; without it nothing is validated. `others` are the other runs of the
    placement that have not ended.
    """

    state: RunState
    clusters: Mapping[str, ClusterFacts]
    approvals: Mapping[Approval, datetime] = field(default_factory=dict)
    skipped_waits: Mapping[str, datetime] = field(default_factory=dict)
    retries: Mapping[str, datetime] = field(default_factory=dict)
    fresh: StagedRun | CannotStart | None = None
    others: tuple[StagedRun, ...] = ()

    def of(self, cluster: str) -> ClusterFacts:
        """Give what is known of a cluster."""
        return self.clusters.get(cluster, GONE)


class RunStatus(StrEnum):
    """Where a run stands, in one word (lifecycle B.5.6)."""

    INITIALISED = "initialised"
    PROGRESSING = "progressing"
    WAITING = "waiting"
    STUCK = "stuck"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ABANDONED = "abandoned"


class WaitFor(StrEnum):
    """What a run waits for."""

    RUN = "run"
    RESUME = "resume"
    APPROVAL_BEFORE = "approval-before"
    APPROVAL_AFTER = "approval-after"
    TIME = "time"
    CLUSTERS = "clusters"
    REMOVALS = "removals"
    RETRY = "retry"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that a run waits for: in which stage, for which clusters, until when if that is known."""

    what: WaitFor
    stage: str = ""
    names: tuple[str, ...] = ()
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Bring this version to this cluster; another attempt of the same version has a higher number."""

    cluster: str
    version: str
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the placement's resources away from this cluster."""

    cluster: str
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Slots:
    """The arithmetic of one stage: how many clusters may run at once, and do with those started now."""

    stage: str
    clusters: int
    limit: int
    running: int
    done: int

    @property
    def waiting(self) -> int:
        """Give how many clusters were not started yet."""
        return self.clusters - self.running - self.done


@dataclass(frozen=True, slots=True)
class Answer:
    """What to do now: store `run`, then start and remove, and look again at the time given or at news.

    `asks` are the approvals to be asked for now; `stuck` are clusters that have run for five minutes.
    """

    run: StagedRun
    status: RunStatus
    start: tuple[Start, ...] = ()
    remove: tuple[Remove, ...] = ()
    asks: tuple[Approval, ...] = ()
    waits: tuple[Wait, ...] = ()
    slots: Slots | None = None
    stuck: tuple[str, ...] = ()
    look_again_at: datetime | None = None
