"""The bounded queue between the threads that read streams and the one that writes the mirror."""

import time
from collections import defaultdict
from queue import Empty, Full, Queue

from placements.hubs.watching.stream import StreamItem

MOST_HELD = 5_000
BATCH_ITEMS = 500
BATCH_SECONDS = 0.2
_CHECK_SECONDS = 0.5


class EventQueue:
    """Items in order of arrival, with their hubs.

    While it is full, every `put` waits: the streams stop reading, and TCP makes the hub wait.
    """

    def __init__(self, *, most: int = MOST_HELD) -> None:
        self._items: Queue[tuple[int, StreamItem]] = Queue(most)
        self._open: set[int] = set()

    def __len__(self) -> int:
        return self._items.qsize()

    def open(self, hub: int) -> None:
        self._open.add(hub)

    def close(self, *hubs: int) -> None:
        """Refuse further items of these hubs; what is in the queue stays."""
        self._open.difference_update(hubs)

    def put(self, hub: int, item: StreamItem) -> bool:
        """Add an item when there is room; return False where the hub was closed meanwhile."""
        while hub in self._open:
            try:
                self._items.put((hub, item), timeout=_CHECK_SECONDS)
            except Full:
                continue
            return True
        return False

    def take(self, *, seconds: float) -> dict[int, list[StreamItem]]:
        """Return what arrives within 200 ms after the first item, by hub: at most 500 items.

        Empty after so many seconds without one.
        """
        batch: dict[int, list[StreamItem]] = defaultdict(list)
        until = time.monotonic() + seconds
        for number in range(BATCH_ITEMS):
            try:
                hub, item = self._items.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
            batch[hub].append(item)
            if number == 0:
                until = time.monotonic() + BATCH_SECONDS
        return batch
