"""Watching real processes: what they print, which run, which have ended. Every wait has a deadline."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent.parent
Found = TypeVar("Found")
PATIENCE = 90.0
"""Seconds that a wait may take where nothing else is said: much is started at once, beside other tests."""


class Watched:
    """A running command with its lines, from both of its outputs, as they come."""

    def __init__(self, *arguments: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._coming: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(ValueError):  # the test is over and has closed the stream
            for line in self.process.stdout or ():
                self._coming.put(line.rstrip("\n"))

    def wait_for(self, pattern: str, *, seconds: float = PATIENCE) -> re.Match[str]:
        """Return the match in the next line that has one."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._coming.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise AssertionError(
                    f"no line matched {pattern!r}; got {self.lines}"
                ) from None
            self.lines.append(line)
            if match := re.search(pattern, line):
                return match


@contextmanager
def watching(*arguments: str, **variables: str) -> Iterator[Watched]:
    """Run Python with these arguments, and leave nothing of it behind."""
    watched = Watched(*arguments, **variables)
    try:
        yield watched
    finally:
        watched.process.kill()
        watched.process.wait()
        if watched.process.stdout:
            watched.process.stdout.close()


def eventually(
    what: Callable[[], Found], *, seconds: float = PATIENCE, pause: float = 0.02
) -> Found:
    """Call until the result is true, and return it; with a longer pause where a call takes processor time."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        if time.monotonic() > deadline:
            raise AssertionError(f"still {found!r} after {seconds} s")
        time.sleep(pause)
    return found


def is_gone(process_id: int) -> bool:
    """Return whether a process has ended; a zombie counts as ended."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state.rpartition(")")[2].split()[0] in "ZX"


def living_with(variable: str) -> dict[int, str]:
    """List the processes with this `NAME=value` in their environment, and their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or gone by now
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                )
    return {
        process_id: command
        for process_id, command in found.items()
        if not is_gone(process_id)
    }
