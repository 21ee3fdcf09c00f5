"""The state of a cluster or a placement in one word, with the mark that goes with it."""

from dataclasses import dataclass

from clusters.models import MemberCluster, Membership
from placements.explain.wording import ELIGIBILITY_WORDS
from placements.models import ClusterUpdate, Placement, Rollout, StagedRun
from placements.models.staged import INITIALISING
from placements.rollout.answer import Verdict
from placements.rollout.staged_facts import RunStatus
from placements.rollout.state import Phase
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.outcomes import Outcome

_OUTCOMES = {
    Outcome.PICKED: "ok",
    Outcome.KEPT: "ok",
    Outcome.UNSCHEDULED: "attention",
    Outcome.NOT_ELIGIBLE: "failed",
    Outcome.FILTERED: "blocked",
}


@dataclass(frozen=True, slots=True)
class State:
    """A mark, told apart by its shape, and the words beside it."""

    mark: str
    words: str


def cluster_state(cluster: MemberCluster, *, is_cordoned: bool) -> State:
    """Say how a cluster stands in the fleet."""
    if cluster.membership == Membership.LEAVING:
        return State("blocked", "leaving")
    if not cluster.is_eligible:
        return State("failed", ELIGIBILITY_WORDS[EligibilityKind(cluster.verdict)])
    if is_cordoned:
        return State("attention", "cordoned")
    if cluster.membership == Membership.JOINING:
        return State("progress", "joining")
    return State("ok", "eligible")


def placement_state(placement: Placement) -> State:
    """Say how a placement stands."""
    if placement.deleting_since:
        return State("blocked", "being deleted")
    if placement.selection_faults:
        return State("failed", "selectors at fault")
    if placement.is_due:
        return State("progress", "being decided")
    if placement.is_fulfilled is None:
        return State("neutral", "not decided")
    return State("ok", "fulfilled") if placement.is_fulfilled else State("attention", "not fulfilled")


_PHASES: dict[str, State] = {
    Phase.NOTHING: State("neutral", "nothing yet"),
    Phase.APPLYING: State("progress", "applying"),
    Phase.SETTLING: State("progress", "settling"),
    Phase.AVAILABLE: State("ok", "available"),
    Phase.FAILED: State("failed", "failed"),
    Phase.REMOVING: State("progress", "being removed"),
    Phase.REMOVE_FAILED: State("failed", "removal failed"),
    Phase.REMOVED: State("neutral", "removed"),
    ClusterUpdate.Outcome.SUPERSEDED.value: State("neutral", "superseded"),
}


def phase_state(phase: str) -> State:
    """Say how far a cluster has come with what was started there."""
    return _PHASES.get(phase, State("neutral", phase.replace("-", " ")))


def run_state(run: Rollout, verdict: str | None) -> State:
    """Say how a run stands."""
    if run.state == Rollout.State.FINISHED:
        return State("ok", "finished")
    if run.state == Rollout.State.SUPERSEDED:
        return State("neutral", "superseded")
    if run.state == Rollout.State.STOPPED:
        return State("blocked", "stopped")
    if run.placement and run.placement.paused_since:
        return State("blocked", "paused")
    is_news = run.placement is not None and run.placement.wants_a_look
    is_halted = verdict == Verdict.HALTED and not is_news
    return State("attention", "halted") if is_halted else State("progress", "running")


_STAGED: dict[str, State] = {
    INITIALISING: State("progress", "being prepared"),
    RunStatus.INITIALISED: State("blocked", "prepared"),
    RunStatus.PROGRESSING: State("progress", "running"),
    RunStatus.WAITING: State("attention", "waiting"),
    RunStatus.STUCK: State("attention", "stuck"),
    RunStatus.STOPPING: State("progress", "stopping"),
    RunStatus.STOPPED: State("blocked", "stopped"),
    RunStatus.SUCCEEDED: State("ok", "finished"),
    RunStatus.FAILED: State("failed", "failed"),
    RunStatus.ABANDONED: State("neutral", "abandoned"),
}


def staged_state(run: StagedRun) -> State:
    """Say how a staged run stands."""
    if run.ended_at is None and run.placement and run.placement.paused_since:
        return State("blocked", "paused")
    return _STAGED[run.status]


_PARTS = {
    "done": "ok",
    "running": "progress",
    "failed": "failed",
    "skipped": "neutral",
}


def part_state(words: str) -> State:
    """Say how far a part of a staged run is: a stage, a cluster."""
    return State(_PARTS.get(words, "neutral"), words)


def stage_state(words: str, *, is_asking: bool) -> State:
    """Say how far a stage is; `is_asking` while it waits for somebody to approve."""
    if is_asking:
        return State("attention", "waiting for an approval")
    return State("progress", "under way") if words == "current" else part_state(words)


def outcome_mark(outcome: Outcome) -> str:
    """Give the mark of what became of a cluster in a decision."""
    return _OUTCOMES.get(outcome, "neutral")


def picked_of(placement: Placement) -> str:
    """Say how many clusters a placement has, of how many: "5 of 5", "all 9", "3 of 3 named"."""
    placed = placement.placed_count
    if placement.number_of_clusters is not None:
        return f"{placed:,} of {placement.number_of_clusters:,}"
    policy = (placement.document.get("spec") or {}).get("policy") or {}
    names = policy.get("clusterNames") or ()
    return (
        f"{placed:,} of {len(names):,} named"
        if placement.placement_type == "PickFixed"
        else f"all {placed:,}"
    )
