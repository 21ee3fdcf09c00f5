"""Many tabs poll one rollout of a running console: what its web processes cost, and what they answer.

Every tab keeps its connection open and polls every two seconds for what changed, as htmx does.
"""

import http.client
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PERIOD = 2.0
_VERSION = re.compile(r"[?&;]v=([0-9.]+)")
_HZ = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Polled:
    """What so many tabs cost in so many seconds."""

    tabs: int
    seconds: float
    cpu_seconds: float
    answers: Counter[int]
    slowest: float

    @property
    def share(self) -> float:
        """Return the part of one core that the web processes took."""
        return self.cpu_seconds / self.seconds

    @property
    def unchanged(self) -> float:
        """Return the part of the answers that said: nothing is new."""
        return self.answers[204] / max(self.answers.total(), 1)


class Tab(threading.Thread):
    """A browser's tab: it polls for what is newer than the version that it shows, until it is stopped."""

    def __init__(
        self,
        port: int,
        path: str,
        cookie: str,
        *,
        version: str,
        first: float,
        stop: threading.Event,
    ) -> None:
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.path, self.version, self.due = path, version, first
        self.reconnected = 0
        self.headers = {
            "Cookie": cookie,
            "HX-Request": "true",
            "Connection": "keep-alive",
        }
        self.stop = stop
        self.answers: Counter[int] = Counter()
        self.slowest = 0.0

    def run(self) -> None:
        """Poll every two seconds."""
        while not self.stop.wait(max(0.0, self.due - time.monotonic())):
            started = time.monotonic()
            self.poll()
            self.slowest = max(self.slowest, time.monotonic() - started)
            self.due += PERIOD
        self.connection.close()

    def poll(self) -> None:
        """Poll once."""
        try:
            answer = self._answer()
        except (
            http.client.RemoteDisconnected,
            ConnectionResetError,
        ):  # as a browser does: again
            self.connection.close()
            answer = self._answer()
            self.reconnected += 1
        body = answer.read().decode()
        self.answers[answer.status] += 1
        if found := _VERSION.search(body):
            self.version = found[1]

    def _answer(self) -> http.client.HTTPResponse:
        self.connection.request(
            "GET", f"{self.path}?v={self.version}", headers=self.headers
        )
        return self.connection.getresponse()

    def forget(self) -> None:
        """Count from here on."""
        self.answers, self.slowest = Counter(), 0.0


def poll(
    port: int,
    path: str,
    cookie: str,
    *,
    processes: list[int],
    tabs: int,
    seconds: float,
    meanwhile: Callable[[], object] | None = None,
    every: float = 3.0,
) -> Polled:
    """Poll with all tabs, the first round not counted; `meanwhile` changes the rollout."""
    stop = threading.Event()
    first = Tab(port, path, cookie, version="0", first=0.0, stop=stop)
    first.poll()
    begin = time.monotonic() + 0.5
    open_tabs = [
        Tab(
            port,
            path,
            cookie,
            version=first.version,
            first=begin + PERIOD * number / tabs,
            stop=stop,
        )
        for number in range(tabs)
    ]
    for tab in open_tabs:
        tab.start()
    time.sleep(0.5 + PERIOD * 1.5)
    for tab in open_tabs:
        tab.forget()
    before, started = cpu_seconds(processes), time.monotonic()
    changed = started
    while time.monotonic() < started + seconds:
        if meanwhile and time.monotonic() >= changed + every:
            changed += every
            meanwhile()
        time.sleep(0.1)
    spent, passed = cpu_seconds(processes) - before, time.monotonic() - started
    stop.set()
    for tab in open_tabs:
        tab.join(timeout=30)
    answers = sum((tab.answers for tab in open_tabs), Counter[int]())
    return Polled(tabs, passed, spent, answers, max(tab.slowest for tab in open_tabs))


def cpu_seconds(processes: list[int]) -> float:
    """Return what these processes have used so far, of user and system time."""
    return sum(_ticks(process) for process in processes) / _HZ


def _ticks(process_id: int) -> int:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def with_children(process_id: int) -> list[int]:
    """Return a process and all that came of it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended by now
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [process_id]
    for one in found:
        found += children.get(one, [])
    return found
