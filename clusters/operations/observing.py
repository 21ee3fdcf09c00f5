"""Watching the fleet: observations come in, verdicts follow (`spec/lifecycle.md` A.15)."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Q, QuerySet

from clusters.drivers.asking import NotAsked, ask_all
from clusters.drivers.base import DriverError, Observation
from clusters.drivers.registry import DRIVERS, REPORTED
from clusters.driving import driver_for
from clusters.models import FleetState, MemberCluster, Membership
from clusters.operations.editing import UnknownClusterError
from clusters.operations.fleet_changes import Change, lock_fleet, note
from clusters.operations.joining import CLUSTER, readings, settle_verdict
from fleetui.events import Happening, record_all

LONGEST_GAP = timedelta(seconds=30)
"""After a longer pause between two looks, the hub was away, and silence in it counts for nothing."""
USUAL_PERIOD = 60
LOOK_SECONDS = 5.0
"""How long one cluster may take to answer."""
ROUND_SECONDS = 15.0
"""How long a round puts questions: with what follows less than LONGEST_GAP, or it would be one."""
THREADS = 32
SHARD = 10_000
"""The most clusters that one round takes on; another worker's round takes others."""
LEASE = timedelta(seconds=60)
"""When the clusters of a worker that was killed in its round are due again."""
_BATCH = 500
_READINGS = ["properties", "usage"]
_HEALTH = ["membership", "has_reported", "agent_joined", "agent_healthy", "healthy_since"]
_FACTS = [*_READINGS, *_HEALTH]
_VERDICT = ["verdict", "verdict_reason", "verdict_since"]


@dataclass(frozen=True, slots=True)
class Look:
    """How one round of observation went."""

    observed: int
    silent: int
    verdicts: int


def observe(*, now: datetime) -> Look:
    """Look at the clusters that are due, many at a time, then judge all.

    No transaction is open while a cluster is asked, the threads that ask use no database, and answers are
    written as they come: a slow cluster delays only itself.
    """
    started = monotonic()
    _note_that_we_watch(now)
    rows, observed, silent = _claim(now), 0, 0
    questions = {pk: partial(_look, row, now) for pk, row in rows.items()}
    answers = ask_all(questions, threads=THREADS, seconds=ROUND_SECONDS, patience=LOOK_SECONDS)
    while batch := list(islice(answers, _BATCH)):
        seen = {pk: answer for pk, answer in batch if isinstance(answer, Observation)}
        unanswered = [pk for pk, answer in batch if isinstance(answer, DriverError)]
        _write_observations([(rows[pk], answer) for pk, answer in seen.items()], now=now)
        _look_again(unanswered, at=now + timedelta(seconds=USUAL_PERIOD), now=now)
        _look_again([pk for pk, answer in batch if isinstance(answer, NotAsked)], at=now, now=now)
        observed, silent = observed + len(seen), silent + len(unanswered)
    _note_that_we_watched(now + timedelta(seconds=monotonic() - started))
    return Look(observed, silent, judge_all(now=now))


def _claim(now: datetime) -> dict[int, MemberCluster]:
    """Take on clusters that are due, by a conditional update; those that answered last come first."""
    due = _watched().filter(observe_at__lte=now)
    shard = due.order_by("observe_at").values("pk")[:SHARD]
    if not due.filter(pk__in=shard).update(observe_at=now + LEASE):
        return {}
    mine = _claimed(now).order_by(F("heartbeat_at").desc(nulls_last=True), "pk")
    return {row.pk: row for row in mine}


def _watched() -> QuerySet[MemberCluster]:
    return MemberCluster.objects.filter(driver__in=DRIVERS).exclude(membership=Membership.LEAVING)


def _claimed(now: datetime) -> QuerySet[MemberCluster]:
    """Give the clusters that this round still has: whoever wants another look has moved `observe_at`."""
    return _watched().filter(observe_at=now + LEASE)


def _look(row: MemberCluster, now: datetime) -> Observation:
    return driver_for(row, clock=lambda: now).observe(timeout=LOOK_SECONDS)


def _look_again(pks: Sequence[int], *, at: datetime, now: datetime) -> None:
    if pks:
        _claimed(now).filter(pk__in=pks).update(observe_at=at)


def report(name: str, observation: Observation, *, by: User | None, now: datetime) -> MemberCluster:
    """Take in what a cluster's own agent says of it. Raises UnknownClusterError.

    A cluster that nobody observes is from then on expected to report. `by` is who sent it.
    """
    with transaction.atomic():
        state = lock_fleet()
        row = MemberCluster.objects.filter(name=name).exclude(membership=Membership.LEAVING).first()
        if row is None:
            raise UnknownClusterError(name)
        if not row.driver:
            row.driver, row.expects_report = REPORTED, True
            record_all([Happening("reports", CLUSTER, name, revision=row.revision)], by=by, now=now)
        before = _taken_in(row, observation, now=now)
        changed = settle_verdict(row, now=now, observing_since=state.observing_since)
        row.save(update_fields=_SAVED)
        note(
            Change(
                f"{name} reported",
                property_names=readings(before, row),
                opens=changed or before.membership != row.membership,
            )
        )
    return row


_SAVED = [
    "driver",
    "expects_report",
    "heartbeat_at",
    *_VERDICT,
    *_FACTS,
]


