"""Calls to the clusters: claim those that are due, call, apply the results; no transaction is open meanwhile.

A call is due in the binding's row (`next_call_at`) and claimed by a conditional update with a lease. Its
result is written only if the binding still runs the same version in the same phase; so a call may be made
twice, and late results do no harm. Periods count from the answer, not from the call.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from operator import or_
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias
from uuid import uuid4

from django.db import connection, connections, transaction
from django.db.models import F, Prefetch, Q, QuerySet

from clusters.driver_factory import driver_for, wall_clock
from clusters.drivers.base import (
    Applied,
    DriverError,
    DriverFenced,
    DriverRejected,
    ObjectRef,
    ObjectSeen,
    Observation,
    Version,
)
from clusters.drivers.concurrency import NotCalled, call_all
from clusters.drivers.readiness import Readiness
from clusters.drivers.registry import DRIVERS
from clusters.models import MemberCluster
from clusters.queries import cluster_of
from fleetui.bulk import claim_batch
from placements.engine.overrides import OverrideContent, OverrideFailed
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
from placements.manifests.binding import BindingState
from placements.models import (
    Binding,
    ClusterUpdate,
    OverrideSnapshot,
    Placement,
    ResourceSnapshotPart,
    Rollout,
    StagedRun,
)
from placements.services.overrides.queries import Manifests, frozen_of, overridden
from placements.services.workqueue import enqueue_rollout

BATCH = 500
THREADS = 32
CALL_SECONDS = 10.0
ROUND_SECONDS = 20.0
GATHER_SECONDS = 0.1
"""Answers of so long are written together: a transaction costs more than the rows in it."""
LEASE = timedelta(seconds=30)
OBSERVE_AGAIN = timedelta(seconds=1)
OBSERVE_IN_ROLLOUT = timedelta(seconds=15)
OBSERVE_AT_REST = timedelta(minutes=2)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_GOLDEN = (5**0.5 - 1) / 2
"""Its multiples modulo 1 are spread evenly, so that the clusters are not observed all at once."""
MOST_OBJECTS = 100
"""As many objects a hub lists for one cluster (lifecycle B.7.2)."""
NOT_READY = "ManifestNotAvailableYet"
_MESSAGE_LENGTH = 500
_RELEASED = {"call_lease_expires_at": None, "call_lease_token": ""}
_OVERRIDE_GONE = OverrideFailed(
    "a snapshot", "spec", "any resource", "the snapshot is gone; a newer version follows"
)
"""The override was changed or deleted in the moment in which the cluster was started."""


@dataclass(frozen=True, slots=True)
class ClusterCall:
    """One call that is due: for which binding, to which cluster, and with what."""

    binding: Binding
    placement: str
    cluster: MemberCluster
    manifests: Manifests | OverrideFailed

    @property
    def is_observation(self) -> bool:  # the call changes nothing
        return self.binding.phase not in (Phase.APPLYING, Phase.REMOVING)


@dataclass(frozen=True, slots=True)
class CallResult:
    """The result of a call: the columns to write, and how the start it belongs to ended, if it did.

    Without `failure` the stored failure stays.
    """

    columns: tuple[tuple[str, Any], ...]
    outcome: str = ""
    is_applied: bool = False
    failure: Failure | None = NO_FAILURE

    def updates(self) -> dict[str, Any]:
        return {**dict(self.columns), **(self.failure.columns() if self.failure else {})}

    def changes(self, binding: Binding, *names: str) -> bool:
        return any(getattr(binding, name) != value for name, value in self.columns if name in names)


Answer: TypeAlias = Applied | Observation | bool | DriverError | NotCalled | OverrideFailed
Answered: TypeAlias = tuple[tuple[int, ...], Answer]
"""What a cluster answered, and for which bindings: one observation answers for all that are due there."""


def run_cluster_calls(
    *, now: datetime, threads: int = THREADS, clock: Callable[[], datetime] = wall_clock
) -> int:
    """Make up to 500 of the calls that are due; `clock` returns when they are answered. Return how many."""
    bindings = claim(now=now)
    calls = prepare_calls(bindings, now=now)
    placements = {binding.placement_id for binding in bindings}
    running = Rollout.objects.filter(placement_id__in=placements, state=Rollout.State.RUNNING)
    staged = StagedRun.objects.filter(placement_id__in=placements, ended_at=None)
    in_rollout = {row for rows in (running, staged) for row in rows.values_list("placement_id", flat=True)}
    answers = call_clusters(calls, clock=clock, threads=threads)
    for batch in batch_answers(answers) if threads else [list(answers)]:
        answered_at = clock()
        results = []
        for pk, answer in ((pk, answer) for pks, answer in batch for pk in pks):
            is_busy = calls[pk].binding.placement_id in in_rollout
            result = to_result(calls[pk], answer, now=answered_at, is_busy=is_busy)
            results.append((calls[pk].binding, result))
        apply_results(results, now=answered_at)
    return len(bindings)


def claim(*, now: datetime) -> list[Binding]:
    """Claim up to 500 bindings whose call is due, with a lease."""
    lease = {"call_lease_token": uuid4().hex, "call_lease_expires_at": now + LEASE, "calls": F("calls") + 1}
    ids = claim_batch(_due(now), "next_call_at", "pk", size=BATCH, **lease)
    if not ids:
        return []
    names = Prefetch("placement", Placement.objects.only("name"))
    return list(Binding.objects.filter(pk__in=ids).prefetch_related(names, "resource_snapshot"))


def is_due(*, now: datetime) -> bool:
    """Return whether a call is due that no worker has claimed."""
    return _due(now).exists()


def _due(now: datetime) -> QuerySet[Binding]:
    is_free = Q(call_lease_expires_at=None) | Q(call_lease_expires_at__lt=now)
    return Binding.objects.filter(is_free, next_call_at__lte=now)


def prepare_calls(bindings: Sequence[Binding], *, now: datetime) -> dict[int, ClusterCall]:
    """Return the calls by binding, with what each cluster is to have; release those that cannot be called."""
    names = {row.cluster_name for row in bindings}
    clusters = {one.name: one for one in MemberCluster.objects.filter(name__in=names, driver__in=DRIVERS)}
    cache = ManifestCache()
    calls = {}
    for row in bindings:
        if cluster := clusters.get(row.cluster_name):
            manifests = cache.of(row, cluster) if row.phase == Phase.APPLYING else ()
            calls[row.pk] = ClusterCall(row, row.placement.name, cluster, manifests)
    released = [row.pk for row in bindings if row.pk not in calls]
    Binding.objects.filter(pk__in=released).update(**_RELEASED, next_call_at=now + OBSERVE_IN_ROLLOUT)
    return calls


@dataclass
class ManifestCache:
    """The manifests for one batch of calls; snapshots and sets of overrides are read once."""

    _manifests: dict[int | None, Manifests] = field(default_factory=dict)
    _overrides: dict[tuple[int, ...], tuple[OverrideContent, ...]] = field(default_factory=dict)

    def of(self, binding: Binding, cluster: MemberCluster) -> Manifests | OverrideFailed:
        """Return what one cluster is to have after its overrides, or which override failed."""
        snapshot, keys = binding.resource_snapshot_id, tuple(binding.override_snapshots)
        if snapshot not in self._manifests:
            parts = ResourceSnapshotPart.objects.filter(snapshot=snapshot).order_by("position")
            self._manifests[snapshot] = tuple(
                manifest for part in parts.values_list("manifests", flat=True) for manifest in part
            )
        if not keys:
            return self._manifests[snapshot]
        if keys not in self._overrides:
            rows = OverrideSnapshot.objects.in_bulk(list(keys))
            if len(rows) < len(keys):
                return _OVERRIDE_GONE
            self._overrides[keys] = tuple(frozen_of(rows[key]) for key in keys)  # in the order of applying
        return overridden(self._manifests[snapshot], self._overrides[keys], cluster_of(cluster))


def call_clusters(
    calls: Mapping[int, ClusterCall], *, clock: Callable[[], datetime], threads: int
) -> Iterator[Answered]:
    """Call the clusters, and yield each answer with its bindings."""
    questions = {
        tuple(one.binding.pk for one in group): partial(call_cluster, group, clock)
        for group in group_by_cluster(calls.values())
    }
    yield from call_all(
        questions,
        threads=threads,
        seconds=ROUND_SECONDS,
        patience=CALL_SECONDS,
        at_end=connections.close_all,  # the connections of a thread to the database end with it
    )


def group_by_cluster(calls: Iterable[ClusterCall]) -> Iterable[Sequence[ClusterCall]]:
    """Group the observations of one cluster: it is called once for all its placements."""
    groups: dict[tuple[str, int], list[ClusterCall]] = {}
    for one in calls:
        key = ("observe", one.cluster.pk) if one.is_observation else ("change", one.binding.pk)
        groups.setdefault(key, []).append(one)
    return groups.values()


def call_cluster(calls: Sequence[ClusterCall], clock: Callable[[], datetime]) -> Answer:
    first, binding = calls[0], calls[0].binding
    if isinstance(first.manifests, OverrideFailed):
        return first.manifests
    # A worker that was stopped continues here: another one may have made the call since.
    if binding.call_lease_expires_at is None or clock() >= binding.call_lease_expires_at:
        return NotCalled.LEASE_WAS_OVER
    driver = driver_for(first.cluster, clock=clock)
    if binding.phase == Phase.APPLYING:
        version = Version(binding.applied_version, first.placement, first.manifests, binding.fence)
        return driver.apply(version, timeout=CALL_SECONDS)
    if binding.phase == Phase.REMOVING:
        return driver.remove(first.placement, fence=binding.fence, timeout=CALL_SECONDS)
    return driver.observe(*(one.placement for one in calls), timeout=CALL_SECONDS)


def batch_answers(answers: Iterator[Answered]) -> Iterator[list[Answered]]:
    """Yield the answers of a short while at a time, so that many are written at once and none waits long."""
    queue: SimpleQueue[Answered | None] = SimpleQueue()

    def read() -> None:
        try:
            for answer in answers:
                queue.put(answer)
        finally:
            queue.put(None)

    with ThreadPoolExecutor(1, thread_name_prefix="answers") as reader:
        reading = reader.submit(read)
        is_over = False
        while not is_over:
            batch = [queue.get()]
            wait([reading], timeout=GATHER_SECONDS)
            with suppress(Empty):
                while True:
                    batch.append(queue.get_nowait())
            is_over = None in batch
            if answered := [answer for answer in batch if answer is not None]:
                yield answered
        reading.result()


def to_result(call: ClusterCall, answer: Answer, *, now: datetime, is_busy: bool) -> CallResult | None:
    """Return what is to be written; None means that nothing of the placement is on the cluster any more."""
    binding = call.binding
    if isinstance(answer, NotCalled):
        return CallResult((("next_call_at", now),), failure=None)
    if isinstance(answer, OverrideFailed):
        message = override_sentence(answer, call.cluster.name)
        return _failed(binding, message, override_failure(answer), now=now)
    if isinstance(answer, DriverFenced):
        # Written only under a lease that is still valid: the fence is behind after a restore of the database.
        return CallResult((("next_call_at", now), ("calls", binding.calls_beyond(answer.seen))), failure=None)
    if isinstance(answer, DriverRejected):
        return _rejected(binding, answer, now=now)
    if isinstance(answer, DriverError):
        # Whether the call took effect is unknown: the same call again, later and later.
        waited = (now - (binding.phase_changed_at or now)) / 2
        pause = max(OBSERVE_AGAIN, min(waited, timedelta(seconds=30)))
        columns = {"next_call_at": now + pause, "message": str(answer)[:_MESSAGE_LENGTH]}
        return CallResult(tuple(columns.items()), failure=Failure(FailureKind.UNREACHABLE))
    if isinstance(answer, Observation):
        return _observed(call, answer, now=now, is_busy=is_busy)
    if binding.phase == Phase.REMOVING:
        return None
    columns = {"phase": Phase.APPLIED, "phase_changed_at": now, "next_call_at": now, "message": ""}
    return CallResult(tuple(columns.items()), is_applied=True)


def _rejected(binding: Binding, error: DriverRejected, *, now: datetime) -> CallResult:
    message = "; ".join(f"{one.object}: {one.message}" for one in error.refusals) or str(error)
    return _failed(binding, message, refusal_failure(binding, error), now=now)


def _failed(binding: Binding, message: str, failure: Failure, *, now: datetime) -> CallResult:
    """Return a failure, to be tried again with growing pauses."""
    removing = binding.phase == Phase.REMOVING
    columns = {
        "phase": Phase.REMOVE_FAILED if removing else Phase.FAILED,
        "phase_changed_at": now,
        "retry_at": now + retry_delay(binding.attempts),
        "next_call_at": None,
        "message": message[:_MESSAGE_LENGTH],
    }
    return CallResult(tuple(columns.items()), outcome=ClusterUpdate.Outcome.FAILED, failure=failure)


def next_at_rest(cluster: MemberCluster, now: datetime) -> datetime:
    """Return when a cluster is observed next, in half to one and a half periods: at its place in each period.

    All placements at rest on the cluster are observed with one call then.
    """
    place = OBSERVE_AT_REST * (cluster.pk * _GOLDEN % 1)
    past = (now - place - _EPOCH + OBSERVE_AT_REST / 2) % OBSERVE_AT_REST
    return now + OBSERVE_AT_REST * 1.5 - past


def _observed(call: ClusterCall, observation: Observation, *, now: datetime, is_busy: bool) -> CallResult:
    binding, seen = call.binding, observation.of(call.placement)
    next_call = now + OBSERVE_IN_ROLLOUT if is_busy else next_at_rest(call.cluster, now)
    columns: dict[str, Any]
    if seen is None or seen.version != binding.applied_version:
        columns = {
            "phase": Phase.APPLYING,
            "phase_changed_at": now,
            "next_call_at": now,
            "untrackable_since": None,
        }
        columns["message"] = "The applied resources are gone; applying them again."
        return CallResult(tuple(columns.items()))
    if seen.refusals:
        return _rejected(binding, DriverRejected("refused", seen.refusals), now=now)
    if seen.readiness is Readiness.AVAILABLE:
        columns = {
            "phase": Phase.AVAILABLE,
            "untrackable_since": None,
            "message": "",
            "next_call_at": next_call,
        }
        if binding.phase != Phase.AVAILABLE:
            columns["phase_changed_at"] = now
        return CallResult(tuple(columns.items()), outcome=ClusterUpdate.Outcome.AVAILABLE)
    is_timed = seen.readiness is Readiness.NOT_TRACKABLE
    columns = {
        "phase": Phase.APPLIED,
        "untrackable_since": (binding.untrackable_since or binding.phase_changed_at or now)
        if is_timed
        else None,
        "message": "; ".join(f"{one.object}: {one.reason}" for one in seen.unready)[:_MESSAGE_LENGTH],
        "next_call_at": next_call if is_timed else now + OBSERVE_AGAIN,
    }
    if binding.phase != Phase.APPLIED:
        columns["phase_changed_at"] = now
    return CallResult(tuple(columns.items()), failure=unready_failure(binding, seen.unready))


def override_failure(failed: OverrideFailed) -> Failure:
    """Return the failure of an override that does not apply."""
    fault = OverrideFault(failed.snapshot, failed.path, failed.resource, failed.message)
    return Failure(FailureKind.OVERRIDE, override=fault)


def refusal_failure(binding: Binding, error: DriverRejected) -> Failure:
    """Return what a cluster rejected, object by object where it says so."""
    objects = [(one.object, one.code, one.message) for one in error.refusals]
    return Failure(FailureKind.REFUSED, _object_faults(binding, objects))


def unready_failure(binding: Binding, unready: Iterable[ObjectSeen]) -> Failure:
    """Return the objects that are not available yet, without those that cannot be observed."""
    waiting = [one for one in unready if one.readiness is not Readiness.NOT_TRACKABLE]
    return Failure(objects=_object_faults(binding, [(one.object, NOT_READY, one.reason) for one in waiting]))


def _object_faults(
    binding: Binding, objects: Sequence[tuple[ObjectRef, str, str]]
) -> tuple[ObjectFault, ...]:
    """Return the first 100 objects in order, each with the API version that was sent to the cluster."""
    snapshot = binding.resource_snapshot if objects else None
    versions = {}
    for api_version, kind, namespace, name in snapshot.identities if snapshot else ():
        group, _, version = api_version.rpartition("/")
        versions[ObjectRef(group, kind, namespace, name)] = version
    faults = [
        ObjectFault(ref.group, versions.get(ref, ""), ref.kind, ref.namespace, ref.name, code, message)
        for ref, code, message in objects
    ]
    faults.sort(key=lambda one: (one.group, one.version, one.kind, one.namespace, one.name))
    return tuple(faults[:MOST_OBJECTS])


def apply_results(results: Iterable[tuple[Binding, CallResult | None]], *, now: datetime) -> None:
    """Write the results; bindings that were alike and get the same are written together."""
    alike: dict[Any, list[Binding]] = {}
    for binding, result in results:
        before = (binding.call_lease_token, binding.phase, binding.message, binding.untrackable_since)
        alike.setdefault((before, result), []).append(binding)
    for (_, result), bindings in alike.items():
        first = bindings[0]
        # A sync may find more than other texts; that all is still available is no news at all.
        is_ended = result is None or bool(result.outcome and first.phase != Phase.AVAILABLE)
        needs_sync = is_ended or (result is not None and result.changes(first, "phase", "untrackable_since"))
        is_news = needs_sync or (result is not None and result.changes(first, "message"))
        versions: dict[str, list[int]] = {}
        for one in bindings:
            versions.setdefault(one.applied_version, []).append(one.pk)
        run_the_same = (Q(pk__in=pks, applied_version=version) for version, pks in versions.items())
        mine = Binding.objects.filter(
            pk__in=[one.pk for one in bindings], call_lease_token=first.call_lease_token
        )
        unchanged = mine.filter(Q(phase=first.phase) & reduce(or_, run_the_same))
        placements = {one.placement_id for one in bindings}
        with transaction.atomic():
            # First, as a sync of a rollout begins with this row and then writes conditions: else a deadlock.
            if is_news or connection.features.has_select_for_update:
                locked = Placement.objects.select_for_update().filter(pk__in=placements).order_by("pk")
                list(locked.values_list("pk", flat=True))
            reported = set(unchanged.values_list("pk", flat=True)) if is_news else set()
            if result is None:
                # A cluster that was selected again meanwhile starts from nothing.
                selected = unchanged.exclude(state=BindingState.UNSCHEDULED).filter(
                    placement__deleting_since=None
                )
                empty = {
                    "phase": Phase.REMOVED,
                    "applied_version": "",
                    "resource_snapshot": None,
                    "next_call_at": None,
                }
                written = selected.update(**_RELEASED, **empty) + unchanged.delete()[0]
            else:
                written = unchanged.update(**_RELEASED, **result.updates())
            if written < len(bindings):
                mine.update(**_RELEASED)
            if needs_sync:
                enqueue_rollout(placements)
            if reported:
                _report([one for one in bindings if one.pk in reported], result, now=now)


def _report(bindings: Collection[Binding], result: CallResult | None, *, now: datetime) -> None:
    """Record in the rollouts how the starts ended."""
    pairs = {(one.placement_id, one.cluster_name) for one in bindings}
    placements = {placement for placement, _ in pairs}
    rows = ClusterUpdate.objects.filter(
        rollout__placement_id__in=placements, cluster_name__in={name for _, name in pairs}, outcome=""
    )
    keys = rows.values_list("pk", "rollout__placement_id", "cluster_name")
    updates = ClusterUpdate.objects.filter(pk__in=[pk for pk, *pair in keys if tuple(pair) in pairs])
    if result is None:
        updates.update(outcome=ClusterUpdate.Outcome.REMOVED, ended_at=now)
    else:
        columns: dict[str, Any] = {"message": str(dict(result.columns).get("message", ""))}
        columns |= {"applied_at": now} if result.is_applied else {}
        columns |= {"outcome": result.outcome, "ended_at": now} if result.outcome else {}
        updates.update(**columns)
    running = Rollout.objects.filter(placement_id__in=placements, state=Rollout.State.RUNNING)
    running.update(progress_version=F("progress_version") + 1)
