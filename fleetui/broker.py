"""The queue that needs no server: a folder, in which a message is a file.

Kombu brings such a transport, but a reader of that one may find a file that its writer has only opened:
messages get lost, and a worker that meets an empty file ends. Here a message appears by a rename, whole, and
is taken by a rename, in which only one reader succeeds. There are no broadcasts: workers hear no commands.
"""

import ctypes
import logging
import os
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from io import FileIO
from pathlib import Path
from queue import Empty
from select import select
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.utils.json import dumps, loads

_log = logging.getLogger(__name__)
_kernel = ctypes.CDLL(None)
SCHEME = "atomicfs"
UPDATES, PERIODIC, ANALYSES, EXACT = "celery", "periodic", "analyses", "exact"
"""The queues: scheduling and rollouts; the sweep and observation, which do not wait for those; what-if; exact
search.
"""
VALID_SECONDS = 90.0
"""A message that waited longer is dropped, by the clock of the worker: that may be a minute ahead."""
_ABANDONED_SECONDS = 60
_LONGEST_WAIT = 0.5
_PAUSE = 0.1
_IN_MOVED_TO = 0x80


class Channel(virtual.Channel):
    """One reader and writer of the folder that the transport option `folder` names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        client = self.connection.client  # which kombu's types take for optional
        self._folder = Path(client.transport_options["folder"])  # type: ignore[union-attr,index]
        self._drafts = self._folder / "drafts"
        self._claims = self._folder / "claims"
        self._paths: dict[str, deque[Path]] = {}
        self._make_folders()
        for claim in _abandoned(self._claims):
            with suppress(FileNotFoundError):
                claim.rename(self._folder / claim.name)
        for draft in _abandoned(self._drafts):
            draft.unlink(missing_ok=True)

    def _put(self, queue: str, message: Any, **_options: Any) -> None:
        # The name sorts by age.
        name = f"{time.time_ns():020d}-{uuid.uuid4().hex}.{queue}.msg"
        draft = self._drafts / name
        try:
            draft.write_text(dumps(message), encoding="utf-8")
        except FileNotFoundError:  # the folder was removed while this process runs
            self._make_folders()
            draft.write_text(dumps(message), encoding="utf-8")
        draft.rename(self._folder / name)

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002  # kombu polls, nothing waits here
        paths = self._paths.setdefault(queue, deque())
        if not paths:  # listed each time, reading n messages would cost n²
            paths.extend(self._list(queue))
        while paths:
            path = paths.popleft()
            claim = self._claims / path.name
            try:
                path.rename(claim)
            except FileNotFoundError:
                continue  # another reader was faster
            content = claim.read_bytes()
            claim.unlink()
            try:
                return loads(content.decode())
            except ValueError:  # of a faulty disk, or put there by a person
                _log.warning(
                    "The message %s is no JSON in UTF-8; it was removed", path.name
                )
        raise Empty

    def _size(self, queue: str) -> int:
        return len(self._list(queue))

    def _purge(self, queue: str) -> int:
        count = 0
        for path in self._list(queue):
            with suppress(FileNotFoundError):  # a reader was faster
                path.unlink()
                count += 1
        return count

    def _list(self, queue: str) -> list[Path]:
        # A folder that is missing has no files.
        _, _, names = next(os.walk(self._folder), ("", [], []))
        return sorted(
            self._folder / name for name in names if name.endswith(f".{queue}.msg")
        )

    def _make_folders(self) -> None:
        for folder in (self._drafts, self._claims):
            folder.mkdir(parents=True, exist_ok=True)


def _abandoned(folder: Path) -> Iterator[Path]:
    latest = time.time() - _ABANDONED_SECONDS
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # its owner is alive and has just finished
            if path.stat().st_ctime < latest:
                yield path


class Transport(virtual.Transport):
    """What `atomicfs://` means to kombu."""

    Channel = Channel
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset({"direct", "topic"})
    )
    default_port = 0
    driver_type = SCHEME
    driver_name = SCHEME
    default_connection_params: dict[
        str, Any
    ] = {}  # there is no host that could be missing

    @cached_property
    def _arrivals(self) -> list[FileIO]:
        """What can be read when a message has come; empty where there is no inotify."""
        number = getattr(_kernel, "inotify_init1", lambda _flags: -1)(
            os.O_NONBLOCK | os.O_CLOEXEC
        )
        return [FileIO(number)] if number > 0 else []

    def drain_events(
        self, connection: Any, timeout: float | None = None, **_options: Any
    ) -> None:
        """Read a message, or wait a little for one: a worker has other work, too."""
        folder = os.fsencode(self.client.transport_options["folder"])  # type: ignore[union-attr,index]  # see above
        for arrivals in self._arrivals:  # each time: the folder may be a new one
            _kernel.inotify_add_watch(arrivals.fileno(), folder, _IN_MOVED_TO)
        try:
            super().drain_events(connection, timeout=0)
        except TimeoutError:
            longest = _LONGEST_WAIT if self._arrivals else _PAUSE
            seconds = min(timeout or longest, longest)
            for arrivals in select(self._arrivals, [], [], seconds)[0]:
                arrivals.read(1 << 16)
            raise

    def driver_version(self) -> str:
        return "1"


def messages_before(folder: Path, moment: datetime) -> list[Path]:
    """Return the files of messages that were written before a moment, whatever queue they are for."""
    paths = []
    for path in folder.rglob("*.msg"):
        with suppress(FileNotFoundError):  # a reader has just taken it
            if path.stat().st_mtime < moment.timestamp():
                paths.append(path)
    return paths


def is_folder(url: str) -> bool:
    return url.startswith(f"{SCHEME}://")


def transport_options(url: str, *, folder: Path) -> dict[str, Any]:
    """Return the options under which kombu uses a broker; the folder matters where no server is named."""
    if is_folder(url):
        return {"folder": folder}
    if url.startswith("redis"):
        # By kombu's own values a dead worker's message comes back after minutes; by these after 15 s.
        return {
            "visibility_timeout": 15,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
        }
    return {}


def register() -> None:
    TRANSPORT_ALIASES[SCHEME] = "fleetui.broker:Transport"
