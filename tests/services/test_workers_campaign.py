"""The random campaign on PostgreSQL, with several workers beside each other and beside the users.

The workers are threads with connections of their own, whose transactions are committed. Each run has other
sequences and prints their seed: `pytest -m nightly -s tests/services/test_workers_campaign.py`. CAMPAIGN_SEED
repeats them, but the threads meet in another order.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import count
from threading import Barrier, Event

import pytest
from django.core.management import call_command
from django.db import connection, connections
from hypothesis import Phase as HypothesisPhase
from hypothesis import seed
from hypothesis.stateful import run_state_machine_as_test

from fleetui.changes import noticed_changes
from fleetui.hub_scope import LOCAL_HUB, in_hub
from placements.services.fleet_events import enqueue_affected_placements
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.worker import run_cluster_calls
from placements.services.scheduling import schedule_due
from tests.database import forget_caches, restore_migrated_rows
from tests.services.rollouts.world import World
from tests.services.test_random_campaign import Campaign, campaign, options

__all__ = ["campaign"]
SECONDS = float(os.environ.get("CAMPAIGN_SECONDS", "20"))
MOST_PASSES = 500
"""So many passes of one worker beside one write would mean that the work never ends."""


class Workers:
    """Some workers, and how often each of them found something to do."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.found: Counter[int] = Counter()
        self.writes = 0

    @contextmanager
    def beside(self, world: World) -> Iterator[None]:
        """Work during what is inside of this context, and then until nothing is due; raise their errors."""
        is_over, begin = Event(), Barrier(self.number + 1)

        def work(worker: int) -> None:
            try:
                with in_hub(LOCAL_HUB), noticed_changes():
                    begin.wait()
                    enqueue_affected_placements()
                    for _ in range(MOST_PASSES):
                        done = do_what_is_due(world)
                        self.found[worker] += bool(done)
                        if not done and is_over.is_set():
                            return
                raise AssertionError("the workers do not come to rest")
            finally:
                connections.close_all()

        with ThreadPoolExecutor(self.number) as threads:
            working = [threads.submit(work, worker) for worker in range(self.number)]
            begin.wait()
            try:
                yield
            finally:
                is_over.set()
        for future in working:
            future.result()

    def work(self, world: World) -> None:
        """Work until one more worker alone finds nothing."""
        for _ in range(50):
            with self.beside(world):
                pass
            with noticed_changes():
                enqueue_affected_placements()
                if not do_what_is_due(world):
                    return
        raise AssertionError("the workers do not come to rest")


def do_what_is_due(world: World) -> int:
    """Make one pass of each kind of work; return how much was due."""
    done = schedule_due(now=world.now) + sync_due_rollouts(now=world.now)
    return done + run_cluster_calls(now=world.now, threads=0, clock=lambda: world.now)


@pytest.mark.nightly
@pytest.mark.servers_nightly
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("campaign")
@pytest.mark.parametrize("number", [1, 2, 4])
def test_workers_beside_each_other(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time; run again on PostgreSQL")
    workers = Workers(number)

    def work(world: World) -> None:
        workers.work(world)

    monkeypatch.setattr(World, "work", work)

    class Committed(Campaign):
        def __init__(self) -> None:
            super(Campaign, self).__init__()
            call_command("flush", verbosity=0, interactive=False)
            restore_migrated_rows()
            self.stack = ExitStack()
            self.stack.callback(forget_caches)
            self.begin()

        def call(self, method: str, path: str, body: object = None) -> int:
            if method == "get" or not hasattr(self, "runs"):
                return super().call(method, path, body)
            workers.writes += 1
            with workers.beside(self.world):
                return super().call(method, path, body)

    forms = [HypothesisPhase.generate]
    some = options(3, 20, derandomize=False, database=None, phases=forms)
    first = int(os.environ.get("CAMPAIGN_SEED", int.from_bytes(os.urandom(3))))
    until = time.monotonic() + SECONDS
    for chosen in count(first):
        sys.stdout.write(f"CAMPAIGN_SEED={chosen}\n")
        run_state_machine_as_test(seed(chosen)(Committed), settings=some)
        sys.stdout.write(f"{workers.writes} writes, {dict(workers.found)} passes\n")
        if time.monotonic() > until:
            break
    assert len(workers.found) == number
