"""Observation of the fleet, and the eligibility that follows (`rules/lifecycle.md#heartbeats`)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from time import monotonic

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet

from clusters.driver_factory import driver_for
from clusters.drivers.base import REPORTED, DriverError, Observation
from clusters.drivers.concurrency import NotCalled, call_all
from clusters.drivers.registry import DRIVERS
from clusters.kubernetes_drivers import hub_id
from clusters.models import FleetState, MemberCluster, Membership
from clusters.observation import counts_until
from clusters.operations.change_log import ChangeLogEntry, lock_fleet, log_change
from clusters.operations.edit import UnknownClusterError
from clusters.operations.identity import record_identities
from clusters.operations.join import CLUSTER, READY_WORDS, readings, set_eligibility
from clusters.queries import LONGEST_GAP, stays_eligible
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import named_or_counted
from fleetui.audit import AuditEvent, record_all
from fleetui.bulk import first_or_raise
from fleetui.changes import unnoticed
from fleetui.threads import close_connections

USUAL_PERIOD = 60
SILENT_PERIOD = 15
"""So soon clusters that do not answer are called again, if they are no more than the threads of a round."""
EARLY = timedelta(seconds=2.5)
"""The clock starts a round every five seconds: clusters are observed in the round nearest to their time."""
CALL_SECONDS = 4.5
"""Timeout of one cluster; with the claim and the write, a frozen one is noticed 5 s after its period."""
ROUND_SECONDS = 15.0
"""How long a round starts calls; with the rest of the round it must be shorter than LONGEST_GAP."""
THREADS = 32
SHARD = 10_000
"""Most clusters of one round; rounds of other workers claim others."""
LEASE = timedelta(seconds=60)
"""The clusters of a killed worker are due again after this time."""
_BATCH = 500
_READINGS = ["properties", "usage"]
_HEALTH = [
    "membership",
    "has_reported",
    "agent_joined",
    "agent_healthy",
    "healthy_since",
    "health_message",
]
_FACTS = [*_READINGS, *_HEALTH]
_NAMED = 3
_VERDICT = ["verdict", "verdict_reason", "verdict_since"]


@dataclass(frozen=True, slots=True)
class ObservationResult:
    observed: int
    silent: int
    verdicts: int


def observe(*, now: datetime) -> ObservationResult:
    """Observe the due clusters concurrently, then refresh the eligibility of all.

    No transaction is open during a call, the calling threads use the database for moments only, and results
    are written as they arrive: a slow cluster delays only itself.
    """
    started = monotonic()
    state, _ = FleetState.objects.get_or_create()
    is_watched = (
        state.observing_since
        and state.observed_at
        and state.observed_at >= now - LONGEST_GAP
    )
    moments = {"observed_at": now}
    if not is_watched:
        moments["observing_since"] = now
    with unnoticed():
        FleetState.objects.update(**moments)
    rows, observed, silent = _claim(now), 0, 0
    hub_id()  # read once here, and not by each thread
    answers = call_all(
        {pk: partial(observe_cluster, row, now) for pk, row in rows.items()},
        threads=THREADS,
        seconds=ROUND_SECONDS,
        patience=CALL_SECONDS,
        at_end=close_connections,
    )
    while batch := list(islice(answers, _BATCH)):
        observations = [
            (rows[pk], answer)
            for pk, answer in batch
            if isinstance(answer, Observation)
        ]
        _write_observations(observations, now=now)
        errors = {pk: one for pk, one in batch if isinstance(one, DriverError)}
        _write_silence({rows[pk]: error for pk, error in errors.items()}, now=now)
        _reschedule(
            [pk for pk, answer in batch if isinstance(answer, NotCalled)],
            at=now,
            now=now,
        )
        observed, silent = observed + len(observations), silent + len(errors)
    if rows:
        until = now + timedelta(seconds=monotonic() - started)
        with unnoticed():
            FleetState.objects.filter(observed_at__lt=until).update(observed_at=until)
    return ObservationResult(observed, silent, refresh_eligibility(now=now))


def _write_silence(
    errors: Mapping[MemberCluster, DriverError], *, now: datetime
) -> None:
    """Write that clusters did not answer, by the code of the error, and when each is observed next."""
    codes = {row.pk: str(getattr(error, "code", "")) for row, error in errors.items()}
    _claimed(now).filter(pk__in=codes, unanswered_since=None).update(
        unanswered_since=now
    )
    late = {
        row: str(error) for row, error in errors.items() if not row.unanswered_since
    }
    _record_heartbeats("heartbeat late", late, is_warning=True, now=now)
    for code in sorted(set(codes.values())):
        pks = [pk for pk, own in codes.items() if own == code]
        _claimed(now).filter(pk__in=pks).exclude(unanswered_code=code).update(
            unanswered_code=code
        )
    pause = SILENT_PERIOD if len(codes) <= THREADS else USUAL_PERIOD
    _reschedule(list(codes), at=now + timedelta(seconds=pause), now=now)


def _record_heartbeats(
    verb: str,
    clusters: Mapping[MemberCluster, str],
    *,
    is_warning: bool = False,
    now: datetime,
) -> None:
    """Record the first observation that failed or succeeded again, not each; the round holds the clusters."""
    events = [
        AuditEvent(
            verb,
            CLUSTER,
            row.name,
            revision=row.revision,
            after={"verdict": row.verdict, "reason": reason},
            is_warning=is_warning,
        )
        for row, reason in clusters.items()
        if not row.verdict  # else the change of the eligibility is recorded
    ]
    record_all(events, by=None, now=now)


def _claim(now: datetime) -> dict[int, MemberCluster]:
    """Claim due clusters by a conditional update; those with the latest heartbeat come first."""
    due = _watched().filter(observe_at__lte=now + EARLY)
    shard = due.order_by("observe_at").values("pk")[:SHARD]
    with unnoticed():
        if not due.filter(pk__in=shard).update(observe_at=now + LEASE):
            return {}
    mine = (
        _claimed(now)
        .select_related("credential")
        .order_by(F("heartbeat_at").desc(nulls_last=True), "pk")
    )
    return {row.pk: row for row in mine}


def _watched() -> QuerySet[MemberCluster]:
    return MemberCluster.objects.filter(driver__in=DRIVERS).exclude(
        membership=Membership.LEAVING
    )


def _claimed(now: datetime) -> QuerySet[MemberCluster]:
    return _watched().filter(observe_at=now + LEASE)


def observe_cluster(row: MemberCluster, now: datetime) -> Observation:
    return driver_for(row, clock=lambda: now).observe(timeout=CALL_SECONDS)


def _reschedule(pks: Sequence[int], *, at: datetime, now: datetime) -> None:
    if pks:
        with unnoticed():
            _claimed(now).filter(pk__in=pks).update(observe_at=at)


def observe_now(pks: Collection[int], *, now: datetime) -> None:
    """Observe clusters that did not answer in the next round: a call of another kind was answered."""
    if pks:
        rows = _watched().filter(pk__in=pks, unanswered_since__isnull=False)
        with unnoticed():
            rows.filter(observe_at__gt=now).update(observe_at=now)


def report(
    name: str,
    observation: Observation,
    *,
    by: User | None,
    now: datetime,
) -> MemberCluster:
    """Save the report of a member agent. Raises UnknownClusterError.

    A cluster without a driver is expected to report from then on. `by` is the sender.
    """
    with transaction.atomic():
        state = lock_fleet()
        row = first_or_raise(
            MemberCluster.objects.filter(name=name).exclude(
                membership=Membership.LEAVING
            ),
            UnknownClusterError(name),
        )
        if not row.driver:
            row.driver, row.expects_report = REPORTED, True
            record_all(
                [AuditEvent("reports", CLUSTER, name, revision=row.revision)],
                by=by,
                now=now,
            )
        before = _set_observation(row, observation, now=now)
        row.observed_until = counts_until(
            now, period=timedelta(seconds=_period_of(row))
        )
        changed = set_eligibility(row, now=now, state=state)
        # Amounts alone move no version: thousands of clusters report them each minute.
        with unnoticed(when=not changed and not _differs(before, row, _HEALTH)):
            row.save(update_fields=_SAVED)
            log_change(
                ChangeLogEntry(
                    f"{name}: {READY_WORDS[row.is_eligible]}"
                    if changed
                    else f"{name} reported",
                    property_names=readings(before, row),
                    opens=changed or before.membership != row.membership,
                ),
                changed=[row.pk],
            )
    return row


_SAVED = [
    "driver",
    "expects_report",
    "heartbeat_at",
    "observed_until",
    *_VERDICT,
    *_FACTS,
]


def refresh_eligibility(*, now: datetime) -> int:
    """Set the eligibility of every cluster where it changed; return how many."""
    state = FleetState.objects.first()
    judged = (
        MemberCluster.objects.filter(expects_report=True)
        .exclude(membership=Membership.LEAVING)
        .exclude(stays_eligible(now=now))
    )
    suspects = [
        row.pk
        for row in judged.defer(
            "document", "properties", "usage", "connection"
        ).iterator()
        if set_eligibility(row, now=now, state=state)
    ]
    return _write_verdicts(suspects, now=now) if suspects else 0


@transaction.atomic
def _write_verdicts(suspects: Sequence[int], *, now: datetime) -> int:
    """Evaluate again under the lock of the fleet: a heartbeat may have arrived meanwhile."""
    state = lock_fleet()
    rows = MemberCluster.objects.filter(pk__in=suspects).exclude(
        membership=Membership.LEAVING
    )
    was_eligible = {row.pk: row.is_eligible for row in rows}
    changed = [row for row in rows if set_eligibility(row, now=now, state=state)]
    _update_alike(changed, _VERDICT)
    events = [
        AuditEvent(
            "became eligible" if row.is_eligible else "became ineligible",
            CLUSTER,
            row.name,
            revision=row.revision,
            after={"verdict": row.verdict, "reason": row.verdict_reason},
            is_warning=not row.is_eligible,
        )
        for row in changed
    ]
    record_all(events, by=None, now=now)
    if changed:
        causes: dict[str, list[str]] = {}
        for row in changed:
            same = was_eligible[row.pk] == row.is_eligible
            cause = (
                "Not ready for another reason" if same else READY_WORDS[row.is_eligible]
            )
            causes.setdefault(cause, []).append(row.name)
        reasons = [
            f"{named_or_counted(names, 'cluster', _NAMED)}: {cause}"
            for cause, names in causes.items()
        ]
        log_change(
            ChangeLogEntry("; ".join(reasons), opens=True),
            changed=[row.pk for row in changed],
        )
    return len(changed)


@transaction.atomic
def _write_observations(
    observations: Sequence[tuple[MemberCluster, Observation]], *, now: datetime
) -> None:
    changed = {
        row.pk: observation
        for row, observation in observations
        if changes_facts(row, observation, now)
    }
    if changed:
        _write_facts(changed, now=now)
    identities = {
        row.pk: observation.cluster_uid
        for row, observation in observations
        if observation.cluster_uid
    }
    if identities:
        record_identities(identities, now=now)
    back = {row: "" for row, _ in observations if row.unanswered_since}
    _record_heartbeats("heartbeat recovered", back, now=now)
    periods = grouped((_period_of(row), row.pk) for row, _ in observations)
    for period, pks in periods.items():
        pause = timedelta(seconds=period)
        answering = _claimed(now).filter(pk__in=pks)
        answering.exclude(unanswered_since=None).update(
            unanswered_since=None, unanswered_code=""
        )
        with unnoticed():
            answering.update(
                heartbeat_at=now,
                observe_at=now + pause,
                observed_until=counts_until(now, period=pause),
            )


def _write_facts(observations: Mapping[int, Observation], *, now: datetime) -> None:
    """Write health and readings where they differ, under the lock of the fleet."""
    lock_fleet()
    rows = {
        row: _set_observation(row, observations[row.pk], now=now)
        for row in _claimed(now).filter(pk__in=observations)
    }
    names = set[str]().union(*(readings(before, row) for row, before in rows.items()))
    opens = any(before.membership != row.membership for row, before in rows.items())
    healths = [row for row, before in rows.items() if _differs(before, row, _HEALTH)]
    _update_alike(healths, _HEALTH)
    measured = [row for row, before in rows.items() if _differs(before, row, _READINGS)]
    which = named_or_counted([row.name for row in rows], "cluster", _NAMED)
    cause = "joined" if opens else "reported new properties or usage"
    with unnoticed(when=not healths):
        MemberCluster.objects.bulk_update(measured, _READINGS, batch_size=_BATCH)
        log_change(
            ChangeLogEntry(f"{which} {cause}", property_names=names, opens=opens),
            changed=[row.pk for row in rows],
        )


def _period_of(row: MemberCluster) -> int:
    return int(row.document["spec"].get("heartbeatPeriodSeconds") or USUAL_PERIOD)


def changes_facts(row: MemberCluster, observation: Observation, now: datetime) -> bool:
    row = copy(row)
    return _differs(_set_observation(row, observation, now=now), row, _FACTS)


def _update_alike(rows: Iterable[MemberCluster], fields: Sequence[str]) -> None:
    alike = grouped(
        (tuple(getattr(row, name) for name in fields), row.pk) for row in rows
    )
    for values, pks in alike.items():
        MemberCluster.objects.filter(pk__in=pks).update(
            **dict(zip(fields, values, strict=True))
        )


def _differs(before: MemberCluster, row: MemberCluster, fields: Sequence[str]) -> bool:
    return any(getattr(before, name) != getattr(row, name) for name in fields)


def _set_observation(
    row: MemberCluster, observation: Observation, *, now: datetime
) -> MemberCluster:
    """Set an observation in the row; return a copy of the row before."""
    before = MemberCluster(**{name: getattr(row, name) for name in _FACTS})
    health = "True" if observation.is_healthy else "False"
    is_other = row.agent_healthy != health
    # With properties there is a notice of the readings, or none any more.
    if is_other or observation.health_message or observation.properties is not None:
        row.health_message = "".join(
            filter(str.isprintable, observation.health_message)
        )[:200]
    if is_other:
        row.agent_healthy, row.healthy_since = health, now
    if row.membership == Membership.JOINING:
        row.membership = Membership.JOINED
    row.agent_joined, row.has_reported, row.heartbeat_at = "True", True, now
    if observation.properties is not None:
        row.properties = dict(observation.properties)
    if observation.usage is not None:
        row.usage = {sort: dict(amounts) for sort, amounts in observation.usage.items()}
    return before