def judge_all(*, now: datetime) -> int:
    """Give every cluster whose verdict is another one now its new verdict; tell how many."""
    state = FleetState.objects.filter(id=1).first()
    since = state.observing_since if state else None
    judged = MemberCluster.objects.filter(expects_report=True).exclude(membership=Membership.LEAVING)
    suspects = [
        row.pk
        for row in judged.defer("document", "properties", "usage", "connection").iterator()
        if settle_verdict(row, now=now, observing_since=since)
    ]
    return _write_verdicts(suspects, now=now) if suspects else 0


@transaction.atomic
def _write_verdicts(suspects: Sequence[int], *, now: datetime) -> int:
    """Judge again under the fleet's lock, since a heartbeat may have come in meanwhile."""
    state = lock_fleet()
    rows = MemberCluster.objects.filter(pk__in=suspects).exclude(membership=Membership.LEAVING)
    changed = [row for row in rows if settle_verdict(row, now=now, observing_since=state.observing_since)]
    _update_alike(changed, _VERDICT)
    happenings = [
        Happening(
            "became eligible" if row.is_eligible else "became ineligible",
            CLUSTER,
            row.name,
            revision=row.revision,
            after={"verdict": row.verdict, "reason": row.verdict_reason},
        )
        for row in changed
    ]
    record_all(happenings, by=None, now=now)
    if changed:
        named = changed[0].name if len(changed) == 1 else f"{len(changed)} clusters"
        note(Change(f"{named}: another verdict", opens=True))
    return len(changed)


def _note_that_we_watch(now: datetime) -> None:
    """Note the look; a first one, or one after a gap, begins a new time of observation."""
    FleetState.objects.get_or_create(id=1)
    unwatched = Q(observing_since=None) | Q(observed_at=None) | Q(observed_at__lt=now - LONGEST_GAP)
    FleetState.objects.filter(unwatched, id=1).update(observing_since=now)
    FleetState.objects.filter(id=1).update(observed_at=now)


def _note_that_we_watched(until: datetime) -> None:
    """A round that took long, for whatever reason, is no gap."""
    FleetState.objects.filter(id=1, observed_at__lt=until).update(observed_at=until)


@transaction.atomic
def _write_observations(seen: Sequence[tuple[MemberCluster, Observation]], *, now: datetime) -> None:
    tell_more = {row.pk: observation for row, observation in seen if _tells_more(row, observation, now)}
    if tell_more:
        _write_facts(tell_more, now=now)
    for period, pks in _by_period([row for row, _ in seen]).items():
        next_look = now + timedelta(seconds=period)
        _claimed(now).filter(pk__in=pks).update(heartbeat_at=now, observe_at=next_look)


def _tells_more(row: MemberCluster, observation: Observation, now: datetime) -> bool:
    """Tell whether more was seen than that the heart beats."""
    row = copy(row)
    return _differs(_taken_in(row, observation, now=now), row, _FACTS)


def _write_facts(seen: Mapping[int, Observation], *, now: datetime) -> None:
    """Write what was seen into the rows as they are now: an operation may have changed them meanwhile."""
    lock_fleet()
    names: set[str] = set()
    opens = False
    rows = {row: _taken_in(row, seen[row.pk], now=now) for row in _claimed(now).filter(pk__in=seen)}
    for row, before in rows.items():
        names |= readings(before, row)
        opens = opens or before.membership != row.membership
    _update_alike([row for row, before in rows.items() if _differs(before, row, _HEALTH)], _HEALTH)
    measured = [row for row, before in rows.items() if _differs(before, row, _READINGS)]
    MemberCluster.objects.bulk_update(measured, _READINGS, batch_size=_BATCH)
    note(Change(f"{len(rows)} clusters observed", property_names=names, opens=opens))


def _update_alike(rows: Iterable[MemberCluster], fields: Sequence[str]) -> None:
    """Write these fields with one statement for all rows that get the same values."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    for row in rows:
        alike.setdefault(tuple(getattr(row, name) for name in fields), []).append(row.pk)
    for values, pks in alike.items():
        MemberCluster.objects.filter(pk__in=pks).update(**dict(zip(fields, values, strict=True)))


def _differs(before: MemberCluster, row: MemberCluster, fields: Sequence[str]) -> bool:
    return any(getattr(before, name) != getattr(row, name) for name in fields)


def _by_period(rows: Sequence[MemberCluster]) -> dict[int, list[int]]:
    periods: dict[int, list[int]] = {}
    for row in rows:
        period = row.document["spec"].get("heartbeatPeriodSeconds") or USUAL_PERIOD
        periods.setdefault(int(period), []).append(row.pk)
    return periods


def _taken_in(row: MemberCluster, observation: Observation, *, now: datetime) -> MemberCluster:
    """Write an observation into the row; give it as it was before."""
    before = MemberCluster(**{name: getattr(row, name) for name in _FACTS})
    health = "True" if observation.is_healthy else "False"
    if row.agent_healthy != health:
        row.agent_healthy, row.healthy_since = health, now
    if row.membership == Membership.JOINING:
        row.membership = Membership.JOINED
    row.agent_joined, row.has_reported, row.heartbeat_at = "True", True, now
    if observation.properties is not None:
        row.properties = dict(observation.properties)
    if observation.usage is not None:
        row.usage = {sort: dict(amounts) for sort, amounts in observation.usage.items()}
    return before
