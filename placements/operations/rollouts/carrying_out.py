"""Calls to the clusters: apply, remove, look whether it is ready; no transaction is open meanwhile.

A call is due in the binding's row (`work_at`) and claimed by a conditional update with a lease. What it found
is written under the condition that the binding still runs what it ran and is where it was; so a call may be
made twice, and late answers do no harm.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from django.db import connections, transaction
from django.db.models import F, Q, QuerySet

from clusters.drivers.asking import NotAsked, ask_all
from clusters.drivers.base import Applied, DriverError, DriverRejected, Observation, Version
from clusters.drivers.readiness import Readiness
from clusters.drivers.registry import DRIVERS
from clusters.driving import driver_for
from clusters.models import MemberCluster
from placements.explain.staged_wording import override_sentence
from placements.models import Binding, ClusterUpdate, Rollout, StagedRun
from placements.operations.rollouts.asking import ask_to_advance
from placements.operations.rollouts.contents import Contents
from placements.overriding import Manifests
from placements.rollout.overrides import OverrideFailed
from placements.rollout.retry import retry_delay
from placements.rollout.state import Phase

BATCH = 100
THREADS = 16
CALL_SECONDS = 10.0
ROUND_SECONDS = 20.0
LEASE = timedelta(seconds=30)
LOOK_AGAIN = timedelta(seconds=1)
LOOK_IN_A_RUN = timedelta(seconds=15)
LOOK_AT_REST = timedelta(minutes=2)
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Call:
    """One call that is due: for which binding, to which cluster, and with what."""

    binding: Binding
    placement: str
    cluster: MemberCluster
    manifests: Manifests | OverrideFailed


@dataclass(frozen=True, slots=True)
class Found:
    """What a call found: the columns to write, and how the start it belongs to ended, if it did."""

    columns: Mapping[str, Any]
    outcome: str = ""
    is_applied: bool = False


def carry_out_due(*, now: datetime, threads: int = THREADS) -> int:
    """Make up to 100 of the calls that are due; tell how many."""
    claimed = _claim(now=now)
    calls = {call.binding.pk: call for call in _calls(claimed)}
    _give_back([binding for binding in claimed if binding.pk not in calls], now=now)
    for pk, answer in _answers(calls, now=now, threads=threads):
        _write(calls[pk], answer, now=now)
    return len(claimed)


def _claim(*, now: datetime) -> list[Binding]:
    is_free = Q(work_until=None) | Q(work_until__lt=now)
    due = Binding.objects.filter(is_free, work_at__lte=now)
    token = uuid4().hex
    ids = list(due.order_by("work_at", "pk").values_list("pk", flat=True)[:BATCH])
    if not ids:
        return []
    due.filter(pk__in=ids).update(work_token=token, work_until=now + LEASE)
    mine = Binding.objects.filter(work_token=token)
    return list(mine.select_related("placement", "resource_snapshot").defer("placement__document"))


def _calls(bindings: Iterable[Binding]) -> Iterator[Call]:
    """Join what is due with the clusters that can be called and with what they are to have."""
    rows = list(bindings)
    names = {row.cluster_name for row in rows}
    clusters = {one.name: one for one in MemberCluster.objects.filter(name__in=names, driver__in=DRIVERS)}
    contents = Contents()
    for row in rows:
        cluster = clusters.get(row.cluster_name)
        if cluster:
            content = contents.of(row, cluster) if row.phase == Phase.APPLYING else ()
            yield Call(row, row.placement.name, cluster, content)


def _give_back(bindings: Iterable[Binding], *, now: datetime) -> None:
    """Nobody can call these clusters now; look again later."""
    pks = [binding.pk for binding in bindings]
    Binding.objects.filter(pk__in=pks).update(work_at=now + LOOK_IN_A_RUN, work_until=None, work_token="")


Answer = Applied | Observation | bool | DriverError | NotAsked | OverrideFailed


def _answers(calls: Mapping[int, Call], *, now: datetime, threads: int) -> Iterator[tuple[int, Answer]]:
    questions = {pk: partial(_closing, partial(_ask, call, now)) for pk, call in calls.items()}
    if threads > 1:
        yield from ask_all(questions, threads=threads, seconds=ROUND_SECONDS, patience=CALL_SECONDS)
        return
    for pk, call in calls.items():
        try:
            yield pk, _ask(call, now)
        except DriverError as error:
            yield pk, error


def _closing(ask: Callable[[], Answer]) -> Answer:
    """Ask in a thread of its own, whose connections to the database end with it."""
    try:
        return ask()
    finally:
        connections.close_all()


def _ask(call: Call, now: datetime) -> Answer:
    if isinstance(call.manifests, OverrideFailed):
        return call.manifests
    driver, binding = driver_for(call.cluster, clock=lambda: now), call.binding
    if binding.phase == Phase.APPLYING:
        version = Version(binding.running_version, call.placement, call.manifests)
        return driver.apply(version, timeout=CALL_SECONDS)
    if binding.phase == Phase.REMOVING:
        return driver.remove(call.placement, timeout=CALL_SECONDS)
    return driver.observe(call.placement, timeout=CALL_SECONDS)


def _write(call: Call, answer: Answer, *, now: datetime) -> None:
    binding = call.binding
    found = _found(call, answer, now=now)
    with transaction.atomic():
        unmoved = Binding.objects.filter(
            pk=binding.pk,
            work_token=binding.work_token,
            phase=binding.phase,
            running_version=binding.running_version,
        )
        free = {"work_until": None, "work_token": ""}
        if not _settled(unmoved, found, free):
            Binding.objects.filter(pk=binding.pk, work_token=binding.work_token).update(**free)
        elif _is_news(binding, found):
            _tell(binding, found, now=now)


def _settled(unmoved: QuerySet[Binding], found: Found | None, free: Mapping[str, Any]) -> bool:
    """Write what was found, unless the binding has moved on; tell whether it was written."""
    if found is None:
        return bool(unmoved.delete()[0])
    return bool(unmoved.update(**free, **found.columns))


def _is_news(binding: Binding, found: Found | None) -> bool:
    if found is None:
        return True
    return bool(found.outcome) or any(
        getattr(binding, name) != value for name, value in found.columns.items() if name in _SHOWN
    )


_SHOWN = ("phase", "timed_since", "message")


def _tell(binding: Binding, found: Found | None, *, now: datetime) -> None:
    """Note in the run what became of the start, and ask for a look at the rollout."""
    under_way = ClusterUpdate.objects.filter(
        rollout__placement_id=binding.placement_id, cluster_name=binding.cluster_name, outcome=""
    )
    if found is None:
        under_way.update(outcome=ClusterUpdate.Outcome.REMOVED, ended_at=now)
    else:
        if found.is_applied:
            under_way.update(applied_at=now)
        message = str(found.columns.get("message", ""))
        ended = {"outcome": found.outcome, "ended_at": now} if found.outcome else {}
        under_way.update(message=message, **ended)
    running = Rollout.objects.filter(placement_id=binding.placement_id, state=Rollout.State.RUNNING)
    running.update(changes=F("changes") + 1)
    ask_to_advance([binding.placement_id])


def _found(call: Call, answer: Answer, *, now: datetime) -> Found | None:
    """Turn an answer into what is written; None means that nothing of the placement is there any more."""
    if isinstance(answer, NotAsked):
        return Found({"work_at": now})
    if isinstance(answer, OverrideFailed):
        said = override_sentence(answer, call.cluster.name)
        return _rejected(call.binding, DriverRejected(said), now=now)
    if isinstance(answer, DriverRejected):
        return _rejected(call.binding, answer, now=now)
    if isinstance(answer, DriverError):
        return _unanswered(call.binding, answer, now=now)
    if isinstance(answer, Observation):
        return _observed(call, answer, now=now)
    if call.binding.phase == Phase.REMOVING:
        return None
    columns = {"phase": Phase.SETTLING, "phase_since": now, "work_at": now, "message": ""}
    return Found(columns, is_applied=True)


def _rejected(binding: Binding, error: DriverRejected, *, now: datetime) -> Found:
    """A refusal is an answer: it is written down, and tried again with growing pauses."""
    removing = binding.phase == Phase.REMOVING
    said = "; ".join(f"{one.object}: {one.message}" for one in error.refusals) or str(error)
    columns = {
        "phase": Phase.REMOVE_FAILED if removing else Phase.FAILED,
        "phase_since": now,
        "retry_at": now + retry_delay(binding.attempts),
        "work_at": None,
        "message": said[:_LONGEST],
    }
    return Found(columns, outcome=ClusterUpdate.Outcome.FAILED)


def _unanswered(binding: Binding, error: DriverError, *, now: datetime) -> Found:
    """Nobody knows whether the call took effect: the same call again, later and later."""
    since = binding.phase_since or now
    pause = max(LOOK_AGAIN, min((now - since) / 2, timedelta(seconds=30)))
    return Found({"work_at": now + pause, "message": str(error)[:_LONGEST]})


def _observed(call: Call, seen: Observation, *, now: datetime) -> Found:
    binding, there = call.binding, seen.of(call.placement)
    if there is None or there.version != binding.running_version:
        columns = {"phase": Phase.APPLYING, "phase_since": now, "work_at": now, "timed_since": None}
        return Found({**columns, "message": "the cluster has lost what was applied; it is applied again"})
    if there.refusals:
        return _rejected(binding, DriverRejected("refused", there.refusals), now=now)
    if there.readiness is Readiness.AVAILABLE:
        columns = {"phase": Phase.AVAILABLE, "timed_since": None, "message": "", "work_at": _rest(call, now)}
        since = {} if binding.phase == Phase.AVAILABLE else {"phase_since": now}
        return Found({**columns, **since}, outcome=ClusterUpdate.Outcome.AVAILABLE)
    reasons = "; ".join(f"{one.object}: {one.reason}" for one in there.unready)[:_LONGEST]
    is_timed = there.readiness is Readiness.NOT_TRACKABLE
    columns = {
        "phase": Phase.SETTLING,
        "timed_since": (binding.timed_since or binding.phase_since or now) if is_timed else None,
        "message": reasons,
        "work_at": _rest(call, now) if is_timed else now + LOOK_AGAIN,
    }
    since = {} if binding.phase == Phase.SETTLING else {"phase_since": now}
    return Found({**columns, **since})


def _rest(call: Call, now: datetime) -> datetime:
    """Give when to look again at a cluster where all is well: sooner while a run depends on it."""
    placement = call.binding.placement_id
    is_running = (
        Rollout.objects.filter(placement_id=placement, state=Rollout.State.RUNNING).exists()
        or StagedRun.objects.filter(placement_id=placement, ended_at=None).exists()
    )
    return now + (LOOK_IN_A_RUN if is_running else LOOK_AT_REST)
