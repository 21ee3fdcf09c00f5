"""A live hub whose mirror is written by the test, and projected when the test says so."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from clusters.models import Hub, MirroredObject
from fleetui.apimachinery.words import split_full_name
from fleetui.hub_scope import in_hub
from placements.hubs.kinds.kubefleet import KUBEFLEET
from placements.hubs.projection.operations import project_changes, rejudge, reproject
from placements.hubs.trimming import record_of
from placements.hubs.watching.mirror import HubMirror
from placements.hubs.watching.stream import ObjectRemoval, StreamItem
from tests.hubs.test_mirror import LEASE, stream_row
from tests.hubs.test_trimming import stream

NOW = datetime(2026, 11, 1, 10, 1, tzinfo=UTC)
"""A minute after the heartbeat of the members in `hub_documents`."""


class ProjectedHub:
    """The mirror of a hub, written without streams; each object has its kind and name as UID."""

    def __init__(self, name: str = "prod-eu", **columns: Any) -> None:
        values = {
            "state": "live",
            "lease_expires_at": NOW,
            "lease_token": LEASE,
            **columns,
        }
        self.hub = Hub.objects.create(
            name=name, kind="kubefleet", created_at=NOW, created_by="tests", **values
        )
        self.mirror = HubMirror(self.hub.pk, KUBEFLEET, LEASE, clock=lambda: NOW)
        self.rows: dict[str, Any] = {}
        self.version = 0

    def item(self, kind: str, content: Any, *, uid: str = "") -> StreamItem:
        """Return an event about an object, of the next version of the hub."""
        self.version += 1
        number, metadata = self._stream(kind), content["metadata"]
        metadata = {
            "generation": 1,
            "creationTimestamp": "2026-11-01T08:00:00Z",
            **metadata,
            "uid": uid or f"{kind}-{metadata.get('namespace', '')}-{metadata['name']}",
            "resourceVersion": str(self.version),
        }
        record = record_of(
            KUBEFLEET, stream(kind), "v1beta1", {**content, "metadata": metadata}
        )
        return StreamItem(number, record, position=str(self.version))

    def removal(self, kind: str, name: str, *, uid: str = "") -> StreamItem:
        """Return the deletion of an object, which is named with its namespace if it has one."""
        self.version += 1
        namespace, own = split_full_name(name)
        removal = ObjectRemoval(
            namespace, own, uid or f"{kind}-{namespace}-{own}", str(self.version)
        )
        return StreamItem(
            self._stream(kind), removal=removal, position=str(self.version)
        )

    def put(self, kind: str, *contents: Any) -> None:
        self.mirror.write([self.item(kind, content) for content in contents])

    def remove(self, kind: str, *names: str) -> None:
        self.mirror.write([self.removal(kind, name) for name in names])

    def project(self, *, now: datetime = NOW) -> int:
        """Project until nothing is left; return how many objects."""
        count = 0
        with in_hub(self.hub.pk):
            while done := project_changes(now=now):
                count += done
        return count

    def reproject(self, *, now: datetime = NOW) -> int:
        with in_hub(self.hub.pk):
            return reproject(now=now)

    def rejudge(self, *, now: datetime = NOW) -> int:
        with in_hub(self.hub.pk):
            return rejudge(now=now)

    def mark(self, kind: str, name: str) -> tuple[bool, list[str], str]:
        """Return whether an object is dirty, what is not understood of it, and why it is not shown."""
        with in_hub(self.hub.pk):
            namespace, own = split_full_name(name)
            row = MirroredObject.objects.get(kind=kind, namespace=namespace, name=own)
        return row.is_dirty, row.not_understood, row.projection_error

    @contextmanager
    def scope(self) -> Iterator[None]:
        with in_hub(self.hub.pk):
            yield

    def _stream(self, kind: str) -> int:
        if kind not in self.rows:
            self.rows[kind] = stream_row(self.hub, stream(kind))
            self.mirror.add(self.rows[kind], stream(kind))
        return int(self.rows[kind].pk)
