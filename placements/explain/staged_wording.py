"""Sentences about staged runs, overrides and evictions: what waits for what, and why something may not be."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from placements.explain.wording import counted, joined, verb
from placements.rollout.disruption import Executed, Invalid, Numbers, Verdict, Why, WhyStays
from placements.rollout.overrides import OverrideFailed
from placements.rollout.staged_facts import Answer, RunStatus, Slots, Wait, WaitFor
from placements.rollout.stages import Reason

_NAMES_SHOWN = 10


def run_sentences(answer: Answer) -> list[str]:
    """Say in a sentence each what a run is doing, what it waits for, and why it ended."""
    sentences = [_STATUS[answer.status]] if answer.status in _STATUS else []
    sentences += [reason_sentence(reason) for reason in answer.run.why]
    if answer.slots and answer.slots.running:
        sentences.append(slots_sentence(answer.slots))
    sentences += [wait_sentence(wait) for wait in answer.waits]
    if answer.stuck:
        sentences.append(f"Stuck: {_listed(answer.stuck)} did not get there within 5 minutes.")
    if answer.run.may_still_hold:
        names = _listed(answer.run.may_still_hold)
        sentences.append(f"Out of reach, and may still hold resources: {names}.")
    return sentences


_STATUS = {
    RunStatus.STOPPING: "Stopping: nothing new starts.",
    RunStatus.SUCCEEDED: "Every stage is done.",
    RunStatus.FAILED: "The run has ended and cannot go on; start a new one.",
    RunStatus.ABANDONED: "The run was ended by hand.",
}


def slots_sentence(slots: Slots) -> str:
    """Write the arithmetic of a stage."""
    running = f"{slots.running:,} {verb(slots.running, 'is')} running"
    counts = f"{slots.limit:,} of {slots.clusters:,} may run at once, {running}"
    return f"Stage {slots.stage}: {counts}, {slots.done:,} done, {slots.waiting:,} to come."


def wait_sentence(wait: Wait) -> str:
    """Say what a run waits for."""
    return _WAITS[wait.what](wait)


_WAITS: dict[WaitFor, Callable[[Wait], str]] = {
    WaitFor.RUN: lambda _: "Prepared; it begins when its state is set to Run.",
    WaitFor.RESUME: lambda _: "Stopped; it goes on when its state is set to Run.",
    WaitFor.APPROVAL_BEFORE: lambda wait: (
        f"Stage {wait.stage} waits for somebody to approve before it begins."
    ),
    WaitFor.APPROVAL_AFTER: lambda wait: (
        f"Stage {wait.stage} is updated and waits for somebody to approve before the next begins."
    ),
    WaitFor.TIME: lambda wait: f"Stage {wait.stage} is updated and waits until {_time(wait.until)}.",
    WaitFor.CLUSTERS: lambda wait: f"Stage {wait.stage} waits until {_available(wait.names)} available.",
    WaitFor.REMOVALS: lambda wait: f"Resources are being removed from {_listed(wait.names)}.",
    WaitFor.RETRY: lambda wait: f"{_listed(wait.names)} failed; the next try is at {_time(wait.until)}.",
    WaitFor.UNREACHABLE: lambda wait: (
        f"Out of reach: {_listed(wait.names)}; the run goes on when {_back(wait.names)} back."
    ),
}


def reason_sentence(reason: Reason) -> str:
    """Say why a run cannot start or go on."""
    return _REASONS[reason.code](reason)


_REASONS: dict[str, Callable[[Reason], str]] = {
    "not-decided": lambda _: "The scheduler has not decided on this placement yet.",
    "being-deleted": lambda _: "The placement is being deleted.",
    "not-staged": lambda _: "The placement is not updated by staged runs: its strategy is not External.",
    "nothing-to-do": lambda _: "No cluster is picked and none is to be cleared.",
    "other-number": lambda reason: (
        f"The placement wants {counted(reason.wanted or 0, 'cluster')} and has {reason.found or 0:,}."
    ),
    "in-no-stage": lambda reason: f"No stage selects {_listed(reason.names)}.",
    "in-several-stages": lambda reason: f"More than one stage selects {_listed(reason.names)}.",
    "new-policy": lambda _: "The policy was changed after the run began.",
    "new-apply-strategy": lambda _: "The apply strategy was changed after the run began.",
    "other-stages": lambda reason: (
        f"Other clusters, or another order, than when the run began, in {_stages(reason.names)}."
    ),
    "new-deletions": lambda reason: (
        f"{_listed(reason.names)} {verb(len(reason.names), 'has')} to be cleared,"
        " which the run did not know when it began."
    ),
    "taken-over": lambda reason: (
        f"Something else brought another version to {_listed(reason.names)} while the run was at it."
    ),
}


def override_sentence(failure: OverrideFailed, cluster: str) -> str:
    """Say why nothing is sent to a cluster."""
    place = f"{failure.snapshot} at {failure.path}"
    return (
        f"Nothing is sent to {cluster}: override {place} does not fit {failure.resource}: {failure.message}."
    )


def eviction_sentence(verdict: Verdict) -> str:
    """Say what became of an eviction."""
    if isinstance(verdict, Invalid):
        return f"Not possible: {_WHY[verdict.why]}."
    outcome = "Carried out" if isinstance(verdict, Executed) else "Not carried out"
    numbers = f" ({_numbers(verdict.numbers)})" if verdict.numbers else ""
    return f"{outcome}: {_WHY[verdict.why]}{numbers}."


_WHY = {
    Why.NO_PLACEMENT: "there is no such placement",
    Why.BEING_DELETED: "the placement is being deleted",
    Why.PICK_FIXED: "the placement names its clusters; take the name off its list",
    Why.NOT_THERE: "the placement is not on this cluster",
    Why.LEAVING: "the placement is leaving the cluster already",
    Why.PLANNED: "nothing was placed there yet",
    Why.FAILED: "it had failed there, which no budget protects",
    Why.NO_BUDGET: "there is no disruption budget",
    Why.WITHIN_BUDGET: "the disruption budget allows it",
    Why.MISCONFIGURED: "the disruption budget does not go with a placement that picks every cluster",
    Why.OVER_BUDGET: "the disruption budget does not allow it",
}


STAYS_SENTENCES = {
    WhyStays.PICK_FIXED: "PickFixed: cannot be evicted, stays; take the name off its list.",
    WhyStays.TOLERATES: "Tolerates the cordon: it would come right back, and stays.",
    WhyStays.HELD: "Paused or stopped: no replacement could start; it leaves once that ends.",
    WhyStays.NEXT_RUN: "Staged: its resources are removed by its next run.",
    WhyStays.STAGED_RUN: "Staged: a run is under way, which this would end; it leaves once that has ended.",
}


def _numbers(numbers: Numbers) -> str:
    return f"{numbers.available:,} of {numbers.total:,} available, {max(0, numbers.allowed):,} may go"


def _available(names: tuple[str, ...]) -> str:
    return f"{_listed(names)} {verb(len(names), 'is')}"


def _back(names: tuple[str, ...]) -> str:
    return "it is" if len(names) == 1 else "they are"


def _stages(names: tuple[str, ...]) -> str:
    return f"stage{'' if len(names) == 1 else 's'} {_listed(names)}"


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    more = [f"{len(found) - _NAMES_SHOWN:,} more"] if len(found) > _NAMES_SHOWN else []
    return joined([*found[:_NAMES_SHOWN], *more], "and")


def _time(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if moment else "a time not known yet"
