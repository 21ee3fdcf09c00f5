"""Words of the page of a rollout or staged run: the verdict, the counts, what it waits for, the actions."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from fleetui.apimachinery.words import counted
from placements.engine.rollout.actions import BlockReason, RollingUpdateResult
from placements.engine.rollout.staged_run import (
    ClusterStep,
    Stage,
    StagedRunPlan,
    StagedUpdateResult,
    Wait,
    WaitReason,
)
from placements.explain.rollouts import blocked_groups, in_progress_sentence
from placements.explain.staged_updates import wait_sentence
from placements.explain.vocabulary import duration_text, seconds_between, verb


class Part(StrEnum):
    """How far a cluster has come with a run, in the order of the bar; a cluster is in one of them."""

    UPDATED = "updated"
    REMOVED = "removed"
    UPDATING = "updating"
    FAILED = "failed"
    NOT_AVAILABLE = "not available"
    PENDING = "pending"


LEVELS = {
    Part.UPDATED: "healthy",
    Part.REMOVED: "healthy",
    Part.UPDATING: "progress",
    Part.FAILED: "failed",
    Part.NOT_AVAILABLE: "attention",
    Part.PENDING: "pending",
}
DONE = (Part.UPDATED, Part.REMOVED)
OWN_REASONS = (
    BlockReason.UNREACHABLE,
    BlockReason.NOT_AVAILABLE,
    BlockReason.NOT_IN_FLEET,
    BlockReason.NOT_MONITORED,
)
"""What a cluster itself is the reason of: other reasons end with the progress of the rollout."""
_ALWAYS = (Part.UPDATED, Part.UPDATING, Part.NOT_AVAILABLE, Part.PENDING)
_MOST_NAMES = 8


class RunCount(NamedTuple):
    """A number of the header, which is the legend of the picture; a limit has no level."""

    number: str
    words: str
    level: str = ""


class WaitRow(NamedTuple):
    """Clusters, or a user, that a run waits for, with the sentence that they share."""

    level: str
    title: str
    names: Sequence[str]
    more: int
    why: str
    then: str = ""
    until: datetime | None = None


def with_troubles(
    parts: Mapping[str, Part], result: RollingUpdateResult | None
) -> dict[str, Part]:
    """Return how far clusters have come, where those that are not available by the last sync say so."""
    if result is None:
        return dict(parts)
    late = {
        cluster.cluster for cluster in result.blocked if cluster.reason in OWN_REASONS
    }
    found = {**dict.fromkeys(late, _OPEN), **dict.fromkeys(result.unreachable, _SOUND)}
    troubles = {
        name: Part.NOT_AVAILABLE
        for name, part in parts.items()
        if part in found.get(name, ())
    }
    return {**parts, **troubles}


_OPEN = (Part.PENDING, Part.UPDATING)
_SOUND = (*_OPEN, Part.UPDATED)


def state_counts(parts: Iterable[Part]) -> list[RunCount]:
    """Return the disjoint counts of clusters by state; those that stay sum to the total."""
    counts = Counter(parts)
    total = counts.total() - counts[Part.REMOVED]
    shown = [state for state in LEVELS if counts[state] or state in _ALWAYS]
    return [
        RunCount(
            f"{counts[state]:,}",
            f"{state}, of {total:,}" if state == Part.UPDATED else state,
            LEVELS[state],
        )
        for state in shown
    ]


def verdict_words(parts: Iterable[Part], waits: str = "") -> str:
    """Return how far a run is: "50 of 96 clusters updated, 2 not available", and what it waits for."""
    counts = Counter(parts)
    total = counts.total()
    done = f"{counts[Part.UPDATED]:,} of {counted(total - counts[Part.REMOVED], 'cluster')} updated"
    if counts[Part.REMOVED] == total:
        done = f"{counted(total, 'cluster')} removed"
    troubles = [
        f"{counts[state]:,} {state}"
        for state in (Part.FAILED, Part.NOT_AVAILABLE)
        if counts[state]
    ]
    return ", ".join(filter(None, [done, *troubles, waits]))


def stages_completed(run: StagedRunPlan, parts: Mapping[str, Part]) -> str:
    """Return how far a staged run is by its stages: it may wait with all clusters updated."""
    stages = [stage for stage in (*run.stages, run.deletions) if stage.steps]
    ended = sum(stage.ended_at is not None for stage in stages)
    words = f"{ended:,} of {counted(len(stages), 'stage')} completed"
    updated = [step for step in run.steps if parts[step.name] is Part.UPDATED]
    own = sum(
        step.started_at is not None and step.before != step.version for step in updated
    )
    if own < len(updated):
        words = f"{own:,} by this run, {words}"
    return words


def wait_rows(
    result: RollingUpdateResult, messages: Mapping[str, str]
) -> list[WaitRow]:
    """Return what a rolling update waits for: what is blocked and what is in progress, by what they share."""
    rows = []
    for group in blocked_groups(result):
        names = group.clusters[:_MOST_NAMES]
        level, state = _BLOCKED.get(group.reason, ("pending", Part.PENDING))
        message = messages.get(names[0], "")
        why = group.why
        if message:
            why += f" {message[:1].upper()}{message[1:].removesuffix('.')}."
        rows.append(
            WaitRow(
                level,
                f"{group.count:,} {state}",
                names,
                group.count - len(names),
                why,
                f"Unblocks when {group.unblocks_when}.",
                group.until,
            )
        )
    alike: dict[tuple[str, str, datetime | None], list[str]] = {}
    if result.actions:
        alike["starting", "", None] = [action.cluster for action in result.actions]
    for cluster in result.in_progress:
        key = (
            in_progress_sentence(cluster),
            messages.get(cluster.cluster, ""),
            cluster.available_at,
        )
        alike.setdefault(key, []).append(cluster.cluster)
    for (words, message, until), clusters in alike.items():
        state = words.partition(" until")[0]
        why = message and f"{message.removesuffix('.')}."
        rows.append(
            WaitRow(
                "progress",
                f"{len(clusters):,} {'removing' if state == 'removing' else Part.UPDATING}",
                clusters[:_MOST_NAMES],
                max(0, len(clusters) - _MOST_NAMES),
                why or f"{state.capitalize()}.",
                until=until,
            )
        )
    return sorted(rows, key=lambda row: _ORDER.index(row.level))


_BLOCKED = {
    BlockReason.NOT_AVAILABLE: ("attention", Part.NOT_AVAILABLE),
    BlockReason.UNREACHABLE: ("attention", "unreachable"),
    BlockReason.RETRY_LATER: ("failed", Part.FAILED),
}
_ORDER = ("failed", "attention", "progress", "pending")


def rolling_effects(
    parts: Iterable[Part],
    *,
    name: str,
    revision: int | None,
    is_paused: bool,
    can_roll_back: bool,
) -> list[tuple[str, str]]:
    counts = Counter(parts)
    running, left = counts[Part.UPDATING], counts[Part.PENDING]
    done, total = counts[Part.UPDATED], counts.total() - counts[Part.REMOVED]
    action = "Resume" if is_paused else "Pause"
    words = (
        f"{counted(left, 'pending update')} {verb(left, 'starts')} after you resume."
    )
    if not left:
        words = "Every update has started, and finishes; the next revision waits until you resume."
    elif is_paused:
        words = f"{counted(left, 'pending update')}."
    elif running:
        words = f"The {running:,} updating finish. {words}"
    stop = f"Ends this rollout at {done:,} of {total:,}; a new rollout continues."
    back = ""
    if can_roll_back:
        back = f"Makes an older revision the newest one and pins {name} to it."
    return [
        (action, words),
        ("Stop rollout", stop),
        *_common_effects(counts, revision, back),
    ]


def _common_effects(
    counts: Counter[Part], revision: int | None, back: str
) -> list[tuple[str, str]]:
    failed = counts[Part.FAILED]
    retry = "Nothing to do: no cluster failed."
    if failed:
        number = "the revision" if revision is None else f"revision {revision}"
        retry = f"Applies {number} again on the {failed:,} failed now."
    return [
        ("Retry", retry),
        ("Roll back", back or "No older resources are kept."),
    ]


def part_of_step(step: ClusterStep) -> Part:
    if step.done_at:
        return Part.UPDATED
    if step.failed_at:
        return Part.FAILED
    return Part.UPDATING if step.started_at else Part.PENDING


def staged_wait_rows(result: StagedUpdateResult, who: str) -> list[WaitRow]:
    """Return what a staged run waits for, each with the sentence of all its clusters; `who` may approve."""
    rows = []
    for wait in result.waits:
        level, title = _STAGED_WAITS.get(wait.reason, ("progress", Part.UPDATING))
        names = wait.names[:_MOST_NAMES]
        why, then = wait_sentence(wait), ""
        if wait.reason in _APPROVALS:
            why = _APPROVALS[wait.reason].format(stage=wait.stage, who=who)
            then = "There is no time limit."
        rows.append(
            WaitRow(
                level,
                f"{len(wait.names):,} {title}" if wait.names else title.capitalize(),
                names,
                len(wait.names) - len(names),
                why,
                then,
                wait.until,
            )
        )
    return rows


def next_stage_words(run: StagedRunPlan, wait: Wait, parts: Mapping[str, Part]) -> str:
    """Return what an approval starts: "Then prod: 5 clusters, 2 up to date, 2 at a time."."""
    names = [stage.name for stage in run.stages]
    at = names.index(wait.stage) + (wait.reason is WaitReason.APPROVAL_AFTER)
    following = next((stage for stage in run.stages[at:] if stage.steps), None)
    if following:
        clusters = counted(len(following.steps), "cluster")
        if finished := finished_in(following, parts):
            clusters += f", {finished:,} already up to date"
        return f"Then {following.name}: {clusters}, {following.limit:,} at a time."
    removals = len(run.deletions.steps)
    return f"Then {counted(removals, 'removal')}." if removals else "Then the run ends."


def finished_in(stage: Stage, parts: Mapping[str, Part]) -> int:
    return sum(parts[step.name] in DONE for step in stage.steps)


class Gate(NamedTuple):
    """What a user needs to approve a stage: level, words and start of each fact, and what follows."""

    facts: Sequence[tuple[str, str, datetime | None]]
    then: str


def gate_of(
    result: StagedUpdateResult,
    parts: Mapping[str, Part],
    *,
    available_since: datetime | None,
) -> Gate | None:
    """Return the evidence for the approval that a staged run waits for, if any.

    `available_since` is when the last of the updated clusters became available.
    """
    wait = next((one for one in result.waits if one.reason in _APPROVALS), None)
    if wait is None:
        return None
    done = [step for stage in result.run.stages for step in stage.steps if step.done_at]
    facts = _facts_of(done, parts, available_since) if done else ()
    return Gate(facts, next_stage_words(result.run, wait, parts))


def _facts_of(
    done: Sequence[ClusterStep],
    parts: Mapping[str, Part],
    available_since: datetime | None,
) -> Sequence[tuple[str, str, datetime | None]]:
    """Return how many of the updated clusters are available, and how their updates went."""
    available = sum(parts[step.name] is Part.UPDATED for step in done)
    level, words = "attention", f"{available:,} of {len(done):,} updated are available"
    if available == len(done):
        level = "healthy"
    failed = sum(parts[step.name] is Part.FAILED for step in done)
    retries = counted(sum(step.failures for step in done), "retry").replace(
        "rys", "ries"
    )
    went = f"{failed:,} failed, {retries}"
    spans = sorted(
        seconds_between(step.started_at, step.done_at)
        for step in done
        if step.started_at and step.done_at
    )
    if spans:
        ends = dict.fromkeys((duration_text(spans[0]), duration_text(spans[-1])))
        went += f", {' to '.join(ends)}"
    since = available_since if level == "healthy" else None
    return ((level, words, since), ("failed" if failed else "healthy", went, None))


_APPROVALS = {
    WaitReason.APPROVAL_BEFORE: "Stage {stage} starts when {who} approves it.",
    WaitReason.APPROVAL_AFTER: "Stage {stage} is updated; {who} approves it.",
}
_STAGED_WAITS = {
    WaitReason.RUN: ("suspended", "start"),
    WaitReason.RESUME: ("suspended", "resume"),
    WaitReason.APPROVAL_BEFORE: ("approval", "approval"),
    WaitReason.APPROVAL_AFTER: ("approval", "approval"),
    WaitReason.TIME: ("progress", "timed wait"),
    WaitReason.REMOVALS: ("progress", "removing"),
    WaitReason.RETRY: ("failed", Part.FAILED),
    WaitReason.UNREACHABLE: ("attention", "unreachable"),
    WaitReason.NOT_MONITORED: ("unknown", "not monitored"),
}


def staged_effects(
    parts: Iterable[Part],
    *,
    revision: int | None,
    may_stop: bool,
    is_prepared: bool,
    back: str,
) -> list[tuple[str, str]]:
    """Return what each action on a staged run does now; `back` is what rolling back does."""
    counts = Counter(parts)
    done, total = counts[Part.UPDATED], counts.total()
    running = counts[Part.UPDATING]
    left = counted(counts[Part.PENDING], "pending cluster")
    first = ("Resume run", f"The run continues with {left}.")
    if is_prepared:
        first = ("Start run", f"The first stage starts; {left}.")
    elif may_stop:
        finish = f"The {running:,} updating finish. " if running else ""
        first = ("Pause run", f"{finish}No new updates start until you resume.")
    abort = f"Ends the run at {done:,} of {total:,}; clusters keep their revision."
    return [first, ("Abort run", abort), *_common_effects(counts, revision, back)]
