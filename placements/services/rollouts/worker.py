"""Calls to the clusters: claim those that are due, call, apply the results; no transaction is open meanwhile.

A call is due in the binding's row (`next_call_at`) and claimed by a conditional update with a lease. Its
result is written only if the binding still runs the same version in the same phase; so a call may be made
twice, and late results do no harm. Periods count from the answer, not from the call.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias
from uuid import uuid4

from django.db import connection, transaction
from django.db.models import (
    Count,
    F,
    Prefetch,
    Q,
    QuerySet,
    prefetch_related_objects,
)

from clusters.driver_factory import driver_for, read_states, wall_clock
from clusters.drivers.base import (
    FAILED_TO_TAKE_OVER,
    SIMULATED,
    Applied,
    ApplyOptions,
    DiffResult,
    DriverError,
    DriverUnavailable,
    ObjectRef,
    ObjectWarnings,
    Removed,
    Version,
)
from clusters.drivers.concurrency import NotCalled, call_all
from clusters.drivers.registry import ACTING_DRIVERS, DRIVERS
from clusters.drivers.simulated.state import OWNERS, Stored
from clusters.models import MemberCluster
from clusters.operations.heartbeat import observe_now
from clusters.queries import cluster_of
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.model import mapping_at
from fleetui.bulk import (
    OfEachRow,
    claim_batch,
    update_each,
)
from fleetui.changes import unnoticed
from fleetui.prepared import PreparedQuery
from fleetui.threads import brief_connection, close_connections
from placements.engine.envelopes import applied_identities, unwrapped
from placements.engine.overrides import OverrideContent, OverrideFailed
from placements.engine.rollout.state import Phase
from placements.manifests.binding import BindingState
from placements.manifests.placement import parse_placement
from placements.manifests.strategy import ApplyStrategy
from placements.models import (
    Binding,
    ClusterUpdate,
    OverrideSnapshot,
    Placement,
    ResourceSnapshot,
    ResourceSnapshotPart,
    Rollout,
    StagedRun,
)
from placements.services.overrides.queries import Manifests, frozen_of, overridden
from placements.services.rollout_state import BEHIND, CONFIRMED, WAITING
from placements.services.rollouts.call_results import (
    MESSAGE_LENGTH,
    MOST_OBJECTS,
    OBSERVE_IN_ROLLOUT,
    Answer,
    CallResult,
    ClusterCall,
    kinds_result,
    object_messages,
    to_result,
)
from placements.services.rollouts.cluster_objects import store_objects
from placements.services.workqueue import enqueue_rollout


def with_warnings(call: ClusterCall, answer: Answer, result: CallResult) -> CallResult:
    """Return a result that also keeps what the API server warned of, of at most 100 objects.

    What a call did not write again, since it was unchanged, keeps its warnings.
    """
    if not isinstance(answer, (Applied, DiffResult, Removed, DriverError)):
        return result
    written = {warning.object: warning.messages for warning in answer.warnings}
    manifests = () if isinstance(call.manifests, OverrideFailed) else call.manifests
    present = {
        (manifest.get("kind"), mapping_at(manifest, "metadata").get("name"))
        for manifest in manifests
    }
    kept = {
        ObjectRef(row["group"], row["kind"], row["namespace"], row["name"]): row[
            "messages"
        ]
        for row in call.binding.warnings
        if not manifests or (row["kind"], row["name"]) in present
    }
    rows = warning_rows(
        ObjectWarnings(*one) for one in sorted((kept | written).items())
    )
    is_same = rows == call.binding.warnings and not result.is_removed  # whose row goes
    return result if is_same else replace(result, warnings=json.dumps(rows))


def warning_rows(warnings: Iterable[ObjectWarnings]) -> list[dict[str, Any]]:
    rows = [
        {**asdict(warning.object), "messages": list(warning.messages)}
        for warning in warnings
        if warning.messages
    ]
    return rows[:MOST_OBJECTS]


def warning_words(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return what an API server warned of as one text, each message once; "" for nothing."""
    pairs = (
        (ObjectRef(row["group"], row["kind"], row["namespace"], row["name"]), message)
        for row in rows
        for message in row["messages"]
    )
    words = object_messages(pairs)
    return f"Warnings of the API server: {words}"[:MESSAGE_LENGTH] if words else ""


