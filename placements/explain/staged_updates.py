"""Staged updates for people and programs: sentences, stages in words, status, progress, the stored result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from fleetui.apimachinery.words import counted, first_names
from placements.engine.disruption import (
    EvictionReason,
    Executed,
    Invalid,
    KeptReason,
    Verdict,
)
from placements.engine.overrides import OverrideFailed
from placements.engine.rollout.staged_run import (
    RunStatus,
    Stage,
    StagedRunOutcome,
    StagedRunPlan,
    StagedUpdateResult,
    StageReason,
    Wait,
    WaitReason,
    names_waiting_for,
)
from placements.explain.hub_conditions import filled
from placements.explain.vocabulary import label_words, moment_words
from placements.manifests.staged_update import StageSpec

_RESULT = TypeAdapter(StagedUpdateResult)


def staged_document(result: StagedUpdateResult) -> dict[str, Any]:
    plain: dict[str, Any] = _RESULT.dump_python(result, mode="json", exclude={"run"})
    return plain


def staged_result(plan: Any, document: Any) -> StagedUpdateResult:
    return _RESULT.validate_python({**document, "run": plan})


def run_sentences(result: StagedUpdateResult) -> list[str]:
    """Return in a sentence each what a run is doing, what it waits for, and how it ended."""
    sentences = [reason_sentence(reason) for reason in result.run.reasons]
    steps = (
        [step for stage in result.run.stages for step in stage.steps]
        if result.run.outcome
        else []
    )
    if steps:
        done = sum(step.done_at is not None for step in steps)
        sentences.append(f"{done:,} of {counted(len(steps), 'cluster')} updated.")
    sentences += _STATUS.get(result.status, ())
    if (stage := result.concurrency) and stage.running:
        failed = len(names_waiting_for(result.waits, WaitReason.RETRY))
        failures = f"{failed:,} failed, " * bool(failed)
        numbers = (
            f"{stage.running - failed:,} updating, {failures}"
            f"{stage.done:,} done, {stage.waiting:,} pending"
        )
        sentences.append(
            f"Stage {stage.stage}: {numbers} (max {stage.limit:,} at a time)."
        )
    sentences += [wait_sentence(wait) for wait in result.waits]
    if result.stuck:
        sentences.append(f"Stuck: {_first_ten(result.stuck)} not updated within 5m.")
    if result.run.may_still_hold:
        sentences.append(
            f"Unreachable; resources may remain: {_first_ten(result.run.may_still_hold)}."
        )
    return sentences


NOT_INITIALIZED = "The hub has not initialized the run yet."
_LONGEST_MESSAGE = 4096


def hub_run_sentences(status: Mapping[str, Any]) -> list[str]:
    """Return the status of a run on a live hub: the message of the condition that counts now."""
    by_type = {
        condition.get("type"): condition
        for condition in status.get("conditions") or ()
        if isinstance(condition, Mapping)
    }
    order = ("Succeeded", "Progressing", "Initialized")
    return [_condition_sentence(by_type[kind]) for kind in order if kind in by_type][:1]


_STATUS = {
    RunStatus.STOPPING: ("No new updates start.",),
    RunStatus.FAILED: ("Start a new run.",),
}


def wait_sentence(wait: Wait) -> str:
    until = moment_words(wait.until) if wait.until else "a time not known yet"
    return _WAITS[wait.reason].format(
        stage=wait.stage, names=_first_ten(wait.names), until=until
    )


_WAITS = {
    WaitReason.RUN: "Waiting for a user to start the run.",
    WaitReason.RESUME: "Waiting for a user to resume the run.",
    WaitReason.APPROVAL_BEFORE: "Waiting for approval before stage {stage}.",
    WaitReason.APPROVAL_AFTER: "Waiting for approval of stage {stage}.",
    WaitReason.TIME: "Stage {stage} updated; waiting until {until}.",
    WaitReason.CLUSTERS: "Stage {stage}: waiting for {names}.",
    WaitReason.REMOVALS: "Removing from {names}.",
    WaitReason.RETRY: "Failed: {names}. Next retry at {until}.",
    WaitReason.UNREACHABLE: "Unreachable: {names}. The run continues on reconnect.",
    WaitReason.NOT_MONITORED: "Not monitored: {names}. The run continues once a driver is set.",
}


def reason_sentence(reason: StageReason) -> str:
    one, several = _REASONS[reason.code]
    template = one if len(reason.names) == 1 else several or one
    return template.format(
        names=_first_ten(reason.names),
        wanted=counted(reason.wanted or 0, "cluster"),
        found=reason.found or 0,
    )


# The sentence for one name, and for several where it differs.
_REASONS: dict[str, tuple[str, str]] = {
    "not-decided": ("The latest change of the placement is not scheduled yet.", ""),
    "invalid-selectors": ("The resource selectors of the placement are invalid.", ""),
    "no-snapshot": ("Waits until the resource snapshot {names} exists.", ""),
    "being-deleted": ("The placement is being deleted.", ""),
    "not-staged": (
        "The placement is not updated by staged runs: its strategy is not External.",
        "",
    ),
    "no-resources": ("No resources are selected.", ""),
    "nothing-to-do": ("No cluster is selected and none is to be removed.", ""),
    "other-number": ("The placement wants {wanted} and has {found:,}.", ""),
    "in-no-stage": ("No stage selects {names}.", ""),
    "in-several-stages": ("More than one stage selects {names}.", ""),
    "new-policy": ("The policy was changed after the run started.", ""),
    "new-apply-strategy": ("The apply strategy was changed after the run started.", ""),
    "other-stages": (
        "The clusters or their order changed after the run started, in stage {names}.",
        "The clusters or their order changed after the run started, in stages {names}.",
    ),
    "new-deletions": (
        "{names} has to be removed since the run started.",
        "{names} have to be removed since the run started.",
    ),
    "taken-over": (
        "{names} was changed by another rollout during this run.",
        "{names} were changed by another rollout during this run.",
    ),
}


def override_sentence(failure: OverrideFailed, cluster: str) -> str:
    problem = (
        f"override {failure.snapshot} at {failure.path} does not fit {failure.resource}"
    )
    return f"Nothing is sent to {cluster}: {problem}: {failure.message}."


def hub_eviction_sentence(conditions: Sequence[Mapping[str, Any]]) -> str:
    """Return the result of an eviction on a live hub: the message of the condition that decides."""
    by_type = {condition.get("type"): condition for condition in conditions}
    one = by_type.get("Executed") or by_type.get("Valid")
    return _condition_sentence(one) if one else "The hub has not decided yet."


def _condition_sentence(condition: Mapping[str, Any]) -> str:
    reason, message = (str(condition.get(key) or "") for key in ("reason", "message"))
    words = (f"{reason}: {message}" if message else reason)[:_LONGEST_MESSAGE]
    return words if words.endswith((".", "!", "?")) else f"{words}."


def eviction_sentence(verdict: Verdict) -> str:
    if isinstance(verdict, Invalid):
        return f"Not possible: {_EVICTIONS[verdict.why]}."
    outcome = "Executed" if isinstance(verdict, Executed) else "Not executed"
    numbers = ""
    if verdict.numbers:
        one = verdict.numbers
        numbers = f" ({one.available:,} of {one.total:,} available, {max(0, one.allowed):,} may go)"
    return f"{outcome}: {_EVICTIONS[verdict.why]}{numbers}."


_EVICTIONS = {
    EvictionReason.NO_PLACEMENT: "no such placement",
    EvictionReason.BEING_DELETED: "the placement is being deleted",
    EvictionReason.NAMESPACED: "placements in namespaces cannot be evicted",
    EvictionReason.PICK_FIXED: "the placement names its clusters; remove the name from clusterNames",
    EvictionReason.NOT_THERE: "the placement is not on this cluster",
    EvictionReason.LEAVING: "the placement is leaving the cluster already",
    EvictionReason.PLANNED: "nothing was placed there yet",
    EvictionReason.HELD: "the placement is paused or stopped, and no replacement could start",
    EvictionReason.FAILED: "it had failed there, which no budget protects",
    EvictionReason.NO_BUDGET: "the placement has no disruption budget",
    EvictionReason.WITHIN_BUDGET: "the disruption budget allows it",
    EvictionReason.MISCONFIGURED: "the disruption budget cannot be used with placementType PickAll",
    EvictionReason.OVER_BUDGET: "the disruption budget does not allow it",
}


STAYS_SENTENCES = {
    KeptReason.NAMESPACED: "In a namespace: cannot be evicted, stays.",
    KeptReason.PICK_FIXED: "PickFixed: cannot be evicted, stays; remove the name from clusterNames.",
    KeptReason.TOLERATES: "Tolerates the cordon taint: stays.",
    KeptReason.HELD: "Paused or stopped: no replacement could start; it leaves once that ends.",
    KeptReason.NEXT_RUN: "Staged: its resources are removed by its next run.",
    KeptReason.STAGED_RUN: (
        "Staged: a run is in progress; the placement is evicted when the run has ended."
    ),
}


def _first_ten(names: Sequence[str]) -> str:
    return first_names(names, 10)


@dataclass(frozen=True, slots=True)
class StageWords:
    """One stage of a strategy in words; `before` and `after` are what it waits for."""

    name: str
    clusters: str
    order: str
    at_once: str
    before: str
    after: str


def stage_words(stage: StageSpec, *, clusters: int | None = None) -> StageWords:
    """Return a stage in words; with the number of its clusters a percentage is worked out."""
    if stage.label_selector is None:
        selected = "no cluster: it has no label selector"
    else:
        labels = label_words(stage.label_selector)
        selected = f"clusters where {labels}" if labels else "every cluster"
    after = [f"wait {duration_words(stage.wait)}"] if stage.wait else []
    after += ["approval"] if stage.needs_approval_after else []
    amount = (
        stage.max_concurrency
    )  # as "25% of 8 → 2" where the number of clusters is known
    at_once = (
        f"{amount}, rounded down, at least 1" if amount.is_percent else str(amount)
    )
    if clusters is not None:
        most = amount.at_least_one_of(clusters)
        at_once = (
            f"{amount} of {clusters:,} → {most:,}" if amount.is_percent else str(most)
        )
    return StageWords(
        stage.name,
        selected,
        f"by the number in {stage.sorting_label_key}, then by name"
        if stage.sorting_label_key
        else "by name",
        at_once,
        "approval" if stage.needs_approval_before else "",
        " and ".join(after),
    )


def duration_words(time: timedelta) -> str:
    """Return a duration as kubectl prints it: "1h30m", "45s"."""
    minutes, seconds = divmod(int(time.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


_PROGRESSING = {
    RunStatus.PROGRESSING: ("True", "UpdateRunProgressing"),
    RunStatus.WAITING: ("False", "UpdateRunWaiting"),
    RunStatus.STUCK: ("False", "UpdateRunStuck"),
    RunStatus.STOPPING: ("Unknown", "UpdateRunStopping"),
    RunStatus.STOPPED: ("False", "UpdateRunStopped"),
    RunStatus.SUCCEEDED: ("False", "UpdateRunSucceeded"),
    RunStatus.FAILED: ("False", "UpdateRunFailed"),
    RunStatus.ABANDONED: ("False", "UpdateRunFailed"),
}


def run_status(result: StagedUpdateResult, *, snapshot: int | None) -> dict[str, Any]:
    """Return the status of a run document (`rules/lifecycle.md#staged-update-runs`)."""
    run = result.run
    why = " ".join(map(reason_sentence, run.reasons))
    if not run.stages and run.outcome:
        conditions = [
            _condition(
                "Initialized", "False", "UpdateRunInitializedFailed", why, run.ended_at
            )
        ]
    else:
        conditions = [
            _condition("Initialized", "True", "UpdateRunInitializedSuccessfully")
        ]
        if result.status in _PROGRESSING:
            status, reason = _PROGRESSING[result.status]
            message = " ".join(run_sentences(result))
            conditions.append(
                _condition("Progressing", status, reason, message, run.ended_at)
            )
        if run.outcome:
            succeeded = run.outcome is StagedRunOutcome.SUCCEEDED
            reason = "UpdateRunSucceeded" if succeeded else "UpdateRunFailed"
            conditions.append(
                _condition("Succeeded", str(succeeded), reason, why, run.ended_at)
            )
    return {
        **filled(policySnapshotIndexUsed=run.policy_snapshot),
        **({} if snapshot is None else {"resourceSnapshotIndexUsed": str(snapshot)}),
        "stagesStatus": [_stage_status(stage) for stage in run.stages],
        "deletionStageStatus": _stage_status(run.deletions),
        "conditions": conditions,
    }


def _condition(
    kind: str, status: str, reason: str, message: str = "", at: datetime | None = None
) -> dict[str, Any]:
    condition = {"type": kind, "status": status, "reason": reason, "message": message}
    return condition | filled(lastTransitionTime=moment(at))


def _stage_status(stage: Stage) -> dict[str, Any]:
    started = min(
        (step.started_at for step in stage.steps if step.started_at), default=None
    )
    clusters = []
    for step in stage.steps:
        failed_at = None if step.done_at else step.failed_at
        conditions = [
            _condition(kind, status, f"ClusterUpdating{reason}", at=at)
            for kind, status, reason, at in (
                ("Started", "True", "Started", step.started_at),
                ("Succeeded", "True", "Succeeded", step.done_at),
                ("Succeeded", "False", "Failed", failed_at),
            )
            if at
        ]
        clusters.append({"clusterName": step.name, "conditions": conditions})
    return {
        "stageName": stage.name,
        **filled(startTime=moment(started), endTime=moment(stage.ended_at)),
        "clusters": clusters,
    }


def progress_facts(result: StagedUpdateResult) -> dict[str, Any]:
    """Return the progress of a run: in sentences, by stage, by cluster."""
    run = result.run
    return {
        "status": str(result.status),
        "stage": None if run.outcome else run.current.name,
        "waits": [
            {
                "for": str(wait.reason),
                "stage": wait.stage,
                "clusters": list(wait.names),
                "until": moment(wait.until),
            }
            for wait in result.waits
        ],
        "stuck": list(result.stuck),
        "mayStillHold": list(run.may_still_hold),
        "stages": [
            {
                "name": stage.name,
                "state": stage_state(run, stage),
                "atOnce": stage.limit
                if stage is not run.deletions
                else len(stage.steps),
                "needsApprovalBefore": stage.needs_approval_before,
                "needsApprovalAfter": stage.needs_approval_after,
                "approvedBefore": moment(stage.approved_before_at),
                "approvedAfter": moment(stage.approved_after_at),
                "waitSeconds": int(stage.wait.total_seconds()),
                "updatedAt": moment(stage.updated_at),
                "endedAt": moment(stage.ended_at),
                "clusters": [
                    {
                        "name": step.name,
                        "state": _state(
                            done=step.done_at,
                            failed=step.failed_at,
                            running=step.is_running,
                        ),
                        "version": step.version,
                        "startedAt": moment(step.started_at),
                        "doneAt": moment(step.done_at),
                        "failedAt": moment(step.failed_at),
                        "failures": step.failures,
                        "retryAt": moment(step.retry_at),
                    }
                    for step in stage.steps
                ],
            }
            for stage in (*run.stages, run.deletions)
        ],
    }


def stage_state(run: StagedRunPlan, stage: Stage) -> str:
    """Return the progress of a stage; the one in which a run ended early is "aborted" or "failed"."""
    has_begun = any(step.started_at or step.done_at for step in stage.steps)
    of_ended = "aborted" if run.outcome is StagedRunOutcome.ABANDONED else "failed"
    return _state(
        **{
            "skipped": stage.was_skipped,
            "done": stage.ended_at,
            of_ended: run.outcome and has_begun,
        },
        **{"not reached": run.outcome, "current": stage is run.current},
    )


def _state(**states: object) -> str:
    return next((name for name, applies in states.items() if applies), "to come")


def moment(at: datetime | None) -> str | None:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if at else None
