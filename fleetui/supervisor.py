"""Runs web server, worker and beat: restarts a process that ends, and stops all of them together.

Each process leads a session of its own, so that Ctrl-C reaches the supervisor alone and what a dead process
leaves behind can be found. On Linux the processes end, too, when the supervisor is killed.
"""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import IO, TextIO

from fleetui import broker, tether
from fleetui.broker import ANALYSES, EXACT, PERIODIC, UPDATES
from fleetui.logs import wrapped_line

_PERIODIC_SLOTS = 2
"""One for the observation of clusters, which may wait for slow ones, and one for the sweep."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_STEADY_SECONDS = 30.0
_WANTED_SECONDS = 30.0
"""Between two checks whether there is work for a process."""


class AlreadyRunningError(Exception):
    """Another process holds the lock."""


@dataclass(frozen=True, slots=True)
class SupervisedProcess:
    """A process to keep running, and the open files that it inherits.

    `is_wanted` says from time to time whether there is work for it; without work it does not run.
    """

    name: str
    command: tuple[str, ...]
    inherits: tuple[int, ...] = ()
    is_wanted: Callable[[], bool] | None = None


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    started: float
    pumps: list[threading.Thread]


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Acquire a lock, which the kernel frees when this process ends.

    Raises AlreadyRunningError with the number of the process that holds it.
    """
    with path.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise AlreadyRunningError(file.read().strip()) from error
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def pause_before_restart(quick_ends: int) -> float:
    """Return the seconds to wait after so many ends in a row that came soon after the start."""
    return min(_FIRST_PAUSE * 2 ** min(quick_ends, 10), _LONGEST_PAUSE)


class Output:
    """Writes whole lines of many processes, each behind the name of its process."""

    def __init__(
        self, out: TextIO, err: TextIO, *, width: int, as_json: bool = False
    ) -> None:
        self._out, self._err, self._width, self._as_json = out, err, width, as_json
        self._lock = threading.Lock()

    def say(self, name: str, line: str, *, is_error: bool = False) -> None:
        """Write one line; a closed stream does not stop the processes."""
        target = self._err if is_error else self._out
        text = f"{name:<{self._width}} | {line}"
        if self._as_json:
            text = wrapped_line(name, line, is_error=is_error)
        with self._lock, suppress(OSError, ValueError):
            target.write(f"{text}\n")
            target.flush()

    def pump(self, name: str, stream: IO[bytes], *, is_error: bool) -> threading.Thread:
        """Pass on what comes out of a process until it closes the stream."""

        def copy() -> None:
            with stream:
                for line in stream:
                    self.say(
                        name,
                        line.decode(errors="replace").rstrip("\r\n"),
                        is_error=is_error,
                    )

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        return thread


