"""Deletion of what is no longer needed: snapshots beyond their limit, and rows older than they are kept.

Snapshots are those beyond `revisionHistoryLimit` that are not in use (`rules/lifecycle.md#history`). How long
other rows are kept is configured (`KEEP_…` in the settings); what something still refers to is kept as long
as that does.
"""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session
from django.db import IntegrityError, OperationalError, connection
from django.db.models import Exists, F, Max, Model, OuterRef, Q, QuerySet

from clusters.hub_queries import across_hubs
from clusters.models import BindingChange, Hub, MemberCluster
from fleetui.access.audit import prune_lines
from fleetui.accounts.models import SharedCacheEntry
from fleetui.broker import is_folder, messages_before
from fleetui.hub_scope import LOCAL_HUB, current_hub_id, in_hub
from fleetui.models import Event, PeriodicWork
from placements.models import (
    Binding,
    ClusterUpdate,
    Decision,
    DecisionRecord,
    Draft,
    Drain,
    Eviction,
    FleetRecord,
    FleetVersion,
    HubDecision,
    NotificationDelivery,
    Override,
    OverrideSnapshot,
    Placement,
    PolicySnapshot,
    Problem,
    ResourceSnapshot,
    Rollout,
    RolloutSample,
    StagedRun,
)

log = logging.getLogger(__name__)

OVERRIDE_SNAPSHOTS = 10
"""How many snapshots of an override are kept; the released system has no setting for it.

See `rules/lifecycle.md#history`.
"""


def prune_policy_snapshots(placement: Placement) -> int:
    in_use = Binding.objects.filter(placement=placement).values("policy_snapshot")
    kept = _newest(PolicySnapshot, placement)
    surplus = PolicySnapshot.objects.filter(placement=placement, is_latest=False)
    return surplus.exclude(pk__in=kept).exclude(pk__in=in_use).delete()[0]


def prune_resource_snapshots(placement: Placement) -> int:
    """Delete the oldest resource snapshots beyond the limit, never the latest or one that is in use.

    In use is what a binding names, or a staged run that has not ended.
    """
    in_use = Binding.objects.filter(
        placement=placement, resource_snapshot__isnull=False
    )
    kept = _newest(ResourceSnapshot, placement)
    surplus = ResourceSnapshot.objects.filter(placement=placement, is_latest=False)
    surplus = surplus.exclude(pk__in=kept).exclude(
        pk__in=in_use.values("resource_snapshot")
    )
    active = StagedRun.objects.filter(
        placement=placement, ended_at=None, resource_snapshot__isnull=False
    )
    return surplus.exclude(pk__in=active.values("resource_snapshot")).delete()[0]


def prune_override_snapshots(
    override: Override, *, keep: int = OVERRIDE_SNAPSHOTS
) -> int:
    """Delete the oldest snapshots of an override, never the latest or one that belongs to a binding."""
    rows = OverrideSnapshot.objects.filter(
        kind=override.kind, namespace=override.namespace, override_name=override.name
    )
    newest = list(rows.order_by("-number").values_list("pk", flat=True)[:keep])
    surplus = rows.filter(is_latest=False).exclude(pk__in=newest)
    candidates = set(surplus.values_list("pk", flat=True))
    if not candidates:
        return 0
    return OverrideSnapshot.objects.filter(
        pk__in=candidates - _override_snapshots_in_use()
    ).delete()[0]


def _override_snapshots_in_use() -> set[int]:
    """Return the snapshots that bindings name in a list, or staged runs in progress contain."""
    used = Binding.objects.exclude(override_snapshots=[]).values_list(
        "override_snapshots", flat=True
    )
    frozen = StagedRun.objects.filter(ended_at=None).exclude(overrides={})
    by_cluster = frozen.values_list("overrides", flat=True)
    in_runs = {
        pk
        for one in by_cluster.iterator()
        for several in one.values()
        for pk in several
    }
    return in_runs | {pk for several in used.iterator() for pk in several}


def _newest(
    model: type[PolicySnapshot] | type[ResourceSnapshot], placement: Placement
) -> list[int]:
    rows = model.objects.filter(placement=placement).order_by("-number")
    return list(rows.values_list("pk", flat=True)[: placement.revision_history_limit])


PRUNE_EVERY = timedelta(hours=1)
_PRUNING = "pruning"
_BATCH = 500
FLEET_VERSIONS = 2_000
"""How many versions of the fleet of a hub are kept that no decision cites: one a second is possible."""
_SMALL_BATCHES = dict.fromkeys((Rollout, StagedRun, Problem, Drain), 10)
"""Of rows with many dependent rows, such as the updates of a rollout."""
LARGEST_WAL = 64 * 1024 * 1024
"""Bytes of the write-ahead log of SQLite from which it is truncated at once, and not once an hour."""
_WAL_PATIENCE = 200
"""Milliseconds for which truncating it waits for readers, and all writers wait with it."""


