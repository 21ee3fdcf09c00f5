"""Calls to the clusters: apply, remove, look whether it is ready; no transaction is open meanwhile.

A call is due in the binding's row (`work_at`) and claimed by a conditional update with a lease. What it found
is written under the condition that the binding still runs what it ran and is where it was; so a call may be
made twice, and late answers do no harm. What is timed counts from the answer, not from the question: a call
that took ten seconds makes no period ten seconds shorter.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial, reduce
from operator import or_
from queue import SimpleQueue
from typing import Any, TypeAlias
from uuid import uuid4

from django.db import connections, transaction
from django.db.models import F, Prefetch, Q, QuerySet

from clusters.drivers.asking import NotAsked, ask_all
from clusters.drivers.base import Applied, DriverError, DriverRejected, Observation, Version
from clusters.drivers.readiness import Readiness
from clusters.drivers.registry import DRIVERS
from clusters.driving import driver_for, wall_clock
from clusters.models import MemberCluster
from placements.explain.staged_wording import override_sentence
from placements.models import Binding, ClusterUpdate, Placement, Rollout, StagedRun
from placements.operations.rollouts.asking import ask_to_advance
from placements.operations.rollouts.contents import Contents
from placements.operations.rollouts.telling import override_failure, refusal_failure, unready_failure
from placements.overriding import Manifests
from placements.rollout.failures import NO_FAILURE, Failure, FailureKind
from placements.rollout.overrides import OverrideFailed
from placements.rollout.retry import retry_delay
from placements.rollout.state import Phase
from placements.scheduling.bindings import BindingState

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

    @property
    def placement_id(self) -> int:
        """Give the key of the placement."""
        return self.binding.placement_id

    @property
    def is_look(self) -> bool:
        """Tell whether the call changes nothing."""
        return self.binding.phase not in (Phase.APPLYING, Phase.REMOVING)


@dataclass(frozen=True, slots=True)
class Found:
    """What a call found: the columns to write, and how the start it belongs to ended, if it did."""

    columns: tuple[tuple[str, Any], ...]
    outcome: str = ""
    is_applied: bool = False
    failure: Failure | None = None

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Any],
        *,
        outcome: str = "",
        is_applied: bool = False,
        failure: Failure | None = NO_FAILURE,
    ) -> "Found":
        """Make it of the columns by name; without `failure` what is known of failures stays."""
        return cls(tuple(columns.items()), outcome, is_applied, failure)

    def written(self) -> dict[str, Any]:
        """Give everything to write into the binding."""
        return {**dict(self.columns), **(self.failure.columns() if self.failure else {})}


def carry_out_due(
    *, now: datetime, threads: int = THREADS, clock: Callable[[], datetime] = wall_clock
) -> int:
    """Make up to 100 of the calls that are due now; the clock tells when they are answered. Tell how many."""
    claimed = _claim(now=now)
    calls = {call.binding.pk: call for call in _calls(claimed)}
    _give_back([binding for binding in claimed if binding.pk not in calls], now=now)
    busy = _placements_in_a_run({binding.placement_id for binding in claimed})
    coming = _answers(calls, clock=clock, threads=threads)
    for answers in _together(coming) if threads > 1 else [list(coming)]:
        answered = clock()
        found = [
            (calls[pk].binding, _found(calls[pk], one, now=answered, is_busy=calls[pk].placement_id in busy))
            for pks, one in answers
            for pk in pks
        ]
        _write_all(found, now=answered)
    return len(claimed)


def _placements_in_a_run(ids: Iterable[int]) -> set[int]:
    wanted = list(ids)
    running = Rollout.objects.filter(placement_id__in=wanted, state=Rollout.State.RUNNING)
    staged = StagedRun.objects.filter(placement_id__in=wanted, ended_at=None)
    return {*running.values_list("placement_id", flat=True), *staged.values_list("placement_id", flat=True)}


def _claim(*, now: datetime) -> list[Binding]:
    is_free = Q(work_until=None) | Q(work_until__lt=now)
    due = Binding.objects.filter(is_free, work_at__lte=now)
    token = uuid4().hex
    ids = list(due.order_by("work_at", "pk").values_list("pk", flat=True)[:BATCH])
    if not ids:
        return []
    due.filter(pk__in=ids).update(work_token=token, work_until=now + LEASE)
    names = Prefetch("placement", Placement.objects.only("name"))
    return list(Binding.objects.filter(work_token=token).prefetch_related(names, "resource_snapshot"))


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


Answer: TypeAlias = Applied | Observation | bool | DriverError | NotAsked | OverrideFailed
Answered: TypeAlias = tuple[tuple[int, ...], Answer]
"""What came back, and for which bindings: one look at a cluster answers for all that are due there."""


def _answers(calls: Mapping[int, Call], *, clock: Callable[[], datetime], threads: int) -> Iterator[Answered]:
    asked = {
        tuple(one.binding.pk for one in alike): partial(_ask, alike, clock)
        for alike in _put_at_once(calls.values())
    }
    if threads > 1:
        questions = {pks: partial(_closing, ask) for pks, ask in asked.items()}
        yield from ask_all(questions, threads=threads, seconds=ROUND_SECONDS, patience=CALL_SECONDS)
        return
    for pks, ask in asked.items():
        try:
            yield pks, ask()
        except DriverError as error:
            yield pks, error


def _put_at_once(calls: Iterable[Call]) -> Iterable[Sequence[Call]]:
    """Put the looks at one cluster together: it is asked once for all its placements."""
    together: dict[tuple[str, int], list[Call]] = {}
    for call in calls:
        key = ("look", call.cluster.pk) if call.is_look else ("change", call.binding.pk)
        together.setdefault(key, []).append(call)
    return together.values()


def _closing(ask: Callable[[], Answer]) -> Answer:
    """Ask in a thread of its own, whose connections to the database end with it."""
    try:
        return ask()
    finally:
        connections.close_all()


def _ask(calls: Sequence[Call], clock: Callable[[], datetime]) -> Answer:
    call, binding = calls[0], calls[0].binding
    if isinstance(call.manifests, OverrideFailed):
        return call.manifests
    driver = driver_for(call.cluster, clock=clock)
    if binding.phase == Phase.APPLYING:
        version = Version(binding.running_version, call.placement, call.manifests)
        return driver.apply(version, timeout=CALL_SECONDS)
    if binding.phase == Phase.REMOVING:
        return driver.remove(call.placement, timeout=CALL_SECONDS)
    return driver.observe(*(one.placement for one in calls), timeout=CALL_SECONDS)


def _together(answers: Iterator[Answered]) -> Iterator[list[Answered]]:
    """Give the answers that came since the last time, so that many are written at once and none waits."""
    coming: SimpleQueue[Answered | None] = SimpleQueue()

    def read() -> None:
        try:
            for answer in answers:
                coming.put(answer)
        finally:
            coming.put(None)

    with ThreadPoolExecutor(1, thread_name_prefix="answers") as reader:
        reading = reader.submit(read)
        gathered: list[Answered] = []
        while (answer := coming.get()) is not None:
            gathered.append(answer)
            if coming.empty():
                yield gathered
                gathered = []
        if gathered:
            yield gathered
        reading.result()


def _write_all(found: Iterable[tuple[Binding, Found | None]], *, now: datetime) -> None:
    """Write what was found; bindings that stood alike and get the same are written together."""
    alike: dict[Any, list[Binding]] = {}
    for binding, one in found:
        stood = (binding.work_token, binding.phase, binding.message, binding.timed_since)
        alike.setdefault((stood, one), []).append(binding)
    for (_, one), bindings in alike.items():
        _write(bindings, one, now=now)


def _write(bindings: Sequence[Binding], found: Found | None, *, now: datetime) -> None:
    is_news = _is_news(bindings[0], found)
    mine = Binding.objects.filter(pk__in=[one.pk for one in bindings], work_token=bindings[0].work_token)
    unmoved = mine.filter(_as_they_were(bindings))
    with transaction.atomic():
        if is_news:  # first, as whoever looks at a rollout begins with this row as well: else a deadlock
            _lock({one.placement_id for one in bindings})
        told = set(unmoved.values_list("pk", flat=True)) if is_news else set()
        written = _removed(unmoved) if found is None else unmoved.update(**_FREE, **found.written())
        if written < len(bindings):
            mine.update(**_FREE)
        if is_news and _is_moved(bindings[0], found):
            ask_to_advance(one.placement_id for one in bindings)
        if told:
            _tell([one for one in bindings if one.pk in told], found, now=now)


def _as_they_were(bindings: Sequence[Binding]) -> Q:
    """Say that bindings of one phase are where they were and run what they ran."""
    versions: dict[str, list[int]] = {}
    for one in bindings:
        versions.setdefault(one.running_version, []).append(one.pk)
    same = (Q(pk__in=pks, running_version=version) for version, pks in versions.items())
    return Q(phase=bindings[0].phase) & reduce(or_, same)


def _lock(placements: Iterable[int]) -> None:
    """Keep looks at these rollouts waiting; in one order, as two workers may want some of the same."""
    rows = Placement.objects.select_for_update().filter(pk__in=list(placements))
    list(rows.order_by("pk").values_list("pk", flat=True))


def _removed(unmoved: QuerySet[Binding]) -> int:
    """End the bindings whose removal is done; a cluster picked again meanwhile begins from nothing."""
    picked_again = unmoved.exclude(state=BindingState.UNSCHEDULED).filter(placement__deleting_since=None)
    anew = {"phase": Phase.REMOVED, "running_version": "", "resource_snapshot": None, "work_at": None}
    return picked_again.update(**_FREE, **anew) + unmoved.delete()[0]


_FREE = {"work_until": None, "work_token": ""}


def _is_news(binding: Binding, found: Found | None) -> bool:
    """Tell whether anything was found that people do not know; that all is well still is none."""
    return _is_moved(binding, found) or _says_else(binding, found, "message")


def _is_moved(binding: Binding, found: Found | None) -> bool:
    """Tell whether a look at the rollout may find more than other words."""
    if found is None or (found.outcome and binding.phase != Phase.AVAILABLE):
        return True
    return _says_else(binding, found, "phase", "timed_since")


def _says_else(binding: Binding, found: Found | None, *names: str) -> bool:
    columns = found.columns if found else ()
    return any(getattr(binding, name) != value for name, value in columns if name in names)


def _tell(bindings: Iterable[Binding], found: Found | None, *, now: datetime) -> None:
    """Note in the runs what became of the starts."""
    pairs = {(one.placement_id, one.cluster_name) for one in bindings}
    under_way = ClusterUpdate.objects.filter(pk__in=_starts_under_way(pairs))
    if found is None:
        under_way.update(outcome=ClusterUpdate.Outcome.REMOVED, ended_at=now)
    else:
        told: dict[str, Any] = {"message": str(dict(found.columns).get("message", ""))}
        told |= {"applied_at": now} if found.is_applied else {}
        told |= {"outcome": found.outcome, "ended_at": now} if found.outcome else {}
        under_way.update(**told)
    running = Rollout.objects.filter(
        placement_id__in={placement for placement, _ in pairs}, state=Rollout.State.RUNNING
    )
    running.update(changes=F("changes") + 1)


def _starts_under_way(pairs: Collection[tuple[int, str]]) -> list[int]:
    """Give the keys of what was started on these clusters by these placements and has not ended."""
    rows = ClusterUpdate.objects.filter(
        rollout__placement_id__in={placement for placement, _ in pairs},
        cluster_name__in={cluster for _, cluster in pairs},
        outcome="",
    )
    found = rows.values_list("pk", "rollout__placement_id", "cluster_name")
    return [pk for pk, *pair in found if tuple(pair) in pairs]


def _found(call: Call, answer: Answer, *, now: datetime, is_busy: bool) -> Found | None:
    """Turn an answer into what is written; None means that nothing of the placement is there any more."""
    if isinstance(answer, NotAsked):
        return Found.of({"work_at": now}, failure=None)
    if isinstance(answer, OverrideFailed):
        said = override_sentence(answer, call.cluster.name)
        return _failed(call.binding, said, override_failure(answer), now=now)
    if isinstance(answer, DriverRejected):
        return _rejected(call.binding, answer, now=now)
    if isinstance(answer, DriverError):
        return _unanswered(call.binding, answer, now=now)
    if isinstance(answer, Observation):
        return _observed(call, answer, now=now, is_busy=is_busy)
    if call.binding.phase == Phase.REMOVING:
        return None
    columns = {"phase": Phase.SETTLING, "phase_since": now, "work_at": now, "message": ""}
    return Found.of(columns, is_applied=True)


def _rejected(binding: Binding, error: DriverRejected, *, now: datetime) -> Found:
    """A refusal is an answer: it is written down, and tried again with growing pauses."""
    said = "; ".join(f"{one.object}: {one.message}" for one in error.refusals) or str(error)
    return _failed(binding, said, refusal_failure(binding, error), now=now)


def _failed(binding: Binding, said: str, failure: Failure, *, now: datetime) -> Found:
    removing = binding.phase == Phase.REMOVING
    columns = {
        "phase": Phase.REMOVE_FAILED if removing else Phase.FAILED,
        "phase_since": now,
        "retry_at": now + retry_delay(binding.attempts),
        "work_at": None,
        "message": said[:_LONGEST],
    }
    return Found.of(columns, outcome=ClusterUpdate.Outcome.FAILED, failure=failure)


def _unanswered(binding: Binding, error: DriverError, *, now: datetime) -> Found:
    """Nobody knows whether the call took effect: the same call again, later and later."""
    since = binding.phase_since or now
    pause = max(LOOK_AGAIN, min((now - since) / 2, timedelta(seconds=30)))
    columns = {"work_at": now + pause, "message": str(error)[:_LONGEST]}
    return Found.of(columns, failure=Failure(FailureKind.UNREACHABLE))


def _observed(call: Call, seen: Observation, *, now: datetime, is_busy: bool) -> Found:
    binding, there = call.binding, seen.of(call.placement)
    next_look = now + (LOOK_IN_A_RUN if is_busy else LOOK_AT_REST)
    if there is None or there.version != binding.running_version:
        columns = {"phase": Phase.APPLYING, "phase_since": now, "work_at": now, "timed_since": None}
        return Found.of({**columns, "message": "the cluster has lost what was applied; it is applied again"})
    if there.refusals:
        return _rejected(binding, DriverRejected("refused", there.refusals), now=now)
    if there.readiness is Readiness.AVAILABLE:
        columns = {"phase": Phase.AVAILABLE, "timed_since": None, "message": "", "work_at": next_look}
        since = {} if binding.phase == Phase.AVAILABLE else {"phase_since": now}
        return Found.of({**columns, **since}, outcome=ClusterUpdate.Outcome.AVAILABLE)
    reasons = "; ".join(f"{one.object}: {one.reason}" for one in there.unready)[:_LONGEST]
    is_timed = there.readiness is Readiness.NOT_TRACKABLE
    columns = {
        "phase": Phase.SETTLING,
        "timed_since": (binding.timed_since or binding.phase_since or now) if is_timed else None,
        "message": reasons,
        "work_at": next_look if is_timed else now + LOOK_AGAIN,
    }
    since = {} if binding.phase == Phase.SETTLING else {"phase_since": now}
    return Found.of({**columns, **since}, failure=unready_failure(binding, there.unready))