class Supervisor:
    """Runs processes until a signal stops it.

    One thread handles all events: the end of a process or a signal arrives in a queue as the function that
    handles it. It must be the main thread, since that one gets the signals, and since the
    kernel takes the end of the thread that started a part for the end of its parent.
    """

    def __init__(
        self,
        parts: Sequence[SupervisedProcess],
        *,
        environ: Mapping[str, str],
        folder: Path,
        output: Output,
        patience: float = 8.0,
        wanted_seconds: float = _WANTED_SECONDS,
    ) -> None:
        self._parts = {part.name: part for part in parts}
        self._environ, self._folder, self._output = dict(environ), folder, output
        self._children: dict[str, _Child] = {}
        self._quick_ends = dict.fromkeys(self._parts, 0)
        self._due = {part.name: 0.0 for part in parts if part.is_wanted is None}
        self._wanted_seconds, self._wanted_at = wanted_seconds, 0.0
        self._patience = patience
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._signals = 0

    def run(self) -> None:
        """Start everything, keep it running, and return after a signal when nothing is left."""
        with self._listening_to_signals():
            try:
                while not self._signals:
                    self._start_and_end_wanted()
                    for name in [
                        name
                        for name, when in self._due.items()
                        if when <= time.monotonic()
                    ]:
                        del self._due[name]
                        part = self._parts[name]
                        leash = (
                            sys.executable,
                            "-I",
                            "-S",
                            str(tether.__file__),
                            str(os.getpid()),
                        )
                        process = subprocess.Popen(  # noqa: S603  # our own command lines
                            [*leash, *part.command],
                            stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE,
                            cwd=self._folder,
                            env=self._environ,
                            pass_fds=part.inherits,
                            start_new_session=True,
                        )
                        pumps = [
                            self._output.pump(
                                part.name, stream, is_error=stream is process.stderr
                            )
                            for stream in (process.stdout, process.stderr)
                            if stream
                        ]
                        self._children[part.name] = _Child(
                            process, time.monotonic(), pumps
                        )
                        threading.Thread(
                            target=self.report_end,
                            args=(part.name, process),
                            daemon=True,
                        ).start()
                    times = [*self._due.values()]
                    if any(part.is_wanted for part in self._parts.values()):
                        times.append(self._wanted_at)
                    self._handle_one_event(until=min(times, default=None))
            finally:
                self._stop()

    def _start_and_end_wanted(self) -> None:
        """Start what has work now, and end what has none any more."""
        if time.monotonic() < self._wanted_at:
            return
        self._wanted_at = time.monotonic() + self._wanted_seconds
        for name, part in self._parts.items():
            if part.is_wanted is None:
                continue
            is_wanted, child = part.is_wanted(), self._children.get(name)
            if is_wanted and child is None:
                self._due.setdefault(name, 0.0)
            elif not is_wanted:
                self._due.pop(name, None)
                if child:
                    child.process.terminate()

    def report_end(self, name: str, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._events.put(partial(self._ended, name))

    def _ended(self, name: str) -> None:
        child = self._children.pop(name)
        _kill_group(child.process.pid)
        for pump in child.pumps:
            pump.join(timeout=1)
        wanted = self._parts[name].is_wanted
        if self._signals or (wanted is not None and not wanted()):
            return
        lived = time.monotonic() - child.started
        quick_ends = 0 if lived >= _STEADY_SECONDS else self._quick_ends[name]
        pause = pause_before_restart(quick_ends)
        self._quick_ends[name] = quick_ends + 1
        self._due[name] = time.monotonic() + pause
        code = child.process.returncode
        ended = (
            f"ended with {code}"
            if code >= 0
            else f"was ended by {signal.Signals(-code).name}"
        )
        self._output.say("up", f"{name} {ended}; again in {pause:g} s", is_error=True)

    def _handle_one_event(self, *, until: float | None) -> None:
        timeout = None if until is None else max(0.0, until - time.monotonic())
        with suppress(Empty):
            self._events.get(timeout=timeout)()

    def _stop(self) -> None:
        """Terminate all processes; kill them after the timeout or at a second signal."""
        deadline = time.monotonic() + self._patience
        for child in self._children.values():
            child.process.terminate()
        while self._children and self._signals < 2 and time.monotonic() < deadline:
            self._handle_one_event(until=deadline)
        for name, child in self._children.items():
            self._output.say(
                "up", f"{name} did not end in time and was killed", is_error=True
            )
            _kill_group(child.process.pid)
        while self._children:
            self._handle_one_event(until=None)

    @contextmanager
    def _listening_to_signals(self) -> Iterator[None]:
        def handle(_number: int, _frame: FrameType | None) -> None:
            self._events.put(self.count_signal)

        before = {
            number: signal.signal(number, handle)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def count_signal(self) -> None:
        self._signals += 1


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Sizes and log levels of the processes."""

    web_processes: int
    web_threads: int
    worker_slots: int
    log_level: str
    broker_url: str
    beat_file: Path
    listener: int | None
    has_live_hub: Callable[[], bool] = lambda: False
    logs_as_json: bool = False


def web(options: ProcessOptions) -> list[SupervisedProcess]:
    """Return the web server, which inherits its open port from the supervisor.

    The port stays open during a restart, so that browsers wait instead of failing.
    """
    if options.listener is None:
        raise ValueError("a web server needs an open port")
    command = (
        sys.executable,
        "-m",
        "gunicorn",
        "fleetui.wsgi",
        "--bind",
        f"fd://{options.listener}",
        # Longer than the slow tick of a page: a polling tab keeps its connection.
        "--keep-alive",
        "20",
        "--worker-class",
        "gthread",
        "--no-control-socket",
        "--graceful-timeout",
        "5",
        "--workers",
        str(options.web_processes),
        "--threads",
        str(options.web_threads),
        # gunicorn sets a umask of its own, by default none.
        "--umask",
        "0o077",
        "--log-level",
        options.log_level,
        *(
            ("--logger-class", "fleetui.logs.JsonGunicornLogger")
            if options.logs_as_json
            else ()
        ),
    )
    return [SupervisedProcess("web", command, (options.listener,))]


def workers(options: ProcessOptions) -> list[SupervisedProcess]:
    """Return the worker for updates and analyses, and the observer.

    The observer has the sweep and the observation of clusters, which no update delays. With the folder broker
    the tasks of the worker are threads, which use one processor only: they are divided among two processes.
    """
    several = broker.is_folder(options.broker_url) and (os.cpu_count() or 1) > 1
    count = min(2, options.worker_slots) if several else 1
    names = ["worker", "worker-2"][:count]
    return [
        *(
            _celery_worker(
                name,
                options,
                [UPDATES, ANALYSES, EXACT],
                slots=-(-options.worker_slots // count),
            )
            for name in names
        ),
        _celery_worker("observer", options, [PERIODIC], slots=_PERIODIC_SLOTS),
    ]


def _celery_worker(
    name: str, options: ProcessOptions, queues: Sequence[str], *, slots: int
) -> SupervisedProcess:
    # Threads with the folder broker: a killed pool process would stop the others.
    pool = "threads" if broker.is_folder(options.broker_url) else "prefork"
    command = (
        sys.executable,
        "-m",
        "celery",
        "--app",
        "fleetui",
        "--quiet",
        "worker",
        "--queues",
        ",".join(queues),
        "--pool",
        pool,
        "--concurrency",
        str(slots),
        "--without-gossip",
        "--without-mingle",
        "--hostname",
        f"{name}-{os.getpid()}@%h",
        "--loglevel",
        options.log_level,
    )
    return SupervisedProcess(name, command)


def beat(options: ProcessOptions) -> list[SupervisedProcess]:
    command = (
        sys.executable,
        "-m",
        "celery",
        "--app",
        "fleetui",
        "--quiet",
        "beat",
        "--pidfile=",
        "--schedule",
        str(options.beat_file),
        "--loglevel",
        options.log_level,
    )
    return [SupervisedProcess("beat", command)]


def hubs(options: ProcessOptions) -> list[SupervisedProcess]:
    """Return the watcher of live hubs, which runs while there is one."""
    command = (sys.executable, "-m", "fleetui", "watch_hubs")
    return [SupervisedProcess("hubs", command, is_wanted=options.has_live_hub)]


PARTS: dict[str, Callable[[ProcessOptions], list[SupervisedProcess]]] = {
    "web": web,
    "worker": workers,
    "beat": beat,
    "hubs": hubs,
}