def prunable(*, now: datetime) -> Iterator[tuple[str, QuerySet[Any]]]:
    """Yield what may be deleted: a name, and the rows.

    In this order: what only cites others comes before what it cites. Runs and evictions of a live hub stay
    as long as they are there.
    """
    is_local = current_hub_id() == LOCAL_HUB
    of_local_hub = Q() if is_local else Q(pk__in=())
    before = now - (settings.KEEP_ROLLOUTS if is_local else settings.KEEP_HUB_HISTORY)
    samples = RolloutSample.objects.filter(
        _has_later(RolloutSample, "rollout") | _has_later(RolloutSample, "staged_run"),
        at__lt=before,
        rollout__ended_at=None,
        staged_run__ended_at=None,
    )
    updates = ClusterUpdate.objects.filter(
        _has_later(ClusterUpdate, "rollout", "cluster_name"),
        ended_at__lt=before,
        rollout__ended_at=None,
    )
    runs = Rollout.objects.filter(
        Q(placement=None) | _has_later(Rollout, "placement"), ended_at__lt=before
    )
    staged_runs = StagedRun.objects.filter(
        Q(placement=None) | _has_later(StagedRun, "placement"),
        of_local_hub,
        ended_at__lt=before,
    )
    yield from (
        ("rollout samples", samples),
        ("cluster updates", updates),
        ("rollouts", runs),
        ("staged update runs", staged_runs),
    )

    if is_local:  # problems and messages are of all hubs
        old = now - settings.KEEP_NOTIFICATIONS
        deliveries = NotificationDelivery.objects.filter(created_at__lt=old)
        yield (
            "notifications",
            deliveries.exclude(problem__ended_at=None, problem__isnull=False),
        )
        yield "problems", Problem.objects.filter(ended_at__lt=old)

    old = now - settings.KEEP_EVICTIONS
    member = MemberCluster.objects.filter(name=OuterRef("cluster_name"))
    yield from (
        # One that came as a manifest would be executed again with the same manifest.
        (
            "evictions",
            Eviction.objects.filter(
                Q(name=None) | Q(placement=None), of_local_hub, at__lt=old
            ),
        ),
        (
            "drains",
            Drain.objects.filter(
                _has_later(Drain, "cluster_name") | ~Exists(member), ended_at__lt=old
            ),
        ),
        ("decisions", _prunable_decisions(now)),
    )
    yield from _prunable_history(now)

    # Hubs share the records.
    with across_hubs():
        is_made = Exists(Decision.objects.filter(record=OuterRef("pk")))
        is_version = Exists(FleetVersion.objects.filter(fleet=OuterRef("pk")))
    is_cited = Exists(DecisionRecord.objects.filter(fleet=OuterRef("pk"))) | is_version
    old = now - (settings.KEEP_EVENTS if is_local else settings.KEEP_HUB_HISTORY)
    drafts = Draft.objects.filter(updated_at__lt=now - settings.KEEP_DRAFTS)
    yield from (
        ("decision records", DecisionRecord.objects.filter(~is_made)),
        ("fleet records", FleetRecord.objects.filter(~is_cited)),
        ("drafts", drafts),
        ("events", Event.objects.filter(at__lt=old)),
        ("expired sessions", Session.objects.filter(expire_date__lt=now)),
        ("expired counters", SharedCacheEntry.objects.filter(expires__lt=now)),
    )


def _has_later(model: type[Model], *same: str) -> Exists:
    """Return whether a row of the model was added later with the same values."""
    values = {name: OuterRef(name) for name in same}
    return Exists(model._default_manager.filter(pk__gt=OuterRef("pk"), **values))


def _prunable_history(now: datetime) -> Iterator[tuple[str, QuerySet[Any]]]:
    """Yield old records for replays, and surplus versions of fleets and overrides."""
    before = now - settings.KEEP_HUB_HISTORY
    undecided = HubDecision.objects.filter(
        decision=None, is_latest=False, seen_at__lt=before
    )
    is_cited = Exists(HubDecision.objects.filter(fleet_version=OuterRef("pk")))
    newest = FleetVersion.objects.aggregate(newest=Max("number"))["newest"] or 0
    surplus = Q(seen_at__lt=before) | Q(number__lte=newest - FLEET_VERSIONS)
    yield from (
        ("hub decisions without a replay", undecided),
        (
            "fleet versions",
            FleetVersion.objects.filter(surplus & ~is_cited & Q(number__lt=newest)),
        ),
        ("binding changes", BindingChange.objects.filter(seen_at__lt=before)),
    )
    if (
        current_hub_id() == LOCAL_HUB
    ):  # what clusters still ran when their override was deleted
        override = Override.objects.filter(
            kind=OuterRef("kind"),
            namespace=OuterRef("namespace"),
            name=OuterRef("override_name"),
        )
        snapshots = OverrideSnapshot.objects.filter(~Exists(override), is_latest=False)
        in_use = _override_snapshots_in_use() if snapshots.exists() else ()
        yield "override snapshots", snapshots.exclude(pk__in=in_use)


