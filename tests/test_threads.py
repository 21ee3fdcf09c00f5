"""Threads that wait for a network hold no connection to the database, and few places start threads."""

import ast
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextvars import copy_context
from pathlib import Path
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
from tests.services.rollouts.world import settled_world
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
    "clusters/drivers/kubernetes/sockets.py": NO_DATABASE,
    "clusters/drivers/kubernetes/check.py": NO_DATABASE,
    "clusters/drivers/kubernetes/access.py": NO_DATABASE,
    "placements/hubs/watching/runner.py": NO_DATABASE,  # it puts what it reads into a queue
    "placements/hubs/watching/watcher.py": CLOSES,  # the one writer of the mirror
    "clusters/kubernetes_drivers.py": NO_DATABASE,
    "clusters/operations/connection.py": NO_DATABASE,
    "placements/services/rollouts/worker.py": NO_DATABASE,  # it moves answers from an iterator to a queue
}
"""The modules that may start threads, and what these do with the database."""


def starts_of(tree: ast.Module) -> list[str]:
    """Return the calls that start threads."""
    calls = (node.func for node in nodes_of(tree) if isinstance(node, ast.Call))
    names = (
        call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
        for call in calls
    )
    return [name for name in names if name in STARTS]


def starting() -> list[Module]:
    return [
        module
        for module in PRODUCT
        if any(start in module.text for start in STARTS) and starts_of(module.tree)
    ]


def test_only_listed_modules_start_threads() -> None:
    assert {module.name for module in starting()} == PLACES.keys()


@pytest.mark.parametrize(
    "line", ["threading.Thread(target=f)", "ThreadPoolExecutor(4)", "Timer(1, f)"]
)
def test_a_start_of_a_thread_is_found(line: str) -> None:
    assert len(starts_of(ast.parse(line))) == 1


def test_connections_of_threads_are_closed_by_one_helper() -> None:
    for module in starting():
        if (
            PLACES[module.name] is CLOSES
            and module.name != "clusters/drivers/concurrency.py"
        ):
            assert "close_connections()" in module.text
    callers = [
        module
        for module in PRODUCT
        if "concurrency import" in module.text and "call_all" in module.text
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
    for thread in several:
        thread.start()
    for thread in several:
        thread.join(30)


@pytest.mark.servers_only
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="no server counts its connections"
)
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


def test_a_thread_gives_up_instead_of_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors, is_taken, is_over = list[Exception](), Event(), Event()
    monkeypatch.setattr(threads, "PATIENCE", 0.05)
    monkeypatch.setattr(
        threads,
        "connection",
        type("Server", (), {"connection": None, "vendor": "postgresql"}),
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
@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="threads of tests share its memory"
)
def test_calls_that_wait_for_a_cluster_hold_no_connection(
    monkeypatch: pytest.MonkeyPatch, opened: list[Any]
) -> None:
    world = settled_world(24, pick_n_spec(24))
    for number in range(6):
        world.inject(
            f"c{number:03}", {"kind": "timeOut", "since": world.now.isoformat()}
        )
    world.change()
    world.work()
    Binding.objects.exclude(state=BindingState.UNSCHEDULED).update(
        next_call_at=world.now
    )
    open_while_waiting, all_wait = list[int](), Barrier(6, timeout=20)

    def wait(_seconds: float) -> None:
        all_wait.wait()
        others = [
            one for one in opened if one.connection is not None and one is not own
        ]
        open_while_waiting.append(len(others))

    own = connections[connection.alias]
    monkeypatch.setattr(
        simulated_driver.SimulatedDriver.__init__, "__defaults__", (wait,)
    )
    made = run_cluster_calls(now=world.now, threads=THREADS, clock=lambda: world.now)

    assert made >= 24
    assert open_while_waiting == [0] * 6
    assert [
        one for one in opened if one.connection is not None and one is not own
    ] == []


HANDLES = """
import json, os, sys, threading
from django import setup
setup()
from django.db import connection
from clusters.drivers.simulated import driver as simulated
from clusters.models import MemberCluster
from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.threads import brief_connection
from placements.manifests.binding import BindingState
from placements.models import Binding
from placements.services.rollouts.worker import THREADS, run_cluster_calls
from tests.rows import pick_n_spec
from tests.services.rollouts.world import World

def handles():
    open_ones = (os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd"))
    return sum(one.startswith(sys.argv[1]) for one in open_ones)

waiting = threading.Barrier(6, timeout=20)
meanwhile, after = [], []
with in_hub(LOCAL_HUB):
    world = World(24)
    world.place("web", pick_n_spec(24))
    world.run(until=world.is_settled)
    for number in range(6):
        world.inject(f"c{number:03}", {"kind": "timeOut", "since": world.now.isoformat()})

    def wait(_seconds):
        # As a driver that reads a credential or a manifest, and then waits for its cluster.
        with brief_connection():
            MemberCluster.objects.count()
        if waiting.wait() == 0:
            meanwhile.append(handles())
        waiting.wait()

    simulated.SimulatedDriver.__init__.__defaults__ = (wait,)
    before = handles()
    for _ in range(8):
        world.change()
        bindings = Binding.objects.exclude(state=BindingState.UNSCHEDULED)
        bindings.update(next_call_at=world.now, call_lease_expires_at=None)
        run_cluster_calls(now=world.now, threads=THREADS, clock=lambda: world.now)
        for one in threading.enumerate():
            if one.name.startswith(("call", "answers")):
                one.join(20)
        after.append(handles())
print(json.dumps([before, meanwhile, after]))
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="about the file of SQLite")
@pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="counts what Linux lists"
)
def test_threads_of_the_worker_leave_no_file_of_sqlite_open(tmp_path: Path) -> None:
    """In a process of its own: here the threads share a database in memory."""
    path = tmp_path / "fleetui.sqlite3"
    copy = sqlite3.connect(path)
    connection.ensure_connection()
    connection.connection.backup(copy)
    copy.close()
    environment = {
        **os.environ,
        "FLEETUI_VAR_DIR": str(tmp_path),
        "DATABASE_URL": f"sqlite:///{path}",
    }

    command = [sys.executable, "-c", HANDLES, str(path)]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    before, meanwhile, after = json.loads(ran.stdout)
    assert len(meanwhile) == 8
    assert min(meanwhile) >= before + 6  # each thread that waits had the file open
    # SQLite keeps a handle for its next connection while another one of the process has a lock.
    assert after == [after[0]] * 8
    assert after[0] <= before + 6
