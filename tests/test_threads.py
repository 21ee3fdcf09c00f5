"""Threads that wait for a network hold no connection to the database, and few places start threads."""

import ast
from collections.abc import Iterator
from contextvars import copy_context
from threading import Barrier, Event, Thread
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.db.backends.signals import connection_created

from clusters.drivers.simulated import driver as simulated_driver
from clusters.models import MemberCluster
from fleetui import threads
from fleetui.threads import brief_connection
from placements.manifests.binding import BindingState
from placements.models import Binding
from placements.services.rollouts.worker import THREADS, run_cluster_calls
from tests.rows import pick_n_spec
from tests.services.rollouts.world import World
from tests.source_code import PRODUCT, Module, nodes_of

STARTS = {
    "Thread",
    "ThreadPoolExecutor",
    "ThreadPool",
    "Timer",
    "start_new_thread",
    "to_thread",
    "run_in_executor",
}
NO_DATABASE, CLOSES = "uses no database", "closes its connections"
PLACES = {
    "clusters/drivers/concurrency.py": CLOSES,  # each caller passes `close_connections`
    "clusters/drivers/kubernetes/addresses.py": NO_DATABASE,
    "clusters/drivers/kubernetes/check.py": NO_DATABASE,
    "clusters/drivers/kubernetes/parallel.py": NO_DATABASE,
    "clusters/hubs/recording.py": NO_DATABASE,
    "clusters/hubs/runner.py": NO_DATABASE,  # it puts what it reads into a queue
    "clusters/hubs/watcher.py": CLOSES,  # the one writer of the mirror
    "clusters/kubernetes_drivers.py": NO_DATABASE,
    "fleetui/management/commands/up.py": NO_DATABASE,
    "fleetui/supervisor.py": NO_DATABASE,
    "placements/services/rollouts/worker.py": NO_DATABASE,  # it moves answers from an iterator to a queue
}
"""The modules that may start threads, and what these do with the database."""


def starts_of(tree: ast.Module) -> list[str]:
    """Return the calls that start threads."""
    calls = (node.func for node in nodes_of(tree) if isinstance(node, ast.Call))
    names = (one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls)
    return [name for name in names if name in STARTS]


def starting() -> list[Module]:
    return [module for module in PRODUCT if starts_of(module.tree)]


def test_only_listed_modules_start_threads() -> None:
    assert {module.name for module in starting()} == PLACES.keys()


@pytest.mark.parametrize("line", ["threading.Thread(target=f)", "ThreadPoolExecutor(4)", "Timer(1, f)"])
def test_a_start_of_a_thread_is_found(line: str) -> None:
    assert len(starts_of(ast.parse(line))) == 1


def test_connections_of_threads_are_closed_by_one_helper() -> None:
    for module in starting():
        if PLACES[module.name] is CLOSES and module.name != "clusters/drivers/concurrency.py":
            assert "close_connections()" in module.text
    callers = [
        module for module in PRODUCT if "concurrency import" in module.text and "call_all" in module.text
    ]
    assert len(callers) == 6
    for module in callers:
        assert "at_end=close_connections" in module.text, module.name


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """Return the connections that are opened meanwhile, in any thread."""
    found: list[Any] = []

    def remember(**signal: Any) -> None:
        found.append(signal["connection"])

    connection_created.connect(remember)
    yield found
    connection_created.disconnect(remember)


def in_threads(number: int, run: Any) -> None:
    several = [Thread(target=copy_context().run, args=(run,)) for _ in range(number)]
    for one in several:
        one.start()
    for one in several:
        one.join(30)


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="no server counts its connections")
def test_many_threads_use_one_connection_at_a_time(opened: list[Any]) -> None:
    all_are_done = Barrier(20, timeout=20)
    meanwhile, afterwards = list[int](), list[int]()

    def open_ones() -> int:
        return sum(one.connection is not None for one in opened if one is not own)

    def use() -> None:
        with brief_connection(), brief_connection():
            MemberCluster.objects.count()
            meanwhile.append(open_ones())
        all_are_done.wait()  # as a thread that waits for a cluster
        afterwards.append(open_ones())

    own = connections[connection.alias]
    in_threads(20, use)

    assert meanwhile == [1] * 20
    assert afterwards == [0] * 20


@pytest.mark.django_db
def test_the_thread_of_a_task_keeps_its_connection() -> None:
    MemberCluster.objects.count()

    with brief_connection():
        MemberCluster.objects.count()

    assert connection.connection is not None
    assert connection.in_atomic_block


def test_a_thread_gives_up_instead_of_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    errors, is_taken, is_over = list[Exception](), Event(), Event()
    monkeypatch.setattr(threads, "PATIENCE", 0.05)
    monkeypatch.setattr(
        threads, "connection", type("Server", (), {"connection": None, "vendor": "postgresql"})
    )

    def hold() -> None:
        with brief_connection():
            is_taken.set()
            is_over.wait(20)

    def wait() -> None:
        try:
            with brief_connection():
                pass
        except OperationalError as error:
            errors.append(error)

    holder = Thread(target=hold)
    holder.start()
    is_taken.wait(20)
    in_threads(1, wait)
    is_over.set()
    holder.join(20)

    assert len(errors) == 1
    in_threads(1, wait)
    assert len(errors) == 1


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="threads of tests share its memory")
def test_calls_that_wait_for_a_cluster_hold_no_connection(
    monkeypatch: pytest.MonkeyPatch, opened: list[Any]
) -> None:
    world = World(24)
    world.place("web", pick_n_spec(24))
    world.run(until=world.is_settled)
    for number in range(6):
        world.inject(f"c{number:03}", {"kind": "timeOut", "since": world.now.isoformat()})
    world.change()
    world.work()
    Binding.objects.exclude(state=BindingState.UNSCHEDULED).update(next_call_at=world.now)
    open_while_waiting, all_wait = list[int](), Barrier(6, timeout=20)

    def wait(_seconds: float) -> None:
        all_wait.wait()
        others = [one for one in opened if one.connection is not None and one is not own]
        open_while_waiting.append(len(others))

    own = connections[connection.alias]
    monkeypatch.setattr(simulated_driver.SimulatedDriver.__init__, "__defaults__", (wait,))
    made = run_cluster_calls(now=world.now, threads=THREADS, clock=lambda: world.now)

    assert made >= 24
    assert open_while_waiting == [0] * 6
    assert [one for one in opened if one.connection is not None and one is not own] == []
