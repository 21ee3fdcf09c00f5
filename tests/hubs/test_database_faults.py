"""A watcher whose database is away or full loses nothing, in bounded memory (`rules/live-hub.md#streams`)."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

from clusters.credentials import HUB_PURPOSE, decrypt, encrypt
from clusters.models import Hub, HubCredential
from placements.hubs.watching import watcher as module
from placements.hubs.watching.event_queue import EventQueue
from placements.hubs.watching.watcher import WriterEnded
from tests.hubs.fake_hub import FakeHub
from tests.hubs.hub_documents import binding, member
from tests.hubs.test_watcher import hub_with_content
from tests.hubs.watching import SLOW, Watching, new_watcher, watching

# Each batch is a transaction of its own, as in the watcher: some errors of SQLite end the outermost one.
pytestmark = pytest.mark.django_db(transaction=True)
Execute = Callable[[str, Any, bool, Any], Any]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.02)


@contextmanager
def away_until(
    is_back: Callable[[], object], *, attempts: int = 3
) -> Iterator[list[str]]:
    """Refuse statements until something is true, and so many at least; yield those."""
    refused: list[str] = []

    def execute(call: Execute, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not is_back() or len(refused) < attempts:
            refused.append(sql)
            raise OperationalError("the connection was closed")
        return call(sql, params, many, context)

    with connection.execute_wrapper(execute):
        yield refused


def change_everything(fake: FakeHub, *, bindings: int) -> None:
    for number in range(bindings):
        fake.put("clusterresourcebindings", binding("web", f"c{number}", state="Bound"))
    fake.put("memberclusters", member("c0", heartbeat="2026-11-01T10:05:00Z"))
    fake.delete("memberclusters", "c2")


def lists_of(run: Watching) -> int:
    """Return how many lists there were, once every stream watches, optional ones too."""
    run.work_until(
        lambda: run.fake.watches == len(run.watcher.hubs[run.hub.pk].streams)
    )
    return run.fake.count("list")


def test_a_database_that_was_away_gets_everything_without_another_list() -> None:
    with watching(hub_with_content(), pace=SLOW) as run:
        run.work_until_equal()
        run.work_until_state("live")
        lists = lists_of(run)
        change_everything(run.fake, bindings=40)

        with away_until(lambda: True) as refused:
            while (
                len(refused) < 3
            ):  # a batch may have bookmarks alone, which take no statement
                run.watcher.write_next(seconds=0.1)

        run.work_until_equal()
        assert run.state() == "live"
        assert lists_of(run) == lists


@pytest.mark.nightly
def test_while_the_database_is_away_the_streams_stop_reading() -> None:
    with watching(hub_with_content(), pace=SLOW) as run:
        queue = run.watcher.queue = EventQueue(most=30)
        run.work_until_equal()
        run.work_until_state("live")
        lists, held = lists_of(run), []

        def measure() -> bool:
            held.append(len(queue))
            return True

        change_everything(run.fake, bindings=100)
        with away_until(measure, attempts=25) as refused:
            while len(refused) < 25:
                run.watcher.write_next(seconds=0.1)

        assert 0 < max(held) <= 30 + 25  # each stream waits with one item
        run.work_until_equal()
        assert lists_of(run) == lists


@pytest.mark.nightly
@pytest.mark.skipif(
    "connection.vendor != 'sqlite'", reason="the fault is one of SQLite"
)
def test_a_full_disk_loses_nothing() -> None:
    with watching(hub_with_content(), pace=SLOW) as run:
        run.work_until_equal()
        run.work_until_state("live")
        change_everything(run.fake, bindings=300)
        messages: list[str] = []

        def execute(
            call: Execute, sql: str, params: Any, many: bool, context: Any
        ) -> Any:
            try:
                return call(sql, params, many, context)
            except OperationalError as error:
                messages.append(str(error))
                if len(messages) == 2:
                    limit_pages(1_073_741_823)
                raise

        limit_pages(1)  # as many as there are
        with connection.execute_wrapper(execute):
            run.work_until(lambda: len(messages) >= 2)

        assert set(messages) == {"database or disk is full"}
        run.work_until_equal()
        assert run.state() == "live"


def limit_pages(most: int) -> None:
    assert connection.connection is not None
    connection.connection.execute(f"PRAGMA max_page_count = {most}")


def test_the_watcher_survives_states_that_cannot_be_written() -> None:
    watcher, stopped = new_watcher(tick_seconds=0.01), threading.Event()

    with away_until(lambda: True, attempts=3) as refused:
        watcher.run(stopped, until=lambda: len(refused) >= 3)

    assert len(refused) == 3


class BrokenWriter(module.Watcher):
    """A watcher whose writing thread ends by an unexpected error."""

    def write_next(self, *, seconds: float) -> bool:
        raise RuntimeError(f"broken after {seconds} s")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_watcher_that_can_write_nothing_any_more_ends_so_that_it_is_restarted() -> (
    None
):
    with pytest.raises(WriterEnded):
        BrokenWriter(tick_seconds=0.01).run(threading.Event())


@pytest.mark.nightly
def test_credentials_that_were_encrypted_with_another_key_are_taken_without_connecting_again() -> (
    None
):
    with watching(hub_with_content(), pace=SLOW) as run:
        run.work_until_state("live")
        run.fake.wait_until(lambda: run.fake.watches == 22)
        before = len(run.fake.seen)
        row = HubCredential.objects.get(hub=run.hub)
        secret = decrypt(run.hub.uid, row.ciphertext, purpose=HUB_PURPOSE)
        again = encrypt(run.hub.uid, secret, purpose=HUB_PURPOSE)
        HubCredential.objects.update(ciphertext=again)

        run.work_until(
            lambda: run.watcher.hubs[run.hub.pk].target.ciphertext == again,
            seconds=10,
        )

        assert len(run.fake.seen) == before
        assert Hub.objects.get(pk=run.hub.pk).state == "live"
