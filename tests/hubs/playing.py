"""Plays a recording of a hub (`record_hub`) into a mirror, a part at a time, as its watches delivered it."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from clusters.models import Hub
from placements.hubs.kinds.base import Form, StreamKind
from placements.hubs.kinds.kubefleet import KUBEFLEET, STREAMS
from placements.hubs.trimming import record_of
from placements.hubs.watching.mirror import HubMirror
from placements.hubs.watching.stream import ObjectRemoval, StreamItem
from placements.services.problems.book import compare
from tests.documents import SHARED
from tests.hubs.projecting import NOW, ProjectedHub
from tests.hubs.test_mirror import stream_row

RECORDING = SHARED / "recordings" / "kubefleet-live.jsonl.gz"
Line = dict[str, Any]
Document = dict[str, Any]


@cache
def lines(path: Path = RECORDING) -> tuple[Line, ...]:
    return tuple(map(json.loads, gzip.decompress(path.read_bytes()).splitlines()))


@dataclass
class Player:
    """A live hub that a recording is played into; `objects` is what the hub has by now, by kind and name."""

    live: ProjectedHub = field(default_factory=ProjectedHub)
    objects: dict[tuple[str, str, str], Document] = field(default_factory=dict)
    now: datetime = NOW
    _numbers: dict[str, tuple[int, StreamKind]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live.mirror = HubMirror(
            self.live.hub.pk, KUBEFLEET, "lease", clock=lambda: self.now
        )

    def play(self, several: tuple[Line, ...]) -> None:
        """Write and project some lines, and compare the statuses as the sweep does."""
        self.now = datetime.fromisoformat(several[-1]["at"])
        Hub.objects.filter(pk=self.live.hub.pk).update(
            lease_token="lease", lease_expires_at=self.now + timedelta(hours=1)
        )
        self.live.mirror.write([self._item(document) for document in several])
        self.live.mirror.flush({})
        self.live.project(now=self.now)
        self.live.rejudge(now=self.now)
        with self.live.scope():
            compare(now=datetime.now(UTC))

    def of_kind(self, *kinds: str) -> Iterator[Document]:
        return (
            document for (kind, _, _), document in self.objects.items() if kind in kinds
        )

    def _item(self, line: Line) -> StreamItem:
        content, stream = line["object"], line["stream"]
        metadata = content["metadata"]
        key = (content["kind"], metadata.get("namespace", ""), metadata["name"])
        number, kind = self._stream(stream, content)
        position = metadata["resourceVersion"]
        if line["type"] == "DELETED":
            self.objects.pop(key, None)
            removal = ObjectRemoval(key[1], key[2], metadata["uid"], position)
            return StreamItem(number, removal=removal, position=position)
        self.objects[key] = content
        version = content.get("apiVersion", "v1").rpartition("/")[2]
        return StreamItem(
            number, record_of(KUBEFLEET, kind, version, content), position=position
        )

    def _stream(self, name: str, content: Document) -> tuple[int, StreamKind]:
        if name not in self._numbers:
            plural, _, group = name.partition(".")
            known = (
                stream
                for stream in STREAMS
                if (stream.plural, stream.group) == (plural, group)
            )
            kind = next(
                known, StreamKind(group, plural, content["kind"], form=Form.METADATA)
            )
            row = stream_row(self.live.hub, kind)
            self.live.mirror.add(row, kind)
            self._numbers[name] = (row.pk, kind)
        return self._numbers[name]
