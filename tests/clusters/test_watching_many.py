"""Many clusters are watched at once, by several workers, while others change them."""

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import pytest
from django.db.backends.base.base import BaseDatabaseWrapper

from clusters.drivers.base import Observation
from clusters.models import FleetState, MemberCluster, Membership
from clusters.operations import edit as leaving
from clusters.operations import heartbeat
from clusters.operations.edit import finish_leaving, forget, leave, set_faults
from clusters.operations.heartbeat import LEASE, ObservationResult, observe
from fleetui.models import Event
from tests.rows import NOW, simulated

pytestmark = pytest.mark.django_db
TIMES_OUT = {"kind": "timeOut", "calls": ["observe", "leave"]}


def timing_out(*names: str) -> None:
    """Add clusters that answer nothing in time."""
    for name in names:
        simulated(name)
    MemberCluster.objects.filter(name__in=names).update(
        connection={"faults": [TIMES_OUT]}
    )


@pytest.mark.nightly
def test_slow_clusters_delay_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "CALL_SECONDS", 0.2)
    timing_out(*(f"slow{number}" for number in range(30)))
    for number in range(30):
        simulated(f"quick{number}")

    started = monotonic()
    look = observe(now=NOW)

    assert (look.observed, look.silent) == (30, 30)
    assert monotonic() - started < 30 * 0.2


def test_the_threads_of_the_calls_open_no_database_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []
    cursor = BaseDatabaseWrapper.cursor

    def noted(self: BaseDatabaseWrapper) -> Any:
        threads.append(threading.current_thread())
        return cursor(self)

    monkeypatch.setattr(BaseDatabaseWrapper, "cursor", noted)
    for number in range(5):
        simulated(f"c{number}")

    observe(now=NOW)

    assert set(threads) == {threading.current_thread()}


def test_those_that_there_was_no_time_for_stay_due_and_are_not_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeat, "THREADS", 1)
    monkeypatch.setattr(heartbeat, "CALL_SECONDS", 0.9)
    monkeypatch.setattr(heartbeat, "ROUND_SECONDS", 0.5)
    timing_out("a")
    simulated("b")

    first = observe(now=NOW)
    second = observe(now=NOW + timedelta(seconds=5))

    assert (first, second) == (ObservationResult(0, 1, 0), ObservationResult(1, 0, 1))


def test_who_answered_last_is_called_before_the_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order: list[str] = []
    look = heartbeat.observe_cluster

    def noted(row: MemberCluster, now: datetime) -> Observation:
        order.append(row.name)
        return look(row, now)

    monkeypatch.setattr(heartbeat, "THREADS", 1)
    monkeypatch.setattr(heartbeat, "observe_cluster", noted)
    simulated("a", fault="silent")
    simulated("b")
    observe(now=NOW)
    order.clear()

    observe(now=NOW + timedelta(seconds=60))

    assert order == ["b", "a"]


def test_two_rounds_do_not_call_the_same_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated("a")
    within: list[ObservationResult] = []

    def interfere() -> None:
        within.append(observe(now=NOW + timedelta(milliseconds=1)))

    look = observe_while(monkeypatch, interfere)

    assert ([result.observed for result in within], look.observed) == ([0], 1)


def test_what_a_killed_worker_had_claimed_is_due_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated("a")

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        observe_while(monkeypatch, die)

    assert observe(now=NOW + LEASE - timedelta(seconds=3)).observed == 0
    assert observe(now=NOW + LEASE).observed == 1


def test_a_cluster_that_begins_to_leave_during_the_round_leaves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    simulated("a")

    observe_while(monkeypatch, lambda: leave(["a"], by=None, now=NOW))

    assert MemberCluster.objects.get().membership == Membership.LEAVING


@pytest.mark.servers
def test_whoever_wants_another_look_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated("a")

    observe_while(
        monkeypatch, lambda: set_faults("a", [{"kind": "silent"}], by=None, now=NOW)
    )

    assert MemberCluster.objects.get().heartbeat_at is None
    assert observe(now=NOW).silent == 1


def test_a_malformed_connection_stops_no_round() -> None:
    simulated("a")
    simulated("b")
    MemberCluster.objects.filter(name="a").update(connection={"faults": "many"})

    look = observe(now=NOW)

    assert (look.observed, look.silent) == (1, 1)


def test_a_round_that_takes_long_is_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    simulated("a")
    moments = iter([0.0, 50.0])
    monkeypatch.setattr(heartbeat, "monotonic", lambda: next(moments))
    observe(now=NOW)
    monkeypatch.undo()

    observe(now=NOW + timedelta(seconds=55))

    assert FleetState.objects.get().observing_since == NOW


def test_after_a_gap_a_silent_cluster_is_called_before_it_is_judged() -> None:
    simulated("a")
    observe(now=NOW)
    back = NOW + timedelta(days=1)

    look = observe(now=back)

    assert (look.observed, look.verdicts) == (1, 0)
    assert MemberCluster.objects.get().is_eligible


@pytest.mark.servers
def test_departures_are_sent_at_once_and_slow_ones_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaving, "_SECONDS_EACH", 0.2)
    timing_out("slow0", "slow1", "slow2")
    simulated("quick")
    leave(["slow0", "slow1", "slow2", "quick"], by=None, now=NOW)

    assert finish_leaving(now=NOW) == ["quick"]
    assert sorted(finish_leaving(now=NOW + timedelta(minutes=15))) == [
        "slow0",
        "slow1",
        "slow2",
    ]


def test_a_cluster_that_two_workers_take_out_leaves_once() -> None:
    row = simulated("a")

    for _ in range(2):
        forget([row], verb="left", by=None, now=NOW)

    assert Event.objects.filter(verb="left").count() == 1


def observe_while(monkeypatch: pytest.MonkeyPatch, interfere: Any) -> ObservationResult:
    """Observe the fleet; between the results and their writing, another change is made."""
    call_all = heartbeat.call_all

    def call_and_wait(*functions: Any, **limits: Any) -> Iterator[Any]:
        answers = list(call_all(*functions, **limits))
        monkeypatch.setattr(heartbeat, "call_all", call_all)
        interfere()
        yield from answers

    monkeypatch.setattr(heartbeat, "call_all", call_and_wait)
    return observe(now=NOW)
