"""Runs web server, worker and beat: restarts a process that ends, and stops all of them together.

Each process is a fork of the supervisor, with which it shares the memory of all that is imported; so the
supervisor has no thread, no connection and no pool when it forks. Only the threads that numpy has for linear
algebra are allowed: their library ends them for each fork, and starts them again for the next product. Each
process leads a session of its own, so that Ctrl-C reaches the supervisor alone and what a dead process leaves
behind can be found. On Linux the processes end, too, when the supervisor is killed.
"""

import ctypes
import fcntl
import os
import runpy
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from selectors import EVENT_READ, PollSelector
from types import FrameType
from typing import TextIO

from fleetui import broker
from fleetui.broker import ANALYSES, EXACT, PERIODIC, UPDATES
from fleetui.logs import wrapped_line

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def end_with(parent: int, *, name: str) -> None:
    """End this process with its parent, and show it under this name beside the parent's command line."""
    if sys.platform != "linux":
        return
    kernel = ctypes.CDLL(None)
    kernel.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    kernel.prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel registered the request
        sys.exit(1)


_PERIODIC_SLOTS = 2
"""One for the observation of clusters, which may wait for slow ones, and one for the sweep."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_STEADY_SECONDS = 30.0
_MOST_READ = 1 << 16
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
_WANTED_SECONDS = 30.0
"""Between two checks whether there is work for a process."""


class AlreadyRunningError(Exception):
    """Another process holds the lock."""


@dataclass(frozen=True, slots=True)
class SupervisedProcess:
    """A process to keep running, and the open files that it inherits.

    `command` is a Python module and its arguments, as after `python -m`. `is_wanted` says from time to time
    whether there is work for it; without work it does not run.
    """

    name: str
    command: tuple[str, ...]
    inherits: tuple[int, ...] = ()
    is_wanted: Callable[[], bool] | None = None
    runs_once: bool = False

    def become(self) -> None:
        """Run the command in this process, which has to be a fork of the supervisor."""
        sys.argv = [*self.command]
        runpy.run_module(self.command[0], run_name="__main__", alter_sys=True)


@dataclass(slots=True)
class _Child:
    part: SupervisedProcess
    started: float
    copies: Sequence[Callable[[], bool]]


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


def run_in_fork(action: Callable[[], None]) -> None:
    """Run something whose memory and threads end with it; exit with its status if it fails."""
    supervisor, process_id = os.getpid(), os.fork()
    if not process_id:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        end_with(supervisor, name="prepare")
        action()
        sys.exit(0)
    _, status = os.waitpid(process_id, 0)
    if status:
        sys.exit(abs(os.waitstatus_to_exitcode(status)))


class Output:
    """Writes whole lines of many processes, each behind the name of its process."""

    def __init__(
        self, out: TextIO, err: TextIO, *, width: int, as_json: bool = False
    ) -> None:
        self._out, self._err, self._width, self._as_json = out, err, width, as_json
        self._incomplete: dict[tuple[str, bool], bytes] = {}

    def say(self, name: str, line: str, *, is_error: bool = False) -> None:
        """Write one line; a closed stream does not stop the processes."""
        target = self._err if is_error else self._out
        text = f"{name:<{self._width}} | {line}"
        if self._as_json:
            text = wrapped_line(name, line, is_error=is_error)
        with suppress(OSError, ValueError):
            target.write(f"{text}\n")
            target.flush()

    def copy(self, name: str, stream: FileIO, *, is_error: bool) -> bool:
        """Write the lines that a process has written; return False if there is nothing."""
        source = (name, is_error)
        content = stream.read(_MOST_READ) or b""
        *lines, rest = (self._incomplete.pop(source, b"") + content).split(b"\n")
        if content:
            self._incomplete[source] = rest
        elif rest:
            lines.append(rest)
        for line in lines:
            self.say(
                name, line.decode(errors="replace").rstrip("\r"), is_error=is_error
            )
        return bool(content)


class Supervisor:
    """Runs processes until a signal stops it.

    One thread handles all events. It must be the main thread, since that one gets the signals, and since the
    kernel takes the end of the thread that started a part for the end of its parent.
    """

    def __init__(
        self,
        parts: Sequence[SupervisedProcess],
        *,
        folder: Path,
        output: Output,
        patience: float = 8.0,
        wanted_seconds: float = _WANTED_SECONDS,
    ) -> None:
        self._parts = {part.name: part for part in parts}
        self._folder, self._output = folder, output
        self._children: dict[int, _Child] = {}
        self._quick_ends = dict.fromkeys(self._parts, 0)
        self._due = {part.name: 0.0 for part in parts if part.is_wanted is None}
        self._wanted_seconds, self._wanted_at = wanted_seconds, 0.0
        self._patience = patience
        self._events = PollSelector()
        self._wakeup, self._waker = socket.socketpair()
        self._wakeup.setblocking(False)
        self._waker.setblocking(False)
        self._signals = 0

    def run(self) -> SupervisedProcess | None:
        """Start everything, keep it running, and return None after a signal when nothing is left.

        In each process that starts it returns, too: the part which that process has to become.
        """
        with self._listening_to_signals():
            try:
                while not self._signals:
                    self._start_and_end_wanted()
                    for name, when in [*self._due.items()]:
                        if when <= time.monotonic():
                            del self._due[name]
                            if self._fork(self._parts[name]):
                                return self._parts[name]
                    times = [*self._due.values()]
                    if any(part.is_wanted for part in self._parts.values()):
                        times.append(self._wanted_at)
                    self._handle_events(until=min(times, default=None))
            finally:
                self._stop()
        return None

    def _fork(self, part: SupervisedProcess) -> bool:
        """Start a process; return True in the new one."""
        outputs = [os.pipe(), os.pipe()]
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor = os.getpid()
        # Until the new process has its own handlers, a signal must not count as one for the supervisor.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        process_id = os.fork()
        if process_id:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            copies = []
            for number, (reads, writes) in enumerate(outputs):
                os.close(writes)
                os.set_blocking(reads, False)
                stream = os.fdopen(reads, "rb", buffering=0)
                copies.append(partial(self._copy, part.name, stream, number == 1))
                self._events.register(stream, EVENT_READ, copies[-1])
            self._children[process_id] = _Child(part, time.monotonic(), copies)
            return False
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        os.setsid()
        end_with(supervisor, name=part.name)
        # The last references to the streams of the others, which closes them.
        self._children.clear()
        self._events.close()
        others = {file for other in self._parts.values() for file in other.inherits}
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, file in enumerate((nothing, outputs[0][1], outputs[1][1])):
            os.dup2(file, number)
        for file in (nothing, *outputs[0], *outputs[1], *others - {*part.inherits}):
            os.close(file)
        # A pipe would be written in blocks.
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        os.chdir(self._folder)
        return True

    def _start_and_end_wanted(self) -> None:
        """Start what has work now, and end what has none any more."""
        if time.monotonic() < self._wanted_at:
            return
        self._wanted_at = time.monotonic() + self._wanted_seconds
        running = {child.part.name: number for number, child in self._children.items()}
        for name, part in self._parts.items():
            if part.is_wanted is None:
                continue
            is_wanted, process_id = part.is_wanted(), running.get(name)
            if is_wanted and process_id is None:
                self._due.setdefault(name, 0.0)
            elif not is_wanted:
                self._due.pop(name, None)
                if process_id:
                    os.kill(process_id, signal.SIGTERM)

    def _ended(self, process_id: int, code: int) -> None:
        child = self._children.pop(process_id)
        part = child.part
        _kill_group(process_id)
        for copy in child.copies:
            while copy():
                pass
        is_unwanted = part.is_wanted is not None and not part.is_wanted()
        if self._signals or part.runs_once or is_unwanted:
            return
        lived = time.monotonic() - child.started
        quick_ends = 0 if lived >= _STEADY_SECONDS else self._quick_ends[part.name]
        pause = pause_before_restart(quick_ends)
        self._quick_ends[part.name] = quick_ends + 1
        self._due[part.name] = time.monotonic() + pause
        ended = (
            f"ended with {code}"
            if code >= 0
            else f"was ended by {signal.Signals(-code).name}"
        )
        self._output.say(
            "up", f"{part.name} {ended}; again in {pause:g} s", is_error=True
        )

    def _handle_events(self, *, until: float | None) -> None:
        """Wait for output, for the end of a process or for a signal, and handle all of it."""
        timeout = None if until is None else max(0.0, until - time.monotonic())
        for key, _ in self._events.select(timeout):
            key.data()
        for process_id in [*self._children]:
            ended, status = os.waitpid(process_id, os.WNOHANG)
            if ended:
                self._ended(process_id, os.waitstatus_to_exitcode(status))

    def _copy(self, name: str, stream: FileIO, is_error: bool) -> bool:
        """Write what a process has written; close the stream and return False where there is nothing."""
        if stream.closed:
            return False
        is_open = self._output.copy(name, stream, is_error=is_error)
        if not is_open:
            self._events.unregister(stream)
            stream.close()
        return is_open

    def _stop(self) -> None:
        """Terminate all processes; kill them after the timeout or at a second signal."""
        deadline = time.monotonic() + self._patience
        for process_id in self._children:
            os.kill(process_id, signal.SIGTERM)
        while self._children and self._signals < 2 and time.monotonic() < deadline:
            self._handle_events(until=deadline)
        for process_id, child in self._children.items():
            self._output.say(
                "up",
                f"{child.part.name} did not end in time and was killed",
                is_error=True,
            )
            _kill_group(process_id)
        while self._children:
            self._handle_events(until=None)

    @contextmanager
    def _listening_to_signals(self) -> Iterator[None]:
        def handle(number: int, _frame: FrameType | None) -> None:
            self._signals += number != signal.SIGCHLD

        before = {number: signal.signal(number, handle) for number in _HANDLED}
        with self._events, self._wakeup, self._waker:
            self._events.register(
                self._wakeup, EVENT_READ, partial(self._wakeup.recv, _MOST_READ)
            )
            signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
            try:
                yield
            finally:
                signal.set_wakeup_fd(-1)
                for number, handler in before.items():
                    signal.signal(number, handler)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class ProcessOptions:
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
    return SupervisedProcess(
        name,
        (
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
        ),
    )


def beat(options: ProcessOptions) -> list[SupervisedProcess]:
    return [
        SupervisedProcess(
            "beat",
            (
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
            ),
        )
    ]


def hubs(options: ProcessOptions) -> list[SupervisedProcess]:
    """Return the watcher of live hubs, which runs while there is one."""
    return [
        SupervisedProcess(
            "hubs", ("fleetui", "watch_hubs"), is_wanted=options.has_live_hub
        )
    ]


PARTS: dict[str, Callable[[ProcessOptions], list[SupervisedProcess]]] = {
    "web": web,
    "worker": workers,
    "beat": beat,
    "hubs": hubs,
}
