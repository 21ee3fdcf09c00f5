"""One stream against a fake hub that misbehaves (`rules/live-hub.md#streams`)."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from clusters.drivers.kubernetes.client import Client
from clusters.drivers.kubernetes.configuration import Connection
from clusters.drivers.kubernetes.sockets import AddressRules
from placements.hubs.kinds.base import StreamKind
from placements.hubs.kinds.kubefleet import KUBEFLEET, STREAMS
from placements.hubs.watching.states import StreamState
from placements.hubs.watching.stream import StreamItem, StreamPace, StreamReader
from tests.clusters.kubernetes.certificates import authority
from tests.clusters.kubernetes.servers import LocalServer
from tests.hubs.fake_hub import TOKEN, FakeHub, serve_hub
from tests.hubs.hub_documents import binding, member, placement

PACE = StreamPace(
    first_backoff=0.01,
    longest_backoff=0.05,
    steady=0.05,
    watch=(1, 1),
    extra_silence=-0.5,
    page=1.0,
    unavailable=0.05,
    starting=5.0,
)
CLUSTERS, BINDINGS = "memberclusters", "clusterresourcebindings"


def kind(plural: str) -> StreamKind:
    return next(stream for stream in STREAMS if stream.plural == plural)


@dataclass
class Reader:
    """Takes what a stream delivers, as the mirror would: `objects` are those that it would store."""

    server: LocalServer
    token: str = TOKEN
    items: list[StreamItem] = field(default_factory=list)
    objects: dict[str, str] = field(default_factory=dict)
    """resourceVersion by UID."""
    rejections: int = 0
    discoveries: int = 0
    pause: float = 0.0
    changed: threading.Condition = field(default_factory=threading.Condition)
    _client: Client | None = None

    def client(self) -> Client:
        if self._client is None:
            connection = Connection(self.server.url, ca=authority().pem)
            rules = AddressRules(allow_loopback=True)
            self._client = Client(
                connection, lambda: {"token": self.token}, rules=rules
            )
        return self._client

    def close(self) -> None:
        if self._client:
            self._client.close()

    def rejected(self, client: Client) -> None:  # noqa: ARG002 -- of the protocol
        self.rejections += 1
        self.pause = 0.02

    def accepted(self, client: Client) -> None:
        pass

    def blocked(self) -> float:
        pause, self.pause = self.pause, 0.0
        return pause

    def path_missing(self) -> None:
        self.discoveries += 1

    def put(self, item: StreamItem) -> bool:
        with self.changed:
            self.items.append(item)
            if item.record:
                self.objects[item.record.uid] = item.record.resource_version
            if item.removal:
                self.objects.pop(item.removal.uid, None)
            if item.listed_uids is not None:
                self.objects = {
                    uid: rv
                    for uid, rv in self.objects.items()
                    if uid in item.listed_uids
                }
            self.changed.notify_all()
        return True

    def wait_until(
        self, is_true: Callable[[], object], *, seconds: float = 10.0
    ) -> None:
        with self.changed:
            assert self.changed.wait_for(is_true, seconds)

    @property
    def lists(self) -> int:
        return sum(item.listed_uids is not None for item in self.items)


@dataclass
class Running:
    hub: FakeHub
    reader: Reader
    stream: StreamReader

    def wait_equal(self) -> None:
        """Wait until what was delivered is what the hub has."""
        group, plural = self.stream.kind.group, self.stream.kind.plural

        def is_equal() -> bool:
            place = self.hub.objects.get((group, plural), {}).values()
            wanted = {
                document["metadata"]["uid"]: document["metadata"]["resourceVersion"]
                for document in place
            }
            return self.reader.lists > 0 and self.reader.objects == wanted

        self.reader.wait_until(is_equal)

    def wait_for_state(self, state: StreamState, *, seconds: float = 5.0) -> None:
        until = time.monotonic() + seconds
        while self.stream.status.state is not state and time.monotonic() < until:
            with self.hub.changed:
                self.hub.changed.wait(0.02)
        assert self.stream.status.state is state


@contextmanager
def streaming(
    plural: str = CLUSTERS,
    *,
    hub: FakeHub | None = None,
    pace: StreamPace = PACE,
    **options: Any,
) -> Iterator[Running]:
    version = options.pop("version", "v1beta1")
    with serve_hub(hub) as (served, server):
        reader = Reader(server)
        stream = StreamReader(
            1,
            KUBEFLEET,
            options.pop("stream", kind(plural)),
            version,
            "",
            reader,
            reader,
            pace=pace,
            **options,
        )
        thread = threading.Thread(target=stream.run)
        thread.start()
        try:
            yield Running(served, reader, stream)
        finally:
            stream.stop()
            thread.join(5)
            reader.close()
            assert not thread.is_alive()


def fleet(count: int = 3) -> FakeHub:
    hub = FakeHub()
    for number in range(count):
        hub.put(CLUSTERS, member(f"c{number}"))
    return hub


def test_a_list_is_followed_by_its_changes() -> None:
    with streaming(hub=fleet()) as run:
        run.wait_equal()
        run.hub.put(CLUSTERS, member("c1", region="eu"))
        run.hub.put(CLUSTERS, member("c9"))
        run.hub.delete(CLUSTERS, "c0")
        run.wait_equal()

    assert run.hub.count("list") == 1
    assert run.reader.lists == 1
    assert run.stream.status.events == 3


def test_pages_arrive_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placements.hubs.watching.stream.LIMITS", (2, 1, 1))
    with streaming(hub=fleet(5)) as run:
        run.wait_equal()

    assert (run.hub.count("list"), run.hub.count("continue")) == (1, 2)
    assert [item.listed_uids is not None for item in run.reader.items[:6]] == [
        False
    ] * 5 + [True]


def test_bookmarks_move_the_position_without_an_object() -> None:
    with streaming(hub=fleet()) as run:
        run.wait_equal()
        run.hub.put("clusterresourceplacements", placement("web"))
        run.reader.wait_until(
            lambda: run.reader.items[-1].position == str(run.hub.revision)
        )

    last = run.reader.items[-1]
    assert (last.record, last.removal, last.listed_uids) == (None, None, None)


def test_a_watch_continues_at_its_position_after_its_end_or_a_cut() -> None:
    with streaming(hub=fleet()) as run:
        run.wait_equal()
        run.hub.wait_until(lambda: run.hub.watches == 1)
        run.hub.cut_watches()
        run.hub.put(CLUSTERS, member("after-the-cut"))
        run.wait_equal()
        run.hub.wait_until(
            lambda: run.hub.count("watch") >= 4
        )  # each ends after a second

    assert run.hub.count("list") == 1
    positions = [
        int(seen.query["resourceVersion"])
        for seen in run.hub.seen
        if seen.verb == "watch"
    ]
    assert positions == sorted(positions)


@pytest.mark.parametrize("form", ["410", "410-status"])
def test_an_expired_position_is_listed_again_without_losing_anything(form: str) -> None:
    with streaming(hub=fleet()) as run:
        run.wait_equal()
        known = set(run.reader.objects)
        run.hub.fault(form, "watch", times=1)
        run.hub.cut_watches()
        run.hub.delete(CLUSTERS, "c0")
        run.hub.put(CLUSTERS, member("new"))
        run.hub.compact()
        run.wait_equal()
        run.reader.wait_until(lambda: run.reader.lists >= 2)

    removed = {item.removal.uid for item in run.reader.items if item.removal}
    assert len(known - set(run.reader.objects)) == 1
    assert len(removed) <= 1
    assert run.stream.status.relists >= 1


def test_a_stored_position_that_has_expired_counts_as_listed_again() -> None:
    hub = fleet()
    position = str(hub.revision)
    hub.put(CLUSTERS, member("new"))
    hub.compact()
    with streaming(hub=hub, position=position) as run:
        run.wait_equal()
        assert run.stream.status.relists == 1


def test_410_at_every_watch_backs_off_after_the_first() -> None:
    hub = fleet()
    hub.fault("410", "watch")
    with streaming(hub=hub, pace=replace(PACE, steady=60.0)) as run:
        run.reader.wait_until(lambda: run.reader.lists >= 4)
        assert run.stream.status.failures >= 2
        hub.faults.clear()
        run.wait_for_state(StreamState.WATCHING)


def test_a_list_whose_continue_tokens_expire_is_requested_in_one_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("placements.hubs.watching.stream.LIMITS", (2, 1, 1))
    hub = fleet(5)
    hub.fault("410", "continue")
    with streaming(hub=hub) as run:
        run.wait_equal()

    lists = [seen.query for seen in hub.seen if seen.verb == "list"]
    assert [query.get("limit") for query in lists] == ["2", "2", "2", None]
    assert lists[-1]["resourceVersion"] == "0"


def test_a_restored_hub_is_listed_again_although_its_versions_are_lower() -> None:
    hub = fleet()
    backup = hub.copy_state()
    with streaming(hub=hub) as run:
        run.wait_equal()
        for number in range(5):
            hub.put(CLUSTERS, member(f"later-{number}"))
        run.wait_equal()
        hub.restore(backup)
        run.wait_equal()
        hub.put(CLUSTERS, member("after"))
        run.wait_equal()

    assert hub.count("list") == 2


@pytest.mark.parametrize("fault", ["stall", "drip"])
def test_a_watch_that_completes_no_line_is_ended(fault: str) -> None:
    hub = fleet()
    hub.fault(fault, "watch", times=1)
    with streaming(hub=hub) as run:
        started = time.monotonic()
        hub.wait_until(lambda: hub.count("watch") >= 2)
        took = time.monotonic() - started
        hub.put(CLUSTERS, member("after"))
        run.wait_equal()

    assert took < 3.0
    assert hub.count("list") == 1


@pytest.mark.parametrize("name", ["429", "503", "500", "502", "cut", "html", "401"])
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_a_failed_request_is_repeated(name: str, verb: str) -> None:
    hub = fleet()
    hub.fault(name, verb, times=1, seconds=1.0)  # without Retry-After
    with streaming(hub=hub) as run:
        run.wait_equal()
        run.wait_for_state(StreamState.WATCHING)
        hub.put(CLUSTERS, member("after"))
        run.wait_equal()

    assert hub.count("list") == (2 if verb == "list" else 1)
    assert run.reader.rejections == (name == "401")


def test_retry_after_is_respected() -> None:
    hub = fleet()
    hub.fault("429", "list", times=1)
    with streaming(hub=hub) as run:
        started = time.monotonic()
        run.wait_equal()

    assert time.monotonic() - started >= 0.9


@pytest.mark.parametrize(
    ("name", "state"), [("403", StreamState.FORBIDDEN), ("404", StreamState.ABSENT)]
)
def test_a_kind_that_is_refused_or_absent_is_tried_again_later(
    name: str, state: StreamState
) -> None:
    hub = fleet()
    hub.fault(name, "list")
    with streaming(hub=hub) as run:
        run.wait_for_state(state)
        assert CLUSTERS in run.stream.status.error
        hub.faults.clear()
        run.wait_equal()

    assert run.reader.discoveries >= 1


@pytest.mark.parametrize("name", ["403", "404"])
def test_a_server_that_starts_refuses_a_kind_only_for_a_moment(name: str) -> None:
    hub = fleet()
    with streaming(hub=hub, pace=replace(PACE, unavailable=300.0)) as run:
        run.wait_equal()
        refused = hub.fault(name, times=4)
        run.stream.reconnect()
        hub.put(CLUSTERS, member("after"))
        run.wait_equal()

    assert refused.hits == 4
    assert run.reader.discoveries == 0


def test_504_twice_at_a_watch_lists_again() -> None:
    hub = fleet()
    hub.fault("504", "watch", times=2)
    with streaming(hub=hub, pace=replace(PACE, steady=60.0)) as run:
        run.reader.wait_until(lambda: run.reader.lists == 2)


GARBAGE = {
    "an unknown type": b'{"type":"MOVED","object":{"metadata":{}}}',
    "no uid": b'{"type":"ADDED","object":{"kind":"MemberCluster","metadata":{"name":"x"}}}',
    "another kind": b'{"type":"ADDED","object":{"kind":"Pod","metadata":{"name":"x","uid":"u"}}}',
    "no JSON": b'{"type":"ADDED","obj',
    "not an event": b"[1, 2]",
}


@pytest.mark.parametrize("line", GARBAGE.values(), ids=GARBAGE)
def test_a_stream_survives_garbage_and_counts_it(line: bytes) -> None:
    hub = fleet()
    hub.fault("garbage", "watch", times=1, lines=(line,))
    with streaming(hub=hub) as run:
        run.wait_equal()
        hub.put(CLUSTERS, member("after"))
        run.wait_equal()

    assert run.stream.status.skipped == 1
    assert hub.count("list") == 1


def test_a_line_of_9_mib_ends_the_watch_and_lists_in_small_pages() -> None:
    hub = fleet()
    hub.fault("garbage", "watch", times=1, lines=(b"x" * 9 * 1024 * 1024,))
    with streaming(hub=hub) as run:
        run.reader.wait_until(lambda: run.reader.lists == 2)
        run.wait_equal()

    assert [seen.query["limit"] for seen in hub.seen if seen.verb == "list"] == [
        "500",
        "50",
    ]


def test_an_error_event_is_followed_by_another_watch() -> None:
    hub = fleet()
    hub.fault("error", "watch", times=1)
    with streaming(hub=hub) as run:
        run.wait_equal()
        hub.wait_until(lambda: hub.count("watch") >= 2)

    assert hub.count("list") == 1


def test_metadata_is_requested_where_it_is_enough() -> None:
    hub = FakeHub()
    hub.put(
        "clusterresourcesnapshots",
        {"metadata": {"name": "web-0-snapshot"}, "spec": {"a": "b" * 100}},
    )
    with streaming("clusterresourcesnapshots", hub=hub) as run:
        run.wait_equal()
        hub.put(
            "clusterresourcesnapshots",
            {"metadata": {"name": "web-1-snapshot"}, "spec": {"a": "b"}},
        )
        run.wait_equal()

    sizes = [item.record.size for item in run.reader.items if item.record]
    assert len(sizes) == 2
    assert max(sizes) < 250


def test_a_stream_resumes_at_a_stored_position() -> None:
    hub = fleet()
    position = str(hub.revision)
    hub.put(CLUSTERS, member("later"))
    with streaming(hub=hub, position=position) as run:
        run.reader.wait_until(lambda: any(item.record for item in run.reader.items))

    assert hub.count("list") == 0
    assert [item.record.name for item in run.reader.items if item.record] == ["later"]


def test_a_stopped_stream_ends_immediately() -> None:
    with streaming(hub=fleet(), pace=StreamPace()) as run:
        run.wait_equal()
        run.hub.wait_until(lambda: run.hub.watches == 1)
        started = time.monotonic()
        run.stream.stop()
        run.hub.wait_until(lambda: run.hub.watches == 0)

    assert time.monotonic() - started < 2.0


def test_bindings_of_usual_size_are_read() -> None:
    hub = FakeHub()
    for number in range(20):
        hub.put(BINDINGS, binding("web", f"c{number}"))
    with streaming(BINDINGS, hub=hub) as run:
        run.wait_equal()

    assert run.stream.status.skipped == 0