def _prunable_decisions(now: datetime) -> QuerySet[Decision]:
    """Return old decisions, except the last of each placement and of each of its policies, and in use."""
    old = Decision.objects.filter(created_at__lt=now - settings.KEEP_DECISIONS)
    later = Decision.objects.filter(
        placement=OuterRef("placement"),
        policy_number=OuterRef("policy_number"),
        number__gt=OuterRef("number"),
    )
    policy = PolicySnapshot.objects.filter(
        placement=OuterRef("placement"), number=OuterRef("policy_number")
    )
    is_superseded = ~Q(number=F("placement__decisions_made")) & (
        Exists(later) | ~Exists(policy)
    )
    on_hub = HubDecision.objects.filter(decision=OuterRef("pk"), is_latest=True)
    in_use = Exists(Binding.objects.filter(decision=OuterRef("pk"))) | Exists(on_hub)
    return old.filter(~in_use & (Q(placement=None) | is_superseded))


def prunable_messages(*, now: datetime) -> list[Path]:
    """Return the files of old messages in the queue folder; none if the broker is a server."""
    if not is_folder(settings.CELERY_BROKER_URL):
        return []
    folder = Path(settings.CELERY_BROKER_TRANSPORT_OPTIONS["folder"])
    return messages_before(folder, now - settings.KEEP_MESSAGES)


def is_pruning_due(*, now: datetime) -> bool:
    """Return whether an hour has passed since the last pruning, or the write-ahead log is large."""
    row, _ = PeriodicWork.objects.get_or_create(
        name=_PRUNING, defaults={"due_at": now + PRUNE_EVERY}
    )
    return row.due_at <= now or wal_bytes() > LARGEST_WAL


def prune(*, now: datetime, seconds: float = float("inf")) -> dict[str, int]:
    """Delete what may be deleted, in small transactions; return how many rows of what.

    After `seconds` it stops, and the rest stays due. Rows that are referred to in the same moment
    stay until the next time.
    """
    counts: dict[str, int] = {}
    until = monotonic() + seconds
    for hub_id in Hub.objects.order_by("pk").values_list("pk", flat=True):
        with in_hub(hub_id):
            if not prune_hub(counts, now=now, until=until):
                return counts
    counts["access log lines"] = 0
    while monotonic() < until and (pruned := prune_lines(now=now)):
        counts["access log lines"] += pruned
    messages = prunable_messages(now=now)
    for path in messages:
        path.unlink(missing_ok=True)
    counts["messages"] = len(messages)
    truncate_wal()
    PeriodicWork.objects.update_or_create(
        name=_PRUNING, defaults={"due_at": now + PRUNE_EVERY}
    )
    return counts


def prune_hub(counts: dict[str, int], *, now: datetime, until: float) -> bool:
    """Delete the rows of the hub in scope, and add their counts; return whether there was time for all."""
    for name, rows in prunable(now=now):
        counts.setdefault(name, 0)
        size = _SMALL_BATCHES.get(rows.model, _BATCH)
        while keys := list(rows.order_by("pk").values_list("pk", flat=True)[:size]):
            if monotonic() >= until:
                return False
            try:
                rows.model._default_manager.filter(pk__in=keys).delete()
            except IntegrityError as error:
                log.warning("%s not pruned: %s", name, error)
                break
            counts[name] += len(keys)
    return True


def wal_bytes() -> int:
    """Return the size of the write-ahead log of SQLite; 0 for another database, or one in memory."""
    if connection.vendor != "sqlite":
        return 0
    try:
        return Path(f"{connection.settings_dict['NAME']}-wal").stat().st_size
    except OSError:
        return 0


def truncate_wal() -> None:
    """Write the write-ahead log of SQLite into the database and empty it, unless it is in use."""
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return
    with connection.cursor() as cursor:
        before = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
        cursor.execute(f"PRAGMA busy_timeout = {_WAL_PATIENCE}")
        try:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except (
            OperationalError
        ) as error:  # a transaction is open: the next time is soon enough
            log.info("write-ahead log not truncated: %s", error)
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {before}")
