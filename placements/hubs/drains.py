"""Drains of clusters of a live hub: a cordon, then one eviction after another.

See `rules/live-hub.md#drains-of-a-hub`.

Each step is a write in the name of the person who started the drain; what is sent is in the records of the
writes, so that any worker can continue it, also after a crash.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied

from clusters.hub_queries import live_hubs
from clusters.hub_state import HubState
from clusters.models import Hub, HubWrite, HubWriteState, MemberCluster
from clusters.models.hubs import HubMode
from clusters.operations.edit import UnknownClusterError
from clusters.operations.join import CLUSTER
from fleetui.apimachinery.errors import FieldError, InvalidManifest
from fleetui.audit import AuditEvent, actor_name, record
from fleetui.hub_scope import in_hub
from placements.engine.disruption import EvictionReason
from placements.hubs.kinds.base import Manifest, mapping_at, text_of
from placements.hubs.queries import mirrored_objects, state_of, writes_of
from placements.hubs.write_bodies import StaleBaseError
from placements.hubs.writing.catalogue import ACTIONS
from placements.hubs.writing.clusters import is_cordon
from placements.hubs.writing.disruption import EVICTION, eviction_prefix, hub_verdict
from placements.hubs.writing.objects import PLACEMENT, condition_of
from placements.hubs.writing.operations import HubRefusedError, apply_write, check_role
from placements.hubs.writing.planning import UnknownObjectError, WriteRefusedError
from placements.hubs.writing.sending import NotWritableError
from placements.models import Drain, DrainStep
from placements.services.disruption.drains import (
    MOST_AT_ONCE,
    OVER,
    TRIED,
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
_OPEN = (HubWriteState.PLANNED, HubWriteState.SENT, HubWriteState.UNKNOWN)


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
    errors = []
    if not 1 <= at_once <= MOST_AT_ONCE:
        errors.append(
            FieldError(
                "atOnce", "out-of-range", "Invalid value", f"1 to {MOST_AT_ONCE}"
            )
        )
    if deadline is not None and deadline <= now:
        errors.append(
            FieldError(
                "deadline", "out-of-range", "Invalid value", "a time in the future"
            )
        )
    if errors:
        raise InvalidManifest(errors)
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


def cancel_hub_drain(hub: Hub, cluster: str, *, by: User, now: datetime) -> Drain:
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
    member: Manifest | None = next(
        iter(mirrored_objects(hub, "MemberCluster", name=row.cluster_name)), None
    )
    user = User.objects.filter(username=row.started_by, is_active=True).first()
    taints = mapping_at(member, "spec").get("taints") if member else None
    is_cordoned = any(map(is_cordon, taints)) if isinstance(taints, list) else False
    if member is None or user is None:
        reason = (
            f"{row.started_by} has no account"
            if member
            else "the cluster has left the fleet"
        )
        return _end(row, Drain.State.CANCELLED, reason, now=now)
    # The mirror may not have the cordon of the start yet.
    if not is_cordoned and row.started_at < now - REPEAT_AFTER:
        return _end(row, Drain.State.CANCELLED, "the cluster was uncordoned", now=now)
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
        return _end(
            row, Drain.State.EXPIRED, f"the deadline passed with {left} left", now=now
        )
    return None


def _take_steps(
    hub: Hub, row: Drain, steps: Sequence[DrainStep], user: User, *, now: datetime
) -> None:
    """Send as many evictions as the drain has room for, and note what became of the others.

    Raise PermissionDenied, NotWritableError.
    """
    due, in_progress = [], 0
    for step in steps:
        if step.state == DrainStep.State.LEAVING:
            in_progress += 1
        elif step.state in TRIED:
            writes = writes_of(
                hub, requested_by=row.started_by, kind=EVICTION, at__gte=row.started_at
            )
            prefix = eviction_prefix(step.placement_name, row.cluster_name)
            write = (
                writes.filter(name__startswith=prefix).order_by("-at", "-pk").first()
            )
            is_due, is_running = _progress(hub, step, write, row, now=now)
            in_progress += is_running
            due += [step] if is_due else []
    for step in due[: min(MOST_SENT, max(0, row.at_once - in_progress))]:
        if not Drain.objects.filter(pk=row.pk, state=Drain.State.RUNNING).exists():
            return
        send_eviction(hub, row, step, user, now=now)


def _progress(
    hub: Hub, step: DrainStep, write: HubWrite | None, row: Drain, *, now: datetime
) -> tuple[bool, bool]:
    """Return whether an eviction is due for a step, and whether one is in progress."""
    if write is None:
        return True, False
    if write.state in _OPEN:
        return False, True
    may_repeat = write.at + REPEAT_AFTER <= now
    eviction: Manifest | None = next(
        iter(mirrored_objects(hub, EVICTION, name=write.name)), None
    )
    executed = text_of(condition_of(eviction or {}, "Executed").get("status"))
    is_valid = condition_of(eviction or {}, "Valid").get("status") != "False"
    if write.state == HubWriteState.ACCEPTED and is_valid and executed != "False":
        # Neither decided nor executed yet; one that was executed is repeated if the binding is there again.
        return may_repeat and executed == "True", not (
            may_repeat and executed == "True"
        )
    name = step.placement_name
    placement: Manifest = next(iter(mirrored_objects(hub, PLACEMENT, name=name)), {})
    verdict = hub_verdict(hub, placement, name, row.cluster_name)
    _block(
        step,
        verdict.why,
        numbers_facts(verdict.numbers),
        write.at + REPEAT_AFTER,
        now=now,
    )
    return may_repeat, False


def _block(
    step: DrainStep,
    why: str,
    numbers: dict[str, int] | None,
    try_at: datetime,
    *,
    now: datetime,
) -> None:
    if step.state != DrainStep.State.BLOCKED:
        step.changed_at = now
    step.state, step.why, step.numbers, step.try_at = (
        DrainStep.State.BLOCKED,
        why,
        numbers,
        try_at,
    )
    step.save(update_fields=["state", "why", "numbers", "try_at", "changed_at"])


def send_eviction(
    hub: Hub, row: Drain, step: DrainStep, user: User, *, now: datetime
) -> None:
    fields = {"placement": step.placement_name, "cluster": row.cluster_name}
    try:
        apply_write(hub, ACTIONS["evict"], fields, by=user, now=now)
    except (
        HubRefusedError,
        WriteRefusedError,
        UnknownObjectError,
        StaleBaseError,
        InvalidManifest,
    ):
        _block(step, EvictionReason.NOT_THERE, None, now + REPEAT_AFTER, now=now)


def _end(row: Drain, state: Drain.State, reason: str, *, now: datetime) -> None:
    rows = Drain.objects.filter(pk=row.pk, state=Drain.State.RUNNING)
    if rows.update(state=state, ended_at=now, ended_reason=reason):
        facts, is_late = {"because": reason}, state == Drain.State.EXPIRED
        event = AuditEvent(
            f"drain {state}", CLUSTER, row.cluster_name, after=facts, is_warning=is_late
        )
        record(event, by=None, now=now)
    row.refresh_from_db()
