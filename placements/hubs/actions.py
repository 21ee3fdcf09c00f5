"""The actions of the table that are writes to the hub, in the name of the person, and drains.

See `rules/live-hub.md#drains-of-a-hub`.

Each step is a write in the name of the person who started the drain; what is sent is in the records of the
writes, so that any worker can continue it, also after a crash.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied

from clusters.hub_queries import live_hubs
from clusters.hub_state import HubState
from clusters.models import Hub, HubWriteState, MemberCluster
from clusters.models.hubs import HubMode
from clusters.operations.edit import UnknownClusterError
from clusters.operations.join import CLUSTER
from fleetui.apimachinery.errors import raise_errors
from fleetui.apimachinery.kinds import EVICTION_KIND
from fleetui.apimachinery.model import items_at
from fleetui.audit import AuditEvent, actor_name, record
from fleetui.bulk import save_fields
from fleetui.errors import FleetError
from fleetui.hub_scope import current_hub_id, in_hub
from placements.engine.disruption import EvictionReason, Verdict
from placements.hubs.kinds.base import Manifest
from placements.hubs.queries import mirrored_objects, state_of, writes_of
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.objects import (
    PLACEMENT,
    eviction_prefix,
    hub_verdict,
    is_cordon,
    status_of,
)
from placements.hubs.writing.operations import apply_write, check_role
from placements.hubs.writing.sending import NotWritableError
from placements.models import Drain, DrainStep
from placements.services.actions import ActionKind
from placements.services.disruption.drains import (
    DEFAULT_PACE,
    OVER,
    TRIED,
    Pace,
    note_steps,
    running_drain,
)
from placements.services.disruption.queries import numbers_facts
from placements.services.rollouts.operations import ActionNotAllowed

REPEAT_AFTER = timedelta(seconds=60)
"""At least so long after an eviction that was blocked another one is sent."""
LEASE, PASS = timedelta(seconds=120), timedelta(seconds=5)
MOST_SENT = 10
"""In one pass: each may take half a minute."""


def start_hub_drain(
    hub: Hub,
    cluster: str,
    *,
    by: User,
    now: datetime,
    at_once: int = 1,
    deadline: datetime | None = None,
) -> Drain:
    """Cordon a cluster on the hub and start to evict its placements; return the drain that runs.

    Raise UnknownClusterError, InvalidManifest, and what `apply_write` raises for the cordon.
    """
    raise_errors(Pace(at_once, deadline=deadline).errors(now=now))
    check_role(hub, ACTIONS["evict"], by)
    with in_hub(hub.pk):
        if not MemberCluster.objects.filter(name=cluster).exists():
            raise UnknownClusterError(cluster)
        if running := running_drain(cluster):
            return running
        apply_write(hub, ACTIONS["cordon"], {"name": cluster}, by=by, now=now)
        row = Drain.objects.create(
            cluster_name=cluster,
            requeue_at=now,
            started_at=now,
            started_by=by.get_username(),
            at_once=at_once,
            per_placement=at_once,
            deadline=deadline,
        )
        record(
            AuditEvent("drain started", CLUSTER, cluster, after={"atOnce": at_once}),
            by=by,
            now=now,
        )
    return row


def cancel_hub_drain(
    hub: Hub,
    cluster: str,
    *,
    by: User,
    now: datetime,
) -> Drain:
    """Stop evicting; the cordon stays. Raise ActionNotAllowed without a running drain."""
    check_role(hub, ACTIONS["evict"], by)
    with in_hub(hub.pk):
        running = running_drain(cluster)
        if running is None:
            raise ActionNotAllowed(f"{cluster} is not being drained; nothing to cancel")
        _end(running, Drain.State.CANCELLED, f"cancelled by {actor_name(by)}", now=now)
    return running


def advance_hub_drains(*, now: datetime) -> int:
    """Continue the drains of hubs that are live and may be written to; return how many."""
    count = 0
    for hub in live_hubs().filter(mode=HubMode.OPERATE, is_paused=False).order_by("pk"):
        if state_of(hub, now=now)[0] != HubState.LIVE:
            continue
        with in_hub(hub.pk):
            due = Drain.objects.filter(state=Drain.State.RUNNING, requeue_at__lte=now)
            for row in list(due.order_by("requeue_at", "pk")):
                if due.filter(pk=row.pk).update(requeue_at=now + LEASE):
                    count += 1
                    _continue(hub, row, now=now)
                    Drain.objects.filter(pk=row.pk).update(requeue_at=now + PASS)
    return count


def _continue(hub: Hub, row: Drain, *, now: datetime) -> None:
    reason, user = _why_to_stop(hub, row, now=now)
    if reason or user is None:
        return _end(row, Drain.State.CANCELLED, reason, now=now)
    steps = note_steps(row, now=now)
    is_expired = row.deadline is not None and row.deadline <= now
    if not is_expired:
        try:
            _take_steps(hub, row, steps, user, now=now)
        except NotWritableError:
            return None  # paused, or read only since: the drain waits
        except PermissionDenied as error:
            return _end(row, Drain.State.CANCELLED, str(error)[:200], now=now)
    left = row.steps.exclude(state__in=OVER).count()
    if not left:
        return _end(row, Drain.State.DONE, "nothing is left to evict", now=now)
    if is_expired:
        reason = f"the deadline passed with {left} left"
        return _end(row, Drain.State.EXPIRED, reason, now=now)
    return None


def _why_to_stop(hub: Hub, row: Drain, *, now: datetime) -> tuple[str, User | None]:
    """Return why a drain does not continue, and the user in whose name it does."""
    member = _mirrored(hub, "MemberCluster", row.cluster_name)
    user = User.objects.filter(username=row.started_by, is_active=True).first()
    if not member:
        return "the cluster has left the fleet", user
    if user is None:
        return f"{row.started_by} has no account", user
    is_cordoned = any(map(is_cordon, items_at(member, "spec", "taints")))
    # The mirror may not have the cordon of the start yet.
    if not is_cordoned and row.started_at < now - REPEAT_AFTER:
        return "the cluster was uncordoned", user
    return "", user


def _mirrored(hub: Hub, kind: str, name: str) -> Manifest:
    return next(iter(mirrored_objects(hub, kind, name=name)), {})


def _take_steps(
    hub: Hub,
    row: Drain,
    steps: Sequence[DrainStep],
    user: User,
    *,
    now: datetime,
) -> None:
    """Send as many evictions as the drain has room for, and note what became of the others.

    Raise PermissionDenied, NotWritableError.
    """
    due, in_progress = [], 0
    for step in steps:
        if step.state == DrainStep.State.LEAVING:
            in_progress += 1
        elif step.state in TRIED:
            is_blocked, may_repeat = _progress(hub, row, step, now=now)
            if is_blocked:
                name, cluster = step.placement_name, row.cluster_name
                placement = _mirrored(hub, PLACEMENT, name)
                _block(step, hub_verdict(hub, placement, name, cluster), now=now)
            due += [step] if may_repeat else []
            in_progress += not (is_blocked or may_repeat)
    for step in due[: min(MOST_SENT, max(0, row.at_once - in_progress))]:
        if not Drain.objects.filter(pk=row.pk, state=Drain.State.RUNNING).exists():
            return
        send_eviction(hub, row, step, user, now=now)


def _progress(
    hub: Hub,
    row: Drain,
    step: DrainStep,
    *,
    now: datetime,
) -> tuple[bool, bool]:
    """Return whether the last eviction of a step was blocked, and whether another one is due."""
    writes = writes_of(
        hub, requested_by=row.started_by, kind=EVICTION_KIND, at__gte=row.started_at
    )
    prefix = eviction_prefix(step.placement_name, row.cluster_name)
    write = writes.filter(name__startswith=prefix).order_by("-at", "-pk").first()
    if write is None:
        return False, True
    if write.state in (
        HubWriteState.PLANNED,
        HubWriteState.SENT,
        HubWriteState.UNKNOWN,
    ):
        return False, False
    eviction = _mirrored(hub, EVICTION_KIND, write.name)
    executed = status_of(eviction, "Executed")
    is_valid = status_of(eviction, "Valid") != "False"
    may_repeat = write.at + REPEAT_AFTER <= now
    if write.state != HubWriteState.ACCEPTED or not is_valid or executed == "False":
        return True, may_repeat
    # One that was executed is repeated if the binding is there again.
    return False, may_repeat and executed == "True"


def _block(step: DrainStep, verdict: Verdict, *, now: datetime) -> None:
    if step.state != DrainStep.State.BLOCKED:
        step.changed_at = now
    save_fields(
        step,
        state=DrainStep.State.BLOCKED,
        why=verdict.why,
        numbers=numbers_facts(verdict.numbers),
        changed_at=step.changed_at,
    )


def send_eviction(
    hub: Hub,
    row: Drain,
    step: DrainStep,
    user: User,
    *,
    now: datetime,
) -> None:
    fields = {"placement": step.placement_name, "cluster": row.cluster_name}
    try:
        apply_write(hub, ACTIONS["evict"], fields, by=user, now=now)
    except NotWritableError:
        raise
    except FleetError:
        _block(step, Verdict(EvictionReason.NOT_THERE), now=now)


def _end(
    row: Drain,
    state: Drain.State,
    reason: str,
    *,
    now: datetime,
) -> None:
    rows = Drain.objects.filter(pk=row.pk, state=Drain.State.RUNNING)
    if rows.update(state=state, ended_at=now, ended_reason=reason):
        facts, is_late = {"because": reason}, state == Drain.State.EXPIRED
        event = AuditEvent(
            f"drain {state}", CLUSTER, row.cluster_name, after=facts, is_warning=is_late
        )
        record(event, by=None, now=now)
    row.refresh_from_db()


def _hub() -> Hub:
    return live_hubs().get(pk=current_hub_id())


def write(action: str, names: Sequence[str], *, by: User, now: datetime) -> None:
    for name in names:
        apply_write(_hub(), ACTIONS[action], {"name": name}, by=by, now=now)


def drain(
    clusters: Sequence[str], *, by: User, now: datetime, pace: Pace = DEFAULT_PACE
) -> list[Drain]:
    options: dict[str, Any] = {"at_once": pace.at_once or 1, "deadline": pace.deadline}
    return [
        start_hub_drain(_hub(), name, by=by, now=now, **options) for name in clusters
    ]


def cancel_drain(clusters: Sequence[str], *, by: User, now: datetime) -> list[Drain]:
    return [cancel_hub_drain(_hub(), name, by=by, now=now) for name in clusters]


OPERATIONS: Mapping[tuple[str, str], Callable[..., Any]] = {
    (ActionKind.CLUSTER, "cordon"): partial(write, "cordon"),
    (ActionKind.CLUSTER, "drain"): drain,
    (ActionKind.CLUSTER, "cancel-drain"): cancel_drain,
}
"""By kind and name; the hub decides the others itself, or pages and operations of REST write them."""
