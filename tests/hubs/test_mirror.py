"""Batches in the mirror: what is written, dropped and removed, and the changes of bindings (9.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import BindingChange, Hub, HubStream, MirroredObject
from fleetui.hub_scope import in_hub
from placements.hubs.kinds.base import StreamKind
from placements.hubs.kinds.kubefleet import KUBEFLEET
from placements.hubs.trimming import MirrorRecord, record_of, unpack
from placements.hubs.watching.mirror import HubMirror, LeaseLost, is_older
from placements.hubs.watching.states import StreamStatus
from placements.hubs.watching.stream import ObjectRemoval, StreamItem
from tests.hubs.hub_documents import binding, member
from tests.hubs.test_trimming import stream

pytestmark = [pytest.mark.django_db, pytest.mark.servers]
NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
LEASE = "lease-of-this-watcher"


def live_hub(name: str = "prod-eu", **columns: Any) -> Hub:
    values = {"created_at": NOW, "created_by": "tests", "lease_token": LEASE, **columns}
    return Hub.objects.create(name=name, kind="kubefleet", **values)


def stream_row(hub: Hub, kind: StreamKind) -> HubStream:
    with in_hub(hub.pk):
        return HubStream.objects.create(
            group=kind.group,
            version="v1beta1",
            plural=kind.plural,
            kind=kind.kind,
            form=kind.form,
            is_required=kind.is_required,
        )


class Written:
    """The mirror of one hub with one stream, written directly."""

    def __init__(self, kind: str) -> None:
        self.hub = live_hub()
        self.kind = stream(kind)
        self.row = stream_row(self.hub, self.kind)
        self.mirror = HubMirror(self.hub.pk, KUBEFLEET, LEASE, clock=lambda: NOW)
        self.mirror.add(self.row, self.kind)

    def record(
        self, content: Mapping[str, Any], uid: str, version: int
    ) -> MirrorRecord:
        metadata = {**content["metadata"], "uid": uid, "resourceVersion": str(version)}
        return record_of(
            KUBEFLEET, self.kind, "v1beta1", {**content, "metadata": metadata}
        )

    def put(
        self,
        content: Mapping[str, Any],
        uid: str,
        version: int,
        *,
        is_from_list: bool = False,
    ) -> StreamItem:
        record = self.record(content, uid, version)
        position = "" if is_from_list else str(version)
        return StreamItem(
            self.row.pk, record, position=position, is_from_list=is_from_list
        )

    def removal(self, name: str, uid: str, version: int) -> StreamItem:
        removal = ObjectRemoval("", name, uid, str(version))
        return StreamItem(self.row.pk, removal=removal, position=str(version))

    def listed(self, version: int, *uids: str) -> StreamItem:
        return StreamItem(
            self.row.pk, position=str(version), listed_uids=frozenset(uids)
        )

    def write(self, *items: StreamItem) -> bool:
        return self.mirror.write(items)

    def rows(self, *columns: str) -> list[Any]:
        with in_hub(self.hub.pk):
            return list(MirroredObject.objects.order_by("name").values_list(*columns))

    def changes(self) -> list[tuple[str, str, str]]:
        with in_hub(self.hub.pk):
            return list(
                BindingChange.objects.order_by("pk").values_list(
                    "cluster", "state", "policy_snapshot"
                )
            )

    def clean(self) -> None:
        with in_hub(self.hub.pk):
            MirroredObject.objects.update(is_dirty=False)

    def reread(self) -> HubStream:
        with in_hub(self.hub.pk):
            return HubStream.objects.get(pk=self.row.pk)


@pytest.fixture
def clusters() -> Written:
    return Written("MemberCluster")


@pytest.fixture
def bindings() -> Written:
    return Written("ClusterResourceBinding")


def test_the_last_state_of_an_object_wins(clusters: Written) -> None:
    items = [clusters.put(member("c1", n=str(n)), "u1", n) for n in range(1, 4)]

    assert clusters.write(*items)

    assert clusters.rows("name", "uid", "resource_version", "is_dirty") == [
        ("c1", "u1", "3", True)
    ]
    assert unpack(clusters.rows("manifest")[0][0])["metadata"]["labels"] == {"n": "3"}
    row = clusters.reread()
    assert (row.resource_version, row.object_count, row.listed_at) == ("3", 1, None)


def test_a_complete_list_removes_what_it_does_not_contain(clusters: Written) -> None:
    clusters.write(*(clusters.put(member(f"c{n}"), f"u{n}", n) for n in (1, 2, 3)))
    clusters.write(clusters.put(member("c4"), "u4", 4, is_from_list=True))

    assert (
        len(clusters.rows("name")) == 4
    )  # nothing is removed before the list is complete

    clusters.write(clusters.listed(9, "u2", "u4"))

    assert clusters.rows("name") == [("c2",), ("c4",)]
    row = clusters.reread()
    assert (
        row.resource_version,
        row.object_count,
        row.listed_at,
        row.has_removals,
    ) == ("9", 2, NOW, True)


def test_the_same_and_an_older_version_are_dropped(clusters: Written) -> None:
    clusters.write(clusters.put(member("c1", a="new"), "u1", 7))
    clusters.clean()

    assert not clusters.write(clusters.put(member("c1", a="same"), "u1", 7))
    assert not clusters.write(clusters.put(member("c1", a="old"), "u1", 6))

    assert clusters.rows("resource_version", "is_dirty") == [("7", False)]


def test_an_older_version_in_a_complete_list_is_accepted(clusters: Written) -> None:
    clusters.write(clusters.put(member("c1", a="new"), "u1", 7))

    clusters.write(
        clusters.put(member("c1", a="restored"), "u1", 3, is_from_list=True),
        clusters.listed(4, "u1"),
    )

    assert clusters.rows("resource_version") == [("3",)]
    assert clusters.reread().resource_version == "4"


def test_another_uid_replaces_the_object(bindings: Written) -> None:
    bindings.write(bindings.put(binding("web", "paris", state="Bound"), "u1", 1))
    bindings.write(bindings.put(binding("web", "paris"), "u2", 2))

    assert bindings.rows("uid") == [("u2",)]
    assert [state for _, state, _ in bindings.changes()] == [
        "Bound",
        "Gone",
        "Scheduled",
    ]
    assert bindings.reread().object_count == 1


def test_deletions_are_by_uid(bindings: Written) -> None:
    name = binding("web", "paris")["metadata"]["name"]
    bindings.write(bindings.put(binding("web", "paris"), "u1", 1))

    bindings.write(
        bindings.removal(name, "another", 2), bindings.removal("unknown", "u9", 3)
    )
    assert len(bindings.rows("uid")) == 1

    bindings.write(bindings.removal(name, "u1", 4))
    assert bindings.rows("uid") == []
    assert bindings.changes() == [
        ("paris", "Scheduled", "web-0"),
        ("paris", "Gone", ""),
    ]
    assert bindings.reread().object_count == 0


def test_each_state_of_a_binding_is_remembered_even_within_a_batch(
    bindings: Written,
) -> None:
    name = binding("web", "paris")["metadata"]["name"]

    bindings.write(
        bindings.put(binding("web", "paris"), "u1", 1),
        bindings.put({**binding("web", "paris"), "status": {}}, "u1", 2),
        bindings.put(binding("web", "paris", state="Bound"), "u1", 3),
        bindings.put(binding("web", "paris", state="Bound", policy=1), "u1", 4),
        bindings.removal(name, "u1", 5),
        bindings.put(binding("web", "paris"), "u2", 6),
    )

    assert bindings.changes() == [
        ("paris", "Scheduled", "web-0"),
        ("paris", "Bound", "web-0"),
        ("paris", "Bound", "web-1"),
        ("paris", "Gone", ""),
        ("paris", "Scheduled", "web-0"),
    ]
    assert bindings.rows("uid") == [("u2",)]


def test_bindings_that_a_list_lacks_are_gone(bindings: Written) -> None:
    bindings.write(bindings.put(binding("web", "paris"), "u1", 1))

    bindings.write(bindings.listed(5))

    assert bindings.changes()[-1] == ("paris", "Gone", "")


def test_heartbeats_are_written_together_and_make_nothing_dirty(
    clusters: Written,
) -> None:
    clusters.write(*(clusters.put(member(f"c{n}"), f"u{n}", n) for n in range(1, 31)))
    clusters.clean()
    later = "2026-11-01T10:01:00Z"

    with CaptureQueriesContext(connection) as written:
        for n in range(1, 31):
            clusters.write(
                clusters.put(member(f"c{n}", heartbeat=later), f"u{n}", 100 + n)
            )
    assert len(written) == 0
    assert (
        clusters.reread().resource_version == "30"
    )  # heartbeats that are not written are read again

    clusters.mirror.flush({})

    rows = clusters.rows("resource_version", "is_dirty", "heartbeat_at")
    assert set(rows) == {
        (str(100 + n), False, datetime(2026, 11, 1, 10, 1, tzinfo=UTC))
        for n in range(1, 31)
    }
    assert clusters.reread().resource_version == "130"


def test_a_change_after_a_heartbeat_is_written_at_once(clusters: Written) -> None:
    clusters.write(clusters.put(member("c1"), "u1", 1))
    clusters.clean()
    clusters.write(
        clusters.put(member("c1", heartbeat="2026-11-01T10:01:00Z"), "u1", 2)
    )

    clusters.write(
        clusters.put(
            member("c1", heartbeat="2026-11-01T10:02:00Z", region="eu"), "u1", 3
        )
    )
    clusters.mirror.flush({})

    assert clusters.rows("resource_version", "is_dirty") == [("3", True)]


def test_a_heartbeat_that_comes_twice_or_late_is_dropped(clusters: Written) -> None:
    clusters.write(clusters.put(member("c1"), "u1", 1))
    for minute, version in ((2, 5), (2, 5), (1, 4)):
        clusters.write(
            clusters.put(
                member("c1", heartbeat=f"2026-11-01T10:0{minute}:00Z"), "u1", version
            )
        )
    clusters.mirror.flush({})
    clusters.write(
        clusters.put(member("c1", heartbeat="2026-11-01T10:01:00Z"), "u1", 4)
    )
    clusters.mirror.flush({})

    assert clusters.rows("resource_version", "heartbeat_at") == [
        ("5", datetime(2026, 11, 1, 10, 2, tzinfo=UTC))
    ]


def test_a_cluster_that_comes_back_after_its_deletion_is_written(
    clusters: Written,
) -> None:
    clusters.write(clusters.put(member("c1"), "u1", 1))
    clusters.write(clusters.removal("c1", "u1", 2))

    clusters.write(clusters.put(member("c1"), "u1", 3))

    assert clusters.rows("name", "resource_version") == [("c1", "3")]


def test_a_heartbeat_of_a_cluster_that_is_deleted_is_not_written(
    clusters: Written,
) -> None:
    clusters.write(clusters.put(member("c1"), "u1", 1))
    clusters.write(
        clusters.put(member("c1", heartbeat="2026-11-01T10:01:00Z"), "u1", 2)
    )
    clusters.write(clusters.removal("c1", "u1", 3))

    clusters.mirror.flush({})

    assert clusters.rows("name") == []


def test_events_per_minute_are_those_since_the_last_flush(clusters: Written) -> None:
    times = iter([NOW, NOW + timedelta(seconds=15), NOW + timedelta(seconds=30)])
    clusters.mirror._clock = lambda: next(times)
    rates = []

    for events in (500, 510, 3):  # then the stream is started again
        clusters.mirror.flush(
            {clusters.row.pk: StreamStatus(clusters.kind, events=events)}
        )
        rates.append(clusters.reread().events_per_minute)

    assert rates == [0.0, 40.0, 0.0]


def test_bookmarks_alone_write_nothing_until_the_flush(clusters: Written) -> None:
    with CaptureQueriesContext(connection) as written:
        assert not clusters.write(StreamItem(clusters.row.pk, position="55"))
    assert len(written) == 0

    clusters.mirror.flush(
        {clusters.row.pk: StreamStatus(clusters.kind, heard_at=5, events=3, skipped=1)},
        monotonic=5,
    )

    row = clusters.reread()
    assert (row.resource_version, row.heard_at, row.events, row.skipped) == (
        "55",
        NOW,
        3,
        1,
    )


def test_a_writer_without_the_lease_writes_nothing(clusters: Written) -> None:
    Hub.objects.filter(pk=clusters.hub.pk).update(lease_token="another")

    with pytest.raises(LeaseLost):
        clusters.write(clusters.put(member("c1"), "u1", 1))
    with pytest.raises(LeaseLost):
        clusters.mirror.flush({})

    assert clusters.rows("name") == []


def test_equal_names_of_two_hubs_are_two_objects(clusters: Written) -> None:
    clusters.write(clusters.put(member("c1"), "u1", 1))
    other = live_hub("prod-us")
    mirror = HubMirror(other.pk, KUBEFLEET, LEASE, clock=lambda: NOW)
    mirror.add(stream_row(other, clusters.kind), clusters.kind)
    item = clusters.put(member("c1"), "u1", 1)

    mirror.write([replace(item, stream=next(iter(mirror.streams)))])
    mirror.write(
        [StreamItem(next(iter(mirror.streams)), position="9", listed_uids=frozenset())]
    )

    assert clusters.rows("name") == [("c1",)]
    with in_hub(other.pk):
        assert not MirroredObject.objects.exists()


def test_a_batch_of_one_kind_takes_few_statements(bindings: Written) -> None:
    items = [bindings.put(binding("web", f"c{n}"), f"u{n}", n) for n in range(1, 41)]

    with CaptureQueriesContext(connection) as written:
        bindings.write(*items)

    assert len(written) <= 8  # savepoint, lease, stored rows, objects, changes, stream


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [("6", "7", True), ("7", "6", False), ("10", "9", False), ("a", "b", False)],
)
def test_versions_are_compared_where_both_are_numbers(
    one: str, other: str, expected: bool
) -> None:
    assert is_older(one, other) == expected


def test_a_failed_batch_can_be_written_again(clusters: Written) -> None:
    items: Sequence[StreamItem] = [clusters.put(member("c1"), "u1", 1)]
    Hub.objects.filter(pk=clusters.hub.pk).update(lease_token="")
    with pytest.raises(LeaseLost):
        clusters.mirror.write(items)
    Hub.objects.filter(pk=clusters.hub.pk).update(lease_token=LEASE)

    clusters.mirror.write(items)

    assert clusters.rows("name") == [("c1",)]
    assert clusters.reread().object_count == 1
