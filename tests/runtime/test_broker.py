"""The queue in a folder: whole messages, each of them to one reader."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from kombu import Connection, Consumer, Queue

from fleetui import broker
from fleetui.celery import app
from fleetui.task_queue import BoundedScheduler
from tests.runtime.processes import PATIENCE

MESSAGES = 1_500


@contextmanager
def _channel(folder: Path) -> Iterator[broker.Channel]:
    with Connection("atomicfs://", transport_options={"folder": folder}) as connection:
        channel = connection.default_channel
        assert isinstance(channel, broker.Channel)
        yield channel


def _read_until(folder: Path, everything_is_sent: threading.Event) -> list[int]:
    numbers = []
    with _channel(folder) as channel:
        while True:
            over = everything_is_sent.is_set()
            try:
                numbers.append(channel._get("q")["number"])
            except Empty:
                if over:
                    return numbers


def test_two_readers_get_every_message_once_while_it_is_written(tmp_path: Path) -> None:
    sent = threading.Event()

    with ThreadPoolExecutor(2) as pool, _channel(tmp_path) as writer:
        readers = [pool.submit(_read_until, tmp_path, sent) for _ in range(2)]
        for number in range(MESSAGES):
            writer._put("q", {"number": number})
        sent.set()
        read = [reader.result() for reader in readers]

    assert sorted(read[0] + read[1]) == list(range(MESSAGES))
    assert all(read)
    assert [path.name for path in tmp_path.rglob("*.msg")] == []


def test_the_oldest_message_comes_first_and_queues_are_apart(tmp_path: Path) -> None:
    with _channel(tmp_path) as channel:
        for queue, word in [("a", "first"), ("b", "other"), ("a", "second")]:
            channel._put(queue, word)

        assert [channel._size("a"), channel._size("b")] == [2, 1]
        assert [channel._get("a"), channel._get("a"), channel._get("b")] == [
            "first",
            "second",
            "other",
        ]
        with pytest.raises(Empty):
            channel._get("a")


@pytest.mark.parametrize("kernel", [broker._kernel, object()], ids=["inotify", "none"])
def test_a_reader_at_rest_is_woken_by_a_message_or_looks_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: object
) -> None:
    monkeypatch.setattr(broker, "_kernel", kernel)
    monkeypatch.setattr(broker, "_LONGEST_WAIT", PATIENCE)
    read: list[object] = []
    looks = 0
    with (
        _channel(tmp_path) as channel,
        _channel(tmp_path) as writer,
        ExitStack() as stack,
    ):
        transport: Any = channel.connection
        for arrivals in transport._arrivals:
            stack.enter_context(arrivals)
        message = writer.prepare_message("woken")
        options = {"exchange": "", "routing_key": "q"}
        later = threading.Timer(0.3, writer.basic_publish, [message], options)
        consumer = Consumer(channel, [Queue("q")], on_message=read.append, no_ack=True)
        stack.enter_context(consumer)
        later.start()
        while not read:
            looks += 1
            with suppress(TimeoutError):
                transport.drain_events(transport)
        later.join()

    assert len(read) == 1
    assert looks < 20


def test_purging_counts_what_it_threw_away(tmp_path: Path) -> None:
    with _channel(tmp_path) as channel:
        channel._put("a", "one")
        channel._put("a", "two")
        channel._put("b", "stays")

        assert channel._purge("a") == 2
        assert [channel._size("a"), channel._size("b")] == [0, 1]


def test_goes_on_after_the_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    with _channel(folder) as channel:
        folder.rename(tmp_path / "elsewhere")

        with pytest.raises(Empty):
            channel._get("q")
        channel._put("q", "again")

        assert channel._get("q") == "again"


def test_a_message_whose_reader_died_comes_back_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _channel(tmp_path) as channel:
        channel._put("q", "claimed, never read")
    message = next(tmp_path.glob("*.msg"))
    message.rename(tmp_path / "claims" / message.name)
    (tmp_path / "drafts" / "half.msg").write_text('{"ha')

    with _channel(tmp_path) as channel:
        assert channel._size("q") == 0

    hour_later = time.time() + 3600
    monkeypatch.setattr(broker.time, "time", lambda: hour_later)
    with _channel(tmp_path) as channel:
        assert channel._get("q") == "claimed, never read"
    assert list((tmp_path / "drafts").iterdir()) == []


def test_celery_sends_through_the_folder_of_the_settings(tmp_path: Path) -> None:
    options = {"folder": tmp_path / "queue"}
    with Connection("atomicfs://", transport_options=options) as connection:
        app.send_task("some.task", kwargs={"now": 1}, connection=connection)

        message = broker.Channel(connection.connection)._get("celery")

    assert message["headers"]["task"] == "some.task"
    assert message["content-type"] == "application/json"


def test_redis_gives_the_message_of_a_dead_worker_back_soon(tmp_path: Path) -> None:
    assert (
        broker.transport_options("redis://h", folder=tmp_path)["visibility_timeout"]
        == 15
    )
    assert broker.transport_options("amqp://h", folder=tmp_path) == {}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"no json", b"\xff\xfe\x00", b'{"body": "\xff"}']
)
def test_a_file_that_is_no_message_is_removed_with_one_warning(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with _channel(tmp_path) as channel:
        (tmp_path / f"{0:020d}-x.a.msg").write_bytes(content)
        channel._put("a", "first")

        assert channel._get("a") == "first"
        with pytest.raises(Empty):
            channel._get("a")

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert not list(tmp_path.rglob("*.msg"))


def test_a_task_is_due_when_the_beat_has_waited_for_it() -> None:
    scheduler = BoundedScheduler(app, lazy=True)

    assert scheduler.adjust(0.8) == 0.8
