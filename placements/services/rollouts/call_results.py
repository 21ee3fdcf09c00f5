"""What the answers of clusters mean: the columns of bindings to write, and how updates ended.

Plain functions of a binding and an answer; the worker makes the calls and writes the results.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from django.conf import settings

from clusters.drivers.base import (
    Applied,
    DiffResult,
    DriverError,
    DriverFenced,
    DriverPending,
    DriverRejected,
    DriverUnavailable,
    LiveObject,
    ObjectDiff,
    ObjectRef,
    ObjectSeen,
    Observation,
    PlacementSeen,
    Refusal,
    Removed,
)
from clusters.drivers.concurrency import NotCalled
from clusters.drivers.kubernetes.access import NOT_SERVED
from clusters.drivers.kubernetes.inventory import NOT_CONFIRMED
from clusters.drivers.readiness import Readiness
from clusters.drivers.registry import ACTING_DRIVERS
from clusters.models import MemberCluster
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import names_and_more
from placements.engine.overrides import OverrideFailed
from placements.engine.rollout.state import (
    NO_FAILURE,
    Failure,
    FailureKind,
    ObjectFault,
    OverrideFault,
    Phase,
    retry_delay,
)
from placements.explain.staged_updates import override_sentence
from placements.manifests.strategy import ApplyType, WhenToApply
from placements.models import Binding, ClusterUpdate
from placements.services.overrides.queries import Manifests
from placements.services.rollout_state import BEHIND, WAITING

OBSERVE_AGAIN = timedelta(seconds=1)
OBSERVE_IN_ROLLOUT = timedelta(seconds=15)
OBSERVE_AT_REST = timedelta(minutes=2)
PLACES_APART = timedelta(seconds=5)
LOOK_FOR_KINDS = timedelta(seconds=15), timedelta(seconds=60)
"""The shortest and the longest time between two questions whether a cluster serves a kind by now."""
UNCHANGED = timedelta(minutes=10)
"""After so long without a change, each pause between two observations is longer than the one before."""
PAUSE_FACTOR = 1.5
LONGEST_PAUSE = timedelta(seconds=30)
"""Between two calls to a cluster that does not answer, or that needs several."""
LONGEST_DIFF_PAUSE = timedelta(minutes=15)
CONTESTED_WITHIN = timedelta(minutes=10)
MOST_REPAIRS = 3
"""More repairs than these within CONTESTED_WITHIN: others change the same objects again and again."""
CONTESTED_PAUSES = timedelta(seconds=30), timedelta(minutes=15)
"""The shortest and the longest time between two repairs of contested objects."""
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_GOLDEN = (5**0.5 - 1) / 2
"""Its multiples modulo 1 are spread evenly, so that the clusters are not observed all at once."""
MOST_OBJECTS = 100
"""As many objects a hub lists for one cluster (`rules/lifecycle.md#placement-status`)."""
MOST_LIVE_OBJECTS = 1_000
MOST_BYTES = 256 * 1024
"""Differences of one binding take at most so much; those of further objects are dropped."""
NOT_READY = "ManifestNotAvailableYet"
MISSING = "is missing"
FOUND_DRIFTS = "FoundDrifts"
MESSAGE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class ClusterCall:
    """One call that is due: for which binding, to which cluster, and with what."""

    binding: Binding
    placement: str
    cluster: MemberCluster
    manifests: Manifests | OverrideFailed
    kinds: tuple[tuple[str, str], ...] = ()
    is_release: bool = False

    @property
    def is_report(self) -> bool:
        is_applied = self.binding.phase not in (Phase.REMOVING, Phase.REMOVE_FAILED)
        return (
            is_applied and strategy_value(self.binding, "type") == ApplyType.REPORT_DIFF
        )

    @property
    def is_observation(
        self,
    ) -> bool:  # the call changes nothing, and those of one cluster can be joined
        is_change = (
            self.binding.phase in (Phase.APPLYING, Phase.REMOVING) or self.is_report
        )
        return not is_change and not self.missing_kinds

    @property
    def joined_by(self) -> tuple[str, int]:
        """Return what the calls have in common that can be made as one."""
        if self.is_observation:
            return "observe", self.cluster.pk
        return "change", self.binding.pk

    @property
    def missing_kinds(self) -> frozenset[tuple[str, str]]:
        """Return apiVersion and kind of what failed since the cluster did not serve it."""
        if self.binding.phase != (Phase.APPLIED if self.is_report else Phase.FAILED):
            return frozenset()
        faults = (
            failed_object
            for failed_object in self.binding.failed_objects
            if failed_object["code"] == NOT_SERVED
        )
        return frozenset(
            (f"{fault['group']}/{fault['version']}".lstrip("/"), fault["kind"])
            for fault in faults
        )

    def is_comparison_due(self, now: datetime) -> bool:
        """Return whether a report is made again although the kinds that it lacks may still be missing."""
        last = self.binding.observed_at
        return last is None or now - last >= comparison_pause(self.binding, last)


def comparison_pause(binding: Binding, now: datetime) -> timedelta:
    """Return the time from one report of differences to the next, longer the longer nothing has changed."""
    return _growing_pause(binding, now, OBSERVE_IN_ROLLOUT, LONGEST_DIFF_PAUSE)


def _growing_pause(
    binding: Binding,
    now: datetime,
    shortest: timedelta,
    longest: timedelta,
    *,
    part: int = 2,
) -> timedelta:
    """Return a part of the time for which the phase has not changed, within bounds."""
    unchanged = now - (binding.phase_changed_at or now)
    return max(shortest, min(unchanged / part, longest))


def strategy_value(binding: Binding, name: str) -> object:
    """Return a field of the apply strategy of what was last started; None for the default."""
    return (binding.apply_strategy or {}).get(name)


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call: the columns to write, and how the start it belongs to ended, if it did.

    Without `failure` the stored failure stays. `drifted` and `diffed` are rows of differences as JSON; None
    keeps those stored, as it does of `objects`, the states of all objects there, and of `warnings`.
    """

    columns: tuple[tuple[str, Any], ...]
    outcome: str = ""
    is_applied: bool = False
    failure: Failure | None = NO_FAILURE
    drifted: str | None = None
    diffed: str | None = None
    objects: str | None = None
    warnings: str | None = None

    def updates(self) -> dict[str, Any]:
        texts = {
            "warnings": self.warnings,
            "drifted_objects": self.drifted,
            "diffed_objects": self.diffed,
        }
        read = {
            name: json.loads(text) for name, text in texts.items() if text is not None
        }
        columns = dict(self.columns)
        if self.failure:
            columns |= self.failure.columns()
        return columns | read

    @property
    def is_removed(self) -> bool:
        """Return whether the cluster has nothing of the placement any more."""
        return self.outcome == ClusterUpdate.Outcome.REMOVED

    @property
    def is_settling(self) -> bool:
        """Return whether what was applied will be available later, when that is observed."""
        columns = dict(self.columns)
        return columns.get("phase") == Phase.APPLIED and not columns.get(
            "untrackable_since"
        )

    def changes(self, binding: Binding, *names: str) -> bool:
        return any(
            getattr(binding, name) != value
            for name, value in self.columns
            if name in names
        )

    @classmethod
    def fenced(
        cls, binding: Binding, fenced: DriverFenced, *, now: datetime
    ) -> "CallResult":
        """Return the calls from which to continue: after a restore of the database its fence is behind.

        Written only under a lease that is still valid.
        """
        columns = {
            "next_call_at": now,
            "calls": binding.calls_beyond(fenced.fence),
            **_changes(binding, removal_check=binding.removal_check or BEHIND),
        }
        return cls(tuple(columns.items()), failure=None)

    @classmethod
    def unavailable(
        cls, binding: Binding, error: DriverError, *, now: datetime
    ) -> "CallResult":
        """Return when to make the same call again, as whether it took effect is unknown: later and later."""
        pause = _growing_pause(binding, now, OBSERVE_AGAIN, LONGEST_PAUSE)
        code = ""
        if isinstance(error, DriverUnavailable):
            pause, code = (
                max(pause, timedelta(seconds=error.retry_after or 0)),
                error.code,
            )
        columns = {
            "next_call_at": now + pause,
            "message": str(error)[:MESSAGE_LENGTH],
            **_changes(binding, unavailable_code=code),
        }
        return cls(tuple(columns.items()), failure=Failure(FailureKind.UNREACHABLE))

    @classmethod
    def pending(
        cls, binding: Binding, pending: DriverPending, *, now: datetime
    ) -> "CallResult":
        """Return when to continue: at once while the calls make progress. Nothing has failed."""
        pause = OBSERVE_AGAIN
        if binding.objects_done is not None and pending.done <= binding.objects_done:
            pause = _growing_pause(binding, now, OBSERVE_AGAIN, LONGEST_PAUSE)
        columns: dict[str, Any] = {
            **_answer_columns(binding),
            "next_call_at": now + pause,
            "message": str(pending)[:MESSAGE_LENGTH],
            "objects_done": pending.done,
        }
        if binding.phase == Phase.APPLYING:
            columns |= _changes(binding, was_applied=True)
        return cls(tuple(columns.items()))

    @classmethod
    def unready(
        cls, call: ClusterCall, state: PlacementSeen, *, now: datetime, is_busy: bool
    ) -> "CallResult":
        """Return what follows where everything is there, and something of it is not available yet."""
        binding = call.binding
        columns = _complete_columns(call, Phase.APPLIED, now=now, is_busy=is_busy)
        since = columns.get("phase_changed_at", binding.phase_changed_at) or now
        if state.readiness is Readiness.NOT_TRACKABLE:
            applied_at = since
            if binding.phase != Phase.APPLYING:
                applied_at = binding.phase_changed_at or now
            columns["untrackable_since"] = binding.untrackable_since or applied_at
        else:
            pause = OBSERVE_AGAIN
            if call.cluster.driver in ACTING_DRIVERS:
                # Each observation costs a request for every object; the pause is alike for many clusters.
                waited = timedelta(seconds=(now - since) // timedelta(seconds=2))
                pause = max(pause, min(waited, OBSERVE_IN_ROLLOUT))
            columns |= {"untrackable_since": None, "next_call_at": now + pause}

        hints = {
            live_object.object: f" ({live_object.hint})"
            for live_object in state.objects
            if live_object.hint
        }
        unready = [
            replace(seen, reason=seen.reason + hints.get(seen.object, ""))
            for seen in state.unready
        ]
        message = object_messages((seen.object, seen.reason) for seen in unready)
        columns["message"] = message[:MESSAGE_LENGTH]
        return cls(
            tuple(columns.items()),
            failure=unready_failure(binding, unready),
            drifted=difference_rows(binding.drifted_objects, (), now=now),
        )

    @classmethod
    def contested(
        cls,
        binding: Binding,
        state: PlacementSeen,
        columns: dict[str, Any],
        *,
        now: datetime,
        is_busy: bool,
    ) -> "CallResult":
        """Return that a repair of contested objects waits; what is not there is not available until then."""
        if is_busy:
            in_rollout = now + OBSERVE_IN_ROLLOUT
            columns["next_call_at"] = min(columns["next_call_at"], in_rollout)
        drifted = difference_rows(binding.drifted_objects, state.drifted, now=now)
        if not state.missing:
            return cls(tuple(columns.items()), failure=None, drifted=drifted)
        columns |= _phase_columns(binding, Phase.APPLIED, now) | {
            "untrackable_since": None
        }
        gone = [
            ObjectSeen(reference, Readiness.NOT_YET, MISSING)
            for reference in state.missing
        ]
        failure = unready_failure(binding, gone)
        return cls(tuple(columns.items()), failure=failure, drifted=drifted)

    def with_objects(
        self,
        binding: Binding,
        state: PlacementSeen | None,
        *,
        now: datetime,
    ) -> "CallResult":
        """Return a result that also keeps the states of the objects, where the driver reads them."""
        if state is None or not state.objects:
            return self
        rows, digest = live_rows(state.objects)
        columns: dict[str, Any] = {"observed_at": now}
        if digest == binding.objects_digest:
            return replace(self, columns=(*self.columns, *columns.items()))
        columns["objects_digest"] = digest
        return replace(self, columns=(*self.columns, *columns.items()), objects=rows)


Answer: TypeAlias = (
    Applied
    | DiffResult
    | Observation
    | Removed
    | bool
    | DriverError
    | NotCalled
    | OverrideFailed
)


def to_result(
    call: ClusterCall, answer: Answer, *, now: datetime, is_busy: bool
) -> CallResult:
    binding = call.binding
    match answer:
        case NotCalled():
            return CallResult((("next_call_at", now),), failure=None)
        case OverrideFailed():
            message = override_sentence(answer, call.cluster.name)
            fault = OverrideFault(
                answer.snapshot, answer.path, answer.resource, answer.message
            )
            failure = Failure(FailureKind.OVERRIDE, override=fault)
            return _failure_result(binding, message, failure, now=now)
        case DriverFenced():
            return CallResult.fenced(binding, answer, now=now)
        case DriverRejected():
            return _rejection_result(binding, answer, now=now)
        case DriverPending():
            return CallResult.pending(binding, answer, now=now)
        case DriverError():
            return CallResult.unavailable(binding, answer, now=now)
        case DiffResult():
            return _diff_result(call, answer, now=now, is_busy=is_busy)
        case Observation():
            state = answer.of(call.placement)
            result = _observation_result(call, state, now=now, is_busy=is_busy)
            return result.with_objects(binding, state, now=now)
        case Applied():
            return _apply_result(call, answer, now=now, is_busy=is_busy)
    return CallResult((), outcome=ClusterUpdate.Outcome.REMOVED)


def kinds_result(call: ClusterCall, answer: Answer, *, now: datetime) -> CallResult:
    """Return what follows from the question whether a cluster serves a kind by now: the apply is retried.

    Otherwise the question is repeated, less and less often; what failed stays as it is.
    """
    if answer is True:
        return CallResult((("retry_at", now), ("next_call_at", None)), failure=None)
    next_call = now
    if not isinstance(answer, NotCalled):
        next_call += _kinds_pause(call.binding, now)
    return CallResult((("next_call_at", next_call),), failure=None)


def _kinds_pause(binding: Binding, now: datetime) -> timedelta:
    return _growing_pause(binding, now, *LOOK_FOR_KINDS, part=10)


def live_rows(objects: Sequence[LiveObject]) -> tuple[str, str]:
    """Return the states of the first 1,000 objects as JSON, for `LiveState` without time, and a digest."""
    rows = [
        (
            *astuple(live_object.object),
            live_object.uid,
            live_object.readiness or "",
            live_object.reason,
            live_object.hint,
        )
        for live_object in objects[:MOST_LIVE_OBJECTS]
    ]
    text = json.dumps(rows)
    return text, hashlib.sha256(text.encode()).hexdigest()[:32]


def _apply_result(
    call: ClusterCall, applied: Applied, *, now: datetime, is_busy: bool
) -> CallResult:
    binding = call.binding
    drifted = difference_rows(binding.drifted_objects, applied.drifts, now=now)
    if applied.placement:
        result = _observation_result(call, applied.placement, now=now, is_busy=is_busy)
        columns = (*result.columns, *_apply_columns(binding).items())
        return replace(result, columns=columns, is_applied=True, drifted=drifted)
    changes = {
        "phase": Phase.APPLIED,
        "phase_changed_at": now,
        "next_call_at": now,
        "message": "",
    }
    return CallResult(
        (*changes.items(), *_apply_columns(binding).items()),
        is_applied=True,
        drifted=drifted,
    )


def _apply_columns(binding: Binding, removal_check: str = "") -> dict[str, Any]:
    columns = _changes(binding, was_applied=True, removal_check=removal_check)
    return _answer_columns(binding) | columns


def _answer_columns(binding: Binding) -> dict[str, Any]:
    """Return what an answer ends: a call in several parts, and the reason why there was none."""
    return _changes(binding, objects_done=None, unavailable_code="")


def _changes(binding: Binding, **columns: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in columns.items()
        if getattr(binding, name) != value
    }


def _rejection_result(
    binding: Binding, error: DriverRejected, *, now: datetime
) -> CallResult:
    message = object_messages(
        (refusal.object, refusal.message) for refusal in error.refusals
    ) or str(error)
    result = _failure_result(binding, message, refusal_failure(binding, error), now=now)
    reached = _answer_columns(binding)
    if (
        any(refusal.code == NOT_SERVED for refusal in error.refusals)
        and binding.phase != Phase.REMOVING
    ):
        reached["next_call_at"] = now + LOOK_FOR_KINDS[0]
    if binding.phase == Phase.APPLYING:
        removal_check = binding.removal_check
        if error.code == NOT_CONFIRMED:
            removal_check = WAITING
        reached |= _apply_columns(binding, removal_check)
    return replace(
        result,
        columns=(*result.columns, *reached.items()),
        drifted=difference_rows(binding.drifted_objects, error.drifts, now=now),
        diffed=difference_rows(binding.diffed_objects, error.diffs, now=now),
    )


def object_messages(messages: Iterable[tuple[ObjectRef, str]]) -> str:
    """Return each message once, after the objects that it is about."""
    objects = grouped((message, str(ref)) for ref, message in messages)
    return "; ".join(
        f"{names_and_more(refs, 3)}: {message}" for message, refs in objects.items()
    )


def _failure_result(
    binding: Binding, message: str, failure: Failure, *, now: datetime
) -> CallResult:
    """Return a failure, to be tried again with growing pauses."""
    removing = binding.phase == Phase.REMOVING
    columns = {
        "phase": Phase.REMOVE_FAILED if removing else Phase.FAILED,
        "phase_changed_at": now,
        "retry_at": now + retry_delay(binding.attempts),
        "next_call_at": None,
        "message": message[:MESSAGE_LENGTH],
    }
    return CallResult(
        tuple(columns.items()), outcome=ClusterUpdate.Outcome.FAILED, failure=failure
    )


def next_at_rest(cluster: MemberCluster, since: datetime, now: datetime) -> datetime:
    """Return when a placement that has not changed on a cluster since a time is observed next.

    At first in half to one and a half periods of two minutes. On clusters whose driver acts on the apply
    strategy, after ten minutes without a change, the pauses grow by a half each time. Always at the cluster's
    place in a period, so that placements on one cluster are observed with one call; places are five seconds
    apart, so that one task observes the clusters of several.
    """
    period = pause = OBSERVE_AT_REST
    earliest = now + period / 2
    if cluster.driver in ACTING_DRIVERS:
        longest: timedelta = settings.LONGEST_OBSERVATION
        period = min(period, longest)
        if (quiet := now - since - UNCHANGED) >= timedelta():
            # The sum of the pauses until now, as a geometric series, is the base of the next one.
            pause = period * PAUSE_FACTOR + quiet * (PAUSE_FACTOR - 1)
        earliest = now + pause - period / 2
        if pause >= longest:
            period, earliest = longest, now
    place = period * (cluster.pk * _GOLDEN % 1)
    place -= place % PLACES_APART
    return earliest + period - (earliest - place - _EPOCH) % period


def _observation_result(
    call: ClusterCall, state: PlacementSeen | None, *, now: datetime, is_busy: bool
) -> CallResult:
    """Return what follows from the state of a placement on a cluster, observed or answered to an apply."""
    binding = call.binding
    if state is None or state.version != binding.applied_version:
        return _reapply_result(
            binding, "The applied resources were deleted; applying them again.", now=now
        )
    if state.refusals:
        return _rejection_result(
            binding, DriverRejected("refused", state.refusals), now=now
        )
    if state.whole_version != state.version:
        return _reapply_result(binding, "An interrupted apply is continued.", now=now)
    if state.missing or state.drifted:
        return _drift_result(call, state, now=now, is_busy=is_busy)
    if state.readiness is not Readiness.AVAILABLE:
        return CallResult.unready(call, state, now=now, is_busy=is_busy)
    columns = {
        **_complete_columns(call, Phase.AVAILABLE, now=now, is_busy=is_busy),
        "untrackable_since": None,
        "message": state.notice[:MESSAGE_LENGTH],
    }
    return CallResult(
        tuple(columns.items()),
        outcome=ClusterUpdate.Outcome.AVAILABLE,
        drifted=difference_rows(binding.drifted_objects, (), now=now),
    )


def _complete_columns(
    call: ClusterCall, phase: Phase, *, now: datetime, is_busy: bool
) -> dict[str, Any]:
    """Return the columns of a binding of which everything is there as it was applied."""
    binding = call.binding
    columns = _answer_columns(binding) | _phase_columns(binding, phase, now)
    since = columns.get("phase_changed_at", binding.phase_changed_at) or now
    columns["next_call_at"] = next_at_rest(call.cluster, since, now)
    if is_busy:
        columns["next_call_at"] = now + OBSERVE_IN_ROLLOUT
    if (
        binding.contested_since
        and now - datetime.fromisoformat(binding.repairs[-1]) > CONTESTED_PAUSES[1]
    ):
        columns |= {"contested_since": None, "repairs": ()}
    return columns


def _phase_columns(binding: Binding, phase: Phase, now: datetime) -> dict[str, Any]:
    columns: dict[str, Any] = {"phase": phase}
    if binding.phase != phase:
        columns["phase_changed_at"] = now
    return columns


def _reapply_result(
    binding: Binding,
    message: str,
    *,
    now: datetime,
    drifted: str | None = None,
    **columns: Any,
) -> CallResult:
    columns |= {
        "phase": Phase.APPLYING,
        "phase_changed_at": now,
        "next_call_at": now,
        "untrackable_since": None,
        "message": message[:MESSAGE_LENGTH],
        **_answer_columns(binding),
    }
    return CallResult(tuple(columns.items()), drifted=drifted)


def _drift_result(
    call: ClusterCall, state: PlacementSeen, *, now: datetime, is_busy: bool
) -> CallResult:
    """Return what follows where others removed or changed objects (`rules/kubernetes-driver.md#observation`).

    A repair applies the same version again. Objects that others change again and again are repaired ever
    more rarely.
    """
    binding = call.binding
    drifted = difference_rows(binding.drifted_objects, state.drifted, now=now)
    objects = {*map(str, state.missing), *(str(diff.object) for diff in state.drifted)}
    names = ", ".join(sorted(objects))
    if (
        state.drifted
        and not state.missing
        and strategy_value(binding, "whenToApply") == WhenToApply.IF_NOT_DRIFTED
    ):
        message = "it was changed on the cluster, and whenToApply is IfNotDrifted"
        refusals = tuple(
            Refusal(diff.object, FOUND_DRIFTS, message) for diff in state.drifted
        )
        return _rejection_result(
            binding, DriverRejected(message, refusals, drifts=state.drifted), now=now
        )

    recent = [
        at
        for at in binding.repairs
        if now - datetime.fromisoformat(at) <= CONTESTED_WITHIN
    ]
    since = binding.contested_since
    if len(recent) >= MOST_REPAIRS:
        since = since or now
    if since:
        shortest, longest = CONTESTED_PAUSES
        pause = max(shortest, min(now - since, longest))
        due = datetime.fromisoformat(binding.repairs[-1]) + pause
        if now < due:
            message = f"Others change what is applied here, repaired again at {due:%Y-%m-%d %H:%M:%S} UTC: {names}"
            columns = {
                "next_call_at": due,
                "message": message[:MESSAGE_LENGTH],
                "contested_since": since,
                **_answer_columns(binding),
            }
            return CallResult.contested(
                binding, state, columns, now=now, is_busy=is_busy
            )
    repairs = (*binding.repairs[-MOST_REPAIRS:], now.isoformat())
    message = f"Changed on the cluster, applying again: {names}"
    return _reapply_result(
        binding,
        message,
        now=now,
        drifted=drifted,
        repairs=repairs,
        contested_since=since,
    )


def _diff_result(
    call: ClusterCall, report: DiffResult, *, now: datetime, is_busy: bool
) -> CallResult:
    """Return what follows from a report of differences: a complete one counts as available.

    See `rules/kubernetes-driver.md#reportdiff`.
    """
    binding = call.binding
    pause = OBSERVE_IN_ROLLOUT if is_busy else comparison_pause(binding, now)
    if any(failure.code == NOT_SERVED for failure in report.failures):
        pause = min(pause, _kinds_pause(binding, now))
    kind = FailureKind.DIFFERS if report.diffs else None
    phase, outcome = Phase.AVAILABLE, str(ClusterUpdate.Outcome.AVAILABLE)
    if report.failures:
        phase, outcome, kind = Phase.APPLIED, "", None
    message = object_messages(
        (failure.object, failure.message) for failure in report.failures
    )
    columns: dict[str, Any] = {
        **_phase_columns(binding, phase, now),
        "untrackable_since": None,
        "next_call_at": now + pause,
        "observed_at": now,
        "message": message[:MESSAGE_LENGTH],
        **_answer_columns(binding),
    }
    errors = [
        (failure.object, failure.code, failure.message) for failure in report.failures
    ]
    return CallResult(
        tuple(columns.items()),
        outcome=outcome,
        is_applied=True,
        failure=Failure(kind, _object_errors(binding, errors)),
        diffed=difference_rows(binding.diffed_objects, report.diffs, now=now),
    )


def difference_rows(
    stored: Sequence[Mapping[str, Any]], diffs: Iterable[ObjectDiff], *, now: datetime
) -> str | None:
    """Return the rows to store as JSON, each since it was first observed; None where there are none still."""
    diffs = sorted(diffs, key=lambda one: (one.object.group, one.version, one.object))[
        :MOST_OBJECTS
    ]
    if not diffs and not stored:
        return None
    first = {
        (row["group"], row["kind"], row["namespace"], row["name"]): row["since"]
        for row in stored
    }
    rows, size = [], 0
    for one in diffs:
        ref = one.object
        row: dict[str, Any] = {
            "group": ref.group,
            "version": one.version,
            "kind": ref.kind,
            "namespace": ref.namespace,
            "name": ref.name,
            "generation": one.member_generation,
            "observed": now.isoformat(),
            "since": first.get(
                (ref.group, ref.kind, ref.namespace, ref.name), now.isoformat()
            ),
            "fields": [
                [field.path, field.in_member, field.in_hub] for field in one.fields
            ],
            "isDegraded": one.is_degraded,
            "isTruncated": one.is_truncated,
        }
        size += len(json.dumps(row))
        if size > MOST_BYTES:
            row |= {"fields": [], "isTruncated": True}
        rows.append(row)
    return json.dumps(rows)


def refusal_failure(binding: Binding, error: DriverRejected) -> Failure:
    """Return what a cluster rejected, object by object where it names them."""
    objects = [
        (refusal.object, refusal.code, refusal.message) for refusal in error.refusals
    ]
    return Failure(FailureKind.REFUSED, _object_errors(binding, objects))


def unready_failure(binding: Binding, unready: Iterable[ObjectSeen]) -> Failure:
    """Return the objects that are not available yet, without those that cannot be observed."""
    waiting = [
        seen for seen in unready if seen.readiness is not Readiness.NOT_TRACKABLE
    ]
    return Failure(
        objects=_object_errors(
            binding, [(seen.object, NOT_READY, seen.reason) for seen in waiting]
        )
    )


def _object_errors(
    binding: Binding, objects: Sequence[tuple[ObjectRef, str, str]]
) -> tuple[ObjectFault, ...]:
    """Return the first 100 objects in order, each with the API version that was sent to the cluster."""
    versions = {}
    if objects and binding.resource_snapshot:
        identities = binding.resource_snapshot.applied_identities
        for api_version, kind, namespace, name, *_ in identities:
            group, _, version = api_version.rpartition("/")
            versions[ObjectRef(group, kind, namespace, name)] = version
    errors = [
        ObjectFault(
            ref.group,
            versions.get(ref, ""),
            ref.kind,
            ref.namespace,
            ref.name,
            code,
            message,
        )
        for ref, code, message in objects
    ]
    errors.sort(
        key=lambda one: (one.group, one.version, one.kind, one.namespace, one.name)
    )
    return tuple(errors[:MOST_OBJECTS])