BATCH = 500
THREADS = 32
CALL_SECONDS = 10.0
ROUND_SECONDS = 20.0
GATHER_SECONDS = 0.1
"""Answers of so long are written together: a transaction costs more than the rows in it."""
MANY_CLUSTERS = 20
PROGRESS_SYNC = timedelta(seconds=3)
"""On more clusters than these a rollout is synced so long after an answer that lets nothing start: what was
applied there is not available yet."""
LEASE = timedelta(seconds=30)
_RELEASED = {"call_lease_expires_at": None, "call_lease_token": ""}
_EMPTY = {
    "phase": Phase.REMOVED,
    "applied_version": "",
    "resource_snapshot": None,
    "next_call_at": None,
}
_READ = (
    "placement",
    "cluster_name",
    "phase",
    "phase_changed_at",
    "untrackable_since",
    "attempts",
    "message",
    "applied_version",
    "resource_snapshot",
    "override_snapshots",
    "apply_strategy",
    "was_applied",
    "objects_done",
    "objects_digest",
    "unavailable_code",
    "drifted_objects",
    "diffed_objects",
    "repairs",
    "contested_since",
    "call_lease_expires_at",
    "call_lease_token",
    "calls",
    "removal_check",
    "started_versions",
    "retry_at",
    "failed_objects",
    "warnings",
    "observed_at",
)
"""What of a binding its calls and results need; each further column of a batch costs milliseconds."""
_APPLIED_VERSION = Binding._meta.get_field("applied_version")
_SYNCED = ("phase", "untrackable_since", "retry_at")
"""Columns of which a rollout has to know."""
_OVERRIDE_GONE = OverrideFailed(
    "a snapshot",
    "spec",
    "any resource",
    "the snapshot was deleted; a newer version follows",
)
"""The override was changed or deleted in the moment in which the cluster was started."""


BindingsAnswer: TypeAlias = tuple[tuple[int, ...], Answer]
"""The answer of a cluster, for these bindings: one observation is for all that are due there."""


def run_cluster_calls(
    *, now: datetime, threads: int = THREADS, clock: Callable[[], datetime] = wall_clock
) -> int:
    """Make up to 500 of the calls that are due; `clock` returns when they are answered. Return how many."""
    bindings = claim(now=now)
    if not bindings:
        return 0
    calls = prepare_calls(bindings, now=now)
    placements = {binding.placement_id for binding in bindings}
    running = Rollout.objects.filter(
        placement_id__in=placements, state=Rollout.State.RUNNING
    )
    staged = StagedRun.objects.filter(placement_id__in=placements, ended_at=None)
    in_rollout = {
        row
        for rows in (running, staged)
        for row in rows.values_list("placement_id", flat=True)
    }
    answers = call_clusters(calls, clock=clock, threads=threads)
    for batch in batch_answers(answers) if threads else [list(answers)]:
        answered_at = clock()
        results = []
        for pk, answer in ((pk, answer) for pks, answer in batch for pk in pks):
            call = calls[pk]
            is_busy = call.binding.placement_id in in_rollout
            if isinstance(answer, bool) or (call.missing_kinds and not call.is_report):
                result = kinds_result(call, answer, now=answered_at)
            else:
                result = to_result(call, answer, now=answered_at, is_busy=is_busy)
                result = with_warnings(call, answer, result)
            results.append((call.binding, result))
        apply_results(results, now=answered_at)
        silent = {
            calls[pk].cluster.pk
            for pks, answer in batch
            for pk in pks
            if calls[pk].cluster.unanswered_since
            and not isinstance(answer, (DriverUnavailable, NotCalled, OverrideFailed))
        }
        observe_now(silent, now=answered_at)
    return len(bindings)


