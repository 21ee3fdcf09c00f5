"""The bounded queue between the threads that read streams and the one that writes the mirror."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from placements.hubs.watching.stream import StreamItem

MOST_HELD, LEAST_HELD = 20_000, 10_000
BATCH_ITEMS, BATCH_SECONDS = 500, 0.2


class EventQueue:
    """Items by hub, in order of arrival; a batch is due after 200 ms or 500 items.

    While more than 20,000 are held, every `put` waits until fewer than 10,000 are: the streams stop reading,
    and TCP makes the hub wait.
    """

    def __init__(
        self,
        *,
        most: int = MOST_HELD,
        least: int = LEAST_HELD,
        batch: int = BATCH_ITEMS,
        seconds: float = BATCH_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most, self._least, self._batch, self._seconds = (
            most,
            least,
            batch,
            seconds,
        )
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._items: OrderedDict[int, list[StreamItem]] = OrderedDict()
        self._since: dict[int, float] = {}
        self._weight = 0
        self._is_full = False
        self._closed: set[int] = set()
        self._is_closing = False

    @property
    def weight(self) -> int:
        return self._weight

    def open(self, hub: int) -> None:
        with self._changed:
            self._closed.discard(hub)

    def close(self, hub: int) -> None:
        """Drop the items of a hub; its streams that wait return."""
        with self._changed:
            self._closed.add(hub)
            self._weight -= sum(item.weight for item in self._items.pop(hub, ()))
            self._since.pop(hub, None)
            self._changed.notify_all()

    def finish(self) -> None:
        """Refuse further items; all items in the queue are due now."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()

    def put(self, hub: int, item: StreamItem) -> bool:
        """Add an item when there is room; return False where the hub was closed meanwhile."""
        with self._changed:
            while self._is_full and not self._is_closing and hub not in self._closed:
                self._changed.wait()
            if self._is_closing or hub in self._closed:
                return False
            items = self._items.setdefault(hub, [])
            if not items:
                self._since[hub] = self._monotonic()
            items.append(item)
            self._weight += item.weight
            self._is_full = self._is_full or self._weight > self._most
            if len(items) in (1, self._batch):
                self._changed.notify_all()
            return True

    def take(self, *, seconds: float) -> tuple[int, list[StreamItem]] | None:
        """Return a hub and its next batch when one is due; None after so many seconds without one."""
        until = self._monotonic() + seconds
        with self._changed:
            while True:
                now = self._monotonic()
                due = min((self._due(hub) for hub in self._items), default=until)
                if due <= now and self._items:
                    return self._pop(min(self._items, key=self._due))
                if now >= until or self._is_closing:
                    return None
                self._changed.wait(min(due, until) - now)

    def _due(self, hub: int) -> float:
        if self._is_closing or len(self._items[hub]) >= self._batch:
            return self._since[hub] - self._seconds
        return self._since[hub] + self._seconds

    def _pop(self, hub: int) -> tuple[int, list[StreamItem]]:
        items = self._items.pop(hub)
        batch, rest = items[: self._batch], items[self._batch :]
        if rest:
            self._items[hub] = rest  # behind the other hubs; it is due still
        else:
            del self._since[hub]
        self._weight -= sum(item.weight for item in batch)
        if self._is_full and self._weight < self._least:
            self._is_full = False
            self._changed.notify_all()
        return hub, batch