def claim(*, now: datetime) -> list[Binding]:
    """Claim up to 500 bindings whose call is due, with a lease."""
    lease = {
        "call_lease_token": uuid4().hex,
        "call_lease_expires_at": now + LEASE,
        "calls": F("calls") + 1,
    }
    ids = claim_batch(_due(now), "next_call_at", "pk", size=BATCH, **lease)
    if not ids:
        return []
    names = Prefetch("placement", Placement.objects.only("full_name"))
    rows = Binding.objects.filter(pk__in=ids).only(*_READ)
    bindings = list(rows.prefetch_related(names))
    # The texts of what is not available yet need it.
    waiting = [row for row in bindings if row.phase != Phase.AVAILABLE]
    prefetch_related_objects(waiting, "resource_snapshot")
    return bindings


def is_due(*, now: datetime) -> bool:
    """Return whether a call is due that no worker has claimed."""
    return bool(_first_due.rows(now=now))


def _due(now: datetime) -> QuerySet[Binding]:
    is_free = Q(call_lease_expires_at=None) | Q(call_lease_expires_at__lt=now)
    return Binding.objects.filter(is_free, next_call_at__lte=now)


_first_due = PreparedQuery(lambda now: _due(now).values_list("pk")[:1])


def prepare_calls(
    bindings: Sequence[Binding], *, now: datetime
) -> dict[int, ClusterCall]:
    """Return the calls by binding, with what each cluster is to have; release those that cannot be called."""
    rows = MemberCluster.objects.filter(
        name__in={row.cluster_name for row in bindings}, driver__in=DRIVERS
    ).select_related("credential")
    clusters = {row.name: row for row in rows}
    cache = ManifestCache()
    cache.read(
        {row.resource_snapshot_id for row in bindings if row.phase == Phase.APPLYING}
    )
    calls = {}
    for row in bindings:
        if cluster := clusters.get(row.cluster_name):
            call = ClusterCall(row, row.placement.full_name, cluster, ())
            if row.phase == Phase.APPLYING or call.is_report:
                kinds = (
                    cache.kinds_of(row.placement_id)
                    if cluster.driver in ACTING_DRIVERS
                    else ()
                )
                call = replace(call, manifests=cache.of(row, cluster), kinds=kinds)
            elif row.phase == Phase.REMOVING and cluster.driver in ACTING_DRIVERS:
                call = replace(call, is_release=cache.is_abandoned(row.placement_id))
            calls[row.pk] = call
    released = [row.pk for row in bindings if row.pk not in calls]
    Binding.objects.filter(pk__in=released).update(
        **_RELEASED, next_call_at=now + OBSERVE_IN_ROLLOUT
    )
    return calls


@dataclass
class ManifestCache:
    """The manifests for one batch of calls; snapshots and sets of overrides are read once."""

    _manifests: dict[int | None, Manifests] = field(default_factory=dict)
    _applied: dict[int | None, Manifests] = field(default_factory=dict)
    _overrides: dict[tuple[int, ...], tuple[OverrideContent, ...]] = field(
        default_factory=dict
    )
    _kinds: dict[int, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    _abandoned: dict[int, bool] = field(default_factory=dict)

    def is_abandoned(self, placement_id: int) -> bool:
        """Return whether a placement is being deleted and leaves its resources on the clusters."""
        if placement_id not in self._abandoned:
            deleting = Placement.objects.filter(
                pk=placement_id, deleting_since__isnull=False
            )
            document = deleting.values_list("document", flat=True).first()
            self._abandoned[placement_id] = (
                document is not None
                and parse_placement(document).spec.strategy.abandons
            )
        return self._abandoned[placement_id]

    def kinds_of(self, placement_id: int) -> tuple[tuple[str, str], ...]:
        """Return apiVersion and kind of all objects in the kept snapshots of a placement."""
        if placement_id not in self._kinds:
            kept = ResourceSnapshot.objects.filter(placement=placement_id)
            pairs = kept.values_list("identities", "wrapped_identities")
            kinds = {
                (identity[0], identity[1])
                for pair in pairs
                for identity in applied_identities(*pair)
            }
            self._kinds[placement_id] = tuple(sorted(kinds))
        return self._kinds[placement_id]

    def read(self, snapshots: Collection[int | None]) -> None:
        stored = ResourceSnapshotPart.objects.filter(snapshot__in=snapshots).order_by(
            "position"
        )
        parts = grouped(
            (snapshot, plain_manifest(part))
            for snapshot, part in stored.values_list("snapshot", "manifests")
        )
        for wanted in snapshots:
            self._manifests[wanted] = tuple(
                chain.from_iterable(parts.get(wanted or 0, ()))
            )
            self._applied[wanted] = unwrapped(self._manifests[wanted])

    def of(
        self, binding: Binding, cluster: MemberCluster
    ) -> Manifests | OverrideFailed:
        """Return what one cluster is to have after its overrides, or which override failed."""
        snapshot, keys = binding.resource_snapshot_id, tuple(binding.override_snapshots)
        if snapshot not in self._manifests:
            self.read({snapshot})
        if not keys:
            return self._applied[snapshot]
        if keys not in self._overrides:
            rows = OverrideSnapshot.objects.in_bulk(list(keys))
            if len(rows) < len(keys):
                return _OVERRIDE_GONE
            self._overrides[keys] = tuple(
                frozen_of(rows[key]) for key in keys
            )  # in the order of applying
        manifests = overridden(
            self._manifests[snapshot], self._overrides[keys], cluster_of(cluster)
        )
        return (
            manifests if isinstance(manifests, OverrideFailed) else unwrapped(manifests)
        )


def call_clusters(
    calls: Mapping[int, ClusterCall], *, clock: Callable[[], datetime], threads: int
) -> Iterator[BindingsAnswer]:
    """Call the clusters; return what yields each answer with its bindings.

    The database is used here and not in the iterator, which a thread of its own reads.
    """
    simulated: dict[int, list[str]] = {}
    for call in calls.values():
        if call.cluster.driver == SIMULATED:
            simulated.setdefault(call.cluster.pk, []).append(call.placement)
            if not call.is_observation:
                simulated[call.cluster.pk].append(OWNERS)
    states = read_states(
        simulated
    )  # at once: a query for each call would cost more than the call
    # A cluster is called once for the observations of all its placements.
    groups = grouped((call.joined_by, call) for call in calls.values())
    functions = {
        tuple(call.binding.pk for call in group): partial(
            call_cluster, group, clock, states.get(group[0].cluster.pk)
        )
        for group in groups.values()
    }
    return call_all(
        functions,
        threads=threads,
        seconds=ROUND_SECONDS,
        patience=CALL_SECONDS,
        at_end=close_connections,
    )


def call_cluster(
    calls: Sequence[ClusterCall],
    clock: Callable[[], datetime],
    states: Mapping[str, Stored] | None = None,
) -> Answer:
    """Make one call for these bindings; `states` are those of a simulated cluster, read a moment ago."""
    first, binding = calls[0], calls[0].binding
    if isinstance(first.manifests, OverrideFailed):
        return first.manifests
    # A worker that was stopped continues here: another one may have made the call since, or may make it when
    # the lease is over. By then this one has to end.
    expires_at = binding.call_lease_expires_at
    left = (expires_at - clock()).total_seconds() if expires_at else 0.0
    if left <= 0:
        return NotCalled.LEASE_WAS_OVER
    timeout = min(CALL_SECONDS, left)
    driver = driver_for(first.cluster, clock=clock, states=states)
    if binding.phase == Phase.REMOVING:
        end = driver.release if first.is_release else driver.remove
        return end(first.placement, fence=binding.fence, timeout=timeout)
    if first.missing_kinds and not (
        first.is_report and first.is_comparison_due(clock())
    ):
        is_served = driver.serves(first.missing_kinds, timeout=timeout)
        if not (is_served and first.is_report):
            return is_served
    if first.is_report:
        return driver.diff(version_of(first, first.manifests), timeout=timeout)
    if binding.phase == Phase.APPLYING:
        return driver.apply(version_of(first, first.manifests), timeout=timeout)
    by_name = {call.placement: call for call in calls}
    return driver.observe(
        *by_name,
        version_of=lambda name: observed_version(by_name[name]),
        timeout=timeout,
    )


def version_of(call: ClusterCall, manifests: Manifests) -> Version:
    """Return what a cluster is to have, or has; `manifests` with all overrides applied."""
    binding = call.binding
    return Version(
        binding.applied_version,
        call.placement,
        manifests,
        binding.fence,
        apply_options(binding.apply_strategy),
        call.kinds,
        binding.was_applied,
        tuple((binding.started_versions or binding.applied_version).split()),
        binding.removal_check in (BEHIND, WAITING),
        binding.removal_check == CONFIRMED,
    )


def apply_options(plain: Mapping[str, Any] | None) -> ApplyOptions:
    """Return an apply strategy as drivers take it; None means the defaults."""
    if plain is None:
        return ApplyOptions()
    strategy = ApplyStrategy.model_validate(plain)
    return ApplyOptions(
        strategy.type.value,
        strategy.comparison_option.value,
        strategy.when_to_apply.value,
        strategy.when_to_take_over.value,
        strategy.allow_co_ownership,
        bool(
            strategy.server_side_apply_config
            and strategy.server_side_apply_config.force
        ),
    )


def observed_version(call: ClusterCall) -> Version | None:
    """Return what was last started on a cluster; None where an override of it was deleted.

    Called where objects may have drifted, in the thread of the call.
    """
    with brief_connection():
        manifests = ManifestCache().of(call.binding, call.cluster)
    return (
        None if isinstance(manifests, OverrideFailed) else version_of(call, manifests)
    )


def batch_answers(answers: Iterator[BindingsAnswer]) -> Iterator[list[BindingsAnswer]]:
    """Yield the answers of a short while at a time, so that many are written at once and none waits long.

    `answers` is read in a thread that uses no database.
    """
    queue: SimpleQueue[BindingsAnswer | None] = SimpleQueue()

    def read() -> None:
        try:
            for answer in answers:
                queue.put(answer)
        finally:
            queue.put(None)

    with ThreadPoolExecutor(1, thread_name_prefix="answers") as reader:
        reading = reader.submit(copy_context().run, read)
        is_over = False
        while not is_over:
            batch = [queue.get()]
            wait([reading], timeout=GATHER_SECONDS)
            with suppress(Empty):
                while True:
                    batch.append(queue.get_nowait())
            is_over = None in batch
            if group := [answer for answer in batch if answer is not None]:
                yield group
        reading.result()


class _ResultKind(NamedTuple):
    """What results have in common that are written together; their texts and times may differ."""

    lease_token: str
    phase: str
    columns: tuple[str, ...]
    outcome: str
    is_applied: bool
    has_objects: bool
    needs_sync: bool
    is_news: bool
    is_progress: bool

    @classmethod
    def of(
        cls,
        binding: Binding,
        result: CallResult,
        columns: Iterable[str],
    ) -> "_ResultKind":
        # A sync may find more than other texts; that all is still available is no change.
        is_ended = bool(result.outcome and binding.phase != Phase.AVAILABLE)
        needs_sync = is_ended or result.changes(binding, *_SYNCED)
        return cls(
            binding.call_lease_token,
            binding.phase,
            tuple(sorted(columns)),
            result.outcome,
            result.is_applied,
            result.objects is not None,
            needs_sync,
            is_news=needs_sync or result.changes(binding, "message"),
            is_progress=binding.phase == Phase.APPLYING and result.is_settling,
        )

    def write(self, rows: Sequence["_Written"], *, now: datetime) -> None:
        columns = {row.binding.pk: row.columns for row in rows}
        mine = Binding.objects.filter(
            pk__in=list(columns), call_lease_token=self.lease_token
        )
        versions = {row.binding.pk: row.binding.applied_version for row in rows}
        unchanged = mine.filter(
            phase=self.phase, applied_version=OfEachRow(_APPLIED_VERSION, versions)
        )
        placements = {row.binding.placement_id for row in rows}
        is_removal = self.outcome == ClusterUpdate.Outcome.REMOVED
        refused = Binding.objects.filter(
            phase=Phase.FAILED,
            cluster_name__in=[row.binding.cluster_name for row in rows],
            failed_objects__icontains=FAILED_TO_TAKE_OVER,
        )
        if is_removal:  # their owner may be gone now
            placements.update(refused.values_list("placement_id", flat=True))
        # First, as a sync of a rollout starts with this row and then writes conditions: else a deadlock.
        if self.is_news or connection.features.has_select_for_update:
            locked = (
                Placement.objects.select_for_update()
                .filter(pk__in=placements)
                .order_by("pk")
            )
            list(locked.values_list("pk", flat=True))
        needs_reported = self.is_news or self.has_objects
        reported = (
            set(unchanged.values_list("pk", flat=True)) if needs_reported else set()
        )

        if is_removal:
            refused.update(retry_at=None)
            # A cluster that was selected again meanwhile starts from nothing.
            selected = unchanged.exclude(state=BindingState.UNSCHEDULED).filter(
                placement__deleting_since=None
            )
            row_count = (
                update_each(selected, columns, **_RELEASED, **_EMPTY)
                + unchanged.delete()[0]
            )
        else:
            row_count = update_each(unchanged, columns, **_RELEASED)
            if self.has_objects:
                texts = {row.binding.pk: row.result.objects or "[]" for row in rows}
                store_objects({pk: texts[pk] for pk in reported}, now=now)
        if row_count < len(rows):
            mine.update(**_RELEASED)

        if self.needs_sync:
            soon = _sync_soon(placements, now=now) if self.is_progress else set()
            enqueue_rollout(placements - soon)
        if reported and self.is_news:
            self.report([row for row in rows if row.binding.pk in reported], now=now)

    def report(self, rows: Collection["_Written"], *, now: datetime) -> None:
        is_removed = self.outcome == ClusterUpdate.Outcome.REMOVED
        messages: dict[tuple[int, str], str] = {}
        for binding, result, columns in rows:
            words = (
                warning_words(json.loads(result.warnings or "[]"))
                if is_removed
                else columns.get("message", "")
            )
            messages[binding.placement_id, binding.cluster_name] = words
        placements = {placement for placement, _ in messages}
        keys = ClusterUpdate.objects.filter(
            rollout__placement_id__in=placements,
            cluster_name__in={name for _, name in messages},
            outcome="",
        ).values_list("pk", "rollout__placement_id", "cluster_name")
        updates = {
            pk: {"message": messages[placement, cluster]}
            for pk, placement, cluster in keys
            if (placement, cluster) in messages
        }
        same: dict[str, Any] = {"applied_at": now} if self.is_applied else {}
        same |= {"outcome": self.outcome, "ended_at": now} if self.outcome else {}
        update_each(ClusterUpdate.objects.all(), updates, **same)
        Rollout.objects.filter(
            placement_id__in=placements, state=Rollout.State.RUNNING
        ).update(progress_version=F("progress_version") + 1)


class _Written(NamedTuple):
    """A result, and the columns that it writes into its binding."""

    binding: Binding
    result: CallResult
    columns: Mapping[str, Any]


def apply_results(
    results: Iterable[tuple[Binding, CallResult]], *, now: datetime
) -> None:
    """Write the results; those of one kind are written together, also where each has a text of its own."""
    kinds: dict[_ResultKind, list[_Written]] = {}
    for binding, result in results:
        columns = result.updates()
        kind = _ResultKind.of(binding, result, columns)
        kinds.setdefault(kind, []).append(_Written(binding, result, columns))
    for kind, rows in kinds.items():
        # Most calls at rest find the same as before.
        with (
            unnoticed(when=not kind.is_news and not kind.has_objects),
            transaction.atomic(),
        ):
            kind.write(rows, now=now)


def _sync_soon(placements: Collection[int], *, now: datetime) -> set[int]:
    """Sync rollouts on many clusters soon, for several results at once; return their placements."""
    counts = (
        Binding.objects.filter(placement__in=placements)
        .values("placement")
        .annotate(Count("pk"))
    )
    large = set(
        counts.filter(pk__count__gt=MANY_CLUSTERS).values_list("placement", flat=True)
    )
    soon = now + PROGRESS_SYNC
    is_later = Q(rollout_requeue_at=None) | Q(rollout_requeue_at__gt=soon)
    with unnoticed():
        Placement.objects.filter(is_later, pk__in=large).update(rollout_requeue_at=soon)
    return large
